//! Real time as the core's instants, and the thread that wakes the core when a deadline has come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant as RealInstant, SystemTime, UNIX_EPOCH};
use tombolo_base::Instant;

#[derive(Debug)]
pub struct Clock {
    origin: RealInstant,
    /// The machine's clock less this one, as the core knows it.
    wall_offset: AtomicU64,
    alarm: Mutex<Alarm>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Alarm {
    at: Option<Instant>,
    /// When the thread wakes by itself; never later than `at`. While it is up it looks at `at` before it sleeps again.
    sleeps_until: Option<Instant>,
    stopped: bool,
}

/// The process's first instant: what was written before it has a place among instants too.
const START: Instant = Instant(1 << 52);
/// By so much the machine's clock must be off to have been set.
const SET_MICROS_MIN: u64 = 1_000_000;

/// Since 1970.
pub fn wall_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap_or_default().as_micros() as u64
}

/// Sleep without an end but being woken.
const FOR_EVER: Instant = Instant(u64::MAX);

/// Deadlines that lie in the past are served at most this often.
const REST: Duration = Duration::from_millis(1);

impl Default for Clock {
    fn default() -> Self {
        Self {
            origin: RealInstant::now(),
            wall_offset: AtomicU64::new(wall_micros().wrapping_sub(START.0)),
            alarm: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Clock {
    pub fn now(&self) -> Instant {
        START.plus_micros(self.origin.elapsed().as_micros() as u64)
    }

    /// What the machine's clock says when it is not what this clock expects, because it was set. Told once.
    pub fn wall_micros_if_set(&self) -> Option<u64> {
        let (now, wall) = (self.now().0, wall_micros());
        let found = wall.wrapping_sub(now);
        let expected = self.wall_offset.load(Ordering::Relaxed);
        let is_set = (found.wrapping_sub(expected) as i64).unsigned_abs() > SET_MICROS_MIN;
        is_set.then(|| {
            self.wall_offset.store(found, Ordering::Relaxed);
            wall
        })
    }

    /// The core's next deadline. It moves with nearly every step, mostly back and forth behind the time at which the
    /// thread wakes anyway, so the thread is woken only for one before that.
    pub fn set_alarm(&self, at: Option<Instant>) {
        let mut alarm = self.lock();
        alarm.at = at;
        let is_too_late = at.is_some_and(|at| alarm.sleeps_until.is_some_and(|until| at < until));
        if is_too_late {
            alarm.sleeps_until = at;
        }
        drop(alarm);
        if is_too_late {
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Calls `ring` at each deadline until stopped.
    pub fn run(&self, mut ring: impl FnMut()) {
        loop {
            let mut alarm = self.lock();
            loop {
                if alarm.stopped {
                    return;
                }
                let now = self.now();
                if alarm.at.is_some_and(|at| at <= now) {
                    break;
                }
                alarm.sleeps_until = Some(alarm.at.unwrap_or(FOR_EVER));
                alarm = match alarm.at {
                    Some(at) => {
                        let wait = Duration::from_micros(at.micros_since(now));
                        let woken = self.changed.wait_timeout(alarm, wait);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.changed.wait(alarm).unwrap_or_else(PoisonError::into_inner),
                };
                alarm.sleeps_until = None;
            }
            alarm.at = None;
            drop(alarm);
            ring();
            std::thread::sleep(REST);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Alarm> {
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    const SOON: Duration = Duration::from_millis(20);
    const FAR: Duration = Duration::from_secs(3600);

    fn after(clock: &Clock, wait: Duration) -> Instant {
        Instant(clock.now().0 + wait.as_micros() as u64)
    }

    #[test]
    fn rings_at_the_last_deadline_that_was_set_wherever_it_moved_from() {
        let clock = Arc::new(Clock::default());
        let (sender, rings) = channel();
        let ringing = clock.clone();
        let thread = std::thread::spawn(move || ringing.run(|| sender.send(ringing.now()).unwrap()));
        for path in [
            &[None][..],
            &[Some(FAR)],
            &[Some(FAR), None, Some(FAR)],
            &[Some(FAR / 2), Some(FAR)],
        ] {
            for stop in path {
                clock.set_alarm(stop.map(|wait| after(&clock, wait)));
                // Gives the thread the time to go to sleep with this one.
                std::thread::sleep(SOON / 4);
            }
            let due = after(&clock, SOON);
            clock.set_alarm(Some(due));
            let rung = rings.recv_timeout(Duration::from_secs(30)).unwrap();
            assert!(rung >= due, "not before its time");
            assert!(rings.recv_timeout(SOON).is_err(), "once");
        }
        clock.stop();
        thread.join().unwrap();
    }
}
