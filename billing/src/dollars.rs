//! The equations from what was used to what it costs.
//!
//! Operations: each kind of request by the thousand, bytes by the GiB. Storage: bytes by the time that they lie there. Sums are
//! floating-point: the counters are the truth, and are priced when somebody asks, so nothing adds up errors.

use crate::{Held, Prices, Usage};

/// Bytes in a GiB.
pub const GIB: f64 = (1u64 << 30) as f64;
/// Days in a mean month of the Gregorian calendar.
pub const MONTH_DAYS: f64 = 365.2425 / 12.0;
/// Seconds in it.
pub const MONTH_SECONDS: f64 = MONTH_DAYS * 86_400.0;

/// A bill, by what is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Dollars {
    /// Of all GETs and HEADs.
    pub get: f64,
    /// Of all PUTs, copies and LISTs.
    pub put: f64,
    /// Of all DELETEs.
    pub delete: f64,
    /// Of the bytes that were sent.
    pub upload: f64,
    /// Of the bytes that were read, wherever they went.
    pub retrieval: f64,
    /// Of the bytes that left the cloud.
    pub egress: f64,
    /// Of what was stored, for as long as it was.
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
            delete: self.delete + other.delete,
            upload: self.upload + other.upload,
            retrieval: self.retrieval + other.retrieval,
            egress: self.egress + other.egress,
            storage: self.storage + other.storage,
            total: self.total + other.total,
        }
    }

    /// The same with so much for storage.
    pub fn with_storage(self, storage: f64) -> Self {
        Self {
            storage: self.storage + storage,
            total: self.total + storage,
            ..self
        }
    }

    /// All but storage: the operational cost of the Tombolo paper.
    pub fn operation(&self) -> f64 {
        self.get + self.put + self.delete + self.upload + self.retrieval + self.egress
    }
}

impl Prices {
    /// What requests and transfers cost.
    pub fn of_usage(&self, usage: &Usage) -> Dollars {
        let requests = |count: u64, usd_per_1000: f64| count as f64 / 1e3 * usd_per_1000;
        let transfer = |bytes: u64, usd_per_gib: f64| bytes as f64 / GIB * usd_per_gib;
        let bill = Dollars {
            get: requests(usage.gets, self.get_usd_per_1000) + requests(usage.heads, self.head_usd_per_1000),
            put: requests(usage.puts, self.put_usd_per_1000) + requests(usage.lists, self.list_usd_per_1000),
            delete: requests(usage.deletes, self.delete_usd_per_1000),
            upload: transfer(usage.bytes_up, self.upload_usd_per_gib),
            retrieval: transfer(usage.bytes_down, self.retrieval_usd_per_gib),
            egress: transfer(usage.bytes_down, self.egress_usd_per_gib),
            ..Dollars::default()
        };
        Dollars {
            total: bill.operation(),
            ..bill
        }
    }

    /// As how many bytes objects are charged. Of their sizes only the sum is known, so where some are below the minimum and
    /// others above it the bill is higher.
    pub fn charged_bytes(&self, held: &Held) -> f64 {
        (held.bytes as f64).max(held.objects as f64 * self.object_bytes_min)
    }

    /// What storage costs, from charged bytes by the seconds that they lay there.
    pub fn of_storage(&self, byte_seconds: f64) -> f64 {
        byte_seconds / GIB / MONTH_SECONDS * self.storage_usd_per_gib_month
    }

    /// What is charged for objects that are removed or overwritten right after they were put, as journal objects and roots are:
    /// zero without a minimum duration.
    pub fn of_early_removal(&self, removed: &Held) -> f64 {
        self.of_storage(self.charged_bytes(removed) * self.storage_days_min * 86_400.0)
    }
}

/// A store that grows evenly: section 6.3 of the Tombolo paper, whose periods are months.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// *DS_init*.
    pub initial_gib: f64,
    /// *GR*.
    pub gib_per_period: f64,
    /// 36 in the paper.
    pub periods: f64,
}

impl Growth {
    /// Equation (4): *DS = DS_init + GR n*.
    pub fn final_gib(&self) -> f64 {
        self.initial_gib + self.gib_per_period * self.periods
    }

    /// Equation (5): *Cost = (DS_init n + GR (1 + 2 + ... + n)) UnitPrice*.
    pub fn usd(&self, usd_per_gib_period: f64) -> f64 {
        let sum_of_periods = self.periods * (self.periods + 1.0) / 2.0;
        (self.initial_gib * self.periods + self.gib_per_period * sum_of_periods) * usd_per_gib_period
    }

    /// Equation (6): *CostPerGB = Cost / DS*; zero where nothing lies.
    pub fn usd_per_gib(&self, usd_per_gib_period: f64) -> f64 {
        let final_gib = self.final_gib();
        if final_gib > 0.0 {
            self.usd(usd_per_gib_period) / final_gib
        } else {
            0.0
        }
    }
}
