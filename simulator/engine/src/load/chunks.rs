//! A file system over a cloud, as Hou et al. emulate it (MSST'16, section V): files are cached in chunks under LRU, dirty chunks
//! are uploaded now and then, chunks ahead of a sequential reader are downloaded side by side. The store is the one that feels its
//! load, so that chunks compete for the link.
//!
//! One client asks for one thing at a time. A request that finds all of its chunks in the cache is a hit; reads and writes both
//! wait for chunks that are missing. Uploads are waited for by nobody.

use super::events::Events;
use super::job::StoreSpec;
use super::refusal::{Error, check};
use super::report::Latency;
use super::store::{Request, Store, StoreEvent, Ticket};
use crate::replay::Progress;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{BLOCK_BYTES, Instant, Pvbn, VolumeId};
use tombolo_cache::{Access as CacheAccess, Capacity, Grouping, KeyedCache, Policy};
use tombolo_prefetch::{Access, ClientId, Hou, HouConfig, Outcome, Prefetcher, Suggestion};

mod client;

pub use client::Files;
use client::{Client, Wanted};

/// One client, one cache, one store.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkJob {
    /// Where the files are.
    pub store: StoreSpec,
    /// What is asked for.
    pub files: Files,
    /// The unit of caching and of transfer, in whole blocks.
    pub chunk_bytes: u64,
    /// For chunks.
    pub cache_bytes: u64,
    /// Chunks that are fetched ahead at the most; zero: none.
    #[serde(default)]
    pub prefetch_chunks_max: u64,
    /// How often dirty chunks are uploaded.
    pub write_back_s: f64,
    /// A request without a transfer.
    #[serde(default)]
    pub local_ms: f64,
    /// Decides everything.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkReport {
    /// Of reads.
    pub reads: Accesses,
    /// Of writes.
    pub writes: Accesses,
    /// Chunks that somebody waited for.
    pub demanded: u64,
    /// Chunks that were fetched ahead.
    pub prefetched: u64,
    /// Of a chunk, from asking to its end, whoever asked.
    pub download_ms: Latency,
    /// Chunks that were sent.
    pub uploaded: u64,
    /// From the first request to the last answer.
    pub virtual_seconds: f64,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// Those that found everything in the cache.
    pub hits: u64,
    /// Of all.
    pub latency_ms: Latency,
}

impl Accesses {
    /// Hits in all.
    fn of(hits: u64, latencies_us: Vec<u64>) -> Self {
        Self {
            hits,
            latency_ms: Latency::of(latencies_us),
        }
    }
}

enum Event {
    Store(StoreEvent),
    Next,
    Answer,
    WriteBack,
}

impl From<StoreEvent> for Event {
    fn from(event: StoreEvent) -> Self {
        Self::Store(event)
    }
}

enum Transfer {
    Download {
        chunk: u64,
        began_us: u64,
        is_prefetch: bool,
    },
    Upload,
}

/// Chunks of a file are numbered from here on.
fn chunk_key(file: u32, chunk: u64) -> u64 {
    u64::from(file) << 32 | chunk
}

struct Emulator {
    job: ChunkJob,
    chunk_blocks: u64,
    client: Client,
    store: Store,
    events: Events<Event>,
    cache: KeyedCache,
    prefetcher: Option<Hou>,
    dirty: BTreeSet<u64>,
    /// By chunk: whether only a prefetch asked for it.
    coming: BTreeMap<u64, bool>,
    transfers: BTreeMap<Ticket, Transfer>,
    waiting: Option<Wanted>,
    hits: [u64; 2],
    latencies_us: [Vec<u64>; 2],
    downloads_us: Vec<u64>,
    demanded: u64,
    prefetched: u64,
    uploaded: u64,
}

/// Carries it out.
pub fn run_chunks(job: &ChunkJob, progress: Progress<'_>) -> Result<ChunkReport, Error> {
    job.check()?;
    let chunk_blocks = job.chunk_bytes / BLOCK_BYTES as u64;
    let capacity = Capacity::of_blocks((job.cache_bytes / job.chunk_bytes).max(2) as u32);
    let prefetcher = (job.prefetch_chunks_max > 0).then(|| {
        Hou::new(HouConfig {
            chunk_blocks,
            window_chunks_max: job.prefetch_chunks_max,
            ..HouConfig::default()
        })
    });
    let emulator = Emulator {
        chunk_blocks,
        client: Client::new(&job.files, job.seed),
        store: Store::new(&job.store, job.seed),
        events: Events::new(),
        cache: KeyedCache::new(capacity, Policy::Lru.build(capacity, Grouping::Slots)),
        prefetcher,
        dirty: BTreeSet::new(),
        coming: BTreeMap::new(),
        transfers: BTreeMap::new(),
        waiting: None,
        hits: [0; 2],
        latencies_us: [Vec::new(), Vec::new()],
        downloads_us: Vec::new(),
        demanded: 0,
        prefetched: 0,
        uploaded: 0,
        job: job.clone(),
    };
    emulator.run(progress)
}

