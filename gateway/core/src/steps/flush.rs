//! From dirty block to object in the cloud, in journal order: hash, look the fingerprint up, redirect duplicates, gather
//! unique blocks in objects, upload in parallel, confirm.
//!
//! A round begins when the oldest dirty block has waited long enough, or enough waits that nobody replaces, under pressure, or to
//! drain. It takes everything that was dirty when it began; so a trickle of writes fills objects instead of making one a block. A request costs
//! the same whatever its size, so objects are as large as may be, unless somebody waits for them: then what is left is spread over
//! all lanes.
//! Only blocks whose journal record is durable are taken: what is in the bucket can never be undone by a crash.

use crate::core_state::Core;
use crate::event::{Command, HashItem, HashResult, JobId, UploadFailure, UploadItem};
use crate::format::record::Record;
use crate::state::dirty::{DirtyBlock, Stage};
use crate::state::flush_pipeline::{Drain, HashJob, Pending, Upload};
use crate::state::lost_blocks::ALTERED;
use crate::state::slot_transitions::SlotTransition;
use crate::state::slots::SlotState;
use crate::steps::redirects::Redirects;
use alloc::{sync::Arc, vec::Vec};
use hashbrown::{HashSet, hash_map::Entry};
use tombolo_base::{BLOCK_BYTES, Fingerprint, Instant, Lcbn, OBJECT_BLOCKS_MAX, ObjectDescriptor, PACK_BLOCKS, Pvbn};

const HASH_RETRY_MS: u64 = 1_000;
/// What is spread over all lanes goes in objects of so many blocks at the least: smaller ones are hardly sooner there, and each costs a
/// request.
const SPREAD_BLOCKS_MIN: usize = 4 * PACK_BLOCKS;
const UNREADABLE: &str = "its only copy in the cache file cannot be read";

impl Core {
    pub(crate) fn pump_flush(&mut self) {
        if self.failed.is_some() {
            return;
        }
        // A drain may want a point.
        self.begin_round();
        self.pump_recovery_point();
        self.take_hashed();
        self.retry_unreadable();
        // Redirects and confirmations need room in the overlay; so few are under way that they may pass its bound.
        if !self.has_no_room() {
            self.begin_hashing();
            self.close_object();
            self.pump_verification();
            self.begin_uploads();
        }
        self.end_round();
    }

    fn begin_round(&mut self) {
        // Before the drain's share: what came after it must not wait until it is over.
        let is_early = self.flush.early.is_due(self.dirty.queued() as u64);
        if is_early && self.flush.target.is_some() {
            // It goes on: objects are full as long as somebody writes.
            self.flush.target = Some(self.next_pvbn);
        }
        if self.may_begin_round() && (is_early || self.is_under_pressure() || self.is_old_enough()) {
            self.flush.target = Some(self.next_pvbn);
            if let Some(interval) = &mut self.flush.interval {
                interval.on_batch(self.now);
            }
        }
        if let Some(Drain::Uploading(target)) = self.flush.drain {
            if self.dirty.first_pvbn().is_none_or(|first| first >= target) {
                self.flush.drain = Some(Drain::Confirming(self.journal.end_of_records()));
            } else {
                self.flush.target = self.flush.target.max(Some(target));
            }
        }
        if let Some(Drain::Confirming(end)) = self.flush.drain {
            if self.journal.durable() < end {
                // Again and again: what is not written yet cannot be synced.
                self.want_sync();
            } else if self.is_published(end) {
                self.flush.drain = None;
            } else if !self.is_being_published(end) {
                self.unpublished.is_wanted = true;
            }
        }
    }

    /// None is under way, or the one that is has done all but to find a lane for its last object: what is due then joins it.
    fn may_begin_round(&self) -> bool {
        match self.flush.target {
            None => true,
            Some(target) => {
                self.flush.object_held_since.is_some()
                    && target < self.next_pvbn
                    && self.flush.hash_jobs.is_empty()
                    && self.dirty.waiting(target).is_none()
            }
        }
    }

    fn is_under_pressure(&self) -> bool {
        !self.dirty.is_empty()
            && (self.writes.is_stalled() || self.slots.dirty_count() > self.config.dirty_blocks_max / 2)
    }

    fn is_old_enough(&self) -> bool {
        self.round_due().is_some_and(|due| self.now >= due)
    }

