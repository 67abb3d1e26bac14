//! What may be done before journal writes, syncs and checkpoints have ended, and what a failure of theirs ends.

use crate::config::Config;
use crate::event::{Command, DiskError, Event, HashResult, MetadataError, Token, WriteRequest};
use crate::format::slot_page::{SlotEntry, decode_slot_page};
use crate::state::overlay::Frozen;
use crate::steps::checkpoint::CHECKPOINT_RETRY_MS;
use crate::test_bench::{Bench, VOLUME, Which, fingerprint_of, is_checkpoint, span};
use alloc::sync::Arc;
use tombolo_base::{BlockSum, EntryChange, FlushMode, Instant, MetadataChange, Pvbn};

/// Beyond the object that the bench has in the cloud.
const FIRST_BLOCK: u64 = 1 << 20;
/// The cloud has no such block.
const NEW_SUM: BlockSum = BlockSum(77);

const JOURNAL_WRITE: Which = |command| matches!(command, Command::WriteJournal(_));
const SYNC: Which = |command| matches!(command, Command::Sync { .. });
const HASH: Which = |command| matches!(command, Command::Hash { .. });
const UPLOAD: Which = |command| matches!(command, Command::Upload { .. });

/// A disk that ends nothing but writes of slots until it is told to.
fn holding_back() -> Bench {
    let config = Config {
        slot_count: 256,
        dirty_blocks_max: 128,
        ..Config::default()
    };
    Bench::with(config).holding(|command| {
        [JOURNAL_WRITE, SYNC, is_checkpoint, HASH, UPLOAD]
            .iter()
            .any(|which| which(command))
    })
}

fn write(bench: &mut Bench, token: u64, force_unit_access: bool) {
    bench.step(Event::Write {
        token: Token(token),
        request: WriteRequest {
            force_unit_access,
            ..WriteRequest::new(span(FIRST_BLOCK + token, 1), vec![Some(NEW_SUM)])
        },
    });
}

/// A change that leaves nothing dirty.
fn commit(bench: &mut Bench, token: u64) {
    let (key, value) = (vec![1], vec![2]);
    let entries = vec![EntryChange::Put { key, value }];
    let holes = Vec::new();
    bench.step(Event::Commit {
        token: Token(token),
        change: MetadataChange { entries, holes },
        links: Vec::new(),
    });
}

fn flush(bench: &mut Bench, token: u64) {
    let (token, mode) = (Token(token), FlushMode::Local);
    bench.step(Event::Flush { token, mode });
}

fn fail_checkpoint(bench: &mut Bench, reason: &str) {
    bench.take_held(is_checkpoint);
    let result = Err(MetadataError::Local(reason.into()));
    bench.step(Event::Checkpointed { result });
}

/// The state of the checkpoint that is held back.
fn frozen(bench: &Bench) -> Arc<Frozen> {
    let frozen = bench.held.iter().find_map(|command| match command {
        Command::Checkpoint { frozen, .. } => Some(frozen.clone()),
        _ => None,
    });
    frozen.expect("a checkpoint")
}

/// Every block that was to be hashed so far.
fn hashed(bench: &Bench) -> Vec<Pvbn> {
    let hashed = bench.commands.iter().filter_map(|command| match command {
        Command::Hash { items, .. } => Some(items.iter().map(|item| item.pvbn)),
        _ => None,
    });
    hashed.flatten().collect()
}

#[test]
fn a_flush_covers_what_readers_saw_when_it_came() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.finish_held(JOURNAL_WRITE);
    // Seen by readers from now on, and not yet in the journal's file.
    commit(&mut bench, 2);
    flush(&mut bench, 3);
    assert!(
        bench.count_held(SYNC) == 0,
        "a sync now would not bring the second change to the disk"
    );
    bench.finish_held(JOURNAL_WRITE);
    bench.finish_held(SYNC);
    let answers = bench.take_answers();
    assert!(answers.contains(&(3, true)), "{answers:?}");
}

