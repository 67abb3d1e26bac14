/// Microseconds since an origin that the world chooses (process start, or zero in a simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// Seconds since 1970 as the machine's clock tells them, which may be set at any time. Instants begin anew with each start
/// of the process, so this alone tells how old something from before it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u32);

impl Instant {
    /// So many milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// Later by so much, at most the end of time.
    pub const fn plus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Later by so much, at most the end of time.
    pub const fn plus_millis(self, millis: u64) -> Self {
        self.plus_micros(millis.saturating_mul(1_000))
    }

    /// Zero when `earlier` is in fact later.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Of those that there are.
    pub fn earliest<const N: usize>(of: [Option<Self>; N]) -> Option<Self> {
        of.into_iter().fold(None, |earliest, at| match (earliest, at) {
            (Some(earliest), Some(at)) => Some(earliest.min(at)),
            _ => earliest.or(at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_of_those_that_there_are() {
        let [zero, one, end] = [0, 1, u64::MAX].map(|at| Some(Instant(at)));
        assert_eq!(Instant::earliest([]), None);
        assert_eq!(Instant::earliest([None, None]), None);
        assert_eq!(Instant::earliest([one, None, zero]), zero);
        assert_eq!(Instant::earliest([None, end, None]), end, "the end of time is a time");
        assert_eq!(Instant::earliest([end, one]), one);
    }
}
