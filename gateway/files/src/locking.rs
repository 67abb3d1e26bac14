//! Locks of files: the table, its records in storage, and who waits for an answer.
//!
//! The table's state of an inode is written down before anybody is told of it; when that fails, the table goes back to
//! what it was. Answers are given with no lock held.

use crate::error::FileError;
use crate::keys::{self, tag};
use crate::locks::{Answer, Lock, LockError, LockFamily, LockOwner, LockRange, LockTable, Outcome, WaiterId, Woken};
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::Caller;
use std::collections::BTreeMap;
use tombolo_base::{EntryChange, MetadataChange};

/// Told once that something is done, on any thread.
pub type Reply = Box<dyn FnOnce(Result<(), FileError>) + Send>;

#[derive(Default)]
pub struct LockState {
    table: LockTable,
    waiting: BTreeMap<WaiterId, (u64, Reply)>,
}

/// Answers that are due.
type Due = Vec<(Reply, Result<(), FileError>)>;

impl LockState {
    fn due(&mut self, woken: Vec<Woken>) -> Due {
        let mut due = Vec::new();
        for woken in woken {
            if let Some((_, reply)) = self.waiting.remove(&woken.waiter) {
                due.push((reply, woken.result.map_err(FileError::from)));
            }
        }
        due
    }

    fn record(&self, inode: u64) -> EntryChange {
        let key = keys::locks(inode);
        match self.table.encode(inode) {
            Some(value) => EntryChange::Put { key, value },
            None => EntryChange::Delete { key },
        }
    }

    fn has_locks(&self, inode: u64) -> bool {
        self.table.encode(inode).is_some()
    }

    /// Without a word in storage: the inode is gone.
    fn drop_inode(&mut self, inode: u64) -> Due {
        // What a table that never heard of the inode has to say about it: nothing is held, nobody waits.
        self.table.restore(LockTable::default().save(inode));
        let ids: Vec<WaiterId> = self
            .waiting
            .iter()
            .filter(|(_, (of, _))| *of == inode)
            .map(|(id, _)| *id)
            .collect();
        let replies = ids.iter().filter_map(|id| self.waiting.remove(id));
        replies.map(|(_, reply)| (reply, Err(FileError::Stale))).collect()
    }
}

impl From<LockError> for FileError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Deadlock => Self::Deadlock,
            LockError::TooMany => Self::TooManyLocks,
            LockError::EmptyRange => Self::Invalid("a range that ends before it starts"),
        }
    }
}

fn answer(due: Due) {
    for (reply, result) in due {
        reply(result);
    }
}

impl<S: Storage> FileService<S> {
    pub(crate) fn load_locks(&self) -> Result<(), FileError> {
        self.each(tag::LOCKS, |key, value| {
            let (inode, _) = keys::split(key)?;
            Ok(self.lock_state().table.load(inode, value)?)
        })
    }

    /// The lock that `wanted` would have to wait for.
    pub fn get_lock(
        &self,
        caller: &Caller,
        inode: u64,
        family: LockFamily,
        wanted: &Lock,
    ) -> Result<Option<Lock>, FileError> {
        let _names = self.reading();
        let inode = self.node(caller, inode)?.inode;
        Ok(self.lock_state().table.conflict(inode, family, wanted))
    }

    /// Takes a lock, or refuses with [`FileError::Locked`].
    pub fn set_lock(&self, caller: &Caller, inode: u64, family: LockFamily, wanted: Lock) -> Result<(), FileError> {
        match self.request_lock(caller, inode, family, wanted, None)? {
            Outcome::Granted => Ok(()),
            Outcome::Conflict(_) | Outcome::Waiting(_) => Err(FileError::Locked),
        }
    }

    /// Takes a lock, however long that takes. `None` when it has it at once; `reply` is not called then, nor after an
    /// error. Otherwise `reply` is called with the result, perhaps before this returns.
    pub fn set_lock_wait(
        &self,
        caller: &Caller,
        inode: u64,
        family: LockFamily,
        wanted: Lock,
        reply: Reply,
    ) -> Result<Option<WaiterId>, FileError> {
        match self.request_lock(caller, inode, family, wanted, Some(reply))? {
            Outcome::Waiting(waiter) => Ok(Some(waiter)),
            Outcome::Granted => Ok(None),
            Outcome::Conflict(_) => Err(FileError::Locked),
        }
    }

    fn request_lock(
        &self,
        caller: &Caller,
        inode: u64,
        family: LockFamily,
        wanted: Lock,
        reply: Option<Reply>,
    ) -> Result<Outcome, FileError> {
        let wait = reply.is_some();
        let wanted = Lock {
            owner: LockOwner {
                session: caller.session,
                ..wanted.owner
            },
            ..wanted
        };
        let set = |table: &mut LockTable, inode| Ok(table.set(inode, family, wanted, wait)?);
        let (outcome, due) = self.change_locks(caller, inode, reply, set)?;
        answer(due);
        Ok(outcome)
    }

