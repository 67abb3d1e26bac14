//! Prefetch: from what the prefetcher suggests to fetches, as far as prices, room and knowledge allow.
//!
//! A suggestion names addresses. What lies there must be looked up, and where a page of the map or an object's
//! descriptor is not in memory, the rest of the suggestion waits for it as a [`Candidate`]. Each piece whose objects are known
//! is weighed by what it would bring and cost; blocks that are resident or on their way are left out.

use crate::core_state::{Core, Lookup};
use crate::state::candidate::Candidate;
use crate::state::extent_map::Target;
use crate::state::fetches::{Purpose, ranges};
use crate::state::prefetched::address;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::{ObjectDescriptor, Pvbn, Span, VolumeId};
use tombolo_cache::Expectation;
use tombolo_prefetch::{Addressing, Class, Offer, PVBN_SPACE, PrefetchOutcome, Suggestion};

/// Where a suggestion's lookup has stopped.
enum Stop {
    AtEnd,
    /// The prefetcher's share of the cache is used up.
    NoRoom(Candidate),
    NeedPage(u64, Candidate),
    NeedDescriptor(Pvbn, Candidate),
}

/// Blocks of an object: their indexes in it, and their addresses.
type Blocks = Vec<(u16, u64)>;

/// Absent blocks by object.
#[derive(Default)]
struct Absent {
    objects: BTreeMap<u64, (Arc<ObjectDescriptor>, Blocks)>,
    count: usize,
    /// The object of the block added last, and what index and PVBN it has there: those that follow mostly lie in the same
    /// object, which then need not be looked for.
    latest: Option<(u64, u16, Pvbn)>,
}

impl Absent {
    /// Adds a block if it lies in the object of the block added last, as far behind it as its PVBN is.
    fn add_to_latest(&mut self, pvbn: Pvbn, address: u64) -> bool {
        let Some((object, latest_index, latest_pvbn)) = self.latest else {
            return false;
        };
        let (Some((descriptor, blocks)), Some(distance)) =
            (self.objects.get_mut(&object), pvbn.0.checked_sub(latest_pvbn.0))
        else {
            return false;
        };
        let index = u64::from(latest_index).saturating_add(distance);
        match descriptor.blocks().get(index as usize) {
            Some(packed) if packed.pvbn == pvbn => {
                blocks.push((index as u16, address));
                self.count += 1;
                self.latest = Some((object, index as u16, pvbn));
                true
            }
            _ => false,
        }
    }

    /// Adds a block if the object holds it.
    fn add(&mut self, descriptor: Arc<ObjectDescriptor>, pvbn: Pvbn, address: u64) {
        let Ok(index) = descriptor.blocks().binary_search_by_key(&pvbn, |packed| packed.pvbn) else {
            return;
        };
        let object = descriptor.first_pvbn().0;
        let (_, blocks) = self.objects.entry(object).or_insert_with(|| (descriptor, Vec::new()));
        blocks.push((index as u16, address));
        self.count += 1;
        self.latest = Some((object, index as u16, pvbn));
    }
}

/// A read and a suggestion further apart than this do not belong to one group.
const GROUP_BLOCKS_MAX: u64 = 4096;
/// A suggestion is looked up in pieces of so many blocks: blocks that were written beside each other are in few objects, and
/// those of one object within a piece are one request.
const PIECE_BLOCKS: u64 = 4096;
/// Pages and descriptors that a piece waits for before anything of it is fetched: each has it looked up anew.
const GATHERS_MAX: u16 = 32;

impl Core {
    /// Takes up what the prefetcher has suggested at a read of `span`.
    pub(crate) fn issue_suggestions(&mut self, span: Span) {
        if self.prefetch_state.suggestions.is_empty() {
            return;
        }
        let mut suggestions = core::mem::take(&mut self.prefetch_state.suggestions);
        for suggestion in suggestions.drain(..) {
            self.expect_rest_of_group(span, &suggestion);
            let whole = Candidate {
                volume: suggestion.volume,
                first: suggestion.first,
                count: suggestion.count,
                gaps: suggestion.gaps,
                origin: suggestion.first,
                class: suggestion.class,
                likelihood: suggestion.likelihood,
                tag: suggestion.tag,
                generation: self.prefetch_state.generation,
                gathers: GATHERS_MAX,
            };
            for first in (0..whole.count).step_by(PIECE_BLOCKS as usize) {
                self.issue(Candidate {
                    first: whole.first + first,
                    count: PIECE_BLOCKS.min(whole.count - first),
                    ..whole
                });
            }
        }
        self.prefetch_state.suggestions = suggestions;
    }

