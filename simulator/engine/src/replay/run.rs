//! A job from beginning to end: what the trace needs to be there, the requests as they come, the account.

use super::PROGRESS_REQUESTS;
use super::devices::Store;
use super::error::{Error, Progress};
use super::job::{Arrivals, Clients, FetchUnit, Job, SequentialBy};
use super::latency::{Stream, unit};
use super::layout::{Scan, scan};
use super::ledger::dollars;
use super::metadata::{Beginning, Metadata};
use super::policies;
use super::report::{CloudTraffic, PolicyState, Prefetched, Reads, Report, Writes};
use super::requests::{Kind, Request, Requests};
use super::world::World;
use std::collections::VecDeque;
use std::time::Instant as WallInstant;
use tombolo_base::{Instant, OBJECT_BLOCKS_MAX};
use tombolo_core::recovery::{NewDisk, Parts, recover};
use tombolo_core::{ClientId, Config, Core, Event, PolicyCounters, Totals};

/// Requests between two looks at whether another replacement policy does better, where that is wanted.
const ADAPT_REQUESTS: u64 = 1024;
/// Blocks of a request to the gateway, at the most; a larger one of the trace comes in parts.
const REQUEST_BLOCKS_MAX: u64 = 1024;
/// A time beyond this is a slip of the pen.
const THINK_TIME_US_MAX: u64 = 3_600_000_000;
/// The journal's bytes between checkpoints: they take no virtual time and change nothing, so that seldom is best.
const CHECKPOINT_JOURNAL_BYTES: u64 = 64 << 20;
const CHECKPOINT_INTERVAL_MS: u64 = 365 * 24 * 3_600_000;
/// A client waits for room as long as it takes.
const STALL_TIMEOUT_MS: u64 = 10 * 365 * 24 * 3_600_000;
/// The whole map of any trace fits; descriptors are made anew at little cost.
const MAP_CACHE_BYTES: usize = 16 << 30;
const DESCRIPTOR_CACHE_BYTES: usize = 256 << 20;

/// Runs a job. With a store, the latencies that it tells take the place of the cloud's tables.
#[expect(
    clippy::disallowed_methods,
    reason = "how long it took is reported; nothing is decided by it"
)]
pub fn run<'a>(job: &'a Job, store: Option<&'a mut (dyn Store + 'a)>, progress: Progress<'_>) -> Result<Report, Error> {
    validate(job)?;
    let began = WallInstant::now();
    let blocks_max = request_blocks_max(job);
    let mut requests = Requests::open(&job.trace, blocks_max)?;
    let (layout, scan) = scan(&mut requests, job, progress)?;
    if job.arrivals == Arrivals::Trace && scan.requests > 1 && scan.last_us == 0 {
        let reason = "the trace has no times".into();
        let field = "arrivals";
        return Err(Error::Job { field, reason });
    }
    let preloaded_blocks = layout.blocks();
    let core = core_of(job, layout.next_pvbn(), &scan)?;
    let world = World::new(job, core, Metadata::new(layout), store)?;
    let replay = Replay {
        job,
        total: scan.requests,
        world,
        issued: 0,
        base: Baseline::default(),
        counts: Counts::default(),
        poisson_us: 0.0,
        rests: VecDeque::new(),
        answered: 0,
    };
    let requests = Requests::open(&job.trace, blocks_max)?;
    let mut report = replay.run(requests, progress)?;
    report.cloud.preloaded_blocks = preloaded_blocks;
    report.wall_seconds = began.elapsed().as_secs_f64();
    report.requests_per_second = scan.requests as f64 / report.wall_seconds.max(1e-9);
    Ok(report)
}