    /// Frees a range of the owner's; free already is no error.
    pub fn unlock(
        &self,
        caller: &Caller,
        inode: u64,
        family: LockFamily,
        owner: u64,
        range: LockRange,
    ) -> Result<(), FileError> {
        let owner = LockOwner {
            session: caller.session,
            owner,
        };
        let free = |table: &mut LockTable, inode| {
            Ok(Answer {
                outcome: Outcome::Granted,
                woken: table.unlock(inode, family, owner, range)?,
            })
        };
        let (_, due) = self.change_locks(caller, inode, None, free)?;
        answer(due);
        Ok(())
    }

    /// Frees all that the owner has on the inode, as closing a file does.
    pub fn close_owner(&self, caller: &Caller, inode: u64, family: LockFamily, owner: u64) -> Result<(), FileError> {
        self.unlock(caller, inode, family, owner, LockRange::WHOLE)
    }

    /// Frees what was taken through an open file of the session, which has ended. Nothing is looked up when that is
    /// nothing, as for most files.
    pub fn close_handle(&self, caller: &Caller, inode: u64, handle: u64) -> Result<(), FileError> {
        let session = caller.session;
        if !self.lock_state().table.has_handle(inode, session, handle) {
            return Ok(());
        }
        let free = |table: &mut LockTable, inode| {
            Ok(Answer {
                outcome: Outcome::Granted,
                woken: table.close_handle(inode, session, handle),
            })
        };
        let (_, due) = self.change_locks(caller, inode, None, free)?;
        answer(due);
        Ok(())
    }

    /// Takes a waiting request back: it is answered with [`FileError::Interrupted`]. False when it waits no more.
    pub fn cancel_lock(&self, waiter: WaiterId) -> bool {
        let reply = {
            let mut state = self.lock_state();
            state.table.cancel(waiter);
            state.waiting.remove(&waiter)
        };
        match reply {
            Some((_, reply)) => {
                reply(Err(FileError::Interrupted));
                true
            }
            None => false,
        }
    }

    /// Makes a change to one inode's locks and writes it down, or neither. `reply` is kept if the request has to wait.
    fn change_locks(
        &self,
        caller: &Caller,
        inode: u64,
        reply: Option<Reply>,
        make: impl FnOnce(&mut LockTable, u64) -> Result<Answer, FileError>,
    ) -> Result<(Outcome, Due), FileError> {
        let _names = self.reading();
        let inode = self.node(caller, inode)?.inode;
        let mut state = self.lock_state();
        self.must_have_session(caller.session)?;
        let saved = state.table.save(inode);
        let before = state.table.encode(inode);
        let Answer { outcome, woken } = make(&mut state.table, inode)?;
        if state.table.encode(inode) != before
            && let Err(error) = self.keep_locks(vec![state.record(inode)])
        {
            state.table.restore(saved);
            return Err(error);
        }
        if let (Outcome::Waiting(waiter), Some(reply)) = (outcome, reply) {
            state.waiting.insert(waiter, (inode, reply));
        }
        Ok((outcome, state.due(woken)))
    }

    fn keep_locks(&self, entries: Vec<EntryChange>) -> Result<(), FileError> {
        let change = MetadataChange {
            entries,
            holes: Vec::new(),
        };
        let _change = self.begin_change();
        Ok(self.storage.commit(change)?)
    }

    /// Frees all that the session holds, and takes back what it waits for.
    pub(crate) fn end_locks(&self, session: u64) -> Result<(), FileError> {
        let mut due = Vec::new();
        {
            let _names = self.reading();
            let mut state = self.lock_state();
            let inodes = state.table.inodes_of_session(session);
            for inode in inodes {
                let saved = state.table.save(inode);
                let end = state.table.end_session_on(inode, session);
                if let Err(error) = self.keep_locks(vec![state.record(inode)]) {
                    state.table.restore(saved);
                    drop(state);
                    answer(due);
                    return Err(error);
                }
                due.extend(state.due(end.woken));
                let cancelled = end.cancelled.iter().filter_map(|waiter| state.waiting.remove(waiter));
                due.extend(cancelled.map(|(_, reply)| (reply, Err(FileError::NoSession))));
            }
        }
        answer(due);
        Ok(())
    }

    /// Adds to the transaction that the locks of the inodes that go, go too. Those that had some.
    pub(crate) fn delete_locks(&self, transaction: &mut Transaction) -> Vec<u64> {
        if transaction.erased.is_empty() {
            return Vec::new();
        }
        let state = self.lock_state();
        let with_locks: Vec<u64> = transaction
            .erased
            .iter()
            .copied()
            .filter(|inode| state.has_locks(*inode))
            .collect();
        for inode in &with_locks {
            transaction.delete(keys::locks(*inode));
        }
        with_locks
    }

    pub(crate) fn drop_locks(&self, inodes: &[u64]) {
        for inode in inodes {
            let due = self.lock_state().drop_inode(*inode);
            // Under the namespace lock, unlike other answers: the waiter of an inode that is gone has nothing to do
            // but to pass the error on.
            answer(due);
        }
    }
}
