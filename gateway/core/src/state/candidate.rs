//! What is left of a prefetcher's suggestion while what lies there is looked up.

use crate::state::prefetched::PrefetchTag;
use tombolo_base::VolumeId;
use tombolo_prefetch::{Class, Likelihood, Tag};

/// What is left of a suggestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub volume: VolumeId,
    pub first: u64,
    pub count: u64,
    pub class: Class,
    pub likelihood: Likelihood,
    pub tag: Tag,
    pub generation: u32,
    /// How many pieces of metadata are yet brought before anything of it is fetched, so that all that lies in one object is one
    /// request. Afterwards what is known goes at once.
    pub gathers: u16,
}

impl Candidate {
    pub fn rest_at(&self, first: u64) -> Self {
        let count = (self.first + self.count).saturating_sub(first);
        Self { first, count, ..*self }
    }

    pub fn prefetch_tag(&self, block: u64) -> PrefetchTag {
        PrefetchTag {
            volume: self.volume,
            block,
            class: self.class,
            tag: self.tag,
        }
    }
}
