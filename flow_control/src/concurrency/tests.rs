use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tombolo_base::Prng;

/// A store of a number of servers that take requests in turn, behind a link that one transfer after another goes through.
struct Store {
    servers: usize,
    base_us: f64,
    /// What a single connection carries, and the link.
    connection_bytes_per_us: f64,
    link_bytes_per_us: f64,
    /// Standard deviation of the logarithm of service times.
    sigma: f64,
    slow_down_above: u32,
    lost_permille: u64,
}

impl Store {
    fn of(servers: usize) -> Self {
        Self {
            servers,
            base_us: 20_000.0,
            connection_bytes_per_us: 50.0,
            link_bytes_per_us: 1e9,
            sigma: 0.4,
            slow_down_above: u32::MAX,
            lost_permille: 0,
        }
    }
}

/// When it ends, when it was sent, bytes, in flight, how it ends.
type UnderWay = (u64, u64, u64, u32, u8);

struct Load {
    prng: Prng,
    now: u64,
    free: BinaryHeap<Reverse<u64>>,
    link_free: f64,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    limits: Vec<u32>,
    done: u64,
}

impl Load {
    fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            now: 0,
            free: BinaryHeap::new(),
            link_free: 0.0,
            under_way: BinaryHeap::new(),
            limits: Vec::new(),
            done: 0,
        }
    }

    /// About normal: the sum of twelve.
    fn noise(&mut self) -> f64 {
        (0..12)
            .map(|_| self.prng.below(1 << 20) as f64 / f64::from(1 << 20))
            .sum::<f64>()
            - 6.0
    }

    /// So many requests of these sizes in turn, with as many in flight as may be but `wanted` at the most.
    fn run(&mut self, concurrency: &mut Concurrency, store: &Store, requests: usize, sizes: &[u64], wanted: u32) {
        self.free = (0..store.servers).map(|_| Reverse(self.now)).collect();
        self.limits.clear();
        let begun = (self.now, self.done);
        for number in 0..requests {
            while self.under_way.len() < concurrency.limit().min(wanted) as usize {
                self.send(store, sizes[number % sizes.len()]);
            }
            let Reverse((end, sent, bytes, in_flight, outcome)) = self.under_way.pop().unwrap();
            self.now = end;
            let outcome = [Outcome::Done, Outcome::SlowDown, Outcome::Lost][usize::from(outcome)];
            self.done += u64::from(outcome == Outcome::Done);
            let completion = Completion {
                sent: Instant(sent),
                bytes,
                in_flight,
                outcome,
            };
            concurrency.on_completed(Instant(self.now), &completion);
            self.limits.push(concurrency.limit());
        }
        let elapsed = (self.now - begun.0) as f64 / 1e6;
        eprintln!(
            "{} servers: {:.1}/s, mean limit {:.1}",
            store.servers,
            (self.done - begun.1) as f64 / elapsed,
            self.mean_limit()
        );
    }

    fn send(&mut self, store: &Store, bytes: u64) {
        let in_flight = self.under_way.len() as u32 + 1;
        if in_flight > store.slow_down_above {
            return self
                .under_way
                .push(Reverse((self.now + 5_000, self.now, bytes, in_flight, 1)));
        }
        let noise = (self.noise() * store.sigma).exp();
        let Reverse(free) = self.free.pop().unwrap();
        let service = (store.base_us + bytes as f64 / store.connection_bytes_per_us) * noise;
        let served = free.max(self.now) + service as u64;
        self.free.push(Reverse(served));
        self.link_free = self.link_free.max(self.now as f64) + bytes as f64 / store.link_bytes_per_us;
        let end = served.max(self.link_free as u64) + 1;
        let is_lost = self.prng.chance(store.lost_permille);
        self.under_way.push(Reverse((
            end + 1_000_000 * u64::from(is_lost),
            self.now,
            bytes,
            in_flight,
            2 * u8::from(is_lost),
        )));
    }

    /// Of the later half.
    fn mean_limit(&self) -> f64 {
        let late = &self.limits[self.limits.len() / 2..];
        late.iter().map(|limit| f64::from(*limit)).sum::<f64>() / late.len() as f64
    }
}

