//! The members of the GDS family as settings of one policy.

use super::Grouping;

/// What a region counts as cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Microseconds, as measured or modelled.
    Latency,
    /// Latency in multiples of a factor times the shortest round trip.
    NormalisedLatency,
    Price,
}

/// One region of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub goal: Goal,
    /// Uses multiply the cost up to this; one: they do not.
    pub frequency_max: u8,
    /// Parts of the cache.
    pub share: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdsConfig {
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

    pub const LATENCY: Self = Self::one("gds-latency", Goal::Latency, 1, false);
    pub const PRICE: Self = Self::one("gds-price", Goal::Price, 1, false);
    pub const F_LATENCY: Self = Self::one("gdsf-latency", Goal::Latency, 4, false);
    pub const F_PRICE: Self = Self::one("gdsf-price", Goal::Price, 4, false);
    pub const L: Self = Self::one("gds-l", Goal::NormalisedLatency, 1, true);
    pub const LF: Self = Self::one("gds-lf", Goal::NormalisedLatency, 4, true);
    pub const LC: Self = Self::two("gds-lc", 1, 1);
    pub const LCF: Self = Self::two("gds-lcf", 2, 4);

    pub const fn with_grouping(self, grouping: Grouping) -> Self {
        Self { grouping, ..self }
    }
}
