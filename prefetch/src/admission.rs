//! Whether a suggestion is worth its price.
//!
//! Fetching Y ahead is admitted iff `L * S > C`: L, how likely Y will be read; S, what the saved wait is worth; C, its
//! egress and its share of requests (Tombolo, section 6.3, asks for this trade without giving a rule). The one knob is the
//! price of a second that a reader waits: none admits everything, zero admits what costs nothing.
//!
//! L is the policy's likelihood times the calibration of its class: blocks that were read over blocks that should have
//! been, by the likelihoods with which they were fetched, both smoothed. So a policy that overrates itself stops costing
//! money. Since nothing is learnt from what is not fetched, calibration is never taken for less than a fiftieth.
//!
//! The wait saved is the smoothed latency of demand fetches less that of hits, once per suggestion: a reader of a range
//! that is not there would wait once for it, not once per block. Integers throughout: money in billionths of a cent of
//! a dollar (1e-11 $), so that a GET of 0.4 microdollars is 40,000.

use crate::{Class, Likelihood, Suggestion};
use tombolo_billing::UnitPrices;

/// Blocks that calibration remembers, about, in thousandths and a bit (1/1024).
const CALIBRATION_MAX: u64 = 4096 << 10;
const CALIBRATION_FLOOR: Likelihood = Likelihood::from_permille(20);

/// What a suggestion comes to when what is resident or in flight has been left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the suggestion rests on.
    pub class: Class,
    /// That it will be read.
    pub likelihood: Likelihood,
    /// Blocks that would have to be fetched.
    pub blocks: u64,
    /// GETs that it needs beyond those under way, in thousandths: a share when it travels with others.
    pub requests_permille: u64,
}

impl Offer {
    /// A suggestion of which nothing is at hand, in one GET.
    pub fn whole(suggestion: &Suggestion) -> Self {
        Self {
            class: suggestion.class,
            likelihood: suggestion.likelihood,
            blocks: suggestion.count,
            requests_permille: 1000,
        }
    }
}

/// In 1024ths of a block.
#[derive(Clone, Copy, Debug)]
struct Calibration {
    used: u64,
    expected: u64,
}

impl Calibration {
    fn expect(&mut self, blocks: u64, likelihood: Likelihood) {
        let expected = u128::from(blocks) * u128::from(likelihood.bits() >> 20);
        self.expected += expected.min(u128::from(CALIBRATION_MAX)) as u64;
        if self.expected > CALIBRATION_MAX {
            self.used = (u128::from(self.used) * u128::from(CALIBRATION_MAX) / u128::from(self.expected)) as u64;
            self.expected = CALIBRATION_MAX;
        }
    }

    fn learn(&mut self, blocks: u64) {
        self.used = self
            .used
            .saturating_add(blocks.min(CALIBRATION_MAX) << 10)
            .min(CALIBRATION_MAX);
    }

    fn value(&self) -> Likelihood {
        Likelihood::ratio(self.used, self.expected).max(CALIBRATION_FLOOR)
    }
}

/// Whether a suggestion is worth its price, by what came true of earlier ones.
#[derive(Clone, Debug)]
pub struct Admission {
    prices: UnitPrices,
    /// What a second of waiting costs, in 1e-11 dollars; none: whatever the price.
    second_of_waiting: Option<u64>,
    fetch_micros: u64,
    hit_micros: u64,
    calibration: [Calibration; 2],
}

impl Admission {
    /// `microdollars_per_second`: the knob. `fetch_micros`: the latency of a fetch until one was measured.
    pub fn new(prices: UnitPrices, microdollars_per_second: Option<u64>, fetch_micros: u64) -> Self {
        // As if an object had been fetched and read.
        let calibration = Calibration {
            used: 64 << 10,
            expected: 64 << 10,
        };
        Self {
            prices,
            second_of_waiting: microdollars_per_second.map(|price| price.saturating_mul(100_000)),
            fetch_micros,
            hit_micros: 0,
            calibration: [calibration; 2],
        }
    }

    /// A demand fetch took so long from request to answer.
    pub fn on_fetch(&mut self, micros: u64) {
        self.fetch_micros = smoothed(self.fetch_micros, micros);
    }

    /// A read that was a hit took so long.
    pub fn on_hit(&mut self, micros: u64) {
        self.hit_micros = smoothed(self.hit_micros, micros);
    }

    /// An offer is being fetched.
    pub fn on_fetched(&mut self, offer: &Offer) {
        self.calibration[offer.class as usize].expect(offer.blocks, offer.likelihood);
    }

    /// Prefetched blocks of a class were read for the first time.
    pub fn on_used(&mut self, class: Class, blocks: u64) {
        self.calibration[class as usize].learn(blocks);
    }

    /// How much of what the class expected came true, smoothed; at most one.
    pub fn calibration(&self, class: Class) -> Likelihood {
        self.calibration[class as usize].value()
    }