const SMALL: &[u64] = &[4_096];
const MIXED: &[u64] = &[4_096, 4 << 20, 4_096, 65_536, 1 << 20];

#[test]
fn finds_the_number_of_servers() {
    for servers in [1, 2, 4, 8, 16, 32] {
        for sizes in [SMALL, MIXED] {
            let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
            let mut load = Load::new(servers as u64);
            load.run(&mut concurrency, &Store::of(servers), 20_000, sizes, u32::MAX);
            let found = load.mean_limit() / servers as f64;
            assert!((0.75..2.1).contains(&found), "{servers} servers, {sizes:?}: {found}");
        }
    }
}

#[test]
fn uses_all_of_a_store_that_has_no_end() {
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    let mut load = Load::new(1);
    load.run(&mut concurrency, &Store::of(1_000), 20_000, MIXED, u32::MAX);
    assert!(load.mean_limit() > 55.0, "{}", load.mean_limit());
}

#[test]
fn a_full_link_is_a_limit_too() {
    // 64 KiB take 21.3 ms; the link carries 15 of them in that time.
    let store = Store {
        link_bytes_per_us: 46.0,
        ..Store::of(1_000)
    };
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    let mut load = Load::new(3);
    load.run(&mut concurrency, &store, 20_000, &[65_536], u32::MAX);
    assert!((10.0..25.0).contains(&load.mean_limit()), "{}", load.mean_limit());
    let window = concurrency.bandwidth_delay_bytes(65_536) as f64 / 65_536.0;
    assert!((10.0..25.0).contains(&window), "{window}");
}

#[test]
fn follows_a_store_that_shrinks_grows_and_slows() {
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    let mut load = Load::new(9);
    for (servers, slower) in [(24, 1.0), (4, 1.0), (24, 1.0), (24, 10.0), (24, 1.0)] {
        let store = Store {
            base_us: 20_000.0 * slower,
            ..Store::of(servers)
        };
        load.run(&mut concurrency, &store, 20_000, SMALL, u32::MAX);
        let found = load.mean_limit() / servers as f64;
        assert!(
            (0.75..1.9).contains(&found),
            "{servers} servers, {slower} times slower: {found}"
        );
    }
}

#[test]
fn what_is_not_used_does_not_grow() {
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    let mut load = Load::new(4);
    load.run(&mut concurrency, &Store::of(1_000), 20_000, SMALL, 3);
    assert!(load.mean_limit() <= 16.0, "{}", load.mean_limit());
}

#[test]
fn what_is_used_now_and_then_does_not_grow_either() {
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    let (mut load, mut prng) = (Load::new(4), Prng::new(8));
    for _ in 0..2_000 {
        let wanted = 1 + prng.below(6) as u32;
        load.run(
            &mut concurrency,
            &Store::of(1_000),
            1 + prng.below(30) as usize,
            SMALL,
            wanted,
        );
        assert!(concurrency.limit() <= 16, "{}", concurrency.limit());
    }
}

#[test]
fn stays_below_what_the_store_refuses() {
    let store = Store {
        slow_down_above: 20,
        ..Store::of(1_000)
    };
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    let mut load = Load::new(5);
    load.run(&mut concurrency, &store, 50_000, SMALL, u32::MAX);
    assert!((10.0..20.0).contains(&load.mean_limit()), "{}", load.mean_limit());
    assert!(load.done > 49_800, "{}", load.done);
}

#[test]
fn single_losses_are_no_congestion_and_many_are() {
    let mut load = Load::new(6);
    let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
    load.run(
        &mut concurrency,
        &Store {
            lost_permille: 10,
            ..Store::of(1_000)
        },
        20_000,
        SMALL,
        u32::MAX,
    );
    assert!(load.mean_limit() > 40.0, "{}", load.mean_limit());
    load.run(
        &mut concurrency,
        &Store {
            lost_permille: 500,
            ..Store::of(1_000)
        },
        2_000,
        SMALL,
        u32::MAX,
    );
    assert!(load.mean_limit() < 4.0, "{}", load.mean_limit());
}

