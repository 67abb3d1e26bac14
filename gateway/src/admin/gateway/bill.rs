//! The bill as people and scripts see it.

use crate::admin::model::{BillStatus, CauseBill, OperationRequests, ReplicaBill};
use crate::bill::{BillNow, ReplicaBillNow};
use tombolo_cloud_driver::{Cause, CauseCounts, Operation};

pub(super) fn status(now: &BillNow, counts: &[CauseCounts]) -> BillStatus {
    let month = now.month.dollars(&now.prices.prices);
    let previous = now.previous.as_ref();
    let per_day = |window| -> f64 {
        let causes = Cause::ALL.into_iter();
        causes.map(|cause| now.usd_per_day(window, cause)).sum()
    };
    let causes: Vec<CauseBill> = Cause::ALL
        .into_iter()
        .map(|cause| cause_bill(now, counts, cause))
        .collect();
    BillStatus {
        prices: now.prices.name.clone(),
        prices_date: now.prices.date.to_string(),
        prices_source: now.prices.source.clone(),
        month: now.month.month.to_string(),
        counted_since_s: now.month.begun_s,
        month_usd: month.total,
        month_storage_usd: month.storage,
        previous_month_usd: previous.map(|month| month.dollars(&now.prices.prices).total),
        since_start_usd: causes.iter().map(|cause| cause.since_start_usd).sum(),
        usd_per_day_of_hour: per_day(now.hour.as_ref()),
        usd_per_day_of_day: per_day(now.day.as_ref()),
        storage_usd_per_day: now.forecast.storage_per_day,
        forecast_usd: now.forecast.total,
        budget_usd: now.budget.map(|budget| budget.usd_per_month),
        budget_percent: now.budget.map(|budget| budget.percent(now.all_stores_forecast_usd())),
        spared_usd_per_month: now.spared_usd_per_month(),
        causes,
        replicas: now.replicas.iter().map(replica_bill).collect(),
        all_stores_forecast_usd: now.all_stores_forecast_usd(),
    }
}

fn replica_bill(now: &ReplicaBillNow) -> ReplicaBill {
    let prices = &now.prices.prices;
    let month = now.month.dollars(prices);
    ReplicaBill {
        name: now.name.clone(),
        prices: now.prices.name.clone(),
        month_usd: month.total,
        month_storage_usd: month.storage,
        previous_month_usd: now.previous.as_ref().map(|month| month.dollars(prices).total),
        since_start_usd: now.since_start_usd,
        forecast_usd: now.forecast.total,
    }
}

fn cause_bill(now: &BillNow, counts: &[CauseCounts], cause: Cause) -> CauseBill {
    let mut bill = CauseBill {
        cause: cause.name().into(),
        since_start_usd: now.since_start_usd(cause),
        month_usd: now.of_cause(cause).total,
        usd_per_day: now.usd_per_day(now.day.as_ref(), cause),
        ..CauseBill::default()
    };
    for count in counts.iter().filter(|count| count.cause == cause) {
        *of_operation(&mut bill.requests, count.operation) += count.requests;
        bill.charged_requests += count.charged;
        match count.operation {
            Operation::Put => bill.sent_bytes += count.bytes,
            Operation::Get => bill.received_bytes += count.bytes,
            Operation::Head | Operation::List | Operation::Delete | Operation::Check => {}
        }
    }
    bill
}

fn of_operation(requests: &mut OperationRequests, operation: Operation) -> &mut u64 {
    match operation {
        Operation::Put => &mut requests.put,
        Operation::Get => &mut requests.get,
        Operation::Head => &mut requests.head,
        Operation::List => &mut requests.list,
        Operation::Delete => &mut requests.delete,
        Operation::Check => &mut requests.check,
    }
}
