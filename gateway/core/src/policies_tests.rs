//! A core with one object in the cloud, between a replacement policy and a prefetcher that write down what they are told.

use super::*;
use crate::checkpoint::{MetadataRead, Table};
use crate::event::{Command, Event, Span, StoreFailure, Token};
use crate::extent_map::{Extent, Target};
use crate::recovery::{LocalDisk, Parts, recover};
use crate::slots::SlotState;
use crate::{Config, FetchItem, JobId};
use alloc::sync::Arc;
use std::sync::Mutex;
use tombolo_base::{BlockEncoding, BlockSum, Fingerprint, Lcbn, ObjectDescriptor};
use tombolo_cache::{Access as Use, Arrival, Capacity, Cause, Incoming, Lru, Recall, Residents};
use tombolo_prefetch::{Access, ClientId, Likelihood, Outcome, Pattern, Suggestion, Tag};

const VOLUME: VolumeId = VolumeId(1 << 63 | 9);
/// The object holds blocks `0..64` of the file, at these PVBNs.
const FIRST_PVBN: u64 = 1000;
const SLOTS: u32 = 64;

struct Nothing;

impl MetadataRead for Nothing {
    type Error = &'static str;

    fn get(&self, _: Table, _: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(None)
    }

    fn ceiling(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Self::Error> {
        Ok(None)
    }

    fn floor(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Self::Error> {
        Ok(None)
    }
}

impl LocalDisk for Nothing {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok(Vec::new())
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        Err(format!("there is no segment {segment}"))
    }

    fn cache_is_new(&self) -> bool {
        true
    }

    fn sum_slot(&self, _: Lcbn) -> Result<BlockSum, String> {
        Ok(BlockSum(0))
    }
}

type Log<T> = Arc<Mutex<Vec<T>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Miss(Use),
    Insert(Arrival),
    Touch(Use),
}

struct Recorder(Lru, Log<Told>);

