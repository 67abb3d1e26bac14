//! What a month may cost, and when to say that it will cost more.

/// A warning is due when the forecast reaches one of these shares of the budget.
pub const SHARES_PERCENT: [u32; 3] = [50, 80, 100];
/// So far the forecast must fall below a share before reaching it is said again.
const RETURN_PERCENT: f64 = 5.0;

/// What a month may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// In US dollars.
    pub usd_per_month: f64,
}

/// What a forecast came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The largest of [`SHARES_PERCENT`] that it reaches; 0: none.
    pub share_percent: u32,
    /// It had not reached that before.
    pub is_new: bool,
}

impl Budget {
    /// The forecast in percent of the budget. Of nothing anything is too much.
    pub fn percent(&self, forecast_usd: f64) -> f64 {
        match self.usd_per_month {
            usd if usd > 0.0 => forecast_usd / usd * 100.0,
            _ if forecast_usd > 0.0 => f64::INFINITY,
            _ => 0.0,
        }
    }

    /// `told`: the share that was told of last.
    pub fn crossing(&self, forecast_usd: f64, told: u32) -> Crossing {
        let percent = self.percent(forecast_usd);
        let reached = SHARES_PERCENT.into_iter().rev();
        let reached = reached.clone().find(|share| percent >= f64::from(*share)).unwrap_or(0);
        let kept = told.max(reached);
        let has_fallen = percent < f64::from(kept) - RETURN_PERCENT;
        Crossing {
            share_percent: if has_fallen { reached } else { kept },
            is_new: reached > told,
        }
    }
}
