//! What the store costs, in US dollars at the prices of `[prices]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The bill. Dollars are computed from counts when somebody asks, at the prices in force now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BillStatus {
    /// The table's name, or the price file's path.
    pub prices: String,
    /// When the prices were looked up, as `2026-01-31`.
    pub prices_date: String,
    /// Where.
    pub prices_source: String,
    /// The calendar month (UTC), as `2026-01`.
    pub month: String,
    /// When counting began in it, in seconds since 1970: the month's start, or the gateway's first one in it.
    pub counted_since_s: u64,
    /// Spent in the month so far: requests, transfers and storage. It survives restarts; a crash loses up to a minute of it.
    pub month_usd: f64,
    /// Of that, what lay in the store, and what was removed before its least duration was over.
    pub month_storage_usd: f64,
    /// What the last month before it came to.
    pub previous_month_usd: Option<f64>,
    /// Requests and transfers since this process began.
    pub since_start_usd: f64,
    /// Requests and transfers as in the last hour; one that is not full yet counts as a whole one.
    pub usd_per_day_of_hour: f64,
    /// The same by the last day, or since the start.
    pub usd_per_day_of_day: f64,
    /// What lies in the store now.
    pub storage_usd_per_day: f64,
    /// What the month comes to in the store itself if it goes on like the last day.
    pub forecast_usd: f64,
    /// What it may come to.
    pub budget_usd: Option<f64>,
    /// The forecast of all stores in percent of the budget.
    pub budget_percent: Option<f64>,
    /// What a month of storage would cost more without deduplication and compression.
    pub spared_usd_per_month: f64,
    /// All of them, by name. Of the store itself, as all above but budget and forecast.
    pub causes: Vec<CauseBill>,
    /// Of each replica, at its own prices.
    #[serde(default)]
    pub replicas: Vec<ReplicaBill>,
    /// What the month comes to in all stores together; the budget is compared with this.
    #[serde(default)]
    pub all_stores_forecast_usd: f64,
}

/// What one replica costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaBill {
    /// As the settings name it.
    pub name: String,
    /// The table's name, or the price file's path.
    pub prices: String,
    /// Spent in the month so far: requests, transfers and storage.
    pub month_usd: f64,
    /// Of that, what lay in it.
    pub month_storage_usd: f64,
    /// What the last month before it came to.
    pub previous_month_usd: Option<f64>,
    /// Requests and transfers since this process began.
    pub since_start_usd: f64,
    /// What the month comes to if it goes on like the month so far.
    pub forecast_usd: f64,
}

/// What was asked of the store for one cause, and what that costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseBill {
    /// `demand`, `prefetch`, `flush`, `journal`, `tree`, `root`, `removal`, `recovery`, `check`, `replication`, `warm` or `other`.
    pub cause: String,
    /// Every attempt since this process began, by operation.
    pub requests: OperationRequests,
    /// Those of them that are charged: not what the store itself failed at, or what was never sent.
    pub charged_requests: u64,
    /// Payload of puts that succeeded.
    pub sent_bytes: u64,
    /// Payload of gets that succeeded.
    pub received_bytes: u64,
    /// Requests and transfers since this process began.
    pub since_start_usd: f64,
    /// Requests and transfers in the month so far.
    pub month_usd: f64,
    /// As in the last day, or since the start.
    pub usd_per_day: f64,
}

/// Requests by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationRequests {
    /// Objects written.
    pub put: u64,
    /// Objects read, whole or in part.
    pub get: u64,
    /// Objects looked at.
    pub head: u64,
    /// Pages of names.
    pub list: u64,
    /// Objects removed.
    pub delete: u64,
    /// Looks whether the store can be used.
    pub check: u64,
}
