//! What grows while something outside does not get on: checkpoints that fail, a disk that is full.

use crate::config::Config;
use crate::event::{Answer, Command, Event, MetadataError, Refusal, Token, WriteRequest};
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, SLOTS, VOLUME};
use std::collections::BTreeMap;
use tombolo_base::{BlockSum, Instant, MetadataChange, Span};

const STALL_MS: u64 = 2_000;

/// A world whose disk does all it is asked for, but checkpoints.
struct Outside {
    bench: Bench,
    answers: BTreeMap<u64, Result<Answer, Refusal>>,
    checkpoints: usize,
    batches: usize,
    /// Bytes of these writes are under way for as long as the test likes.
    slow: Vec<Token>,
}

impl Outside {
    fn new(config: Config) -> Self {
        let config = Config {
            slot_count: SLOTS,
            dirty_blocks_max: 32,
            stall_timeout_ms: STALL_MS,
            ..config
        };
        Self {
            bench: Bench::with(config, Economy::default()),
            answers: BTreeMap::new(),
            checkpoints: 0,
            batches: 0,
            slow: Vec::new(),
        }
    }

    fn step(&mut self, event: Event) {
        self.bench.step(event);
        while !self.bench.out.is_empty() {
            for command in std::mem::take(&mut self.bench.out) {
                self.carry_out(command);
            }
        }
    }

    fn carry_out(&mut self, command: Command) {
        let result = Ok(());
        match command {
            Command::Answer { token, result } => {
                self.answers.insert(token.0, result);
            }
            Command::WriteSlots { token, .. } if self.slow.contains(&token) => {}
            Command::WriteSlots { token, .. } => self.bench.step(Event::SlotsWritten { token, result }),
            Command::WriteJournal(write) => {
                self.batches += 1;
                let (lsn, end) = (write.lsn, write.end);
                self.bench.step(Event::JournalWritten { lsn, end, result });
            }
            Command::Sync { .. } => self.bench.step(Event::Synced { result }),
            Command::Checkpoint { .. } => self.checkpoints += 1,
            _ => {}
        }
    }

    fn zero(&mut self, token: u64, first: u64) {
        let event = Event::Zero {
            token: Token(token),
            span: span(first),
            force_unit_access: false,
        };
        self.step(event);
    }

    fn write(&mut self, token: u64, first: u64) {
        let event = Event::Write {
            token: Token(token),
            request: WriteRequest::new(span(first), vec![Some(BlockSum(token))]),
        };
        self.step(event);
    }

    /// To the next deadlines, up to the end of the time after which what waits is refused.
    fn wait_out(&mut self) {
        let end = self.bench.now + STALL_MS * 1_000;
        while let Some(at) = self.bench.core.next_deadline().filter(|at| *at <= Instant(end)) {
            self.bench.now = self.bench.now.max(at.0);
            self.step(Event::Tick);
        }
        self.bench.now = end;
        self.step(Event::Tick);
    }

    fn refused(&self) -> usize {
        let answers = self.answers.values();
        answers.filter(|answer| **answer == Err(Refusal::Busy)).count()
    }
}

fn span(first: u64) -> Span {
    Span {
        volume: VOLUME,
        first,
        count: 1,
    }
}

fn failed() -> Event {
    let result = Err(MetadataError("the disk is full".into()));
    Event::Checkpointed { result }
}

#[test]
fn while_checkpoints_fail_changes_stay_within_twice_the_bound_and_are_refused_beyond() {
    const BOUND: usize = 8;
    let mut outside = Outside::new(Config {
        overlay_extents_max: BOUND,
        ..Config::default()
    });
    for number in 0..40 {
        outside.zero(number, 1_000 + 2 * number);
        if outside.checkpoints > 0 {
            outside.step(failed());
        }
    }
    let extents = outside.bench.core.snapshot().overlay_extents;
    assert!(extents <= 2 * BOUND as u64 + 1, "{extents}");
    assert!(outside.bench.core.snapshot().waits_for_checkpoint);
    let done = outside.answers.len();
    assert!((2 * BOUND - 2..=2 * BOUND + 1).contains(&done), "{done} were done");
    outside.wait_out();
    assert_eq!((outside.answers.len(), outside.refused()), (40, 40 - done));
    // It has been tried again all the while, and when it succeeds, changes go on.
    assert!(outside.checkpoints > 1);
    outside.step(Event::Checkpointed { result: Ok(()) });
    outside.zero(99, 5_000);
    assert_eq!(outside.answers.get(&99), Some(&Ok(Answer::Done)));
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
        let mut outside = Outside::new(config);
        let core = &mut outside.bench.core;
        core.learn_replay_cost(10_000, 10_000 * micros_per_record);
        assert_eq!(core.snapshot().replay_records_max, 20);
        for number in 0..60 {
            outside.zero(number, 1_000);
            let snapshot = outside.bench.core.snapshot();
            assert!(snapshot.replay_records <= 20, "{}", snapshot.replay_records);
            assert_eq!(outside.checkpoints, usize::from(number >= 9), "at half of it");
        }
        assert_eq!(outside.answers.len(), 20, "the others wait");
        outside.step(Event::Checkpointed { result: Ok(()) });
        assert_eq!(outside.answers.len(), 30, "room for half as many");
        assert_eq!(outside.refused(), 0);
    }
}

#[test]
fn what_finds_the_disk_full_waits_and_is_refused_in_the_end() {
    let mut outside = Outside::new(Config {
        // Every batch needs a segment of its own.
        segment_bytes: 1,
        ..Config::default()
    });
    outside.write(1, 1_000);
    outside.slow = vec![Token(2), Token(3)];
    outside.write(2, 1_001);
    outside.write(3, 1_002);
    let segment = outside.bench.core.journal_mark().segment + 1;
    outside.step(Event::JournalFull { segment });
    let batches = outside.batches;
    let slots_dirty = outside.bench.core.snapshot().slots_dirty;
    for token in [2, 3].map(Token) {
        outside.step(Event::SlotsWritten { token, result: Ok(()) });
    }
    outside.write(4, 1_003);
    outside.zero(5, 1_004);
    let (token, links) = (Token(6), Vec::new());
    let change = MetadataChange::default();
    outside.step(Event::Commit { token, change, links });
    assert!(outside.bench.core.snapshot().waits_for_journal);
    assert_eq!((outside.answers.len(), outside.batches), (1, batches));
    outside.wait_out();
    assert_eq!((outside.answers.len(), outside.refused()), (6, 5));
    assert_eq!(outside.bench.core.snapshot().slots_dirty, slots_dirty);
    // What comes while there is room again, or just before that, is done.
    outside.write(7, 1_005);
    assert_eq!(outside.answers.get(&7), None);
    outside.step(Event::JournalHasRoom);
    outside.zero(8, 1_006);
    for number in [7, 8] {
        assert_eq!(outside.answers.get(&number), Some(&Ok(Answer::Done)));
    }
    assert!(outside.batches > batches);
}