fn validate(job: &Job) -> Result<(), Error> {
    let check = |field, ok: bool, reason: &str| match ok {
        true => Ok(()),
        false => Err(Error::Job {
            field,
            reason: reason.into(),
        }),
    };
    let packs = 1..=OBJECT_BLOCKS_MAX as u32;
    check(
        "cache_blocks",
        (8..1 << 31).contains(&job.cache_blocks),
        "8 to 2^31 blocks",
    )?;
    check("pack_blocks", packs.contains(&job.pack_blocks), "1 to 1024 blocks")?;
    check("outstanding_max", job.outstanding_max > 0, "one request at least")?;
    check(
        "think_time_us",
        job.think_time_us <= THINK_TIME_US_MAX,
        "an hour at most",
    )?;
    check("time_scale", (0.0..=1e6).contains(&job.time_scale), "0 to a million")?;
    let dirty = job.dirty_blocks_max.unwrap_or(1);
    check(
        "dirty_blocks_max",
        dirty > 0 && dirty <= job.cache_blocks,
        "one block to the cache's",
    )?;
    if let Arrivals::PoissonPerS(rate) = job.arrivals {
        check(
            "arrivals",
            (1e-6..=1e9).contains(&rate),
            "a rate of 1e-6 to 1e9 a second",
        )?;
    }
    check("prices", job.prices.faults().is_empty(), "0 to a billion each")
}

/// A request pins its slots, and the cache must be able to hold some.
fn request_blocks_max(job: &Job) -> u64 {
    let dirty = dirty_blocks_max(job);
    let bound = (job.cache_blocks / 4).min(dirty / 2).max(1);
    u64::from(bound).min(REQUEST_BLOCKS_MAX)
}

fn dirty_blocks_max(job: &Job) -> u32 {
    job.dirty_blocks_max.unwrap_or(job.cache_blocks / 2)
}

fn core_of(job: &Job, next_pvbn: u64, scan: &Scan) -> Result<Core, Error> {
    let lanes = job.cloud.parallel_requests as usize;
    let config = Config {
        slot_count: job.cache_blocks,
        dirty_blocks_max: dirty_blocks_max(job),
        flush_delay_ms: job.flush_delay_ms,
        stall_timeout_ms: STALL_TIMEOUT_MS,
        checkpoint_interval_ms: CHECKPOINT_INTERVAL_MS,
        checkpoint_journal_bytes: CHECKPOINT_JOURNAL_BYTES,
        map_cache_bytes: MAP_CACHE_BYTES,
        descriptor_cache_bytes: DESCRIPTOR_CACHE_BYTES,
        uploads_max: lanes,
        object_blocks_max: job.pack_blocks as usize,
        fetches_max: lanes,
        sequential_floor: job.sequential_floor,
        compares_policies: job.replacement == policies::ADAPTIVE,
        fetch_unit: match job.fetch_unit {
            FetchUnit::Range => tombolo_core::FetchUnit::Range,
            FetchUnit::Object => tombolo_core::FetchUnit::Object,
        },
        sequential_by: match job.sequential_by {
            SequentialBy::Prefetcher => tombolo_core::SequentialBy::Prefetcher,
            SequentialBy::Replacement => tombolo_core::SequentialBy::Replacement,
        },
        ..Config::default()
    };
    let parts = Parts {
        config,
        wall_micros: 0,
        policies: policies::build(job, scan.future.clone())?,
        published: None,
    };
    let beginning = Beginning {
        slot_count: job.cache_blocks,
        next_pvbn,
    };
    match recover(Instant(0), parts, &beginning, &NewDisk) {
        Ok((core, _)) => Ok(core),
        Err(error) => unreachable!("an empty state is refused: {error}"),
    }
}

struct Replay<'a> {
    job: &'a Job,
    total: u64,
    world: World<'a>,
    issued: u64,
    base: Baseline,
    counts: Counts,
    poisson_us: f64,
    /// Until when those rest whose requests were answered, in closed loop; who has asked again is out.
    rests: VecDeque<u64>,
    /// Answers that `rests` has taken in.
    answered: u64,
}

/// Where the account begins: what the warm-up has done.
#[derive(Default)]
struct Baseline {
    policies: PolicyCounters,
    totals: Totals,
    traffic: CloudTraffic,
}

/// Requests that belong into the report.
#[derive(Default)]
struct Counts {
    requests: u64,
    split: u64,
    read_blocks: u64,
    discards: u64,
    flushes: u64,
    writes: u64,
}

