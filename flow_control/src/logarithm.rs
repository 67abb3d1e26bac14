//! Logarithm and power of two, which `core` does not have. Of arithmetic that is the same on all machines, as far as it is exact
//! enough for ratios of latencies: to a millionth.

/// log2 of a number above zero; of all others 0.
pub(crate) fn log2(value: f64) -> f64 {
    if !(value.is_normal() && value > 0.0) {
        return 0.0;
    }
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // ln m = 2 artanh((m - 1) / (m + 1)); the ratio is at most a third.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = (0..8)
        .rev()
        .fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    f64::from(exponent) + 2.0 * ratio * series / core::f64::consts::LN_2
}

/// 2 to the power of `exponent`, which is held within -1000 and 1000; of what is no number 1.
pub(crate) fn exp2(exponent: f64) -> f64 {
    if exponent.is_nan() {
        return 1.0;
    }
    let exponent = exponent.clamp(-1_000.0, 1_000.0);
    let whole = exponent as i64;
    let rest = (exponent - whole as f64) * core::f64::consts::LN_2;
    let series = (1..16).rev().fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    f64::from_bits(((whole + 1023) as u64) << 52) * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_library_has_them() {
        for step in 1..100_000u32 {
            let value = f64::from(step) * 0.37;
            assert!((log2(value) - value.log2()).abs() < 1e-6, "{value}");
            let exponent = f64::from(step) / 100.0 - 500.0;
            assert!((exp2(exponent) / exponent.exp2() - 1.0).abs() < 1e-9, "{exponent}");
        }
        assert_eq!(
            (log2(0.0), log2(-1.0), log2(f64::NAN), log2(f64::INFINITY)),
            (0.0, 0.0, 0.0, 0.0)
        );
        assert_eq!(
            (exp2(f64::NAN), exp2(0.0), exp2(-1e9) > 0.0, exp2(1e9).is_finite()),
            (1.0, 1.0, true, true)
        );
    }
}
