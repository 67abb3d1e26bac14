//! When the next sync of a journal begins, while clients wait for one and none runs.
//!
//! A client that was answered at the end of a sync writes and asks again a moment later: too late for a sync that began at once
//! with those who waited already. So clients fall into two halves that take turns, and each waits for nearly two syncs.
//! [`Rule::Gather`] waits for those who were just answered, as many of them as came back in time of late, and no longer than
//! a sync takes: waiting pays if they are back sooner than that. Where few come back it begins at once, and so it does where syncs are
//! short: there it is the processors that clients wait for, and those would only stand idle.
//!
//! [`Rule::Stout`] leaves it to [`Stout`], with a sync as the request and the journal's bytes as what it brings.

use crate::stout::{self, Stout};
use tombolo_base::Instant;

/// How a sync's beginning is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// As soon as somebody waits.
    #[default]
    Immediate,
    /// When those are back who were answered last.
    Gather,
    /// By Stout's intervals.
    Stout,
}

impl Rule {
    /// As settings write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Gather => "gather",
            Self::Stout => "stout",
        }
    }
}

/// What is waited for clients at the most; less where a sync is shorter.
const WINDOW_US_MAX: u64 = 4_000;
/// Nobody waits for others before syncs that are shorter.
const SYNC_US_MIN: u64 = 1_000;
/// The weight of the newest sync in averages.
const AVERAGE_WEIGHT: f64 = 1.0 / 8.0;
/// Waiting for fewer than this share costs those who wait more than it spares the others.
const RETURNING_MIN: f64 = 0.25;

/// For metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// The one at work.
    pub rule: Rule,
    /// How long a sync takes, on average.
    pub sync_us: u64,
    /// How long a sync was held back at the most, or between the beginnings of two, by the rule as it stands now.
    pub interval_us: u64,
    /// The share of those who were answered that come back within that.
    pub returning: f64,
    /// Syncs that somebody waited for.
    pub syncs: u64,
    /// Those among them that were held back.
    pub held_back: u64,
    /// Stout's decisions to shorten its interval.
    pub accelerations: u64,
    /// Those to lengthen it.
    pub back_offs: u64,
}

/// One journal.
#[derive(Clone, Debug)]
pub struct GroupCommit {
    rule: Rule,
    stout: Stout,
    /// Since when the oldest of those waits for whom the next sync is.
    waiting_since: Option<Instant>,
    /// The one that runs: since when it was waited for, and when it began.
    running: Option<(Instant, Instant)>,
    sync_us: f64,
    /// Of a sync, on average: who was answered, and who came within the window since.
    answered_average: f64,
    came_average: f64,
    /// The last that ended.
    ended: Instant,
    answered: u32,
    /// Who waited when it ended.
    left: u32,
    /// Who came within the window since, though a sync may have begun before.
    came: u32,
    state: State,
}

impl GroupCommit {
    /// Knows nothing yet.
    pub fn new(rule: Rule, now: Instant) -> Self {
        Self {
            rule,
            stout: Stout::new(stout::Parameters::GROUP_COMMIT, now),
            waiting_since: None,
            running: None,
            sync_us: 0.0,
            answered_average: 0.0,
            came_average: 0.0,
            ended: Instant(0),
            answered: 0,
            left: 0,
            came: 0,
            state: State::default(),
        }
    }

    /// Somebody waits for a sync from now on.
    pub fn on_waiting(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
        if now <= self.window_end() {
            self.came = self.came.saturating_add(1);
        }
    }

    /// When a sync for so many may begin: an instant that is past means at once.
    pub fn due(&self, waiting: u32) -> Instant {
        match self.rule {
            Rule::Immediate => Instant(0),
            Rule::Stout => self.stout.next_due(),
            Rule::Gather if waiting >= self.left.saturating_add(self.expected()) => Instant(0),
            Rule::Gather => self.window_end(),
        }
    }

    /// A sync begins, for all who wait.
    pub fn on_begun(&mut self, now: Instant) {
        let since = self.waiting_since.take();
        self.running = Some((since.unwrap_or(now), now));
        self.stout.on_batch(now);
        if let Some(since) = since {
            self.state.syncs += 1;
            self.state.held_back += u64::from(now > since.max(self.ended));
        }
    }

    /// It has ended: so many are answered now, so many wait already. It brought so many bytes of journal to the disk.
    pub fn on_ended(&mut self, now: Instant, answered: u32, waiting: u32, bytes: u64) {
        let Some((since, begun)) = self.running.take() else {
            return;
        };
        if self.answered > 0 {
            let came = self.came.min(self.answered);
            self.answered_average += (f64::from(self.answered) - self.answered_average) * AVERAGE_WEIGHT;
            self.came_average += (f64::from(came) - self.came_average) * AVERAGE_WEIGHT;
        }
        let took_us = now.micros_since(begun) as f64;
        self.sync_us = match self.sync_us {
            0.0 => took_us,
            average => average + (took_us - average) * AVERAGE_WEIGHT,
        };
        (self.ended, self.answered, self.left, self.came) = (now, answered, waiting, 0);
        if answered > 0 {
            self.stout.on_completed(now, since, bytes);
        }
    }

    /// For metrics.
    pub fn state(&self) -> State {
        let stout = self.stout.state();
        State {
            sync_us: self.sync_us as u64,
            interval_us: match self.rule {
                Rule::Immediate => 0,
                Rule::Gather if self.returning() < RETURNING_MIN => 0,
                Rule::Gather => self.window_us(),
                Rule::Stout => stout.interval_us,
            },
            rule: self.rule,
            returning: self.returning(),
            accelerations: stout.accelerations,
            back_offs: stout.back_offs,
            ..self.state
        }
    }

    fn returning(&self) -> f64 {
        match self.answered_average {
            0.0 => 0.0,
            answered => self.came_average / answered,
        }
    }

    fn window_us(&self) -> u64 {
        match self.sync_us as u64 {
            short if short < SYNC_US_MIN => 0,
            sync_us => sync_us.min(WINDOW_US_MAX),
        }
    }

    fn window_end(&self) -> Instant {
        self.ended.plus_micros(self.window_us())
    }

    /// Of those who were answered last.
    fn expected(&self) -> u32 {
        match self.returning() {
            few if few < RETURNING_MIN => 0,
            share => (f64::from(self.answered) * share + 0.5) as u32,
        }
    }
}

#[cfg(test)]
mod tests;
