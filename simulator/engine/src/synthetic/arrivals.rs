//! When sessions begin: in office hours rather than at night or at weekends. The profile is assumed, the number of days
//! is printed; time zero is a Monday's midnight.

use crate::random;
use tombolo_base::Prng;

const HOUR_US: f64 = 3.6e9;
/// Sessions of a working day, by hour, in relation to the busiest.
const WORKING_DAY: [f64; 24] = [
    0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.10, 0.25, 0.60, 0.90, 1.00, 0.95, 0.70, 0.90, 1.00, 0.95, 0.85, 0.60, 0.35,
    0.20, 0.15, 0.10, 0.10, 0.05,
];
/// A weekend's hour in relation to the same of a working day.
const WEEKEND: f64 = 0.2;

/// The beginnings of so many sessions within so many days, in microseconds, in order.
pub fn starts(prng: &mut Prng, sessions: usize, days: u64) -> Vec<u64> {
    let ends = cumulated(days);
    let total = ends.last().copied().unwrap_or(0.0);
    let mut starts: Vec<u64> = (0..sessions)
        .map(|_| {
            let point = random::unit(prng) * total;
            let hour = ends.partition_point(|end| *end <= point).min(ends.len() - 1);
            ((hour as f64 + random::unit(prng)) * HOUR_US) as u64
        })
        .collect();
    starts.sort_unstable();
    starts
}

fn cumulated(days: u64) -> Vec<f64> {
    let mut total = 0.0;
    let hours = (0..days).flat_map(|day| WORKING_DAY.map(|rate| if day % 7 < 5 { rate } else { rate * WEEKEND }));
    hours
        .map(|rate| {
            total += rate;
            total
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_fill_the_days_and_favour_office_hours() {
        let starts = starts(&mut Prng::new(1), 50_000, 42);
        assert!(starts.is_sorted());
        let days = |us: u64| us as f64 / HOUR_US / 24.0;
        assert!(days(starts[0]) < 0.1 && (41.8..42.0).contains(&days(starts[starts.len() - 1])));
        let of = |wanted: fn(u64, u64) -> bool| {
            let hours = starts.iter().map(|us| us / HOUR_US as u64);
            hours.filter(|hour| wanted(hour / 24 % 7, hour % 24)).count()
        };
        let office = of(|day, hour| day < 5 && (9..17).contains(&hour));
        let weekend = of(|day, _| day >= 5);
        assert!(
            office > 30_000 && (3_000..5_000).contains(&weekend),
            "{office} {weekend}"
        );
    }
}
