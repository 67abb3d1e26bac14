//! The service: its state, how it comes up from storage, and the ways to read and to change entries that all else uses.
//!
//! | lock | protects | order |
//! |---|---|---|
//! | `files`, one per inode | a regular file's records and data; held while storage makes a write wait | 1 |
//! | `namespace` | names, directories, inodes' records, orphans; never held while anything waits | 2 |
//! | `locks` | the lock table and its records | 3 |
//! | `sessions`, `holding`, `shares` | their maps; nothing is locked under them | 4 |
//!
//! A record of a regular file changes only under its lock in `files`; all but its [`FileRecord`] under `namespace` too.

use crate::error::FileError;
use crate::exclusion::{self, FileLocks, Taken, Waits};
use crate::keys::{self, tag};
use crate::locking::LockState;
use crate::node::Node;
use crate::open_files::OpenFiles;
use crate::records::{FileRecord, IdAllocatorRecord, InodeRecord, NameRecord, Outcome, ReplayRecord, ShareRecord};
use crate::session::Session;
use crate::storage::{Storage, StorageError, SyncDone};
use crate::transaction::Transaction;
use crate::types::{Caller, Changed, FileType, Invalidation, ROOT, Request, Timestamp};
use crate::usage::{Share, Shares};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};
use tombolo_base::{BLOCK_BYTES, EntryChange, FlushMode};

/// Called after each change, on the thread that made it. Must not call the service: a file's lock may be held.
pub type Listener = Box<dyn Fn(Invalidation) + Send + Sync>;

/// Entries that are read at once where there may be many.
pub const PAGE: usize = 256;
/// The same for extended attributes.
const XATTRS_PAGE: usize = 16;
/// The first inode number given out; those below stand for other things.
const INODE_FIRST: u64 = 16;
/// Inode numbers that are taken at once; after a restart, what is left of them stays unused. More are taken when half of
/// them are given out, so many that they are on stable storage long before the other half is.
const INODES_RESERVED: u64 = 1 << 16;

/// IdAllocator to give out, under the namespace lock.
#[derive(Debug)]
pub struct IdAllocator {
    pub next: IdAllocatorRecord,
    /// Inode numbers below are this run's.
    reserved: u64,
    kept: Arc<Kept>,
}

/// Which of the numbers taken are so on stable storage. Only those are given out: after a power loss no other inode
/// gets the number of one that was lost, which clients may still know.
#[derive(Debug)]
struct Kept {
    /// IdAllocator below.
    end: AtomicU64,
    is_syncing: AtomicBool,
}

/// See the module's head for the locks.
pub struct FileService<S> {
    pub(crate) storage: Arc<S>,
    listener: Listener,
    pub(crate) files: FileLocks,
    namespace: RwLock<IdAllocator>,
    locks: Mutex<LockState>,
    pub(crate) sessions: Mutex<BTreeMap<u64, Session>>,
    pub(crate) open_files: Mutex<OpenFiles>,
    pub(crate) shares: Shares,
    /// Changes that have begun, and those that have ended; a check compares sums only when there was none meanwhile.
    changes_begun: AtomicU64,
    changes_ended: AtomicU64,
    waits: Waits,
}

#[must_use]
pub struct ChangeUnderWay<'a>(&'a AtomicU64);

impl Drop for ChangeUnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Invalidations that were not sent yet.
#[must_use]
#[derive(Debug)]
pub struct PendingInvalidations {
    origin: u64,
    share: u32,
    changed: Vec<Changed>,
}

impl<S: Storage> FileService<S> {
    /// Reads shares, sessions, orphans and locks; all else stays in storage.
    ///
    /// # Errors
    /// A record that cannot be read, or storage that does not answer.
    pub fn open(storage: Arc<S>, listener: Listener) -> Result<Self, FileError> {
        Self::open_with(storage, listener, None)
    }

    /// The same for one who decides which thread runs when: whoever finds a lock taken waits as it says.
    ///
    /// # Errors
    /// As above.
    pub fn open_with(storage: Arc<S>, listener: Listener, waits: Waits) -> Result<Self, FileError> {
        let service = Self::open_to_read(storage, listener, waits)?;
        service.load_sessions()?;
        service.drop_notes_without_sessions()?;
        service.load_orphans()?;
        service.load_locks()?;
        match service.take_first_numbers() {
            // A full disk: what is there is served, and the first that is created takes numbers again.
            Ok(()) | Err(FileError::Busy(_) | FileError::NoSpace(_)) => Ok(service),
            Err(error) => Err(error),
        }
    }