    /// When the next round begins if nothing presses.
    fn round_due(&self) -> Option<Instant> {
        let oldest = self.dirty.oldest_queued()?;
        let latest = oldest.plus_millis(self.config.flush_delay_ms);
        let interval = self.flush.interval.as_ref();
        Some(interval.map_or(latest, |interval| interval.next_due().max(oldest).min(latest)))
    }

    fn begin_hashing(&mut self) {
        let Some(target) = self.flush.target else { return };
        if self.flush.hash_retry_at.is_some_and(|at| self.now < at) {
            return;
        }
        self.flush.hash_retry_at = None;
        let jobs_max = self.config.hash_jobs_max;
        while self.flush.hash_jobs.len() < jobs_max && !self.has_uploads_enough() && !self.has_followers_enough() {
            let blocks = self.dirty.take_for_hashing(target, self.config.hash_blocks);
            if blocks.is_empty() {
                if self.dirty.waiting(target).is_some() {
                    self.want_sync();
                }
                return;
            }
            let job = self.next_job();
            let mut items = Vec::with_capacity(blocks.len());
            for block in &blocks {
                assert!(block.pvbn < target && block.stage == Stage::Hashing);
                assert_eq!(self.slots.pvbn(block.slot), block.pvbn);
                assert_eq!(self.slots.state(block.slot), SlotState::Dirty);
                self.slots.pin(block.slot);
                items.push(HashItem {
                    pvbn: block.pvbn,
                    slot: block.slot,
                    sum: self.slots.sum(block.slot),
                });
            }
            let (pvbns, slots) = blocks.iter().map(|block| (block.pvbn, block.slot)).unzip();
            self.flush.hash_jobs.insert(
                job,
                HashJob {
                    blocks: pvbns,
                    slots,
                    results: None,
                },
            );
            self.out.push(Command::Hash { job, items });
        }
    }

    /// So that every lane finds an object when it is free; more would only wait in memory.
    fn has_uploads_enough(&self) -> bool {
        let waiting = self.flush.uploads.values().filter(|upload| !upload.running);
        let blocks: usize = waiting.map(|upload| upload.items.len()).sum();
        let lanes = self.lanes.uploads;
        blocks >= 2 * self.config.object_blocks(lanes).max(lanes * PACK_BLOCKS)
    }

    /// Every block that is hashed now may turn out to be another follower, and the batch that confirms an object
    /// redirects all of its followers. Once it has, the contents are known to be in the cloud and nothing follows them.
    fn has_followers_enough(&self) -> bool {
        self.flush.follower_count >= self.config.followers_max
    }

    pub(crate) fn on_hashed(&mut self, job: JobId, results: Vec<HashResult>) {
        if let Some(found) = self.flush.hash_jobs.get_mut(&job) {
            assert_eq!(found.blocks.len(), results.len(), "a result for each block");
            assert!(found.results.is_none(), "a job ends once");
            found.results = Some(results);
        }
    }

    /// Takes in finished hash jobs, strictly in order.
    fn take_hashed(&mut self) {
        while let Some(entry) = self.flush.hash_jobs.first_entry()
            && entry.get().results.is_some()
        {
            let (job_id, job) = entry.remove_entry();
            while let Some((before, _)) = self.flush.recent.front()
                && *before <= job_id
            {
                // Jobs from `before` on began when the index knew these already.
                let Some((_, fingerprints)) = self.flush.recent.pop_front() else {
                    break;
                };
                self.forget_pending(fingerprints);
            }
            let mut duplicates = Redirects::default();
            for ((pvbn, slot), result) in job.blocks.iter().zip(&job.slots).zip(job.results.unwrap_or_default()) {
                self.take_result(*pvbn, *slot, result, &mut duplicates);
                self.slots.unpin(*slot);
            }
            let records = duplicates.records;
            if !records.is_empty() {
                self.commit(records);
                self.request_sync_under_pressure();
            }
        }
    }

