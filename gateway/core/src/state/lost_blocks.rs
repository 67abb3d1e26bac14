//! Blocks that are known to be lost, where they were asked for, and what was not told yet.

use crate::event::{JobId, Loss, LossCause, StoreFailure};
use crate::state::reads::Interest;
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use tombolo_base::{ObjectDescriptor, Pvbn, VolumeId};

/// A place in a volume.
pub type Place = (VolumeId, u64);

/// A block of an object that a fetch did not bring.
pub struct Missed {
    /// Which block of the object.
    pub index: u16,
    /// Where it was asked for.
    pub place: Option<Place>,
    pub readers: Vec<Interest>,
    pub reason: String,
}

/// A lost block that readers wait for, in case the cloud has its contents under another name.
#[derive(Debug)]
pub struct Search {
    pub pvbn: Pvbn,
    pub readers: Vec<Interest>,
    pub failure: StoreFailure,
}

#[derive(Debug, Default)]
pub struct Losses {
    /// Blocks that the cloud does not have as it should, and whether that was told.
    pub stored: BTreeMap<Pvbn, bool>,
    /// Where such blocks were asked for.
    pub places: BTreeMap<Place, Pvbn>,
    pub searches: BTreeMap<JobId, Vec<Search>>,
    pub untold: Vec<Loss>,
}

/// Lost blocks beyond this are told again whenever they are read.
pub const LOST_BLOCKS_MAX: usize = 1 << 20;

/// Blocks of a volume that read as errors until they are overwritten, or found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRun {
    /// Whose blocks.
    pub volume: VolumeId,
    /// The first of them.
    pub first: u64,
    /// Blocks, at least one.
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

    /// Notes a block as lost; true: it was not noted before.
    pub fn note(&mut self, pvbn: Pvbn) -> bool {
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
    pub fn tell(&mut self, loss: Loss) {
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

/// Why the only copy of a block is lost.
pub(crate) const ALTERED: &str = "its only copy in the cache file does not match its checksum";
