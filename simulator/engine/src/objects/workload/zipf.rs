//! Objects of Zipf-like popularity that are only read: a stand-in for the paper's Media workload (MediSyn), of which
//! bytes and requests are printed, but neither the number of objects nor the exponent.

use super::super::job::{Error, check_amount, setting};
use super::{Builder, Operation, SizeLaw, Workload};
use crate::random;
use crate::replay::Progress;
use serde::{Deserialize, Serialize};
use tombolo_base::Prng;

/// Requests drawn by popularity.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Zipf {
    /// How many there are.
    pub objects: u32,
    /// How many are drawn.
    pub requests: u64,
    /// The n-th most popular object is asked for in proportion to n to the power of minus this.
    pub exponent: f64,
    /// Of the objects.
    pub sizes: SizeLaw,
    /// Decides everything that is drawn.
    pub seed: u64,
}

impl Zipf {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.objects == 0 {
            return Err(setting("workload.objects", 0, "it must be above zero"));
        }
        check_amount("workload.exponent", self.exponent)?;
        self.sizes.check()
    }

    pub(super) fn build(&self, progress: Progress<'_>) -> Result<Workload, Error> {
        let mut cumulated: Vec<f64> = (1..=self.objects).map(|n| f64::from(n).powf(-self.exponent)).collect();
        let mut total = 0.0;
        for weight in &mut cumulated {
            total += *weight;
            *weight = total;
        }
        let prng = &mut Prng::new(self.seed);
        let mut builder = Builder::new(progress);
        for _ in 0..self.requests {
            let point = random::unit(prng) * total;
            let rank = cumulated.partition_point(|end| *end <= point).min(cumulated.len() - 1) as u64;
            builder.add(0, rank, self.sizes.draw(self.seed, rank), Operation::Get)?;
        }
        builder.finish(false)
    }
}
