//! The probability graph (Griffioen and Appleton, USENIX Summer 1994), on reads in place of files: GRAPH's ancestor.
//!
//! A read credits each distinct one of the client's last `look_ahead` reads: "after that one, this one". When a read
//! comes, the partners that followed its past occurrences with more than the given probability (credits over
//! occurrences) are fetched, likeliest first.
//!
//! A read is known by its first block; a partner is fetched in the length it was last read in. Bounded by a fixed
//! table of reads with sixteen partners each, the least credited of which gives way.

use crate::{
    Access, Class, Likelihood, Pattern, Prefetcher, Statistics, Suggestion, Tag, suggest,
    table::{Address, Table},
};
use alloc::vec::Vec;
use tombolo_base::{Instant, VolumeId};

const PARTNERS: usize = 16;
const LOOK_AHEAD_MAX: usize = 32;

/// The probability graph's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbabilityConfig {
    /// Reads within which one follows another.
    pub look_ahead: usize,
    /// Least probability, in thousandths.
    pub threshold_permille: u32,
    /// Reads that are remembered; each takes about 430 bytes.
    pub reads_max: usize,
    /// Clients whose last reads are remembered.
    pub clients_max: usize,
}

impl Default for ProbabilityConfig {
    fn default() -> Self {
        Self {
            look_ahead: 20,
            threshold_permille: 50,
            reads_max: 1 << 16,
            clients_max: 256,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Partner {
    address: Address,
    count: u32,
    credits: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Read {
    occurrences: u32,
    partners: [Partner; PARTNERS],
}

/// The last reads of one client.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    reads: [Address; LOOK_AHEAD_MAX],
    head: usize,
    len: usize,
}

/// The probability graph (Griffioen and Appleton, USENIX Summer 1994).
#[derive(Debug)]
pub struct ProbabilityGraph {
    config: ProbabilityConfig,
    reads: Table<Read>,
    clients: Table<Recent>,
}

impl ProbabilityGraph {
    /// Knows nothing yet.
    pub fn new(config: ProbabilityConfig) -> Self {
        Self {
            reads: Table::new(config.reads_max.clamp(1, 1 << 26)),
            clients: Table::new(config.clients_max.clamp(1, 1 << 16)),
            config: ProbabilityConfig {
                look_ahead: config.look_ahead.clamp(1, LOOK_AHEAD_MAX),
                ..config
            },
        }
    }
}

impl Read {
    fn credit(&mut self, address: Address, count: u32) {
        let place = match self
            .partners
            .iter()
            .position(|partner| partner.credits > 0 && partner.address == address)
        {
            Some(place) => place,
            None => {
                let least = (0..PARTNERS)
                    .min_by_key(|place| self.partners[*place].credits)
                    .unwrap_or(0);
                self.partners[least] = Partner::default();
                least
            }
        };
        let partner = &mut self.partners[place];
        *partner = Partner {
            address,
            count,
            credits: partner.credits.saturating_add(1),
        };
    }
}

impl Recent {
    /// The distinct recent reads other than this one, and then this one joins them.
    fn push(&mut self, address: Address, look_ahead: usize) {
        self.reads[self.head] = address;
        self.head = (self.head + 1) % look_ahead;
        self.len = (self.len + 1).min(look_ahead);
    }
}

impl Prefetcher for ProbabilityGraph {
    fn name(&self) -> &'static str {
        "probability"
    }

    fn on_read(&mut self, _now: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        if !access.is_valid() {
            return Pattern::Random;
        }
        let address = Address::new(access.volume, access.first);
        let key = Address {
            volume: 0,
            block: u64::from(access.client.0),
        };
        if self.clients.get(key).is_none() {
            self.clients.insert(key, Recent::default());
        }
        let Some(recent) = self.clients.get(key) else {
            return Pattern::Random;
        };
        for place in 0..recent.len {
            let past = recent.reads[place];
            let repeated = recent.reads[..place].contains(&past);
            if past != address
                && !repeated
                && let Some(read) = self.reads.get(past)
            {
                read.credit(address, access.count.min(u64::from(u32::MAX)) as u32);
            }
        }
        recent.push(address, self.config.look_ahead);
        if self.reads.get(address).is_none() {
            self.reads.insert(address, Read::default());
        }
        let Some(read) = self.reads.get(address) else {
            return Pattern::Random;
        };
        read.occurrences = read.occurrences.saturating_add(1);
        suggest_partners(read, self.config.threshold_permille, suggestions);
        Pattern::Random
    }

    fn knows_streams(&self) -> bool {
        false
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            bytes: self.reads.bytes() + self.clients.bytes(),
            ..Statistics::default()
        }
    }
}

fn suggest_partners(read: &Read, threshold_permille: u32, suggestions: &mut Vec<Suggestion>) {
    let made = suggestions.len();
    for partner in read.partners.iter().filter(|partner| partner.credits > 0) {
        // Against the occurrences before this one: what follows it is not known yet.
        let before = u64::from(read.occurrences.saturating_sub(1)).max(1);
        let likelihood = Likelihood::ratio(u64::from(partner.credits), before);
        if likelihood > Likelihood::from_permille(threshold_permille) {
            let suggestion = Suggestion {
                volume: VolumeId(partner.address.volume),
                first: partner.address.block,
                count: u64::from(partner.count),
                gaps: None,
                class: Class::History,
                likelihood,
                trigger: None,
                tag: Tag(0),
            };
            suggest(suggestions, suggestion);
        }
    }
    suggestions[made..].sort_unstable_by_key(|s| (core::cmp::Reverse(s.likelihood), s.volume, s.first));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EndlessCache, read, suggested_for_random_reads, withstands_anything};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn policy(look_ahead: usize) -> ProbabilityGraph {
        ProbabilityGraph::new(ProbabilityConfig {
            look_ahead,
            ..ProbabilityConfig::default()
        })
    }

