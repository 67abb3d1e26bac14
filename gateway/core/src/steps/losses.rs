//! Blocks that are known to be lost: their object is missing or holds something else, or their only copy went bad
//! here before it was uploaded. Each is told and counted once, nothing is deduplicated against it, and it is not for
//! ever: an object may come back, a block is overwritten, and a block of the same contents that was uploaded later takes
//! the place of a lost one wherever it is read.

use crate::core_state::{Core, Lookup};
use crate::event::{Command, JobId, Loss, LossCause, StoreFailure};
use crate::state::extent_map::Target;
use crate::steps::fetch::Interest;
use crate::steps::redirects::Redirects;
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use tombolo_base::{ObjectDescriptor, Pvbn, VolumeId};
use tombolo_prefetch::PVBN_SPACE;

/// A place in a volume.
pub(crate) type Place = (VolumeId, u64);

/// A block of an object that a fetch did not bring.
pub(crate) struct Missed {
    /// Which block of the object.
    pub index: u16,
    /// Where it was asked for.
    pub place: Option<Place>,
    pub readers: Vec<Interest>,
    pub reason: String,
}

/// A lost block that readers wait for, in case the cloud has its contents under another name.
#[derive(Debug)]
struct Search {
    pvbn: Pvbn,
    readers: Vec<Interest>,
    failure: StoreFailure,
}

#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Blocks that the cloud does not have as it should, and whether that was told.
    stored: BTreeMap<Pvbn, bool>,
    /// Where such blocks were asked for.
    places: BTreeMap<Place, Pvbn>,
    searches: BTreeMap<JobId, Vec<Search>>,
    untold: Vec<Loss>,
}

/// Lost blocks beyond this are told again whenever they are read.
const LOST_BLOCKS_MAX: usize = 1 << 20;
/// Runs of lost blocks in one [`crate::Snapshot`].
const RUNS_TOLD_MAX: usize = 100;

/// Blocks of a volume that read as errors until they are overwritten, or found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRun {
    pub volume: VolumeId,
    pub first: u64,
    pub count: u64,
    /// The store does not have them as it should; else their only copy went bad before it was uploaded.
    pub in_store: bool,
}

impl Losses {
    pub fn is_stored_lost(&self, pvbn: Pvbn) -> bool {
        self.stored.contains_key(&pvbn)
    }

    /// The blocks map to something else now.
    pub fn forget_places(&mut self, volume: VolumeId, first: u64, end: u64) {
        while let Some((&place, _)) = self.places.range((volume, first)..(volume, end)).next() {
            self.places.remove(&place);
        }
    }

    /// The cloud has the block after all.
    pub fn found_again(&mut self, pvbn: Pvbn) {
        if self.stored.remove(&pvbn).is_some() {
            self.places.retain(|_, lost| *lost != pvbn);
        }
    }

    /// Notes a block as lost; says whether that is news.
    fn note(&mut self, pvbn: Pvbn) -> bool {
        let is_new = !self.stored.contains_key(&pvbn);
        if is_new && self.stored.len() < LOST_BLOCKS_MAX {
            self.stored.insert(pvbn, false);
        }
        is_new
    }

    /// Nothing is deduplicated against the block in this life.
    pub fn distrust(&mut self, pvbn: Pvbn) {
        self.note(pvbn);
    }

    /// An object is gone; which blocks of which volumes are lost with it is told when they are read.
    pub fn tell_object(&mut self, object: &Arc<ObjectDescriptor>, reason: &str) {
        let cause = LossCause::Stored {
            object: object.clone(),
            reason: reason.to_string(),
        };
        self.untold.push(Loss {
            place: None,
            count: 0,
            cause,
        });
    }

    /// Joins the loss to the one before where it continues it.
    fn tell(&mut self, loss: Loss) {
        if let Some(last) = self.untold.last_mut()
            && last.cause == loss.cause
            && let (Some(before), Some((volume, block))) = (&mut last.place, loss.place)
            && before.0 == volume
            && before.1 + last.count == block
        {
            last.count += 1;
            return;
        }
        self.untold.push(loss);
    }
}

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
