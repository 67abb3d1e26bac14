//! When dirty blocks were written: a step function from PVBNs, which grow with time, to instants. It has few steps, so
//! that a checkpoint can keep it, and is never later than the truth: what is said of data at risk is a bound.

use alloc::collections::VecDeque;
use tombolo_base::{Instant, Pvbn};

/// Beyond so many a step is joined with the one before it: an age is then too great by about a hundredth of the span of all.
pub(crate) const AGES_MAX: usize = 256;
/// Of a step, at the most and at the least.
const STEP_MICROS_MAX: u64 = 1_000_000;
const STEP_MICROS_MIN: u64 = 1_000;
/// Steps in the time that blocks wait for others: what is too great by this share of it begins a round so much too soon.
const STEPS_OF_DELAY: u64 = 32;

#[derive(Debug)]
pub(crate) struct Ages {
    step_micros: u64,
    /// Both ascend.
    steps: VecDeque<(Pvbn, Instant)>,
}

impl Ages {
    /// For rounds that begin at the age of `delay_ms`.
    pub fn new(delay_ms: u64) -> Self {
        let step_micros = delay_ms.saturating_mul(1_000) / STEPS_OF_DELAY;
        Self {
            step_micros: step_micros.clamp(STEP_MICROS_MIN, STEP_MICROS_MAX),
            steps: VecDeque::new(),
        }
    }

    /// Blocks from `first` on were written at `at` or later.
    pub fn note(&mut self, first: Pvbn, at: Instant) {
        let mut first = first;
        // A clock that was set back says of older blocks that they are younger. They are not.
        while let Some((older, _)) = self.steps.back().filter(|(_, other)| *other > at) {
            first = *older;
            self.steps.pop_back();
        }
        let is_near = |(_, before): &(Pvbn, Instant)| at.micros_since(*before) < self.step_micros;
        if self.steps.back().is_none_or(|last| !is_near(last)) {
            self.steps.push_back((first, at));
        }
        if self.steps.len() > AGES_MAX {
            self.join();
        }
    }

    /// Takes out the step that is nearest to the one before it.
    fn join(&mut self) {
        let distance = |index: &usize| self.steps[*index].1.micros_since(self.steps[*index - 1].1);
        if let Some(index) = (1..self.steps.len()).min_by_key(distance) {
            self.steps.remove(index);
        }
    }

    /// Nothing below `front` is dirty any more; `None`: nothing at all.
    pub fn trim(&mut self, front: Option<Pvbn>) {
        match front {
            Some(front) => {
                while self.steps.get(1).is_some_and(|(first, _)| *first <= front) {
                    self.steps.pop_front();
                }
            }
            None => self.steps.clear(),
        }
    }

    pub fn of(&self, pvbn: Pvbn) -> Option<Instant> {
        let index = self.steps.partition_point(|(first, _)| *first <= pvbn);
        self.steps.get(index.saturating_sub(1)).map(|(_, at)| *at)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Pvbn, Instant)> {
        self.steps.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = STEP_MICROS_MAX;
    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn an_age_is_never_too_small_and_hardly_too_great() {
        const END: u64 = 30_000;
        let mut ages = Ages::new(HOUR_MS);
        let written_at = |pvbn: u64| Instant(pvbn * SECOND / 3);
        for pvbn in 0..END {
            ages.note(Pvbn(pvbn), written_at(pvbn));
        }
        assert_eq!(ages.iter().count(), AGES_MAX);
        for pvbn in 0..END {
            let found = ages.of(Pvbn(pvbn)).unwrap();
            let (true_at, error) = (written_at(pvbn), written_at(pvbn).micros_since(found));
            assert!(
                found <= true_at && error <= SECOND + written_at(END).0 / 64,
                "{pvbn}: {error}"
            );
        }
        ages.trim(Some(Pvbn(END - 1)));
        assert_eq!(ages.iter().count(), 1);
        ages.trim(None);
        assert_eq!(ages.of(Pvbn(END)), None);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_younger() {
        let mut ages = Ages::new(HOUR_MS);
        for (pvbn, second) in [(1, 100), (5, 200), (9, 150), (12, 160)] {
            ages.note(Pvbn(pvbn), Instant(second * SECOND));
        }
        let found = [1, 5, 9, 12].map(|pvbn| ages.of(Pvbn(pvbn)).unwrap().0 / SECOND);
        assert_eq!(found, [100, 150, 150, 160]);
    }
}