#[test]
fn one_burst_of_refusals_halves_once() {
    let mut concurrency = Concurrency::new(
        Parameters {
            limit_initial: 32,
            ..Parameters::default()
        },
        Instant(0),
    );
    let refused = |sent| Completion {
        sent: Instant(sent),
        bytes: 1,
        in_flight: 32,
        outcome: Outcome::SlowDown,
    };
    for now in 10..30 {
        concurrency.on_completed(Instant(now), &refused(5));
        assert_eq!(concurrency.limit(), 16);
    }
    concurrency.on_completed(Instant(40), &refused(35));
    assert_eq!(concurrency.limit(), 8);
    assert_eq!(concurrency.state().halvings, 2);
}

#[test]
fn a_pinned_limit_stays_and_is_held_within_bounds() {
    let parameters = Parameters {
        pinned: Some(5),
        ..Parameters::default()
    };
    let mut concurrency = Concurrency::new(parameters, Instant(0));
    let mut load = Load::new(7);
    load.run(&mut concurrency, &Store::of(30), 3_000, SMALL, u32::MAX);
    assert!(load.limits.iter().all(|limit| *limit == 5));
    concurrency.pin(Some(1_000));
    assert_eq!(concurrency.limit(), 64);
    concurrency.pin(None);
    assert_ne!(concurrency.limit(), 5);
}

fn any_completion() -> impl Strategy<Value = (u64, Completion)> {
    let outcome = prop_oneof![4 => Just(Outcome::Done), 1 => Just(Outcome::SlowDown), 1 => Just(Outcome::Lost)];
    let instant = || prop_oneof![0u64..1_000_000, any::<u64>()];
    let bytes = prop_oneof![0u64..10_000_000, any::<u64>()];
    (
        instant(),
        instant(),
        bytes,
        prop_oneof![0u32..100, any::<u32>()],
        outcome,
    )
        .prop_map(|(now, sent, bytes, in_flight, outcome)| {
            (
                now,
                Completion {
                    sent: Instant(sent),
                    bytes,
                    in_flight,
                    outcome,
                },
            )
        })
}

proptest! {
    #[test]
    fn keeps_its_bounds_whatever_it_is_told(
        limit_min in 0u32..20, limit_max in prop_oneof![0u32..100, any::<u32>(), Just(u32::MAX)],
        limit_initial in prop_oneof![any::<u32>(), Just(u32::MAX)],
        completions in prop::collection::vec(any_completion(), 0..1_000),
    ) {
        let parameters = Parameters { limit_min, limit_max, limit_initial, pinned: None };
        let mut concurrency = Concurrency::new(parameters, Instant(0));
        let bounds = limit_min.max(1)..=limit_max.max(limit_min.max(1));
        for (now, completion) in completions {
            let before = concurrency.limit();
            concurrency.on_completed(Instant(now), &completion);
            prop_assert!(bounds.contains(&concurrency.limit()), "{}", concurrency.limit());
            if completion.outcome == Outcome::SlowDown {
                prop_assert!(concurrency.limit() <= before, "{before} {}", concurrency.limit());
            }
            let window = concurrency.window_bytes(completion.bytes);
            prop_assert!(window >= completion.bytes.max(1));
            let state = concurrency.state();
            prop_assert!(state.bytes_per_s.is_finite() && state.elasticity.is_none_or(f64::is_finite));
        }
    }

    /// Whatever state it is in, a request that is refused or lost never raises the limit.
    #[test]
    fn trouble_never_raises(seed in any::<u64>(), requests in 1usize..2_000, is_lost in any::<bool>()) {
        let mut concurrency = Concurrency::new(Parameters::default(), Instant(0));
        let mut load = Load::new(seed);
        load.run(&mut concurrency, &Store::of(12), requests, MIXED, u32::MAX);
        let before = concurrency.limit();
        let outcome = if is_lost { Outcome::Lost } else { Outcome::SlowDown };
        let completion = Completion { sent: Instant(load.now), bytes: 4_096, in_flight: before, outcome };
        concurrency.on_completed(Instant(load.now + 1), &completion);
        prop_assert!(concurrency.limit() <= before, "{} {before}", concurrency.limit());
        if !is_lost {
            prop_assert!(concurrency.limit() <= before.div_ceil(2));
        }
    }
}
