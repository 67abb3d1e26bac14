use super::*;
use proptest::prelude::*;
use tombolo_base::Prng;

/// `Parameters::answered_within` half a minute.
const PARAMETERS: Parameters = Parameters {
    min_us: 5_000_000,
    answer_us: 30_000_000,
    rate_min_bytes_per_s: 125_000,
};
const MIB: u64 = 1 << 20;

fn alone(bytes: u64) -> Load {
    Load { attempts: 1, bytes }
}

/// An upload on its way.
struct Attempt {
    bytes: u64,
    left_bytes: f64,
    /// What the store takes when all is there.
    answer_us: f64,
    begun_us: f64,
    least: Load,
    most: Load,
    hangs: bool,
}

/// A path whose rate all attempts share evenly, and what is done with it: attempts are begun as long as fewer than `lanes` are in
/// flight, and watched as the gateway does.
struct Path {
    bytes_per_us: f64,
    fixed_us: f64,
    now_us: f64,
    lanes: usize,
    attempts: Vec<Attempt>,
    deadlines: Deadlines,
    prng: Prng,
    answered: u64,
    given_up: u64,
    given_up_hanging: u64,
}

impl Path {
    fn new(bytes_per_s: f64, fixed_us: f64, lanes: usize, seed: u64) -> Self {
        Self {
            bytes_per_us: bytes_per_s / 1e6,
            fixed_us,
            now_us: 0.0,
            lanes,
            attempts: Vec::new(),
            deadlines: Deadlines::new(PARAMETERS),
            prng: Prng::new(seed),
            answered: 0,
            given_up: 0,
            given_up_hanging: 0,
        }
    }

    fn load(&self) -> Load {
        Load {
            attempts: self.attempts.len() as u32,
            bytes: self.attempts.iter().map(|attempt| attempt.bytes).sum(),
        }
    }

    /// Up to twice the fixed time for the answer.
    fn begin(&mut self, bytes: u64, hangs: bool) {
        let jitter = 1.0 + self.prng.below(1_000) as f64 / 1_000.0;
        self.attempts.push(Attempt {
            bytes,
            left_bytes: bytes as f64,
            answer_us: self.fixed_us * jitter,
            begun_us: self.now_us,
            least: Load {
                attempts: u32::MAX,
                bytes: u64::MAX,
            },
            most: Load::default(),
            hangs,
        });
        let load = self.load();
        for attempt in &mut self.attempts {
            attempt.most = most(attempt.most, load);
        }
        self.attempts.last_mut().unwrap().least = load;
    }

    /// To the next moment at which something happens.
    fn step(&mut self) {
        let sending = self
            .attempts
            .iter()
            .filter(|one| !one.hangs && one.left_bytes > 0.0)
            .count();
        let rate = self.bytes_per_us / sending.max(1) as f64;
        let until = |one: &Attempt| match () {
            () if one.hangs => f64::MAX,
            () if one.left_bytes > 0.0 => one.left_bytes / rate,
            () => one.answer_us,
        };
        let due =
            |one: &Attempt| one.begun_us + self.deadlines.after_us(one.bytes, one.most) as f64 + 1.0 - self.now_us;
        let next = self.attempts.iter().map(|one| until(one).min(due(one).max(0.0)));
        let elapsed_us = next.fold(f64::MAX, f64::min);
        self.now_us += elapsed_us;
        for one in self.attempts.iter_mut().filter(|one| !one.hangs) {
            match one.left_bytes > 0.0 {
                true => {
                    one.left_bytes -= elapsed_us * rate;
                    // What is left of rounding.
                    if one.left_bytes < 1e-3 {
                        one.left_bytes = 0.0;
                    }
                }
                false => one.answer_us -= elapsed_us,
            }
        }
        self.end();
    }

    fn end(&mut self) {
        let load = self.load();
        let done = |one: &Attempt| !one.hangs && one.left_bytes <= 0.0 && one.answer_us < 1e-3;
        while let Some(at) = self.attempts.iter().position(done) {
            let one = self.attempts.remove(at);
            let least = Load {
                attempts: one.least.attempts.min(load.attempts),
                bytes: one.least.bytes.min(load.bytes),
            };
            self.deadlines
                .on_answered(one.bytes, least, (self.now_us - one.begun_us) as u64);
            self.answered += 1;
        }
        let late = |one: &Attempt| self.now_us - one.begun_us > self.deadlines.after_us(one.bytes, one.most) as f64;
        if let Some(at) = self.attempts.iter().position(late) {
            let one = self.attempts.remove(at);
            self.deadlines.on_given_up(one.bytes);
            self.given_up += 1;
            self.given_up_hanging += u64::from(one.hangs);
            // At once, in its own place.
            self.begin(one.bytes, false);
        }
    }

    fn run(&mut self, answered: u64, mut bytes_of: impl FnMut(&mut Prng) -> u64) {
        let until = self.answered + answered;
        while self.answered < until {
            while self.attempts.len() < self.lanes {
                let bytes = bytes_of(&mut self.prng);
                self.begin(bytes, false);
            }
            self.step();
        }
    }
}

fn most(left: Load, right: Load) -> Load {
    Load {
        attempts: left.attempts.max(right.attempts),
        bytes: left.bytes.max(right.bytes),
    }
}

#[test]
fn a_megabit_carries_the_largest_objects_without_one_attempt_in_vain() {
    for lanes in [1, 2, 8, 32] {
        let mut path = Path::new(125_000.0, 100_000.0, lanes, 1);
        path.run(200, |_| 4 * MIB);
        assert_eq!(path.given_up, 0, "{lanes} at once");
    }
}

