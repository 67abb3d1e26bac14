//! Which jobs are refused.

use super::job::{Batching, GatewaySpec, Job, Limiter, Source, StoreSpec};
use crate::replay::Interrupted;
use thiserror::Error;

/// Why a job is refused, or ended.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum Error {
    #[error("{field} is {value}; {permitted}")]
    Setting {
        field: &'static str,
        value: f64,
        permitted: &'static str,
    },
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("interrupted")]
    Interrupted,
}

impl From<Interrupted> for Error {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

pub(super) fn check(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
    permitted: &'static str,
) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Setting {
        field,
        value,
        permitted,
    })
}

const HOUR_MS: f64 = 3_600_000.0;
const DAYS_S: f64 = 864_000.0;

impl Job {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.store.check()?;
        for (name, is_empty) in [
            ("gateways", self.gateways.is_empty()),
            ("windows_s", self.windows_s.is_empty()),
        ] {
            if is_empty {
                return Err(Error::Empty(name));
            }
        }
        for (from, to) in &self.windows_s {
            check("windows_s", *from, 0.0, DAYS_S, "0 to 864000 s")?;
            check(
                "windows_s",
                *to,
                from + 1e-6,
                DAYS_S,
                "later than its beginning, up to 864000 s",
            )?;
        }
        check("sample_s", self.sample_s, 0.001, DAYS_S, "0.001 to 864000 s")?;
        self.gateways.iter().try_for_each(GatewaySpec::check)
    }

    /// When the run ends.
    pub(super) fn end_us(&self) -> u64 {
        let end_s = self.windows_s.iter().map(|(_, to)| *to).fold(0.0, f64::max);
        (end_s * 1e6) as u64
    }
}

impl StoreSpec {
    pub(super) fn check(&self) -> Result<(), Error> {
        for (field, count) in [("store.partitions", self.partitions), ("store.servers", self.servers)] {
            check(field, f64::from(count), 1.0, 65_536.0, "1 to 65536")?;
        }
        for (field, ms) in [
            ("store.base_ms", self.base_ms),
            ("store.per_operation_ms", self.per_operation_ms),
            ("store.round_trip_ms", self.round_trip_ms),
            ("store.retransmission_ms", self.retransmission_ms),
        ] {
            check(field, ms, 0.0, HOUR_MS, "0 to 3600000 ms")?;
        }
        check("store.sigma", self.sigma, 0.0, 5.0, "0 to 5")?;
        for (field, rate) in [
            ("store.connection_mib_per_s", self.connection_mib_per_s),
            ("store.link_mib_per_s", self.link_mib_per_s),
            ("store.requests_per_s_max", self.requests_per_s_max.unwrap_or(1.0)),
        ] {
            check(field, rate, 1e-3, 1e9, "0.001 to 1e9")?;
        }
        check(
            "store.loss_permille",
            f64::from(self.loss_permille),
            0.0,
            999.0,
            "0 to 999",
        )?;
        for period in &self.slow_periods {
            check("store.slow_periods.from_s", period.from_s, 0.0, DAYS_S, "0 to 864000 s")?;
            check(
                "store.slow_periods.to_s",
                period.to_s,
                period.from_s,
                DAYS_S,
                "not before its beginning",
            )?;
            check("store.slow_periods.factor", period.factor, 1e-3, 1e6, "0.001 to 1e6")?;
        }
        for pause in &self.pauses {
            check("store.pauses.at_s", pause.at_s, 0.0, DAYS_S, "0 to 864000 s")?;
            check("store.pauses.for_s", pause.for_s, 0.0, DAYS_S, "0 to 864000 s")?;
        }
        Ok(())
    }
}

impl GatewaySpec {
    fn check(&self) -> Result<(), Error> {
        check("gateways.count", f64::from(self.count), 1.0, 10_000.0, "1 to 10000")?;
        check(
            "gateways.operations_max",
            f64::from(self.operations_max),
            1.0,
            f64::from(u32::MAX),
            "above zero",
        )?;
        check("gateways.timeout_s", self.timeout_s, 0.001, DAYS_S, "0.001 to 864000 s")?;
        if self.sizes.is_empty() {
            return Err(Error::Empty("gateways.sizes"));
        }
        for (bytes, weight) in &self.sizes {
            check("gateways.sizes", *bytes as f64, 0.0, 1e12, "0 to 1e12 bytes")?;
            check("gateways.sizes", *weight, 1e-9, 1e9, "weights above zero")?;
        }
        if self.keys == Some(0) {
            return Err(Error::Empty("gateways.keys"));
        }
        let steps: Vec<(f64, f64)> = match &self.source {
            Source::Poisson(steps) => steps.clone(),
            Source::Closed(steps) => steps.iter().map(|(from, count)| (*from, f64::from(*count))).collect(),
        };
        if steps.is_empty() {
            return Err(Error::Empty("gateways.source"));
        }
        for (from, rate) in &steps {
            check("gateways.source", *from, 0.0, DAYS_S, "0 to 864000 s")?;
            check("gateways.source", *rate, 0.0, 1e7, "0 to 1e7")?;
        }
        if !steps.is_sorted_by(|left, right| left.0 < right.0) {
            return Err(Error::Setting {
                field: "gateways.source",
                value: steps[0].0,
                permitted: "instants must rise",
            });
        }
        if let Batching::FixedMs(ms) = self.batching {
            check("gateways.batching.fixed-ms", ms, 0.001, HOUR_MS, "0.001 to 3600000 ms")?;
        }
        if let Batching::Stout(stout) = &self.batching {
            for ms in &stout.initial_ms {
                check(
                    "gateways.batching.stout.initial_ms",
                    *ms,
                    0.001,
                    HOUR_MS,
                    "0.001 to 3600000 ms",
                )?;
            }
        }
        match self.limiter {
            Limiter::None => Ok(()),
            Limiter::Fixed(limit)
            | Limiter::Adaptive(limit)
            | Limiter::Gradient(limit)
            | Limiter::Vegas(limit)
            | Limiter::Bbr(limit) => check("gateways.limiter", f64::from(limit), 1.0, 1e6, "1 to 1000000 requests"),
        }
    }
}