impl Emulator {
    fn run(mut self, progress: Progress<'_>) -> Result<ChunkReport, Error> {
        self.store.begin(&mut self.events);
        let write_back_us = (self.job.write_back_s * 1e6) as u64;
        self.events.add(0, Event::Next);
        self.events.add(write_back_us, Event::WriteBack);
        let mut end = 0;
        while let Some((now, event)) = self.events.next() {
            match event {
                Event::Store(event) => {
                    if let Some((ticket, _)) = self.store.on_event(now, event, &mut self.events) {
                        self.on_transferred(now, ticket);
                    }
                }
                Event::Next => {
                    let done = self.job.files.requests - self.client.left;
                    if done.is_multiple_of(1_000) {
                        progress(done, self.job.files.requests)?;
                    }
                    match self.client.next(now) {
                        Some(wanted) => self.begin(now, wanted),
                        None => break,
                    }
                }
                Event::Answer => {
                    end = now;
                    self.answer(now);
                }
                Event::WriteBack => {
                    for chunk in std::mem::take(&mut self.dirty) {
                        self.upload(now, chunk);
                    }
                    self.events.add(now + write_back_us, Event::WriteBack);
                }
            }
        }
        let [reads_us, writes_us] = self.latencies_us;
        Ok(ChunkReport {
            reads: Accesses::of(self.hits[0], reads_us),
            writes: Accesses::of(self.hits[1], writes_us),
            demanded: self.demanded,
            prefetched: self.prefetched,
            download_ms: Latency::of(self.downloads_us),
            uploaded: self.uploaded,
            virtual_seconds: end as f64 / 1e6,
        })
    }

    fn chunks_of(&self, wanted: &Wanted) -> impl Iterator<Item = u64> + use<> {
        let last = (wanted.first_block + wanted.blocks - 1) / self.chunk_blocks;
        let file = wanted.file;
        (wanted.first_block / self.chunk_blocks..=last).map(move |chunk| chunk_key(file, chunk))
    }

    fn begin(&mut self, now: u64, wanted: Wanted) {
        let chunks: Vec<u64> = self.chunks_of(&wanted).collect();
        let missing: Vec<u64> = chunks
            .iter()
            .copied()
            .filter(|chunk| !self.cache.contains(*chunk))
            .collect();
        self.hits[usize::from(wanted.is_write)] += u64::from(missing.is_empty());
        for chunk in &missing {
            match self.coming.get_mut(chunk) {
                Some(is_prefetch) => *is_prefetch = false,
                None => self.download(now, *chunk, false),
            }
        }
        self.prefetch(now, &wanted, missing.is_empty());
        self.waiting = Some(wanted);
        if missing.is_empty() {
            self.events.add(now + (self.job.local_ms * 1e3) as u64, Event::Answer);
        }
    }

    fn prefetch(&mut self, now: u64, wanted: &Wanted, is_hit: bool) {
        let Some(prefetcher) = &mut self.prefetcher else {
            return;
        };
        let access = Access {
            client: ClientId(0),
            volume: VolumeId(u64::from(wanted.file)),
            first: wanted.first_block,
            count: wanted.blocks,
            outcome: if is_hit { Outcome::Hit } else { Outcome::Miss },
            prefetched: 0,
        };
        let mut suggestions: Vec<Suggestion> = Vec::new();
        prefetcher.on_read(Instant(now), access, &mut suggestions);
        let end = self.client.blocks_of[wanted.file as usize];
        for suggestion in suggestions {
            for chunk in suggestion.first / self.chunk_blocks..suggestion.end().min(end).div_ceil(self.chunk_blocks) {
                let key = chunk_key(wanted.file, chunk);
                if !self.cache.contains(key) && !self.coming.contains_key(&key) {
                    self.download(now, key, true);
                }
            }
        }
    }

    fn download(&mut self, now: u64, chunk: u64, is_prefetch: bool) {
        *(if is_prefetch {
            &mut self.prefetched
        } else {
            &mut self.demanded
        }) += 1;
        self.coming.insert(chunk, is_prefetch);
        let transfer = Transfer::Download {
            chunk,
            began_us: now,
            is_prefetch,
        };
        self.transfer(now, chunk, transfer);
    }

