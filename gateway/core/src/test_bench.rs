//! A core with one object in the cloud, between a replacement policy and a prefetcher that write down what they are told.

use crate::config::Config;
use crate::core_state::Core;
use crate::event::{Answer, Command, Event, HashResult, Refusal, StoreFailure, Token, WriteRequest};
use crate::format::local_metadata::{Entry, MetadataRead, MetadataTransaction, Table, load_descriptor, load_map_page};
use crate::format::record::{Batch, SEGMENT_HEADER_BYTES};
use crate::format::superblock::Superblock;
use crate::merge::Merge;
use crate::recovery::{NewDisk, Parts, recover};
use crate::state::extent_map::{Extent, Target};
use crate::state::journal::JournalWrite;
use crate::state::policy_counters::PolicyCounters;
use crate::state::prefetch_state::Policies;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::convert::Infallible;
use std::sync::Mutex;
use tombolo_base::{BlockEncoding, BlockSum, Fingerprint, Instant, Lcbn, ObjectDescriptor, Pvbn, Span, VolumeId};
use tombolo_cache::{Access as Use, Arrival, Capacity, Incoming, Lru, MissHint, Replacement, Residents};
use tombolo_prefetch::{
    Access, Class, ClientId, Feedback, Gaps, Likelihood, Outcome, Pattern, PrefetchOutcome, Prefetcher, Statistics,
    Suggestion, Tag,
};

pub(crate) const VOLUME: VolumeId = VolumeId(1 << 63 | 9);
/// The object holds blocks `0..64` of the file, at these PVBNs.
pub(crate) const FIRST_PVBN: u64 = 1000;
pub(crate) const SLOTS: u32 = 64;

/// Local metadata in memory.
pub(crate) type Tables = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// A transaction that counts the keys it changes.
pub(crate) struct Transaction<'t> {
    pub tables: &'t mut Tables,
    pub changed: usize,
}

impl MetadataRead for Transaction<'_> {
    type Error = Infallible;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.tables.get(&(table, key.to_vec())).cloned())
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Infallible> {
        let found = self.tables.range((table, key.to_vec())..).next();
        let found = found.filter(|((of, _), _)| *of == table);
        Ok(found.map(|((_, key), value)| (key.clone(), value.clone())))
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Infallible> {
        let found = self.tables.range(..=(table, key.to_vec())).next_back();
        let found = found.filter(|((of, _), _)| *of == table);
        Ok(found.map(|((_, key), value)| (key.clone(), value.clone())))
    }
}