    fn take_result(&mut self, pvbn: Pvbn, slot: Lcbn, result: HashResult, duplicates: &mut Redirects) {
        let found = self.dirty.find(pvbn).copied();
        let is_wanted = found.is_some_and(|block| self.is_wanted(&block));
        if !is_wanted || !matches!(result, HashResult::Unreadable) {
            self.flush.unreadable.forget(pvbn);
        }
        let Some(block) = found else { return };
        assert_eq!((block.stage, block.slot), (Stage::Hashing, slot));
        if !is_wanted {
            // Overwritten while it was hashed.
            return self.drop_superseded(&block);
        }
        match result {
            HashResult::Corrupt => self.lose_dirty(slot, ALTERED),
            HashResult::Unreadable => self.set_aside_or_lose(pvbn, slot),
            HashResult::Done { fingerprint, existing } => {
                if let Some(pending) = self.flush.pending.get_mut(&fingerprint)
                    && !pending.is_confirmed
                {
                    pending.followers.push(pvbn);
                    self.flush.follower_count += 1;
                    return self.dirty.set_stage(pvbn, Stage::AwaitsOriginal);
                }
                let confirmed = self.flush.pending.get(&fingerprint).map(|pending| pending.pvbn);
                // After a crash the index may name a block whose confirmation was lost with the journal's tail.
                let usable = |found: &Pvbn| *found != pvbn && self.is_in_cloud(*found);
                match (confirmed.filter(usable), existing.filter(usable)) {
                    (Some(existing), _) => self.redirect_duplicate(&block, existing, duplicates),
                    (None, Some(existing)) if self.may_redirect(pvbn, existing) => {
                        self.redirect_duplicate(&block, existing, duplicates);
                    }
                    (None, Some(_)) => {}
                    (None, None) => self.pack(pvbn, slot, fingerprint),
                }
            }
        }
    }

    fn redirect_duplicate(&mut self, block: &DirtyBlock, existing: Pvbn, duplicates: &mut Redirects) {
        self.totals.blocks_duplicate += 1;
        if self.dirty.is_live(block) {
            return duplicates.add(block.volume, block.block, block.pvbn, existing);
        }
        self.unpublished
            .redirect_frozen(block.volume, block.block, block.pvbn, existing);
        self.drop_superseded(block);
    }

    /// Whether the block maps to this PVBN, now or at the recovery point that is on its way to the bucket.
    pub(crate) fn is_wanted(&self, block: &DirtyBlock) -> bool {
        self.dirty.is_live(block) || self.unpublished.needs(block)
    }

    /// Nothing maps to it any more.
    pub(crate) fn drop_superseded(&mut self, block: &DirtyBlock) {
        self.dirty.remove(block.pvbn);
        self.slots.retire(block.slot);
        let lsn = self.journal.next();
        self.transition_at(lsn, block.slot, SlotTransition::Free);
    }

    /// The block is read again later, and nothing waits for it. One that stays unreadable is given up.
    fn set_aside_or_lose(&mut self, pvbn: Pvbn, slot: Lcbn) {
        let is_wanted = self.dirty.find(pvbn).is_some_and(|block| self.is_wanted(block));
        if is_wanted && self.flush.unreadable.failed(pvbn) < self.config.slot_reads_max {
            self.flush.unreadable.retry_later(pvbn, self.now);
            return self.dirty.set_stage(pvbn, Stage::Unreadable);
        }
        self.flush.unreadable.forget(pvbn);
        self.slots.set_unusable(slot, self.now);
        self.lose_dirty(slot, UNREADABLE);
    }

    fn retry_unreadable(&mut self) {
        while let Some(pvbn) = self.flush.unreadable.pop_due(self.now) {
            if !self.dirty.requeue(pvbn) {
                self.flush.unreadable.forget(pvbn);
            }
        }
    }

    /// Metadata that a hashed block needs could not be read.
    pub(crate) fn hash_later(&mut self) {
        self.flush.hash_retry_at = Some(self.now.plus_millis(HASH_RETRY_MS));
    }

    fn pack(&mut self, pvbn: Pvbn, slot: Lcbn, fingerprint: Fingerprint) {
        if !self.flush.may_join_object(pvbn) {
            self.seal_object();
        }
        self.totals.blocks_unique += 1;
        let pending = Pending {
            pvbn,
            is_confirmed: false,
            followers: Vec::new(),
        };
        let earlier = self.flush.pending.insert(fingerprint, pending);
        assert!(
            earlier.is_none_or(|earlier| earlier.is_confirmed && earlier.followers.is_empty()),
            "contents are on one way to the cloud at a time"
        );
        self.dirty.set_stage(pvbn, Stage::Packed);
        self.slots.pin(slot);
        let sum = self.slots.sum(slot);
        self.flush.object.push(UploadItem {
            pvbn,
            slot,
            sum,
            fingerprint,
        });
        if self.flush.object.len() >= self.object_blocks() {
            self.seal_object();
        }
    }

