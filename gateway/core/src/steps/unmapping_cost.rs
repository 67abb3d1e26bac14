//! Not a test but a measurement: how long the core is held at a time while a million dirty blocks are unmapped at once.
//! `cargo test --release -p tombolo-core the_cost_of_unmapping -- --ignored --nocapture`

use crate::config::Config;
use crate::event::{Answer, Command, Event, Token, WriteRequest};
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, cpu_nanoseconds};
use std::collections::BTreeMap;
use tombolo_base::{BlockSum, Instant, Span, VolumeId};

/// 4 GiB, the most that one NBD request makes zeroes.
const BLOCKS: u64 = 1 << 20;

/// A world that does all that it is asked for, but hashes nothing, and notes how long each step took.
struct Outside {
    bench: Bench,
    volume: VolumeId,
    now: Instant,
    /// The longest step with each event and how many there were.
    steps: BTreeMap<&'static str, (u64, u64)>,
    token: u64,
}

impl Outside {
    fn new() -> Self {
        let config = Config {
            slot_count: BLOCKS as u32 + 4_096,
            dirty_blocks_max: BLOCKS as u32 + 1_024,
            flush_delay_ms: u64::MAX / 4_000,
            throttle_start_permille: 1_000,
            checkpoint_interval_ms: u64::MAX / 4_000,
            checkpoint_journal_bytes: u64::MAX,
            hash_jobs_max: 0,
            overlay_extents_max: usize::MAX,
            overlay_slot_pages_max: usize::MAX,
            replay_records_max: u64::MAX,
            replay_ms_max: u64::MAX / 1_000,
            ..Config::default()
        };
        let mut outside = Self {
            bench: Bench::with(config, Economy::default()),
            volume: VolumeId(0),
            now: Instant(0),
            steps: BTreeMap::new(),
            token: 0,
        };
        outside.ask(|token| Event::VolumeCreate {
            token,
            name: "v".into(),
            blocks: BLOCKS,
        });
        outside
    }

    fn ask(&mut self, event: impl FnOnce(Token) -> Event) {
        self.token += 1;
        self.drive(event(Token(self.token)));
    }

    fn drive(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for command in self.step(event) {
                events.extend(self.carry_out(command));
            }
        }
    }

    fn step(&mut self, event: Event) -> Vec<Command> {
        self.now = self.now.plus_micros(10);
        let (mut commands, name) = (Vec::new(), name_of(&event));
        let began = cpu_nanoseconds();
        self.bench.core.step(self.now, event, &mut commands);
        let took = cpu_nanoseconds() - began;
        let (longest, count) = self.steps.entry(name).or_default();
        *longest = took.max(*longest);
        *count += 1;
        commands
    }

    fn carry_out(&mut self, command: Command) -> Option<Event> {
        let result = Ok(());
        Some(match command {
            Command::Answer {
                result: Ok(Answer::Volume(volume)),
                ..
            } => {
                self.volume = volume;
                return None;
            }
            Command::WriteSlots { token, .. } => Event::SlotsWritten { token, result },
            Command::WriteJournal(write) => {
                let (lsn, end) = (write.lsn, write.end);
                Event::JournalWritten { lsn, end, result }
            }
            Command::Sync { .. } => Event::Synced { result },
            Command::Checkpoint { .. } => Event::Checkpointed { result: Ok(()) },
            _ => return None,
        })
    }

    fn write(&mut self, first: u64, count: u64) {
        let volume = self.volume;
        self.ask(|token| Event::Write {
            token,
            request: WriteRequest::new(Span { volume, first, count }, vec![Some(BlockSum(7)); count as usize]),
        });
    }

    fn write_in_order(&mut self) {
        (0..BLOCKS).step_by(256).for_each(|first| self.write(first, 256));
    }

    fn write_scattered(&mut self) {
        (0..BLOCKS).for_each(|index| self.write(index * 40_503 % BLOCKS, 1));
    }

    fn trim(&mut self, first: u64, count: u64) {
        let (volume, force_unit_access) = (self.volume, true);
        self.ask(|token| Event::Zero {
            token,
            span: Span { volume, first, count },
            force_unit_access,
        });
    }

    fn delete(&mut self) {
        let volume = self.volume;
        self.ask(|token| Event::VolumeDelete { token, volume });
    }

    /// Until nothing is left to be done, a checkpoint included.
    fn rest(&mut self) {
        for _ in 0..10_000 {
            if self.bench.core.snapshot().dirty_blocks == 0 {
                break;
            }
            self.now = self.now.plus_millis(1);
            self.drive(Event::Tick);
        }
        self.drive(Event::Flush { token: Token(0) });
    }

    fn tell(&mut self, what: &str) {
        let steps = std::mem::take(&mut self.steps);
        let (name, (longest, _)) = steps.iter().max_by_key(|(_, (longest, _))| *longest).unwrap();
        let count: u64 = steps.values().map(|(_, count)| count).sum();
        let left = self.bench.core.snapshot().dirty_blocks;
        println!(
            "| {what} | {:.1} ({name}) | {count} | {left} |",
            *longest as f64 / 1_000_000.0
        );
    }
}

fn name_of(event: &Event) -> &'static str {
    match event {
        Event::Write { .. } => "write",
        Event::SlotsWritten { .. } => "slots written",
        Event::JournalWritten { .. } => "journal written",
        Event::Synced { .. } => "synced",
        Event::Checkpointed { .. } => "checkpointed",
        Event::Tick => "tick",
        Event::CheckpointNow => "checkpoint",
        Event::Flush { .. } => "flush",
        _ => "request",
    }
}

#[test]
#[ignore = "a measurement"]
fn the_cost_of_unmapping() {
    println!("| 2^20 dirty blocks | longest step, ms | steps | left dirty |\n|---|---|---|---|");
    for order in ["in order", "scattered"] {
        let write = match order {
            "in order" => Outside::write_in_order,
            _ => Outside::write_scattered,
        };
        let mut outside = Outside::new();
        write(&mut outside);
        outside.tell(&format!("written {order}"));
        outside.trim(0, BLOCKS);
        outside.rest();
        outside.tell(&format!("{order}: TRIM of 4 GiB"));
        outside.drive(Event::CheckpointNow);
        outside.tell(&format!("{order}: checkpoint behind it"));
        write(&mut outside);
        outside.tell(&format!("written {order} again"));
        outside.delete();
        outside.rest();
        outside.tell(&format!("{order}: deletion"));
    }
    let mut outside = Outside::new();
    outside.write_in_order();
    outside.tell("in order");
    (256..BLOCKS).step_by(256).for_each(|first| outside.trim(first, 256));
    let blocks = outside.steps.values().map(|(_, count)| count).sum::<u64>();
    outside.tell(&format!("TRIM of 1 MiB at a time, all but the oldest: {blocks} steps"));
}
