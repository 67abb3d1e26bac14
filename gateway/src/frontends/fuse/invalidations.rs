//! What one session changes, the others of the share hear of.
//!
//! The kernel and Ganesha keep names, attributes and data. Announcements drop what has changed; they are on their way
//! before the change is answered, but arrive on their own. So a share with several clients lets them believe nothing
//! without asking ([`News::is_shared`]), while the only client of a share may.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tombolo_files::{Changed, Invalidation, SessionKind, SessionStart};
use tombolo_fuse::protocol::flags::bits::ROOT_ID;
use tombolo_fuse::{Notification, Notifier};

#[derive(Default)]
pub struct Invalidations {
    listeners: RwLock<HashMap<u64, Listener>>,
    next: AtomicU64,
}

struct Listener {
    session: u64,
    share: u32,
    root: u64,
    kind: SessionKind,
    notifier: Notifier,
}

/// A connection's place among the listeners; given up when dropped.
pub struct Subscription {
    invalidations: Arc<Invalidations>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut listeners = self
            .invalidations
            .listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.remove(&self.number);
    }
}

impl Invalidations {
    pub fn listen(self: &Arc<Self>, start: SessionStart, kind: SessionKind, notifier: Notifier) -> Subscription {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let listener = Listener {
            session: start.session,
            share: start.share,
            root: start.root,
            kind,
            notifier,
        };
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        listeners.insert(number, listener);
        Subscription {
            invalidations: self.clone(),
            number,
        }
    }

    /// Whether another session than this one is on the share.
    pub fn is_shared(&self, share: u32, session: u64) -> bool {
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        listeners
            .values()
            .any(|listener| listener.share == share && listener.session != session)
    }

    pub fn announce(&self, invalidations: &Invalidation) {
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        let concerned = listeners
            .values()
            .filter(|listener| listener.share == invalidations.share && listener.session != invalidations.origin);
        for listener in concerned.filter(|listener| !listener.notifier.is_silent()) {
            listener.notifier.notify(listener.notification(&invalidations.what));
        }
    }
}

impl Listener {
    fn notification(&self, what: &Changed) -> Notification {
        match what {
            Changed::Data { inode, offset, length } => Notification::InvalidateNode {
                node: self.node(*inode),
                offset: i64::try_from(*offset).unwrap_or(i64::MAX),
                length: i64::try_from(*length).unwrap_or(0),
            },
            Changed::Attributes { inode } => Notification::InvalidateNode {
                node: self.node(*inode),
                offset: -1,
                length: 0,
            },
            Changed::Name { parent, name, .. } => Notification::InvalidateEntry {
                parent: self.node(*parent),
                name: name.clone(),
                expire_only: false,
            },
        }
    }

    /// The kernel knows the root by its own number.
    fn node(&self, inode: u64) -> u64 {
        match self.kind {
            SessionKind::Kernel if inode == self.root => u64::from(ROOT_ID),
            SessionKind::Kernel | SessionKind::Client => inode,
        }
    }
}
