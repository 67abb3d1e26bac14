use super::*;
use proptest::prelude::*;

pub(crate) fn cell(size_bytes: u64, parallelism: u32, median_ms: f64) -> Cell {
    Cell {
        size_bytes,
        parallelism,
        requests: 100,
        failed: 0,
        repeats: 5,
        dropped: 1,
        bytes_per_s: size_bytes as f64 * f64::from(parallelism) / median_ms * 1e3,
        mean_ms: median_ms,
        mean_ms_deviation: 0.0,
        latency_ms: vec![(0.1, median_ms / 2.0), (0.5, median_ms), (0.99, median_ms * 3.0)],
    }
}

fn table() -> LatencyTable {
    LatencyTable {
        measured: Origin {
            at: "2026-11-23T18:00:00Z".into(),
            store: "s3://bucket/prefix".into(),
            endpoint: Some("http://127.0.0.1:7070".into()),
            client: "cloud_driver".into(),
        },
        round_trip_ms: 0.25,
        get: Cells::new(vec![cell(1024, 1, 10.0), cell(1024, 4, 12.0), cell(4096, 1, 14.0)]).unwrap(),
        put: Cells::new(vec![cell(1024, 1, 30.0)]).unwrap(),
    }
}

/// The text of [`table`] with something else in it.
fn changed(from: &str, to: &str) -> LatencyTableError {
    let text = table().print().unwrap();
    let other = text.replacen(from, to, 1);
    assert_ne!(text, other, "{from} does not stand there");
    LatencyTable::parse(&other).unwrap_err()
}

#[test]
fn what_is_printed_is_read_again() {
    let text = table().print().unwrap();
    assert_eq!(LatencyTable::parse(&text).unwrap(), table());
}

/// The fixed text of version 1: what is refused or read otherwise is another version.
#[test]
fn version_1_stays_readable() {
    let text = r#"{"format": "tombolo-latency-table", "version": 1,
        "measured": {"at": "2026-11-23T18:00:00Z", "store": "s3://b/p", "endpoint": null, "client": "boto3"},
        "round_trip_ms": 1.5,
        "get": [{"size_bytes": 4096, "parallelism": 2, "requests": 7, "failed": 1, "repeats": 3, "dropped": 0,
                 "bytes_per_s": 8e6, "mean_ms": 2.5,
                 "mean_ms_deviation": 0.5, "latency_ms": [[0.5, 2.0], [1.0, 4.0]]}],
        "put": [{"size_bytes": 4096, "parallelism": 1, "requests": 1, "failed": 0, "repeats": 3, "dropped": 0,
                 "bytes_per_s": 1e6, "mean_ms": 4,
                 "mean_ms_deviation": 0, "latency_ms": [[0.5, 4]]}]}"#;
    let read = LatencyTable::parse(text).unwrap();
    assert_eq!((read.round_trip_ms, &read.measured.client[..]), (1.5, "boto3"));
    assert_eq!(read.get.latency_ms(4096, 2, 0.75), 3.0);
    assert_eq!((read.get.bytes_per_s(4096, 2), read.get.mean_ms(4096, 2)), (8e6, 2.5));
    assert_eq!(read.put.latency_ms(4096, 1, 0.1), 4.0);
    assert_eq!(
        read.get
            .iter()
            .map(|cell| (cell.requests, cell.failed))
            .collect::<Vec<_>>(),
        [(7, 1)]
    );
}

