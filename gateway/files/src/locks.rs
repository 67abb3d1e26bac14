//! The lock table: POSIX byte-range locks and flock locks of all sessions, and the requests that wait for one.
//!
//! Mechanism: per inode two sets of granted locks ([`granted`]) and a queue of waiters ([`waiting`]). Nothing here
//! waits: a request that has to is given a [`WaiterId`], and whatever frees room returns the waiters it let in, oldest
//! first. A waiter is blocked by granted locks only, never by other waiters, so a request that fits may overtake.
//!
//! | family | exclusion | conversion of the owner's own lock               | deadlock                        |
//! |--------|-----------|--------------------------------------------------|---------------------------------|
//! | POSIX  | by range  | atomic: the old lock is held until the new is     | a wait that closes a circle is refused |
//! | flock  | by inode  | a wait gives the old lock up first, as on Linux   | none: a waiter holds nothing    |
//!
//! The families do not see each other. Owns: who holds and who waits. Does not own: storage (the caller keeps
//! [`LockTable::encode`]'s bytes after every change, and takes a change back with [`LockTable::restore`] when it could
//! not), time, threads.

mod granted;
mod record;
mod waiting;

#[cfg(test)]
mod model;

use granted::GrantedLocks;
use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::DecodeError;
use waiting::{Waiter, Waiters};

/// Whose lock it is: a POSIX owner (a process' file table) or an open file description, within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// Whose client.
    pub session: u64,
    /// As the client numbers its owners.
    pub owner: u64,
}

/// Bytes `start..=end`; `end` is `u64::MAX` for a lock without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
}

impl LockRange {
    /// All bytes.
    pub const WHOLE: Self = Self {
        start: 0,
        end: u64::MAX,
    };

    /// At least one byte is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// Who else may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared; flock's LOCK_SH.
    Read,
    /// Exclusive; flock's LOCK_EX.
    Write,
}

/// Locks of one family know nothing of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockFamily {
    /// Of byte ranges: fcntl(2).
    Posix,
    /// Of whole files: flock(2).
    Flock,
}

/// A lock that is held or wanted. That of a flock covers [`LockRange::WHOLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose it is.
    pub owner: LockOwner,
    /// What it covers.
    pub range: LockRange,
    /// Who else may have it.
    pub kind: LockKind,
    /// For people who ask with F_GETLK; decides nothing.
    pub pid: u32,
    /// The open file it was taken through, by the number that the session has for it; it ends with that at the latest.
    /// 0: none.
    pub handle: u64,
}

impl Lock {
    fn conflicts(&self, other: &Self) -> bool {
        self.owner != other.owner
            && (self.kind == LockKind::Write || other.kind == LockKind::Write)
            && self.range.overlaps(other.range)
    }

    fn is_through(&self, session: u64, handle: u64) -> bool {
        handle != 0 && self.handle == handle && self.owner.session == session
    }
}

/// Names a waiting request. Never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is held now, or given up, as was asked for.
    Granted,
    /// Refused because of this lock (the first one in the way): EAGAIN.
    Conflict(Lock),
    /// It comes back as a [`Woken`] or is taken back with [`LockTable::cancel`].
    Waiting(WaiterId),
}

/// A waiter whose turn came. It waits no more, whatever the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The request.
    pub waiter: WaiterId,
    /// [`LockError::TooMany`] when its lock did not fit into the table any more.
    pub result: Result<(), LockError>,
}

/// An outcome, and whom the change let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the request itself.
    pub outcome: Outcome,
    /// Others that have their locks now.
    pub woken: Vec<Woken>,
}

/// What the end of a session left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionEnd {
    /// Requests of the session itself that waited; nobody asks for their result any more.
    pub cancelled: Vec<WaiterId>,
    /// Requests of other sessions.
    pub woken: Vec<Woken>,
}

/// Why a lock is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// EDEADLK.
    #[error("waiting for this lock would never end: its holder waits for the caller")]
    Deadlock,
    /// ENOLCK.
    #[error("there are too many locks, or too many requests that wait for one")]
    TooMany,
    /// EINVAL.
    #[error("a range that ends before it starts")]
    EmptyRange,
}

/// How much the table holds at the most.
#[derive(Clone, Copy, Debug)]
pub struct LockLimits {
    /// Both families together. The default keeps an inode's record below the longest value of an entry.
    pub per_inode_max: usize,
    /// Locks that are held.
    pub granted_max: usize,
    /// Requests that wait.
    pub waiting_max: usize,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self {
            per_inode_max: record::LOCKS_PER_RECORD_MAX,
            granted_max: 1 << 20,
            waiting_max: 1 << 16,
        }
    }
}

/// The state of one inode as it was; see [`LockTable::save`].
#[derive(Clone, Debug)]
pub struct SavedInode {
    inode: u64,
    granted: GrantedLocks,
    waiting: Vec<(WaiterId, Waiter)>,
}

