//! Volumes that go while most of them is dirty, and what may happen before all of that has been given up.

use super::*;
use crate::config::Config;
use crate::event::{Answer, Command, Event, HashItem, HashResult, JobId, Refusal, Token, WriteRequest};
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, FIRST_PVBN};
use tombolo_base::{BlockSum, Fingerprint, Pvbn, Span};

const BLOCKS: u64 = 1_000;
const PIECE: u64 = 16;
/// Blocks of each write. The one behind is left out, so that every write is an extent.
const WRITTEN: u64 = 8;
const DIRTY: u64 = BLOCKS / (WRITTEN + 1) * WRITTEN;

/// A world that does all that it is asked for, but hash jobs and checkpoints.
struct Outside {
    bench: Bench,
    volume: VolumeId,
    token: u64,
    answers: Vec<Result<Answer, Refusal>>,
    hashes: Vec<(JobId, Vec<HashItem>)>,
    checkpoints: usize,
    /// The most dirty blocks, extents and slots that one step has freed.
    most: [u64; 3],
}

impl Outside {
    fn new(hash_jobs_max: usize) -> Self {
        let config = Config {
            slot_count: BLOCKS as u32,
            dirty_blocks_max: DIRTY as u32,
            flush_delay_ms: 3_600_000,
            throttle_start_permille: 1_000,
            sweep_blocks_max: PIECE,
            hash_jobs_max,
            ..Config::default()
        };
        let mut outside = Self {
            bench: Bench::with(config, Economy::default()),
            volume: VolumeId(0),
            token: 0,
            answers: Vec::new(),
            hashes: Vec::new(),
            checkpoints: 0,
            most: [0; 3],
        };
        outside.ask(|token| Event::VolumeCreate {
            token,
            name: "v".into(),
            blocks: BLOCKS,
        });
        let Some(Ok(Answer::Volume(volume))) = outside.answers.pop() else {
            panic!("the volume is made");
        };
        outside.volume = volume;
        outside
    }

    /// With one that is dirty all over.
    fn written(hash_jobs_max: usize) -> Self {
        let mut outside = Self::new(hash_jobs_max);
        for first in (0..DIRTY / WRITTEN).map(|index| index * (WRITTEN + 1)) {
            outside.write(first, WRITTEN);
        }
        assert_eq!(outside.left()[0], DIRTY);
        outside.flush();
        outside.most = [0; 3];
        outside
    }

    fn ask(&mut self, event: impl FnOnce(Token) -> Event) {
        self.token += 1;
        self.drive(event(Token(self.token)));
    }

    fn drive(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let before = self.left();
            self.bench.step(event);
            let after = self.left();
            for (most, (before, after)) in self.most.iter_mut().zip(before.into_iter().zip(after)) {
                *most = before.saturating_sub(after).max(*most);
            }
            for command in core::mem::take(&mut self.bench.out) {
                events.extend(self.carry_out(command));
            }
        }
    }

    /// Dirty blocks, extents of the overlay, slots that are not free.
    fn left(&self) -> [u64; 3] {
        let snapshot = self.bench.core.snapshot();
        let held = snapshot.slot_count - self.bench.core.slots.free_count();
        [snapshot.dirty_blocks, snapshot.overlay_extents, u64::from(held)]
    }

    fn carry_out(&mut self, command: Command) -> Option<Event> {
        let result = Ok(());
        match command {
            Command::Answer { result, .. } => self.answers.push(result),
            Command::Hash { job, items } => self.hashes.push((job, items)),
            Command::Checkpoint { .. } => self.checkpoints += 1,
            Command::WriteSlots { token, .. } => return Some(Event::SlotsWritten { token, result }),
            Command::WriteJournal(write) => {
                let (lsn, end) = (write.lsn, write.end);
                return Some(Event::JournalWritten { lsn, end, result });
            }
            Command::Sync { .. } => return Some(Event::Synced { result }),
            Command::Verify { job, .. } => return Some(Event::Verified { job, result: Ok(()) }),
            _ => {}
        }
        None
    }

    fn write(&mut self, first: u64, count: u64) {
        let span = self.span(first, count);
        self.ask(|token| Event::Write {
            token,
            request: WriteRequest::new(span, vec![Some(BlockSum(7)); count as usize]),
        });
    }

    fn trim(&mut self) {
        let (span, force_unit_access) = (self.span(0, BLOCKS), true);
        self.ask(|token| Event::Zero {
            token,
            span,
            force_unit_access,
        });
    }

    fn flush(&mut self) {
        self.ask(|token| Event::Flush { token });
    }

    fn span(&self, first: u64, count: u64) -> Span {
        let volume = self.volume;
        Span { volume, first, count }
    }

    /// As time passes and nobody asks for anything.
    fn wait(&mut self) {
        while self.bench.core.is_sweeping() || self.bench.core.has_due_transitions() {
            let due = self.bench.core.next_deadline().expect("there is something to do");
            self.bench.now = self.bench.now.max(due.0);
            self.drive(Event::Tick);
        }
    }

    fn mapped(&mut self) -> u64 {
        let span = self.span(0, BLOCKS);
        self.ask(|token| Event::Status { token, span });
        match self.answers.pop() {
            Some(Ok(Answer::Status(runs))) => runs.iter().filter(|run| run.mapped).map(|run| run.count).sum(),
            other => panic!("{other:?}"),
        }
    }

    /// The index knows the contents of all blocks.
    fn end_hashing(&mut self) -> usize {
        let mut ended = 0;
        while let Some((job, items)) = self.hashes.pop() {
            ended += items.len();
            let existing = Some(Pvbn(FIRST_PVBN));
            let fingerprint = Fingerprint([0; 32]);
            let results = vec![HashResult::Done { fingerprint, existing }; items.len()];
            self.drive(Event::Hashed { job, results });
        }
        ended
    }
}

