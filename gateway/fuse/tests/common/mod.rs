//! Files in memory behind a server of their own, and a client that sends exactly what it is told to.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod client;

use std::collections::{BTreeMap, HashSet};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tombolo_fuse::protocol::request::{Readdir, SetAttributes};
use tombolo_fuse::{
    Attach, AttachReply, Attached, Attributes, Completion, DirectoryBuffer, DirectoryEntry, Entry, Errno, Notifier,
    Opened, Reply, Request, RequestHeader, Server, ServerConfig, Service, Session, Statfs,
};

pub const ROOT: u64 = 1;
/// A hang is a failure; no test needs more.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Node {
    mode: u32,
    data: Vec<u8>,
    children: BTreeMap<Vec<u8>, u64>,
}

#[derive(Default)]
struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    /// Nodes whose data is not to be read or written for now.
    held_up: HashSet<u64>,
}

/// What outlives a server, as a disk would.
pub struct Toy {
    tree: Mutex<Tree>,
    let_go: Condvar,
    /// Requests whose handler waits for a node that is held up.
    pub waiting: AtomicUsize,
    pub forgotten: AtomicUsize,
    pub resent: Mutex<Vec<u64>>,
    pub notifiers: Mutex<Vec<Notifier>>,
    pub attached: AtomicUsize,
    pub detached: AtomicUsize,
    pub interrupted: AtomicUsize,
    /// Locks that are waited for.
    pub lock_waiters: AtomicUsize,
}

