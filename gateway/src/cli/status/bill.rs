//! The bill in `tombolo status`.

use crate::admin::model::{BillStatus, ReplicaBill};

/// What it comes to.
pub(super) fn month(bill: &BillStatus) -> String {
    let budget = match (bill.budget_usd, bill.budget_percent) {
        (Some(budget), Some(percent)) => format!(", {percent:.1} % of the budget of {}", dollars(budget)),
        // Of nothing it is no share.
        (Some(budget), None) => format!(", beyond the budget of {}", dollars(budget)),
        _ => String::new(),
    };
    format!(
        "{} in {} so far, {} at its end{budget}; prices: {} of {}",
        dollars(bill.month_usd),
        bill.month,
        dollars(bill.forecast_usd),
        bill.prices,
        bill.prices_date
    )
}

/// What a replica comes to.
pub(super) fn of_replica(bill: &ReplicaBill) -> String {
    format!(
        "{}: {} so far, {} at the month's end; prices: {}",
        bill.name,
        dollars(bill.month_usd),
        dollars(bill.forecast_usd),
        bill.prices
    )
}

/// By cause, the dearest first; what costs nothing is left out.
pub(super) fn day(bill: &BillStatus) -> String {
    let causes = bill
        .causes
        .iter()
        .map(|cause| (cause.cause.as_str(), cause.usd_per_day));
    let mut shares: Vec<(&str, f64)> = causes.chain([("storage", bill.storage_usd_per_day)]).collect();
    shares.retain(|(_, usd)| *usd > 0.0);
    shares.sort_by(|left, right| right.1.total_cmp(&left.1));
    let shares: Vec<String> = shares
        .iter()
        .map(|(what, usd)| format!("{what} {}", dollars(*usd)))
        .collect();
    let all = dollars(bill.usd_per_day_of_day + bill.storage_usd_per_day);
    let hour = dollars(bill.usd_per_day_of_hour);
    let shares = if shares.is_empty() {
        String::new()
    } else {
        format!(": {}", shares.join(", "))
    };
    format!("{all}{shares}; requests and transfers as in the last hour: {hour}")
}

/// Cents, and of what is less than a cent two digits.
fn dollars(usd: f64) -> String {
    match usd {
        0.0 => "$0".into(),
        _ if usd.abs() >= 0.01 => format!("${usd:.2}"),
        _ => format!("${usd:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::model::CauseBill;

    #[test]
    fn the_bill_says_what_a_month_comes_to_and_why() {
        let cause = |cause: &str, usd_per_day| CauseBill {
            cause: cause.into(),
            usd_per_day,
            ..CauseBill::default()
        };
        let bill = BillStatus {
            prices: "wasabi".into(),
            prices_date: "2026-07-01".into(),
            month: "2026-08".into(),
            month_usd: 1.234,
            forecast_usd: 8.0,
            budget_usd: Some(10.0),
            budget_percent: Some(80.0),
            usd_per_day_of_hour: 2.5,
            usd_per_day_of_day: 0.5004,
            storage_usd_per_day: 0.75,
            causes: vec![cause("demand", 0.0), cause("flush", 0.5), cause("root", 0.0004)],
            ..BillStatus::default()
        };
        assert_eq!(
            month(&bill),
            "$1.23 in 2026-08 so far, $8.00 at its end, 80.0 % of the budget of $10.00; prices: wasabi of 2026-07-01"
        );
        let nothing = BillStatus {
            budget_usd: Some(0.0),
            budget_percent: None,
            ..bill.clone()
        };
        assert!(
            month(&nothing).contains("beyond the budget of $0;"),
            "{}",
            month(&nothing)
        );
        assert_eq!(
            day(&bill),
            "$1.25: storage $0.75, flush $0.50, root $4.0e-4; requests and transfers as in the last hour: $2.50"
        );
        assert!(day(&BillStatus::default()).starts_with("$0; "));
    }
}
