//! Requests that wait for a lock, found by id, by inode and by owner. Ids grow, so their order is the order of arrival.

use super::{Lock, LockFamily, LockOwner, WaiterId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub inode: u64,
    pub family: LockFamily,
    pub lock: Lock,
}

/// Invariant: the two indexes hold exactly the waiters of `by_id`; `by_owner` only those for POSIX locks.
#[derive(Clone, Debug, Default)]
pub struct Waiters {
    id_next: u64,
    by_id: BTreeMap<WaiterId, Waiter>,
    by_inode: BTreeSet<(u64, WaiterId)>,
    by_owner: BTreeSet<(LockOwner, WaiterId)>,
}

impl Waiters {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn add(&mut self, waiter: Waiter) -> WaiterId {
        let id = WaiterId(self.id_next);
        self.id_next += 1;
        self.insert(id, waiter);
        id
    }

    fn insert(&mut self, id: WaiterId, waiter: Waiter) {
        self.by_id.insert(id, waiter);
        self.by_inode.insert((waiter.inode, id));
        if waiter.family == LockFamily::Posix {
            self.by_owner.insert((waiter.lock.owner, id));
        }
    }

    pub fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.by_id.remove(&id)?;
        self.by_inode.remove(&(waiter.inode, id));
        self.by_owner.remove(&(waiter.lock.owner, id));
        Some(waiter)
    }

    /// In the order of their arrival.
    pub fn of_inode(&self, inode: u64) -> Vec<(WaiterId, Waiter)> {
        let ids = self.by_inode.range((inode, WaiterId(0))..=(inode, WaiterId(u64::MAX)));
        ids.map(|(_, id)| (*id, self.by_id[id])).collect()
    }

    /// Those for POSIX locks.
    pub fn of_owner(&self, owner: LockOwner) -> impl Iterator<Item = &Waiter> {
        let ids = self.by_owner.range((owner, WaiterId(0))..=(owner, WaiterId(u64::MAX)));
        ids.map(|(_, id)| &self.by_id[id])
    }

    pub fn inodes_of_session(&self, session: u64) -> impl Iterator<Item = u64> {
        let of_session = self
            .by_id
            .values()
            .filter(move |waiter| waiter.lock.owner.session == session);
        of_session.map(|waiter| waiter.inode)
    }

    pub fn remove_session(&mut self, inode: u64, session: u64) -> Vec<WaiterId> {
        let waiters = self.of_inode(inode);
        let gone = waiters
            .iter()
            .filter(|(_, waiter)| waiter.lock.owner.session == session);
        let ids: Vec<WaiterId> = gone.map(|(id, _)| *id).collect();
        for id in &ids {
            self.remove(*id);
        }
        ids
    }

    pub fn replace_inode(&mut self, inode: u64, waiters: Vec<(WaiterId, Waiter)>) {
        for (id, _) in self.of_inode(inode) {
            self.remove(id);
        }
        for (id, waiter) in waiters {
            self.insert(id, waiter);
        }
    }
}
