//! The policies by name, for settings and for the simulator.

use crate::{
    Arc, Capacity, Gds, GdsConfig, Grouping, Lirs, Lru, Replacement, S3Fifo, Sarc, SarcConfig, Sieve, TwoQ, WTinyLfu,
};
use alloc::boxed::Box;
use tombolo_base::names;

names! {
    /// Every policy of blocks that decides as the accesses come. (MIN needs the whole trace: [`crate::Min::new`]. Those of the
    /// GDS family that tell dirty from clean, GDS-L to GDS-LCF, have nothing to tell here: a dirty block is no policy's.)
    pub enum Policy: "replacement policy" {
        Lru = "lru",
        Arc = "arc",
        TwoQ = "2q",
        Lirs = "lirs",
        S3Fifo = "s3-fifo",
        Sieve = "sieve",
        WTinyLfu = "w-tinylfu",
        Sarc = "sarc",
        SarcStreams = "sarc-streams",
        GdsLatency = "gds-latency",
        GdsPrice = "gds-price",
        GdsfLatency = "gdsf-latency",
        GdsfPrice = "gdsf-price",
    }
}

impl Policy {
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
        }
    }
}

fn gds(capacity: Capacity, config: GdsConfig, grouping: Grouping) -> Box<dyn Replacement> {
    Box::new(Gds::new(capacity, config.with_grouping(grouping)))
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
