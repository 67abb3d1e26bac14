//! The world around the core: virtual time, commands carried out, requests under way.
//!
//! What takes time: GETs and PUTs by the cloud's latencies; reads and writes of slots, and syncs, by the disk's. What takes
//! none: hashing, the journal (it goes to the page cache), metadata (the paper's simulator leaves them out too). A block
//! that a fetch brought while the request waited is still in the page cache, so reading it takes no disk time; every other
//! run of slots is one operation of the disk.

use super::accesses::AccessCounts;
use super::contents;
use super::devices::{CloudLatency, DiskQueue, GetRequest, PutRequest, Store};
use super::error::Error;
use super::job::{FetchUnit, Job};
use super::latency::{Stream, mix};
use super::ledger::{LatencyCounts, SeriesCounts, Stored};
use super::metadata::Metadata;
use super::report::CloudTraffic;
use super::requests::{Kind, Request};
use hashbrown::HashMap;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use tombolo_base::{BLOCK_BYTES, BlockEncoding, BlockSum, FlushMode, Instant, Lcbn, ObjectDescriptor};
use tombolo_core::{
    Answer, ClientId, Command, Core, Event, FetchItem, HashItem, HashResult, JobId, ReadPiece, Refusal, Token,
    UploadItem, WriteRequest,
};

pub struct World<'a> {
    pub core: Core,
    pub now: u64,
    pub metadata: Metadata,
    disk: DiskQueue,
    cloud: CloudLatency,
    store: Option<&'a mut dyn Store>,
    dedup: bool,
    check: bool,
    fetch_unit: FetchUnit,
    commands: Vec<Command>,
    /// What happens at this instant.
    events: VecDeque<Event>,
    pending: BinaryHeap<Reverse<Pending>>,
    sequence: u64,
    requests: HashMap<Token, UnderWay>,
    next_token: u64,
    fresh_contents: u64,
    syncs: u64,
    /// The token that would have been given next when a fetch last filled each slot.
    filled: Vec<u64>,
    /// Slots that a fetch has filled and the core does not know of yet.
    arrived: Vec<Lcbn>,
    pub accesses: AccessCounts,
    pub traffic: CloudTraffic,
    pub stored: Stored,
    pub series: SeriesCounts,
    pub read_latency: LatencyCounts,
    pub write_latency: LatencyCounts,
    pub digest: u64,
}

/// A request that has not been answered.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    arrived: u64,
    kind: Kind,
    is_counted: bool,
    /// Its blocks were all at hand when it came.
    is_hit: bool,
}

/// What completes at a time.
struct Pending {
    at: u64,
    sequence: u64,
    what: Completion,
}

enum Completion {
    SlotsRead(Token),
    SlotsWritten(Token),
    Synced,
    Fetched(JobId, Arc<ObjectDescriptor>, Vec<FetchItem>),
    Uploaded(JobId, ObjectDescriptor),
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pending {}

/// Slots next to each other.
fn run(first: Lcbn, count: usize) -> impl Iterator<Item = Lcbn> {
    (first.0..).take(count).map(Lcbn)
}

impl<'a> World<'a> {
    pub fn new(job: &Job, core: Core, metadata: Metadata, store: Option<&'a mut dyn Store>) -> Result<Self, Error> {
        let mut stored = Stored::default();
        stored.add(0, metadata.layout().stored_bytes());
        Ok(Self {
            core,
            now: 0,
            metadata,
            disk: DiskQueue::new(&job.disk, job.seed)?,
            cloud: CloudLatency::new(&job.cloud, job.seed)?,
            store,
            dedup: job.dedup,
            check: job.check,
            fetch_unit: job.fetch_unit,
            commands: Vec::new(),
            events: VecDeque::new(),
            pending: BinaryHeap::new(),
            sequence: 0,
            requests: HashMap::new(),
            next_token: 0,
            fresh_contents: 0,
            syncs: 0,
            filled: vec![0; job.cache_blocks as usize],
            arrived: Vec::new(),
            accesses: AccessCounts::new(job.cache_blocks),
            traffic: CloudTraffic::default(),
            stored,
            series: SeriesCounts::new(),
            read_latency: LatencyCounts::new(),
            write_latency: LatencyCounts::new(),
            digest: 0,
        })
    }

