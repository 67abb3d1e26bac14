//! Prometheus text from one look at the gateway.
//!
//! One table names every metric, says what it means and how it is read, so that dashboards and alerts can be checked
//! against it ([`names`]). Names carry base units (bytes, seconds); counters end in `_total`. It owns no counters.

pub mod model;
pub(crate) mod requests;
mod table;

use crate::settings::FIRST;
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
            let reading = match self.0.named.is_empty() {
                true => (metric.read)(&self.0),
                false => of_all_stores(&self.0, metric.read),
            };
            write_reading(
                encoder.encode_descriptor(metric.name, metric.help, None, kind)?,
                &reading,
            )
        })
    }
}

/// Each series with its store, once there are several.
fn of_all_stores(metrics: &Metrics, read: fn(&Metrics) -> Reading) -> Reading {
    let named = metrics.named.iter().map(|(name, metrics)| (name.as_str(), metrics));
    let readings = std::iter::once((FIRST, metrics)).chain(named);
    let readings = readings.map(|(store, metrics)| read(metrics).labelled(store));
    readings.reduce(Reading::and).unwrap_or(Reading::Integers(Vec::new()))
}

impl Reading {
    fn labelled(self, store: &str) -> Self {
        fn each<T>(values: Vec<(Labels, T)>, store: &str) -> Vec<(Labels, T)> {
            let labelled = |(mut labels, value): (Labels, T)| {
                labels.push(("store", store.to_owned()));
                (labels, value)
            };
            values.into_iter().map(labelled).collect()
        }
        match self {
            Self::Integer(value) => Self::Integers(each(vec![(Labels::new(), value)], store)),
            Self::Float(value) => Self::Floats(each(vec![(Labels::new(), value)], store)),
            Self::Integers(values) => Self::Integers(each(values, store)),
            Self::Floats(values) => Self::Floats(each(values, store)),
            Self::Durations(values) => Self::Durations(each(values, store)),
        }
    }

    /// Of one metric in two stores. An empty one may be of either kind.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Integers(all), Self::Integers(more)) => Self::Integers(joined(all, more)),
            (Self::Floats(all), Self::Floats(more)) => Self::Floats(joined(all, more)),
            (Self::Durations(all), Self::Durations(more)) => Self::Durations(joined(all, more)),
            (Self::Integers(all), other) | (other, Self::Integers(all)) if all.is_empty() => other,
            (one, _) => one,
        }
    }
}

fn joined<T>(mut all: Vec<T>, more: Vec<T>) -> Vec<T> {
    all.extend(more);
    all
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
