//! What is on its way to a replica, and whether that was too much: after a put that came too late, what is put is only noted, and
//! brought by and by, one object at a time. Else a burst over a thin link would be sent again and again, and nothing arrive. More at a
//! time are brought again while that is quick, and uploads wait for the replica again when it lacks nothing, or when what is brought
//! shows that it would carry them in time.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tombolo_flow_control::deadline::Parameters;

/// Objects that are brought at the same time, each held in memory whole.
const COPIES_MAX: usize = 4;
/// Twice as many may be brought at once after some that took no more than this part of the time that a request may take.
const QUICK_PARTS: u32 = 8;
/// What uploads that wait may have under way: 16 of the largest objects by default.
const WAITED_FOR_BYTES: u64 = 64 << 20;

/// Of one replica.
#[derive(Debug)]
pub struct PathLoad {
    /// Of puts under way.
    bytes: AtomicU64,
    /// A put came too late, and it has not caught up since.
    is_late: AtomicBool,
    copies: AtomicUsize,
}

impl Default for PathLoad {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            is_late: AtomicBool::new(false),
            copies: AtomicUsize::new(COPIES_MAX),
        }
    }
}

impl PathLoad {
    /// What so many bytes take at the least rate that a path is expected to have.
    pub fn carried(bytes: u64) -> Duration {
        Duration::from_micros(Parameters::answered_within(Duration::ZERO).carried_us(bytes, 1))
    }

    /// A put begins.
    pub fn enter(&self, bytes: u64) -> UnderWay<'_> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        UnderWay { load: self, bytes }
    }

    /// A put was given up.
    pub fn late(&self) {
        self.copies.store(1, Ordering::Relaxed);
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// Whether what is put is only noted.
    pub fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// How many objects are brought at once.
    pub fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }

    /// Some objects were brought at once; `allowed`: what a request may take.
    pub fn on_brought(&self, bytes: u64, elapsed: Duration, allowed: Duration) {
        if elapsed.saturating_mul(QUICK_PARTS) <= allowed {
            let copies = self.copies().saturating_mul(2).min(COPIES_MAX);
            self.copies.store(copies, Ordering::Relaxed);
        }
        let in_time = u128::from(bytes) * allowed.as_micros() / elapsed.as_micros().max(1);
        if in_time >= u128::from(WAITED_FOR_BYTES) {
            self.on_caught_up();
        }
    }

    /// It lacks nothing.
    pub fn on_caught_up(&self) {
        self.is_late.store(false, Ordering::Relaxed);
    }
}

/// A put that is under way.
#[derive(Debug)]
pub struct UnderWay<'l> {
    load: &'l PathLoad,
    bytes: u64,
}

impl UnderWay<'_> {
    /// Bytes of all of them.
    pub fn total(&self) -> u64 {
        self.load.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(16);

    #[test]
    fn after_one_that_was_late_one_at_a_time_is_brought_until_it_is_quick() {
        let load = PathLoad::default();
        assert_eq!((load.copies(), load.is_late()), (COPIES_MAX, false));
        load.late();
        load.on_brought(4 << 20, ALLOWED / 2, ALLOWED);
        assert_eq!((load.copies(), load.is_late()), (1, true));
        // Small objects are soon there over any path.
        load.on_brought(4 << 10, ALLOWED / 100, ALLOWED);
        load.on_brought(4 << 10, ALLOWED / 100, ALLOWED);
        assert_eq!((load.copies(), load.is_late()), (4, true));
        load.on_brought(16 << 20, ALLOWED / 4, ALLOWED);
        assert_eq!((load.copies(), load.is_late()), (4, false));
        load.late();
        load.on_caught_up();
        assert_eq!((load.copies(), load.is_late()), (1, false));
    }

    #[test]
    fn what_is_under_way_ends_with_its_put() {
        let load = PathLoad::default();
        let one = load.enter(100);
        {
            let two = load.enter(50);
            assert_eq!(two.total(), 150);
        }
        assert_eq!(one.total(), 100);
        assert_eq!(PathLoad::carried(250_000), Duration::from_secs(2));
    }
}
