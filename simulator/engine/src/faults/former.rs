//! Two gateways at one bucket: another machine takes it over while the gateway before is alive. That one goes on for a while,
//! with its own disk, its own clients and its own clock, perhaps after it stood still, and is to find out by itself.
//!
//! It is a world of its own, which shares nothing with its successor but the bucket and the time. What it promises it keeps,
//! as far as that is in its power: reads are right, nothing is said to be in the bucket that is not there, and once it has seen
//! the successor's root it accepts no change. What it does to the bucket harms nobody.

use crate::faults::clients::REQUEST_MICROS_MAX;
use crate::faults::operation::Operation;
use crate::faults::world::World;
use std::collections::BTreeSet;
use tombolo_core::{Event, PublishFailure, StopReason};

/// How long a former gateway may live on, and how long it may stand still before.
const LIFE_MICROS_MAX: u64 = 20_000_000;
const SLEEP_MICROS_MAX: u64 = 5_000_000;
/// How long a take-over takes from its look at the root to its own.
const TAKE_OVER_MICROS_MAX: u64 = 300_000;
/// Between two looks of a gateway at its root.
const RENEWAL_MICROS: u64 = 1_000_000;
const REQUESTS_MAX: u64 = 100;
/// How far clocks of two machines may differ.
const CLOCK_MICROS_MAX: u64 = 600_000_000;

/// What becomes of a gateway that is taken over from.
#[derive(Debug)]
pub(crate) struct Superseded {
    ends_at: u64,
    /// The successor's root is there.
    is_over: bool,
    /// It has seen that.
    knows: bool,
}

impl World {
    /// Whether another machine can take the bucket over and leave this one alive.
    pub(crate) fn may_be_left_alive(&self) -> bool {
        // Threads of the file service cannot be had twice, and the successor removes what an incomplete gateway has in the bucket.
        !self.service.has_clients() && self.metadata.is_whole() && self.superseded.is_none()
    }

    /// The gateway as it is goes on as a world of its own; nothing of it is left here but the bucket.
    pub(crate) fn leave_alive(&mut self) {
        self.end_former();
        let asleep = if self.prng.chance(300) {
            self.prng.below(SLEEP_MICROS_MAX)
        } else {
            0
        };
        let ends_at = self.now + asleep + self.prng.below(LIFE_MICROS_MAX);
        let mut former = self.move_to_another_machine();
        former.superseded = Some(Superseded {
            ends_at,
            is_over: false,
            knows: false,
        });
        former.clients.requests_left = former.clients.requests_left.min(self.prng.below(REQUESTS_MAX));
        for (key, operation) in former.take_operations() {
            match operation.is_of_the_world() {
                true => self.put_back(key, operation),
                false => former.put_back((key.0 + asleep, key.1), operation),
            }
        }
        former.now += asleep;
        former.schedule(self.prng.below(RENEWAL_MICROS), Operation::Renew);
        self.say(|| format!("another machine takes over; this one lives until {ends_at}, asleep for {asleep}"));
        self.former = Some(Box::new(former));
        let offset = self.prng.below(2 * CLOCK_MICROS_MAX).cast_signed();
        self.wall_offset_micros = offset - CLOCK_MICROS_MAX.cast_signed();
    }

    /// Whether the gateway before is alive, and its root the last.
    fn is_taking_over(&self) -> bool {
        let superseded = self.former.as_ref().and_then(|former| former.superseded.as_ref());
        superseded.is_some_and(|superseded| !superseded.is_over)
    }

    /// Between the look of a take-over at the root and its own root.
    pub(crate) fn let_former_run(&mut self) {
        if !self.is_taking_over() {
            return;
        }
        let until = self.now + self.prng.below(TAKE_OVER_MICROS_MAX);
        while self.former_is_next(until) {
            self.advance_former();
        }
        self.now = until;
    }

    /// The bucket has what the former gateway had told it in this moment.
    pub(crate) fn take_model_of_former(&mut self) {
        if self.is_taking_over()
            && let Some(former) = &mut self.former
            && let Some(superseded) = &mut former.superseded
        {
            superseded.is_over = true;
            self.model = former.model.clone();
        }
    }

