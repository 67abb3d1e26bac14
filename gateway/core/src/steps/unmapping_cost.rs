//! Not a test but a measurement: how long the core is held at a time while a million dirty blocks are unmapped at once.
//! `cargo test --release -p tombolo-core the_cost_of_unmapping -- --ignored --nocapture`

use crate::config::Config;
use crate::event::{Answer, Event, Token, WriteRequest};
use crate::test_bench::{Bench, cpu_nanoseconds};
use std::collections::BTreeMap;
use tombolo_base::{BlockSum, FlushMode, Span, VolumeId};

/// 4 GiB, the most that one NBD request makes zeroes.
const BLOCKS: u64 = 1 << 20;

/// A volume of which nothing is hashed, and how long each step took.
struct Unmapping {
    bench: Bench,
    volume: VolumeId,
    /// The longest step with each event and how many there were.
    steps: BTreeMap<&'static str, (u64, u64)>,
}

impl Unmapping {
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
        let mut unmapping = Self {
            bench: Bench::large(config),
            volume: VolumeId(0),
            steps: BTreeMap::new(),
        };
        unmapping.ask(|token| Event::VolumeCreate {
            token,
            name: "v".into(),
            blocks: BLOCKS,
            flush: FlushMode::Local,
        });
        let Some((_, Ok(Answer::Volume(volume)))) = unmapping.bench.answers.pop() else {
            panic!("the volume is made");
        };
        unmapping.volume = volume;
        unmapping
    }

    fn ask(&mut self, event: impl FnOnce(Token) -> Event) {
        let token = self.bench.next_token();
        self.step(event(token));
    }

    fn step(&mut self, event: Event) {
        self.bench.events.push_back(event);
        while let Some(event) = self.bench.events.pop_front() {
            let name = name_of(&event);
            let began = cpu_nanoseconds();
            self.bench.tell(event);
            let took = cpu_nanoseconds() - began;
            let (longest, count) = self.steps.entry(name).or_default();
            *longest = took.max(*longest);
            *count += 1;
            self.bench.carry_out();
        }
        self.bench.commands.clear();
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
            self.bench.now += 1_000;
            self.step(Event::Tick);
        }
        let (token, mode) = (Token(0), FlushMode::Local);
        self.step(Event::Flush { token, mode });
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
            "in order" => Unmapping::write_in_order,
            _ => Unmapping::write_scattered,
        };
        let mut unmapping = Unmapping::new();
        write(&mut unmapping);
        unmapping.tell(&format!("written {order}"));
        unmapping.trim(0, BLOCKS);
        unmapping.rest();
        unmapping.tell(&format!("{order}: TRIM of 4 GiB"));
        unmapping.step(Event::CheckpointNow);
        unmapping.tell(&format!("{order}: checkpoint behind it"));
        write(&mut unmapping);
        unmapping.tell(&format!("written {order} again"));
        unmapping.delete();
        unmapping.rest();
        unmapping.tell(&format!("{order}: deletion"));
    }
    let mut unmapping = Unmapping::new();
    unmapping.write_in_order();
    unmapping.tell("in order");
    (256..BLOCKS).step_by(256).for_each(|first| unmapping.trim(first, 256));
    let blocks = unmapping.steps.values().map(|(_, count)| count).sum::<u64>();
    unmapping.tell(&format!("TRIM of 1 MiB at a time, all but the oldest: {blocks} steps"));
}
