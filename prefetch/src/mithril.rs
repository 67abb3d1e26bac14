//! Mithril (Yang et al., SoCC'17): mining sporadic associations between reads of middling frequency.
//!
//! The requests are numbered. A read is recorded with the numbers of its occurrences; at `support_min` of them it moves to
//! the mining table, and beyond `support_max` it leaves it, being frequent enough for a cache. When the mining table
//! is full it is sorted by first occurrence, and two reads are associated when they have equally many occurrences, each
//! within `look_ahead` of its counterpart but for at most `errors_max`, and at least one pair of occurrences is
//! adjacent. The table starts anew then. A read that comes later fetches its partners, of which it keeps the newest two.
//!
//! Reads are known by their first block and fetched in the length last recorded. All tables are fixed. Sequential
//! reads are associated like any others; the paper too leaves them to another prefetcher.

use crate::{
    Access, Class, Likelihood, Pattern, Prefetcher, Statistics, Suggestion, Tag, suggest,
    table::{Address, Table},
};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

const SUPPORT_MAX: usize = 8;
const PARTNERS: usize = 2;

/// Mithril's settings; the names are the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MithrilConfig {
    /// Occurrences from which on a read is mined.
    pub support_min: usize,
    /// Occurrences beyond which it is not any more.
    pub support_max: usize,
    /// Requests within which two occurrences belong together.
    pub look_ahead: u32,
    /// Pairs of occurrences that may be further apart.
    pub errors_max: usize,
    /// Reads being recorded.
    pub recorded_max: usize,
    /// Reads being mined; mining takes time in proportion to it times the look-ahead.
    pub mined_max: usize,
    /// Reads whose partners are remembered.
    pub partners_max: usize,
}

impl Default for MithrilConfig {
    fn default() -> Self {
        Self {
            support_min: 2,
            support_max: SUPPORT_MAX,
            look_ahead: 20,
            errors_max: 1,
            recorded_max: 1 << 15,
            mined_max: 1 << 10,
            partners_max: 1 << 15,
        }
    }
}

/// The numbers of a read's occurrences, ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Occurrences {
    numbers: [u32; SUPPORT_MAX],
    len: u8,
    count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Partners {
    /// The newest first; a count of zero is none.
    of: [(Address, u32); PARTNERS],
}

/// Mithril (Yang and others, SoCC'17): mines which reads come together now and then.
#[derive(Debug)]
pub struct Mithril {
    config: MithrilConfig,
    /// Under a read: what was recorded, or its row in the mining table.
    recorded: Table<Recorded>,
    rows: Vec<(Address, Occurrences)>,
    partners: Table<Partners>,
    number: u32,
    /// Counts the fillings of the mining table, so that rows of earlier ones are not mistaken for present ones.
    filling: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    occurrences: Occurrences,
    row: Option<(u32, u32)>,
}

impl Occurrences {
    fn as_slice(&self) -> &[u32] {
        &self.numbers[..usize::from(self.len)]
    }

    /// False when there is no room.
    fn push(&mut self, number: u32, max: usize) -> bool {
        if usize::from(self.len) >= max.min(SUPPORT_MAX) {
            return false;
        }
        self.numbers[usize::from(self.len)] = number;
        self.len += 1;
        true
    }

    /// Whether two reads that occurred equally often did so together.
    fn associated(&self, other: &Self, look_ahead: u32, errors_max: usize) -> bool {
        let pairs = || {
            self.as_slice()
                .iter()
                .zip(other.as_slice())
                .map(|(a, b)| a.abs_diff(*b))
        };
        self.len == other.len
            && pairs().filter(|distance| *distance > look_ahead).count() <= errors_max
            && pairs().any(|distance| distance == 1)
    }
}

impl Mithril {
    /// Knows nothing yet.
    pub fn new(config: MithrilConfig) -> Self {
        let support_max = config.support_max.clamp(1, SUPPORT_MAX);
        let config = MithrilConfig {
            support_min: config.support_min.clamp(1, support_max),
            support_max,
            mined_max: config.mined_max.clamp(2, 1 << 20),
            ..config
        };
        Self {
            recorded: Table::new(config.recorded_max.clamp(1, 1 << 24)),
            rows: Vec::with_capacity(config.mined_max),
            partners: Table::new(config.partners_max.clamp(1, 1 << 24)),
            number: 0,
            filling: 0,
            config,
        }
    }

