//! A distribution by some of its quantiles.

/// Quantiles and their values, ascending in both; between them values are interpolated, beyond them the nearest counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    /// Not empty.
    points: Vec<(f64, f64)>,
}

/// Far more than anybody measures.
const POINTS_MAX: usize = 4_096;

impl Quantiles {
    /// What [`Quantiles::new`] asks for, in words.
    pub const RULE: &str = "quantiles must ascend within 0 to 1, with milliseconds that do not fall, up to an hour";

    /// (quantile, value) points; none where they do not obey the rule. A value may be `value_max` at the most.
    pub fn new(points: Vec<(f64, f64)>, value_max: f64) -> Option<Self> {
        let are_in_range = points
            .iter()
            .all(|(quantile, value)| (0.0..=1.0).contains(quantile) && (0.0..=value_max).contains(value));
        let ascend = points.is_sorted_by(|left, right| left.0 < right.0 && left.1 <= right.1);
        ((1..=POINTS_MAX).contains(&points.len()) && are_in_range && ascend).then_some(Self { points })
    }

    /// The value of the quantile `unit` of 0 to 1.
    pub fn at(&self, unit: f64) -> f64 {
        let index = self.points.partition_point(|(quantile, _)| *quantile <= unit);
        let (Some(left), Some(right)) = (
            index.checked_sub(1).map(|left| self.points[left]),
            self.points.get(index),
        ) else {
            return self.points[index.min(self.points.len() - 1)].1;
        };
        left.1 + (right.1 - left.1) * (unit - left.0) / (right.0 - left.0)
    }

    /// The points, ascending.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}