    fn upload(&mut self, now: u64, chunk: u64) {
        self.uploaded += 1;
        self.transfer(now, chunk, Transfer::Upload);
    }

    /// The last chunk of a file is shorter.
    fn transfer(&mut self, now: u64, chunk: u64, transfer: Transfer) {
        let blocks = self.client.blocks_of[(chunk >> 32) as usize];
        let first = (chunk & u64::from(u32::MAX)) * self.chunk_blocks;
        let bytes = (blocks - first.min(blocks)).min(self.chunk_blocks) * BLOCK_BYTES as u64;
        let request = Request {
            partition: 0,
            operations: 1,
            bytes,
        };
        let ticket = self.store.submit(now, request, &mut self.events);
        self.transfers.insert(ticket, transfer);
    }

    fn on_transferred(&mut self, now: u64, ticket: Ticket) {
        let Some(Transfer::Download {
            chunk,
            began_us,
            is_prefetch,
        }) = self.transfers.remove(&ticket)
        else {
            return;
        };
        self.downloads_us.push(now - began_us);
        let is_unasked = self.coming.remove(&chunk).unwrap_or(is_prefetch);
        if is_unasked {
            self.cache.prefetch(CacheAccess::to(Pvbn(chunk)));
        } else {
            self.cache.access(chunk);
        }
        self.upload_evicted(now);
        let waiting_for = self
            .waiting
            .as_ref()
            .map(|wanted| self.chunks_of(wanted).collect::<Vec<u64>>());
        if waiting_for.is_some_and(|chunks| {
            chunks.contains(&chunk) && chunks.iter().all(|chunk| !self.coming.contains_key(chunk))
        }) {
            self.events.add(now + (self.job.local_ms * 1e3) as u64, Event::Answer);
        }
    }

    fn upload_evicted(&mut self, now: u64) {
        let evicted: Vec<u64> = self.cache.last_evicted().iter().map(|evicted| evicted.key).collect();
        for chunk in evicted {
            if !self.cache.contains(chunk) && self.dirty.remove(&chunk) {
                self.upload(now, chunk);
            }
        }
    }

    fn answer(&mut self, now: u64) {
        let Some(wanted) = self.waiting.take() else {
            return;
        };
        for chunk in self.chunks_of(&wanted).collect::<Vec<u64>>() {
            if !self.cache.access(chunk) {
                self.upload_evicted(now);
            }
            if wanted.is_write {
                self.dirty.insert(chunk);
            }
        }
        self.latencies_us[usize::from(wanted.is_write)].push(now - wanted.began_us);
        self.events
            .add(now + (self.job.files.think_ms * 1e3) as u64 + 1, Event::Next);
    }
}

impl ChunkJob {
    fn check(&self) -> Result<(), Error> {
        let block = BLOCK_BYTES as f64;
        self.store.check()?;
        check("chunk_bytes", self.chunk_bytes as f64, block, 1e9, "4096 to 1e9 bytes")?;
        check(
            "cache_bytes",
            self.cache_bytes as f64,
            block,
            1e13,
            "4096 to 1e13 bytes",
        )?;
        check(
            "prefetch_chunks_max",
            self.prefetch_chunks_max as f64,
            0.0,
            1e3,
            "0 to 1000",
        )?;
        check("write_back_s", self.write_back_s, 0.001, 1e6, "0.001 to 1e6 s")?;
        check("local_ms", self.local_ms, 0.0, 1e6, "0 to 1e6 ms")?;
        let files = &self.files;
        check("files.count", f64::from(files.count), 1.0, 1e7, "1 to 1e7")?;
        check("files.mean_bytes", files.mean_bytes, block, 1e12, "4096 to 1e12 bytes")?;
        check("files.sigma", files.sigma, 0.0, 5.0, "0 to 5")?;
        check("files.exponent", files.exponent, 0.0, 10.0, "0 to 10")?;
        check(
            "files.request_bytes",
            files.request_bytes as f64,
            block,
            1e9,
            "4096 to 1e9 bytes",
        )?;
        check("files.run_requests", files.run_requests, 0.0, 1e9, "0 to 1e9")?;
        check("files.requests", files.requests as f64, 1.0, 1e10, "1 to 1e10")?;
        check("files.think_ms", files.think_ms, 0.0, 1e6, "0 to 1e6 ms")
    }
}