#[test]
fn nothing_is_frozen_that_the_disk_might_refuse_to_have_journaled() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    write(&mut bench, 2, false);
    bench.step(Event::CheckpointNow);
    bench.finish_held(JOURNAL_WRITE);
    bench.pass_millis(Config::default().checkpoint_interval_ms);
    assert!(bench.count_held(is_checkpoint) == 0, "a journal write is under way");
    bench.finish_held(JOURNAL_WRITE);
    assert_eq!(bench.count_held(is_checkpoint), 1);
}

#[test]
fn a_write_is_acknowledged_when_it_is_journaled_and_not_before() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    write(&mut bench, 2, true);
    assert_eq!(bench.take_answers(), []);
    bench.finish_held(JOURNAL_WRITE);
    bench.finish_held(JOURNAL_WRITE);
    assert_eq!(bench.take_answers(), [(1, true)]);
    bench.finish_held(SYNC);
    assert_eq!(bench.take_answers(), [(2, true)]);
}

#[test]
fn journal_writes_that_end_out_of_order_acknowledge_in_order() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    write(&mut bench, 2, false);
    bench.held.swap(0, 1);
    bench.finish_held(JOURNAL_WRITE);
    assert_eq!(bench.take_answers(), [], "what is before it may still be lost");
    bench.finish_held(JOURNAL_WRITE);
    assert_eq!(bench.take_answers(), [(1, true), (2, true)]);
}

#[test]
fn a_flush_waits_for_a_sync_that_began_after_what_it_covers() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.finish_held(JOURNAL_WRITE);
    flush(&mut bench, 10);
    assert_eq!(bench.count_held(SYNC), 1);
    write(&mut bench, 2, false);
    bench.finish_held(JOURNAL_WRITE);
    flush(&mut bench, 11);
    bench.take_answers();
    bench.finish_held(SYNC);
    assert_eq!(bench.take_answers(), [(10, true)]);
    bench.finish_held(SYNC);
    assert_eq!(bench.take_answers(), [(11, true)]);
    // The note of what is durable asks for nothing more.
    flush(&mut bench, 12);
    assert_eq!((bench.take_answers(), bench.count_held(SYNC)), (vec![(12, true)], 0));
}

#[test]
fn no_block_leaves_for_the_cloud_before_its_record_is_durable() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.step(Event::Drain);
    bench.finish_held(JOURNAL_WRITE);
    write(&mut bench, 2, false);
    assert_eq!(
        (hashed(&bench).len(), bench.count_held(SYNC)),
        (0, 1),
        "the drain wants a sync"
    );
    bench.finish_held(SYNC);
    let durable = hashed(&bench).len();
    assert_eq!(durable, 1, "the other is not durable yet");
    bench.step(Event::Drain);
    bench.finish_held(JOURNAL_WRITE);
    while bench.count_held(SYNC) > 0 {
        bench.finish_held(SYNC);
    }
    assert!(hashed(&bench).len() <= 2);
}

#[test]
fn a_drain_ends_when_the_store_is_durably_known_to_have_all() {
    let mut bench = holding_back();
    let is_draining = |bench: &Bench| bench.core.snapshot().draining;
    bench.step(Event::Drain);
    assert!(!is_draining(&bench), "there is nothing to drain");
    write(&mut bench, 1, false);
    bench.finish_held(JOURNAL_WRITE);
    bench.step(Event::Drain);
    bench.finish_held(SYNC);
    bench.finish_held(HASH);
    bench.finish_held(UPLOAD);
    assert!(bench.core.is_drained() && is_draining(&bench));
    // What comes meanwhile is not waited for.
    write(&mut bench, 2, false);
    while bench.count_held(JOURNAL_WRITE) > 0 {
        bench.finish_held(JOURNAL_WRITE);
    }
    assert!(is_draining(&bench), "a crash would forget the confirmation");
    bench.finish_held(SYNC);
    assert!(!is_draining(&bench));
    assert!(!bench.core.is_drained());
}

