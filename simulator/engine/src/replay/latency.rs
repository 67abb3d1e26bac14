//! Latencies out of tables, by common random numbers: what is drawn depends on the seed and on what is asked for, not on
//! the order of asking, so that all policies see the same disk and the same cloud.

use super::error::Error;
use super::job::Latency;
use super::models::MODELS;
use tombolo_cloud_driver::latency_table::{Cells, Quantiles};

/// A distribution by its quantiles, of every request alike.
#[derive(Clone, Debug)]
pub struct Table {
    micros: Quantiles,
}

/// A latency beyond this is a slip of the pen.
const MS_MAX: f64 = 3_600_000.0;

impl Table {
    pub fn of(latency: &Latency, field: &'static str) -> Result<Self, Error> {
        let refuse = |reason: String| Error::Job { field, reason };
        let points = match latency {
            Latency::Table(points) => points.clone(),
            Latency::Named(name) => match MODELS.iter().find(|(known, _)| known == name) {
                Some((_, points)) => points.to_vec(),
                None => {
                    let names: Vec<&str> = MODELS.iter().map(|(name, _)| *name).collect();
                    let known = names.join(" ");
                    return Err(refuse(format!("{name:?} is not a latency model; known are {known}")));
                }
            },
            Latency::Measured(_) => return Err(refuse("cells of a store that was measured stand for no disk".into())),
        };
        let points = points.iter().map(|(quantile, ms)| (*quantile, ms * 1_000.0)).collect();
        let micros = Quantiles::new(points, MS_MAX * 1_000.0).ok_or_else(|| refuse(Quantiles::RULE.into()))?;
        Ok(Self { micros })
    }

    /// True when nothing ever takes any time.
    pub fn is_zero(&self) -> bool {
        self.micros.points().iter().all(|(_, micros)| *micros == 0.0)
    }

    /// The quantile `unit` of 0 to 1, in microseconds.
    pub fn at(&self, unit: f64) -> f64 {
        self.micros.at(unit)
    }
}

/// Of a kind of request to the store.
#[derive(Clone, Debug)]
pub enum RequestLatency {
    /// What a small request takes, and what is added for each byte.
    Table { table: Table, micros_per_byte: f64 },
    /// By size, and by how many requests of the kind are under way.
    Measured(Cells),
}

impl RequestLatency {
    pub fn of(latency: &Latency, micros_per_byte: f64, field: &'static str) -> Result<Self, Error> {
        let Latency::Measured(cells) = latency else {
            let table = Table::of(latency, field)?;
            return Ok(Self::Table { table, micros_per_byte });
        };
        match Cells::new(cells.clone()) {
            Ok(cells) => Ok(Self::Measured(cells)),
            Err(error) => Err(Error::Job {
                field,
                reason: error.within("cells").to_string(),
            }),
        }
    }

    /// The quantile `unit` of 0 to 1, in microseconds, of a request that is the last of `parallelism` under way.
    pub fn at(&self, unit: f64, bytes: u64, parallelism: u32) -> f64 {
        match self {
            Self::Table { table, micros_per_byte } => table.at(unit) + micros_per_byte * bytes as f64,
            Self::Measured(cells) => cells.latency_ms(bytes, parallelism, unit) * 1_000.0,
        }
    }
}

/// What a random number is for.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    Get = 1,
    Put,
    DiskRead,
    DiskWrite,
    Sync,
    Arrival,
}

/// A number of 0 to 1, the same whenever the same is asked for.
pub fn unit(seed: u64, stream: Stream, what: u64, attempt: u64) -> f64 {
    let mixed = mix(seed ^ mix(stream as u64 ^ mix(what ^ mix(attempt))));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// The finalizer of splitmix64: a bijection that spreads every bit.
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_back_and_ends_are_held() {
        let table = Table::of(&Latency::Table(vec![(0.1, 1.0), (0.5, 2.0), (0.9, 10.0)]), "x").unwrap();
        for (unit, ms) in [
            (0.0, 1.0),
            (0.1, 1.0),
            (0.3, 1.5),
            (0.5, 2.0),
            (0.7, 6.0),
            (0.9, 10.0),
            (1.0, 10.0),
        ] {
            assert!((table.at(unit) - ms * 1_000.0).abs() < 1e-6, "{unit}");
        }
    }

    #[test]
    fn every_model_is_a_distribution() {
        for (name, _) in MODELS {
            Table::of(&Latency::Named(name.into()), "x").unwrap();
        }
        for bad in [
            vec![],
            vec![(0.5, 2.0), (0.4, 3.0)],
            vec![(0.5, -1.0)],
            vec![(0.1, f64::NAN)],
            vec![(0.1, 2.0), (0.2, 1.0)],
        ] {
            assert!(Table::of(&Latency::Table(bad), "x").is_err());
        }
        assert!(Table::of(&Latency::Named("s4".into()), "x").is_err());
    }

    #[test]
    fn draws_are_uniform_and_depend_on_everything() {
        let draws: Vec<f64> = (0..10_000).map(|what| unit(7, Stream::Get, what, 0)).collect();
        let mean = draws.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let one = unit(7, Stream::Get, 5, 0);
        assert_eq!(one, draws[5]);
        for other in [
            unit(8, Stream::Get, 5, 0),
            unit(7, Stream::Put, 5, 0),
            unit(7, Stream::Get, 5, 1),
        ] {
            assert_ne!(one, other);
        }
    }
}
