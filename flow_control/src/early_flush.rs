//! Whether data is uploaded before it has waited for the whole delay of the flush.
//!
//! The delay fills objects and absorbs what is overwritten or deleted soon. Once whole objects wait, the first is done; and where
//! hardly anything is replaced within the delay, as in a file that is copied, the second brings nothing: uploading then begins
//! while there still is writing, and costs no request more. How much the delay absorbs is learnt from what is replaced,
//! whether it was uploaded before that or not.

use alloc::collections::VecDeque;
use tombolo_base::{Instant, Pvbn};

/// What is averaged over, about: 64 MiB.
const WINDOW_BLOCKS: u64 = 1 << 14;
/// Waiting pays when more than one block in so many is absorbed.
const ABSORBED_SHARE: u64 = 8;
/// Steps in which it is known what was written within the delay.
const STEPS: u64 = 8;

/// The blocks of one gateway, in the order in which they were written.
#[derive(Debug, Default)]
pub struct EarlyFlush {
    delay_us: u64,
    /// `None`: never.
    blocks_min: Option<u64>,
    /// From which on blocks were written at these instants; what was written before the first is older than the delay, or nearly.
    steps: VecDeque<(Instant, Pvbn)>,
    written: u64,
    absorbed: u64,
}

impl EarlyFlush {
    /// `blocks_min`: how many must wait for an upload to begin early; `None`: none ever does.
    pub fn new(delay_ms: u64, blocks_min: Option<u64>) -> Self {
        Self {
            delay_us: delay_ms.saturating_mul(1_000),
            blocks_min,
            ..Self::default()
        }
    }

    /// Blocks were written, `first` and those behind it.
    pub fn on_written(&mut self, now: Instant, first: Pvbn, blocks: u64) {
        let is_near = |(at, _): &(Instant, Pvbn)| now.micros_since(*at) <= self.delay_us / STEPS;
        if self.steps.back().is_none_or(|last| !is_near(last)) {
            self.steps.push_back((now, first));
        }
        self.forget_old(now);
        self.written = self.written.saturating_add(blocks);
        while self.written > WINDOW_BLOCKS {
            self.written /= 2;
            self.absorbed /= 2;
        }
    }

    /// Nothing maps to these blocks any more: others were written in their place, or nothing.
    pub fn on_replaced(&mut self, now: Instant, first: Pvbn, blocks: u64) {
        self.forget_old(now);
        let Some((_, recent)) = self.steps.front() else { return };
        let end = first.0.saturating_add(blocks);
        self.absorbed = self.absorbed.saturating_add(end.saturating_sub(first.0.max(recent.0)));
    }

    fn forget_old(&mut self, now: Instant) {
        while self
            .steps
            .front()
            .is_some_and(|(at, _)| now.micros_since(*at) > self.delay_us)
        {
            self.steps.pop_front();
        }
    }

    /// Whether uploads begin now, when so many blocks wait for one.
    pub fn is_due(&self, waiting: u64) -> bool {
        self.blocks_min.is_some_and(|least| waiting >= least.max(1)) && !self.absorbs()
    }

    fn absorbs(&self) -> bool {
        self.absorbed.saturating_mul(ABSORBED_SHARE) > self.written
    }

    /// The share of what was written of late that was replaced within the delay.
    pub fn absorbed_share(&self) -> f64 {
        match self.written {
            0 => 0.0,
            written => (self.absorbed as f64 / written as f64).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DELAY_MS: u64 = 5_000;

    struct Writer {
        early: EarlyFlush,
        now: Instant,
        next: u64,
    }

    impl Writer {
        fn new() -> Self {
            Self {
                early: EarlyFlush::new(DELAY_MS, Some(4_096)),
                now: Instant(0),
                next: 1_000,
            }
        }

        fn write(&mut self, blocks: u64) -> Pvbn {
            let first = Pvbn(self.next);
            self.early.on_written(self.now, first, blocks);
            self.next += blocks;
            first
        }

        fn replace(&mut self, first: Pvbn, blocks: u64) {
            self.early.on_replaced(self.now, first, blocks);
        }

        fn pass(&mut self, millis: u64) {
            self.now = self.now.plus_millis(millis);
        }
    }

    #[test]
    fn what_nobody_replaces_goes_as_soon_as_there_is_enough() {
        let mut writer = Writer::new();
        writer.write(10_000);
        assert!(!writer.early.is_due(4_095) && writer.early.is_due(4_096));
        assert!(!EarlyFlush::new(DELAY_MS, None).is_due(u64::MAX));
    }

    #[test]
    fn what_is_replaced_at_once_waits() {
        let mut writer = Writer::new();
        let mut before = writer.write(64);
        for _ in 0..100 {
            writer.pass(10);
            writer.replace(before, 64);
            before = writer.write(64);
        }
        assert!(!writer.early.is_due(u64::MAX));
        assert!(writer.early.absorbed_share() > 0.9);
    }

    #[test]
    fn what_is_replaced_after_the_delay_does_not_count() {
        let mut writer = Writer::new();
        let mut before = writer.write(64);
        for _ in 0..100 {
            writer.pass(2 * DELAY_MS);
            writer.replace(before, 64);
            before = writer.write(64);
        }
        assert!(writer.early.is_due(u64::MAX));
        assert_eq!(writer.early.absorbed_share(), 0.0);
    }

    #[test]
    fn of_a_run_that_is_partly_young_the_young_part_counts() {
        let mut writer = Writer::new();
        let first = writer.write(100);
        writer.pass(2 * DELAY_MS);
        writer.write(100);
        writer.replace(first, 200);
        assert_eq!(writer.early.absorbed_share(), 0.5);
    }

    #[test]
    fn another_load_is_found_out_within_two_windows() {
        let mut writer = Writer::new();
        for _ in 0..1_000 {
            let first = writer.write(64);
            writer.replace(first, 64);
        }
        assert!(!writer.early.is_due(u64::MAX));
        for _ in 0..4 * WINDOW_BLOCKS / 64 {
            writer.write(64);
        }
        assert!(writer.early.is_due(u64::MAX));
    }

    proptest! {
        #[test]
        fn any_calls_are_allowed(
            delay_ms: u64,
            blocks_min: Option<u64>,
            calls: Vec<(bool, u64, u64, u64)>,
        ) {
            let mut early = EarlyFlush::new(delay_ms, blocks_min);
            for (is_written, at, first, blocks) in calls {
                match is_written {
                    true => early.on_written(Instant(at), Pvbn(first), blocks),
                    false => early.on_replaced(Instant(at), Pvbn(first), blocks),
                }
                early.is_due(blocks);
                prop_assert!((0.0..=1.0).contains(&early.absorbed_share()));
                prop_assert!(early.steps.len() as u64 <= STEPS + 2);
            }
        }
    }
}
