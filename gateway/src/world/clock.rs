//! Real time as the core's instants, and the thread that wakes the core when a deadline has come.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant as RealInstant};
use tombolo_base::Instant;

#[derive(Debug)]
pub struct Clock {
    origin: RealInstant,
    alarm: Mutex<Alarm>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Alarm {
    at: Option<Instant>,
    stopped: bool,
}

/// Deadlines that lie in the past are served at most this often.
const REST: Duration = Duration::from_millis(1);

impl Default for Clock {
    fn default() -> Self {
        Self {
            origin: RealInstant::now(),
            alarm: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Clock {
    pub fn now(&self) -> Instant {
        Instant(self.origin.elapsed().as_micros() as u64)
    }

    /// The core's next deadline.
    pub fn set_alarm(&self, at: Option<Instant>) {
        let mut alarm = self.lock();
        if alarm.at != at {
            let earlier = at.is_some_and(|at| alarm.at.is_none_or(|set| at < set));
            alarm.at = at;
            if earlier {
                self.changed.notify_one();
            }
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
                match alarm.at {
                    Some(at) if at <= now => break,
                    Some(at) => {
                        let wait = Duration::from_micros(at.micros_since(now));
                        alarm = self
                            .changed
                            .wait_timeout(alarm, wait)
                            .unwrap_or_else(|e| e.into_inner())
                            .0;
                    }
                    None => alarm = self.changed.wait(alarm).unwrap_or_else(|e| e.into_inner()),
                }
            }
            alarm.at = None;
            drop(alarm);
            ring();
            std::thread::sleep(REST);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Alarm> {
        self.alarm.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