    #[test]
    fn golden_loop() {
        let (mut cache, mut policy) = (EndlessCache::new(), policy(2));
        let places = [10, 5000, 900, 70_000];
        for place in places {
            assert_eq!(cache.read(&mut policy, place, 3), []);
        }
        // From the second turn on, the next two reads are known.
        assert_eq!(cache.read(&mut policy, 10, 3), [(900, 3), (5000, 3)]);
        assert_eq!(cache.read(&mut policy, 5000, 3), [(900, 3), (70_000, 3)]);
    }

    #[test]
    fn random_reads_have_no_partners() {
        let mut policy = ProbabilityGraph::new(ProbabilityConfig {
            reads_max: 1 << 10,
            ..ProbabilityConfig::default()
        });
        assert_eq!(suggested_for_random_reads(&mut policy, 3_000), 0);
    }

    proptest! {
        /// The definition, by counting over the whole past.
        #[test]
        fn equals_the_definition(places in prop::collection::vec(0u64..12, 1..150), look_ahead in 1usize..6) {
            let mut policy = policy(look_ahead);
            let mut credits: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            for at in 0..places.len() {
                let mut out = Vec::new();
                policy.on_read(Instant(0), read(places[at] * 1000, 1), &mut out);
                let mut past: Vec<u64> = places[at.saturating_sub(look_ahead)..at].to_vec();
                past.sort_unstable();
                past.dedup();
                for place in past {
                    *credits.entry((place, places[at])).or_default() += u64::from(place != places[at]);
                }
                let before = places[..at].iter().filter(|place| **place == places[at]).count().max(1) as u64;
                let mut expected: Vec<(u64, u64)> = (0..12)
                    .filter_map(|to| Some((*credits.get(&(places[at], to))?, to * 1000)))
                    .filter(|(credit, _)| *credit * 1000 > 50 * before)
                    .collect();
                expected.sort_unstable_by_key(|(credit, first)| (core::cmp::Reverse((*credit).min(before)), *first));
                let expected: Vec<u64> = expected.into_iter().map(|(_, first)| first).collect();
                prop_assert_eq!(out.iter().map(|s| s.first).collect::<Vec<_>>(), expected);
            }
        }

        #[test]
        fn survives_anything(seed: u64) {
            let config = ProbabilityConfig { reads_max: 64, ..ProbabilityConfig::default() };
            withstands_anything(&mut ProbabilityGraph::new(config), seed);
        }
    }
}
