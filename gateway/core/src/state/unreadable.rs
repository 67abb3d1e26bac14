//! Dirty blocks whose slots could not be read, and when each is read again.
//!
//! A path to the disk may be gone for minutes and come back, and the slot holds the only copy of what a client was told
//! is kept. So the pauses double up to a bound, and only a block that stays unreadable to the end is given up.

use alloc::collections::{BTreeMap, BTreeSet};
use tombolo_base::{Instant, Pvbn};

const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 60_000;

#[derive(Debug, Default)]
pub struct Unreadable {
    blocks: BTreeMap<Pvbn, Failures>,
    due: BTreeSet<(Instant, Pvbn)>,
}

#[derive(Debug, Default)]
struct Failures {
    /// One after another.
    count: u32,
    /// `None`: the block is being read.
    retry_at: Option<Instant>,
}

impl Unreadable {
    /// The block was read in vain once more. Returns how often that makes.
    pub fn failed(&mut self, pvbn: Pvbn) -> u32 {
        let failures = self.blocks.entry(pvbn).or_default();
        assert!(failures.retry_at.is_none(), "a block that waits is not read");
        failures.count += 1;
        failures.count
    }

    /// Of a block that has failed.
    pub fn retry_later(&mut self, pvbn: Pvbn, now: Instant) {
        let failures = self.blocks.entry(pvbn).or_default();
        let delay_ms = RETRY_MS_MIN << failures.count.saturating_sub(1).min(16);
        let at = now.plus_millis(delay_ms.min(RETRY_MS_MAX));
        failures.retry_at = Some(at);
        self.due.insert((at, pvbn));
    }

    /// A block whose time has come.
    pub fn pop_due(&mut self, now: Instant) -> Option<Pvbn> {
        let (_, pvbn) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.pop_first();
        if let Some(failures) = self.blocks.get_mut(&pvbn) {
            failures.retry_at = None;
        }
        Some(pvbn)
    }

    /// The block was read, or is gone.
    pub fn forget(&mut self, pvbn: Pvbn) {
        let at = self.blocks.remove(&pvbn).and_then(|failures| failures.retry_at);
        if let Some(at) = at {
            self.due.remove(&(at, pvbn));
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        let waiting = self.blocks.iter();
        let waiting = waiting.filter_map(|(pvbn, failures)| Some((failures.retry_at?, *pvbn)));
        assert_eq!(waiting.collect::<BTreeSet<_>>(), self.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_double_up_to_the_bound() {
        let mut unreadable = Unreadable::default();
        let mut pauses_ms = Vec::new();
        let mut now = Instant(0);
        for time in 1..=8 {
            assert_eq!(unreadable.failed(Pvbn(7)), time);
            unreadable.retry_later(Pvbn(7), now);
            let at = unreadable.deadline().unwrap();
            assert_eq!(unreadable.pop_due(Instant(at.0 - 1)), None);
            assert_eq!(unreadable.pop_due(at), Some(Pvbn(7)));
            pauses_ms.push((at.0 - now.0) / 1_000);
            now = at;
            unreadable.check_invariants();
        }
        assert_eq!(pauses_ms, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        unreadable.forget(Pvbn(7));
        assert_eq!((unreadable.failed(Pvbn(7)), unreadable.deadline()), (1, None));
    }
}
