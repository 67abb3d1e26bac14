//! The object-cache simulation: what must add up, what must be equal, what must be refused.

use serde_json::{Value, json};
use tombolo_engine::objects::{Error, Job, Report, run};
use tombolo_engine::replay::Interrupted;
use tombolo_engine::{Prices, Table};

const POLICIES: [&str; 11] = [
    "lru",
    "arc",
    "sieve",
    "gds-latency",
    "gds-price",
    "gdsf-latency",
    "gdsf-price",
    "gds-l",
    "gds-lf",
    "gds-lc",
    "gds-lcf",
];

fn location(name: &str, round_trip_ms: f64, egress: f64) -> Value {
    json!({
        "name": name, "round_trip_ms": round_trip_ms, "get_ms": 30.0, "put_ms": 36.0,
        "get_mib_per_s": 25.0, "put_mib_per_s": 20.0, "service_sigma": 0.4, "round_trip_sigma": 0.1,
        "prices": Prices { egress_usd_per_gib: egress, ..Table::AwsS3Standard.prices() },
    })
}

/// A small file server before two clouds, with many dirty objects in a small cache.
fn netfs(policy: &str) -> Value {
    json!({
        "workload": {"netfs": {"requests": 8_000, "files": 600, "seed": 7}},
        "policy": policy, "cache_bytes": 3_000_000, "passes_large_objects": true,
        "locations": [location("near", 74.0, 0.09), location("far", 161.0, 0.02)],
    })
}

fn zipf(policy: &str, bytes: u32) -> Value {
    let mut place = location("only", 10.0, 0.01);
    place["service_sigma"] = json!(0.0);
    place["round_trip_sigma"] = json!(0.0);
    json!({
        "workload": {"zipf": {"objects": 500, "requests": 20_000, "exponent": 0.9,
                              "sizes": {"fixed": {"bytes": bytes}}, "seed": 3}},
        "policy": policy, "cache_bytes": 100 * u64::from(bytes), "locations": [place],
    })
}

fn report(job: &Value) -> Report {
    outcome(job).unwrap_or_else(|error| panic!("{error}"))
}

fn outcome(job: &Value) -> Result<Report, Error> {
    let job: Job = serde_json::from_value(job.clone()).expect("a job");
    run(&job, &mut |_, _| Ok(()))
}

fn about(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
}

#[test]
fn requests_transfers_and_dollars_add_up() {
    for policy in POLICIES {
        let told = report(&netfs(policy));
        for counts in [told.gets, told.puts] {
            assert!(counts.hits > 0 && counts.misses > 0, "{policy}: {counts:?}");
            assert_eq!(counts.hits + counts.misses, counts.requests, "{policy}");
            assert!(counts.bytes_hit < counts.bytes);
        }
        assert!(told.gets.requests + told.puts.requests >= 8_000);
        assert_eq!(
            told.downloads.objects, told.gets.misses,
            "{policy}: each missing read is one download"
        );
        let sum = |of: fn(&tombolo_engine::objects::LocationReport) -> u64| told.locations.iter().map(of).sum::<u64>();
        assert_eq!(sum(|location| location.gets), told.downloads.objects);
        assert_eq!(sum(|location| location.bytes_down), told.downloads.bytes);
        let uploads = [told.uploads.on_demand, told.uploads.background, told.uploads.through];
        assert_eq!(
            sum(|location| location.puts),
            uploads.iter().map(|count| count.objects).sum::<u64>()
        );
        assert_eq!(
            sum(|location| location.bytes_up),
            uploads.iter().map(|count| count.bytes).sum::<u64>()
        );
        let buckets: u64 = told.downloads_by_size.iter().map(|bucket| bucket.objects).sum();
        assert_eq!(buckets, told.downloads.objects);
        check_dollars(&told);
    }
}

