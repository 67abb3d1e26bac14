//! The table of sequential streams: which read continues which.
//!
//! SARC asks whether the block before is resident; dense random sets then look sequential. A bounded table of the next
//! expected blocks does not (also AMP's live implementation in lstore). Streams that were continued at least once are
//! kept apart from those of a single read, so that a burst of random reads cannot push them out: a newcomer takes the
//! place of the longest unused single read as long as these fill more than half of the table.
//!
//! All memory is taken at the start. Streams hang in buckets by the 64-block region of their next block, so finding
//! one looks at three to five short chains.

use crate::{Access, Likelihood, Pattern, Statistics, table::Address};
use alloc::vec::Vec;
use tombolo_base::VolumeId;

const NONE: u32 = u32::MAX;
const REGION_SHIFT: u32 = 6;
/// Streams in a table at the most.
pub(crate) const STREAMS_MAX: usize = 1 << 20;
/// The widest tolerance: one region.
const SLACK_MAX: u64 = 1 << REGION_SHIFT;

/// A run of reads, each of which began where the one before ended (give or take the slack).
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream<S> {
    /// The number of the volume; `u64::MAX` once that is gone.
    pub volume: u64,
    /// The first block of the first read.
    pub start: u64,
    /// The block that would continue the stream.
    pub next: u64,
    /// Reads that have moved it on, the first included.
    pub requests: u32,
    /// What the policy keeps for it.
    pub state: S,
}

impl<S> Stream<S> {
    /// That the stream goes on, by Laplace's rule of succession: it did each time but for the one not yet known.
    pub fn likelihood(&self) -> Likelihood {
        Likelihood::ratio(u64::from(self.requests), u64::from(self.requests) + 1)
    }

    /// What its newest read is for a policy that takes a stream to be sequential from its read `threshold` on, counted
    /// from 1.
    pub fn pattern(&self, threshold: u32) -> Pattern {
        if self.requests >= threshold {
            Pattern::Sequential
        } else {
            Pattern::Random
        }
    }
}

/// How a read relates to the stream it was assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It continues none; a stream was started for it.
    New,
    /// The stream has moved on.
    Continued,
    /// It lies at or shortly before the end of the stream, which has not moved.
    Straggler,
}

/// Where a read belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The stream's place in the table.
    pub slot: u32,
    /// What the read is to the stream.
    pub relation: Relation,
}

#[derive(Clone, Copy, Debug, Default)]
struct Links {
    /// In whose chain the stream hangs.
    bucket: u32,
    chain: u32,
    older: u32,
    newer: u32,
}

/// An order by use: single reads, and streams proper.
#[derive(Clone, Copy, Debug)]
struct Order {
    newest: u32,
    oldest: u32,
    len: usize,
}

const EMPTY: Order = Order {
    newest: NONE,
    oldest: NONE,
    len: 0,
};

/// A bounded table of streams, with what the policy keeps for each.
#[derive(Debug)]
pub struct Streams<S> {
    streams: Vec<Stream<S>>,
    links: Vec<Links>,
    buckets: Vec<u32>,
    single: Order,
    proper: Order,
    capacity: usize,
    slack: u64,
}

impl<S: Copy + Default> Streams<S> {
    /// Follows up to `capacity` streams. A stream of at least two reads is also continued by a read that begins up to
    /// `slack` blocks after the expected one, and not ended by one that begins as much before: requests of one client
    /// overtake each other. Zero is the papers' exact continuation; the most is 64.
    pub fn new(capacity: usize, slack: u64) -> Self {
        let capacity = capacity.clamp(2, STREAMS_MAX);
        Self {
            streams: Vec::with_capacity(capacity),
            links: Vec::with_capacity(capacity),
            buckets: alloc::vec![NONE; capacity.next_power_of_two()],
            single: EMPTY,
            proper: EMPTY,
            capacity,
            slack: slack.min(SLACK_MAX),
        }
    }