    /// Whether the former gateway does something before that time.
    pub(crate) fn former_is_next(&self, until: u64) -> bool {
        let next = self.former.as_ref().map(|former| former.next_at().unwrap_or(0));
        next.is_some_and(|at| at <= until)
    }

    pub(crate) fn advance_former(&mut self) {
        let Some(mut former) = self.former.take() else { return };
        self.exchange_bucket(&mut former);
        let goes_on = former.advance_alone();
        self.exchange_bucket(&mut former);
        let ends_at = former.superseded.as_ref().map_or(0, |superseded| superseded.ends_at);
        let goes_on = goes_on && !former.restart_wanted && former.now < ends_at;
        self.former = Some(former);
        if !goes_on {
            self.end_former();
        }
    }

    fn exchange_bucket(&mut self, former: &mut Self) {
        std::mem::swap(&mut self.store, &mut former.store);
        std::mem::swap(&mut self.bucket.objects, &mut former.bucket.objects);
    }

    /// The former gateway dies. Requests to the store that are under way arrive some time.
    pub(crate) fn end_former(&mut self) {
        let Some(mut former) = self.former.take() else { return };
        former.say(|| "the former gateway ends".to_string());
        self.exchange_bucket(&mut former);
        former.check_superseded();
        for (key, operation) in former.take_operations() {
            match operation.is_of_the_world() {
                true => former.put_back(key, operation),
                false => former.interrupt(operation),
            }
        }
        self.exchange_bucket(&mut former);
        if former.superseded.as_ref().is_some_and(|superseded| !superseded.is_over) {
            self.model = former.model.clone();
        }
        for ((at, sequence), operation) in former.take_operations() {
            self.put_back((at.max(self.now), sequence), operation);
        }
        self.note_digest_of(&former);
        let known: BTreeSet<&String> = self.life.keys.values().collect();
        let strange = self.store.keys().filter(|key| !known.contains(key)).cloned();
        let strange: Vec<String> = strange.collect();
        self.orphans.extend(strange.iter().cloned());
        self.strange.extend(strange);
    }

    /// What a gateway has kept that was taken over from.
    fn check_superseded(&self) {
        let Some(superseded) = &self.superseded else { return };
        self.model.check_flushed_to_bucket();
        let failed = self.core.snapshot().failed;
        assert!(
            !superseded.knows || failed.is_some(),
            "it has seen another gateway's root, and goes on"
        );
        if let Some(StopReason::Fenced(_)) = failed {
            assert!(superseded.is_over, "nobody has taken over, and it has stopped");
        }
        let waits = self.requests.values().filter(|request| !request.is_cancelled);
        let oldest = waits.map(|request| request.at).min().unwrap_or(self.now);
        assert!(self.now - oldest < REQUEST_MICROS_MAX, "a request waits since {oldest}");
    }

    /// It has looked at the root, and that is another's.
    pub(crate) fn learn_of_successor(&mut self) {
        let superseded = self.superseded.as_mut().expect("nobody else writes to this bucket");
        assert!(superseded.is_over, "the successor has not put a root");
        superseded.knows = true;
    }

    /// Whether it has accepted its last change.
    pub(crate) fn is_fenced(&self) -> bool {
        matches!(self.core.snapshot().failed, Some(StopReason::Fenced(_)))
    }

    /// A gateway looks at its root now and then, though it has nothing to tell.
    pub(crate) fn renew(&mut self) {
        if self.superseded.is_none() {
            return;
        }
        let is_away = self.now < self.store.outage_until || self.is_fault(self.scenario.faults.get_failure);
        if !is_away && let Err(PublishFailure::Fenced(writer)) = self.look_at_root() {
            let reason = StopReason::Fenced(writer);
            return self.step(Event::Stop { reason });
        }
        self.schedule(RENEWAL_MICROS, Operation::Renew);
    }
}