    pub fn under_way(&self) -> usize {
        self.requests.len()
    }

    pub fn is_fetching(&self) -> bool {
        let what = |pending: &Reverse<Pending>| matches!(pending.0.what, Completion::Fetched(..));
        self.pending.iter().any(what)
    }

    /// When something happens next, if nobody asks for anything.
    pub fn next_at(&self) -> Option<u64> {
        let pending = self.pending.peek().map(|Reverse(pending)| pending.at);
        let deadline = self.core.next_deadline().map(|at| at.0.max(self.now));
        [pending, deadline].into_iter().flatten().min()
    }

    /// Lets happen what happens next; it MUST be known that something does.
    pub fn advance(&mut self, at: u64) -> Result<(), Error> {
        self.now = at;
        match self.pending.peek() {
            Some(Reverse(pending)) if pending.at <= at => {
                if let Some(Reverse(pending)) = self.pending.pop() {
                    let event = self.event_of(pending.what);
                    self.events.push_back(event);
                }
            }
            _ => self.events.push_back(Event::Tick),
        }
        self.settle()
    }

    /// A client asks, now. `is_counted`: the request belongs into the report.
    pub fn ask(&mut self, request: &Request<'_>, client: ClientId, is_counted: bool) -> Result<(), Error> {
        let token = Token(self.next_token);
        self.next_token += 1;
        let (kind, span) = (request.kind, request.span);
        let under_way = UnderWay {
            arrived: self.now,
            kind,
            is_counted,
            is_hit: false,
        };
        self.requests.insert(token, under_way);
        let event = match kind {
            Kind::Read => Event::Read { token, client, span },
            Kind::Write => Event::Write {
                token,
                request: WriteRequest::new(span, self.sums(request)),
            },
            Kind::Discard => Event::Zero {
                token,
                span,
                force_unit_access: false,
            },
            Kind::Flush => Event::Flush {
                token,
                mode: FlushMode::Local,
            },
        };
        let gets = self.traffic.gets_demand;
        self.events.push_back(event);
        self.settle()?;
        let waits = self.requests.get_mut(&token).is_some_and(|under_way| !under_way.is_hit);
        let point = self.series.at(self.now);
        match kind {
            Kind::Read => {
                point.reads += 1;
                point.read_misses += u64::from(waits || self.traffic.gets_demand > gets);
            }
            Kind::Write => point.writes += 1,
            Kind::Discard | Kind::Flush => {}
        }
        Ok(())
    }

    pub fn tell(&mut self, event: Event) -> Result<(), Error> {
        self.events.push_back(event);
        self.settle()
    }

