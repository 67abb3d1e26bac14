//! What grows while something outside does not get on: checkpoints that fail, a disk that is full.

use crate::config::Config;
use crate::event::{Answer, Command, Event, MetadataError, PartialWrite, Refusal, Token};
use crate::test_bench::{Bench, SLOTS, is_checkpoint, span};
use tombolo_base::MetadataChange;

const STALL_MS: u64 = 2_000;

fn holding_checkpoints(config: Config) -> Bench {
    let config = Config {
        slot_count: SLOTS,
        dirty_blocks_max: 32,
        stall_timeout_ms: STALL_MS,
        ..config
    };
    Bench::with(config).holding(is_checkpoint)
}

fn refused(bench: &Bench) -> usize {
    let answers = bench.answers.iter();
    answers.filter(|(_, answer)| *answer == Err(Refusal::Busy)).count()
}

fn failed() -> Event {
    let result = Err(MetadataError::Local("the disk is full".into()));
    Event::Checkpointed { result }
}

#[test]
fn while_checkpoints_fail_changes_stay_within_twice_the_bound_and_are_refused_beyond() {
    const BOUND: usize = 8;
    let mut bench = holding_checkpoints(Config {
        overlay_extents_max: BOUND,
        ..Config::default()
    });
    for number in 0..40 {
        bench.zero(number, span(1_000 + 2 * number, 1));
        if !bench.held.is_empty() {
            bench.step(failed());
        }
    }
    let extents = bench.core.snapshot().overlay_extents;
    assert!(extents <= 2 * BOUND as u64 + 1, "{extents}");
    assert!(bench.core.snapshot().waits_for_checkpoint);
    let done = bench.answers.len();
    assert!((2 * BOUND - 2..=2 * BOUND + 1).contains(&done), "{done} were done");
    bench.pass_millis(STALL_MS);
    assert_eq!((bench.answers.len(), refused(&bench)), (40, 40 - done));
    // It has been tried again all the while, and when it succeeds, changes go on.
    assert!(bench.held.len() > 1);
    bench.step(Event::Checkpointed { result: Ok(()) });
    bench.zero(99, span(5_000, 1));
    assert_eq!(bench.answers.last(), Some(&(Token(99), Ok(Answer::Done))));
}

#[test]
fn a_restart_never_has_to_replay_more_than_is_set_by_number_or_by_time() {
    let by_number = Config {
        replay_records_max: 20,
        ..Config::default()
    };
    let by_time = Config {
        replay_ms_max: 20,
        ..Config::default()
    };
    for (config, micros_per_record) in [(by_number, 1), (by_time, 1_000)] {
        let mut bench = holding_checkpoints(config);
        let core = &mut bench.core;
        core.learn_replay_cost(10_000, 10_000 * micros_per_record);
        assert_eq!(core.snapshot().replay_records_max, 20);
        for number in 0..60 {
            bench.zero(number, span(1_000, 1));
            let snapshot = bench.core.snapshot();
            assert!(snapshot.replay_records <= 20, "{}", snapshot.replay_records);
            assert_eq!(bench.held.len(), usize::from(number >= 9), "at half of it");
        }
        assert_eq!(bench.answers.len(), 20, "the others wait");
        bench.step(Event::Checkpointed { result: Ok(()) });
        assert_eq!(bench.answers.len(), 30, "room for half as many");
        assert_eq!(refused(&bench), 0);
    }
}

#[test]
fn what_finds_the_disk_full_waits_and_is_refused_in_the_end() {
    let mut bench = holding_checkpoints(Config {
        // Every batch needs a segment of its own.
        segment_bytes: 1,
        ..Config::default()
    });
    bench.write(1, span(1_000, 1), 1);
    // Their bytes are under way for a while.
    bench.holds = |command| matches!(command, Command::WriteSlots { .. } | Command::Checkpoint { .. });
    bench.write(2, span(1_001, 1), 2);
    bench.write(3, span(1_002, 1), 3);
    let segment = bench.core.journal_mark().segment + 1;
    bench.step(Event::JournalFull { segment });
    let batches = bench.journal_writes().count();
    let slots_dirty = bench.core.snapshot().slots_dirty;
    bench.holds = is_checkpoint;
    for _ in [2, 3] {
        bench.finish_held(|command| matches!(command, Command::WriteSlots { .. }));
    }
    bench.write(4, span(1_003, 1), 4);
    bench.zero(5, span(1_004, 1));
    let (token, links) = (Token(6), Vec::new());
    let change = MetadataChange::default();
    bench.step(Event::Commit { token, change, links });
    assert!(bench.core.snapshot().waits_for_journal);
    assert_eq!((bench.answers.len(), bench.journal_writes().count()), (1, batches));
    bench.pass_millis(STALL_MS);
    assert_eq!((bench.answers.len(), refused(&bench)), (6, 5));
    assert_eq!(bench.core.snapshot().slots_dirty, slots_dirty);
    // What comes while there is room again, or just before that, is done.
    bench.answers.clear();
    bench.write(7, span(1_005, 1), 7);
    assert_eq!(bench.answers, []);
    bench.step(Event::JournalHasRoom);
    bench.zero(8, span(1_006, 1));
    assert_eq!(bench.answers, [7, 8].map(|token| (Token(token), Ok(Answer::Done))));
    assert!(bench.journal_writes().count() > batches);
}

/// It waited for the lock of the first, and comes into the line of those without room when that one is refused.
#[test]
fn a_write_behind_one_that_is_refused_is_refused_with_it() {
    let mut bench = Bench::with(Config {
        slot_count: SLOTS,
        dirty_blocks_max: 4,
        stall_timeout_ms: STALL_MS,
        // Every batch needs a segment of its own.
        segment_bytes: 1,
        ..Config::default()
    })
    .holding(|command| matches!(command, Command::Upload { .. } | Command::Merge { .. }));
    bench.write(1, span(1_000, 4), 100);
    let write = PartialWrite {
        span: span(2_000, 1),
        head: Some(Token(20)),
        tail: None,
        zeroes: None,
        force_unit_access: false,
    };
    bench.step(Event::WritePartly { token: Token(2), write });
    bench.write(3, span(2_000, 1), 3);
    // The first has waited for its data until now, and waits for room from here on.
    bench.pass_millis(STALL_MS / 2);
    bench.finish_held(|command| matches!(command, Command::Merge { .. }));
    let segment = bench.core.journal_mark().segment + 1;
    bench.step(Event::JournalFull { segment });
    assert_eq!(bench.answers.len(), 1);
    bench.pass_millis(STALL_MS);
    assert_eq!((bench.answers.len(), refused(&bench)), (3, 2));
}