    /// Streams in the table.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// No read has come yet.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Memory held, all of it from the start.
    pub fn bytes(&self) -> usize {
        self.capacity * (size_of::<Stream<S>>() + size_of::<Links>()) + self.buckets.len() * 4
    }

    /// The stream in a slot that [`Self::follow`] named; a later read may have put another one there.
    pub fn get(&self, slot: u32) -> Option<&Stream<S>> {
        self.streams.get(slot as usize)
    }

    /// As [`Self::get`].
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Stream<S>> {
        self.streams.get_mut(slot as usize)
    }

    /// In the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Stream<S>> {
        self.streams.iter()
    }

    /// Assigns a valid read to the stream it continues, or to a new one.
    pub fn follow(&mut self, access: &Access) -> Followed {
        let Some(slot) = self.find(access) else {
            return Followed {
                slot: self.start(access),
                relation: Relation::New,
            };
        };
        self.unlink(slot, self.is_proper(slot));
        let stream = &mut self.streams[slot as usize];
        let moved = access.end() > stream.next;
        // Reading the same again does not make a stream.
        stream.requests = stream.requests.saturating_add(u32::from(moved));
        let (old, new) = (stream.next, stream.next.max(access.end()));
        stream.next = new;
        if old >> REGION_SHIFT != new >> REGION_SHIFT {
            self.leave_bucket(slot);
            self.enter_bucket(slot);
        }
        self.link(slot);
        Followed {
            slot,
            relation: if moved {
                Relation::Continued
            } else {
                Relation::Straggler
            },
        }
    }

    /// For a policy that holds nothing else.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            streams: self.len(),
            bytes: self.bytes(),
            ..Statistics::default()
        }
    }

    /// Drops every stream of a volume that is gone.
    pub fn forget_volume(&mut self, volume: VolumeId) {
        for slot in 0..self.streams.len() as u32 {
            if self.streams[slot as usize].volume == volume.0 {
                // An address that no read has; the slot is reused in its turn.
                self.leave_bucket(slot);
                self.streams[slot as usize].volume = u64::MAX;
                self.streams[slot as usize].next = u64::MAX;
                self.enter_bucket(slot);
            }
        }
    }

    /// The nearest stream that the read continues or belongs to.
    fn find(&self, access: &Access) -> Option<u32> {
        let lowest = access.first.saturating_sub(self.slack);
        let highest = access.first + self.slack.max(access.count.min(SLACK_MAX));
        let mut best: Option<(u64, u32)> = None;
        for region in lowest >> REGION_SHIFT..=highest >> REGION_SHIFT {
            let mut slot = self.buckets[self.bucket(access.volume.0, region)];
            while slot != NONE {
                let stream = &self.streams[slot as usize];
                if stream.next >> REGION_SHIFT == region && self.continues(stream, access) {
                    let candidate = (stream.next.abs_diff(access.first), slot);
                    best = Some(best.map_or(candidate, |found| found.min(candidate)));
                }
                slot = self.links[slot as usize].chain;
            }
        }
        best.map(|(_, slot)| slot)
    }

    fn continues(&self, stream: &Stream<S>, access: &Access) -> bool {
        if stream.volume != access.volume.0 {
            return false;
        }
        let distance = stream.next.abs_diff(access.first);
        if stream.next >= access.first && stream.next <= access.end() && stream.start <= access.first {
            return distance <= SLACK_MAX.min(access.count);
        }
        stream.requests > 1 && distance <= self.slack && access.first >= stream.start
    }

    fn start(&mut self, access: &Access) -> u32 {
        let stream = Stream {
            volume: access.volume.0,
            start: access.first,
            next: access.end(),
            requests: 1,
            state: S::default(),
        };
        let slot = if self.streams.len() < self.capacity {
            self.streams.push(stream);
            self.links.push(Links::default());
            self.streams.len() as u32 - 1
        } else {
            // What is known of the old stream is not looked at: most often it has left the processor's cache.
            let is_proper = self.single.len <= self.capacity / 2 && self.proper.oldest != NONE;
            let slot = self.order(is_proper).oldest;
            self.unlink(slot, is_proper);
            self.leave_bucket(slot);
            self.streams[slot as usize] = stream;
            slot
        };
        self.enter_bucket(slot);
        self.link(slot);
        slot
    }

    fn bucket(&self, volume: u64, region: u64) -> usize {
        let hash = Address { volume, block: region }.hash();
        hash as usize & (self.buckets.len() - 1)
    }

    /// Where a stream belongs.
    fn bucket_of(&self, slot: u32) -> usize {
        let stream = &self.streams[slot as usize];
        self.bucket(stream.volume, stream.next >> REGION_SHIFT)
    }

    fn enter_bucket(&mut self, slot: u32) {
        let bucket = self.bucket_of(slot);
        let links = &mut self.links[slot as usize];
        links.bucket = bucket as u32;
        links.chain = self.buckets[bucket];
        self.buckets[bucket] = slot;
    }

    fn leave_bucket(&mut self, slot: u32) {
        let Links {
            bucket, chain: after, ..
        } = self.links[slot as usize];
        let mut at = self.buckets[bucket as usize];
        if at == slot {
            self.buckets[bucket as usize] = after;
            return;
        }
        while self.links[at as usize].chain != slot {
            at = self.links[at as usize].chain;
        }
        self.links[at as usize].chain = after;
    }

    fn is_proper(&self, slot: u32) -> bool {
        self.streams[slot as usize].requests > 1
    }

    fn order(&mut self, is_proper: bool) -> &mut Order {
        match is_proper {
            true => &mut self.proper,
            false => &mut self.single,
        }
    }

    fn link(&mut self, slot: u32) {
        let order = self.order(self.is_proper(slot));
        let second = order.newest;
        order.newest = slot;
        order.len += 1;
        if second == NONE {
            order.oldest = slot;
        } else {
            self.links[second as usize].newer = slot;
        }
        self.links[slot as usize].older = second;
        self.links[slot as usize].newer = NONE;
    }

    fn unlink(&mut self, slot: u32, is_proper: bool) {
        let Links { older, newer, .. } = self.links[slot as usize];
        let order = self.order(is_proper);
        order.len -= 1;
        if newer == NONE {
            order.newest = older;
        }
        if older == NONE {
            order.oldest = newer;
        }
        if newer != NONE {
            self.links[newer as usize].older = older;
        }
        if older != NONE {
            self.links[older as usize].newer = newer;
        }
    }

    /// Every stream hangs in exactly one chain, that of its next block, and in exactly one order.
    pub fn check_invariants(&self) {
        assert_eq!(self.single.len + self.proper.len, self.streams.len());
        assert!(self.streams.len() <= self.capacity);
        let mut seen = alloc::vec![0u8; self.streams.len()];
        for (bucket, head) in self.buckets.iter().enumerate() {
            let mut slot = *head;
            while slot != NONE {
                seen[slot as usize] += 1;
                assert_eq!(self.bucket_of(slot), bucket);
                assert_eq!(self.links[slot as usize].bucket as usize, bucket);
                slot = self.links[slot as usize].chain;
            }
        }
        assert!(seen.iter().all(|times| *times == 1));
        for (order, proper) in [(&self.single, false), (&self.proper, true)] {
            let (mut slot, mut len) = (order.oldest, 0);
            while slot != NONE {
                assert_eq!(self.is_proper(slot), proper);
                len += 1;
                slot = self.links[slot as usize].newer;
            }
            assert_eq!(len, order.len);
        }
    }
}

