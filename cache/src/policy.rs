//! The policies by name, for settings and for the simulator.

use crate::{
    Arc, Capacity, Gds, GdsConfig, Grouping, Lirs, Lru, Replacement, S3Fifo, Sarc, SarcConfig, Sieve, TwoQ, WTinyLfu,
};
use alloc::{boxed::Box, string::String};
use core::fmt;
use core::str::FromStr;

/// Every policy that decides as the accesses come. (MIN needs the whole trace: [`crate::Min::new`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// [`Lru`](crate::Lru).
    Lru,
    /// [`Arc`](crate::Arc).
    Arc,
    /// [`TwoQ`](crate::TwoQ).
    TwoQ,
    /// [`Lirs`](crate::Lirs).
    Lirs,
    /// [`S3Fifo`](crate::S3Fifo).
    S3Fifo,
    /// [`Sieve`](crate::Sieve).
    Sieve,
    /// [`WTinyLfu`](crate::WTinyLfu).
    WTinyLfu,
    /// [`Sarc`](crate::Sarc) with the paper's detector of runs.
    Sarc,
    /// [`Sarc`](crate::Sarc) with the stream table.
    SarcStreams,
    /// [`GdsConfig::LATENCY`].
    GdsLatency,
    /// [`GdsConfig::PRICE`].
    GdsPrice,
    /// [`GdsConfig::F_LATENCY`].
    GdsfLatency,
    /// [`GdsConfig::F_PRICE`].
    GdsfPrice,
    /// [`GdsConfig::L`].
    GdsL,
    /// [`GdsConfig::LF`].
    GdsLf,
    /// [`GdsConfig::LC`].
    GdsLc,
    /// [`GdsConfig::LCF`].
    GdsLcf,
}

impl Policy {
    /// Each once.
    pub const ALL: [Self; 17] = [
        Self::Lru,
        Self::Arc,
        Self::TwoQ,
        Self::Lirs,
        Self::S3Fifo,
        Self::Sieve,
        Self::WTinyLfu,
        Self::Sarc,
        Self::SarcStreams,
        Self::GdsLatency,
        Self::GdsPrice,
        Self::GdsfLatency,
        Self::GdsfPrice,
        Self::GdsL,
        Self::GdsLf,
        Self::GdsLc,
        Self::GdsLcf,
    ];

    /// As it stands in settings and metrics, and as [`FromStr`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Arc => "arc",
            Self::TwoQ => "2q",
            Self::Lirs => "lirs",
            Self::S3Fifo => "s3-fifo",
            Self::Sieve => "sieve",
            Self::WTinyLfu => "w-tinylfu",
            Self::Sarc => "sarc",
            Self::SarcStreams => "sarc-streams",
            Self::GdsLatency => "gds-latency",
            Self::GdsPrice => "gds-price",
            Self::GdsfLatency => "gdsf-latency",
            Self::GdsfPrice => "gdsf-price",
            Self::GdsL => "gds-l",
            Self::GdsLf => "gds-lf",
            Self::GdsLc => "gds-lc",
            Self::GdsLcf => "gds-lcf",
        }
    }

    /// The policy with its source's parameters. `grouping` concerns the GDS family.
    pub fn build(self, capacity: Capacity, grouping: Grouping) -> Box<dyn Replacement> {
        match self {
            Self::Lru => Box::new(Lru::new(capacity)),
            Self::Arc => Box::new(Arc::new(capacity)),
            Self::TwoQ => Box::new(TwoQ::new(capacity)),
            Self::Lirs => Box::new(Lirs::new(capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Sieve => Box::new(Sieve::new(capacity)),
            Self::WTinyLfu => Box::new(WTinyLfu::new(capacity)),
            Self::Sarc => Box::new(Sarc::new(capacity, SarcConfig::default())),
            Self::SarcStreams => Box::new(Sarc::new(capacity, SarcConfig::with_stream_table())),
            Self::GdsLatency => gds(capacity, GdsConfig::LATENCY, grouping),
            Self::GdsPrice => gds(capacity, GdsConfig::PRICE, grouping),
            Self::GdsfLatency => gds(capacity, GdsConfig::F_LATENCY, grouping),
            Self::GdsfPrice => gds(capacity, GdsConfig::F_PRICE, grouping),
            Self::GdsL => gds(capacity, GdsConfig::L, grouping),
            Self::GdsLf => gds(capacity, GdsConfig::LF, grouping),
            Self::GdsLc => gds(capacity, GdsConfig::LC, grouping),
            Self::GdsLcf => gds(capacity, GdsConfig::LCF, grouping),
        }
    }
}

fn gds(capacity: Capacity, config: GdsConfig, grouping: Grouping) -> Box<dyn Replacement> {
    Box::new(Gds::new(capacity, config.with_grouping(grouping)))
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} is not a replacement policy; known are", self.0)?;
        Policy::ALL
            .iter()
            .try_for_each(|policy| write!(out, " {}", policy.name()))
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownPolicy(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_back() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            let built = policy.build(Capacity::of_blocks(100), Grouping::Slots);
            assert_eq!(built.name(), policy.name());
        }
        assert!("clock".parse::<Policy>().is_err());
    }
}
