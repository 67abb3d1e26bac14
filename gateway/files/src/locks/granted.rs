//! The granted locks of one inode: splitting, merging and replacing ranges of one owner.
//!
//! Each family is a vector sorted by start, then owner. Whoever calls has made sure that nothing conflicts.

use super::{Lock, LockFamily, LockOwner, LockRange};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedLocks {
    posix: Vec<Lock>,
    flock: Vec<Lock>,
}

impl GrantedLocks {
    pub fn len(&self) -> usize {
        self.posix.len() + self.flock.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (LockFamily, &Lock)> {
        let posix = self.posix.iter().map(|lock| (LockFamily::Posix, lock));
        posix.chain(self.flock.iter().map(|lock| (LockFamily::Flock, lock)))
    }

    pub fn first_conflict(&self, family: LockFamily, wanted: &Lock) -> Option<Lock> {
        self.of(family).iter().find(|held| held.conflicts(wanted)).copied()
    }

    pub fn posix_holders_against(&self, wanted: &Lock) -> Vec<LockOwner> {
        let against = self.posix.iter().filter(|held| held.conflicts(wanted));
        against.map(|held| held.owner).collect()
    }

    pub fn has_session(&self, session: u64) -> bool {
        self.iter().any(|(_, lock)| lock.owner.session == session)
    }

    /// Replaces what the owner has in the lock's range.
    pub fn insert(&mut self, family: LockFamily, mut lock: Lock) {
        self.free(family, lock.owner, lock.range);
        let held = self.of_mut(family);
        held.retain(|other| match merges(other, &lock) {
            true => {
                lock.range.start = lock.range.start.min(other.range.start);
                lock.range.end = lock.range.end.max(other.range.end);
                false
            }
            false => true,
        });
        held.push(lock);
        sort(held);
    }

    /// Frees the owner's part of the range; what sticks out on either side stays.
    pub fn free(&mut self, family: LockFamily, owner: LockOwner, range: LockRange) {
        let held = self.of_mut(family);
        let mut kept = Vec::with_capacity(held.len() + 1);
        for lock in held.drain(..) {
            match lock.owner == owner && lock.range.overlaps(range) {
                true => kept.extend(remainders(&lock, range)),
                false => kept.push(lock),
            }
        }
        sort(&mut kept);
        *held = kept;
    }

    pub fn remove(&mut self, is_gone: impl Fn(LockFamily, &Lock) -> bool) {
        self.posix.retain(|lock| !is_gone(LockFamily::Posix, lock));
        self.flock.retain(|lock| !is_gone(LockFamily::Flock, lock));
    }

    fn of(&self, family: LockFamily) -> &[Lock] {
        match family {
            LockFamily::Posix => &self.posix,
            LockFamily::Flock => &self.flock,
        }
    }

    fn of_mut(&mut self, family: LockFamily) -> &mut Vec<Lock> {
        match family {
            LockFamily::Posix => &mut self.posix,
            LockFamily::Flock => &mut self.flock,
        }
    }
}

fn sort(locks: &mut [Lock]) {
    locks.sort_by_key(|lock| (lock.range.start, lock.owner));
}

/// Two disjoint locks that are to be one: same owner, same kind, same open file, end to end.
pub fn merges(first: &Lock, second: &Lock) -> bool {
    let touches = |low: &Lock, high: &Lock| low.range.end.checked_add(1) == Some(high.range.start);
    let alike = |lock: &Lock| (lock.owner, lock.kind, lock.handle);
    alike(first) == alike(second) && (touches(first, second) || touches(second, first))
}

/// What is left of an overlapping lock on either side of `gone`.
fn remainders(lock: &Lock, gone: LockRange) -> impl Iterator<Item = Lock> {
    let before = (lock.range.start < gone.start).then(|| LockRange {
        start: lock.range.start,
        end: gone.start - 1,
    });
    let after = (lock.range.end > gone.end).then(|| LockRange {
        start: gone.end + 1,
        end: lock.range.end,
    });
    let lock = *lock;
    before.into_iter().chain(after).map(move |range| Lock { range, ..lock })
}
