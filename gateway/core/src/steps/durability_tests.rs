//! What may be done before journal writes, syncs and checkpoints have ended, and what a failure of theirs ends.

use crate::config::Config;
use crate::event::{Command, DiskError, Event, HashResult, JobId, MetadataError, Token, UploadItem, WriteRequest};
use crate::format::cache_header::JournalMark;
use crate::format::record::{Batch, SEGMENT_HEADER_BYTES};
use crate::format::slot_page::{SlotEntry, decode_slot_page};
use crate::state::journal::JournalWrite;
use crate::state::overlay::Frozen;
use crate::state::prefetch_state::Economy;
use crate::steps::checkpoint::CHECKPOINT_RETRY_MS;
use crate::test_bench::{Bench, VOLUME};
use alloc::{collections::VecDeque, sync::Arc};
use tombolo_base::{
    BlockEncoding, BlockSum, EntryChange, Fingerprint, Instant, MetadataChange, ObjectDescriptor, Pvbn, Span,
};

/// Beyond the object that the bench has in the cloud.
const FIRST_BLOCK: u64 = 1 << 20;

/// A gateway whose disk ends nothing but writes of slots until it is told to.
struct Held {
    bench: Bench,
    journal: VecDeque<JournalWrite>,
    syncs: VecDeque<JournalMark>,
    checkpoints: VecDeque<Arc<Frozen>>,
    trims: Vec<u64>,
    hashed: Vec<Pvbn>,
    hash_jobs: Vec<(JobId, usize)>,
    uploads: Vec<(JobId, Vec<UploadItem>)>,
    answers: Vec<(u64, bool)>,
}

impl Held {
    fn new(config: Config) -> Self {
        let config = Config {
            slot_count: 256,
            dirty_blocks_max: 128,
            ..config
        };
        Self {
            bench: Bench::with(config, Economy::default()),
            journal: VecDeque::new(),
            syncs: VecDeque::new(),
            checkpoints: VecDeque::new(),
            trims: Vec::new(),
            hashed: Vec::new(),
            hash_jobs: Vec::new(),
            uploads: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn step(&mut self, event: Event) {
        self.bench.step(event);
        for command in core::mem::take(&mut self.bench.out) {
            match command {
                Command::WriteSlots { token, .. } => self.step(Event::SlotsWritten { token, result: Ok(()) }),
                Command::WriteJournal(write) => self.journal.push_back(write),
                Command::Sync { mark } => self.syncs.push_back(mark),
                Command::Checkpoint { frozen, .. } => self.checkpoints.push_back(frozen),
                Command::TrimJournal { keep_from } => self.trims.push(keep_from),
                Command::Hash { job, items } => {
                    self.hash_jobs.push((job, items.len()));
                    self.hashed.extend(items.iter().map(|item| item.pvbn));
                }
                Command::Upload { job, items } => self.uploads.push((job, items)),
                Command::Answer { token, result } => self.answers.push((token.0, result.is_ok())),
                _ => {}
            }
        }
    }

    fn write(&mut self, token: u64, force_unit_access: bool) {
        let (volume, first, count) = (VOLUME, FIRST_BLOCK + token, 1);
        self.step(Event::Write {
            token: Token(token),
            request: WriteRequest {
                force_unit_access,
                ..WriteRequest::new(Span { volume, first, count }, vec![Some(BlockSum(7))])
            },
        });
    }

    /// A change that leaves nothing dirty.
    fn commit(&mut self, token: u64) {
        let (key, value) = (vec![1], vec![2]);
        let entries = vec![EntryChange::Put { key, value }];
        let holes = Vec::new();
        self.step(Event::Commit {
            token: Token(token),
            change: MetadataChange { entries, holes },
            links: Vec::new(),
        });
    }

    fn flush(&mut self, token: u64) {
        self.step(Event::Flush { token: Token(token) });
    }

    fn end_journal_write(&mut self) {
        let write = self.journal.pop_front().expect("a journal write");
        let (lsn, end, result) = (write.lsn, write.end, Ok(()));
        self.step(Event::JournalWritten { lsn, end, result });
    }

    fn end_sync(&mut self) {
        self.syncs.pop_front().expect("a sync");
        self.step(Event::Synced { result: Ok(()) });
    }

    fn end_checkpoint(&mut self, result: Result<(), MetadataError>) {
        self.checkpoints.pop_front().expect("a checkpoint");
        self.step(Event::Checkpointed { result });
    }

    fn pass_millis(&mut self, millis: u64) {
        self.bench.now += millis * 1_000;
        self.step(Event::Tick);
    }

    fn take_answers(&mut self) -> Vec<(u64, bool)> {
        core::mem::take(&mut self.answers)
    }
}

fn batch_of(write: &JournalWrite) -> Batch {
    let head = usize::from(write.offset == 0) * SEGMENT_HEADER_BYTES;
    let identity = u64::from_le_bytes(write.bytes[head + 24..head + 32].try_into().unwrap());
    Batch::decode(&write.bytes[head..], identity).unwrap().0
}

#[test]
fn a_flush_covers_what_readers_saw_when_it_came() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.end_journal_write();
    // Seen by readers from now on, and not yet in the journal's file.
    held.commit(2);
    held.flush(3);
    assert!(
        held.syncs.is_empty(),
        "a sync now would not bring the second change to the disk"
    );
    held.end_journal_write();
    held.end_sync();
    let answers = held.take_answers();
    assert!(answers.contains(&(3, true)), "{answers:?}");
}

#[test]
fn nothing_is_frozen_that_the_disk_might_refuse_to_have_journaled() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.write(2, false);
    held.step(Event::CheckpointNow);
    held.end_journal_write();
    held.pass_millis(Config::default().checkpoint_interval_ms);
    assert!(held.checkpoints.is_empty(), "a journal write is under way");
    held.end_journal_write();
    assert_eq!(held.checkpoints.len(), 1);
}

