//! What a replica costs, at its own prices: a ledger beside that of the store. Its forecast goes on like the month so far.

use super::ledger_file::LedgerFile;
use super::{PricesInForce, Used, removed, used, wall_s};
use std::path::Path;
use tombolo_billing::{Forecast, Held, Ledger, MonthTally};
use tombolo_cloud_driver::CauseCounts;

/// Of one replica.
pub(super) struct ReplicaLedger {
    name: String,
    prices: PricesInForce,
    file: LedgerFile,
    ledger: Ledger,
    /// What the ledger has of this life.
    counted: Used,
    /// What of it was written.
    written: Option<Used>,
}

/// The bill of a replica at one moment.
#[derive(Clone, Debug)]
pub struct ReplicaBillNow {
    pub name: String,
    pub prices: PricesInForce,
    pub month: MonthTally,
    pub previous: Option<MonthTally>,
    /// Requests and transfers since the start of this process.
    pub since_start_usd: f64,
    pub forecast: Forecast,
}

impl ReplicaLedger {
    pub fn open(state: &Path, name: String, prices: PricesInForce) -> Self {
        let file = LedgerFile::of_replica(state, &name);
        Self {
            ledger: file.read().unwrap_or_else(|| Ledger::new(wall_s())),
            name,
            prices,
            file,
            counted: Used::default(),
            written: None,
        }
    }

    pub fn is_of(&self, name: &str) -> bool {
        self.name == name
    }

    /// `held`: what lies in it.
    pub fn now(&mut self, counts: &[CauseCounts], held: Held) -> ReplicaBillNow {
        let used = used(counts);
        let mut news = used;
        for (news, counted) in news.iter_mut().zip(&self.counted) {
            *news = news.since(counted);
        }
        self.ledger.count(wall_s(), &news, removed(&news, &used), held);
        for (counted, news) in self.counted.iter_mut().zip(&news) {
            *counted = counted.plus(news);
        }
        let prices = &self.prices.prices;
        let usd = used.iter().map(|used| prices.of_usage(used).total);
        ReplicaBillNow {
            name: self.name.clone(),
            forecast: self.ledger.forecast::<0>(prices, None, 0.0),
            since_start_usd: usd.sum(),
            month: self.ledger.month.clone(),
            previous: self.ledger.previous.clone(),
            prices: self.prices.clone(),
        }
    }

    /// Unless nothing was asked for since.
    pub fn write(&mut self) {
        if self.written == Some(self.counted) {
            return;
        }
        match self.file.write(&self.ledger) {
            Ok(()) => self.written = Some(self.counted),
            Err(error) => {
                let replica = &self.name;
                tracing::warn!(%error, replica, "what a replica has cost so far cannot be written; it is tried again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bill::shipped;
    use tombolo_billing::Table;
    use tombolo_cloud_driver::{Cause, Operation};

    fn puts(charged: u64) -> [CauseCounts; 1] {
        [CauseCounts {
            cause: Cause::Flush,
            operation: Operation::Put,
            requests: charged,
            charged,
            bytes: 0,
        }]
    }

    #[test]
    fn a_replica_is_priced_by_its_own_table_over_restarts() {
        let state = tempfile::tempdir().unwrap();
        std::fs::create_dir(state.path().join("replicas")).unwrap();
        let open = |table| ReplicaLedger::open(state.path(), "far".into(), shipped(table));
        let mut ledger = open(Table::AwsS3Standard);
        let first = ledger.now(&puts(2_000), Held::default());
        assert!((first.since_start_usd - 0.01).abs() < 1e-9, "{first:?}");
        ledger.now(&puts(3_000), Held::default());
        ledger.write();
        let mut again = open(Table::AwsS3Standard);
        let month = |now: ReplicaBillNow| now.month.dollars(&now.prices.prices).total;
        assert!((month(again.now(&puts(1_000), Held::default())) - 0.02).abs() < 1e-9);
        assert!(month(open(Table::Free).now(&puts(1_000), Held::default())).abs() < 1e-9);
    }
}