impl MetadataTransaction for Transaction<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.changed += 1;
        self.tables.insert((table, key.to_vec()), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Infallible> {
        self.changed += 1;
        self.tables.remove(&(table, key.to_vec()));
        Ok(())
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

pub(crate) type Which = fn(&Command) -> bool;
pub(crate) type Fails = Box<dyn Fn(&Command, &mut Event)>;

/// A core, and a world around it that carries out each of its commands at once, but those that a test holds back. Time
/// passes with each step.
pub(crate) struct Bench {
    pub core: Core,
    pub now: u64,
    /// What is held back: it is not carried out before the test says so.
    pub holds: Which,
    /// What goes wrong: it changes what the core is told about a command.
    pub fails: Fails,
    /// What is held back now, the oldest first.
    pub held: Vec<Command>,
    /// All that the core has asked for.
    pub commands: Vec<Command>,
    pub answers: Vec<(Token, Result<Answer, Refusal>)>,
    /// What the core has not been told yet.
    pub events: VecDeque<Event>,
    pub told: Log<Told>,
    out: Vec<Command>,
    /// The cache is so large that the invariants, which go through all of it, are not checked at each step.
    is_large: bool,
    token: u64,
    tables: Tables,
    /// The fingerprint index.
    pub index: BTreeMap<Fingerprint, Pvbn>,
    next: Log<Suggestion>,
    accesses: Log<Access>,
    prefetch_outcomes: Log<Feedback>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Config {
            slot_count: SLOTS,
            dirty_blocks_max: 8,
            ..Config::default()
        })
    }

    pub(crate) fn large(config: Config) -> Self {
        Self {
            is_large: true,
            ..Self::with(config)
        }
    }

    pub(crate) fn with(config: Config) -> Self {
        let (told, next, accesses, prefetch_outcomes) =
            (Log::default(), Log::default(), Log::default(), Log::default());
        let foreteller = Foreteller {
            next: next.clone(),
            accesses: accesses.clone(),
            prefetch_outcomes: prefetch_outcomes.clone(),
        };
        let lru = Lru::new(Capacity::of_blocks(config.slot_count));
        let policies = Policies::new(Box::new(Recorder(lru, told.clone())), Box::new(foreteller));
        let superblock = Superblock::first(1, config.slot_count).encode();
        let mut tables = Tables::from([((Table::Super, Vec::new()), superblock)]);
        let metadata = Transaction {
            tables: &mut tables,
            changed: 0,
        };
        let parts = Parts {
            config,
            wall_micros: 0,
            policies,
            published: None,
        };
        let (mut core, _) = recover(Instant(0), parts, &metadata, &NewDisk).unwrap();
        let blocks = (0..64).map(|index| (Pvbn(FIRST_PVBN + index), fingerprint_of(BlockSum(index))));
        let object = Arc::new(descriptor_of(blocks));
        core.overlay.objects.insert(FIRST_PVBN, object.clone());
        core.overlay.map.insert(Extent {
            volume: VOLUME,
            first: 0,
            count: 64,
            target: Target::At(Pvbn(FIRST_PVBN)),
        });
        let mut bench = Self {
            core,
            now: 0,
            holds: |_| false,
            fails: Box::new(|_, _| ()),
            held: Vec::new(),
            commands: Vec::new(),
            answers: Vec::new(),
            events: VecDeque::new(),
            told,
            out: Vec::new(),
            is_large: false,
            token: 0,
            tables,
            index: BTreeMap::new(),
            next,
            accesses,
            prefetch_outcomes,
        };
        bench.remember(&object);
        bench
    }

    pub(crate) fn holding(self, holds: Which) -> Self {
        Self { holds, ..self }
    }

    /// Tells the core, and carries out what it asks for, until there is nothing left to be done.
    pub(crate) fn step(&mut self, event: Event) {
        self.events.push_back(event);
        let mut steps = 0;
        while let Some(event) = self.events.pop_front() {
            self.tell(event);
            self.carry_out();
            steps += 1;
            assert!(steps < 1 << 20, "it goes on without an end");
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.now += if self.is_large { 10 } else { 1_000 };
        self.core.step(Instant(self.now), event, &mut self.out);
        if !self.is_large {
            self.core.check_invariants();
        }
    }

    pub(crate) fn carry_out(&mut self) {
        for command in std::mem::take(&mut self.out) {
            if (self.holds)(&command) {
                self.held.push(command.clone());
            } else {
                let mut event = self.event_of(&command);
                event.iter_mut().for_each(|event| (self.fails)(&command, event));
                self.events.extend(event);
            }
            self.commands.push(command);
        }
    }

    /// What a world that is in order tells when it has carried out the command. Blocks with equal sums are equal.
    fn event_of(&mut self, command: &Command) -> Option<Event> {
        Some(match command.clone() {
            Command::Answer { token, result } => {
                self.answers.push((token, result));
                return None;
            }
            Command::Remember { descriptor } => {
                self.remember(&descriptor);
                return None;
            }
            Command::Forget { blocks } => {
                let index = &mut self.index;
                index.retain(|fingerprint, pvbn| !blocks.contains(&(*fingerprint, *pvbn)));
                return None;
            }
            Command::TrimJournal { .. } | Command::TellLoss(_) => return None,
            Command::WriteSlots { token, .. } => Event::SlotsWritten { token, result: Ok(()) },
            Command::ReadSlots { token, .. } => Event::SlotsRead {
                token,
                result: Ok(()),
                corrupt: Vec::new(),
                unreadable: Vec::new(),
            },
            Command::Merge { token } => {
                let written = self.core.partial_writes.writes[&token].write.written();
                let count = written.iter().map(|span| span.count as usize).sum();
                let sums = vec![Some(BlockSum(1)); count];
                Event::Merged { token, sums }
            }
            Command::WriteJournal(JournalWrite { lsn, end, .. }) => {
                let result = Ok(());
                Event::JournalWritten { lsn, end, result }
            }
            Command::Sync { .. } => Event::Synced { result: Ok(()) },
            Command::Checkpoint { frozen, pages_max } => {
                let mut merge = Merge::new(frozen, pages_max);
                while !merge.step(&mut self.transaction()).unwrap() {}
                Event::Checkpointed { result: Ok(()) }
            }
            Command::LoadPage {
                volume,
                page,
                generation,
            } => Event::PageLoaded {
                volume,
                page,
                generation,
                result: Ok(load_map_page(&self.transaction(), volume, page).unwrap()),
            },
            Command::LoadDescriptor { pvbn } => {
                let descriptor = load_descriptor(&self.transaction(), pvbn).unwrap();
                let result = Ok(descriptor.map(Arc::new));
                Event::DescriptorLoaded { pvbn, result }
            }
            Command::Fetch { fetch, items, .. } => {
                let result = Ok(items.iter().map(|item| Ok(BlockSum(item.index.into()))).collect());
                Event::Fetched { fetch, result }
            }
            Command::Hash { job, items } => {
                let results = items.iter().map(|item| {
                    let fingerprint = fingerprint_of(item.sum);
                    let existing = self.index.get(&fingerprint).copied();
                    HashResult::Done { fingerprint, existing }
                });
                let results = results.collect();
                Event::Hashed { job, results }
            }
            Command::Upload { job, items } => {
                let result = Ok(descriptor_of(items.iter().map(|item| (item.pvbn, item.fingerprint))));
                Event::Uploaded { job, result }
            }
            Command::Publish { .. } => Event::Published { result: Ok(()) },
            Command::Verify { job, .. } => Event::Verified { job, result: Ok(()) },
            Command::FindCopies { job, fingerprints } => {
                let copies = fingerprints
                    .iter()
                    .map(|fingerprint| self.index.get(fingerprint).copied());
                let copies = copies.collect();
                Event::CopiesFound { job, copies }
            }
        })
    }

    fn transaction(&mut self) -> Transaction<'_> {
        Transaction {
            tables: &mut self.tables,
            changed: 0,
        }
    }

    fn remember(&mut self, descriptor: &ObjectDescriptor) {
        let blocks = descriptor.blocks().iter();
        self.index.extend(blocks.map(|block| (block.fingerprint, block.pvbn)));
    }

    /// How many such commands there were.
    pub(crate) fn count(&self, which: Which) -> usize {
        self.commands.iter().filter(|command| which(command)).count()
    }

    /// How many such commands are held back.
    pub(crate) fn count_held(&self, which: Which) -> usize {
        self.held.iter().filter(|command| which(command)).count()
    }

    /// The oldest such command that is held back; the test tells what has become of it.
    pub(crate) fn take_held(&mut self, which: Which) -> Command {
        let index = self.held.iter().position(which).expect("such a command is held back");
        self.held.remove(index)
    }

    /// The oldest such command that is held back is carried out.
    pub(crate) fn finish_held(&mut self, which: Which) {
        let command = self.take_held(which);
        self.finish(&command);
    }

    pub(crate) fn finish(&mut self, command: &Command) {
        let event = self.event_of(command).expect("the core waits for it");
        self.step(event);
    }

    pub(crate) fn fail_fetch(&mut self, fetch: &Command, retryable: bool) {
        let Command::Fetch { fetch, .. } = *fetch else {
            panic!("{fetch:?}")
        };
        let reason = "away".into();
        let result = Err(StoreFailure { retryable, reason });
        self.step(Event::Fetched { fetch, result });
    }

    /// Time passes, with a tick whenever one is due, and one at the end.
    pub(crate) fn pass_millis(&mut self, millis: u64) {
        let end = self.now + millis * 1_000;
        while let Some(at) = self.core.next_deadline().filter(|at| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.step(Event::Tick);
        }
        self.now = self.now.max(end);
        self.step(Event::Tick);
    }

    /// By their tokens, and whether all went well.
    pub(crate) fn take_answers(&mut self) -> Vec<(u64, bool)> {
        let answers = std::mem::take(&mut self.answers);
        answers
            .iter()
            .map(|(token, result)| (token.0, result.is_ok()))
            .collect()
    }

    pub(crate) fn journal_writes(&self) -> impl DoubleEndedIterator<Item = &JournalWrite> {
        self.commands.iter().filter_map(|command| match command {
            Command::WriteJournal(write) => Some(write),
            _ => None,
        })
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.journal_writes().map(batch_of).collect()
    }

    pub(crate) fn next_token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    /// Blocks of one content.
    pub(crate) fn write(&mut self, token: u64, span: Span, sum: u64) {
        let request = WriteRequest::new(span, vec![Some(BlockSum(sum)); span.count as usize]);
        self.step(Event::Write {
            token: Token(token),
            request,
        });
    }

    pub(crate) fn zero(&mut self, token: u64, span: Span) {
        self.step(Event::Zero {
            token: Token(token),
            span,
            force_unit_access: false,
        });
    }

    /// Gives back the fetches that are held back then.
    pub(crate) fn read(&mut self, first: u64, count: u64) -> Vec<Command> {
        let token = self.next_token();
        self.step(Event::Read {
            token,
            client: ClientId(7),
            span: span(first, count),
        });
        self.take_fetches()
    }

    pub(crate) fn take_fetches(&mut self) -> Vec<Command> {
        self.held.extract_if(.., |command| is_fetch(command)).collect()
    }

    /// Nothing more is fetched because of it.
    pub(crate) fn arrive(&mut self, fetch: &Command) {
        self.finish(fetch);
        assert!(self.take_fetches().is_empty());
    }

    pub(crate) fn suggest(&mut self, first: u64, count: u64) {
        self.suggest_with_gaps(first, count, None);
    }

    pub(crate) fn suggest_with_gaps(&mut self, first: u64, count: u64, gaps: Option<Gaps>) {
        self.next.lock().unwrap().push(Suggestion {
            volume: VOLUME,
            first,
            count,
            gaps,
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

/// Blocks of the file.
pub(crate) fn span(first: u64, count: u64) -> Span {
    Span {
        volume: VOLUME,
        first,
        count,
    }
}

pub(crate) fn is_checkpoint(command: &Command) -> bool {
    matches!(command, Command::Checkpoint { .. })
}

pub(crate) fn is_fetch(command: &Command) -> bool {
    matches!(command, Command::Fetch { .. })
}

fn batch_of(write: &JournalWrite) -> Batch {
    let head = usize::from(write.offset == 0) * SEGMENT_HEADER_BYTES;
    let identity = u64::from_le_bytes(write.bytes[head + 24..head + 32].try_into().unwrap());
    Batch::decode(&write.bytes[head..], identity).unwrap().0
}

pub(crate) fn fingerprint_of(sum: BlockSum) -> Fingerprint {
    let mut digest = [sum.0 as u8; 32];
    if sum.0 >= 256 {
        digest[..8].copy_from_slice(&sum.0.to_le_bytes());
    }
    Fingerprint(digest)
}

fn descriptor_of(blocks: impl Iterator<Item = (Pvbn, Fingerprint)>) -> ObjectDescriptor {
    ObjectDescriptor::unnamed(blocks.map(|(pvbn, fingerprint)| (pvbn, fingerprint, 4096, BlockEncoding::Plain)))
}

/// Time that this thread has spent on a processor: the pause, where nobody else wants the processor.
#[expect(clippy::disallowed_methods, reason = "a test measures what its own thread has cost")]
pub(crate) fn cpu_nanoseconds() -> u64 {
    // The kernel brings its account up to date when a thread gives way, else every four milliseconds.
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells of its threads");
    let first = schedstat.split(' ').next().expect("three numbers");
    first.parse().expect("nanoseconds")
}