    /// Blocks at which the open object goes.
    fn object_blocks(&self) -> usize {
        let most = self.config.object_blocks(self.lanes.uploads);
        if self.flush.drain.is_none() && self.unpublished.waiting.is_empty() {
            return most;
        }
        let share = self.dirty.len().div_ceil(self.lanes.uploads);
        share.next_multiple_of(PACK_BLOCKS).max(SPREAD_BLOCKS_MIN).min(most)
    }

    /// An object that is not full goes when nothing more of this round can fill it, or may before it is in the cloud. Without a lane
    /// for it that would only make a queue of small objects, each of which takes the store as long as a large one: it stays open.
    fn close_object(&mut self) {
        let Some(target) = self.flush.target else { return };
        if !self.flush.object.is_empty()
            && self.flush.hash_jobs.is_empty()
            && (self.has_followers_enough() || self.dirty.waiting(target).is_none())
        {
            if self.has_lane_for_another() {
                self.seal_object();
            } else {
                self.flush.object_held_since.get_or_insert(self.now);
            }
        }
    }

    /// Beside the objects that are closed already.
    fn has_lane_for_another(&self) -> bool {
        self.flush.uploads.len() < self.lanes.uploads
    }

    fn seal_object(&mut self) {
        let job = self.next_job();
        let items = core::mem::take(&mut self.flush.object);
        assert!((1..=self.config.object_blocks_max).contains(&items.len()));
        self.flush.uploads.insert(
            job,
            Upload {
                items,
                running: false,
                ready: self.flush.object_held_since.take().unwrap_or(self.now),
                retry_at: None,
                failures: 0,
            },
        );
    }

    fn begin_uploads(&mut self) {
        let mut lanes = self.free_lanes();
        let mut room = self.index_room();
        let mut memory = self.upload_memory();
        for (job, upload) in &mut self.flush.uploads {
            if lanes == 0 {
                return;
            }
            if upload.running || upload.retry_at.is_some_and(|at| self.now < at) {
                continue;
            }
            if upload.items.len() > room {
                self.checkpoints.is_wanted = true;
                return;
            }
            if upload.items.len() > memory {
                return;
            }
            upload.running = true;
            if upload.retry_at.take().is_some() {
                upload.ready = self.now;
            }
            lanes -= 1;
            room = room
                .min(self.config.fingerprints_max)
                .saturating_sub(upload.items.len());
            memory = memory.min(self.lanes.upload_blocks).saturating_sub(upload.items.len());
            self.out.push(Command::Upload {
                job: *job,
                items: upload.items.clone(),
            });
        }
    }

    fn free_lanes(&self) -> usize {
        let in_flight = self.flush.uploads_in_flight();
        self.lanes.uploads.saturating_sub(in_flight)
    }

    /// Blocks of objects that there is memory for, and that the path carries soon enough.
    fn upload_memory(&self) -> usize {
        match self.flush.blocks_in_flight() {
            0 => self.lanes.upload_blocks.max(OBJECT_BLOCKS_MAX),
            taken => self.lanes.upload_blocks.saturating_sub(taken),
        }
    }

    /// Blocks whose fingerprints find room in the index's memory once those on their way are there; what does not might be stored
    /// twice. A checkpoint makes room. Alone, an object of any size has it.
    fn index_room(&self) -> usize {
        let taken = self.flush.remembered + self.flush.blocks_in_flight();
        match taken {
            0 => self.config.fingerprints_max.max(OBJECT_BLOCKS_MAX),
            _ => self.config.fingerprints_max.saturating_sub(taken),
        }
    }

    /// When the next upload that waits to be repeated may be. Those behind one that has to wait for room wait with it.
    fn upload_deadline(&self) -> Option<Instant> {
        if self.free_lanes() == 0 {
            return None;
        }
        let room = self.index_room().min(self.upload_memory());
        let waiting = self.flush.uploads.values().filter(|upload| !upload.running);
        waiting
            .take_while(|upload| upload.items.len() <= room || upload.retry_at.is_some_and(|at| self.now < at))
            .filter_map(|upload| upload.retry_at)
            .min()
    }

    /// Logical bytes, so that data that compresses well does not look like a slow store.
    fn note_latency(&mut self, job: JobId, result: &Result<ObjectDescriptor, UploadFailure>) {
        let (Some(upload), Some(interval)) = (self.flush.uploads.get(&job), &mut self.flush.interval) else {
            return;
        };
        let blocks = match result {
            Ok(_) => upload.items.len(),
            Err(UploadFailure::Store(_)) => 0,
            Err(_) => return,
        };
        interval.on_completed(self.now, upload.ready, (blocks * BLOCK_BYTES) as u64);
    }