    /// What an offer costs, in 1e-11 dollars.
    pub fn cost(&self, offer: &Offer) -> u64 {
        let egress = self.prices.egress_per_block.saturating_mul(offer.blocks);
        let requests = u128::from(self.prices.get_request) * u128::from(offer.requests_permille) / 1000;
        egress.saturating_add(u64::try_from(requests).unwrap_or(u64::MAX))
    }

    /// Whether the waiting that it is expected to save is worth more than it costs.
    pub fn admits(&self, offer: &Offer) -> bool {
        let Some(second) = self.second_of_waiting else {
            return true;
        };
        let cost = self.cost(offer);
        if cost == 0 {
            return true;
        }
        let saved_micros = self.fetch_micros.saturating_sub(self.hit_micros);
        let likelihood = offer.likelihood.and(self.calibration(offer.class));
        let worth = u128::from(second) * u128::from(saved_micros) / 1_000_000;
        // worth < 2^111 at the most; 2^17 remain for the likelihood, so it takes part with its upper 16 bits.
        let expected = (worth * u128::from(likelihood.bits() >> 14)) >> 16;
        expected > u128::from(cost)
    }
}

fn smoothed(mean: u64, sample: u64) -> u64 {
    if mean == 0 {
        sample
    } else {
        ((u128::from(mean) * 15 + u128::from(sample)) / 16) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tombolo_billing::Table;

    /// 0.4 $ per million GETs, 0.09 $ per GiB.
    const S3: UnitPrices = Table::AwsS3Standard.prices().units();

    fn offer(likelihood_permille: u32, blocks: u64) -> Offer {
        Offer {
            class: Class::History,
            likelihood: Likelihood::from_permille(likelihood_permille),
            blocks,
            requests_permille: 1000,
        }
    }

    #[test]
    fn an_offer_costs_its_requests_and_its_blocks() {
        let admission = Admission::new(S3, Some(1), 100_000);
        assert_eq!(admission.cost(&offer(1000, 16)), 40_000 + 16 * 34_332);
    }

    #[test]
    fn the_knob_moves_the_border() {
        // 64 KiB cost 5.9 microdollars; 100 ms at 100 microdollars per second are worth 10.
        let admission = Admission::new(S3, Some(100), 100_000);
        assert!(admission.admits(&offer(600, 16)));
        assert!(!admission.admits(&offer(580, 16)));
        assert!(Admission::new(S3, None, 0).admits(&offer(1, 1 << 40)));
        assert!(!Admission::new(S3, Some(0), 100_000).admits(&offer(1000, 1)));
        assert!(Admission::new(UnitPrices::default(), Some(0), 0).admits(&offer(1, 64)));
    }

    #[test]
    fn a_class_that_overrates_itself_is_trusted_less_and_recovers() {
        let mut admission = Admission::new(S3, Some(100), 100_000);
        (0..2000).for_each(|_| admission.on_fetched(&offer(900, 16)));
        assert_eq!(admission.calibration(Class::History), CALIBRATION_FLOOR);
        assert_eq!(admission.calibration(Class::Sequential), Likelihood::ONE);
        assert!(!admission.admits(&offer(900, 16)));
        for _ in 0..4000 {
            admission.on_fetched(&offer(900, 16));
            admission.on_used(Class::History, 14);
        }
        assert!(admission.admits(&offer(900, 16)));
    }

    #[test]
    fn an_honest_class_keeps_its_likelihoods() {
        let mut admission = Admission::new(S3, Some(100), 100_000);
        for _ in 0..10_000 {
            admission.on_fetched(&offer(250, 16));
            admission.on_used(Class::History, 4);
        }
        assert!(admission.calibration(Class::History) > Likelihood::from_permille(980));
    }

    proptest! {
        /// Against real numbers, away from the border.
        #[test]
        fn equals_the_formula(
            permille in 1u32..1000,
            blocks in 1u64..2000,
            knob in 1u64..100_000,
            latency in 1u64..3_000_000,
        ) {
            let admission = Admission::new(S3, Some(knob), latency);
            let worth = f64::from(permille) / 1e3 * knob as f64 / 1e6 * latency as f64 / 1e6;
            let cost = 0.4e-6 + blocks as f64 * 0.09 / 262_144.0;
            prop_assume!((worth / cost - 1.0).abs() > 0.001);
            prop_assert_eq!(admission.admits(&offer(permille, blocks)), worth > cost);
        }

        #[test]
        fn no_value_overflows(a: u64, b: u64, c: u64, d: u64, e: u64) {
            let mut admission = Admission::new(UnitPrices { get_request: a, egress_per_block: b }, Some(c), d);
            admission.on_fetch(e);
            admission.on_hit(a);
            admission.on_used(Class::History, b);
            admission.on_fetched(&offer(1000, c));
            let _ = admission.admits(&Offer { requests_permille: e, ..offer(1000, d) });
        }
    }
}
