//! A probability as a binary fraction of 30 bits. Products round down, so a longer path is never likelier than a part
//! of it, and equal inputs give equal results on every machine.

/// Zero to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Likelihood(u32);

impl Likelihood {
    /// Impossible.
    pub const ZERO: Self = Self(0);
    /// Certain.
    pub const ONE: Self = Self(1 << 30);

    /// `part` of `whole`; at most one. A whole of zero gives zero.
    pub const fn ratio(part: u64, whole: u64) -> Self {
        Self::ONE.times(part, whole)
    }

    /// At most one.
    pub const fn from_permille(permille: u32) -> Self {
        Self::ratio(permille as u64, 1000)
    }

    /// This likelihood times `part / whole`, where `part` counts for at most `whole`.
    pub const fn times(self, part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        let part = if part < whole { part } else { whole };
        Self((self.0 as u128 * part as u128 / whole as u128) as u32)
    }

    /// Both of two independent events.
    pub const fn and(self, other: Self) -> Self {
        self.times(other.0 as u64, Self::ONE.0 as u64)
    }

    /// In units of 2^-30.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_are_exact() {
        assert_eq!(Likelihood::ratio(5, 5), Likelihood::ONE);
        assert_eq!(Likelihood::ratio(7, 5), Likelihood::ONE);
        assert_eq!(Likelihood::ratio(0, 5), Likelihood::ZERO);
        assert_eq!(Likelihood::ratio(5, 0), Likelihood::ZERO);
        assert_eq!(Likelihood::from_permille(500).bits(), 1 << 29);
    }

    proptest! {
        #[test]
        fn products_are_monotone_and_close_to_real_ones(a in 0u64..1000, b in 1u64..1000, c in 0u64..1000) {
            let first = Likelihood::ratio(a.min(b), b);
            let product = first.times(c.min(b), b);
            prop_assert!(product <= first);
            let real = (a.min(b) as f64 / b as f64) * (c.min(b) as f64 / b as f64);
            prop_assert!((f64::from(product.bits()) / f64::from(1 << 30) - real).abs() < 1e-8);
            prop_assert_eq!(first.and(Likelihood::ONE), first);
        }
    }
}