/// The bill once more, from the counts and the prices of the job.
fn check_dollars(told: &Report) {
    let mut total = 0.0;
    for (location, egress) in told.locations.iter().zip([0.09, 0.02]) {
        let dollars = location.dollars;
        assert!(about(dollars.get, location.gets as f64 * 4e-7), "{}", told.policy);
        assert!(about(dollars.put, location.puts as f64 * 5e-6));
        assert!(about(
            dollars.egress,
            location.bytes_down as f64 / 1073741824.0 * egress
        ));
        assert!(dollars.storage > 0.0);
        assert!(about(
            dollars.total,
            dollars.get + dollars.put + dollars.egress + dollars.storage
        ));
        total += dollars.total;
    }
    assert!(about(told.dollars.total, total));
}

/// Each version that is written goes up once at the most, and the last of each object goes up.
#[test]
fn uploads_are_bounded_by_writes() {
    for policy in POLICIES {
        let told = report(&netfs(policy));
        let uploads = told.uploads.on_demand.objects + told.uploads.background.objects + told.uploads.through.objects;
        assert!(uploads <= told.puts.requests, "{policy}");
        assert!(
            uploads > 0 && told.uploads.on_demand.objects > 0,
            "{policy}: the cache is small"
        );
    }
}

#[test]
fn writing_through_uploads_each_write() {
    let mut job = netfs("gds-lc");
    job["write_mode"] = json!("through");
    let told = report(&job);
    assert_eq!(told.uploads.through.objects, told.puts.requests);
    assert_eq!(told.uploads.on_demand.objects + told.uploads.background.objects, 0);
}

/// One size, one cloud, no noise: cost by size is constant, and the family without frequencies is LRU in all it does.
#[test]
fn with_uniform_costs_gds_is_lru() {
    let without_names = |mut told: Report| {
        told.policy.clear();
        told.metadata_bytes = 0;
        told
    };
    let lru = without_names(report(&zipf("lru", 10_000)));
    assert!(lru.gets.hits > 5_000 && lru.gets.misses > 1_000);
    for policy in ["gds-latency", "gds-price", "gds-l"] {
        assert_eq!(without_names(report(&zipf(policy, 10_000))), lru, "{policy}");
    }
    assert_ne!(
        without_names(report(&zipf("gdsf-latency", 10_000))),
        lru,
        "frequencies make a difference"
    );
}

#[test]
fn a_run_is_repeatable_and_seeds_matter() {
    for policy in ["lru", "gds-lcf"] {
        assert_eq!(report(&netfs(policy)), report(&netfs(policy)));
        let mut other = netfs(policy);
        other["seed"] = json!(2);
        assert_ne!(report(&other).latency_ms, report(&netfs(policy)).latency_ms);
    }
}

/// Read-only and with the same misses, the same latencies: draws do not depend on the policy.
#[test]
fn policies_see_the_same_cloud() {
    let mut noisy = zipf("lru", 10_000);
    noisy["locations"][0]["service_sigma"] = json!(0.5);
    let lru = report(&noisy);
    noisy["policy"] = json!("gds-price");
    assert_eq!(report(&noisy).latency_ms, lru.latency_ms);
}

#[test]
fn arrivals_in_time_need_times() {
    let mut job = netfs("lru");
    job["arrivals"] = json!("trace");
    let told = report(&job);
    assert!(
        (told.virtual_seconds - 29.6).abs() < 1e-6,
        "{}: ten loops a second",
        told.virtual_seconds
    );
    let mut timeless = zipf("lru", 100);
    timeless["arrivals"] = json!("trace");
    assert!(matches!(outcome(&timeless), Err(Error::NoTimes)));
}

