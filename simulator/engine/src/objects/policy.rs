//! Policies by name. Those that count blocks cannot hold objects of unlike sizes and are left out.

use super::job::{Error, Job, Normalisation};
use tombolo_base::names;
use tombolo_cache::{Advice, ArcBytes, Capacity, Gds, GdsConfig, Goal, Lru, Replacement, Sieve};

names! {
    /// Every policy that holds objects of unlike sizes.
    pub(super) enum Policy: "policy for objects" {
        Lru = "lru",
        Arc = "arc",
        Sieve = "sieve",
        GdsLatency = "gds-latency",
        GdsPrice = "gds-price",
        GdsfLatency = "gdsf-latency",
        GdsfPrice = "gdsf-price",
        GdsL = "gds-l",
        GdsLf = "gds-lf",
        GdsLc = "gds-lc",
        GdsLcf = "gds-lcf",
    }
}

/// The job's policy, told of the clouds' costs.
pub(super) fn build(job: &Job, capacity: Capacity) -> Result<Box<dyn Replacement>, Error> {
    let gds = |member| -> Box<dyn Replacement> { Box::new(Gds::new(capacity, configured(member, job))) };
    let mut policy: Box<dyn Replacement> = match job.policy.parse()? {
        Policy::Lru => Box::new(Lru::new(capacity)),
        Policy::Arc => Box::new(ArcBytes::new(capacity)),
        Policy::Sieve => Box::new(Sieve::new(capacity)),
        Policy::GdsLatency => gds(GdsConfig::LATENCY),
        Policy::GdsPrice => gds(GdsConfig::PRICE),
        Policy::GdsfLatency => gds(GdsConfig::F_LATENCY),
        Policy::GdsfPrice => gds(GdsConfig::F_PRICE),
        Policy::GdsL => gds(GdsConfig::L),
        Policy::GdsLf => gds(GdsConfig::LF),
        Policy::GdsLc => gds(GdsConfig::LC),
        Policy::GdsLcf => gds(GdsConfig::LCF),
    };
    for (class, location) in job.locations.iter().enumerate() {
        policy.advise(Advice::Costs {
            class: class as u8,
            costs: location.costs(),
        });
    }
    Ok(policy)
}

fn configured(mut member: GdsConfig, job: &Job) -> GdsConfig {
    if member.upper.goal != Goal::Price {
        match job.normalisation {
            Normalisation::Policy => {}
            Normalisation::None => member.upper.goal = Goal::Latency,
            Normalisation::RoundTrips(factor) => {
                member.upper.goal = Goal::NormalisedLatency;
                member.normalisation_factor = factor;
            }
        }
    }
    if let (Some(shares), Some(lower)) = (job.region_shares, &mut member.lower) {
        [member.upper.share, lower.share] = shares;
    }
    member
}