impl Toy {
    pub fn new() -> Arc<Self> {
        let root = Node {
            mode: libc::S_IFDIR | 0o755,
            ..Node::default()
        };
        let tree = Tree {
            nodes: [(ROOT, root)].into(),
            next: 2,
            held_up: HashSet::new(),
        };
        Arc::new(Self {
            tree: Mutex::new(tree),
            let_go: Condvar::new(),
            waiting: AtomicUsize::new(0),
            forgotten: AtomicUsize::new(0),
            resent: Mutex::default(),
            notifiers: Mutex::default(),
            attached: AtomicUsize::new(0),
            detached: AtomicUsize::new(0),
            interrupted: AtomicUsize::new(0),
            lock_waiters: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, parent: u64, name: &str, mode: u32, data: &[u8]) -> u64 {
        self.lock().add(parent, name.as_bytes(), mode, data)
    }

    pub fn data(&self, node: u64) -> Vec<u8> {
        self.lock().nodes[&node].data.clone()
    }

    /// Whoever reads or writes this node, or makes a directory in it, waits.
    pub fn hold_up(&self, node: u64) {
        self.lock().held_up.insert(node);
    }

    pub fn let_go(&self, node: u64) {
        self.lock().held_up.remove(&node);
        self.let_go.notify_all();
    }

    pub fn wait_until_let_go(&self, node: u64) {
        let mut tree = self.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while tree.held_up.contains(&node) {
            tree = self.let_go.wait(tree).unwrap();
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tree {
    fn add(&mut self, parent: u64, name: &[u8], mode: u32, data: &[u8]) -> u64 {
        let node = self.next;
        self.next += 1;
        let data = data.to_vec();
        self.nodes.insert(
            node,
            Node {
                mode,
                data,
                ..Node::default()
            },
        );
        self.nodes
            .get_mut(&parent)
            .unwrap()
            .children
            .insert(name.to_vec(), node);
        node
    }

    fn attributes(&self, node: u64) -> Result<Attributes, Errno> {
        let found = self.nodes.get(&node).ok_or(Errno::new(libc::ESTALE))?;
        Ok(Attributes {
            node,
            size: found.data.len() as u64,
            blocks: found.data.len().div_ceil(512) as u64,
            mode: found.mode,
            links: 1,
            block_bytes: 4096,
            ..Attributes::default()
        })
    }

    fn entry(&self, node: u64) -> Result<Entry, Errno> {
        Ok(Entry {
            node,
            entry_valid: Duration::from_secs(100),
            attributes_valid: Duration::from_secs(100),
            attributes: self.attributes(node)?,
            ..Entry::default()
        })
    }

    fn child(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        let parent = self.nodes.get(&parent).ok_or(Errno::new(libc::ESTALE))?;
        parent.children.get(name).copied().ok_or(Errno::NOENT)
    }

    fn setattr(&mut self, node: u64, set: &SetAttributes) -> Result<Reply, Errno> {
        let found = self.nodes.get_mut(&node).ok_or(Errno::new(libc::ESTALE))?;
        if let Some(size) = set.size {
            found.data.resize(size as usize, 0);
        }
        if let Some(mode) = set.mode {
            found.mode = mode;
        }
        Ok(Reply::Attributes {
            valid: Duration::ZERO,
            attributes: self.attributes(node)?,
        })
    }

    fn readdir(&self, node: u64, readdir: &Readdir, plus: bool) -> Result<Reply, Errno> {
        let directory = self.nodes.get(&node).ok_or(Errno::new(libc::ESTALE))?;
        let mut buffer = DirectoryBuffer::new(readdir.size);
        for (index, (name, child)) in directory.children.iter().enumerate().skip(readdir.offset as usize) {
            let entry = DirectoryEntry {
                node: *child,
                cookie: index as u64 + 1,
                kind: (self.nodes[child].mode >> 12) as u8,
                name,
            };
            let fits = match plus {
                true => buffer.push_plus(&self.entry(*child)?, &entry),
                false => buffer.push(&entry),
            };
            if !fits {
                break;
            }
        }
        Ok(buffer.into_reply())
    }

    fn handle(&mut self, node: u64, request: Request) -> Result<Reply, Errno> {
        match request {
            Request::Lookup { name } => Ok(Reply::Entry(self.entry(self.child(node, &name)?)?)),
            Request::Getattr { .. } => Ok(Reply::Attributes {
                valid: Duration::ZERO,
                attributes: self.attributes(node)?,
            }),
            Request::Setattr(set) => self.setattr(node, &set),
            Request::Open { .. } | Request::Opendir { .. } => Ok(Reply::Opened(Opened::default())),
            Request::Create { name, mode, .. } => {
                let made = self.add(node, &name, libc::S_IFREG | mode, &[]);
                Ok(Reply::Created(self.entry(made)?, Opened::default()))
            }
            Request::Mkdir { name, mode, .. } => {
                let made = self.add(node, &name, libc::S_IFDIR | mode, &[]);
                Ok(Reply::Entry(self.entry(made)?))
            }
            Request::Unlink { name } | Request::Rmdir { name } => {
                self.child(node, &name)?;
                self.nodes.get_mut(&node).unwrap().children.remove(&name);
                Ok(Reply::Done)
            }
            Request::Read(read) => {
                let data = &self.nodes.get(&node).ok_or(Errno::new(libc::ESTALE))?.data;
                let start = (read.offset as usize).min(data.len());
                let end = (start + read.size as usize).min(data.len());
                Ok(Reply::Data(data[start..end].to_vec()))
            }
            Request::Write(write) => {
                let data = &mut self.nodes.get_mut(&node).ok_or(Errno::new(libc::ESTALE))?.data;
                let end = write.offset as usize + write.data.len();
                data.resize(data.len().max(end), 0);
                data[write.offset as usize..end].copy_from_slice(&write.data);
                Ok(Reply::Written(write.data.len() as u32))
            }
            Request::Readdir(readdir) => self.readdir(node, &readdir, false),
            Request::Readdirplus(readdir) => self.readdir(node, &readdir, true),
            Request::Statfs => Ok(Reply::Statfs(Statfs {
                block_bytes: 4096,
                name_bytes_max: 255,
                ..Statfs::default()
            })),
            Request::Release(_) | Request::Releasedir { .. } | Request::Flush { .. } | Request::Fsync { .. } => {
                Ok(Reply::Done)
            }
            Request::Setlk { .. } => Ok(Reply::Done),
            _ => Err(Errno::NOSYS),
        }
    }
}

pub struct ToyService(pub Arc<Toy>);

impl Service for ToyService {
    fn attach(&self, attach: &Attach, notifier: Notifier) -> Result<Attached, Errno> {
        if attach.share_name != "toy" {
            return Err(Errno::NOENT);
        }
        self.0.attached.fetch_add(1, Ordering::SeqCst);
        self.0.notifiers.lock().unwrap().push(notifier);
        Ok(Attached {
            session: Arc::new(ToySession(Arc::clone(&self.0))),
            reply: AttachReply {
                acl_flags: false,
                write_attributes: false,
                creation_attributes: false,
                session: 11,
                boot: 12,
                root: ROOT,
                max_write: 1 << 20,
                grace_ms: 1000,
                resumed: attach.resume,
            },
        })
    }
}

struct ToySession(Arc<Toy>);

impl Session for ToySession {
    fn handle(&self, header: &RequestHeader, request: Request, completion: Completion) {
        let toy = &self.0;
        if header.is_resent() {
            toy.resent.lock().unwrap().push(header.request_id());
        }
        match request {
            Request::Forget { .. } => {
                toy.forgotten.fetch_add(1, Ordering::SeqCst);
                completion.complete(Ok(Reply::Done));
            }
            // As if somebody held the lock for ever.
            Request::Setlk { wait: true, .. } => wait_for_lock(toy, completion),
            Request::Lookup { ref name } if name == b"panic" => panic!("as the test asks for"),
            Request::Lookup { ref name } if name == b"drop" => drop(completion),
            Request::Lookup { ref name } if name == b"misfit" => completion.complete(Ok(Reply::Done)),
            request => {
                if matches!(request, Request::Read(_) | Request::Write(_) | Request::Mkdir { .. }) {
                    toy.wait_until_let_go(header.node);
                }
                let result = toy.lock().handle(header.node, request);
                completion.complete(result);
            }
        }
    }

    fn detached(&self) {
        self.0.detached.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait_for_lock(toy: &Arc<Toy>, completion: Completion) {
    toy.lock_waiters.fetch_add(1, Ordering::SeqCst);
    let slot = Arc::new(Mutex::new(None));
    let (toy, kept) = (Arc::clone(toy), Arc::clone(&slot));
    let completion = Arc::new(completion);
    let own = Arc::clone(&completion);
    *slot.lock().unwrap() = Some(own);
    completion.on_interrupt(move || {
        toy.interrupted.fetch_add(1, Ordering::SeqCst);
        let completion = kept.lock().unwrap().take();
        std::thread::spawn(move || {
            let mut completion = completion.unwrap();
            let completion = loop {
                match Arc::try_unwrap(completion) {
                    Ok(completion) => break completion,
                    Err(shared) => completion = shared,
                }
            };
            completion.complete(Err(Errno::new(libc::EINTR)));
        });
    });
}

/// A server on a socket of its own.
pub struct Fixture {
    pub toy: Arc<Toy>,
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub directory: TempDir,
}

impl Fixture {
    pub fn start(config: ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut fixture = Self {
            toy: Toy::new(),
            server: None,
            socket: directory.path().join("files.sock"),
            directory,
        };
        fixture.restart(config);
        fixture
    }

    /// Another server, on the same socket and with the same files.
    pub fn restart(&mut self, config: ServerConfig) {
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).unwrap();
        let service = Arc::new(ToyService(Arc::clone(&self.toy)));
        self.server = Some(Server::serve_unix(listener, service, config));
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
