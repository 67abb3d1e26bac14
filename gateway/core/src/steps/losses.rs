//! Blocks that are known to be lost: their object is missing or holds something else, or their only copy went bad
//! here before it was uploaded. Each is told and counted once, nothing is deduplicated against it, and it is not for
//! ever: an object may come back, a block is overwritten, and a block of the same contents that was uploaded later takes
//! the place of a lost one wherever it is read.

use crate::core_state::{Core, Lookup};
use crate::event::{Command, JobId, Loss, LossCause, StoreFailure};
use crate::state::extent_map::Target;
use crate::state::lost_blocks::{LOST_BLOCKS_MAX, LostRun, Missed, Place, Search};
use crate::steps::redirects::Redirects;
use alloc::{string::ToString, sync::Arc, vec::Vec};
use tombolo_base::{ObjectDescriptor, Pvbn};
use tombolo_prefetch::PVBN_SPACE;

/// Runs of lost blocks in one [`crate::Snapshot`].
const RUNS_TOLD_MAX: usize = 100;

impl Core {
    /// The object is missing, cut short or something else altogether.
    pub(crate) fn lose_object(&mut self, descriptor: &Arc<ObjectDescriptor>, missed: Vec<Missed>) {
        self.verification.forget(descriptor);
        let blocks = descriptor.blocks().iter();
        let lost: Vec<_> = blocks
            .filter(|block| self.losses.note(block.pvbn))
            .map(|block| (block.fingerprint, block.pvbn))
            .collect();
        self.forget_fingerprints(lost);
        self.lose_blocks(descriptor, missed);
    }

    /// The object does not hold these blocks as it should.
    pub(crate) fn lose_blocks(&mut self, descriptor: &Arc<ObjectDescriptor>, missed: Vec<Missed>) {
        let (mut lost, mut searches, mut fingerprints) = (Vec::new(), Vec::new(), Vec::new());
        for Missed {
            index,
            place,
            readers,
            reason,
        } in missed
        {
            let block = descriptor.blocks()[usize::from(index)];
            if self.losses.note(block.pvbn) {
                lost.push((block.fingerprint, block.pvbn));
            }
            let place = place.filter(|(volume, _)| *volume != PVBN_SPACE);
            if self.losses.stored.insert(block.pvbn, true) != Some(true) {
                self.counters.blocks_lost += 1;
                let cause = LossCause::Stored {
                    object: descriptor.clone(),
                    reason: reason.clone(),
                };
                self.losses.tell(Loss { place, count: 1, cause });
            }
            if let Some(place) = place
                && self.losses.places.len() < LOST_BLOCKS_MAX
            {
                self.losses.places.insert(place, block.pvbn);
            }
            if !readers.is_empty() {
                let failure = StoreFailure {
                    retryable: false,
                    reason,
                };
                let pvbn = block.pvbn;
                searches.push(Search { pvbn, readers, failure });
                fingerprints.push(block.fingerprint);
            }
        }
        self.forget_fingerprints(lost);
        if !searches.is_empty() {
            let job = self.next_job();
            self.losses.searches.insert(job, searches);
            self.out.push(Command::FindCopies { job, fingerprints });
        }
    }

    fn forget_fingerprints(&mut self, blocks: Vec<(tombolo_base::Fingerprint, Pvbn)>) {
        if !blocks.is_empty() {
            self.flush.remembered += blocks.len();
            self.out.push(Command::Forget { blocks });
        }
    }

    /// The only copy of a block went bad.
    pub(crate) fn tell_local_loss(&mut self, place: Place, reason: &str) {
        self.counters.blocks_lost += 1;
        let cause = LossCause::Local(reason.to_string());
        let (place, count) = (Some(place), 1);
        self.losses.tell(Loss { place, count, cause });
    }

    /// What the index knows of the contents of lost blocks: where that is in the cloud, the blocks are redirected there,
    /// and their readers go on.
    pub(crate) fn on_copies_found(&mut self, job: JobId, copies: Vec<Option<Pvbn>>) {
        let Some(searches) = self.losses.searches.remove(&job) else {
            return;
        };
        let (mut redirects, mut healed, mut failed) = (Redirects::default(), Vec::new(), Vec::new());
        for (search, copy) in searches.into_iter().zip(copies) {
            let copy = copy.filter(|copy| *copy != search.pvbn && self.is_in_cloud(*copy) && self.failed.is_none());
            for reader in search.readers {
                let place = self.place_of(reader);
                let mapped = match (copy, place) {
                    (Some(_), Some((volume, block))) => self.lookup(volume, block),
                    _ => Lookup::NeedPage(0),
                };
                match (copy, place, mapped) {
                    (Some(copy), Some((volume, block)), Lookup::Known(target, _)) => {
                        if target == Target::At(search.pvbn) {
                            redirects.add(volume, block, search.pvbn, copy);
                        }
                        if redirects.blocks >= self.config.followers_max {
                            // One block may be waited for by as many readers as there are: a batch is bounded.
                            self.commit(core::mem::take(&mut redirects).records);
                        }
                        healed.push(reader);
                    }
                    _ => failed.push((reader, search.pvbn, search.failure.clone())),
                }
            }
        }
        if !redirects.records.is_empty() {
            self.commit(redirects.records);
        }
        for reader in healed {
            self.read_again(reader);
        }
        for (reader, pvbn, failure) in failed {
            self.reader_failed(reader, pvbn, &failure);
        }
    }

    /// Neither on its way there nor lost there, as far as is known.
    pub(crate) fn is_in_cloud(&self, pvbn: Pvbn) -> bool {
        self.dirty.find(pvbn).is_none() && !self.losses.is_stored_lost(pvbn)
    }

    pub(crate) fn pump_losses(&mut self) {
        for loss in core::mem::take(&mut self.losses.untold) {
            self.out.push(Command::TellLoss(loss));
        }
    }

    /// How many blocks read as errors, as far as is known.
    pub(crate) fn lost_count(&self) -> u64 {
        (self.corrupt.len() + self.losses.places.len()) as u64
    }

    /// The first of them.
    pub(crate) fn lost_runs(&self) -> Vec<LostRun> {
        let mut runs: Vec<LostRun> = Vec::new();
        let local = self.corrupt.keys().map(|place| (*place, false));
        let stored = self.losses.places.keys().map(|place| (*place, true));
        for ((volume, block), in_store) in local.chain(stored) {
            let is_full = runs.len() == RUNS_TOLD_MAX;
            match runs.last_mut() {
                Some(last)
                    if (last.volume, last.in_store) == (volume, in_store) && last.first + last.count == block =>
                {
                    last.count += 1;
                }
                _ if is_full => break,
                _ => runs.push(LostRun {
                    volume,
                    first: block,
                    count: 1,
                    in_store,
                }),
            }
        }
        runs
    }
}
