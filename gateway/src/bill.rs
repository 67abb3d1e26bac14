//! The bill: what the store is asked for, by cause, at the prices of `[prices]`.
//!
//! The driver counts; here the counts go into a ledger of the calendar month (UTC), which is kept over restarts, and are priced
//! when somebody asks. The ledger is written at most once a minute, and when the gateway stops, so a crash loses what was counted
//! in the last minute. What the month has used is priced as a whole by the prices in force now.
//!
//! Storage is what local metadata knows of: objects of data. The bucket's own metadata, some MiB, is left out.

mod ledger_file;
mod price_file;
mod replica_bill;

pub use price_file::{PriceFileError, PricesInForce, load, shipped};
pub use replica_bill::ReplicaBillNow;

use crate::runtime::Gateway;
use ledger_file::LedgerFile;
use replica_bill::ReplicaLedger;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tombolo_base::BLOCK_BYTES;
use tombolo_billing::{
    Budget, Crossing, DAY_S, Dollars, Forecast, HOUR_S, Held, Ledger, MonthTally, Rates, UnitPrices, Usage, Window,
};
use tombolo_cloud_driver::{Cause, CauseCounts, Operation};

const CAUSES: usize = Cause::ALL.len();
/// Between two counts that nobody asked for, and two writings of the ledger.
const INTERVAL: Duration = Duration::from_secs(60);

/// What was used, for each cause.
type Used = [Usage; CAUSES];

/// What the store costs.
pub struct Bill {
    gateway: Arc<Gateway>,
    prices: PricesInForce,
    budget: Option<Budget>,
    file: LedgerFile,
    started: Instant,
    state: Mutex<State>,
    ending: Arc<Ending>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Of named stores, which the budget is for too.
    others: Mutex<Vec<Arc<Bill>>>,
}