    /// What lies between a read and the group that it makes the prefetcher suggest was prefetched earlier and is needed
    /// sooner.
    fn expect_rest_of_group(&mut self, span: Span, suggestion: &Suggestion) {
        let is_group = suggestion.class == Class::Sequential && suggestion.volume == span.volume;
        let rest = span.end()..suggestion.first;
        if !is_group || !self.slots.uses_expectations() || rest.end.saturating_sub(rest.start) > GROUP_BLOCKS_MAX {
            return;
        }
        let mut block = rest.start;
        while block < rest.end {
            let Lookup::Known(target, run) = self.target_of(span.volume, block) else {
                return;
            };
            let run = run.min(rest.end - block);
            if let Target::At(first) = target {
                for offset in 0..run {
                    if let Some(slot) = self.slots.find(first.plus(offset)) {
                        let address = address(span.volume, block + offset);
                        self.slots.expect(slot, address, Expectation::RestOfGroup);
                    }
                }
            }
            block += run;
        }
    }

    /// Fetches what a candidate names, now or when what must be known first is loaded.
    pub(crate) fn issue(&mut self, candidate: Candidate) {
        if candidate.generation != self.prefetch_state.generation {
            return;
        }
        let mut absent = Absent::default();
        let stop = self.find_absent(candidate, &mut absent);
        if let Some(gathers) = candidate.gathers.checked_sub(1) {
            let whole = Candidate { gathers, ..candidate };
            match stop {
                Stop::NeedPage(page, _) => return self.load_page_for_candidate(whole, page),
                Stop::NeedDescriptor(pvbn, _) => return self.load_descriptor_for_candidate(whole, pvbn),
                Stop::AtEnd | Stop::NoRoom(_) => {}
            }
        }
        self.offer(candidate, absent);
        match stop {
            Stop::AtEnd => {}
            Stop::NoRoom(rest) => self.feed_back(rest.prefetch_tag(rest.first), rest.count, PrefetchOutcome::Dropped),
            Stop::NeedPage(page, rest) => self.load_page_for_candidate(rest, page),
            Stop::NeedDescriptor(pvbn, rest) => self.load_descriptor_for_candidate(rest, pvbn),
        }
    }

    /// Nothing is known to hold a block of the candidate: it goes on behind it.
    pub(crate) fn issue_rest(&mut self, candidate: Candidate) {
        if candidate.gathers > 0 {
            self.issue(Candidate {
                gathers: 0,
                ..candidate
            });
        } else if candidate.count > 1 {
            self.issue(candidate.rest_at(candidate.first + 1));
        }
    }

    fn find_absent(&mut self, candidate: Candidate, absent: &mut Absent) -> Stop {
        let room = (self.slots.count() / 8) as usize;
        let end = (candidate.first + candidate.count).min(self.end_of(candidate.volume));
        let mut block = candidate.first;
        loop {
            let (gap, part) = candidate.gap_and_part(block);
            block += gap;
            if block >= end {
                return Stop::AtEnd;
            }
            let (target, run) = match self.target_of(candidate.volume, block) {
                Lookup::NeedPage(page) => return Stop::NeedPage(page, candidate.rest_at(block)),
                Lookup::Known(target, run) => (target, run.min(part).min(end - block)),
            };
            let Target::At(first) = target else {
                block += run;
                continue;
            };
            if candidate.volume != PVBN_SPACE && self.is_at_hand_throughout(first, run) {
                block += run;
                continue;
            }
            for offset in 0..run {
                let pvbn = first.plus(offset);
                if self.is_expected_at_hand(pvbn, candidate, block + offset) {
                    continue;
                }
                if self.fetches.block_count() + absent.count >= room {
                    return Stop::NoRoom(candidate.rest_at(block + offset));
                }
                if absent.add_to_latest(pvbn, block + offset) {
                    continue;
                }
                let Some(descriptor) = self.descriptor_of(pvbn) else {
                    return Stop::NeedDescriptor(pvbn, candidate.rest_at(block + offset));
                };
                absent.add(descriptor, pvbn, block + offset);
            }
            block += run;
        }
    }

    /// One past the last block that may be prefetched.
    fn end_of(&self, volume: VolumeId) -> u64 {
        match volume {
            PVBN_SPACE => self.next_pvbn.0,
            volume => self.size_of(volume).unwrap_or(0),
        }
    }

    /// What an address of the prefetcher's stands for.
    pub(crate) fn target_of(&mut self, volume: VolumeId, block: u64) -> Lookup {
        match volume {
            PVBN_SPACE => Lookup::Known(Target::At(Pvbn(block)), u64::MAX - block),
            volume => self.lookup(volume, block),
        }
    }