impl Replacement for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn miss(&mut self, access: &Use) -> Recall {
        self.1.lock().unwrap().push(Told::Miss(*access));
        self.0.miss(access)
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        self.1.lock().unwrap().push(Told::Insert(*arrival));
        self.0.insert(slot, arrival);
    }

    fn touch(&mut self, slot: Lcbn, access: &Use) {
        self.1.lock().unwrap().push(Told::Touch(*access));
        self.0.touch(slot, access);
    }

    fn remove(&mut self, slot: Lcbn) {
        self.0.remove(slot);
    }

    fn victim(&mut self, incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        self.0.victim(incoming, residents)
    }

    fn resize(&mut self, capacity: Capacity) {
        self.0.resize(capacity);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn metadata_bytes(&self) -> usize {
        self.0.metadata_bytes()
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

/// Suggests what is put before it, once.
struct Foreteller {
    next: Log<Suggestion>,
    accesses: Log<Access>,
    fates: Log<Feedback>,
}

impl Prefetcher for Foreteller {
    fn name(&self) -> &'static str {
        "foreteller"
    }

    fn on_read(&mut self, _: Instant, access: Access, suggestions: &mut Vec<Suggestion>) -> Pattern {
        self.accesses.lock().unwrap().push(access);
        suggestions.append(&mut self.next.lock().unwrap());
        Pattern::Sequential
    }

    fn wants_second_chances(&self) -> bool {
        true
    }

    fn on_feedback(&mut self, _: Instant, feedback: Feedback) {
        self.fates.lock().unwrap().push(feedback);
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

struct Bench {
    core: Core,
    out: Vec<Command>,
    now: u64,
    token: u64,
    told: Log<Told>,
    next: Log<Suggestion>,
    accesses: Log<Access>,
    fates: Log<Feedback>,
}

impl Bench {
    fn new(economy: Economy) -> Self {
        let (told, next, accesses, fates) = (Log::default(), Log::default(), Log::default(), Log::default());
        let foreteller = Foreteller {
            next: next.clone(),
            accesses: accesses.clone(),
            fates: fates.clone(),
        };
        let config = Config {
            slot_count: SLOTS,
            dirty_blocks_max: 8,
            ..Config::default()
        };
        let lru = Lru::new(Capacity::of_blocks(SLOTS));
        let mut policies = Policies::new(Box::new(Recorder(lru, told.clone())), Box::new(foreteller));
        policies.economy = economy;
        let parts = Parts {
            config,
            policies,
            fresh_identity: 1,
        };
        let (mut core, _) = recover(Instant(0), parts, &Nothing, &Nothing).unwrap();
        let blocks = (0..64).map(|index| {
            let fingerprint = Fingerprint([index as u8; 32]);
            (Pvbn(FIRST_PVBN + index), fingerprint, 4096, BlockEncoding::Plain)
        });
        let object = Arc::new(ObjectDescriptor::new(blocks));
        core.overlay.objects.insert(FIRST_PVBN, object);
        core.overlay.map.insert(Extent {
            volume: VOLUME,
            first: 0,
            count: 64,
            target: Target::At(Pvbn(FIRST_PVBN)),
        });
        Self {
            core,
            out: Vec::new(),
            now: 0,
            token: 0,
            told,
            next,
            accesses,
            fates,
        }
    }

    fn step(&mut self, event: Event) {
        self.now += 1_000;
        self.core.step(Instant(self.now), event, &mut self.out);
        self.core.check_invariants();
    }

    /// Reads; the fetches that follow are left to be answered.
    fn read(&mut self, first: u64, count: u64) -> Vec<(JobId, Vec<FetchItem>, bool)> {
        self.token += 1;
        let span = Span {
            volume: VOLUME,
            first,
            count,
        };
        self.step(Event::Read {
            token: Token(self.token),
            client: ClientId(7),
            span,
        });
        self.fetches()
    }

    fn fetches(&mut self) -> Vec<(JobId, Vec<FetchItem>, bool)> {
        let mut fetches = Vec::new();
        for command in std::mem::take(&mut self.out) {
            match command {
                Command::Fetch {
                    fetch, items, demand, ..
                } => fetches.push((fetch, items, demand)),
                Command::ReadSlots { token, .. } => {
                    let corrupt = Vec::new();
                    self.step(Event::SlotsRead {
                        token,
                        result: Ok(()),
                        corrupt,
                    });
                }
                _ => {}
            }
        }
        fetches
    }

    fn arrive(&mut self, (fetch, items, _): (JobId, Vec<FetchItem>, bool)) {
        let result = Ok(items.iter().map(|item| Ok(BlockSum(item.index.into()))).collect());
        self.step(Event::Fetched { fetch, result });
        assert!(self.fetches().is_empty());
    }

    fn suggest(&mut self, first: u64, count: u64) {
        self.next.lock().unwrap().push(Suggestion {
            volume: VOLUME,
            first,
            count,
            class: Class::Sequential,
            likelihood: Likelihood::ONE,
            trigger: None,
            tag: Tag(3),
        });
    }

    fn fates(&self) -> Vec<(u64, u64, Fate)> {
        let fates = std::mem::take(&mut *self.fates.lock().unwrap());
        assert!(fates.iter().all(|fate| (fate.volume, fate.tag) == (VOLUME, Tag(3))));
        fates.iter().map(|fate| (fate.first, fate.count, fate.fate)).collect()
    }

    fn last_access(&self) -> (Outcome, u64) {
        let accesses = self.accesses.lock().unwrap();
        let last = accesses.last().unwrap();
        assert_eq!((last.client, last.volume), (ClientId(7), VOLUME));
        (last.outcome, last.prefetched)
    }

    fn counters(&self) -> PolicyCounters {
        self.core.policies().total()
    }

    /// Takes every slot there is, so that everything is evicted.
    fn evict_all(&mut self) {
        while self.core.slots.take(1, None).is_some() {}
        self.step(Event::Tick);
    }
}

#[test]
fn a_miss_is_told_once_and_its_address_goes_along() {
    let mut bench = Bench::new(Economy::default());
    let mut fetches = bench.read(5, 1);
    assert_eq!(bench.last_access(), (Outcome::Miss, 0));
    assert!(bench.read(5, 1).is_empty(), "the second reader joins");
    assert_eq!(bench.last_access(), (Outcome::Partial, 0));
    bench.arrive(fetches.pop().unwrap());
    bench.read(5, 1);
    assert_eq!(bench.last_access(), (Outcome::Hit, 0));
    let access = Use {
        block: Pvbn(FIRST_PVBN + 5),
        address: address(VOLUME, 5),
        sequential: Some(true),
    };
    let told = bench.told.lock().unwrap();
    let [Told::Miss(missed), Told::Insert(arrival), Told::Touch(touched)] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((missed, arrival.access, touched), (access, access, access));
    assert_eq!((arrival.cause, arrival.object), (Cause::Demand, FIRST_PVBN));
    assert_eq!(arrival.latency_us, 2_000);
}

#[test]
fn prefetched_blocks_are_marked_until_their_first_read() {
    let mut bench = Bench::new(Economy::default());
    bench.suggest(1, 4);
    let mut fetches = bench.read(0, 1);
    let ahead = fetches.pop().unwrap();
    assert!(!ahead.2 && fetches[0].2, "demand goes first");
    bench.arrive(ahead);
    assert_eq!(bench.fates(), [(1, 4, Fate::Arrived { waited: false })]);
    bench.read(1, 2);
    assert_eq!(bench.last_access(), (Outcome::Hit, 2));
    bench.read(1, 2);
    assert_eq!(bench.last_access(), (Outcome::Hit, 0));
    let counters = bench.counters();
    assert_eq!((counters.prefetched, counters.used, counters.accesses), (4, 2, 4));
    bench.evict_all();
    // Spared once, then evicted; AMP calls that old.
    let expected = [(3, 2, Fate::Aged), (3, 2, Fate::Evicted { aged: true })];
    assert_eq!(bench.fates(), expected);
    assert_eq!(bench.counters().wasted, 2);
}

#[test]
fn a_reader_that_joins_a_prefetch_is_its_first_use() {
    let mut bench = Bench::new(Economy::default());
    bench.suggest(1, 2);
    let ahead = bench.read(0, 1).pop().unwrap();
    bench.read(1, 1);
    assert_eq!(bench.last_access(), (Outcome::Partial, 1));
    bench.arrive(ahead);
    assert_eq!(bench.fates(), [(1, 2, Fate::Arrived { waited: true })]);
    let counters = bench.counters();
    assert_eq!((counters.used, counters.accesses), (1, 1));
    bench.read(1, 2);
    assert_eq!(bench.last_access(), (Outcome::Hit, 1));
}

#[test]
fn what_does_not_come_is_told_too() {
    let mut bench = Bench::new(Economy::default());
    bench.suggest(1, 2);
    let (fetch, ..) = bench.read(0, 1).pop().unwrap();
    let failure = StoreFailure {
        retryable: true,
        reason: "away".into(),
    };
    bench.step(Event::Fetched {
        fetch,
        result: Err(failure),
    });
    assert_eq!(bench.fates(), [(1, 2, Fate::Dropped)]);
    assert_eq!(bench.counters().dropped, 2);
}

#[test]
fn what_is_not_worth_its_price_is_not_fetched() {
    let mut bench = Bench::new(Economy {
        prices: Prices::from_microdollars(400, 90_000),
        microdollars_per_second: Some(0),
    });
    bench.suggest(1, 4);
    let fetches = bench.read(0, 1);
    assert!(fetches.len() == 1 && fetches[0].2);
    assert_eq!(bench.fates(), [(1, 4, Fate::Dropped)]);
    let counters = bench.counters();
    assert_eq!((counters.suggestions_refused, counters.blocks_refused), (1, 4));
    assert_eq!(counters.prefetched, 0);
}

#[test]
fn a_change_of_policy_keeps_blocks_and_drops_marks() {
    let mut bench = Bench::new(Economy::default());
    bench.suggest(1, 4);
    let ahead = bench.read(0, 1).pop().unwrap();
    bench.arrive(ahead);
    assert_eq!(bench.core.policies().unread_blocks, 4);
    let clean = bench.core.slots.clean_count();
    bench
        .core
        .set_replacement(Box::new(Lru::new(Capacity::of_blocks(SLOTS))));
    assert_eq!(bench.core.slots.clean_count(), clean);
    let policies = bench.core.policies();
    assert_eq!(policies.unread_blocks, 0);
    let names: Vec<_> = policies.tallies.iter().map(|tally| tally.replacement).collect();
    assert_eq!(names, ["recorder", "lru"]);
    let slot = bench.core.slots.find(Pvbn(FIRST_PVBN + 1)).unwrap();
    assert_eq!(bench.core.slots.state(slot), SlotState::Clean);
    bench.read(1, 1);
    assert_eq!(bench.last_access(), (Outcome::Hit, 0));
}
