//! What bringing a block back costs, and what writing it out costs.

/// What transfers to and from one backend cost: a fixed part and one in proportion to the bytes. The caller keeps the
/// figures (averages over requests, never the last sample alone) and updates them by `Advice::Costs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostClass {
    /// The shortest round trip, in microseconds.
    pub round_trip_us: u32,
    /// What a GET takes besides its bytes, in microseconds.
    pub download_us: u32,
    /// What each KiB adds to a GET, in nanoseconds.
    pub download_ns_per_kib: u32,
    /// What a PUT takes besides its bytes, in microseconds.
    pub upload_us: u32,
    /// What each KiB adds to a PUT, in nanoseconds.
    pub upload_ns_per_kib: u32,
    /// Price of a GET, in 10^-9 dollars.
    pub get_nanodollars: u32,
    /// Price of a MiB out of the cloud, in 10^-9 dollars.
    pub egress_nanodollars_per_mib: u32,
    /// Price of a PUT, in 10^-9 dollars.
    pub put_nanodollars: u32,
}

impl CostClass {
    /// What a GET of so many bytes takes, in microseconds.
    pub fn download_us(&self, bytes: u64) -> u64 {
        u64::from(self.download_us) + bytes * u64::from(self.download_ns_per_kib) / (1024 * 1000)
    }

    /// What a PUT of so many bytes takes, in microseconds.
    pub fn upload_us(&self, bytes: u64) -> u64 {
        u64::from(self.upload_us) + bytes * u64::from(self.upload_ns_per_kib) / (1024 * 1000)
    }

    /// What a GET of so many bytes costs, in 10^-9 dollars.
    pub fn download_nanodollars(&self, bytes: u64) -> u64 {
        u64::from(self.get_nanodollars) + bytes * u64::from(self.egress_nanodollars_per_mib) / (1 << 20)
    }
}

/// Divides a latency by the normalisation factor, to the nearest integer and at least one. The paper first says
/// "rounding up", but its example rounds to the nearest.
pub(super) fn normalised(latency_us: u64, factor_us: u64) -> u64 {
    let factor_us = factor_us.max(1);
    ((latency_us + factor_us / 2) / factor_us).max(1)
}

/// Multiples of the shortest round trip that latencies are divided by: the paper's best figures, 10 within a data
/// centre and 1 across the Internet.
pub(super) fn default_factor(round_trip_us: u64) -> u64 {
    if round_trip_us > 10_000 { 1 } else { 10 }
}

/// Costs are capped so that the quotient fits: 2^31 microseconds are 36 minutes, 2^31 nanodollars two dollars.
const COST_MAX: u64 = (1 << 31) - 1;

/// Cost per byte, with 28 bits after the point: below 2^59, and above zero up to 256 MiB for the least cost.
pub(super) fn per_byte(cost: u64, bytes: u64) -> u64 {
    (cost.min(COST_MAX) << 28) / bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_normalised_as_in_the_papers_example() {
        for latency in [360_000, 400_000, 420_000] {
            assert_eq!(normalised(latency, 200_000), 2);
        }
        assert_eq!(normalised(1, 200_000), 1);
        assert_eq!(normalised(77, 0), 77);
    }

    #[test]
    fn costs_are_linear_in_the_bytes() {
        let oregon = CostClass {
            download_us: 20_000,
            download_ns_per_kib: 10_000,
            get_nanodollars: 400,
            egress_nanodollars_per_mib: 87_890,
            ..CostClass::default()
        };
        assert_eq!(oregon.download_us(1 << 20), 20_000 + 10_240);
        assert_eq!(oregon.download_nanodollars(1 << 30), 400 + 87_890 * 1024);
        assert!(per_byte(u64::MAX, 1) < 1 << 59);
        assert!(per_byte(1, 256 << 20) > 0);
    }
}
