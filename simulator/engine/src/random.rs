//! Draws from the distributions that the workloads and clouds need, out of the project's own generator, so that a seed
//! stands for the same numbers on every machine.

use std::f64::consts::TAU;
use tombolo_base::Prng;

/// Uniform in [0, 1).
pub fn unit(prng: &mut Prng) -> f64 {
    (prng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Normal with mean 0 and deviation 1 (Box and Muller).
pub fn normal(prng: &mut Prng) -> f64 {
    let radius = (-2.0 * (1.0 - unit(prng)).ln()).sqrt();
    radius * (TAU * unit(prng)).cos()
}

/// Log-normal with mean 1; `sigma` is that of the logarithm.
pub fn unit_lognormal(prng: &mut Prng, sigma: f64) -> f64 {
    if sigma == 0.0 {
        return 1.0;
    }
    (sigma * normal(prng) - sigma * sigma / 2.0).exp()
}

/// Gamma with scale 1 (Marsaglia and Tsang 2000; below shape 1 by their power of a uniform draw).
pub fn gamma(prng: &mut Prng, shape: f64) -> f64 {
    if shape < 1.0 {
        let boosted = gamma(prng, shape + 1.0);
        return boosted * (1.0 - unit(prng)).powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(prng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - unit(prng)).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draws: impl Iterator<Item = f64>) -> f64 {
        let (count, sum) = draws.fold((0, 0.0), |(count, sum), draw| (count + 1, sum + draw));
        sum / f64::from(count)
    }

    #[test]
    fn means_are_those_of_the_distributions() {
        let prng = &mut Prng::new(3);
        assert!((mean((0..100_000).map(|_| unit(prng))) - 0.5).abs() < 0.01);
        assert!(mean((0..100_000).map(|_| normal(prng))).abs() < 0.02);
        assert!((mean((0..100_000).map(|_| normal(prng).powi(2))) - 1.0).abs() < 0.02);
        assert!((mean((0..100_000).map(|_| unit_lognormal(prng, 0.5))) - 1.0).abs() < 0.02);
        for shape in [0.1, 2.5] {
            let found = mean((0..200_000).map(|_| gamma(prng, shape)));
            assert!((found / shape - 1.0).abs() < 0.03, "shape {shape}: {found}");
        }
    }
}
