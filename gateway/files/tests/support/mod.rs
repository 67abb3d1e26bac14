//! A service over memory, and callers of it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use tombolo_base::FlushMode;
use tombolo_files::memory::MemoryStorage;
use tombolo_files::{
    Attributes, Caller, Entry, FileError, FileService, Invalidation, NameIn, NewNode, OpenFlags, Place, ROOT, Request,
    SessionKind, SessionRequest, SetAttributes, Timestamp,
};

pub const SHARE: &str = "data";

pub struct World {
    pub storage: Arc<MemoryStorage>,
    pub service: Arc<FileService<MemoryStorage>>,
    pub invalidations: Arc<Mutex<Vec<Invalidation>>>,
    clock: AtomicI64,
    share: u32,
    pub session: u64,
}

impl World {
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryStorage::new()), 0)
    }

    pub fn with_quota(quota_bytes: u64) -> Self {
        Self::over(Arc::new(MemoryStorage::new()), quota_bytes)
    }

    pub fn over(storage: Arc<MemoryStorage>, quota_bytes: u64) -> Self {
        let (service, invalidations) = open(&storage);
        service
            .create_share(SHARE, quota_bytes, FlushMode::Local, Timestamp::new(1, 0))
            .unwrap();
        Self::attached(storage, service, invalidations)
    }

    /// On storage that has the share already.
    pub fn again(storage: Arc<MemoryStorage>) -> Self {
        let (service, invalidations) = open(&storage);
        Self::attached(storage, service, invalidations)
    }

    fn attached(
        storage: Arc<MemoryStorage>,
        service: Arc<FileService<MemoryStorage>>,
        invalidations: Arc<Mutex<Vec<Invalidation>>>,
    ) -> Self {
        let start = service.attach(&client(b"first", SessionKind::Client)).unwrap();
        Self {
            storage,
            service,
            invalidations,
            clock: AtomicI64::new(1000),
            share: start.share,
            session: start.session,
        }
    }

    pub fn caller(&self) -> Caller {
        self.caller_of(self.session)
    }

    pub fn caller_of(&self, session: u64) -> Caller {
        Caller {
            session,
            share: self.share,
            uid: 1000,
            gid: 100,
            now: Timestamp::new(self.clock.fetch_add(1, Ordering::Relaxed), 0),
            request: Request::Unnumbered,
        }
    }

    pub fn attach(&self, name: &[u8], kind: SessionKind) -> u64 {
        self.service.attach(&client(name, kind)).unwrap().session
    }

    pub fn mkdir(&self, parent: u64, name: &str) -> u64 {
        self.service
            .mkdir(&self.caller(), at(parent, name), node(0o755))
            .unwrap()
            .inode
    }

    pub fn mknod(&self, parent: u64, name: &str) -> u64 {
        self.service
            .mknod(&self.caller(), at(parent, name), node(0o100_644))
            .unwrap()
            .inode
    }

    pub fn create(&self, parent: u64, name: &str) -> Entry {
        let flags = OpenFlags::default();
        self.service
            .create(&self.caller(), at(parent, name), node(0o644), flags)
            .unwrap()
            .0
    }

    pub fn unlink(&self, parent: u64, name: &str) -> Result<(), FileError> {
        self.service.unlink(&self.caller(), at(parent, name))
    }

    pub fn lookup(&self, parent: u64, name: &str) -> Result<Entry, FileError> {
        self.service.lookup(&self.caller(), at(parent, name))
    }

    pub fn getattr(&self, inode: u64) -> Result<Attributes, FileError> {
        self.service.getattr(&self.caller(), inode)
    }

    pub fn write(&self, inode: u64, offset: u64, data: &[u8]) -> Result<usize, FileError> {
        self.service
            .write(&self.caller(), Place { inode, offset }, data.to_vec().into(), false)
    }

    pub fn read(&self, inode: u64, offset: u64, bytes: usize) -> Result<Vec<u8>, FileError> {
        let (reply, answer) = mpsc::channel();
        let reply = Box::new(move |read| reply.send(read).unwrap());
        self.service.read(&self.caller(), Place { inode, offset }, bytes, reply);
        answer.recv().unwrap()
    }

    pub fn names(&self, directory: u64) -> Vec<String> {
        let entries = self
            .service
            .readdir(&self.caller(), directory, 2, usize::MAX, false)
            .unwrap();
        entries
            .into_iter()
            .map(|entry| String::from_utf8(entry.name).unwrap())
            .collect()
    }

    /// Nothing contradicts anything.
    pub fn check(&self) {
        check(&self.service);
    }
}

pub fn open(storage: &Arc<MemoryStorage>) -> (Arc<FileService<MemoryStorage>>, Arc<Mutex<Vec<Invalidation>>>) {
    let invalidations = Arc::new(Mutex::new(Vec::new()));
    let heard = invalidations.clone();
    let listener = Box::new(move |invalidation| heard.lock().unwrap().push(invalidation));
    (
        Arc::new(FileService::open(storage.clone(), listener).unwrap()),
        invalidations,
    )
}

pub fn check(service: &FileService<MemoryStorage>) {
    let report = service.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.findings, vec![]);
    assert!(report.has_totals);
}

pub fn client(name: &[u8], kind: SessionKind) -> SessionRequest<'_> {
    SessionRequest {
        client: name,
        share: SHARE,
        incarnation: 1,
        kind,
    }
}

pub fn at(parent: u64, name: &str) -> NameIn<'_> {
    NameIn {
        parent,
        name: name.as_bytes(),
    }
}

pub fn in_root(name: &str) -> NameIn<'_> {
    at(ROOT, name)
}

pub fn node(mode: u32) -> NewNode {
    NewNode {
        mode,
        umask: 0o022,
        device: 0,
        attributes: SetAttributes::default(),
    }
}
