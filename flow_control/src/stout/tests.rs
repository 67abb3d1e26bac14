use super::*;
use proptest::prelude::*;

const SECOND_US: u64 = 1_000_000;

/// The loop as the paper writes it, in milliseconds, from the list of all windows at every decision.
struct Model {
    parameters: Parameters,
    interval: f64,
    /// Bytes, latency, interval, and what was decided on it.
    windows: Vec<(f64, f64, f64, Option<Decision>)>,
}

impl Model {
    fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            interval: parameters.interval_initial_us as f64 / 1e3,
            windows: Vec::new(),
        }
    }

    fn average(values: impl Iterator<Item = f64>, weight: f64) -> f64 {
        values
            .reduce(|average, value| average * (1.0 - weight) + value * weight)
            .unwrap()
    }

    fn decide(&mut self, bytes: f64, lat: f64) -> Option<Decision> {
        let weight = self.parameters.average_weight;
        let i = self.interval;
        let last = self.windows.last().map(|window| window.3);
        // From the window that changed the direction on; the first one counts as an acceleration.
        let backs_off = |decision: Option<Decision>| decision == Some(Decision::BackOff);
        let is_alike = |window: &&(f64, f64, f64, Option<Decision>)| last.map(backs_off) == Some(backs_off(window.3));
        let same = self.windows.iter().rev().take_while(is_alike).count();
        let recent = self.windows.split_at(self.windows.len() - same).1;
        let decision = match last {
            None => None,
            Some(Some(Decision::BackOff)) => {
                let bytes_average = Self::average(recent.iter().map(|window| window.0), weight);
                let lat_average = Self::average(recent.iter().map(|window| window.1), weight);
                let i_average = Self::average(recent.iter().map(|window| window.2), weight);
                let reference = if i < i_average {
                    bytes_average / (lat_average + i_average)
                } else {
                    bytes_average / (lat_average + i)
                };
                Some(bytes / (lat + i) < self.parameters.threshold * reference)
            }
            Some(_) => {
                let best = recent
                    .iter()
                    .map(|window| window.0 / (window.1 + window.2))
                    .fold(0.0, f64::max);
                Some(bytes / (lat + i) < self.parameters.threshold * best)
            }
        };
        let decision = decision.map(|falls| if falls { Decision::BackOff } else { Decision::Accelerate });
        let lats = self.windows.iter().map(|window| window.1).chain([lat]);
        let alpha_unbounded = Self::average(lats, weight) / (self.parameters.back_off_latency_us as f64 / 1e3);
        let alpha = match self.parameters.alpha_rule {
            AlphaRule::Min => alpha_unbounded.min(self.parameters.back_off_bound),
            AlphaRule::Max => alpha_unbounded.max(self.parameters.back_off_bound),
        };
        let unit = self.parameters.interval_min_us as f64 / 1e3;
        let beta = self.parameters.acceleration;
        self.interval = match decision {
            None => i,
            Some(Decision::BackOff) => (1.0 + alpha) * i,
            Some(Decision::Accelerate) => ((1.0 - beta) * (i / unit) + beta * (i / unit).sqrt()) * unit,
        }
        .clamp(unit, self.parameters.interval_max_us as f64 / 1e3);
        self.windows.push((bytes, lat, i, decision));
        decision
    }
}

/// Ten completions of the same kind, whose window ends with the last one.
fn window(stout: &mut Stout, now: &mut u64, latency_us: u64, bytes: u64) -> Option<Decision> {
    *now += latency_us;
    let sent = Instant(*now - latency_us);
    let decisions: Vec<_> = (0..10)
        .map(|_| stout.on_completed(Instant(*now), sent, bytes / 10))
        .collect();
    assert!(decisions[..9].iter().all(Option::is_none));
    decisions[9]
}