#[test]
fn a_write_is_acknowledged_when_it_is_journaled_and_not_before() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.write(2, true);
    assert_eq!(held.take_answers(), []);
    held.end_journal_write();
    held.end_journal_write();
    assert_eq!(held.take_answers(), [(1, true)]);
    held.end_sync();
    assert_eq!(held.take_answers(), [(2, true)]);
}

#[test]
fn journal_writes_that_end_out_of_order_acknowledge_in_order() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.write(2, false);
    held.journal.swap(0, 1);
    held.end_journal_write();
    assert_eq!(held.take_answers(), [], "what is before it may still be lost");
    held.end_journal_write();
    assert_eq!(held.take_answers(), [(1, true), (2, true)]);
}

#[test]
fn a_flush_waits_for_a_sync_that_began_after_what_it_covers() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.end_journal_write();
    held.flush(10);
    assert_eq!(held.syncs.len(), 1);
    held.write(2, false);
    held.end_journal_write();
    held.flush(11);
    held.take_answers();
    held.end_sync();
    assert_eq!(held.take_answers(), [(10, true)]);
    held.end_sync();
    assert_eq!(held.take_answers(), [(11, true)]);
    // The note of what is durable asks for nothing more.
    held.flush(12);
    assert_eq!((held.take_answers(), held.syncs.len()), (vec![(12, true)], 0));
}

#[test]
fn no_block_leaves_for_the_cloud_before_its_record_is_durable() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.step(Event::Drain);
    held.end_journal_write();
    held.write(2, false);
    assert_eq!((held.hashed.len(), held.syncs.len()), (0, 1), "the drain wants a sync");
    held.end_sync();
    let durable = held.hashed.len();
    assert_eq!(durable, 1, "the other is not durable yet");
    held.step(Event::Drain);
    held.end_journal_write();
    while !held.syncs.is_empty() {
        held.end_sync();
    }
    assert!(held.hashed.len() <= 2);
}