    fn end_round(&mut self) {
        if let Some(target) = self.flush.target
            && self.flush.hash_jobs.is_empty()
            && self.flush.object.is_empty()
            && self.dirty.waiting(target).is_none()
        {
            self.flush.target = None;
        }
    }

    pub(crate) fn on_uploaded(&mut self, job: JobId, result: Result<ObjectDescriptor, UploadFailure>) {
        self.note_latency(job, &result);
        match result {
            Ok(descriptor) => self.confirm(job, descriptor),
            Err(UploadFailure::Store(failure)) => {
                self.store_failed(&failure);
                self.retry_upload(job);
            }
            Err(UploadFailure::Disk { unreadable, .. }) if unreadable.is_empty() => self.retry_upload(job),
            Err(UploadFailure::Disk { unreadable, .. }) => {
                self.counters.upload_failures += 1;
                self.upload_without(job, &unreadable, |core, item| {
                    core.totals.blocks_unique -= 1;
                    core.set_aside_or_lose(item.pvbn, item.slot);
                });
            }
            Err(UploadFailure::Corrupt(pvbns)) => {
                self.upload_without(job, &pvbns, |core, item| core.lose_dirty(item.slot, ALTERED));
            }
        }
    }

    fn retry_upload(&mut self, job: JobId) {
        self.counters.upload_failures += 1;
        let Some(upload) = self.flush.uploads.get_mut(&job) else {
            return;
        };
        assert!(
            upload.running && upload.retry_at.is_none(),
            "it has failed, so it was under way"
        );
        upload.running = false;
        let delay = self.config.upload_retry_ms(upload.failures);
        upload.failures += 1;
        upload.retry_at = Some(self.now.plus_millis(delay));
    }

    fn upload_without(&mut self, job: JobId, failed: &[Pvbn], set_aside: impl Fn(&mut Self, &UploadItem)) {
        let Some(mut upload) = self.flush.uploads.remove(&job) else {
            return;
        };
        assert!(upload.running, "it has failed, so it was under way");
        let failed: HashSet<Pvbn> = failed.iter().copied().collect();
        let is_failed = |item: &UploadItem| failed.contains(&item.pvbn);
        let (left_out, kept): (Vec<_>, Vec<_>) = upload.items.iter().copied().partition(is_failed);
        for item in left_out {
            // The followers' own copies are good: one of them will be uploaded instead.
            let pending = self.flush.pending.remove(&item.fingerprint);
            self.requeue_followers(pending.map(|pending| pending.followers).unwrap_or_default());
            set_aside(self, &item);
            self.slots.unpin(item.slot);
        }
        if !kept.is_empty() {
            upload.items = kept;
            upload.running = false;
            let job = self.next_job();
            self.flush.uploads.insert(job, upload);
        }
    }

    fn confirm(&mut self, job: JobId, descriptor: ObjectDescriptor) {
        let Some(upload) = self.flush.uploads.remove(&job) else {
            return;
        };
        assert_eq!(
            descriptor.blocks().len(),
            upload.items.len(),
            "the object holds what was asked for"
        );
        assert!(upload.running);
        let pvbns = descriptor.blocks().iter().map(|block| block.pvbn);
        assert!(pvbns.eq(upload.items.iter().map(|item| item.pvbn)), "in that order");
        self.store_answered();
        self.unpublished.on_uploaded(self.now);
        self.counters.uploads += 1;
        self.counters.upload_bytes += descriptor.object_bytes() as u64;
        self.verification.is_present_now(&descriptor);
        let followers = self.take_followers(&upload.items);
        let (redirects, dead) = self.redirect_followers(followers);
        let mut records = alloc::vec![Record::Object(descriptor.clone())];
        records.extend(redirects);
        let end = self.commit_redirects(records, dead);
        self.flush.remembered += upload.items.len();
        let mut fingerprints = Vec::with_capacity(upload.items.len());
        for item in &upload.items {
            fingerprints.push((item.fingerprint, item.pvbn));
            if let Some(block) = self.dirty.remove(item.pvbn) {
                // A checkpoint before the transitions says "clean" already.
                self.slots.mark_changed(item.slot);
                let address = self.own_address(block.volume, block.block, item.pvbn);
                let object = descriptor.first_pvbn();
                self.transition_at(end, item.slot, SlotTransition::Clean { address, object });
            } else if self.slots.state(item.slot) == SlotState::Corrupt {
                // The local copy went bad after the upload had read it: the cloud has it, nothing is lost.
                self.counters.blocks_lost -= 1;
                self.corrupt.retain(|_, slot| *slot != item.slot);
                self.slots.retire(item.slot);
                self.transition_at(end, item.slot, SlotTransition::Free);
            }
            self.slots.unpin(item.slot);
        }
        let next_job = JobId(self.next_job + 1);
        self.flush.recent.push_back((next_job, fingerprints));
        if self.flush.hash_jobs.is_empty() {
            self.forget_recent();
        }
        self.out.push(Command::Remember {
            descriptor: Arc::new(descriptor),
        });
        self.request_sync_under_pressure();
    }