/// Whether the thread is to end.
#[derive(Debug, Default)]
struct Ending {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Ending {
    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// At most so long; true: it is to end.
    fn wait(&self, timeout: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_set, timeout, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

struct State {
    ledger: Ledger,
    /// What the ledger has of this life.
    counted: Used,
    rates: Rates<CAUSES>,
    replicas: Vec<ReplicaLedger>,
    /// What of this life was written, and which share of the budget was told of then.
    written: Option<(Used, u32)>,
}

/// Notes what was asked of the store by something else than a gateway that serves, such as a recovery, in the state directory that
/// it has made.
pub fn note(state_directory: &Path, counts: &[CauseCounts]) -> std::io::Result<()> {
    let (file, now_s, used) = (LedgerFile::new(state_directory), wall_s(), used(counts));
    let mut ledger = file.read().unwrap_or_else(|| Ledger::new(now_s));
    let held = ledger.held;
    ledger.count(now_s, &used, removed(&used, &used), held);
    file.write(&ledger)
}

/// The bill at one moment.
#[derive(Clone, Debug)]
pub struct BillNow {
    pub prices: PricesInForce,
    pub month: MonthTally,
    pub previous: Option<MonthTally>,
    /// Since the start of this process.
    pub used: Used,
    pub hour: Option<Window<CAUSES>>,
    pub day: Option<Window<CAUSES>>,
    pub forecast: Forecast,
    pub budget: Option<Budget>,
    /// Bytes that are not in the store because of deduplication and compression.
    pub spared_bytes: u64,
    pub replicas: Vec<ReplicaBillNow>,
    /// What the month comes to in the stores that share the budget.
    pub others_forecast_usd: f64,
}

impl Bill {
    /// Goes on where the state directory's ledger ended, and warns of prices that are out of date.
    pub fn start(
        gateway: &Arc<Gateway>,
        state_directory: &Path,
        prices: PricesInForce,
        replicas: Vec<(String, PricesInForce)>,
        budget_usd_per_month: Option<f64>,
    ) -> std::io::Result<Arc<Self>> {
        let now_s = wall_s();
        let all_prices = std::iter::once(&prices).chain(replicas.iter().map(|(_, prices)| prices));
        for (prices, days) in all_prices.filter_map(|prices| Some((prices, prices.outdated_days(now_s)?))) {
            let (prices, date) = (&prices.name, prices.date);
            tracing::warn!(prices, %date, days, "the prices of the store were looked up long ago; [prices] may name others");
        }
        let file = LedgerFile::new(state_directory);
        let mut rates = Rates::default();
        // What the start asks for comes after it.
        rates.look(0, Used::default());
        let bill = Arc::new(Self {
            gateway: gateway.clone(),
            prices,
            budget: budget_usd_per_month.map(|usd_per_month| Budget { usd_per_month }),
            started: Instant::now(),
            state: Mutex::new(State {
                ledger: file.read().unwrap_or_else(|| Ledger::new(now_s)),
                counted: Used::default(),
                rates,
                replicas: replicas
                    .into_iter()
                    .map(|(name, prices)| ReplicaLedger::open(state_directory, name, prices))
                    .collect(),
                written: None,
            }),
            file,
            ending: Arc::default(),
            thread: Mutex::default(),
            others: Mutex::default(),
        });
        let (counting, ending) = (Arc::downgrade(&bill), bill.ending.clone());
        let run = move || {
            while let Some(bill) = counting.upgrade() {
                bill.look();
                drop(bill);
                if ending.wait(INTERVAL) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("bill".into()).spawn(run)?;
        *bill.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(bill)
    }

    /// After the gateway has stopped, so that its last requests count too.
    pub fn stop(&self) {
        self.ending.set();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
        self.look();
    }

    /// What is done every minute.
    fn look(&self) {
        let now = self.now();
        self.tell(&now);
        self.write();
    }

    /// The budget is compared with the sum of this and of the `other` of a store beside it.
    pub fn share_budget_with(&self, other: Arc<Self>) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(other);
    }

    /// What policies weigh.
    pub fn unit_prices(&self) -> UnitPrices {
        self.prices.prices.units()
    }

    /// Counts, and prices what was counted.
    pub fn now(&self) -> BillNow {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let others_forecast_usd = others.iter().map(|other| other.now().all_stores_forecast_usd()).sum();
        let totals = self.gateway.snapshot().totals;
        let used = used(&self.gateway.cause_counts());
        let held = Held {
            bytes: totals.object_bytes,
            objects: totals.objects,
        };
        let uptime_s = self.started.elapsed().as_secs();
        let mut state = self.state();
        // Who asked meanwhile may have counted more already.
        let mut news = used;
        for (news, counted) in news.iter_mut().zip(&state.counted) {
            *news = news.since(counted);
        }
        let removed = removed(&news, &used);
        state.ledger.count(wall_s(), &news, removed, held);
        for (counted, news) in state.counted.iter_mut().zip(&news) {
            *counted = counted.plus(news);
        }
        state.rates.look(uptime_s, used);
        let (hour, day) = (
            state.rates.over(uptime_s, HOUR_S, &used),
            state.rates.over(uptime_s, DAY_S, &used),
        );
        let growth_bytes_per_day = day.as_ref().map_or(0.0, |window| {
            window.used[Cause::Flush as usize].bytes_up as f64 * window.per_day()
        });
        let prices = &self.prices.prices;
        let blocks = totals.blocks_unique + totals.blocks_duplicate;
        let mut replicas = Vec::new();
        for look in self.gateway.replicas() {
            let behind = look.status.behind;
            let held = Held {
                bytes: held.bytes.saturating_sub(behind.bytes),
                objects: held.objects.saturating_sub(behind.objects),
            };
            let ledger = state.replicas.iter_mut().find(|ledger| ledger.is_of(&look.status.name));
            replicas.extend(ledger.map(|ledger| ledger.now(&look.causes, held)));
        }
        BillNow {
            replicas,
            others_forecast_usd,
            forecast: state.ledger.forecast(prices, day.as_ref(), growth_bytes_per_day),
            prices: self.prices.clone(),
            month: state.ledger.month.clone(),
            previous: state.ledger.previous.clone(),
            used,
            hour,
            day,
            budget: self.budget,
            spared_bytes: (blocks * BLOCK_BYTES as u64).saturating_sub(totals.object_bytes),
        }
    }

    /// Once for each share of the budget that the forecast comes to.
    fn tell(&self, now: &BillNow) {
        let Some(budget) = self.budget else { return };
        let mut state = self.state();
        let forecast_usd = now.all_stores_forecast_usd();
        let Crossing { share_percent, is_new } = budget.crossing(forecast_usd, state.ledger.told_percent);
        state.ledger.told_percent = share_percent;
        drop(state);
        if is_new {
            let (month, spent_usd) = (now.month.month, now.forecast.spent);
            tracing::warn!(
                %month,
                spent_usd,
                forecast_usd,
                budget_usd = budget.usd_per_month,
                "the forecast of the store's bill reaches {share_percent} % of the budget"
            );
        }
    }

    /// Unless nothing was asked for since: what lies in the store follows from the ledger as it is.
    fn write(&self) {
        let (ledger, counted) = {
            let mut state = self.state();
            state.replicas.iter_mut().for_each(ReplicaLedger::write);
            let counted = (state.counted, state.ledger.told_percent);
            if state.written == Some(counted) {
                return;
            }
            (state.ledger.clone(), counted)
        };
        match self.file.write(&ledger) {
            Ok(()) => self.state().written = Some(counted),
            Err(error) => tracing::warn!(%error, "what the store has cost so far cannot be written; it is tried again"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BillNow {
    /// What the month comes to, the store, all replicas and the stores that share the budget.
    pub fn all_stores_forecast_usd(&self) -> f64 {
        let replicas = self.replicas.iter().map(|replica| replica.forecast.total);
        self.forecast.total + replicas.sum::<f64>() + self.others_forecast_usd
    }

    /// Requests and transfers of one cause, in this month.
    pub fn of_cause(&self, cause: Cause) -> Dollars {
        self.prices.prices.of_usage(&self.month.of_cause(cause as usize))
    }

    /// Requests and transfers since the start of this process.
    pub fn since_start_usd(&self, cause: Cause) -> f64 {
        self.prices.prices.of_usage(&self.used[cause as usize]).total
    }

    /// Of one cause, as in a window.
    pub fn usd_per_day(&self, window: Option<&Window<CAUSES>>, cause: Cause) -> f64 {
        window.map_or(0.0, |window| {
            self.prices.prices.of_usage(&window.used[cause as usize]).total * window.per_day()
        })
    }

    /// What would be charged for what deduplication and compression keep out of the store.
    pub fn spared_usd_per_month(&self) -> f64 {
        self.spared_bytes as f64 / tombolo_billing::GIB * self.prices.prices.storage_usd_per_gib_month
    }
}

/// Requests that are charged for, from all that were made.
fn used(counts: &[CauseCounts]) -> Used {
    let mut used = Used::default();
    for count in counts {
        let of_cause = &mut used[count.cause as usize];
        match count.operation {
            Operation::Put => {
                of_cause.puts += count.charged;
                of_cause.bytes_up += count.bytes;
            }
            Operation::Get => {
                of_cause.gets += count.charged;
                of_cause.bytes_down += count.bytes;
            }
            Operation::Head => of_cause.heads += count.charged,
            // A check asks for one key.
            Operation::List | Operation::Check => of_cause.lists += count.charged,
            Operation::Delete => of_cause.deletes += count.charged,
        }
    }
    used
}

/// What was removed or overwritten, for classes that charge a least duration: each root takes the place of the one before, and
/// what is deleted is metadata, of which the mean size is known.
fn removed(news: &Used, all: &Used) -> Held {
    let metadata = all[Cause::Journal as usize].plus(&all[Cause::Tree as usize]);
    let mean_bytes = metadata.bytes_up / metadata.puts.max(1);
    let deletes: u64 = news.iter().map(|used| used.deletes).sum();
    let roots = &news[Cause::Root as usize];
    Held {
        bytes: roots.bytes_up.saturating_add(deletes.saturating_mul(mean_bytes)),
        objects: roots.puts + deletes,
    }
}

fn wall_s() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