/// | invariant |
/// |---|
/// | no two granted locks of one family and inode conflict |
/// | locks of one owner are disjoint; where two of one kind and open file touch they are one |
/// | every waiter is blocked by a granted lock |
/// | `granted_count` is the sum over `inodes`, none of which is empty |
#[derive(Clone, Debug, Default)]
pub struct LockTable {
    limits: LockLimits,
    inodes: BTreeMap<u64, GrantedLocks>,
    granted_count: usize,
    waiters: Waiters,
}

impl LockTable {
    /// Nothing is held.
    pub fn new(limits: LockLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The first granted lock that `wanted` conflicts with; F_GETLK.
    pub fn conflict(&self, inode: u64, family: LockFamily, wanted: &Lock) -> Option<Lock> {
        self.inodes.get(&inode)?.first_conflict(family, wanted)
    }

    /// Takes a lock, or changes the kind of what the owner has. With `wait`, a conflict makes the request wait.
    pub fn set(&mut self, inode: u64, family: LockFamily, wanted: Lock, wait: bool) -> Result<Answer, LockError> {
        if wanted.range.start > wanted.range.end {
            return Err(LockError::EmptyRange);
        }
        let Some(conflict) = self.conflict(inode, family, &wanted) else {
            self.grant(inode, family, wanted)?;
            return Ok(Answer {
                outcome: Outcome::Granted,
                woken: self.wake(inode),
            });
        };
        if !wait {
            return Ok(Answer {
                outcome: Outcome::Conflict(conflict),
                woken: Vec::new(),
            });
        }
        self.start_waiting(inode, family, wanted)
    }

    fn start_waiting(&mut self, inode: u64, family: LockFamily, wanted: Lock) -> Result<Answer, LockError> {
        if self.waiters.len() >= self.limits.waiting_max {
            return Err(LockError::TooMany);
        }
        if family == LockFamily::Posix && self.would_deadlock(inode, &wanted) {
            return Err(LockError::Deadlock);
        }
        let waiter = Waiter {
            inode,
            family,
            lock: wanted,
        };
        let id = self.waiters.add(waiter);
        let woken = match family {
            LockFamily::Posix => Vec::new(),
            LockFamily::Flock => self.close_owner(inode, family, wanted.owner),
        };
        Ok(Answer {
            outcome: Outcome::Waiting(id),
            woken,
        })
    }

    /// Follows who waits for whom, from those that hold up `wanted`; true when that leads back to its owner.
    fn would_deadlock(&self, inode: u64, wanted: &Lock) -> bool {
        let mut seen = BTreeSet::new();
        let mut ahead = self.holders_against(inode, wanted);
        while let Some(holder) = ahead.pop() {
            if holder == wanted.owner {
                return true;
            }
            if seen.insert(holder) {
                for waiter in self.waiters.of_owner(holder) {
                    ahead.extend(self.holders_against(waiter.inode, &waiter.lock));
                }
            }
        }
        false
    }

    fn holders_against(&self, inode: u64, wanted: &Lock) -> Vec<LockOwner> {
        self.inodes
            .get(&inode)
            .map_or_else(Vec::new, |granted| granted.posix_holders_against(wanted))
    }

    /// Frees a range of the owner's; free already is no error. Fails only when freeing the middle of a lock would
    /// leave one lock too many.
    pub fn unlock(
        &mut self,
        inode: u64,
        family: LockFamily,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<Vec<Woken>, LockError> {
        if range.start > range.end {
            return Err(LockError::EmptyRange);
        }
        self.change(inode, |granted| granted.free(family, owner, range))?;
        Ok(self.wake(inode))
    }

    /// Frees all that the owner holds on the inode, as closing a file does.
    pub fn close_owner(&mut self, inode: u64, family: LockFamily, owner: LockOwner) -> Vec<Woken> {
        self.shrink(inode, |granted| {
            granted.remove(|of, lock| of == family && lock.owner == owner);
        });
        self.wake(inode)
    }

    /// Frees all that was taken through the open file, as its end does. A POSIX owner has given up its own by then; what
    /// is left are the locks of the open file itself (F_OFD_SETLK, flock).
    pub fn close_handle(&mut self, inode: u64, session: u64, handle: u64) -> Vec<Woken> {
        self.shrink(inode, |granted| {
            granted.remove(|_, lock| lock.is_through(session, handle));
        });
        self.wake(inode)
    }

    /// Whether something is held through this open file.
    pub fn has_handle(&self, inode: u64, session: u64, handle: u64) -> bool {
        let granted = self.inodes.get(&inode);
        granted.is_some_and(|granted| granted.iter().any(|(_, lock)| lock.is_through(session, handle)))
    }

    /// Takes a waiting request back; false when it waits no more, so that its result is on its way.
    pub fn cancel(&mut self, waiter: WaiterId) -> bool {
        self.waiters.remove(waiter).is_some()
    }

    /// Sessions that hold a lock on the inode.
    pub fn sessions_on(&self, inode: u64) -> BTreeSet<u64> {
        let granted = self.inodes.get(&inode).into_iter().flat_map(GrantedLocks::iter);
        granted.map(|(_, lock)| lock.owner.session).collect()
    }

    /// Inodes on which the session holds a lock or waits for one.
    pub fn inodes_of_session(&self, session: u64) -> Vec<u64> {
        let open_files = self.inodes.iter().filter(|(_, granted)| granted.has_session(session));
        let waiting = self.waiters.inodes_of_session(session);
        let inodes: BTreeSet<u64> = open_files.map(|(inode, _)| *inode).chain(waiting).collect();
        inodes.into_iter().collect()
    }

    /// Frees all that the session holds on one inode and cancels what it waits for there.
    pub fn end_session_on(&mut self, inode: u64, session: u64) -> SessionEnd {
        let cancelled = self.waiters.remove_session(inode, session);
        self.shrink(inode, |granted| granted.remove(|_, lock| lock.owner.session == session));
        SessionEnd {
            cancelled,
            woken: self.wake(inode),
        }
    }

    /// [`LockTable::end_session_on`] every inode. The records of [`LockTable::inodes_of_session`] change.
    pub fn end_session(&mut self, session: u64) -> SessionEnd {
        let mut end = SessionEnd::default();
        for inode in self.inodes_of_session(session) {
            let mut here = self.end_session_on(inode, session);
            end.cancelled.append(&mut here.cancelled);
            end.woken.append(&mut here.woken);
        }
        end
    }

    /// The inode's granted locks as they are kept on storage; `None` when there are none.
    pub fn encode(&self, inode: u64) -> Option<Vec<u8>> {
        self.inodes.get(&inode).map(record::encode)
    }

    /// Takes in what [`LockTable::encode`] gave, in place of what the inode has; for the start, when nobody waits.
    pub fn load(&mut self, inode: u64, bytes: &[u8]) -> Result<(), DecodeError> {
        let loaded = record::decode(bytes)?;
        self.replace(inode, loaded);
        Ok(())
    }

    /// The inode's locks and waiters, to go back to when a change cannot be kept.
    pub fn save(&self, inode: u64) -> SavedInode {
        SavedInode {
            inode,
            granted: self.inodes.get(&inode).cloned().unwrap_or_default(),
            waiting: self.waiters.of_inode(inode),
        }
    }

    /// Undoes what was done to the inode since; the answers given meanwhile count for nothing.
    pub fn restore(&mut self, saved: SavedInode) {
        self.waiters.replace_inode(saved.inode, saved.waiting);
        self.replace(saved.inode, saved.granted);
    }

    /// Locks that are held.
    pub fn granted_count(&self) -> usize {
        self.granted_count
    }

    /// Requests that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiters.len()
    }

    fn grant(&mut self, inode: u64, family: LockFamily, lock: Lock) -> Result<(), LockError> {
        self.change(inode, |granted| granted.insert(family, lock))
    }

    /// Makes a change that may add locks, or leaves everything as it is when they would be too many.
    fn change(&mut self, inode: u64, make: impl FnOnce(&mut GrantedLocks)) -> Result<(), LockError> {
        let mut changed = self.inodes.get(&inode).cloned().unwrap_or_default();
        let before = changed.len();
        make(&mut changed);
        let grows = changed.len() > before;
        let total = self.granted_count - before + changed.len();
        if grows && (changed.len() > self.limits.per_inode_max || total > self.limits.granted_max) {
            return Err(LockError::TooMany);
        }
        self.replace(inode, changed);
        Ok(())
    }

    /// Makes a change that only removes locks.
    fn shrink(&mut self, inode: u64, make: impl FnOnce(&mut GrantedLocks)) {
        if let Some(mut granted) = self.inodes.get(&inode).cloned() {
            make(&mut granted);
            self.replace(inode, granted);
        }
    }

    fn replace(&mut self, inode: u64, granted: GrantedLocks) {
        let added = granted.len();
        let before = match granted.is_empty() {
            true => self.inodes.remove(&inode),
            false => self.inodes.insert(inode, granted),
        };
        self.granted_count = self.granted_count - before.map_or(0, |before| before.len()) + added;
    }

    /// Lets in whoever is blocked no more: each time the oldest of them, for one that is let in may free room for an
    /// older one (its own lock may shrink to a shared one).
    fn wake(&mut self, inode: u64) -> Vec<Woken> {
        let mut woken = Vec::new();
        loop {
            let mut waiters = self.waiters.of_inode(inode).into_iter();
            let free = |(_, waiter): &(WaiterId, Waiter)| self.conflict(inode, waiter.family, &waiter.lock).is_none();
            let Some((id, waiter)) = waiters.find(free) else {
                return woken;
            };
            self.waiters.remove(id);
            let result = self.grant(inode, waiter.family, waiter.lock);
            woken.push(Woken { waiter: id, result });
        }
    }
}