    /// Slots of blocks that are in the cloud count as dirty until that is durable.
    pub(crate) fn request_sync_under_pressure(&mut self) {
        if self.is_under_pressure() || self.flush.drain.is_some() {
            self.want_sync();
        }
    }

    /// The blocks that waited for these to be confirmed, and what each equals.
    fn take_followers(&mut self, items: &[UploadItem]) -> Vec<(Pvbn, Pvbn)> {
        let mut taken = Vec::new();
        for item in items {
            if let Some(pending) = self.flush.pending.get_mut(&item.fingerprint) {
                assert!(!pending.is_confirmed, "an object is confirmed once");
                pending.is_confirmed = true;
                let followers = core::mem::take(&mut pending.followers);
                taken.extend(followers.into_iter().map(|follower| (follower, item.pvbn)));
            }
        }
        taken
    }

    /// No hash job is under way, so every later one will find these in the index.
    fn forget_recent(&mut self) {
        for (_, fingerprints) in core::mem::take(&mut self.flush.recent) {
            self.forget_pending(fingerprints);
        }
    }

    /// Unless the contents were lost since, and are on their way again.
    fn forget_pending(&mut self, confirmed: Vec<(Fingerprint, Pvbn)>) {
        for (fingerprint, pvbn) in confirmed {
            if let Entry::Occupied(entry) = self.flush.pending.entry(fingerprint)
                && entry.get().pvbn == pvbn
            {
                entry.remove();
            }
        }
    }

    /// The only copy of a block is damaged: it reads as an error until it is overwritten, and is never uploaded.
    pub(crate) fn lose_dirty(&mut self, slot: Lcbn, reason: &str) {
        if self.slots.state(slot) != SlotState::Dirty {
            return;
        }
        let pvbn = self.slots.pvbn(slot);
        self.counters.slots_corrupt += 1;
        let found = self.dirty.find(pvbn).copied();
        let block = found.filter(|block| self.dirty.is_live(block));
        if found.is_some_and(|found| block.is_none() && self.unpublished.needs(&found)) {
            // What the point would have held is gone; a later one holds what came after it.
            self.unpublished.thaw();
        }
        self.dirty.remove(pvbn);
        if let Some(block) = block {
            assert_eq!(block.slot, slot, "the block's only copy is this one");
            self.tell_local_loss((block.volume, block.block), reason);
            self.corrupt.insert((block.volume, block.block), slot);
            self.slots.mark_corrupt(slot);
        } else {
            // Uploaded already, so the cloud's copy is good; or overwritten.
            self.slots.retire(slot);
            let lsn = self.journal.next();
            self.transition_at(lsn, slot, SlotTransition::Free);
        }
    }

    pub(crate) fn flush_deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let waits_for_room = self.has_no_room();
        let round = match self.flush.target {
            _ if self.may_begin_round() => self.round_due(),
            _ => self.flush.hash_retry_at.filter(|_| !waits_for_room),
        };
        let retry = match waits_for_room {
            true => None,
            false => self.upload_deadline(),
        };
        let verify = if !waits_for_room && self.verification.has_lane(self.config.uploads_max) {
            self.verification.deadline()
        } else {
            None
        };
        Instant::earliest([
            round,
            retry,
            self.flush.unreadable.deadline(),
            verify,
            self.recovery_point_deadline(),
        ])
    }
}

#[cfg(test)]
#[path = "duplicates_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "followers_tests.rs"]
mod followers_tests;

#[cfg(test)]
#[path = "objects_tests.rs"]
mod objects_tests;

#[cfg(test)]
#[path = "unreadable_tests.rs"]
mod unreadable_tests;
