//! Dirty blocks on their way to the cloud: hash jobs, the open object, uploads, and the blocks that wait for them.

use crate::Lsn;
use crate::config::{Config, FlushInterval};
use crate::event::{HashResult, JobId, UploadItem};
use crate::format::local_metadata::OBJECT_SPAN_MAX;
use crate::state::unreadable::Unreadable;
use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use hashbrown::HashMap;
use tombolo_base::{Fingerprint, Instant, Lcbn, OBJECT_BLOCKS_MAX, Pvbn};
use tombolo_flow_control::{EarlyFlush, Stout, stout};

/// What Stout's back-offs are calibrated to: a store over a distance.
const UPLOAD_LATENCY_P50_US: u64 = 200_000;

#[derive(Debug)]
pub struct HashJob {
    pub blocks: Vec<Pvbn>,
    pub slots: Vec<Lcbn>,
    pub results: Option<Vec<HashResult>>,
}

#[derive(Debug)]
pub struct Upload {
    pub items: Vec<UploadItem>,
    pub running: bool,
    /// Since when it could be sent; what it waited for another attempt is no part of any.
    pub ready: Instant,
    pub retry_at: Option<Instant>,
    pub failures: u32,
}

/// Contents that are in the cloud, or on the way there, and that the index may not know yet.
#[derive(Debug)]
pub struct Pending {
    pub pvbn: Pvbn,
    pub is_confirmed: bool,
    /// Dirty blocks of the same contents. They keep their slots until the confirmation: a redirect to a block that
    /// a crash, a bad slot or an overwrite might still take away would lose them with it.
    pub followers: Vec<Pvbn>,
}

/// How far a drain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// All dirty blocks below this must go, however young.
    Uploading(Pvbn),
    /// They are in the store; the records that say so end here and are not all durable.
    Confirming(Lsn),
}

#[derive(Debug, Default)]
pub struct Flush {
    /// Says when the next round begins; `None`: by the age of the oldest dirty block alone.
    pub interval: Option<Stout>,
    /// Says what need not wait for that.
    pub early: EarlyFlush,
    /// The round takes blocks below this.
    pub target: Option<Pvbn>,
    /// Set while one goes on.
    pub drain: Option<Drain>,
    pub hash_jobs: BTreeMap<JobId, HashJob>,
    /// The open object.
    pub object: Vec<UploadItem>,
    /// Since when it could be sent, if a lane were free for it.
    pub object_held_since: Option<Instant>,
    pub pending: HashMap<Fingerprint, Pending>,
    /// Confirmed, but a hash job that began before may still have missed them in the index.
    pub recent: VecDeque<(JobId, Vec<(Fingerprint, Pvbn)>)>,
    pub uploads: BTreeMap<JobId, Upload>,
    /// Over all of `pending`, and of the objects that are being verified.
    pub follower_count: usize,
    pub unreadable: Unreadable,
    /// Local metadata did not answer; no new hash job before this.
    pub hash_retry_at: Option<Instant>,
    /// Fingerprints that the index has taken in since a checkpoint last set it aside.
    pub remembered: usize,
}

impl Flush {
    pub fn new(config: &Config, now: Instant) -> Self {
        let delay_us = config.flush_delay_ms.saturating_mul(1_000);
        let parameters = || stout::Parameters::uploads(UPLOAD_LATENCY_P50_US, delay_us);
        Self {
            interval: (config.flush_interval == FlushInterval::Stout).then(|| Stout::new(parameters(), now)),
            early: EarlyFlush::new(config.flush_delay_ms, config.early_flush_blocks),
            ..Self::default()
        }
    }

    /// PVBNs ascend within an object and lie within a bounded span. A block that had to be hashed again comes late.
    pub fn may_join_object(&self, pvbn: Pvbn) -> bool {
        let (Some(first), Some(last)) = (self.object.first(), self.object.last()) else {
            return true;
        };
        last.pvbn < pvbn && pvbn.0 - first.pvbn.0 < OBJECT_SPAN_MAX
    }

    pub fn uploads_in_flight(&self) -> usize {
        self.uploads.values().filter(|upload| upload.running).count()
    }

    /// Blocks that running uploads carry.
    pub fn blocks_in_flight(&self) -> usize {
        let running = self.uploads.values().filter(|upload| upload.running);
        running.map(|upload| upload.items.len()).sum()
    }

    /// Blocks that wait for the confirmation of another of the same contents.
    #[expect(clippy::disallowed_methods, reason = "a sum is the same in any order")]
    pub fn awaiting_count(&self) -> usize {
        self.pending.values().map(|pending| pending.followers.len()).sum()
    }

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        self.unreadable.check_invariants();
        for job in self.hash_jobs.values() {
            assert_eq!(job.blocks.len(), job.slots.len());
            assert!(
                job.results
                    .as_ref()
                    .is_none_or(|results| results.len() == job.blocks.len())
            );
        }
        assert!(self.object_held_since.is_none() || !self.object.is_empty());
        for upload in self.uploads.values() {
            assert!((1..=OBJECT_BLOCKS_MAX).contains(&upload.items.len()));
            assert!(!upload.running || upload.retry_at.is_none());
            assert!(upload.items.is_sorted_by(|left, right| left.pvbn < right.pvbn));
        }
        #[expect(clippy::disallowed_methods, reason = "all of them are looked at, in any order")]
        let mut pending = self.pending.values();
        assert!(pending.all(|pending| !pending.is_confirmed || pending.followers.is_empty()));
    }
}
