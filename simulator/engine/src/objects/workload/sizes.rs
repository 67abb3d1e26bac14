//! Sizes of objects of which only the names are known.

use super::super::job::{Error, check_amount, check_positive};
use crate::random;
use serde::{Deserialize, Serialize};
use tombolo_base::Prng;

/// Surge (Barford and Crovella, SIGMETRICS'98, table 2): a log-normal body and a Pareto tail.
const BODY_MU: f64 = 9.357;
const BODY_SIGMA: f64 = 1.318;
const TAIL_SHARE: f64 = 0.07;
const TAIL_BEGIN: f64 = 133_000.0;
const TAIL_ALPHA: f64 = 1.1;
/// The tail has no end; a draw in a million would outweigh the rest.
const WEB_BYTES_MAX: f64 = 10e6;

/// How sizes of objects are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SizeLaw {
    /// All the same.
    Fixed {
        /// The size.
        bytes: u32,
    },
    /// Their logarithms are normal.
    LogNormal {
        /// Of the sizes themselves.
        mean_bytes: f64,
        /// Of the logarithms.
        sigma: f64,
    },
    /// Documents on web servers.
    Web,
}

impl SizeLaw {
    pub(super) fn check(&self) -> Result<(), Error> {
        match *self {
            Self::Fixed { bytes } => check_positive("sizes.bytes", f64::from(bytes)),
            Self::LogNormal { mean_bytes, sigma } => {
                check_positive("sizes.mean_bytes", mean_bytes)?;
                check_amount("sizes.sigma", sigma)
            }
            Self::Web => Ok(()),
        }
    }

    /// The size of the object of this name: the same whenever it is asked for.
    pub(super) fn draw(&self, seed: u64, name: u64) -> u64 {
        let prng = &mut Prng::new(Prng::new(seed).next_u64() ^ Prng::new(name).next_u64());
        let bytes = match *self {
            Self::Fixed { bytes } => f64::from(bytes),
            Self::LogNormal { mean_bytes, sigma } => mean_bytes * random::unit_lognormal(prng, sigma),
            Self::Web if random::unit(prng) < TAIL_SHARE => {
                let tail = TAIL_BEGIN * (1.0 - random::unit(prng)).powf(-1.0 / TAIL_ALPHA);
                tail.min(WEB_BYTES_MAX)
            }
            Self::Web => (BODY_MU + BODY_SIGMA * random::normal(prng)).exp(),
        };
        (bytes as u64).clamp(1, u64::from(u32::MAX))
    }
}