    /// Lets the core take in what has happened, and carries out what it asks for, until nothing more happens now.
    fn settle(&mut self) -> Result<(), Error> {
        while let Some(event) = self.events.pop_front() {
            let mut commands = std::mem::take(&mut self.commands);
            self.core.step(Instant(self.now), event, &mut commands);
            if self.check {
                self.core.check_invariants();
            }
            for slot in self.arrived.drain(..) {
                if self.core.was_prefetched(slot) {
                    self.accesses.enter(slot);
                }
            }
            for command in commands.drain(..) {
                self.carry_out(command)?;
            }
            self.commands = commands;
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command) -> Result<(), Error> {
        match command {
            Command::Answer { token, result } => self.answered(token, result)?,
            Command::WriteSlots { token, pieces } => {
                let mut done = self.now;
                for (index, piece) in pieces.iter().enumerate() {
                    run(piece.slots.first, piece.slots.count as usize).for_each(|slot| self.accesses.leave(slot));
                    done = done.max(self.disk.done_at(self.now, Stream::DiskWrite, token.0, index as u64));
                }
                self.complete(done, Completion::SlotsWritten(token));
            }
            Command::ReadSlots { token, pieces } => self.read_slots(token, &pieces),
            Command::WriteJournal(write) => self.events.push_back(Event::JournalWritten {
                lsn: write.lsn,
                end: write.end,
                result: Ok(()),
            }),
            Command::Sync { .. } => {
                self.syncs += 1;
                let done = self.disk.done_at(self.now, Stream::Sync, self.syncs, 0);
                self.complete(done, Completion::Synced);
            }
            Command::TrimJournal { .. } => {}
            Command::LoadPage {
                volume,
                page,
                generation,
            } => self.events.push_back(Event::PageLoaded {
                volume,
                page,
                generation,
                result: Ok(self.metadata.page(volume, page)),
            }),
            Command::LoadDescriptor { pvbn } => self.events.push_back(Event::DescriptorLoaded {
                pvbn,
                result: Ok(self.metadata.descriptor(pvbn)),
            }),
            Command::Fetch {
                fetch,
                descriptor,
                items,
                demand,
            } => self.fetch(fetch, descriptor, items, demand)?,
            Command::Hash { job, items } => {
                let results = items.iter().map(|item| self.hash(item)).collect();
                self.events.push_back(Event::Hashed { job, results });
            }
            Command::Upload { job, items } => self.upload(job, &items)?,
            Command::Merge { .. } => unreachable!("a trace's requests are of whole blocks"),
            Command::Publish { .. } => unreachable!("the bucket of a replay is told of no recovery points"),
            Command::Remember { descriptor } => {
                if self.dedup {
                    self.metadata.remember(&descriptor);
                }
            }
            Command::Verify { job, .. } => self.events.push_back(Event::Verified { job, result: Ok(()) }),
            Command::FindCopies { job, fingerprints } => {
                let copies = vec![None; fingerprints.len()];
                self.events.push_back(Event::CopiesFound { job, copies });
            }
            // The cloud of a replay loses nothing.
            Command::Forget { .. } | Command::TellLoss(_) => {}
            Command::Checkpoint { frozen, .. } => {
                self.metadata.apply(&frozen);
                self.events.push_back(Event::Checkpointed { result: Ok(()) });
            }
        }
        Ok(())
    }

    fn complete(&mut self, at: u64, what: Completion) {
        if at <= self.now {
            let event = self.event_of(what);
            return self.events.push_back(event);
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.pending.push(Reverse(Pending { at, sequence, what }));
    }

    fn event_of(&mut self, what: Completion) -> Event {
        match what {
            Completion::SlotsRead(token) => Event::SlotsRead {
                unreadable: Vec::new(),
                token,
                result: Ok(()),
                corrupt: Vec::new(),
            },
            Completion::SlotsWritten(token) => Event::SlotsWritten { token, result: Ok(()) },
            Completion::Synced => Event::Synced { result: Ok(()) },
            Completion::Fetched(fetch, descriptor, items) => {
                self.cloud.got();
                self.arrived.extend(items.iter().map(|item| item.slot));
                let block = |item: &FetchItem| {
                    self.filled[item.slot.0 as usize] = self.next_token;
                    Ok(contents::sum(&descriptor.blocks()[usize::from(item.index)].fingerprint))
                };
                let result = Ok(items.iter().map(block).collect());
                Event::Fetched { fetch, result }
            }
            Completion::Uploaded(job, descriptor) => {
                self.cloud.has_put();
                self.stored.add(self.now, descriptor.object_bytes() as u64);
                let result = Ok(descriptor);
                Event::Uploaded { job, result }
            }
        }
    }

    fn read_slots(&mut self, token: Token, pieces: &[ReadPiece]) {
        if let Some(under_way) = self.requests.get_mut(&token) {
            under_way.is_hit = under_way.arrived == self.now;
        }
        let mut done = self.now;
        for (index, piece) in pieces.iter().enumerate() {
            run(piece.slot, piece.sums.len()).for_each(|slot| self.accesses.read(slot));
            let slots = piece.slot.0 as usize..piece.slot.0 as usize + piece.sums.len();
            if self.filled[slots].iter().any(|filled| *filled <= token.0) {
                done = done.max(self.disk.done_at(self.now, Stream::DiskRead, token.0, index as u64));
            }
        }
        self.complete(done, Completion::SlotsRead(token));
    }

    fn fetch(
        &mut self,
        fetch: JobId,
        descriptor: Arc<ObjectDescriptor>,
        items: Vec<FetchItem>,
        demand: bool,
    ) -> Result<(), Error> {
        let block = |item: Option<&FetchItem>| item.map(|item| descriptor.blocks()[usize::from(item.index)]);
        let (Some(first), Some(last)) = (block(items.first()), block(items.last())) else {
            unreachable!("a fetch is for something");
        };
        let range = match self.fetch_unit {
            FetchUnit::Range => {
                u64::from(first.offset_bytes)..u64::from(last.offset_bytes) + u64::from(last.stored_bytes)
            }
            FetchUnit::Object => 0..descriptor.object_bytes() as u64,
        };
        let request = GetRequest {
            object: descriptor.first_pvbn().0,
            offset_bytes: range.start,
            bytes: range.end - range.start,
            demand,
        };
        let store = self.store.as_mut().map(|store| &mut **store as &mut dyn Store);
        let micros = self.cloud.get_micros(&request, store)?;
        items.iter().for_each(|item| self.accesses.leave(item.slot));
        self.traffic.gets += 1;
        self.traffic.gets_demand += u64::from(demand);
        self.traffic.bytes_down += request.bytes;
        self.traffic.blocks_down += items.len() as u64;
        let point = self.series.at(self.now);
        point.gets += 1;
        point.bytes_down += request.bytes;
        self.complete(self.now + micros, Completion::Fetched(fetch, descriptor, items));
        Ok(())
    }

    fn upload(&mut self, job: JobId, items: &[UploadItem]) -> Result<(), Error> {
        let stored = |item: &UploadItem| (item.pvbn, item.fingerprint, BLOCK_BYTES as u16, BlockEncoding::Plain);
        let descriptor = ObjectDescriptor::unnamed(items.iter().map(stored));
        let request = PutRequest {
            object: descriptor.first_pvbn().0,
            bytes: descriptor.object_bytes() as u64,
        };
        let store = self.store.as_mut().map(|store| &mut **store as &mut dyn Store);
        let micros = self.cloud.put_micros(&request, store)?;
        self.traffic.puts += 1;
        self.traffic.bytes_up += request.bytes;
        let point = self.series.at(self.now);
        point.puts += 1;
        point.bytes_up += request.bytes;
        self.complete(self.now + micros, Completion::Uploaded(job, descriptor));
        Ok(())
    }

    fn hash(&self, item: &HashItem) -> HashResult {
        HashResult::Done {
            fingerprint: contents::fingerprint(item.sum),
            existing: if self.dedup { self.metadata.find(item.sum) } else { None },
        }
    }

    fn sums(&mut self, request: &Request<'_>) -> Vec<Option<BlockSum>> {
        let fresh = self.fresh_contents;
        let count = request.span.count;
        self.fresh_contents += count;
        if request.contents.is_empty() {
            return (fresh..fresh + count)
                .map(|number| Some(contents::fresh(number)))
                .collect();
        }
        let sum = |(index, name): (usize, &u64)| match (*name, self.dedup) {
            (0, _) => None,
            (name, true) => Some(contents::named(name)),
            (_, false) => Some(contents::fresh(fresh + index as u64)),
        };
        request.contents.iter().enumerate().map(sum).collect()
    }

    fn answered(&mut self, token: Token, result: Result<Answer, Refusal>) -> Result<(), Error> {
        let Some(request) = self.requests.remove(&token) else {
            unreachable!("{token:?} is answered twice");
        };
        if let Err(refusal) = result {
            return Err(Error::Refused {
                number: token.0 + 1,
                reason: refusal.to_string(),
            });
        }
        self.digest = mix(self.digest ^ mix(token.0) ^ self.now);
        let micros = self.now - request.arrived;
        match request.kind {
            Kind::Read if request.is_counted => self.read_latency.count(micros),
            Kind::Write if request.is_counted => self.write_latency.count(micros),
            _ => {}
        }
        Ok(())
    }
}