    fn record(&mut self, address: Address, count: u32) {
        self.number = self.number.wrapping_add(1);
        let config = self.config;
        let Some(recorded) = self.recorded.get(address) else {
            let mut occurrences = Occurrences {
                count,
                ..Occurrences::default()
            };
            occurrences.push(self.number, 1);
            self.recorded.insert(address, Recorded { occurrences, row: None });
            return;
        };
        match recorded.row {
            Some((filling, row)) if filling == self.filling => {
                let occurrences = &mut self.rows[row as usize].1;
                occurrences.count = count;
                if !occurrences.push(self.number, config.support_max) {
                    // Too frequent: an empty row is associated with nothing.
                    occurrences.len = 0;
                    recorded.row = Some((filling.wrapping_sub(1), u32::MAX));
                }
            }
            // It was frequent in this filling, or mined in an earlier one.
            Some((_, u32::MAX)) => {}
            Some(_) => {
                recorded.row = None;
                recorded.occurrences = Occurrences {
                    count,
                    ..Occurrences::default()
                };
                recorded.occurrences.push(self.number, 1);
            }
            None => {
                recorded.occurrences.count = count;
                recorded.occurrences.push(self.number, config.support_max);
            }
        }
        if recorded.row.is_none() && recorded.occurrences.as_slice().len() >= config.support_min {
            recorded.row = Some((self.filling, self.rows.len() as u32));
            self.rows.push((address, recorded.occurrences));
            if self.rows.len() == config.mined_max {
                self.mine();
            }
        }
    }

    fn mine(&mut self) {
        self.rows.retain(|(_, occurrences)| occurrences.len > 0);
        self.rows
            .sort_unstable_by_key(|(address, occurrences)| (occurrences.numbers[0], *address));
        for (at, (address, occurrences)) in self.rows.iter().enumerate() {
            let reach = occurrences.numbers[0].saturating_add(self.config.look_ahead);
            let later = self.rows[at + 1..]
                .iter()
                .take_while(|(_, other)| other.numbers[0] <= reach);
            for (partner, other) in later {
                if occurrences.associated(other, self.config.look_ahead, self.config.errors_max) {
                    associate(&mut self.partners, *address, *partner, other.count);
                }
            }
        }
        self.rows.clear();
        self.filling = self.filling.wrapping_add(1);
    }
}

fn associate(partners: &mut Table<Partners>, address: Address, partner: Address, count: u32) {
    if partners.get(address).is_none() {
        partners.insert(address, Partners::default());
    }
    let Some(known) = partners.get(address) else { return };
    let place = known
        .of
        .iter()
        .position(|(other, _)| *other == partner)
        .unwrap_or(PARTNERS - 1);
    known.of[..=place].rotate_right(1);
    known.of[0] = (partner, count);
}

