//! A core with one object in the cloud, between a replacement policy and a prefetcher that write down what they are told.

use crate::config::Config;
use crate::core_state::Core;
use crate::event::{Command, Event, FetchItem, JobId, Token};
use crate::format::local_metadata::{MetadataRead, Table};
use crate::format::superblock::Superblock;
use crate::recovery::{NewDisk, Parts, recover};
use crate::state::extent_map::{Extent, Target};
use crate::state::policy_counters::PolicyCounters;
use crate::state::prefetch_state::{Economy, Policies};
use alloc::sync::Arc;
use std::sync::Mutex;
use tombolo_base::{BlockEncoding, BlockSum, Fingerprint, Instant, Lcbn, ObjectDescriptor, Pvbn, Span, VolumeId};
use tombolo_cache::{Access as Use, Arrival, Capacity, Incoming, Lru, MissHint, Replacement, Residents};
use tombolo_prefetch::{
    Access, Class, ClientId, Feedback, Likelihood, Outcome, Pattern, PrefetchOutcome, Prefetcher, Statistics,
    Suggestion, Tag,
};

pub(crate) const VOLUME: VolumeId = VolumeId(1 << 63 | 9);
/// The object holds blocks `0..64` of the file, at these PVBNs.
pub(crate) const FIRST_PVBN: u64 = 1000;
pub(crate) const SLOTS: u32 = 64;

/// What the first start writes.
struct Nothing(u32);

impl MetadataRead for Nothing {
    type Error = &'static str;

    fn get(&self, table: Table, _: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok((table == Table::Super).then(|| Superblock::first(1, self.0).encode()))
    }

    fn ceiling(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Self::Error> {
        Ok(None)
    }

    fn floor(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Self::Error> {
        Ok(None)
    }
}

pub(crate) type Log<T> = Arc<Mutex<Vec<T>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Told {
    Miss(Use),
    Insert(Arrival),
    Touch(Use),
}

struct Recorder(Lru, Log<Told>);

impl Replacement for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn miss(&mut self, access: &Use) -> MissHint {
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
    prefetch_outcomes: Log<Feedback>,
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

    fn uses_second_chances(&self) -> bool {
        true
    }

    fn on_feedback(&mut self, _: Instant, feedback: Feedback) {
        self.prefetch_outcomes.lock().unwrap().push(feedback);
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

pub(crate) struct Bench {
    pub core: Core,
    pub out: Vec<Command>,
    pub now: u64,
    token: u64,
    pub told: Log<Told>,
    next: Log<Suggestion>,
    accesses: Log<Access>,
    prefetch_outcomes: Log<Feedback>,
}

impl Bench {
    pub(crate) fn new(economy: Economy) -> Self {
        let config = Config {
            slot_count: SLOTS,
            dirty_blocks_max: 8,
            ..Config::default()
        };
        Self::with(config, economy)
    }

    pub(crate) fn with(config: Config, economy: Economy) -> Self {
        let (told, next, accesses, prefetch_outcomes) =
            (Log::default(), Log::default(), Log::default(), Log::default());
        let foreteller = Foreteller {
            next: next.clone(),
            accesses: accesses.clone(),
            prefetch_outcomes: prefetch_outcomes.clone(),
        };
        let lru = Lru::new(Capacity::of_blocks(config.slot_count));
        let mut policies = Policies::new(Box::new(Recorder(lru, told.clone())), Box::new(foreteller));
        policies.economy = economy;
        let metadata = Nothing(config.slot_count);
        let parts = Parts {
            config,
            wall_micros: 0,
            policies,
        };
        let (mut core, _) = recover(Instant(0), parts, &metadata, &NewDisk).unwrap();
        let blocks = (0..64).map(|index| {
            let fingerprint = Fingerprint([index as u8; 32]);
            (Pvbn(FIRST_PVBN + index), fingerprint, 4096, BlockEncoding::Plain)
        });
        let object = Arc::new(ObjectDescriptor::unnamed(blocks));
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
            prefetch_outcomes,
        }
    }

    pub(crate) fn step(&mut self, event: Event) {
        self.now += 1_000;
        self.core.step(Instant(self.now), event, &mut self.out);
        self.core.check_invariants();
    }

    /// Reads; the fetches that follow are left to be answered.
    pub(crate) fn read(&mut self, first: u64, count: u64) -> Vec<(JobId, Vec<FetchItem>, bool)> {
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

    pub(crate) fn fetches(&mut self) -> Vec<(JobId, Vec<FetchItem>, bool)> {
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
                        unreadable: Vec::new(),
                    });
                }
                _ => {}
            }
        }
        fetches
    }

    pub(crate) fn arrive(&mut self, (fetch, items, _): (JobId, Vec<FetchItem>, bool)) {
        let result = Ok(items.iter().map(|item| Ok(BlockSum(item.index.into()))).collect());
        self.step(Event::Fetched { fetch, result });
        assert!(self.fetches().is_empty());
    }

    pub(crate) fn suggest(&mut self, first: u64, count: u64) {
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

    pub(crate) fn prefetch_outcomes(&self) -> Vec<(u64, u64, PrefetchOutcome)> {
        let prefetch_outcomes = std::mem::take(&mut *self.prefetch_outcomes.lock().unwrap());
        assert!(
            prefetch_outcomes
                .iter()
                .all(|prefetch_outcome| (prefetch_outcome.volume, prefetch_outcome.tag) == (VOLUME, Tag(3)))
        );
        prefetch_outcomes
            .iter()
            .map(|prefetch_outcome| {
                (
                    prefetch_outcome.first,
                    prefetch_outcome.count,
                    prefetch_outcome.prefetch_outcome,
                )
            })
            .collect()
    }

    pub(crate) fn last_access(&self) -> (Outcome, u64) {
        let accesses = self.accesses.lock().unwrap();
        let last = accesses.last().unwrap();
        assert_eq!((last.client, last.volume), (ClientId(7), VOLUME));
        (last.outcome, last.prefetched)
    }

    pub(crate) fn counters(&self) -> PolicyCounters {
        self.core.policies().total()
    }

    /// Takes every slot there is, so that everything is evicted.
    pub(crate) fn evict_all(&mut self) {
        while self.core.slots.take(1, None).is_some() {}
        self.step(Event::Tick);
    }
}

/// Time that this thread has spent on a processor: the pause, where nobody else wants the processor.
#[expect(clippy::disallowed_methods, reason = "a test measures what its own thread has cost")]
pub(crate) fn cpu_nanoseconds() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells of its threads");
    let first = schedstat.split(' ').next().expect("three numbers");
    first.parse().expect("nanoseconds")
}