#[test]
fn what_is_wrong_is_said_with_its_field() {
    for (from, to, message) in [
        (
            "tombolo-latency-table",
            "something",
            "format: \"something\" is not \"tombolo-latency-table\"",
        ),
        ("\"version\": 1", "\"version\": 2", "version: 2 is not 1"),
        (
            "\"round_trip_ms\": 0.25",
            "\"round_trip_ms\": -1",
            "round_trip_ms: 0 to 3600000 ms",
        ),
        (
            "\"size_bytes\": 1024",
            "\"size_bytes\": 0",
            "get[0].size_bytes: 0: 1 to 1099511627776",
        ),
        (
            "\"parallelism\": 4",
            "\"parallelism\": 0",
            "get[1].parallelism: 0: 1 to 65536",
        ),
        (
            "\"parallelism\": 4",
            "\"parallelism\": 1",
            "get: 1024 bytes, parallelism 1, stand there twice",
        ),
        (
            "\"requests\": 100",
            "\"requests\": 0",
            "get[0].requests: a cell without requests says nothing",
        ),
        (
            "\"dropped\": 1",
            "\"dropped\": 5",
            "get[0].dropped: 5 of 5 repeats leave none",
        ),
        (
            "\"mean_ms\": 14.0",
            "\"mean_ms\": -2",
            "get[2].mean_ms: -2: 0 to 3600000 ms",
        ),
        (
            "0.5,\n          30.0",
            "0.5,\n          3.0",
            "put[0].latency_ms: quantiles must ascend within 0 to 1, with milliseconds that do not fall, up to an hour",
        ),
    ] {
        assert_eq!(changed(from, to).to_string(), message);
    }
    assert!(matches!(changed("\"failed\"", "\"fallen\""), LatencyTableError::Syntax(text) if text.contains("fallen")));
    assert!(matches!(LatencyTable::parse(""), Err(LatencyTableError::Syntax(_))));
    let long = " ".repeat(TEXT_BYTES_MAX + 1);
    assert_eq!(
        LatencyTable::parse(&long),
        Err(LatencyTableError::TooLong {
            bytes: TEXT_BYTES_MAX + 1
        })
    );
    assert_eq!(
        Cells::new(vec![]).unwrap_err().to_string(),
        ": 0 cells, 1 to 4096 can be"
    );
}

#[test]
fn between_cells_figures_are_interpolated_and_beyond_them_the_nearest_counts() {
    let get = table().get;
    for (size_bytes, parallelism, ms) in [
        (1024, 1, 10.0),
        (1024, 2, 10.0 + 2.0 / 3.0),
        (1024, 4, 12.0),
        (1024, 64, 12.0),
        (1, 1, 10.0),
        (2560, 1, 12.0),
        // The larger size was measured with one request at a time only.
        (2560, 4, 13.0),
        (4096, 64, 14.0),
        (8192, 1, 28.0),
    ] {
        assert!(
            (get.latency_ms(size_bytes, parallelism, 0.5) - ms).abs() < 1e-9,
            "{size_bytes} {parallelism}"
        );
        assert!(
            (get.mean_ms(size_bytes, parallelism) - ms).abs() < 1e-9,
            "{size_bytes} {parallelism}"
        );
    }
    assert!((get.latency_ms(1024, 1, 0.3) - 7.5).abs() < 1e-9);
    assert_eq!(
        get.bytes_per_s(8192, 1),
        get.bytes_per_s(4096, 1),
        "more bytes are not carried faster"
    );
}

proptest! {
    /// Against the plain rule: a figure lies between those of the cells around it, grows with the quantile, and is the
    /// cell's own where there is one.
    #[test]
    fn figures_lie_between_their_neighbours(
        medians in prop::collection::vec(0.1..1e4f64, 12),
        size_bytes in 1u64..70_000,
        parallelism in 1u32..100,
        quantile in 0.0..1.0f64,
    ) {
        let sizes = [1024, 4096, 16_384, 65_536];
        let parallelisms = [1, 8, 64];
        let places = sizes.iter().flat_map(|size| parallelisms.map(|parallelism| (*size, parallelism)));
        let made: Vec<Cell> = places.zip(&medians).map(|((size, parallelism), ms)| cell(size, parallelism, *ms)).collect();
        let cells = Cells::new(made.iter().rev().cloned().collect()).unwrap();
        for one in &made {
            prop_assert_eq!(cells.latency_ms(one.size_bytes, one.parallelism, 0.5), one.mean_ms);
        }
        let found = cells.latency_ms(size_bytes, parallelism, quantile);
        let around = |value: u64, among: &[u64]| {
            let below = among.iter().rev().find(|at| **at <= value).unwrap_or(&among[0]);
            let above = among.iter().find(|at| **at >= value).unwrap_or(&among[among.len() - 1]);
            [*below, *above]
        };
        let mut near = Vec::new();
        for size in around(size_bytes, &sizes) {
            for parallelism in around(u64::from(parallelism), &[1, 8, 64]) {
                near.push(cells.latency_ms(size, parallelism as u32, quantile));
            }
        }
        let scale = (size_bytes as f64 / 65_536.0).max(1.0);
        let (least, most) = near.iter().fold((f64::MAX, 0.0f64), |(least, most), ms| (least.min(*ms), most.max(*ms)));
        prop_assert!(found >= least * scale - 1e-6 && found <= most * scale + 1e-6, "{found} is not within {near:?}");
        prop_assert!(cells.latency_ms(size_bytes, parallelism, (quantile + 0.1).min(1.0)) >= found - 1e-9);
    }
}
