//! Which of several copies is read: the cheapest, and of equally cheap ones the fastest. Pure, driven by how long reads took.
//!
//! A GET costs its request and its bytes (GDS-LC: P_down = GET + bytes · egress). What an hour of waiting is worth turns latency
//! into money; at nothing, which is the default, price decides and latency breaks ties. Latencies are means of what was
//! measured, per store and size class, with an old sample worth an eighth less each time. A store that is as cheap as the one
//! chosen is read now and then all the same, so that what is known of it does not grow old.

/// What a read costs, in any unit that is the same for all stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPrice {
    /// One GET.
    pub request: u64,
    /// 4 KiB that are read and leave the store.
    pub block: u64,
}

impl ReadPrice {
    const fn of(self, bytes: u64) -> u64 {
        self.request
            .saturating_add(self.block.saturating_mul(bytes.div_ceil(4096)))
    }
}

/// Upper ends of the size classes; what is larger is the last.
const CLASS_BYTES_MAX: [u64; 3] = [64 << 10, 512 << 10, 2 << 20];
const CLASSES: usize = CLASS_BYTES_MAX.len() + 1;
/// A read of each class, for what was measured before.
const CLASS_BYTES_TYPICAL: [u64; CLASSES] = [16 << 10, 256 << 10, 1 << 20, 4 << 20];
/// One of so many reads is for keeping latencies fresh.
const EXPLORING_INTERVAL: u64 = 32;
/// Bounds of [`ReadChoice::overdue_after_micros`], and what it is while nothing is known.
const OVERDUE_MICROS_MIN: u64 = 300_000;
const OVERDUE_MICROS_MAX: u64 = 5_000_000;
const OVERDUE_MICROS_UNKNOWN: u64 = 2_000_000;
/// A read is overdue after so many times its usual latency.
const OVERDUE_TIMES: u64 = 8;

fn class_of(bytes: u64) -> usize {
    CLASS_BYTES_MAX.iter().filter(|most| bytes > **most).count()
}

#[derive(Clone, Debug)]
struct Copy {
    price: ReadPrice,
    micros: [Option<u64>; CLASSES],
    /// Which read of this store was the last.
    read_at: u64,
}

impl Copy {
    /// Of its size class, else of the nearest that is known.
    fn micros(&self, bytes: u64) -> Option<u64> {
        let class = class_of(bytes);
        let nearest = (0..CLASSES).filter(|other| self.micros[*other].is_some());
        let nearest = nearest.min_by_key(|other| other.abs_diff(class))?;
        self.micros[nearest]
    }
}

/// Over all copies, which are known by their places.
#[derive(Clone, Debug)]
pub struct ReadChoice {
    copies: Vec<Copy>,
    /// What a second of waiting is worth, in the unit of the prices.
    second: u64,
    reads: u64,
}

impl ReadChoice {
    /// `second`: what a second of waiting is worth, in the unit of the prices.
    pub fn new(prices: &[ReadPrice], second: u64) -> Self {
        let copy = |price: &ReadPrice| Copy {
            price: *price,
            micros: [None; CLASSES],
            read_at: 0,
        };
        Self {
            copies: prices.iter().map(copy).collect(),
            second,
            reads: 0,
        }
    }

    /// The places of `candidates`, the best first. A store of which nothing is known yet counts as fast, so it is found out.
    pub fn order(&mut self, bytes: u64, candidates: &[usize]) -> Vec<usize> {
        self.reads += 1;
        let mut order = candidates.to_vec();
        order.sort_by_key(|place| (self.cost(*place, bytes), self.latency(*place, bytes), *place));
        if self.reads.is_multiple_of(EXPLORING_INTERVAL)
            && let Some(best) = order.first()
        {
            let price = self.copies[*best].price.of(bytes);
            let alike = order
                .iter()
                .filter(|place| self.copies[**place].price.of(bytes) == price);
            if let Some(stale) = alike.min_by_key(|place| self.copies[**place].read_at).copied() {
                order.retain(|place| *place != stale);
                order.insert(0, stale);
            }
        }
        if let Some(first) = order.first() {
            self.copies[*first].read_at = self.reads;
        }
        order
    }

    /// So long reads of a store take, as it was measured before: they are the first samples.
    pub fn expect(&mut self, place: usize, micros_of: impl Fn(u64) -> u64) {
        for bytes in CLASS_BYTES_TYPICAL {
            self.measured(place, bytes, micros_of(bytes));
        }
    }

    /// One read took so long.
    pub fn measured(&mut self, place: usize, bytes: u64, micros: u64) {
        let mean = &mut self.copies[place].micros[class_of(bytes)];
        *mean = Some(mean.map_or(micros, |mean| mean - mean / 8 + micros / 8));
    }

    /// After so long another copy is asked too.
    pub fn overdue_after_micros(&self, place: usize, bytes: u64) -> u64 {
        let usual = self.copies[place].micros(bytes);
        usual.map_or(OVERDUE_MICROS_UNKNOWN, |micros| {
            micros
                .saturating_mul(OVERDUE_TIMES)
                .clamp(OVERDUE_MICROS_MIN, OVERDUE_MICROS_MAX)
        })
    }

    fn latency(&self, place: usize, bytes: u64) -> u64 {
        self.copies[place].micros(bytes).unwrap_or(0)
    }

