//! Policies by name. Those that count blocks cannot hold objects of unlike sizes and are left out.

use super::job::{Error, Job, Normalisation};
use tombolo_cache::{Advice, ArcBytes, Capacity, Gds, GdsConfig, Goal, Lru, Replacement, Sieve};

pub(super) const NAMES: [&str; 11] = [
    "lru",
    "arc",
    "sieve",
    "gds-latency",
    "gds-price",
    "gdsf-latency",
    "gdsf-price",
    "gds-l",
    "gds-lf",
    "gds-lc",
    "gds-lcf",
];

const FAMILY: [GdsConfig; 8] = [
    GdsConfig::LATENCY,
    GdsConfig::PRICE,
    GdsConfig::F_LATENCY,
    GdsConfig::F_PRICE,
    GdsConfig::L,
    GdsConfig::LF,
    GdsConfig::LC,
    GdsConfig::LCF,
];

pub(super) fn check_name(name: &str) -> Result<(), Error> {
    if NAMES.contains(&name) {
        Ok(())
    } else {
        Err(Error::UnknownPolicy(name.into()))
    }
}

/// The job's policy, told of the clouds' costs.
pub(super) fn build(job: &Job, capacity: Capacity) -> Result<Box<dyn Replacement>, Error> {
    let mut policy: Box<dyn Replacement> = match job.policy.as_str() {
        "lru" => Box::new(Lru::new(capacity)),
        "arc" => Box::new(ArcBytes::new(capacity)),
        "sieve" => Box::new(Sieve::new(capacity)),
        name => {
            let member = FAMILY.into_iter().find(|member| member.name == name);
            let member = member.ok_or_else(|| Error::UnknownPolicy(name.into()))?;
            Box::new(Gds::new(capacity, configured(member, job)))
        }
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
