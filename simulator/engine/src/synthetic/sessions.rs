//! What a client does between coming and going: it picks a project, and does one thing after another there.

use super::Specification;
use super::dataset::Printed;
use super::model;
use super::popularity::Popularity;
use super::projects::{Extent, Project, geometric, lognormal, short_read};
use super::quotas::{Activity, Quotas};
use super::runs::{self, RunFiles};
use crate::random;
use tombolo_base::Prng;

/// A request without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub time_us: u64,
    pub client: u32,
    pub is_write: bool,
    pub extent: Extent,
}

/// All that sessions share.
#[derive(Clone, Debug)]
pub struct Office {
    prng: Prng,
    quotas: Quotas,
    clients: u64,
    projects: Vec<Project>,
    popularity: Popularity,
    run_files: RunFiles,
    /// Of a read that belongs to no long run, in blocks.
    read_mean: f64,
    whole_write_share: f64,
    /// From here to there lies what only cold reads ask for.
    cold: (u64, u64),
    /// Where the next new file begins.
    next: u64,
}

/// A client at work.
struct Session<'a> {
    requests: &'a mut Vec<Request>,
    client: u32,
    time_us: f64,
    project: usize,
}

impl Session<'_> {
    fn ask(&mut self, is_write: bool, extent: Extent) {
        self.requests.push(Request {
            time_us: self.time_us as u64,
            client: self.client,
            is_write,
            extent,
        });
    }
}

fn scaled(count: f64, scale: f64) -> u64 {
    (count * scale).round().max(1.0) as u64
}

/// Requests to be made, by activity.
fn quotas(printed: &Printed, trace: Specification) -> Quotas {
    let reads = scaled(printed.reads as f64, trace.scale);
    let in_runs = scaled(printed.run_reads(), trace.scale);
    let task_share = if trace.templates == 0 { 0.0 } else { model::TASK_SHARE };
    let in_tasks = ((reads - in_runs) as f64 * task_share).round() as u64;
    let writes = scaled(printed.writes as f64, trace.scale);
    Quotas::new([in_tasks, in_runs, reads - in_runs - in_tasks, writes])
}

impl Office {
    pub fn new(trace: Specification) -> Self {
        let printed = trace.dataset.printed();
        let mut prng = Prng::new(trace.seed);
        let (read_mean, mut next) = (printed.mean_short_read(), 0);
        let count = scaled(model::PROJECTS, trace.scale);
        let projects: Vec<_> = (0..count)
            .map(|_| Project::new(&mut prng, trace.templates, read_mean, &mut next))
            .collect();
        let popularity = Popularity::new(&mut prng, count as u32, model::EXPONENT);
        let run_files = RunFiles::new(&mut prng, printed.run_blocks() * trace.scale, &mut next);
        let stored = scaled(printed.stored_blocks(), trace.scale).max(next + model::SHORT_READ_MAX);
        Self {
            prng,
            quotas: quotas(printed, trace),
            clients: scaled(printed.clients as f64, trace.scale),
            projects,
            popularity,
            run_files,
            read_mean,
            whole_write_share: (printed.mean_write() - model::SHORT_WRITE)
                / (model::WHOLE_WRITE as f64 - model::SHORT_WRITE),
            cold: (next, stored),
            next: stored,
        }
    }

    /// Still to be made, of all sessions.
    pub fn left(&self) -> u64 {
        self.quotas.left_in_all()
    }

    /// A session from `start_us` on, until no more than `left_after` requests are to be made.
    pub fn session(&mut self, start_us: u64, left_after: u64, requests: &mut Vec<Request>) {
        let mut session = Session {
            requests,
            client: self.prng.below(self.clients) as u32,
            time_us: start_us as f64,
            project: self.popularity.draw(&mut self.prng),
        };
        while self.left() > left_after
            && let Some(activity) = self.quotas.draw(&mut self.prng)
        {
            let before = session.requests.len();
            let count_max = self.quotas.left(activity);
            match activity {
                Activity::Task => self.task(&mut session, count_max),
                Activity::Run => self.run(&mut session, count_max),
                Activity::Scattered => self.scattered(&mut session, count_max),
                Activity::Burst => self.burst(&mut session, count_max),
            }
            self.quotas.spend(activity, (session.requests.len() - before) as u64);
            session.time_us += lognormal(&mut self.prng, model::THINK);
        }
    }