impl Replay<'_> {
    fn run(mut self, mut requests: Requests, progress: Progress<'_>) -> Result<Report, Error> {
        while let Some(request) = requests.next()? {
            self.wait_for_turn(&request)?;
            if self.issued == self.job.warmup_requests {
                self.begin_account();
            }
            self.ask(&request)?;
            if self.issued.is_multiple_of(ADAPT_REQUESTS) {
                self.adapt();
            }
            if self.issued.is_multiple_of(PROGRESS_REQUESTS) {
                progress(self.issued, self.total)?;
            }
        }
        if self.issued < self.job.warmup_requests {
            self.begin_account();
        }
        self.finish()?;
        progress(self.issued, self.total)?;
        Ok(self.report())
    }

    /// Follows the policy that clearly holds more, if policies are compared.
    fn adapt(&mut self) {
        let core = &mut self.world.core;
        if self.job.replacement == policies::ADAPTIVE {
            let present = core.policies();
            if let Some(better) = present.comparison.better(present.replacement)
                && core.check_replacement_settled().is_ok()
            {
                core.set_replacement(policies::replacement(better, self.job.cache_blocks));
            }
        }
    }

    /// Lets time pass until the request is due.
    fn wait_for_turn(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let due = match self.job.arrivals {
            Arrivals::ClosedLoop => return self.wait_for_rest(),
            Arrivals::Trace => (request.time_us as f64 * self.job.time_scale) as u64,
            Arrivals::PoissonPerS(rate) => {
                let drawn = unit(self.job.seed, Stream::Arrival, self.issued, 0);
                self.poisson_us -= (1.0 - drawn).ln() / rate * 1e6;
                self.poisson_us as u64
            }
        };
        while let Some(at) = self.world.next_at().filter(|at| *at <= due) {
            self.world.advance(at)?;
        }
        self.world.now = self.world.now.max(due);
        Ok(())
    }

    /// Until one of as many as may ask at a time has been answered and has thought about it.
    fn wait_for_rest(&mut self) -> Result<(), Error> {
        if self.issued < u64::from(self.job.outstanding_max) {
            return Ok(());
        }
        loop {
            let answered = self.issued - self.world.under_way() as u64;
            while self.answered < answered {
                self.answered += 1;
                self.rests.push_back(self.world.now + self.job.think_time_us);
            }
            let until = self.rests.front().copied();
            match (until, self.world.next_at()) {
                (Some(until), _) if until <= self.world.now => {
                    self.rests.pop_front();
                    return Ok(());
                }
                (Some(until), Some(at)) if at <= until => self.world.advance(at)?,
                (Some(until), _) => self.world.now = until,
                (None, _) => self.step()?,
            }
        }
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.world.next_at() {
            Some(at) => self.world.advance(at),
            None => unreachable!("requests wait, and nothing will ever happen"),
        }
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let client = match self.job.clients {
            Clients::Trace => ClientId(request.client),
            Clients::One => ClientId::default(),
        };
        let is_counted = self.issued >= self.job.warmup_requests;
        self.issued += 1;
        if is_counted {
            let counts = &mut self.counts;
            counts.requests += 1;
            counts.split += u64::from(request.is_rest);
            match request.kind {
                Kind::Read => counts.read_blocks += request.span.count,
                Kind::Write => counts.writes += 1,
                Kind::Discard => counts.discards += 1,
                Kind::Flush => counts.flushes += 1,
            }
        }
        self.world.ask(request, client, is_counted)
    }

    /// Everything is answered, everything that was written is in the cloud, and what was fetched ahead has come: the
    /// account of prefetched blocks would not add up without.
    fn finish(&mut self) -> Result<(), Error> {
        self.world.tell(Event::Drain)?;
        while self.world.under_way() > 0 || !self.world.core.is_drained() || self.world.is_fetching() {
            self.step()?;
        }
        self.world.stored.add(self.world.now, 0);
        Ok(())
    }

    fn begin_account(&mut self) {
        let world = &mut self.world;
        self.base = Baseline {
            policies: world.core.policies().total(),
            totals: world.core.snapshot().totals,
            traffic: world.traffic,
        };
        world.read_latency.clear();
        world.write_latency.clear();
        world.stored.clear(world.now);
        world.accesses.clear();
    }

    fn report(&self) -> Report {
        let snapshot = self.world.core.snapshot();
        let counters = snapshot.policies.total();
        let (totals, base) = (&snapshot.totals, &self.base);
        let cloud = self.traffic();
        let statistics = snapshot.policies.prefetcher;
        Report {
            replacement: snapshot.policies.replacement.into(),
            prefetch: snapshot.policies.prefetch.into(),
            cache_blocks: self.job.cache_blocks,
            requests: self.counts.requests,
            requests_split: self.counts.split,
            reads: self.reads(&counters),
            writes: Writes {
                requests: self.counts.writes,
                blocks: totals.blocks_written - base.totals.blocks_written,
                blocks_zero: totals.blocks_zero - base.totals.blocks_zero,
                blocks_duplicate: totals.blocks_duplicate - base.totals.blocks_duplicate,
                blocks_unique: totals.blocks_unique - base.totals.blocks_unique,
                discards: self.counts.discards,
                flushes: self.counts.flushes,
            },
            prefetched: Prefetched {
                blocks_by_reads: self.world.accesses.report(),
                ..prefetched(&counters, &base.policies)
            },
            dollars: dollars(&self.job.prices, &cloud, &self.world.stored),
            cloud,
            read_latency: self.world.read_latency.report(),
            write_latency: self.world.write_latency.report(),
            series: self.world.series.report(),
            policy: PolicyState {
                streams: statistics.streams as u64,
                nodes: statistics.nodes as u64,
                edges: statistics.edges as u64,
                prefetch_bytes: statistics.bytes as u64,
                cache_bytes: snapshot.slot_memory_bytes,
            },
            virtual_seconds: self.world.now as f64 / 1e6,
            digest: format!("{:016x}", self.world.digest),
            ..Report::default()
        }
    }

    fn traffic(&self) -> CloudTraffic {
        let (now, base) = (&self.world.traffic, &self.base.traffic);
        CloudTraffic {
            gets: now.gets - base.gets,
            gets_demand: now.gets_demand - base.gets_demand,
            puts: now.puts - base.puts,
            bytes_down: now.bytes_down - base.bytes_down,
            bytes_up: now.bytes_up - base.bytes_up,
            blocks_down: now.blocks_down - base.blocks_down,
            stored_bytes: self.world.stored.bytes,
            preloaded_blocks: 0,
        }
    }

    fn reads(&self, counters: &PolicyCounters) -> Reads {
        let base = &self.base.policies;
        let (hits, partial_misses, complete_misses) = (
            counters.reads_hit - base.reads_hit,
            counters.reads_partial - base.reads_partial,
            counters.reads_missed - base.reads_missed,
        );
        let (block_hits, block_partial_misses, block_complete_misses) = (
            counters.hits - base.hits,
            counters.partial_misses - base.partial_misses,
            counters.complete_misses - base.complete_misses,
        );
        let requests = hits + partial_misses + complete_misses;
        let block_misses = block_partial_misses + block_complete_misses;
        Reads {
            requests,
            hits,
            partial_misses,
            complete_misses,
            miss_ratio: ratio(partial_misses + complete_misses, requests),
            blocks: self.counts.read_blocks,
            block_hits,
            block_partial_misses,
            block_complete_misses,
            block_holes: self.counts.read_blocks.saturating_sub(block_hits + block_misses),
            block_miss_ratio: ratio(block_misses, block_hits + block_misses),
        }
    }
}

fn prefetched(counters: &PolicyCounters, base: &PolicyCounters) -> Prefetched {
    let (blocks, used) = (counters.prefetched - base.prefetched, counters.used - base.used);
    let accesses = counters.accesses - base.accesses;
    Prefetched {
        blocks,
        used,
        wasted: counters.wasted - base.wasted,
        efficiency: ratio(used, blocks),
        dropped: counters.dropped - base.dropped,
        accesses,
        accesses_per_block: ratio(accesses, blocks),
        blocks_by_reads: Default::default(),
        refused: counters.blocks_refused - base.blocks_refused,
    }
}

/// Nothing of nothing is nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