#[test]
fn one_that_hangs_is_given_up_by_what_the_others_take() {
    // 4 MiB take 0.37 s with eight at once.
    let mut path = Path::new(1e8, 30_000.0, 8, 2);
    path.run(100, |_| 4 * MIB);
    path.begin(4 * MIB, true);
    let begun_us = path.now_us;
    while path.given_up_hanging == 0 {
        path.run(1, |_| 4 * MIB);
    }
    let took_s = (path.now_us - begun_us) / 1e6;
    assert!((5.0..5.5).contains(&took_s), "{took_s}");
    assert_eq!(path.given_up, 1);
}

#[test]
fn the_first_of_all_may_hang_as_long_as_a_slow_path_would_take() {
    assert_eq!(Parameters::answered_within(Duration::from_secs(30)), PARAMETERS);
    let deadlines = Deadlines::new(PARAMETERS);
    assert_eq!(deadlines.after_us(4 * MIB, alone(4 * MIB)), 30_000_000 + 33_554_432);
    let load = Load {
        attempts: 3,
        bytes: 12 * MIB,
    };
    assert_eq!(deadlines.after_us(4 * MIB, load), 30_000_000 + 3 * 33_554_432);
    assert_eq!(deadlines.after_us(0, Load::default()), 30_000_000);
}

#[test]
fn sizes_that_were_not_seen_follow_from_others() {
    let mut deadlines = Deadlines::new(PARAMETERS);
    deadlines.on_answered(MIB, alone(MIB), 2_000_000);
    assert_eq!(deadlines.after_us(MIB, alone(MIB)), 8_000_000);
    assert_eq!(deadlines.after_us(1_000, alone(1_000)), 8_000_000);
    assert_eq!(deadlines.after_us(2 * MIB, alone(2 * MIB)), 16_000_000);
    // Behind what is on its way already.
    let loaded = Load {
        attempts: 4,
        bytes: 3 * MIB,
    };
    assert_eq!(deadlines.after_us(1_000, loaded), 24_000_000);
    deadlines.on_given_up(MIB);
    assert_eq!(deadlines.after_us(MIB, alone(MIB)), 16_000_000);
    deadlines.on_answered(1_000, alone(1_000), 1_000);
    assert_eq!(
        deadlines.after_us(MIB, alone(MIB)),
        16_000_000,
        "what is small comes through any path"
    );
    deadlines.on_answered(MIB, alone(MIB), 1_000);
    assert_eq!(deadlines.after_us(MIB, alone(MIB)), 7_500_250);
}

proptest! {
    /// Whatever the path is like, as long as it stays so, no attempt is given up.
    #[test]
    fn a_path_that_stays_as_it_is_is_never_given_up(
        rate_log in 17.0..30.0f64, fixed_us in 100.0..2_000_000.0f64, lanes in 1..40usize, seed in any::<u64>(),
    ) {
        let mut path = Path::new(rate_log.exp2().max(125_000.0), fixed_us, lanes, seed);
        path.run(150, |prng| [300, 20_000, MIB, 4 * MIB][prng.below(4) as usize]);
        prop_assert_eq!(path.given_up, 0);
        // Idle times and bursts.
        path.lanes = 1;
        path.run(50, |prng| [300, 4 * MIB][prng.below(2) as usize]);
        path.lanes = lanes;
        path.run(100, |_| 4 * MIB);
        prop_assert_eq!(path.given_up, 0);
    }

    /// A path that becomes slow costs few attempts, however many are in flight.
    #[test]
    fn a_path_that_becomes_slow_costs_few_attempts(rate_log in 20.0..30.0f64, lanes in 1..40usize, seed in any::<u64>()) {
        let mut path = Path::new(rate_log.exp2(), 20_000.0, lanes, seed);
        path.run(100, |_| 4 * MIB);
        path.bytes_per_us = 0.125;
        path.run(100, |_| 4 * MIB);
        prop_assert!(path.given_up <= 12, "{} were given up", path.given_up);
    }

    /// Those that hang are given up, all of them, while the others go on.
    #[test]
    fn all_that_hang_are_given_up(hanging in 1..20u64, lanes in 1..20usize, seed in any::<u64>()) {
        let mut path = Path::new(1e7, 20_000.0, lanes, seed);
        path.run(50, |_| MIB);
        (0..hanging).for_each(|_| path.begin(MIB, true));
        path.lanes = lanes + hanging as usize;
        let begun_us = path.now_us;
        while path.given_up_hanging < hanging {
            prop_assert!(path.now_us - begun_us < 300e6, "{} of {hanging}", path.given_up_hanging);
            path.run(1, |_| MIB);
        }
        prop_assert_eq!(path.given_up, hanging);
    }

    /// Bounds hold for any sequence of calls with any values.
    #[test]
    fn bounds_hold(
        calls in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<bool>()), 0..40),
        bytes in any::<u64>(), attempts in any::<u32>(), together in any::<u64>(),
    ) {
        let mut deadlines = Deadlines::new(PARAMETERS);
        for (bytes, attempts, together, latency_us, is_answered) in calls {
            match is_answered {
                true => deadlines.on_answered(bytes, Load { attempts, bytes: together }, latency_us),
                false => deadlines.on_given_up(bytes),
            }
        }
        let after_us = deadlines.after_us(bytes, Load { attempts, bytes: together });
        prop_assert!((PARAMETERS.min_us..=PARAMETERS.max_us(bytes, attempts)).contains(&after_us));
    }
}
