//! Blocks that equal one whose upload is under way: how many of them wait for it, and what confirms them.

use super::*;
use crate::config::Config;
use crate::event::{Event, StoreFailure, Token, WriteRequest};
use crate::format::record::Batch;
use crate::format::record::SEGMENT_HEADER_BYTES;
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, VOLUME};
use tombolo_base::{BlockEncoding, BlockSum, Fingerprint, Span};

const FIRST_BLOCK: u64 = 1 << 20;

/// A gateway whose store answers when it is told to.
struct Outage {
    bench: Bench,
    now: Instant,
    held: Vec<(JobId, Vec<UploadItem>)>,
    /// Redirects in each batch that has any.
    redirects: Vec<usize>,
    /// What the index knows of the contents.
    known: Option<Pvbn>,
}

impl Outage {
    fn new(blocks: u32, followers_max: usize) -> Self {
        let config = Config {
            slot_count: blocks + 1_024,
            dirty_blocks_max: blocks,
            followers_max,
            ..Config::default()
        };
        Self {
            bench: Bench::with(config, Economy::default()),
            now: Instant(0),
            held: Vec::new(),
            redirects: Vec::new(),
            known: None,
        }
    }

    fn step(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.now = self.now.plus_micros(10);
            let mut commands = Vec::new();
            self.bench.core.step(self.now, event, &mut commands);
            events.extend(commands.into_iter().filter_map(|command| self.carry_out(command)));
        }
    }

    fn carry_out(&mut self, command: Command) -> Option<Event> {
        Some(match command {
            Command::WriteSlots { token, .. } => Event::SlotsWritten { token, result: Ok(()) },
            Command::WriteJournal(write) => {
                let head = usize::from(write.offset == 0) * SEGMENT_HEADER_BYTES;
                let identity = u64::from_le_bytes(write.bytes[head + 24..head + 32].try_into().unwrap());
                let (batch, _) = Batch::decode(&write.bytes[head..], identity).unwrap();
                let redirects = batch
                    .records
                    .iter()
                    .filter(|record| matches!(record, Record::Redirect { .. }));
                let redirects = redirects.count();
                if redirects > 0 {
                    self.redirects.push(redirects);
                }
                let (lsn, end, result) = (write.lsn, write.end, Ok(()));
                Event::JournalWritten { lsn, end, result }
            }
            Command::Sync { .. } => Event::Synced { result: Ok(()) },
            Command::Hash { job, items } => {
                let (fingerprint, existing) = (Fingerprint([3; 32]), self.known);
                let results = items.iter().map(|_| HashResult::Done { fingerprint, existing });
                let results = results.collect();
                Event::Hashed { job, results }
            }
            Command::Upload { job, items } => {
                self.held.push((job, items));
                return None;
            }
            Command::Remember { descriptor } => {
                self.known = Some(descriptor.first_pvbn());
                return None;
            }
            Command::Checkpoint { .. } => Event::Checkpointed { result: Ok(()) },
            _ => return None,
        })
    }

    /// Writes blocks of one content, no two of them side by side.
    fn write(&mut self, blocks: u64) {
        for index in 0..blocks {
            let (volume, first, count) = (VOLUME, FIRST_BLOCK + 2 * index, 1);
            self.step(Event::Write {
                token: Token(index),
                request: WriteRequest::new(Span { volume, first, count }, vec![Some(BlockSum(7)); count as usize]),
            });
        }
        self.step(Event::Drain);
    }

    fn end(&mut self) {
        while let Some((job, items)) = self.held.pop() {
            let blocks = items
                .iter()
                .map(|item| (item.pvbn, item.fingerprint, 4096, BlockEncoding::Plain));
            let result = Ok(ObjectDescriptor::unnamed(blocks));
            self.step(Event::Uploaded { job, result });
        }
    }
}

#[test]
fn an_outage_under_equal_blocks_ends_in_small_batches() {
    // One more redirect than a batch has room for.
    let blocks = (crate::format::record::BATCH_PAYLOAD_BYTES_MAX / 37 + 2) as u32;
    let mut outage = Outage::new(blocks, Config::default().followers_max);
    outage.write(u64::from(blocks));
    assert_eq!(outage.held.len(), 1, "the contents are uploaded once");
    outage.end();
    assert!(outage.bench.core.is_drained());
    assert_eq!(outage.redirects.iter().sum::<usize>(), blocks as usize - 1);
    let most = outage.redirects.iter().max().copied().unwrap_or(0);
    assert!(most <= 2_048 + 2 * 256, "{most} redirects in a batch");
}

#[test]
fn a_pack_that_holds_back_others_is_uploaded_before_it_is_full() {
    let mut outage = Outage::new(1_000, 1);
    outage.write(900);
    assert_eq!(outage.held.len(), 1);
    let followers = outage.bench.core.flush.follower_count;
    assert!((1..=512).contains(&followers), "{followers}");
    outage.end();
    assert!(outage.bench.core.is_drained());
    assert_eq!(outage.bench.core.flush.follower_count, 0);
}

#[test]
fn uploads_are_counted_and_a_failed_one_is_made_again() {
    let mut outage = Outage::new(100, 10);
    outage.write(3);
    let (job, _) = outage.held.pop().unwrap();
    let failure = StoreFailure {
        retryable: true,
        reason: "away".into(),
    };
    let result = Err(UploadFailure::Store(failure));
    outage.step(Event::Uploaded { job, result });
    let snapshot = outage.bench.core.snapshot();
    assert_eq!((snapshot.counters.uploads, snapshot.counters.upload_failures), (0, 1));
    assert_eq!(snapshot.store.error.as_deref(), Some("away"));
    assert_eq!(snapshot.uploads_in_flight, 0);
    outage.now = outage.bench.core.next_deadline().unwrap();
    outage.step(Event::Tick);
    assert_eq!(outage.held.len(), 1);
    outage.end();
    let snapshot = outage.bench.core.snapshot();
    assert_eq!((snapshot.counters.uploads, snapshot.counters.upload_failures), (1, 1));
    assert!(snapshot.counters.upload_bytes >= 4096);
    assert_eq!(snapshot.counters.upload_bytes, snapshot.totals.object_bytes);
    assert_eq!(
        (snapshot.totals.blocks_unique, snapshot.totals.blocks_duplicate),
        (1, 2)
    );
    assert_eq!(snapshot.store.error, None);
}