impl Prefetcher for Mithril {
    fn name(&self) -> &'static str {
        "mithril"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let address = Address::new(access.volume, access.first);
        self.record(address, access.count.min(u64::from(u32::MAX)) as u32);
        if let Some(partners) = self.partners.get(address) {
            for (partner, count) in partners.of.iter().filter(|(_, count)| *count > 0) {
                let suggestion = Suggestion {
                    volume: VolumeId(partner.volume),
                    first: partner.block,
                    count: u64::from(*count),
                    gaps: None,
                    class: Class::History,
                    // What the rules of association leave open: one pair of the least number may be in error.
                    likelihood: Likelihood::ratio(1, 2),
                    trigger: None,
                    tag: Tag(0),
                };
                suggest(suggestions, suggestion);
            }
        }
        Pattern::Random
    }

    fn knows_streams(&self) -> bool {
        false
    }

    fn statistics(&self) -> Statistics {
        let rows = self.rows.capacity() * size_of::<(Address, Occurrences)>();
        Statistics {
            bytes: self.recorded.bytes() + self.partners.bytes() + rows,
            ..Statistics::default()
        }
    }

    fn check_invariants(&self) {
        assert!(self.rows.len() < self.config.mined_max);
        for (_, occurrences) in &self.rows {
            assert!(occurrences.as_slice().windows(2).all(|pair| pair[0] != pair[1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;

    fn policy(mined_max: usize) -> Mithril {
        Mithril::new(MithrilConfig {
            mined_max,
            recorded_max: 1 << 12,
            partners_max: 1 << 12,
            ..MithrilConfig::default()
        })
    }

    #[test]
    fn golden_pairs() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(4));
        // Two pairs, twice each and far apart: the fourth row fills the table.
        let mut suggested = Vec::new();
        let mut fresh = 1_000_000;
        for _ in 0..3 {
            for pair in [100u64, 300] {
                suggested.push((pair, cache.read(&mut policy, pair, 2)));
                suggested.push((pair + 50, cache.read(&mut policy, pair + 50, 3)));
                for _ in 0..30 {
                    fresh += 1000;
                    assert_eq!(cache.read(&mut policy, fresh, 1), []);
                }
            }
        }
        let given: Vec<_> = suggested[8..].to_vec();
        assert!(suggested[..8].iter().all(|(_, ranges)| ranges.is_empty()));
        assert_eq!(
            given,
            [
                (100, vec![(150, 3)]),
                (150, vec![]),
                (300, vec![(350, 3)]),
                (350, vec![])
            ]
        );
    }

    #[test]
    fn random_reads_have_no_partners() {
        assert_eq!(suggested_for_random_reads(&mut policy(64), 5_000), 0);
    }

    #[test]
    fn frequent_reads_are_not_mined() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(8));
        for turn in 0..400 {
            cache.read(&mut policy, 10, 1);
            cache.read(&mut policy, 20, 1);
            cache.read(&mut policy, 1000 + turn, 1);
        }
        assert_eq!(cache.prefetched, 0);
    }

    proptest! {
        /// The rule of association in the words of the paper.
        #[test]
        fn association_is_as_specified(
            mut a in prop::collection::vec(0u32..100, 1..8),
            mut b in prop::collection::vec(0u32..100, 1..8),
            look_ahead in 1u32..30,
        ) {
            a.sort_unstable();
            b.sort_unstable();
            let of = |numbers: &[u32]| {
                let mut occurrences = Occurrences::default();
                numbers.iter().for_each(|number| assert!(occurrences.push(*number, SUPPORT_MAX)));
                occurrences
            };
            let mut expected = a.len() == b.len();
            if expected {
                let far = (0..a.len()).filter(|at| a[*at].abs_diff(b[*at]) > look_ahead).count();
                let adjacent = (0..a.len()).filter(|at| a[*at].abs_diff(b[*at]) == 1).count();
                expected = far <= 1 && adjacent >= 1;
            }
            prop_assert_eq!(of(&a).associated(&of(&b), look_ahead, 1), expected);
        }

        /// Mining finds exactly the pairs that comparing all with all finds, later ones first.
        #[test]
        fn mining_equals_comparing_all_pairs(reads in prop::collection::vec(0u64..30, 1..200)) {
            let mut policy = policy(1000);
            reads.iter().for_each(|place| policy.record(Address { volume: 1, block: *place }, 1));
            let rows = policy.rows.clone();
            policy.mine();
            for (address, occurrences) in &rows {
                let mut expected: Vec<(u32, Address)> = rows
                    .iter()
                    .filter(|(other, with)| {
                        (with.numbers[0], *other) > (occurrences.numbers[0], *address)
                            && with.len > 0
                            && occurrences.len > 0
                            && with.numbers[0] - occurrences.numbers[0] <= 20
                            && occurrences.associated(with, 20, 1)
                    })
                    .map(|(other, with)| (with.numbers[0], *other))
                    .collect();
                expected.sort_unstable();
                expected.reverse();
                expected.truncate(PARTNERS);
                let found = policy.partners.get(*address).copied().unwrap_or_default();
                let found: Vec<Address> = found.of.iter().filter(|p| p.1 > 0).map(|p| p.0).collect();
                prop_assert_eq!(found, expected.into_iter().map(|(_, other)| other).collect::<Vec<_>>());
            }
        }

        #[test]
        fn survives_anything(seed: u64) {
            withstands_anything(&mut policy(16), seed);
        }
    }
}