#[test]
fn traces_are_read_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.tr");
    let packed = folder.path().join("packed.tr");
    let lines = "1 7 100\n2 8 200\n3 7 100\n4 8 250\n";
    std::fs::write(&plain, lines).unwrap();
    std::fs::write(&packed, zstd::encode_all(lines.as_bytes(), 1).unwrap()).unwrap();
    let job = |path: &std::path::Path| {
        json!({"workload": {"sized-trace": {"path": path}}, "policy": "lru", "cache_bytes": 1000,
               "locations": [location("only", 1.0, 0.0)]})
    };
    let told = report(&job(&plain));
    assert_eq!(told, report(&job(&packed)));
    assert_eq!(
        (told.gets.requests, told.gets.hits, told.objects),
        (4, 1, 2),
        "what came back changed is not a hit"
    );
    assert_eq!(told.downloads.bytes, 550);

    std::fs::write(&plain, "1 7 100\n2 8 0\n").unwrap();
    assert!(matches!(
        outcome(&job(&plain)),
        Err(Error::ObjectSize { request: 1, bytes: 0 })
    ));
    std::fs::write(&plain, "1 7 100\n2 8\n").unwrap();
    assert!(matches!(outcome(&job(&plain)), Err(Error::TraceLine { line: 2, .. })));
    std::fs::write(&plain, "").unwrap();
    assert!(matches!(outcome(&job(&plain)), Err(Error::NoRequests)));
    assert!(matches!(
        outcome(&job(&folder.path().join("none"))),
        Err(Error::Trace { .. })
    ));

    std::fs::write(&plain, [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0]).unwrap();
    let mut keyed = job(&plain);
    keyed["workload"] = json!({"keyed-trace": {"path": plain, "sizes": {"fixed": {"bytes": 10}}}});
    assert!(
        matches!(outcome(&keyed), Err(Error::Trace { .. })),
        "the last number is cut off"
    );
    keyed["workload"]["keyed-trace"]["requests_max"] = json!(3);
    assert_eq!(report(&keyed).gets.hits, 1);
}

/// Nothing else differs from seed to seed here.
#[test]
fn runs_differ_where_the_network_drifts() {
    let run = |seed: u64, sigma: f64| {
        let mut job = zipf("lru", 10_000);
        job["seed"] = json!(seed);
        job["locations"][0]["drift"] = json!({"sigma": sigma, "correlation_minutes": 60.0});
        report(&job)
    };
    assert_eq!(run(1, 0.0), run(2, 0.0));
    assert_eq!(run(1, 0.3), run(1, 0.3));
    let (one, other) = (run(1, 0.3), run(2, 0.3));
    assert_ne!(one.latency_ms.mean, other.latency_ms.mean);
    assert_eq!(one.gets, other.gets, "LRU does not mind");
}

#[test]
fn objects_larger_than_the_cache_are_refused_or_passed_by() {
    let mut job = netfs("gds-lc");
    job["cache_bytes"] = json!(40_000);
    let told = report(&job);
    assert!(told.passed_by > 100 && told.uploads.through.objects > 0);
    assert_eq!(told.downloads.objects, told.gets.misses);
    job["passes_large_objects"] = json!(false);
    assert!(matches!(
        outcome(&job),
        Err(Error::ObjectExceedsCache {
            cache_bytes: 40_000,
            ..
        })
    ));
}