proptest! {
    #[test]
    fn decides_as_the_paper_says(
        kind in 0usize..6,
        // Some windows alike, so that neither direction lasts for ever.
        windows in prop::collection::vec((10u64..200_000, 1u64..400_000, 1usize..12), 1..30),
    ) {
        let kinds = [
            Parameters::PAPER,
            Parameters { alpha_rule: AlphaRule::Max, ..Parameters::PAPER },
            Parameters::SDS,
            Parameters::PACIFIC_A,
            Parameters::GROUP_COMMIT,
            Parameters::uploads(300_000, 30 * SECOND_US),
        ];
        let (mut stout, mut model) = (Stout::new(kinds[kind], Instant(0)), Model::new(kinds[kind]));
        let mut now = 0;
        for (bytes, latency_us, repeats) in windows {
            let bytes = bytes / 10 * 10;
            for _ in 0..repeats {
                let decided = window(&mut stout, &mut now, latency_us, bytes);
                prop_assert_eq!(decided, model.decide(bytes as f64, latency_us as f64 / 1e3));
                let expected_us = model.interval * 1e3;
                prop_assert!(((stout.interval_us() as f64) - expected_us).abs() <= 2.0 + expected_us * 1e-3);
            }
        }
    }

    #[test]
    fn keeps_its_bounds_whatever_it_is_told(
        initial in any::<u64>(), min in any::<u64>(), max in any::<u64>(), slow in any::<u64>(),
        factors in prop::array::uniform5(any::<f64>()),
        calls in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()), 0..200),
    ) {
        let parameters = Parameters {
            interval_initial_us: initial, interval_min_us: min, interval_max_us: max, back_off_latency_us: slow,
            threshold: factors[0], acceleration: factors[1], back_off_bound: factors[2], average_weight: factors[3],
            latency_share: factors[4], completions_min: (initial % 4) as u32, alpha_rule: AlphaRule::Min, bytes_rule: BytesRule::Interval,
        };
        let mut stout = Stout::new(parameters, Instant(slow));
        let bounds = parameters.in_range();
        for (now, sent, bytes, is_batch) in calls {
            if is_batch {
                stout.on_batch(Instant(now));
            }
            stout.on_completed(Instant(now), Instant(sent), bytes);
            prop_assert!((bounds.interval_min_us..=bounds.interval_max_us).contains(&stout.interval_us()));
            let state = stout.state();
            prop_assert!(state.performance.is_finite() && state.reference_performance.is_finite());
            prop_assert!(stout.next_due() <= Instant(u64::MAX));
        }
    }

    /// Of two stores that were alike so far, the one that answers later never gets the shorter interval.
    #[test]
    fn a_slower_answer_never_shortens(
        before in prop::collection::vec((10u64..100_000, 1u64..200_000), 1..20),
        bytes in 10u64..100_000, latency_us in 1u64..200_000, more_us in 1u64..200_000,
    ) {
        let mut stout = Stout::new(Parameters::PAPER, Instant(0));
        let mut now = 0;
        for (bytes, latency_us) in before {
            window(&mut stout, &mut now, latency_us, bytes);
        }
        let (mut slower, mut later) = (stout.clone(), now);
        window(&mut stout, &mut now, latency_us, bytes);
        window(&mut slower, &mut later, latency_us + more_us, bytes);
        prop_assert!(slower.interval_us() >= stout.interval_us());
    }
}

#[test]
fn the_first_steps_by_hand() {
    let (mut stout, mut now) = (Stout::new(Parameters::PAPER, Instant(0)), 0);
    assert_eq!(window(&mut stout, &mut now, 20_000, 100_000), None, "recorded only");
    assert_eq!(stout.interval_us(), 80_000);
    // 0.9 * 80 + 0.1 * sqrt(80) = 72.894; 0.9 * 72.894 + 0.1 * 8.538 = 66.458.
    assert_eq!(
        window(&mut stout, &mut now, 20_000, 100_000),
        Some(Decision::Accelerate)
    );
    assert_eq!(stout.interval_us(), 72_894);
    assert_eq!(
        window(&mut stout, &mut now, 20_000, 100_000),
        Some(Decision::Accelerate)
    );
    assert_eq!(stout.interval_us(), 66_458);
    // Performance is 100 kB in 100 ms at first, 100/92.9 then; 72.5 kB in 86.5 ms is 0.78 of that, with latencies of 20 ms.
    assert_eq!(window(&mut stout, &mut now, 20_000, 72_500), Some(Decision::BackOff));
    assert_eq!(stout.interval_us(), 69_781, "a twentieth more");
    let state = stout.state();
    assert_eq!((state.accelerations, state.back_offs), (2, 1));
    assert_eq!(state.last_decision, Some(Decision::BackOff));
    assert!((state.reference_performance - 10_000.0 / 0.092_894).abs() < 2.0);
}

