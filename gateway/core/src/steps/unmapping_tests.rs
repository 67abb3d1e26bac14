//! Volumes that go while most of them is dirty, and what may happen before all of that has been given up.

use super::*;
use crate::config::Config;
use crate::event::{Answer, Command, Event, Token};
use crate::test_bench::{Bench, is_checkpoint};
use tombolo_base::{FlushMode, Span};

const BLOCKS: u64 = 1_000;
const PIECE: u64 = 16;
/// Blocks of each write. The one behind is left out, so that every write is an extent.
const WRITTEN: u64 = 8;
const DIRTY: u64 = BLOCKS / (WRITTEN + 1) * WRITTEN;

/// A volume; hash jobs and checkpoints are held back.
struct Unmapping {
    bench: Bench,
    volume: VolumeId,
    /// The most dirty blocks, extents and slots that one step has freed.
    most: [u64; 3],
}

impl Unmapping {
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
        let mut unmapping = Self {
            bench: Bench::with(config).holding(|command| is_hash(command) || is_checkpoint(command)),
            volume: VolumeId(0),
            most: [0; 3],
        };
        unmapping.volume = unmapping.create("v");
        unmapping
    }

    fn create(&mut self, name: &str) -> VolumeId {
        self.ask(|token| Event::VolumeCreate {
            token,
            name: name.into(),
            blocks: BLOCKS,
            flush: FlushMode::Local,
        });
        match self.bench.answers.pop() {
            Some((_, Ok(Answer::Volume(volume)))) => volume,
            other => panic!("{other:?}"),
        }
    }

    /// With one that is dirty all over.
    fn written(hash_jobs_max: usize) -> Self {
        let mut unmapping = Self::new(hash_jobs_max);
        for first in (0..DIRTY / WRITTEN).map(|index| index * (WRITTEN + 1)) {
            unmapping.write(first, WRITTEN);
        }
        assert_eq!(unmapping.left()[0], DIRTY);
        unmapping.flush();
        unmapping.most = [0; 3];
        unmapping
    }

    fn ask(&mut self, event: impl FnOnce(Token) -> Event) {
        let token = self.bench.next_token();
        self.step(event(token));
    }

    fn step(&mut self, event: Event) {
        self.bench.events.push_back(event);
        while let Some(event) = self.bench.events.pop_front() {
            let before = self.left();
            self.bench.tell(event);
            let after = self.left();
            for (most, (before, after)) in self.most.iter_mut().zip(before.into_iter().zip(after)) {
                *most = before.saturating_sub(after).max(*most);
            }
            self.bench.carry_out();
        }
    }

    /// Dirty blocks, extents of the overlay, slots that are not free.
    fn left(&self) -> [u64; 3] {
        let snapshot = self.bench.core.snapshot();
        let held = snapshot.slot_count - self.bench.core.slots.free_count();
        [snapshot.dirty_blocks, snapshot.overlay_extents, u64::from(held)]
    }

    fn write(&mut self, first: u64, count: u64) {
        let (token, span) = (self.bench.next_token(), self.span(first, count));
        self.bench.write(token.0, span, 7);
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
        let mode = FlushMode::Local;
        self.ask(|token| Event::Flush { token, mode });
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
            self.step(Event::Tick);
        }
    }

    fn mapped(&mut self) -> u64 {
        let span = self.span(0, BLOCKS);
        self.ask(|token| Event::Status { token, span });
        match self.bench.answers.pop() {
            Some((_, Ok(Answer::Status(runs)))) => runs.iter().filter(|run| run.mapped).map(|run| run.count).sum(),
            other => panic!("{other:?}"),
        }
    }
}

fn is_hash(command: &Command) -> bool {
    matches!(command, Command::Hash { .. })
}

fn blocks_hashed(bench: &Bench) -> usize {
    let blocks = bench.commands.iter().map(|command| match command {
        Command::Hash { items, .. } => items.len(),
        _ => 0,
    });
    blocks.sum()
}

#[test]
fn a_large_unmapping_counts_at_once_and_is_worked_off_in_pieces() {
    let unmap: [fn(&mut Unmapping); 2] = [Unmapping::trim, |unmapping| {
        let volume = unmapping.volume;
        unmapping.ask(|token| Event::VolumeResize {
            token,
            volume,
            blocks: 1,
        });
    }];
    for unmap in unmap {
        let mut unmapping = Unmapping::written(0);
        unmap(&mut unmapping);
        unmapping.wait();
        assert!(
            unmapping.most.iter().all(|most| *most <= PIECE + 1),
            "{:?}",
            unmapping.most
        );
        let [dirty, extents, held] = unmapping.left();
        assert!(dirty <= 1 && extents <= 4 && held <= 1, "{dirty} {extents} {held}");
    }
    let mut unmapping = Unmapping::written(0);
    unmapping.trim();
    assert!(unmapping.left()[0] > DIRTY / 2, "little of it is done yet");
    assert_eq!(unmapping.mapped(), 0);
}

#[test]
fn the_space_of_a_deleted_volume_lets_writes_go_on() {
    let mut unmapping = Unmapping::written(0);
    let deleted = unmapping.volume;
    unmapping.volume = unmapping.create("w");
    unmapping.write(0, DIRTY);
    assert_eq!(unmapping.bench.core.snapshot().writes_waiting, 1, "at the cap");
    unmapping.ask(|token| Event::VolumeDelete { token, volume: deleted });
    unmapping.bench.answers.clear();
    unmapping.wait();
    assert!(matches!(unmapping.bench.answers[..], [(_, Ok(Answer::Done))]));
    assert_eq!((unmapping.left()[0], unmapping.mapped()), (DIRTY, DIRTY));
}

#[test]
fn what_is_written_into_a_range_that_is_being_unmapped_stays() {
    let mut unmapping = Unmapping::written(0);
    unmapping.trim();
    for first in [0, 500, 990] {
        unmapping.write(first, 3);
    }
    assert!(unmapping.bench.core.is_sweeping());
    assert_eq!(unmapping.mapped(), 9);
    unmapping.wait();
    assert_eq!((unmapping.left()[0], unmapping.mapped()), (9, 9));
}

#[test]
fn a_block_that_is_hashed_while_its_range_is_unmapped_does_not_come_back() {
    let mut unmapping = Unmapping::written(1);
    // Some are taken before, some while they wait to be given up.
    unmapping.step(Event::Drain);
    let before = blocks_hashed(&unmapping.bench);
    assert!(before > 0 && before < DIRTY as usize);
    unmapping.trim();
    assert!(unmapping.bench.core.is_sweeping());
    while unmapping.bench.count_held(is_hash) > 0 {
        // The index knows the contents of all blocks.
        unmapping.bench.finish_held(is_hash);
        assert_eq!(unmapping.mapped(), 0);
    }
    assert!(blocks_hashed(&unmapping.bench) > before);
    unmapping.wait();
    unmapping.flush();
    unmapping.wait();
    let [dirty, _, held] = unmapping.left();
    assert_eq!((dirty, held, unmapping.mapped()), (0, 0, 0));
}

#[test]
fn a_checkpoint_waits_for_what_is_being_unmapped() {
    let mut unmapping = Unmapping::written(0);
    unmapping.trim();
    unmapping.step(Event::CheckpointNow);
    while unmapping.bench.core.is_sweeping() {
        assert_eq!(unmapping.bench.count(is_checkpoint), 0);
        unmapping.step(Event::Tick);
    }
    unmapping.flush();
    assert_eq!(unmapping.bench.count(is_checkpoint), 1);
}