#[test]
fn a_drain_ends_when_the_store_is_durably_known_to_have_all() {
    let mut held = Held::new(Config::default());
    let is_draining = |held: &Held| held.bench.core.snapshot().draining;
    held.step(Event::Drain);
    assert!(!is_draining(&held), "there is nothing to drain");
    held.write(1, false);
    held.end_journal_write();
    held.step(Event::Drain);
    held.end_sync();
    let (job, _) = held.hash_jobs.pop().unwrap();
    let result = HashResult::Done {
        fingerprint: Fingerprint([3; 32]),
        existing: None,
    };
    let results = vec![result];
    held.step(Event::Hashed { job, results });
    let (job, items) = held.uploads.pop().unwrap();
    let blocks = items
        .iter()
        .map(|item| (item.pvbn, item.fingerprint, 4096, BlockEncoding::Plain));
    let result = Ok(ObjectDescriptor::unnamed(blocks));
    held.step(Event::Uploaded { job, result });
    assert!(held.bench.core.is_drained() && is_draining(&held));
    // What comes meanwhile is not waited for.
    held.write(2, false);
    while !held.journal.is_empty() {
        held.end_journal_write();
    }
    assert!(is_draining(&held), "a crash would forget the confirmation");
    held.end_sync();
    assert!(!is_draining(&held));
    assert!(!held.bench.core.is_drained());
}

#[test]
fn a_batch_tells_what_was_durable_when_it_was_made() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    let end = held.journal[0].end;
    assert!(batch_of(&held.journal[0]).durable_lsn < end);
    held.end_journal_write();
    held.flush(10);
    held.end_sync();
    let mark = batch_of(&held.journal[0]);
    assert_eq!((mark.durable_lsn, mark.records.len()), (end, 0), "a mark, told at once");
    held.end_journal_write();
    held.write(2, false);
    assert_eq!(batch_of(&held.journal[0]).durable_lsn, end);
}

#[test]
fn unsynced_writes_are_synced_after_the_interval() {
    let config = Config::default();
    let mut held = Held::new(config.clone());
    held.write(1, false);
    held.end_journal_write();
    let deadline = held.bench.core.next_deadline().unwrap();
    assert_eq!(deadline, Instant(held.bench.now).plus_millis(config.sync_interval_ms));
    held.pass_millis(config.sync_interval_ms - 2);
    assert!(held.syncs.is_empty());
    held.pass_millis(2);
    assert_eq!(held.syncs.len(), 1);
    held.pass_millis(config.sync_interval_ms);
    assert_eq!(held.syncs.len(), 1, "one at a time");
}

#[test]
fn a_failed_sync_refuses_what_waited_for_it_and_all_that_follows() {
    let mut held = Held::new(Config::default());
    held.write(1, true);
    held.end_journal_write();
    held.write(2, false);
    assert_eq!(held.syncs.len(), 1);
    let error = DiskError {
        operation: "sync",
        reason: "no room".into(),
    };
    held.step(Event::Synced { result: Err(error) });
    let mut refused = held.take_answers();
    refused.sort_unstable();
    assert_eq!(refused, [(1, false), (2, false)]);
    // What was journaled meanwhile is not acknowledged any more.
    held.end_journal_write();
    held.flush(10);
    held.write(3, false);
    assert_eq!(held.take_answers(), [(10, false), (3, false)]);
    held.pass_millis(1 << 20);
    assert!(held.checkpoints.is_empty());
    assert_eq!(held.bench.core.next_deadline(), None);
}

#[test]
fn a_failed_checkpoint_is_tried_again_with_the_same_state() {
    let config = Config::default();
    let mut held = Held::new(config.clone());
    held.write(1, false);
    held.end_journal_write();
    held.step(Event::CheckpointNow);
    let frozen = held.checkpoints[0].clone();
    held.write(2, false);
    held.end_journal_write();
    held.end_checkpoint(Err(MetadataError("busy".into())));
    let snapshot = held.bench.core.snapshot();
    assert_eq!(snapshot.metadata_error.as_deref(), Some("busy"));
    assert_eq!((snapshot.replay_records, snapshot.counters.checkpoints), (2, 0));
    held.pass_millis(CHECKPOINT_RETRY_MS - 2);
    assert!(held.checkpoints.is_empty());
    held.pass_millis(2);
    assert!(Arc::ptr_eq(&held.checkpoints[0], &frozen));
    held.pass_millis(CHECKPOINT_RETRY_MS);
    assert_eq!(held.checkpoints.len(), 1, "it is under way");
    held.end_checkpoint(Ok(()));
    let snapshot = held.bench.core.snapshot();
    assert_eq!(snapshot.metadata_error, None);
    assert_eq!((snapshot.replay_records, snapshot.counters.checkpoints), (1, 1));
    assert_eq!(held.trims.len(), 1);
    assert!(!held.bench.core.is_checkpointed(), "the second write came after it");
}