#[test]
fn a_large_unmapping_counts_at_once_and_is_worked_off_in_pieces() {
    let unmap: [fn(&mut Outside); 2] = [Outside::trim, |outside| {
        let volume = outside.volume;
        outside.ask(|token| Event::VolumeResize {
            token,
            volume,
            blocks: 1,
        });
    }];
    for unmap in unmap {
        let mut outside = Outside::written(0);
        unmap(&mut outside);
        outside.wait();
        assert!(outside.most.iter().all(|most| *most <= PIECE + 1), "{:?}", outside.most);
        let [dirty, extents, held] = outside.left();
        assert!(dirty <= 1 && extents <= 4 && held <= 1, "{dirty} {extents} {held}");
    }
    let mut outside = Outside::written(0);
    outside.trim();
    assert!(outside.left()[0] > DIRTY / 2, "little of it is done yet");
    assert_eq!(outside.mapped(), 0);
}

#[test]
fn the_space_of_a_deleted_volume_lets_writes_go_on() {
    let mut outside = Outside::written(0);
    let deleted = outside.volume;
    outside.ask(|token| Event::VolumeCreate {
        token,
        name: "w".into(),
        blocks: BLOCKS,
    });
    let Some(Ok(Answer::Volume(volume))) = outside.answers.pop() else {
        panic!("the volume is made");
    };
    outside.volume = volume;
    outside.write(0, DIRTY);
    assert_eq!(outside.bench.core.snapshot().writes_waiting, 1, "at the cap");
    outside.ask(|token| Event::VolumeDelete { token, volume: deleted });
    outside.answers.clear();
    outside.wait();
    assert_eq!(outside.answers, [Ok(Answer::Done)]);
    assert_eq!((outside.left()[0], outside.mapped()), (DIRTY, DIRTY));
}

#[test]
fn what_is_written_into_a_range_that_is_being_unmapped_stays() {
    let mut outside = Outside::written(0);
    outside.trim();
    for first in [0, 500, 990] {
        outside.write(first, 3);
    }
    assert!(outside.bench.core.is_sweeping());
    assert_eq!(outside.mapped(), 9);
    outside.wait();
    assert_eq!((outside.left()[0], outside.mapped()), (9, 9));
}

#[test]
fn a_block_that_is_hashed_while_its_range_is_unmapped_does_not_come_back() {
    let mut outside = Outside::written(1);
    // Some are taken before, some while they wait to be given up.
    outside.drive(Event::Drain);
    let before: usize = outside.hashes.iter().map(|(_, items)| items.len()).sum();
    assert!(before > 0 && before < DIRTY as usize);
    outside.trim();
    assert!(outside.bench.core.is_sweeping());
    let mut hashed = 0;
    while !outside.hashes.is_empty() {
        hashed += outside.end_hashing();
        assert_eq!(outside.mapped(), 0);
    }
    assert!(hashed > before);
    outside.wait();
    outside.flush();
    outside.wait();
    let [dirty, _, held] = outside.left();
    assert_eq!((dirty, held, outside.mapped()), (0, 0, 0));
}

#[test]
fn a_checkpoint_waits_for_what_is_being_unmapped() {
    let mut outside = Outside::written(0);
    outside.trim();
    outside.drive(Event::CheckpointNow);
    while outside.bench.core.is_sweeping() {
        assert_eq!(outside.checkpoints, 0);
        outside.drive(Event::Tick);
    }
    outside.flush();
    assert_eq!(outside.checkpoints, 1);
}
