//! The members of the GDS family as settings of one policy.

use super::Grouping;

/// What a region counts as cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Microseconds, as measured or modelled.
    Latency,
    /// Latency in multiples of a factor times the shortest round trip.
    NormalisedLatency,
    /// Dollars, by the prices of a GET, a PUT and egress.
    Price,
}

/// One region of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What it is to save.
    pub goal: Goal,
    /// Uses multiply the cost up to this; one: they do not.
    pub frequency_max: u8,
    /// Parts of the cache.
    pub share: u32,
}

/// One member of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdsConfig {
    /// As it stands in settings and metrics.
    pub name: &'static str,
    /// Where blocks are admitted and come back to when used.
    pub upper: Region,
    /// Where the upper region's least valuable go; without it they are evicted.
    pub lower: Option<Region>,
    /// Dirty blocks cost an upload besides the download.
    pub counts_uploads: bool,
    /// Multiples of the shortest round trip by which latencies are normalised; zero: 10 up to a round trip of 10 ms,
    /// above it 1 (the paper's best).
    pub normalisation_factor: u32,
    /// What shares one cost.
    pub grouping: Grouping,
}

impl GdsConfig {
    const fn one(name: &'static str, goal: Goal, frequency_max: u8, counts_uploads: bool) -> Self {
        Self {
            name,
            upper: Region {
                goal,
                frequency_max,
                share: 1,
            },
            lower: None,
            counts_uploads,
            normalisation_factor: 0,
            grouping: Grouping::Slots,
        }
    }

    const fn two(name: &'static str, upper_frequency_max: u8, lower_frequency_max: u8) -> Self {
        Self {
            lower: Some(Region {
                goal: Goal::Price,
                frequency_max: lower_frequency_max,
                share: 2,
            }),
            ..Self::one(name, Goal::NormalisedLatency, upper_frequency_max, true)
        }
    }

    /// GDS by latency.
    pub const LATENCY: Self = Self::one("gds-latency", Goal::Latency, 1, false);
    /// GDS by price.
    pub const PRICE: Self = Self::one("gds-price", Goal::Price, 1, false);
    /// GDSF by latency: uses, up to 4, multiply the cost.
    pub const F_LATENCY: Self = Self::one("gdsf-latency", Goal::Latency, 4, false);
    /// GDSF by price.
    pub const F_PRICE: Self = Self::one("gdsf-price", Goal::Price, 4, false);
    /// GDS-L: normalised latency, uploads included.
    pub const L: Self = Self::one("gds-l", Goal::NormalisedLatency, 1, true);
    /// GDS-LF: the same, with frequency.
    pub const LF: Self = Self::one("gds-lf", Goal::NormalisedLatency, 4, true);
    /// GDS-LC: an upper region for latency, and a lower one of twice its size for price.
    pub const LC: Self = Self::two("gds-lc", 1, 1);
    /// GDS-LCF: the same, with frequency in both.
    pub const LCF: Self = Self::two("gds-lcf", 2, 4);

    /// The same with another grouping.
    pub const fn with_grouping(self, grouping: Grouping) -> Self {
        Self { grouping, ..self }
    }
}
