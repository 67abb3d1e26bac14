//! What sessions have open, in memory, and the orphans, which storage has too.

use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Default)]
pub struct OpenFiles {
    /// By inode: sessions and how often each has it open.
    opens: HashMap<u64, Vec<(u64, u32)>>,
    /// By inode: the sessions that keep it.
    orphans: BTreeMap<u64, Vec<u64>>,
}

impl OpenFiles {
    pub fn open(&mut self, inode: u64, session: u64) {
        let opens = self.opens.entry(inode).or_default();
        match opens.iter_mut().find(|(holder, _)| *holder == session) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => opens.push((session, 1)),
        }
    }

    /// How often the session still has it open.
    pub fn close(&mut self, inode: u64, session: u64) -> u32 {
        let Some(opens) = self.opens.get_mut(&inode) else {
            return 0;
        };
        let Some(at) = opens.iter().position(|(holder, _)| *holder == session) else {
            return 0;
        };
        opens[at].1 -= 1;
        let left = opens[at].1;
        if left == 0 {
            opens.swap_remove(at);
        }
        if opens.is_empty() {
            self.opens.remove(&inode);
        }
        left
    }

    pub fn is_open(&self, inode: u64, session: u64) -> bool {
        self.holders(inode).any(|holder| holder == session)
    }

    pub fn holders(&self, inode: u64) -> impl Iterator<Item = u64> {
        self.opens.get(&inode).into_iter().flatten().map(|(holder, _)| *holder)
    }

    /// Forgets what the session has open.
    pub fn end_session(&mut self, session: u64) {
        self.opens.retain(|_, opens| {
            opens.retain(|(holder, _)| *holder != session);
            !opens.is_empty()
        });
    }

    pub fn set_orphan(&mut self, inode: u64, holders: Vec<u64>) {
        self.orphans.insert(inode, holders);
    }

    pub fn orphan_holders(&self, inode: u64) -> Option<&[u64]> {
        self.orphans.get(&inode).map(Vec::as_slice)
    }

    pub fn is_kept_by(&self, inode: u64, session: u64) -> bool {
        self.orphan_holders(inode)
            .is_some_and(|holders| holders.contains(&session))
    }

    pub fn orphans_of(&self, session: u64) -> Vec<u64> {
        let kept = self.orphans.iter().filter(|(_, holders)| holders.contains(&session));
        kept.map(|(inode, _)| *inode).collect()
    }

    /// After a change of storage.
    pub fn update(&mut self, orphaned: Vec<(u64, Vec<u64>)>, named: &[u64], erased: &[u64]) {
        self.orphans.extend(orphaned);
        for inode in named {
            self.orphans.remove(inode);
        }
        for inode in erased {
            self.orphans.remove(inode);
            self.opens.remove(inode);
        }
    }
}
