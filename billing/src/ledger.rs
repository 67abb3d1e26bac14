//! What was used in the present month and in the one before, and what the month will come to.

use crate::{DAY_S, Dollars, GIB, Growth, HOUR_S, Held, MONTH_DAYS, Month, Prices, Usage, Window};
use alloc::vec::Vec;

/// What was used in one month.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MonthTally {
    /// Which.
    pub month: Month,
    /// When counting began in it, in seconds since 1970.
    pub begun_s: u64,
    /// What was used, for each cause.
    pub used: Vec<Usage>,
    /// Bytes that lay in the store by seconds, and objects by seconds.
    pub byte_seconds: f64,
    /// As `byte_seconds`.
    pub object_seconds: f64,
    /// Objects that were removed or overwritten.
    pub removed: Held,
}

impl MonthTally {
    fn new(month: Month, begun_s: u64) -> Self {
        Self {
            month,
            begun_s,
            ..Self::default()
        }
    }

    /// What it comes to, all causes and storage.
    pub fn dollars(&self, prices: &Prices) -> Dollars {
        let bills = self.used.iter().map(|used| prices.of_usage(used));
        let bill = bills.fold(Dollars::default(), |sum, bill| sum.plus(&bill));
        let charged = self.byte_seconds.max(self.object_seconds * prices.object_bytes_min);
        bill.with_storage(prices.of_storage(charged) + prices.of_early_removal(&self.removed))
    }

    /// What one cause comes to, without storage.
    pub fn of_cause(&self, cause: usize) -> Usage {
        self.used.get(cause).copied().unwrap_or_default()
    }

    fn add(&mut self, used: &[Usage], removed: Held) {
        self.used.resize(self.used.len().max(used.len()), Usage::default());
        for (sum, used) in self.used.iter_mut().zip(used) {
            *sum = sum.plus(used);
        }
        self.removed.bytes = self.removed.bytes.saturating_add(removed.bytes);
        self.removed.objects = self.removed.objects.saturating_add(removed.objects);
    }
}

/// What is kept over restarts.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ledger {
    /// The present month.
    pub month: MonthTally,
    /// The last month before it in which anything was counted.
    pub previous: Option<MonthTally>,
    /// What lay in the store at the last count.
    pub held: Held,
    /// When that was, in seconds since 1970.
    pub counted_s: u64,
    /// The share of the budget that was told of last in this month, in percent.
    pub told_percent: u32,
}

impl Ledger {
    /// Counting begins.
    pub fn new(now_s: u64) -> Self {
        Self {
            month: MonthTally::new(Month::at(now_s), now_s),
            counted_s: now_s,
            ..Self::default()
        }
    }

    /// What was used since the last count and what lies in the store now. What lay there then lay there until now, also while
    /// nobody counted. What came with the turn of a month counts for the new one.
    ///
    /// A clock that was set back adds no time. One that was wrong for a while, and leads back into the month before, goes on with
    /// that, and what was counted meanwhile is its own.
    pub fn count(&mut self, now_s: u64, used: &[Usage], removed: Held, held: Held) {
        let month = Month::at(now_s);
        if month > self.month.month {
            self.lie_until(self.month.month.end_s());
            self.counted_s = self.counted_s.max(month.start_s());
        }
        if month != self.month.month {
            self.turn_to(month, now_s);
        }
        self.lie_until(now_s);
        self.month.add(used, removed);
        self.held = held;
        self.counted_s = now_s;
    }

    fn turn_to(&mut self, month: Month, now_s: u64) {
        self.told_percent = 0;
        if let Some(mut before) = self.previous.take_if(|previous| previous.month == month) {
            before.add(&self.month.used, self.month.removed);
            self.month = before;
            return;
        }
        let begun_s = match month > self.month.month {
            true => month.start_s(),
            false => now_s,
        };
        let fresh = MonthTally::new(month, begun_s);
        self.previous = Some(core::mem::replace(&mut self.month, fresh));
    }

    fn lie_until(&mut self, time_s: u64) {
        let seconds = time_s.saturating_sub(self.counted_s) as f64;
        self.month.byte_seconds += self.held.bytes as f64 * seconds;
        self.month.object_seconds += self.held.objects as f64 * seconds;
        self.counted_s = self.counted_s.max(time_s);
    }

    /// What the month will come to when the rest of it is as `lately`; when that is less than an hour, as the month so far.
    /// `growth` is how many bytes a day come to lie in the store.
    pub fn forecast<const CAUSES: usize>(
        &self,
        prices: &Prices,
        lately: Option<&Window<CAUSES>>,
        growth_bytes_per_day: f64,
    ) -> Forecast {
        let spent = self.month.dollars(prices);
        let left_days = self.month.month.end_s().saturating_sub(self.counted_s) as f64 / DAY_S as f64;
        let counted_s = self.counted_s.saturating_sub(self.month.begun_s).max(HOUR_S);
        let so_far_per_day = DAY_S as f64 / counted_s as f64;
        let operation_per_day = match lately.filter(|window| window.span_s >= HOUR_S) {
            Some(window) => {
                let bills = window.used.iter().map(|used| prices.of_usage(used).total);
                bills.sum::<f64>() * window.per_day()
            }
            None => spent.operation() * so_far_per_day,
        };
        let removal_per_day = prices.of_early_removal(&self.month.removed) * so_far_per_day;
        let growth = Growth {
            initial_gib: prices.charged_bytes(&self.held) / GIB,
            gib_per_period: growth_bytes_per_day / GIB,
            periods: left_days,
        };
        let usd_per_gib_day = prices.storage_usd_per_gib_month / MONTH_DAYS;
        Forecast {
            spent: spent.total,
            operation_per_day,
            storage_per_day: growth.initial_gib * usd_per_gib_day + removal_per_day,
            total: spent.total + (operation_per_day + removal_per_day) * left_days + growth.usd(usd_per_gib_day),
        }
    }
}

/// What a month will come to, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// So far.
    pub spent: f64,
    /// For requests and transfers, from now on.
    pub operation_per_day: f64,
    /// For what lies in the store now, and what is removed before its least duration is over.
    pub storage_per_day: f64,
    /// At the month's end.
    pub total: f64,
}