#[test]
fn a_checkpoint_makes_durable_what_it_holds() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.end_journal_write();
    held.step(Event::CheckpointNow);
    held.end_checkpoint(Ok(()));
    assert!(held.bench.core.is_checkpointed());
    held.flush(10);
    assert_eq!(held.take_answers(), [(1, true), (10, true)]);
    assert!(held.syncs.is_empty());
}

#[test]
fn what_has_changed_is_checkpointed_after_the_interval() {
    let mut held = Held::new(Config::default());
    assert_eq!(held.bench.core.next_deadline(), None, "nothing has changed");
    held.commit(1);
    held.end_journal_write();
    held.flush(10);
    held.end_sync();
    assert_eq!(held.bench.core.next_deadline(), None, "a journal write is under way");
    held.end_journal_write();
    let deadline = held.bench.core.next_deadline().unwrap();
    assert_eq!(
        deadline,
        Instant(0).plus_millis(Config::default().checkpoint_interval_ms)
    );
    held.bench.now = deadline.0 - 2_000;
    held.step(Event::Tick);
    assert!(held.checkpoints.is_empty());
    held.step(Event::Tick);
    assert_eq!(held.checkpoints.len(), 1);
    held.end_checkpoint(Ok(()));
    assert_eq!(held.bench.core.next_deadline(), None);
}

#[test]
fn a_checkpoint_says_which_blocks_are_lost_with_their_slots() {
    let mut held = Held::new(Config::default());
    let tokens = 1..=3;
    for token in tokens.clone() {
        held.write(token, false);
        held.end_journal_write();
    }
    held.step(Event::Drain);
    held.end_sync();
    while let Some((job, blocks)) = held.hash_jobs.pop() {
        let results = vec![HashResult::Corrupt; blocks];
        held.step(Event::Hashed { job, results });
    }
    held.end_journal_write();
    held.step(Event::CheckpointNow);
    let pages = &held.checkpoints[0].slot_pages;
    let entries = pages.iter().flat_map(|(_, bytes)| decode_slot_page(bytes).unwrap());
    let lost = entries.filter_map(|entry| match entry {
        SlotEntry::Corrupt {
            pvbn, volume, block, ..
        } => Some((pvbn, volume, block)),
        _ => None,
    });
    let mut lost: Vec<_> = lost.collect();
    lost.sort_unstable();
    let written = held.hashed.iter().zip(tokens);
    let expected: Vec<_> = written
        .map(|(pvbn, token)| (*pvbn, VOLUME, FIRST_BLOCK + token))
        .collect();
    assert_eq!(lost, expected);
}

#[test]
fn metadata_that_did_not_answer_is_left_alone_for_a_second() {
    let mut held = Held::new(Config::default());
    held.write(1, false);
    held.step(Event::Drain);
    held.end_journal_write();
    held.end_sync();
    held.end_journal_write();
    let (job, _) = held.hash_jobs.pop().unwrap();
    // The index knows the contents, and local metadata would know where they are.
    let pvbn = Pvbn(5);
    let result = HashResult::Done {
        fingerprint: Fingerprint([3; 32]),
        existing: Some(pvbn),
    };
    let results = vec![result];
    held.step(Event::Hashed { job, results });
    let result = Err(MetadataError("busy".into()));
    held.step(Event::DescriptorLoaded { pvbn, result });
    held.pass_millis(998);
    assert!(held.hash_jobs.is_empty());
    held.pass_millis(2);
    assert_eq!(held.hash_jobs.len(), 1, "the block is hashed again");
}
