//! Shares as they are kept in memory: who they are and how much they hold. The counters follow those of storage; room
//! for new data is taken here first, so that requests under way together cannot pass the quota.

use crate::error::FileError;
use crate::types::{FilesystemStatus, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use tombolo_base::{BLOCK_BYTES, FlushMode};

/// What a share without a quota shows as its size, in bytes: the store behind it has no end that is known.
const SHOWN_BYTES: u64 = 1 << 50;
/// What any share shows as free inodes: there is no limit.
const SHOWN_INODES_FREE: u64 = 1 << 40;

#[derive(Debug)]
pub struct Share {
    pub id: u32,
    pub root: u64,
    pub name: String,
    pub created: Timestamp,
    /// 0 for none.
    pub quota_bytes: AtomicU64,
    pub used_bytes: AtomicI64,
    pub inodes: AtomicI64,
    pub being_deleted: AtomicBool,
    /// Its flushes wait for the bucket.
    pub flushes_to_bucket: AtomicBool,
}

impl Share {
    /// Takes room for `blocks` more, or gives it up when they are fewer. What is not kept goes back when dropped.
    pub fn reserve(&self, blocks: i64) -> Result<Reservation<'_>, FileError> {
        let bytes = blocks * BLOCK_BYTES as i64;
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        if bytes > 0 {
            let fits = |used: i64| {
                let after = used.saturating_add(bytes);
                (quota == 0 || u64::try_from(after).unwrap_or(0) <= quota).then_some(after)
            };
            let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
            taken.map_err(|_| FileError::QuotaExceeded)?;
        }
        Ok(Reservation {
            share: self,
            bytes,
            is_kept: false,
        })
    }

    pub fn flush_mode(&self) -> FlushMode {
        match self.flushes_to_bucket.load(Ordering::Relaxed) {
            false => FlushMode::Local,
            true => FlushMode::Bucket,
        }
    }

    pub fn used_bytes(&self) -> u64 {
        u64::try_from(self.used_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub fn inodes(&self) -> u64 {
        u64::try_from(self.inodes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub fn filesystem_status(&self) -> FilesystemStatus {
        let used = self.used_bytes();
        let size = match self.quota_bytes.load(Ordering::Relaxed) {
            0 => SHOWN_BYTES.max(used),
            quota => quota,
        };
        FilesystemStatus {
            blocks: size / BLOCK_BYTES as u64,
            blocks_free: size.saturating_sub(used) / BLOCK_BYTES as u64,
            inodes: self.inodes().saturating_add(SHOWN_INODES_FREE),
            inodes_free: SHOWN_INODES_FREE,
        }
    }
}

#[derive(Debug)]
pub struct Reservation<'a> {
    share: &'a Share,
    bytes: i64,
    is_kept: bool,
}

impl Reservation<'_> {
    /// The data is written, or gone.
    pub fn keep(mut self) {
        self.is_kept = true;
        if self.bytes < 0 {
            self.share.used_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_kept && self.bytes > 0 {
            self.share.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
pub struct Shares(RwLock<BTreeMap<u32, Arc<Share>>>);

const POISONED: &str = "no thread panics while it holds this lock";

impl Shares {
    pub fn by_id(&self, id: u32) -> Option<Arc<Share>> {
        self.0.read().expect(POISONED).get(&id).cloned()
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<Share>> {
        self.all().into_iter().find(|share| share.name == name)
    }

    /// In the order of their creation.
    pub fn all(&self) -> Vec<Arc<Share>> {
        self.0.read().expect(POISONED).values().cloned().collect()
    }

    pub fn insert(&self, share: Arc<Share>) {
        self.0.write().expect(POISONED).insert(share.id, share);
    }

    pub fn remove(&self, id: u32) {
        self.0.write().expect(POISONED).remove(&id);
    }
}