#[test]
fn bad_jobs_are_refused() {
    let refused = |path: &[&str], value: Value| {
        let mut job = netfs("gds-lc");
        let mut field = &mut job;
        for name in path {
            field = match name.parse::<usize>() {
                Ok(index) => &mut field[index],
                Err(_) => &mut field[*name],
            };
        }
        *field = value;
        let error = outcome(&job).expect_err("the job is refused");
        assert!(!error.to_string().is_empty());
        error
    };
    assert!(matches!(refused(&["policy"], json!("2q")), Error::UnknownPolicy(_)));
    assert!(matches!(refused(&["cache_share"], json!(0.1)), Error::CacheSize));
    for (path, value) in [
        (&["cache_bytes"][..], json!(0)),
        (&["locations"], json!([])),
        (&["locations", "0", "prices", "get_usd_per_1000"], json!(-0.1)),
        (&["locations", "0", "round_trip_ms"], json!(-1.0)),
        (&["locations", "1", "get_mib_per_s"], json!(0.0)),
        (&["locations", "1", "handshake_round_trips"], json!(-1.0)),
        (
            &["locations", "1", "drift"],
            json!({"sigma": -0.1, "correlation_minutes": 60.0}),
        ),
        (&["region_shares"], json!([1, 0])),
        (&["normalisation"], json!({"round-trips": 0})),
        (
            &["write_mode"],
            json!({"back": {"age_ms": 1, "period_ms": 0, "uploads_max": 1}}),
        ),
        (&["workload", "netfs", "files"], json!(3)),
        (&["workload", "netfs", "loops_per_s"], json!(0.0)),
        (&["workload", "netfs", "metadata_puts"], json!(101)),
    ] {
        assert!(matches!(refused(path, value), Error::Setting { .. }), "{path:?}");
    }
    let mut job: Job = serde_json::from_value(netfs("lru")).unwrap();
    job.locations[0].prices.egress_usd_per_gib = f64::NAN;
    assert!(matches!(run(&job, &mut |_, _| Ok(())), Err(Error::Setting { .. })));

    let mut unknown = netfs("lru");
    unknown["cache_size"] = json!(3);
    assert!(
        serde_json::from_value::<Job>(unknown).is_err(),
        "a field that nobody knows"
    );
}

#[test]
fn progress_comes_to_the_end() {
    let job: Job = serde_json::from_value(zipf("lru", 100)).unwrap();
    let mut told = Vec::new();
    let mut tell = |done, all| {
        told.push((done, all));
        Ok(())
    };
    run(&job, &mut tell).unwrap();
    assert!(told.is_sorted() && told.len() > 50 && told.len() < 200);
    assert_eq!(told.last(), Some(&(20_000, 20_000)));
}

/// While the requests are made, and while they run.
#[test]
fn an_interruption_ends_the_job() {
    let mut large = zipf("lru", 100);
    large["workload"]["zipf"]["requests"] = json!(200_000);
    let job: Job = serde_json::from_value(large).unwrap();
    for calls_max in [1, 3, 10, 60] {
        let mut calls = 0;
        let mut tell = |_, _| {
            calls += 1;
            if calls < calls_max { Ok(()) } else { Err(Interrupted) }
        };
        assert!(matches!(run(&job, &mut tell), Err(Error::Interrupted)));
        assert_eq!(
            calls, calls_max,
            "it was asked once more after it had been told to stop"
        );
    }
}

#[test]
fn a_damaged_trace_is_told_by_its_line_or_byte() {
    let folder = tempfile::TempDir::new().unwrap();
    let refusal = |name: &str, bytes: &[u8], workload: &dyn Fn(&str) -> Value| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, bytes).unwrap();
        let mut job = zipf("lru", 100);
        job["workload"] = workload(&path);
        let text = outcome(&job).unwrap_err().to_string();
        text.strip_prefix(&path).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let sized = |path: &str| json!({"sized-trace": {"path": path, "us_of_time_unit": 1.0}});
    let keyed = |path: &str| json!({"keyed-trace": {"path": path, "sizes": {"fixed": {"bytes": 100}}}});
    assert_eq!(
        refusal("back", b"1 7 10\n5 8 10\n4 7 10\n", &sized),
        ", line 3: the time of arrival goes back"
    );
    assert!(refusal("negative", b"1 7 10\n2 8 -10\n", &sized).starts_with(", line 2: three numbers"));
    assert_eq!(refusal("cut", &[0; 10], &keyed), ", byte 8: the last number is cut off");
    let packed = zstd::bulk::compress("1 7 10\n".repeat(200_000).as_bytes(), 1).unwrap();
    assert!(refusal("cut.zst", &packed[..packed.len() - 9], &sized).starts_with(", line "));
}