#[test]
fn decisions_wait_for_ten_completions_and_half_of_the_latency() {
    let mut stout = Stout::new(Parameters::PAPER, Instant(0));
    window(&mut stout, &mut 0, 20_000, 100);
    let end = 20_000;
    for _ in 0..9 {
        assert_eq!(stout.on_completed(Instant(end + 50_000), Instant(end), 10), None);
    }
    assert!(stout.on_completed(Instant(end + 50_000), Instant(end), 10).is_some());
    // Many requests under way: eleven completions within 10 ms, each of 50 ms.
    let end = end + 50_000;
    for number in 1..=24 {
        assert_eq!(
            stout.on_completed(
                Instant(end + number * 1_000),
                Instant(end + number * 1_000 - 50_000),
                10
            ),
            None
        );
    }
    assert!(
        stout
            .on_completed(Instant(end + 25_000), Instant(end - 25_000), 10)
            .is_some()
    );
}

/// A store that answers every batch after the same time; requests come at a constant rate.
fn run_fixed_store(stout: &mut Stout, from: u64, batches: usize, latency_us: u64) -> u64 {
    let mut now = from;
    for _ in 0..batches {
        let begun = stout.next_due().0.max(now);
        let gathered = begun - now + 1;
        stout.on_batch(Instant(begun));
        stout.on_completed(Instant(begun + latency_us), Instant(begun), gathered);
        now = begun;
    }
    now
}

#[test]
fn a_store_that_keeps_up_gets_everything_at_once() {
    for parameters in [
        Parameters::PAPER,
        Parameters::SDS,
        Parameters::PACIFIC_A,
        Parameters::GROUP_COMMIT,
    ] {
        let mut stout = Stout::new(parameters, Instant(0));
        run_fixed_store(&mut stout, 0, 3_000, parameters.interval_min_us * 3);
        assert!(
            stout.interval_us() <= parameters.interval_min_us * 11 / 10,
            "{}",
            stout.interval_us()
        );
    }
}

#[test]
fn a_pause_of_the_store_is_forgotten() {
    let mut stout = Stout::new(Parameters::PAPER, Instant(0));
    let mut now = run_fixed_store(&mut stout, 0, 3_000, 3_000);
    let mut highest = 0;
    for _ in 0..20 {
        window(&mut stout, &mut now, 2_696_000, 100);
        highest = highest.max(stout.interval_us());
    }
    assert!(highest <= 400_000 && highest > 1_300, "{highest}");
    run_fixed_store(&mut stout, now, 6_000, 3_000);
    assert!(stout.interval_us() <= 1_100, "{}", stout.interval_us());
}

#[test]
fn the_first_request_after_a_pause_leaves_at_once() {
    let mut stout = Stout::new(Parameters::PAPER, Instant(5));
    assert_eq!(stout.next_due(), Instant(0));
    stout.on_batch(Instant::from_millis(10));
    assert_eq!(stout.next_due(), Instant::from_millis(90));
    stout.on_batch(Instant::from_millis(3));
    assert_eq!(
        stout.next_due(),
        Instant::from_millis(90),
        "what is told late does not count back"
    );
}

#[test]
fn calibrations_stand_where_they_are_used() {
    let uploads = Parameters::uploads(200_000, 5 * SECOND_US);
    assert_eq!(
        (
            uploads.interval_initial_us,
            uploads.interval_max_us,
            uploads.back_off_latency_us
        ),
        (200_000, 5 * SECOND_US, 800_000)
    );
    let urgent = Parameters::uploads(200_000, 100_000);
    assert_eq!((urgent.interval_initial_us, urgent.interval_max_us), (100_000, 100_000));
    assert_eq!(Parameters::uploads(0, 0).interval_max_us, 1_000);
}

#[test]
fn bytes_are_those_of_a_request_an_interval_or_the_window() {
    let performance = |bytes_rule, completions: u64| {
        let parameters = Parameters {
            bytes_rule,
            ..Parameters::PAPER
        };
        let mut stout = Stout::new(parameters, Instant(0));
        for number in 1..=completions {
            stout.on_completed(
                Instant(20_000 + number),
                Instant(number),
                if number == 10 { 4_000 } else { 0 },
            );
        }
        stout.state().performance
    };
    // 4,000 bytes in ten requests, 20 ms of latency, intervals of 80 ms; the window took 20.01 ms.
    assert!((performance(BytesRule::Request, 10) - 400.0 / 0.1).abs() < 1.0);
    assert!((performance(BytesRule::Window, 10) - 4_000.0 / 0.1).abs() < 1.0);
    assert!((performance(BytesRule::Interval, 10) - 4_000.0 * 80.0 / 20.01 / 0.1).abs() < 10.0);
}
