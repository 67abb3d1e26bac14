//! The bill of a run, by what is charged for.

use serde::{Deserialize, Serialize};

/// What a run costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dollars {
    /// Of all GETs.
    pub get: f64,
    /// Of all PUTs.
    pub put: f64,
    /// Of the bytes that left the cloud.
    pub egress: f64,
    /// Of what was stored, for as long as the run lasted in virtual time.
    pub storage: f64,
    /// Of all that.
    pub total: f64,
}

impl Dollars {
    /// Both bills as one.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            get: self.get + other.get,
            put: self.put + other.put,
            egress: self.egress + other.egress,
            storage: self.storage + other.storage,
            total: self.total + other.total,
        }
    }
}