    /// A run whose ends are at hand is taken to be at hand: looking at each block of cached data that is read
    /// sequentially would cost more than the rare hole in it. (Not so among PVBNs, where a run is no file.)
    fn is_at_hand_throughout(&self, first: Pvbn, run: u64) -> bool {
        !self.slots.uses_expectations() && self.is_at_hand(first) && self.is_at_hand(first.plus(run - 1))
    }

    /// Resident, or on its way.
    pub(crate) fn is_at_hand(&self, pvbn: Pvbn) -> bool {
        self.slots.find(pvbn).is_some() || self.fetches.contains(pvbn)
    }

    /// The same; and the replacement policy is told that a resident block belongs to a group.
    fn is_expected_at_hand(&mut self, pvbn: Pvbn, candidate: Candidate, block: u64) -> bool {
        let Some(slot) = self.slots.find(pvbn) else {
            return self.fetches.contains(pvbn);
        };
        let by_pvbn = self.prefetch_state.addressing == Addressing::Pvbn;
        let is_known_there = (candidate.volume == PVBN_SPACE) == by_pvbn;
        if candidate.class == Class::Sequential && is_known_there && self.slots.uses_expectations() {
            let address = address(candidate.volume, block);
            self.slots.expect(slot, address, Expectation::InGroup);
        }
        true
    }

    /// Fetches absent blocks if they are worth it.
    fn offer(&mut self, candidate: Candidate, absent: Absent) {
        if absent.count == 0 {
            return;
        }
        let mut absent = absent.objects;
        let (mut blocks, mut requests) = (0, 0);
        for (_, indices) in absent.values_mut() {
            indices.sort_unstable();
            indices.dedup_by_key(|(index, _)| *index);
            blocks += indices.len() as u64;
            requests += ranges(indices).count() as u64;
        }
        let offer = Offer {
            class: candidate.class,
            likelihood: candidate.likelihood,
            blocks,
            requests_permille: requests * 1000,
        };
        if !self.prefetch_state.admission.admits(&offer) {
            self.prefetch_state.counters.suggestions_refused += 1;
            self.prefetch_state.counters.blocks_refused += blocks;
            return self.feed_back(
                candidate.prefetch_tag(candidate.first),
                candidate.count,
                PrefetchOutcome::Dropped,
            );
        }
        self.prefetch_state.admission.on_fetched(&offer);
        self.prefetch_state.counters.suggestions_admitted += 1;
        self.prefetch_state.counters.prefetched += blocks;
        for (descriptor, indices) in absent.into_values() {
            let purposes = indices.into_iter();
            let blocks = purposes.map(|(index, block)| (index, Purpose::Prefetch(candidate.prefetch_tag(block))));
            self.queue_fetch(&descriptor, &blocks.collect::<Vec<_>>(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tombolo_base::{BlockEncoding, Fingerprint};

    /// Most of 300 PVBNs lie in objects, 64 in each.
    fn objects() -> Vec<Arc<ObjectDescriptor>> {
        let stored: Vec<u64> = (0..300).filter(|pvbn| pvbn % 7 != 0 && pvbn % 11 > 1).collect();
        let object = |pvbns: &[u64]| {
            let block = |pvbn: &u64| (Pvbn(*pvbn), Fingerprint([0; 32]), 4096, BlockEncoding::Plain);
            Arc::new(ObjectDescriptor::unnamed(pvbns.iter().map(block)))
        };
        stored.chunks(64).map(object).collect()
    }

    proptest! {
        /// Reference model: every block is looked for in every object.
        #[test]
        fn absent_blocks_are_found_where_they_lie(
            runs in prop::collection::vec((0u64..300, 1u64..40), 1..12),
        ) {
            let objects = objects();
            let (mut absent, mut expected) = (Absent::default(), BTreeMap::<u64, Vec<(u16, u64)>>::new());
            let mut count = 0;
            for (address, pvbn) in runs.iter().flat_map(|(first, count)| *first..first + count).map(Pvbn).enumerate() {
                let address = address as u64;
                let holder = objects.iter().find(|object| object.find(pvbn).is_some());
                if !absent.add_to_latest(pvbn, address) && let Some(object) = holder {
                    absent.add(object.clone(), pvbn, address);
                }
                if let Some(object) = holder {
                    let index = object.blocks().iter().position(|block| block.pvbn == pvbn).unwrap();
                    expected.entry(object.first_pvbn().0).or_default().push((index as u16, address));
                    count += 1;
                }
            }
            prop_assert_eq!(absent.count, count);
            let found: BTreeMap<u64, Vec<(u16, u64)>> =
                absent.objects.into_iter().map(|(object, (_, blocks))| (object, blocks)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
