//! One seed from beginning to end: load and faults, calm, and what must then hold.

use crate::faults::clients::REQUEST_MICROS_MAX;
use crate::faults::scenario::{Canary, Scenario};
use crate::faults::world::World;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tombolo_base::{Prng, VolumeId};
use tombolo_core::{Counters, Event, PolicyCounters, Span};

/// Events of one run beyond which it is said to hang; ordinary ones need some thousands.
const EVENTS_MAX: u64 = 2_000_000;

/// What came of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of every event, command and answer in order.
    pub digest: u64,
    /// Starts of the gateway.
    pub lives: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// How long it took in virtual time.
    pub virtual_micros: u64,
    /// The core's, of the last life.
    pub counters: Counters,
    /// Of the last life, over all pairs of policies.
    pub policies: PolicyCounters,
}

/// Runs a seed. The error says what did not hold.
pub fn run_seed(seed: u64, canary: Option<Canary>, trace: bool) -> Result<Outcome, String> {
    let result = catch_unwind(AssertUnwindSafe(|| run(seed, canary, trace)));
    result.map_err(|panic| text_of(&*panic))
}

/// What a panic has said.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panic without a message").to_string()
}

fn run(seed: u64, canary: Option<Canary>, trace: bool) -> Outcome {
    let mut prng = Prng::new(seed);
    let scenario = Scenario::draw(&mut prng, canary);
    if trace {
        println!("{scenario:#?}");
    }
    let mut world = World::new(seed, scenario, trace);
    world.bear_load();
    world.calm_down();
    world.verify("warm");
    // A block whose only copy rotted is dirty again after a restart, and its slot is missed in a new cache file.
    if world.core.snapshot().slots_corrupt == 0 {
        world.restart_with_new_cache();
    } else {
        world.crash(false);
    }
    world.settle_service();
    world.verify("cold");
    world.drain();
    world.make_checkpoint();
    world.check_tables();
    world.check_bucket();
    let snapshot = world.core.snapshot();
    Outcome {
        digest: world.digest(),
        lives: world.lives,
        answered: world.clients.answered,
        virtual_micros: world.now,
        counters: snapshot.counters,
        policies: snapshot.policies.total(),
    }
}

impl World {
    fn bear_load(&mut self) {
        let mut events = 0u64;
        while self.clients.requests_left + self.service.requests_left > 0 && self.advance() {
            events += 1;
            assert!(events < EVENTS_MAX, "hang: the load is never done");
            self.check_hangs();
        }
    }

    fn check_hangs(&self) {
        if let Some((token, request)) = self.requests.iter().find(|(_, request)| !request.is_cancelled) {
            assert!(
                self.now.saturating_sub(request.at) < REQUEST_MICROS_MAX,
                "hang: {token:?}, {:?} of {:?}, waits since {}: {:?}",
                request.kind,
                request.span,
                request.at,
                self.core.snapshot()
            );
        }
    }

    /// Faults end; everything must be answered, uploaded and in a checkpoint.
    fn calm_down(&mut self) {
        self.end_former();
        self.is_calm = true;
        self.crash_after_events = None;
        self.store.outage_until = self.now;
        self.checkpoint_outage_until = self.now;
        self.full_until = self.now;
        self.say(|| "calm".to_string());
        if self.life.has_failed {
            self.crash(false);
        }
        self.settle("requests are answered", |world| {
            world.requests.values().all(|request| request.is_cancelled) && !world.is_writing()
        });
        self.settle_service();
        self.look_at_service();
        self.settle_service();
        self.drain();
        self.make_checkpoint();
    }

    fn drain(&mut self) {
        self.step(Event::Drain);
        self.settle("everything is uploaded, and the bucket knows it", |world| {
            world.core.is_drained()
        });
    }

    fn settle_service(&mut self) {
        self.settle("the file service is at rest", |world| world.service.is_at_rest());
    }

    fn make_checkpoint(&mut self) {
        self.step(Event::CheckpointNow);
        self.settle("a checkpoint holds everything", |world| world.core.is_checkpointed());
    }

    fn settle(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let since = self.now;
        let mut events = 0u64;
        while !is_done(self) {
            let goes_on = self.advance();
            events += 1;
            assert!(
                goes_on && self.now - since < REQUEST_MICROS_MAX && events < EVENTS_MAX,
                "hang: in calm, it does not come to pass that {what}: {:?}, {:?}",
                self.core.snapshot(),
                self.requests
            );
        }
    }

    fn verify(&mut self, what: &str) {
        self.say(|| format!("verify {what}"));
        let volumes = self.model.volumes().iter();
        let mut parts: Vec<(VolumeId, u64, u64)> = volumes
            .map(|(volume, found)| (*volume, 0, found.values.len() as u64))
            .collect();
        for (file, blocks) in &self.model.state().files {
            parts.extend(used_parts(blocks.keys().copied()).map(|part| (*file, part.start, part.end)));
        }
        let step = self.scenario.read_blocks_max;
        for (volume, start, end) in parts {
            let firsts = (start..end).step_by(step as usize);
            self.clients.to_verify.extend(firsts.map(|first| Span {
                volume,
                first,
                count: step.min(end - first),
            }));
        }
        self.clients.verify_refusals = 0;
        for _ in 0..self.scenario.client_count {
            self.verify_next();
        }
        self.settle("everything is read", |world| {
            world.clients.to_verify.is_empty() && world.requests.values().all(|request| request.is_cancelled)
        });
    }
}

/// Holes longer than this between a file's blocks are left out.
const HOLE_BLOCKS_MAX: u64 = 1024;

/// The parts of a sparse file that hold its blocks, with what lies before each.
fn used_parts(blocks: impl Iterator<Item = u64>) -> impl Iterator<Item = Range<u64>> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match parts.last_mut() {
            Some(last) if block - last.end <= HOLE_BLOCKS_MAX => last.end = block + 1,
            _ => parts.push(block.saturating_sub(HOLE_BLOCKS_MAX)..block + 1),
        }
    }
    parts.into_iter()
}