    fn cost(&self, place: usize, bytes: u64) -> u128 {
        let waiting = u128::from(self.second) * u128::from(self.latency(place, bytes));
        u128::from(self.copies[place].price.of(bytes)) * 1_000_000 + waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FREE: ReadPrice = ReadPrice { request: 0, block: 0 };
    const DEAR: ReadPrice = ReadPrice {
        request: 40_000,
        block: 34_332,
    };

    fn measured(prices: &[ReadPrice], second: u64, micros: &[u64]) -> ReadChoice {
        let mut choice = ReadChoice::new(prices, second);
        for (place, micros) in micros.iter().enumerate() {
            choice.measured(place, 4096, *micros);
        }
        choice
    }

    #[test]
    fn the_cheapest_is_read_however_slow_and_of_equals_the_fastest() {
        let mut choice = measured(&[DEAR, FREE, FREE], 0, &[1_000, 900_000, 800_000]);
        assert_eq!(choice.order(4096, &[0, 1, 2]), [2, 1, 0]);
        assert_eq!(choice.order(4096, &[0, 1]), [1, 0]);
    }

    #[test]
    fn the_slow_one_is_left_where_waiting_is_worth_more_than_the_price() {
        // 74,332 units for 4 KiB; at a million a second that is 74 ms.
        let mut choice = measured(&[DEAR, FREE], 1_000_000, &[1_000, 60_000]);
        assert_eq!(choice.order(4096, &[0, 1]), [1, 0]);
        let mut choice = measured(&[DEAR, FREE], 1_000_000, &[1_000, 90_000]);
        assert_eq!(choice.order(4096, &[0, 1]), [0, 1]);
        // A large read costs more than it is waited for.
        assert_eq!(choice.order(4 << 20, &[0, 1]), [1, 0]);
    }

    #[test]
    fn one_that_has_become_fast_is_found_again() {
        let mut choice = measured(&[FREE, FREE], 0, &[1_000, 50_000]);
        let mut first = Vec::new();
        for _ in 0..10 * EXPLORING_INTERVAL {
            let place = choice.order(4096, &[0, 1])[0];
            choice.measured(place, 4096, [1_000, 10][place]);
            first.push(place);
        }
        assert_eq!(
            first.iter().position(|place| *place == 1),
            Some(EXPLORING_INTERVAL as usize - 1)
        );
        let explored = first.iter().filter(|place| **place == 1).count();
        assert!((2..=10).contains(&explored), "{explored}");
    }

    #[test]
    fn what_was_measured_before_decides_the_first_read_and_what_comes_after_counts_more() {
        let mut choice = ReadChoice::new(&[FREE, FREE], 0);
        assert_eq!(choice.order(4096, &[0, 1]), [0, 1]);
        choice.expect(0, |bytes| 80_000 + bytes / 100);
        choice.expect(1, |bytes| 2_000 + bytes);
        let first = |choice: &mut ReadChoice, bytes| choice.order(bytes, &[0, 1])[0];
        assert_eq!((first(&mut choice, 4096), first(&mut choice, 4 << 20)), (1, 0));
        assert_eq!(choice.overdue_after_micros(0, 4096), 8 * (80_000 + (16 << 10) / 100));
        for _ in 0..40 {
            choice.measured(1, 4096, 200_000);
        }
        assert_eq!(first(&mut choice, 4096), 0);
    }

    #[test]
    fn nothing_dear_is_read_to_find_out() {
        let mut choice = measured(&[FREE, DEAR], 0, &[50_000, 10]);
        assert!((0..200).all(|_| choice.order(4096, &[0, 1]) == [0, 1]));
    }

    #[test]
    fn a_read_is_overdue_by_what_is_usual() {
        let mut choice = ReadChoice::new(&[FREE], 0);
        assert_eq!(choice.overdue_after_micros(0, 4096), OVERDUE_MICROS_UNKNOWN);
        choice.measured(0, 4096, 100_000);
        assert_eq!(choice.overdue_after_micros(0, 4096), 800_000);
        assert_eq!(choice.overdue_after_micros(0, 4 << 20), 800_000);
        choice.measured(0, 4 << 20, 10_000_000);
        assert_eq!(choice.overdue_after_micros(0, 4 << 20), OVERDUE_MICROS_MAX);
    }

    proptest! {
        /// Every candidate once; and unless it explores, nothing cheaper and nothing as cheap and faster behind the first.
        #[test]
        fn the_order_is_whole_and_the_first_is_the_best(
            prices in prop::collection::vec((0..100_u64, 0..10_u64), 1..5),
            samples in prop::collection::vec((0..5_usize, 1..(8_u64 << 20), 1..1_000_000_u64), 0..20),
            wanted in 1..31_usize,
            bytes in 1..(8_u64 << 20),
        ) {
            let prices: Vec<_> = prices.into_iter().map(|(request, block)| ReadPrice { request, block }).collect();
            let mut choice = ReadChoice::new(&prices, 0);
            for (place, bytes, micros) in samples {
                choice.measured(place % prices.len(), bytes, micros);
            }
            let candidates: Vec<usize> = (0..prices.len()).filter(|place| wanted >> place & 1 == 1).collect();
            let order = choice.order(bytes, &candidates);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&sorted, &candidates);
            for pair in order.windows(2) {
                let of = |place: usize| (prices[place].of(bytes), choice.latency(place, bytes));
                prop_assert!(of(pair[0]) <= of(pair[1]));
            }
        }
    }
}