#[test]
fn a_batch_tells_what_was_durable_when_it_was_made() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    let end = bench.journal_writes().last().unwrap().end;
    assert!(bench.batches().pop().unwrap().durable_lsn < end);
    bench.finish_held(JOURNAL_WRITE);
    flush(&mut bench, 10);
    bench.finish_held(SYNC);
    let mark = bench.batches().pop().unwrap();
    assert_eq!((mark.durable_lsn, mark.records.len()), (end, 0), "a mark, told at once");
    bench.finish_held(JOURNAL_WRITE);
    write(&mut bench, 2, false);
    assert_eq!(bench.batches().pop().unwrap().durable_lsn, end);
}

#[test]
fn unsynced_writes_are_synced_after_the_interval() {
    let config = Config::default();
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.finish_held(JOURNAL_WRITE);
    let deadline = bench.core.next_deadline().unwrap();
    assert_eq!(deadline, Instant(bench.now).plus_millis(config.sync_interval_ms));
    bench.pass_millis(config.sync_interval_ms - 2);
    assert_eq!(bench.count_held(SYNC), 0);
    bench.pass_millis(2);
    assert_eq!(bench.count_held(SYNC), 1);
    bench.pass_millis(config.sync_interval_ms);
    assert_eq!(bench.count_held(SYNC), 1, "one at a time");
}

#[test]
fn a_failed_sync_refuses_what_waited_for_it_and_all_that_follows() {
    let mut bench = holding_back();
    write(&mut bench, 1, true);
    bench.finish_held(JOURNAL_WRITE);
    write(&mut bench, 2, false);
    assert_eq!(bench.count_held(SYNC), 1);
    let error = DiskError {
        operation: "sync",
        reason: "no room".into(),
    };
    bench.step(Event::Synced { result: Err(error) });
    let mut refused = bench.take_answers();
    refused.sort_unstable();
    assert_eq!(refused, [(1, false), (2, false)]);
    // What was journaled meanwhile is not acknowledged any more.
    bench.finish_held(JOURNAL_WRITE);
    flush(&mut bench, 10);
    write(&mut bench, 3, false);
    assert_eq!(bench.take_answers(), [(10, false), (3, false)]);
    bench.pass_millis(1 << 20);
    assert_eq!(bench.count_held(is_checkpoint), 0);
    assert_eq!(bench.core.next_deadline(), None);
}

#[test]
fn a_failed_checkpoint_is_tried_again_with_the_same_state() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.finish_held(JOURNAL_WRITE);
    bench.step(Event::CheckpointNow);
    let first = frozen(&bench);
    write(&mut bench, 2, false);
    bench.finish_held(JOURNAL_WRITE);
    fail_checkpoint(&mut bench, "busy");
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.metadata_error, Some(MetadataError::Local("busy".into())));
    assert_eq!((snapshot.replay_records, snapshot.counters.checkpoints), (2, 0));
    bench.pass_millis(CHECKPOINT_RETRY_MS - 2);
    assert_eq!(bench.count_held(is_checkpoint), 0);
    bench.pass_millis(2);
    assert!(Arc::ptr_eq(&frozen(&bench), &first));
    bench.pass_millis(CHECKPOINT_RETRY_MS);
    assert_eq!(bench.count_held(is_checkpoint), 1, "it is under way");
    bench.finish_held(is_checkpoint);
    let snapshot = bench.core.snapshot();
    assert_eq!(snapshot.metadata_error, None);
    assert_eq!((snapshot.replay_records, snapshot.counters.checkpoints), (1, 1));
    assert_eq!(bench.count(|command| matches!(command, Command::TrimJournal { .. })), 1);
    assert!(!bench.core.is_checkpointed(), "the second write came after it");
}

