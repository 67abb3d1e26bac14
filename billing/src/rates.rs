//! How fast something was used lately: looks at counters that only grow, fine ones of the last hour, coarse ones of the last day.

use crate::Usage;
use alloc::collections::VecDeque;

/// Seconds in an hour.
pub const HOUR_S: u64 = 3_600;
/// Seconds in a day.
pub const DAY_S: u64 = 86_400;
/// Between two looks of the last hour, and between two of the rest of the day.
const FINE_S: u64 = 60;
const COARSE_S: u64 = 900;

/// What was used between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const CAUSES: usize> {
    /// The time between them.
    pub span_s: u64,
    /// What was used meanwhile.
    pub used: [Usage; CAUSES],
}

impl<const CAUSES: usize> Window<CAUSES> {
    /// By what a sum over it is multiplied to be that of a day. What was used in the first hour is taken to be all that is used
    /// in it, so that a burst at the start does not become a fortune.
    pub fn per_day(&self) -> f64 {
        DAY_S as f64 / self.span_s.max(HOUR_S) as f64
    }
}

/// Looks at counters, at most about 160.
#[derive(Clone, Debug, Default)]
pub struct Rates<const CAUSES: usize> {
    /// Oldest first.
    looks: VecDeque<(u64, [Usage; CAUSES])>,
}

impl<const CAUSES: usize> Rates<CAUSES> {
    /// The counters at a time of a clock that only goes forward.
    pub fn look(&mut self, now_s: u64, counters: [Usage; CAUSES]) {
        if self.looks.back().is_some_and(|(at, _)| now_s < at + FINE_S) {
            return;
        }
        self.looks.push_back((now_s, counters));
        // The oldest that is still needed lies just before the day.
        while self.looks.get(1).is_some_and(|(at, _)| at + DAY_S <= now_s) {
            self.looks.pop_front();
        }
        let mut kept = None;
        self.looks.retain(|(at, _)| {
            let is_needed = at + HOUR_S + FINE_S >= now_s || kept.is_none_or(|kept| at / COARSE_S != kept);
            kept = Some(at / COARSE_S);
            is_needed
        });
    }

    /// From the last look that is at least `span_s` old, or the oldest, to `counters` now. Nothing before the first look.
    pub fn over(&self, now_s: u64, span_s: u64, counters: &[Usage; CAUSES]) -> Option<Window<CAUSES>> {
        let is_old = |look: &&(u64, _)| look.0 + span_s <= now_s;
        let (at, before) = self.looks.iter().rev().find(is_old).or(self.looks.front())?;
        let mut used = *counters;
        for (used, before) in used.iter_mut().zip(before) {
            *used = used.since(before);
        }
        let span_s = now_s.saturating_sub(*at);
        Some(Window { span_s, used })
    }
}
