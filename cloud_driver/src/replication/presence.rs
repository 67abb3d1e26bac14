//! Whether a store counts as away: pure, driven by what requests came to.
//!
//! One request that failed for good (its own retries and its deadline are over) is enough: from then on nobody waits for that
//! store, and what it lacks is noted. Probes find out when it is back, at intervals that double up to a bound. One that is back
//! and fails again soon, such as a store that answers small requests alone, begins with the interval that it had reached, so it
//! holds nobody up often.

use tombolo_base::Instant;

/// Between the first failure and the first probe.
const PROBE_FIRST_MICROS: u64 = 1_000_000;
/// The longest time between two probes.
pub const PROBE_MICROS_MAX: u64 = 60_000_000;
/// A store that was here for so many of its last intervals begins with the first again.
const FORGIVEN_AFTER_INTERVALS: u64 = 8;

/// Of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    state: State,
    /// Between two probes, when it was away last.
    interval_micros: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Here { since: Instant },
    Away { since: Instant, probe_at: Instant },
}

impl Presence {
    /// Nothing is known against it yet.
    pub const fn new(now: Instant) -> Self {
        Self {
            state: State::Here { since: now },
            interval_micros: 0,
        }
    }

    /// Whether requests wait for it.
    pub const fn is_here(&self) -> bool {
        matches!(self.state, State::Here { .. })
    }

    /// When it is to be asked whether it is back.
    pub const fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Here { .. } => None,
            State::Away { probe_at, .. } => Some(probe_at),
        }
    }

    /// Whether that is now.
    pub fn is_probe_due(&self, now: Instant) -> bool {
        self.probe_at().is_some_and(|at| at <= now)
    }

    /// A request failed, and repeating it did not help. True: it counts as away from now on.
    pub fn failed(&mut self, now: Instant) -> bool {
        match self.state {
            State::Here { since } => {
                let forgiven_micros = self.interval_micros.saturating_mul(FORGIVEN_AFTER_INTERVALS);
                if now.micros_since(since) >= forgiven_micros {
                    self.interval_micros = 0;
                }
                self.lengthen();
                let probe_at = now.plus_micros(self.interval_micros);
                self.state = State::Away { since: now, probe_at };
                true
            }
            State::Away { since, probe_at } if probe_at <= now => {
                self.lengthen();
                let probe_at = now.plus_micros(self.interval_micros);
                self.state = State::Away { since, probe_at };
                false
            }
            // Sent before it was known to be away.
            State::Away { .. } => false,
        }
    }

    /// A request that was sent then has been answered. True: it is back.
    pub fn answered(&mut self, sent: Instant, now: Instant) -> bool {
        match self.state {
            State::Away { since, .. } if sent >= since => {
                self.state = State::Here { since: now };
                true
            }
            _ => false,
        }
    }

    fn lengthen(&mut self) {
        let doubled = self.interval_micros.saturating_mul(2);
        self.interval_micros = doubled.clamp(PROBE_FIRST_MICROS, PROBE_MICROS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000)
    }

    #[test]
    fn intervals_double_and_are_forgiven_later() {
        let mut presence = Presence::new(at(0));
        assert!(presence.failed(at(10)));
        let mut intervals = Vec::new();
        for _ in 0..8 {
            let due = presence.probe_at().unwrap();
            assert!(!presence.failed(due));
            intervals.push(presence.probe_at().unwrap().micros_since(due) / 1_000_000);
        }
        assert_eq!(intervals, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(presence.answered(at(1_000), at(1_000)));
        assert!(presence.failed(at(1_001)));
        assert_eq!(presence.probe_at(), Some(at(1_061)));
        assert!(presence.answered(at(1_061), at(1_061)));
        assert!(presence.failed(at(1_061 + 480)));
        assert_eq!(presence.probe_at(), Some(at(1_061 + 481)));
    }

    #[test]
    fn what_was_sent_before_tells_nothing() {
        let mut presence = Presence::new(at(0));
        assert!(presence.failed(at(10)));
        let before = presence;
        assert!(!presence.answered(at(9), at(10)));
        assert!(!presence.failed(at(10)));
        assert_eq!(presence, before);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Fail,
        Answer { sent_ago_micros: u64 },
        Wait { micros: u64 },
        Probe { succeeds: bool },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Fail),
            (0..5_000_000_u64).prop_map(|sent_ago_micros| Step::Answer { sent_ago_micros }),
            (0..100_000_000_u64).prop_map(|micros| Step::Wait { micros }),
            any::<bool>().prop_map(|succeeds| Step::Probe { succeeds }),
        ]
    }

    proptest! {
        /// Away exactly from a failure to the next answer to what was sent since; a probe is always due within the bound.
        #[test]
        fn it_is_away_from_a_failure_to_an_answer(steps in prop::collection::vec(step(), 0..60)) {
            let mut now = at(100);
            let mut presence = Presence::new(now);
            let mut away_since = None;
            for step in steps {
                match step {
                    Step::Fail => {
                        prop_assert_eq!(presence.failed(now), away_since.is_none());
                        away_since.get_or_insert(now);
                    }
                    Step::Answer { sent_ago_micros } => {
                        let sent = Instant(now.0 - sent_ago_micros);
                        let counts = away_since.is_some_and(|since| sent >= since);
                        prop_assert_eq!(presence.answered(sent, now), counts);
                        away_since = away_since.filter(|_| !counts);
                    }
                    Step::Wait { micros } => now = now.plus_micros(micros),
                    Step::Probe { succeeds } => {
                        let Some(due) = presence.probe_at() else { continue };
                        now = now.max(due);
                        prop_assert!(presence.is_probe_due(now));
                        if succeeds {
                            prop_assert!(presence.answered(now, now));
                            away_since = None;
                        } else {
                            presence.failed(now);
                            prop_assert!(presence.probe_at().unwrap() > now);
                        }
                    }
                }
                prop_assert_eq!(presence.is_here(), away_since.is_none());
                if let Some(due) = presence.probe_at() {
                    prop_assert!(due.micros_since(now) <= PROBE_MICROS_MAX);
                }
            }
        }
    }
}