#[test]
fn a_checkpoint_makes_durable_what_it_holds() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.finish_held(JOURNAL_WRITE);
    bench.step(Event::CheckpointNow);
    bench.finish_held(is_checkpoint);
    assert!(bench.core.is_checkpointed());
    flush(&mut bench, 10);
    assert_eq!(bench.take_answers(), [(1, true), (10, true)]);
    assert_eq!(bench.count_held(SYNC), 0);
}

#[test]
fn what_has_changed_is_checkpointed_after_the_interval() {
    let mut bench = holding_back();
    assert_eq!(bench.core.next_deadline(), None, "nothing has changed");
    commit(&mut bench, 1);
    bench.finish_held(JOURNAL_WRITE);
    flush(&mut bench, 10);
    bench.finish_held(SYNC);
    assert_eq!(bench.core.next_deadline(), None, "a journal write is under way");
    bench.finish_held(JOURNAL_WRITE);
    let deadline = bench.core.next_deadline().unwrap();
    assert_eq!(
        deadline,
        Instant(0).plus_millis(Config::default().checkpoint_interval_ms)
    );
    bench.now = deadline.0 - 2_000;
    bench.step(Event::Tick);
    assert_eq!(bench.count_held(is_checkpoint), 0);
    bench.step(Event::Tick);
    assert_eq!(bench.count_held(is_checkpoint), 1);
    bench.finish_held(is_checkpoint);
    assert_eq!(bench.core.next_deadline(), None);
}

#[test]
fn a_checkpoint_says_which_blocks_are_lost_with_their_slots() {
    let mut bench = holding_back();
    let tokens = 1..=3;
    for token in tokens.clone() {
        write(&mut bench, token, false);
        bench.finish_held(JOURNAL_WRITE);
    }
    bench.step(Event::Drain);
    bench.finish_held(SYNC);
    while bench.count_held(HASH) > 0 {
        let Command::Hash { job, items } = bench.take_held(HASH) else {
            unreachable!("a hash job was asked for")
        };
        let results = vec![HashResult::Corrupt; items.len()];
        bench.step(Event::Hashed { job, results });
    }
    bench.finish_held(JOURNAL_WRITE);
    bench.step(Event::CheckpointNow);
    let frozen = frozen(&bench);
    let pages = &frozen.slot_pages;
    let entries = pages.iter().flat_map(|(_, bytes)| decode_slot_page(bytes).unwrap());
    let lost = entries.filter_map(|entry| match entry {
        SlotEntry::Corrupt {
            pvbn, volume, block, ..
        } => Some((pvbn, volume, block)),
        _ => None,
    });
    let mut lost: Vec<_> = lost.collect();
    lost.sort_unstable();
    let written = hashed(&bench).into_iter().zip(tokens);
    let expected: Vec<_> = written
        .map(|(pvbn, token)| (pvbn, VOLUME, FIRST_BLOCK + token))
        .collect();
    assert_eq!(lost, expected);
}

#[test]
fn metadata_that_did_not_answer_is_left_alone_for_a_second() {
    let mut bench = holding_back();
    write(&mut bench, 1, false);
    bench.step(Event::Drain);
    bench.finish_held(JOURNAL_WRITE);
    bench.finish_held(SYNC);
    bench.finish_held(JOURNAL_WRITE);
    // The index knows the contents, and local metadata would know where they are.
    bench.fails = Box::new(|_, event| {
        if let Event::DescriptorLoaded { result, .. } = event {
            *result = Err(MetadataError::Local("busy".into()));
        }
    });
    bench.index.insert(fingerprint_of(NEW_SUM), Pvbn(5));
    bench.finish_held(HASH);
    bench.pass_millis(998);
    assert_eq!(bench.count_held(HASH), 0);
    bench.pass_millis(2);
    assert_eq!(bench.count_held(HASH), 1, "the block is hashed again");
}
