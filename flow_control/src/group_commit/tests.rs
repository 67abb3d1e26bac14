use super::*;
use proptest::prelude::*;

/// Clients that write and ask again so long after their answer, before a disk that takes so long for each sync.
struct Loop {
    controller: GroupCommit,
    now: Instant,
    sync_us: u64,
    /// When each client asks next, or waits since.
    asks_at: Vec<Option<Instant>>,
    served: Vec<usize>,
    ends_at: Option<Instant>,
    answered: u64,
    syncs: u64,
}

impl Loop {
    fn new(rule: Rule, clients: usize, sync_us: u64) -> Self {
        let start = Instant(1 << 20);
        Self {
            controller: GroupCommit::new(rule, start),
            now: start,
            sync_us,
            asks_at: (0..clients as u64)
                .map(|client| Some(start.plus_micros(client * 7)))
                .collect(),
            served: Vec::new(),
            ends_at: None,
            answered: 0,
            syncs: 0,
        }
    }

    fn waiting(&self) -> Vec<usize> {
        let is_waiting = |client: &usize| self.asks_at[*client].is_none() && !self.served.contains(client);
        (0..self.asks_at.len()).filter(is_waiting).collect()
    }

    /// Microsecond by microsecond.
    fn run(&mut self, millis: u64, think_us: impl Fn(usize, u64) -> u64) {
        let end = self.now.plus_millis(millis);
        while self.now < end {
            if self.ends_at == Some(self.now) {
                let served = core::mem::take(&mut self.served);
                self.ends_at = None;
                let waiting = self.waiting().len() - served.len();
                self.controller
                    .on_ended(self.now, served.len() as u32, waiting as u32, 500 * served.len() as u64);
                for client in served {
                    self.answered += 1;
                    self.asks_at[client] = Some(self.now.plus_micros(think_us(client, self.answered).max(1)));
                }
            }
            for client in 0..self.asks_at.len() {
                if self.asks_at[client] == Some(self.now) {
                    self.asks_at[client] = None;
                    self.controller.on_waiting(self.now);
                }
            }
            let waiting = self.waiting();
            if self.ends_at.is_none() && !waiting.is_empty() && self.controller.due(waiting.len() as u32) <= self.now {
                self.controller.on_begun(self.now);
                self.served = waiting;
                self.ends_at = Some(self.now.plus_micros(self.sync_us));
                self.syncs += 1;
            }
            self.now = self.now.plus_micros(1);
        }
    }

    fn answered_by_sync(&self) -> f64 {
        self.answered as f64 / self.syncs as f64
    }
}

fn alike(rule: Rule, clients: usize, sync_us: u64, think_us: u64) -> Loop {
    let mut all = Loop::new(rule, clients, sync_us);
    all.run(1_000, |client, _| think_us + client as u64 * 3);
    all
}

#[test]
fn clients_fall_into_two_halves_unless_they_are_gathered() {
    let (halves, whole) = (
        alike(Rule::Immediate, 16, 3_000, 200),
        alike(Rule::Gather, 16, 3_000, 200),
    );
    assert!(
        (7.5..8.5).contains(&halves.answered_by_sync()),
        "{}",
        halves.answered_by_sync()
    );
    assert!(whole.answered_by_sync() > 14.0, "{}", whole.answered_by_sync());
    assert!(whole.answered as f64 > 1.7 * halves.answered as f64);
}

#[test]
fn who_is_alone_never_waits() {
    for think_us in [10, 500, 2_900, 10_000] {
        let (at_once, gathered) = (
            alike(Rule::Immediate, 1, 3_000, think_us),
            alike(Rule::Gather, 1, 3_000, think_us),
        );
        assert_eq!(
            (at_once.answered, gathered.controller.state().held_back),
            (gathered.answered, 0)
        );
    }
}

#[test]
fn nobody_waits_for_clients_that_come_back_late() {
    let late = alike(Rule::Gather, 16, 1_500, 20_000);
    let at_once = alike(Rule::Immediate, 16, 1_500, 20_000);
    assert!(
        late.answered * 100 >= at_once.answered * 98,
        "{} {}",
        late.answered,
        at_once.answered
    );
}

#[test]
fn nobody_waits_where_syncs_are_short() {
    for clients in [1, 4, 16] {
        let (at_once, gathered) = (
            alike(Rule::Immediate, clients, SYNC_US_MIN - 1, 100),
            alike(Rule::Gather, clients, SYNC_US_MIN - 1, 100),
        );
        assert_eq!(gathered.controller.state().held_back, 0);
        assert_eq!(at_once.answered, gathered.answered);
    }
}

#[test]
fn what_was_learnt_is_forgotten_when_clients_change() {
    let mut all = Loop::new(Rule::Gather, 8, 1_000);
    all.run(300, |_, _| 100);
    assert!(all.controller.state().returning > 0.9);
    all.run(2_000, |_, _| 30_000);
    assert!(all.controller.state().returning < RETURNING_MIN);
    assert_eq!(all.controller.state().interval_us, 0);
}

proptest! {
    #[test]
    fn nobody_is_held_back_longer_than_a_sync_takes(
        clients in 1..20usize, sync_us in 50..5_000u64, think_us in 1..3_000u64, spread in 1..50u64
    ) {
        let mut all = Loop::new(Rule::Gather, clients, sync_us);
        all.run(100, |client, turn| think_us + (client as u64 * spread * 31 + turn * 17) % (spread * 20));
        let end = all.controller.ended.plus_micros(sync_us.min(WINDOW_US_MAX));
        for waiting in 0..40 {
            prop_assert!(all.controller.due(waiting) <= end);
        }
        // Every round takes at most a sync, a window, and what the clients take themselves.
        let longest_us = 2 * sync_us + think_us + spread * 20 + 2;
        prop_assert!(all.syncs >= 100_000 / longest_us / 2, "{} syncs", all.syncs);
    }

    #[test]
    fn any_sequence_of_calls_is_allowed(calls in proptest::collection::vec((0..4u8, 0..5_000u64, 0..u32::MAX), 0..200)) {
        for rule in [Rule::Immediate, Rule::Gather, Rule::Stout] {
            let mut controller = GroupCommit::new(rule, Instant(5));
            let mut now = Instant(5);
            for (call, later_us, count) in &calls {
                now = now.plus_micros(*later_us);
                match call {
                    0 => controller.on_waiting(now),
                    1 => controller.on_begun(now),
                    2 => controller.on_ended(now, *count, count / 3, u64::from(*count)),
                    _ => { controller.due(*count); }
                }
                prop_assert!((0.0..=1.0).contains(&controller.state().returning));
            }
        }
    }
}