    /// For storage that takes no changes: has no sessions, and changes nothing.
    ///
    /// # Errors
    /// As above.
    pub fn open_to_read(storage: Arc<S>, listener: Listener, waits: Waits) -> Result<Self, FileError> {
        let next = match storage.get(&keys::id_allocator())? {
            Some(value) => IdAllocatorRecord::decode(&value)?,
            None => IdAllocatorRecord {
                inode: INODE_FIRST,
                share: 1,
                session: 1,
            },
        };
        let service = Self {
            storage,
            listener,
            files: FileLocks::new(waits.clone()),
            namespace: RwLock::new(IdAllocator {
                next,
                reserved: next.inode,
                kept: Arc::new(Kept {
                    end: AtomicU64::new(next.inode),
                    is_syncing: AtomicBool::new(false),
                }),
            }),
            locks: Mutex::default(),
            sessions: Mutex::default(),
            open_files: Mutex::default(),
            shares: Shares::default(),
            changes_begun: AtomicU64::new(0),
            changes_ended: AtomicU64::new(0),
            waits,
        };
        service.load_shares()?;
        Ok(service)
    }

    fn load_shares(&self) -> Result<(), FileError> {
        self.each(tag::SHARE, |key, value| {
            let record = ShareRecord::decode(value)?;
            let name = String::from_utf8(key[1..].to_vec()).map_err(|_| FileError::Inconsistent("a share's name"))?;
            self.shares.insert(Arc::new(Share {
                id: record.id,
                root: record.root,
                name,
                created: record.created,
                quota_bytes: AtomicU64::new(record.quota_bytes),
                used_bytes: AtomicI64::new(self.storage.counter(&keys::used_bytes(record.id))?),
                inodes: AtomicI64::new(self.storage.counter(&keys::used_inodes(record.id))?),
                being_deleted: AtomicBool::new(record.being_deleted),
                flushes_to_bucket: AtomicBool::new(record.flush == FlushMode::Bucket),
            }));
            Ok(())
        })
    }

    /// Every entry under a tag, a page at a time.
    pub(crate) fn each(
        &self,
        tag: u8,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let (mut from, end) = keys::all(tag);
        loop {
            let page = self.storage.scan(&from, &end, PAGE)?;
            for (key, value) in &page {
                visit(key, value)?;
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => from = keys::after(key),
                _ => return Ok(()),
            }
        }
    }

    /// The names of an inode's extended attributes. Values may be long and come along with every scan, so few are read
    /// at once.
    pub(crate) fn xattr_names(&self, inode: u64) -> Result<Vec<Vec<u8>>, FileError> {
        let (mut from, end) = keys::all_of(tag::XATTR, inode);
        let mut names = Vec::new();
        loop {
            let page = self.storage.scan(&from, &end, XATTRS_PAGE)?;
            for (key, _) in &page {
                names.push(keys::split(key)?.1.to_vec());
            }
            match page.last() {
                Some((key, _)) if page.len() == XATTRS_PAGE => from = keys::after(key),
                _ => return Ok(names),
            }
        }
    }