    /// A day has passed.
    pub fn drift(&mut self) {
        self.popularity.drift(&mut self.prng, model::DRIFT_PERMILLE);
        self.run_files.drift(&mut self.prng);
    }

    fn task(&mut self, session: &mut Session<'_>, count_max: u64) {
        let end = session.requests.len() + count_max as usize;
        let task = self.prng.below(self.projects[session.project].tasks.len() as u64) as usize;
        for step in 0..self.projects[session.project].tasks[task].len() {
            if self.prng.chance(model::SKIP_PERMILLE) {
                continue;
            }
            if session.requests.len() < end && self.prng.chance(model::INSERT_PERMILLE) {
                let other = self.short_read(session.project);
                self.read(session, other);
            }
            let extent = self.step(session.project, task, step);
            if session.requests.len() < end {
                self.read(session, extent);
            }
        }
    }

    /// What is read in a task's step this time.
    fn step(&mut self, project: usize, task: usize, step: usize) -> Extent {
        if !self.prng.chance(model::SUBSTITUTE_PERMILLE) {
            return self.projects[project].tasks[task][step];
        }
        let other = self.short_read(project);
        if self.prng.chance(model::AGING_PERMILLE) {
            self.projects[project].tasks[task][step] = other;
        }
        other
    }

    fn short_read(&mut self, project: usize) -> Extent {
        let blocks = short_read(&mut self.prng, self.read_mean);
        self.projects[project].extent(&mut self.prng, blocks)
    }

    fn read(&mut self, session: &mut Session<'_>, extent: Extent) {
        session.time_us += lognormal(&mut self.prng, model::READ_PAUSE);
        session.ask(false, extent);
    }

    fn run(&mut self, session: &mut Session<'_>, count_max: u64) {
        let (mut first, mut left) = self.run_files.draw(&mut self.prng);
        for _ in 0..count_max {
            let blocks = runs::request(&mut self.prng, left);
            session.time_us += lognormal(&mut self.prng, model::RUN_PAUSE);
            session.ask(false, Extent { first, blocks });
            (first, left) = (first + blocks, left - blocks);
            if left == 0 {
                break;
            }
        }
    }

    fn scattered(&mut self, session: &mut Session<'_>, count_max: u64) {
        let count = geometric(&mut self.prng, model::SCATTERED_READS).min(count_max);
        for _ in 0..count {
            let mut extent = self.short_read(session.project);
            if self.prng.chance(model::COLD_PERMILLE) {
                let (first, end) = self.cold;
                extent.first = first + self.prng.below(end - first - extent.blocks + 1);
            }
            self.read(session, extent);
        }
    }

    fn burst(&mut self, session: &mut Session<'_>, count_max: u64) {
        let count = geometric(&mut self.prng, model::BURST_WRITES).min(count_max);
        let is_new = self.prng.chance(model::NEW_FILE_PERMILLE);
        let begun = self.next;
        for _ in 0..count {
            let blocks = self.write_blocks();
            let extent = match is_new {
                true => self.append(blocks),
                false => self.projects[session.project].extent(&mut self.prng, blocks),
            };
            session.time_us += lognormal(&mut self.prng, model::RUN_PAUSE);
            session.ask(true, extent);
        }
        if is_new {
            let file = Extent {
                first: begun,
                blocks: self.next - begun,
            };
            self.projects[session.project].add(&mut self.prng, file);
        }
    }

    fn append(&mut self, blocks: u64) -> Extent {
        let first = self.next;
        self.next += blocks;
        Extent { first, blocks }
    }

    fn write_blocks(&mut self) -> u64 {
        if random::unit(&mut self.prng) < self.whole_write_share {
            return model::WHOLE_WRITE;
        }
        // Cut where one of a mean of two is longer once in 30,000.
        geometric(&mut self.prng, model::SHORT_WRITE).min(model::WHOLE_WRITE)
    }
}
