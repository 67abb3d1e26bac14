//! Gateways and store in virtual time.

use super::events::Events;
use super::gateway::{Gateway, InFlight, Pending};
use super::job::Job;
use super::refusal::Error;
use super::report::{Collector, Report};
use super::store::{Store, StoreEvent, Ticket};
use crate::replay::Progress;
use tombolo_flow_control::concurrency::Outcome;

/// Before a refused or lost request is sent again, and twice as long each time, up to 32 times.
const RETRY_US: u64 = 500_000;

enum Event {
    Store(StoreEvent),
    Arrival(usize),
    BatchDue(usize),
    /// A closed source may want more.
    Fill(usize),
    Timeout(Ticket, u64),
    Retry(usize, Box<Pending>),
    Sample,
}

impl From<StoreEvent> for Event {
    fn from(event: StoreEvent) -> Self {
        Self::Store(event)
    }
}

struct World {
    store: Store,
    gateways: Vec<Gateway>,
    events: Events<Event>,
    /// By ticket: whose it is, and the number of the attempt; none once it was given up.
    under_way: Vec<Option<(usize, u64, InFlight)>>,
    attempts: u64,
    collector: Collector,
}

pub(super) fn run(job: &Job, progress: Progress<'_>) -> Result<Report, Error> {
    let mut gateways = Vec::new();
    for spec in &job.gateways {
        for _ in 0..spec.count {
            gateways.push(Gateway::new(spec, gateways.len(), job.store.partitions, job.seed));
        }
    }
    let mut world = World {
        store: Store::new(&job.store, job.seed),
        collector: Collector::new(job, gateways.len()),
        gateways,
        events: Events::new(),
        under_way: Vec::new(),
        attempts: 0,
    };
    world.begin();
    let end = job.end_us();
    let sample_us = (job.sample_s * 1e6) as u64;
    while let Some((now, event)) = world.events.next() {
        if now > end {
            break;
        }
        if let Event::Sample = event {
            progress(now, end)?;
            world.collector.sample(now, &world.gateways);
            world.events.add(now + sample_us, Event::Sample);
        } else {
            world.on_event(now, event);
        }
    }
    Ok(world.collector.report())
}

impl World {
    fn begin(&mut self) {
        self.store.begin(&mut self.events);
        self.events.add(0, Event::Sample);
        for number in 0..self.gateways.len() {
            if let Some(at) = self.gateways[number].next_arrival(0) {
                self.events.add(at, Event::Arrival(number));
            }
            let changes = match &self.gateways[number].spec.source {
                super::job::Source::Closed(steps) => steps.iter().map(|(from, _)| (from * 1e6) as u64).collect(),
                super::job::Source::Poisson(_) => Vec::new(),
            };
            for at in changes {
                self.events.add(at, Event::Fill(number));
            }
        }
    }

    fn on_event(&mut self, now: u64, event: Event) {
        match event {
            Event::Store(event) => {
                if let Some((ticket, refused)) = self.store.on_event(now, event, &mut self.events) {
                    let outcome = if refused { Outcome::SlowDown } else { Outcome::Done };
                    self.end(now, ticket, outcome);
                }
            }
            Event::Arrival(number) => {
                self.collector.came(now);
                self.gateways[number].on_arrival(now);
                if let Some(at) = self.gateways[number].next_arrival(now) {
                    self.events.add(at, Event::Arrival(number));
                }
                self.go_on(now, number);
            }
            Event::BatchDue(number) => {
                if self.gateways[number].due_us.is_some_and(|due| due <= now) {
                    self.gateways[number].due_us = None;
                    if self.gateways[number].batch_due(now).is_some_and(|due| due <= now) {
                        self.gateways[number].send_batch(now);
                    }
                }
                self.go_on(now, number);
            }
            Event::Fill(number) => self.go_on(now, number),
            Event::Timeout(ticket, attempt) => {
                let is_this = self.under_way[ticket as usize]
                    .as_ref()
                    .is_some_and(|under_way| under_way.1 == attempt);
                if is_this {
                    self.end(now, ticket, Outcome::Lost);
                }
            }
            Event::Retry(number, pending) => {
                self.gateways[number].again(*pending);
                self.go_on(now, number);
            }
            Event::Sample => {}
        }
    }

    fn end(&mut self, now: u64, ticket: Ticket, outcome: Outcome) {
        let Some((number, _, in_flight)) = self.under_way[ticket as usize].take() else {
            return;
        };
        self.gateways[number].on_completed(now, &in_flight, outcome);
        self.collector.ended(now, number, &in_flight, outcome);
        if outcome != Outcome::Done {
            let mut pending = in_flight.pending;
            let at = now + (RETRY_US << pending.attempts.min(5));
            pending.attempts += 1;
            self.events.add(at, Event::Retry(number, Box::new(pending)));
        }
        self.go_on(now, number);
    }

    /// Whatever a gateway can do now.
    fn go_on(&mut self, now: u64, number: usize) {
        let gateway = &mut self.gateways[number];
        for _ in 0..gateway.lacking(now) {
            self.collector.came(now);
            gateway.on_arrival(now);
        }
        if let Some(due) = gateway.batch_due(now)
            && gateway.due_us.is_none_or(|before| due < before)
        {
            gateway.due_us = Some(due);
            self.events.add(due, Event::BatchDue(number));
        }
        while let Some(in_flight) = gateway.next_request(now) {
            let ticket = self.store.submit(now, in_flight.pending.request, &mut self.events);
            self.attempts += 1;
            let timeout_us = (gateway.spec.timeout_s * 1e6) as u64;
            self.events.add(now + timeout_us, Event::Timeout(ticket, self.attempts));
            let index = ticket as usize;
            if index >= self.under_way.len() {
                self.under_way.resize_with(index + 1, || None);
            }
            self.under_way[index] = Some((number, self.attempts, in_flight));
        }
    }
}