    pub(crate) fn reading(&self) -> RwLockReadGuard<'_, IdAllocator> {
        exclusion::read(&self.waits, &self.namespace, Taken::Namespace)
    }

    pub(crate) fn changing(&self) -> RwLockWriteGuard<'_, IdAllocator> {
        exclusion::write(&self.waits, &self.namespace, Taken::Namespace)
    }

    pub(crate) fn lock_state(&self) -> MutexGuard<'_, LockState> {
        exclusion::lock(&self.waits, &self.locks, Taken::Locks)
    }

    /// How many changes there were; `None` while one is under way.
    pub(crate) fn changes(&self) -> Option<u64> {
        // In this order: what has begun by the second look had ended by the first.
        let ended = self.changes_ended.load(Ordering::SeqCst);
        let begun = self.changes_begun.load(Ordering::SeqCst);
        (begun == ended).then_some(ended)
    }

    /// From here until it is dropped, storage and what is counted in memory may not agree.
    pub(crate) fn begin_change(&self) -> ChangeUnderWay<'_> {
        self.changes_begun.fetch_add(1, Ordering::SeqCst);
        ChangeUnderWay(&self.changes_ended)
    }

    pub(crate) fn share(&self, caller: &Caller) -> Result<Arc<Share>, FileError> {
        self.shares.by_id(caller.share).ok_or(FileError::Stale)
    }

    /// The inode number that a request means.
    pub(crate) fn number(&self, caller: &Caller, inode: u64) -> Result<u64, FileError> {
        match inode {
            ROOT => Ok(self.share(caller)?.root),
            inode => Ok(inode),
        }
    }

    pub(crate) fn node(&self, caller: &Caller, inode: u64) -> Result<Node, FileError> {
        let node = self.find(self.number(caller, inode)?)?.ok_or(FileError::Stale)?;
        match node.record.share == caller.share {
            true => Ok(node),
            false => Err(FileError::Stale),
        }
    }

    /// The inode, of whichever share. Under the namespace lock, so that its two records belong together.
    pub(crate) fn find(&self, inode: u64) -> Result<Option<Node>, FileError> {
        let Some(record) = self.inode_record(inode)? else {
            return Ok(None);
        };
        let file = match record.file_type() {
            FileType::Regular => {
                let file = self.file_record(inode)?;
                Some(file.ok_or(FileError::Inconsistent("a file without its second record"))?)
            }
            _ => None,
        };
        Ok(Some(Node { inode, record, file }))
    }

    pub(crate) fn inode_record(&self, inode: u64) -> Result<Option<InodeRecord>, FileError> {
        let value = self.storage.get(&keys::inode(inode))?;
        Ok(value.map(|value| InodeRecord::decode(&value)).transpose()?)
    }

    pub(crate) fn file_record(&self, inode: u64) -> Result<Option<FileRecord>, FileError> {
        let value = self.storage.get(&keys::file(inode))?;
        Ok(value.map(|value| FileRecord::decode(&value)).transpose()?)
    }

    /// A directory that names can be put into.
    pub(crate) fn directory(&self, caller: &Caller, inode: u64) -> Result<Node, FileError> {
        let node = self.node(caller, inode)?;
        node.directory()?;
        match node.record.links {
            0 => Err(FileError::NotFound),
            _ => Ok(node),
        }
    }

    pub(crate) fn name(&self, directory: u64, name: &[u8]) -> Result<Option<NameRecord>, FileError> {
        let value = self.storage.get(&keys::name(directory, name))?;
        Ok(value.map(|value| NameRecord::decode(&value)).transpose()?)
    }

    pub(crate) fn take_inode(&self, numbers: &mut IdAllocator) -> Result<u64, FileError> {
        self.take_numbers(numbers, Box::new(|_| ()))?;
        let inode = numbers.next.inode;
        // Only if stable storage takes longer than thirty thousand new inodes.
        if inode >= numbers.kept.end.load(Ordering::Acquire) {
            return Err(FileError::Busy("no inode number is on stable storage yet".into()));
        }
        numbers.next.inode += 1;
        Ok(inode)
    }

    /// Takes more numbers when few are left, and has them kept; nobody waits for that.
    fn take_numbers(&self, numbers: &mut IdAllocator, done: SyncDone) -> Result<(), StorageError> {
        if numbers.next.inode + INODES_RESERVED / 2 >= numbers.reserved {
            let reserved = numbers.next.inode + INODES_RESERVED;
            let mut transaction = Transaction::default();
            numbers.put(&mut transaction, reserved);
            self.storage.commit(transaction.change)?;
            numbers.reserved = reserved;
        }
        let kept = numbers.kept.clone();
        let reserved = numbers.reserved;
        // One that has failed is made up for by the next request.
        if kept.end.load(Ordering::Acquire) < reserved && !kept.is_syncing.swap(true, Ordering::AcqRel) {
            let done = Box::new(move |synced: Result<(), StorageError>| {
                if synced.is_ok() {
                    kept.end.fetch_max(reserved, Ordering::AcqRel);
                }
                kept.is_syncing.store(false, Ordering::Release);
                done(synced);
            });
            self.storage.sync(FlushMode::Local, done);
        }
        Ok(())
    }

    /// Waits until they are kept.
    fn take_first_numbers(&self) -> Result<(), FileError> {
        let (done, synced) = mpsc::channel();
        let done = Box::new(move |result| drop(done.send(result)));
        self.take_numbers(&mut self.changing(), done)?;
        synced
            .recv()
            .map_err(|_| FileError::Failed("storage gave no answer".into()))??;
        Ok(())
    }

    /// Makes the change with the counters' part of it and the note that the request was carried out.
    pub(crate) fn commit(
        &self,
        caller: &Caller,
        mut transaction: Transaction,
        outcome: Outcome,
    ) -> Result<PendingInvalidations, FileError> {
        self.note_request(caller, &mut transaction, outcome);
        add_counters(caller.share, &mut transaction);
        let unlocked = self.delete_locks(&mut transaction);
        let _change = self.begin_change();
        self.storage.commit(transaction.change)?;
        self.count_usage(caller.share, transaction.blocks, transaction.inodes);
        exclusion::locked(&self.open_files).update(transaction.orphaned, &transaction.named, &transaction.erased);
        self.drop_locks(&unlocked);
        Ok(PendingInvalidations {
            origin: caller.session,
            share: caller.share,
            changed: transaction.invalidations,
        })
    }

    pub(crate) fn count_usage(&self, share: u32, blocks: i64, inodes: i64) {
        if let Some(share) = self.shares.by_id(share) {
            share
                .used_bytes
                .fetch_add(blocks * BLOCK_BYTES as i64, Ordering::Relaxed);
            share.inodes.fetch_add(inodes, Ordering::Relaxed);
        }
    }

    /// An transaction that says what the request came to, for changes that are made in other ways than by
    /// [`FileService::commit`].
    pub(crate) fn noted(&self, caller: &Caller, outcome: Outcome) -> Transaction {
        let mut transaction = Transaction::default();
        self.note_request(caller, &mut transaction, outcome);
        transaction
    }

    fn note_request(&self, caller: &Caller, transaction: &mut Transaction, outcome: Outcome) {
        let (Request::Number(number) | Request::Again(number)) = caller.request else {
            return;
        };
        // A session that has ended has no replay records any more, and must not get new ones.
        if self.has_session(caller.session) {
            let record = ReplayRecord { number, outcome };
            transaction.put(crate::replay::key(caller.session, number), record.encode());
        }
    }

    /// For what has changed in other ways than by [`FileService::commit`].
    pub(crate) fn invalidations(&self, caller: &Caller, changed: Vec<Changed>) -> PendingInvalidations {
        PendingInvalidations {
            origin: caller.session,
            share: caller.share,
            changed,
        }
    }

    /// To be called with the namespace lock released.
    pub(crate) fn notify(&self, invalidations: PendingInvalidations) {
        for what in invalidations.changed {
            (self.listener)(Invalidation {
                origin: invalidations.origin,
                share: invalidations.share,
                what,
            });
        }
    }

    /// The storage that the service was opened with.
    pub fn storage(&self) -> &Arc<S> {
        &self.storage
    }
}

impl IdAllocator {
    /// Puts what is not given out, inode numbers from `inode` on.
    fn put(&self, transaction: &mut Transaction, inode: u64) {
        let record = IdAllocatorRecord { inode, ..self.next };
        transaction.put(keys::id_allocator(), record.encode());
    }

    /// Puts the numbers with `next` in place of what is there; taken over with [`IdAllocator::set`] once that is kept.
    pub fn put_next(&self, transaction: &mut Transaction, next: IdAllocatorRecord) {
        let record = IdAllocatorRecord {
            inode: self.reserved,
            ..next
        };
        transaction.put(keys::id_allocator(), record.encode());
    }
}

pub fn add_counters(share: u32, transaction: &mut Transaction) {
    for (key, amount) in [
        (keys::used_bytes(share), transaction.blocks * BLOCK_BYTES as i64),
        (keys::used_inodes(share), transaction.inodes),
    ] {
        if amount != 0 {
            transaction.change.entries.push(EntryChange::Add { key, amount });
        }
    }
}

/// The service itself as a caller.
pub fn service_caller(share: u32) -> Caller {
    Caller {
        session: 0,
        share,
        uid: 0,
        gid: 0,
        now: Timestamp::default(),
        request: Request::Unnumbered,
    }
}