/// The methods of [`Prefetcher`](crate::Prefetcher) that are the same for every policy that holds its table of streams and
/// nothing else. Names the method that checks what the policy keeps for one stream, if it has one.
macro_rules! forwards_to_streams {
    ($($check:ident)?) => {
        fn forget_volume(&mut self, volume: tombolo_base::VolumeId) {
            self.streams.forget_volume(volume);
        }

        fn statistics(&self) -> $crate::Statistics {
            self.streams.statistics()
        }

        fn check_invariants(&self) {
            self.streams.check_invariants();
            $(self.streams.iter().for_each(|stream| self.$check(&stream.state));)?
        }
    };
}
pub(crate) use forwards_to_streams;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::read;
    use proptest::prelude::*;

    /// The slow and obvious table: a list, the newest last.
    struct Model {
        streams: Vec<(u64, u64, u64, u32)>,
        capacity: usize,
        slack: u64,
    }

    impl Model {
        fn follow(&mut self, access: &Access) -> (Relation, u64, u32) {
            let slack = self.slack;
            let matches = |&(volume, start, next, requests): &(u64, u64, u64, u32)| {
                let exact = access.first <= next && next <= access.end() && next - access.first <= 64;
                let near = requests > 1 && next.abs_diff(access.first) <= slack;
                volume == access.volume.0 && start <= access.first && (exact || near)
            };
            let nearest = self
                .streams
                .iter()
                .filter(|stream| matches(stream))
                .map(|s| s.2.abs_diff(access.first))
                .min();
            let found = self
                .streams
                .iter()
                .position(|s| matches(s) && Some(s.2.abs_diff(access.first)) == nearest);
            if let Some(index) = found {
                let (volume, start, next, requests) = self.streams.remove(index);
                let moved = access.end() > next;
                let requests = requests + u32::from(moved);
                self.streams.push((volume, start, next.max(access.end()), requests));
                let relation = if moved {
                    Relation::Continued
                } else {
                    Relation::Straggler
                };
                return (relation, next.max(access.end()), requests);
            }
            if self.streams.len() == self.capacity {
                let singles = self.streams.iter().filter(|s| s.3 == 1).count();
                let single = singles > self.capacity / 2 || singles == self.capacity;
                let victim = self.streams.iter().position(|s| (s.3 == 1) == single).unwrap();
                self.streams.remove(victim);
            }
            self.streams.push((access.volume.0, access.first, access.end(), 1));
            (Relation::New, access.end(), 1)
        }
    }

    proptest! {
        #[test]
        fn equals_the_list(
            capacity in 2usize..12,
            slack in 0u64..20,
            reads in prop::collection::vec((0u64..2, 0u64..600, 1u64..100, 0u8..3), 1..300),
        ) {
            let mut table: Streams<()> = Streams::new(capacity, slack);
            let mut model = Model { streams: Vec::new(), capacity, slack };
            let mut last = 0;
            for (volume, first, count, continuing) in reads {
                let first = if continuing > 0 { last } else { first };
                let access = Access { volume: VolumeId(volume), ..read(first, count) };
                last = access.end();
                // Ties between equally near streams are decided by slot, which the model does not know.
                let tied = model.streams.iter().filter(|s| s.0 == volume).map(|s| s.2.abs_diff(first));
                let mut distances: Vec<u64> = tied.filter(|d| *d <= 64).collect();
                distances.sort_unstable();
                if distances.windows(2).any(|pair| pair[0] == pair[1]) {
                    continue;
                }
                let followed = table.follow(&access);
                let stream = *table.get(followed.slot).unwrap();
                prop_assert_eq!((followed.relation, stream.next, stream.requests), model.follow(&access));
                table.check_invariants();
            }
        }
    }

    #[test]
    fn random_reads_do_not_push_out_a_stream() {
        let mut table: Streams<()> = Streams::new(16, 0);
        table.follow(&read(0, 8));
        table.follow(&read(8, 8));
        for block in 0..10_000 {
            table.follow(&read(1_000_000 + block * 100, 1));
        }
        assert_eq!(table.follow(&read(16, 8)).relation, Relation::Continued);
    }

    #[test]
    fn a_forgotten_volume_has_no_streams() {
        let mut table: Streams<()> = Streams::new(4, 0);
        table.follow(&read(0, 8));
        table.forget_volume(VolumeId(1));
        table.check_invariants();
        assert_eq!(table.follow(&read(8, 8)).relation, Relation::New);
        (0..20).for_each(|block| {
            table.follow(&read(block * 1000, 1));
        });
        table.check_invariants();
    }
}
