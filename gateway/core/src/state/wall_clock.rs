//! The machine's clock beside the core's instants: which instant a time was that the journal or a checkpoint names, and
//! the other way round.

use tombolo_base::{Instant, WallTime};

const SECOND_MICROS: u64 = 1_000_000;

/// What the machine's clock said, in microseconds since 1970, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    at: Instant,
    micros: u64,
}

impl WallClock {
    pub fn new(at: Instant, micros: u64) -> Self {
        Self { at, micros }
    }

    /// Rounded down, so that nothing gets younger on the way through it.
    pub fn time_of(&self, instant: Instant) -> WallTime {
        let (later, earlier) = (instant.micros_since(self.at), self.at.micros_since(instant));
        let micros = (self.micros + later).saturating_sub(earlier);
        WallTime(u32::try_from(micros / SECOND_MICROS).unwrap_or(u32::MAX))
    }

    /// A time that has not come yet is one from before the clock was set back.
    pub fn instant_of(&self, time: WallTime, now: Instant) -> Instant {
        let micros = u64::from(time.0) * SECOND_MICROS;
        let (later, earlier) = (micros.saturating_sub(self.micros), self.micros.saturating_sub(micros));
        now.min(Instant(self.at.plus_micros(later).0.saturating_sub(earlier)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_comes_back_from_its_time_less_than_a_second_earlier() {
        let clock = WallClock::new(Instant(50_300_000), 1_000_700_000);
        let now = Instant(90_000_000);
        for micros in (SECOND_MICROS..now.0).step_by(333_333) {
            let found = clock.instant_of(clock.time_of(Instant(micros)), now);
            assert!(
                found <= Instant(micros) && micros - found.0 < SECOND_MICROS,
                "{micros}: {found:?}"
            );
        }
        assert_eq!(clock.instant_of(WallTime(5_000), now), now, "not in the future");
        assert_eq!(
            clock.instant_of(WallTime(0), now),
            Instant(0),
            "not before the first instant"
        );
        let young = WallClock::new(now, 7);
        assert_eq!(young.time_of(Instant(0)), WallTime(0));
    }
}
