//! Latencies by name, as (quantile, milliseconds). Measured where nothing else is said; a row that was printed with few
//! quantiles is interpolated between them like any other.

/// Points of a distribution, ascending in both.
pub type Points = &'static [(f64, f64)];

/// The models and where they come from.
pub const MODELS: [(&str, Points); 13] = [
    ("none", &[(0.5, 0.0)]),
    // Tombolo paper, table 4: p90, p95, p99 as printed ("Cloud"), the rest inverted from the rows of its policies. 64
    // blocks of 4 KiB. The paper does not print PUTs.
    ("s3-2014", S3_2014),
    // The same of table 5.
    ("cloudfront-2014", CLOUDFRONT_2014),
    // A lognormal with median 27 ms and sigma 0.62, floor 10 ms: a model of S3 Standard in its region, 2025
    // (cdouglas/endive).
    ("s3-2025-get", S3_2025_GET),
    // 21,961 conditional PUTs to S3 Standard in its region, 2025 (cdouglas/endive); p1 is the minimum.
    ("s3-2025-put", S3_2025_PUT),
    // Time to first byte through Mountpoint, 500 runs of its CI, 2024 to 2026: means of runs, so tails are wider.
    ("s3-2025-mountpoint", S3_MOUNTPOINT),
    // One byte written through Mountpoint, 433 runs.
    ("s3-2025-mountpoint-put", S3_MOUNTPOINT_PUT),
    // S3 Express One Zone through Mountpoint, 507 and 440 runs.
    ("s3-express-get", S3_EXPRESS_GET),
    ("s3-express-put", S3_EXPRESS_PUT),
    // A disk of 500 GB and 7200 turns a minute: typical median, the tail from the rows of the Tombolo paper's policies that
    // hit most.
    ("hdd-2014", HDD_2014),
    // Assumed: an NVMe drive at light load.
    (
        "ssd-read",
        &[(0.01, 0.05), (0.5, 0.09), (0.9, 0.12), (0.99, 0.25), (0.999, 0.8)],
    ),
    // Assumed: into the drive's own memory.
    (
        "ssd-write",
        &[(0.01, 0.01), (0.5, 0.02), (0.9, 0.03), (0.99, 0.1), (0.999, 0.5)],
    ),
    // A store in the same room, for tests of order rather than of figures.
    ("lan", &[(0.01, 0.5), (0.5, 1.0), (0.99, 3.0)]),
];

const S3_2014: Points = &[
    (0.01, 700.0),
    (0.05, 765.0),
    (0.1, 800.0),
    (0.25, 955.0),
    (0.5, 1300.0),
    (0.75, 1845.0),
    (0.9, 2105.0),
    (0.95, 2322.0),
    (0.99, 2865.0),
];

const CLOUDFRONT_2014: Points = &[
    (0.01, 386.0),
    (0.05, 402.0),
    (0.1, 408.0),
    (0.25, 440.0),
    (0.5, 467.0),
    (0.75, 511.0),
    (0.9, 539.0),
    (0.95, 593.0),
    (0.99, 805.0),
];

const S3_2025_GET: Points = &[
    (0.05, 10.0),
    (0.1, 12.2),
    (0.25, 17.7),
    (0.5, 27.0),
    (0.75, 41.0),
    (0.9, 60.0),
    (0.95, 75.0),
    (0.99, 114.0),
];

const S3_2025_PUT: Points = &[
    (0.01, 45.0),
    (0.05, 54.5),
    (0.1, 56.2),
    (0.25, 59.4),
    (0.5, 64.7),
    (0.75, 73.5),
    (0.9, 82.6),
    (0.95, 90.5),
    (0.99, 111.9),
    (0.999, 167.7),
];

const S3_MOUNTPOINT: Points = &[
    (0.01, 11.66),
    (0.05, 13.04),
    (0.1, 14.35),
    (0.25, 16.0),
    (0.5, 18.7),
    (0.75, 22.18),
    (0.9, 26.53),
    (0.95, 30.59),
    (0.99, 44.27),
    (0.999, 57.4),
];

const S3_MOUNTPOINT_PUT: Points = &[
    (0.01, 22.99),
    (0.05, 23.8),
    (0.1, 24.79),
    (0.25, 27.86),
    (0.5, 34.66),
    (0.75, 39.06),
    (0.9, 43.43),
    (0.95, 48.9),
    (0.99, 81.47),
    (0.999, 132.7),
];

const S3_EXPRESS_GET: Points = &[
    (0.01, 0.94),
    (0.05, 1.03),
    (0.1, 1.09),
    (0.25, 1.16),
    (0.5, 1.25),
    (0.75, 1.36),
    (0.9, 1.51),
    (0.95, 1.67),
    (0.99, 11.0),
    (0.999, 12.8),
];

const S3_EXPRESS_PUT: Points = &[
    (0.01, 5.0),
    (0.05, 5.69),
    (0.1, 6.0),
    (0.25, 6.43),
    (0.5, 6.87),
    (0.75, 7.32),
    (0.9, 7.76),
    (0.95, 8.07),
    (0.99, 9.01),
    (0.999, 25.3),
];

const HDD_2014: Points = &[(0.01, 4.0), (0.5, 12.0), (0.95, 33.0), (0.99, 38.0)];
