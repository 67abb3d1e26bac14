//! Prometheus text from one look at the gateway.
//!
//! One table names every metric, says what it means and how it is read, so that dashboards and alerts can be checked
//! against it ([`names`]). Names carry base units (bytes, seconds); counters end in `_total`. It owns no counters.

pub mod model;
pub(crate) mod requests;
mod table;

use model::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use tombolo_base::Distribution;

/// The format of [`encode`], for the `Content-Type` header.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric.
pub(crate) struct Metric {
    /// With unit and, for counters, `_total`.
    name: &'static str,
    kind: Kind,
    /// One line: what it means.
    help: &'static str,
    read: fn(&Metrics) -> Reading,
}

type Labels = Vec<(&'static str, String)>;

enum Reading {
    Integer(u64),
    Float(f64),
    Integers(Vec<(Labels, u64)>),
    Floats(Vec<(Labels, f64)>),
    /// Of microseconds, which are told in seconds.
    Durations(Vec<(Labels, Distribution)>),
}

/// Every metric, in the order of the text.
pub(crate) fn all() -> &'static [Metric] {
    table::METRICS
}

/// Every series name that a query may use: a histogram counts as three.
pub(crate) fn names() -> Vec<String> {
    let series = |metric: &Metric| match metric.kind {
        Kind::Histogram => ["bucket", "sum", "count"]
            .map(|suffix| format!("{}_{suffix}", metric.name))
            .to_vec(),
        Kind::Counter | Kind::Gauge => vec![metric.name.to_owned()],
    };
    all().iter().flat_map(series).collect()
}

/// The text of `/metrics`.
pub(crate) fn encode(metrics: Metrics) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Look(metrics)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Look(Metrics);

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        all().iter().try_for_each(|metric| {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let reading = (metric.read)(&self.0);
            write_reading(
                encoder.encode_descriptor(metric.name, metric.help, None, kind)?,
                &reading,
            )
        })
    }
}

/// Counters are written by the encoder of gauges under their full name: the encoder of counters follows OpenMetrics and
/// leaves `_total` out of HELP and TYPE, which readers of the older text format take for a metric without either.
fn write_reading(mut encoder: MetricEncoder, reading: &Reading) -> fmt::Result {
    match reading {
        Reading::Integer(value) => encoder.encode_gauge(value),
        Reading::Float(value) => encoder.encode_gauge(value),
        Reading::Integers(values) => values
            .iter()
            .try_for_each(|(labels, value)| encoder.encode_family(labels)?.encode_gauge(value)),
        Reading::Floats(values) => values
            .iter()
            .try_for_each(|(labels, value)| encoder.encode_family(labels)?.encode_gauge(value)),
        Reading::Durations(values) => values.iter().try_for_each(|(labels, micros)| {
            let seconds = |micros: u64| micros as f64 / 1e6;
            let bounds = micros.bounds.iter().map(|bound| seconds(*bound));
            let counts = micros.counts.iter().copied();
            let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
            let mut family = encoder.encode_family(labels)?;
            family.encode_histogram::<NoLabelSet>(seconds(micros.sum), micros.count(), &buckets, None)
        }),
    }
}

#[cfg(test)]
mod tests;
