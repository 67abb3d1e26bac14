//! Gateways before a store under load: what queueing theory says, what must add up, what must be refused.

use serde_json::{Value, json};
use tombolo_engine::load::{ChunkJob, ChunkReport, Error, Job, Report, WindowReport, run, run_chunks};
use tombolo_engine::replay::Interrupted;

fn job(store: Value, gateway: Value, windows: Value) -> Job {
    serde_json::from_value(json!({"store": store, "gateways": [gateway], "windows_s": windows, "sample_s": 0.1}))
        .unwrap()
}

fn carried_out(job: &Job) -> Report {
    run(job, &mut |_, _| Ok(())).unwrap()
}

fn window(store: Value, gateway: Value, from_s: f64, to_s: f64) -> WindowReport {
    carried_out(&job(store, gateway, json!([[from_s, to_s]])))
        .windows
        .remove(0)
}

fn poisson(per_s: f64) -> Value {
    json!({"source": {"poisson": [[0, per_s]]}, "sizes": [[256, 1]]})
}

fn closed(outstanding: u32, bytes: u64) -> Value {
    json!({"source": {"closed": [[0, outstanding]]}, "sizes": [[bytes, 1]]})
}

#[test]
fn alone_a_request_takes_its_time() {
    // 10 ms of service, 4 ms of way, 1 MiB at 64 MiB/s.
    let store = json!({"servers": 1, "base_ms": 10.0, "round_trip_ms": 4.0, "connection_mib_per_s": 64.0});
    let found = window(store, closed(1, 1 << 20), 1.0, 11.0);
    let expected_ms = 10.0 + 4.0 + 1_000.0 / 64.0;
    assert!((found.latency_ms.mean - expected_ms).abs() < 0.01, "{found:?}");
    assert!((found.latency_ms.p99 - found.latency_ms.p50).abs() < 0.01);
    assert!((found.done_per_s - 1_000.0 / expected_ms).abs() < 0.2);
}

#[test]
fn queues_are_as_long_as_theory_has_them() {
    // One server, constant service, Poisson arrivals: the wait is rho s / 2 (1 - rho).
    for rho in [0.3, 0.8] {
        let store = json!({"servers": 1, "base_ms": 2.0});
        let found = window(store, poisson(rho * 500.0), 10.0, 1_010.0);
        let expected_ms = 2.0 + rho * 2.0 / (2.0 * (1.0 - rho));
        assert!(
            (found.latency_ms.mean / expected_ms - 1.0).abs() < 0.02,
            "{rho}: {}",
            found.latency_ms.mean
        );
    }
    // Closed: throughput is what the servers do, and Little's law holds.
    let found = window(
        json!({"servers": 4, "base_ms": 20.0, "sigma": 0.4}),
        closed(10, 256),
        10.0,
        110.0,
    );
    assert!((found.done_per_s - 200.0).abs() < 4.0, "{}", found.done_per_s);
    assert!((found.done_per_s * found.latency_ms.mean / 1e3 - 10.0).abs() < 0.1);
}

#[test]
fn a_link_is_shared_equally() {
    let store = json!({"servers": 100, "base_ms": 0.0, "connection_mib_per_s": 50.0, "link_mib_per_s": 100.0});
    for (outstanding, mib_per_s, latency_ms) in [(1, 50.0, 20.0), (2, 100.0, 20.0), (8, 100.0, 80.0)] {
        let found = window(store.clone(), closed(outstanding, 1 << 20), 10.0, 60.0);
        assert!(
            (found.mib_per_s / mib_per_s - 1.0).abs() < 0.01,
            "{outstanding}: {}",
            found.mib_per_s
        );
        assert!(
            (found.latency_ms.mean / latency_ms - 1.0).abs() < 0.02,
            "{outstanding}: {}",
            found.latency_ms.mean
        );
    }
}

#[test]
fn slow_periods_and_pauses_come_and_go() {
    let store = json!({"servers": 1, "base_ms": 10.0,
        "slow_periods": [{"from_s": 20.0, "to_s": 40.0, "factor": 10.0}], "pauses": [{"at_s": 50.0, "for_s": 5.0}]});
    let windows = json!([[0, 20], [21, 40], [41, 50], [50.1, 54.9], [56, 60]]);
    let report = carried_out(&job(store, closed(1, 256), windows));
    let rates: Vec<f64> = report.windows.iter().map(|window| window.done_per_s.round()).collect();
    assert_eq!(rates, [100.0, 10.0, 100.0, 0.0, 100.0]);
}

#[test]
fn refused_and_lost_requests_are_sent_again_and_nothing_is_missing() {
    for (store, limit) in [
        (json!({"servers": 1, "base_ms": 12.0, "queue_max": 3}), json!("none")),
        (
            json!({"servers": 100, "base_ms": 5.0, "requests_per_s_max": 50.0}),
            json!("none"),
        ),
        (
            json!({"servers": 100, "base_ms": 5.0, "loss_permille": 200, "retransmission_ms": 900.0}),
            json!({"fixed": 20}),
        ),
    ] {
        // For ten seconds more come than are taken, then none.
        let gateway = json!({"source": {"poisson": [[0, 100.0], [10, 0.0]]}, "sizes": [[256, 1]], "limiter": limit,
            "timeout_s": 1.0});
        let report = carried_out(&job(store.clone(), gateway, json!([[0, 10], [0, 400]])));
        let whole = &report.windows[1];
        let came = (whole.offered_per_s * 400.0).round() as u64;
        assert!(
            came > 800 && whole.latency_ms.count == came,
            "{store}: {came} {whole:?}"
        );
        assert!(whole.slow_downs + whole.lost > 20, "{store}: {whole:?}");
        assert_eq!(whole.backlog.1, 0);
    }
}

#[test]
fn batches_hold_what_came_in_an_interval_once() {
    let store = json!({"partitions": 4, "servers": 1, "base_ms": 0.1, "per_operation_ms": 0.01});
    let mut gateway = poisson(1_000.0);
    gateway["batching"] = json!({"fixed-ms": 100.0});
    let all = window(store.clone(), gateway.clone(), 10.0, 60.0);
    assert!(
        (all.requests_per_s - 40.0).abs() < 0.5,
        "a batch has four parts: {}",
        all.requests_per_s
    );
    assert!(
        (all.latency_ms.mean - 50.6).abs() < 1.0,
        "half of an interval and the store: {}",
        all.latency_ms.mean
    );
    gateway["keys"] = json!(4);
    let collapsed = window(store.clone(), gateway.clone(), 10.0, 60.0);
    assert!(
        (collapsed.mib_per_s * 1_048_576.0 / 256.0 - 40.0).abs() < 0.5,
        "only the last write of four names leaves"
    );
    assert!((collapsed.done_per_s - 1_000.0).abs() < 20.0, "and all are done");
    gateway["keys"] = Value::Null;
    gateway["operations_max"] = json!(5);
    let cut = window(store, gateway, 10.0, 60.0);
    assert!(
        cut.requests_per_s > 190.0,
        "25 operations of a part are six requests or so: {}",
        cut.requests_per_s
    );
}

/// What the product's controllers must be able to do before any evaluation of theirs means something.
#[test]
fn controllers_are_driven() {
    let store = json!({"partitions": 4, "servers": 1, "base_ms": 0.46, "per_operation_ms": 0.09, "round_trip_ms": 1.0,
        "sigma": 0.3});
    let gateway = |batching: Value| json!({"count": 8, "source": {"poisson": [[0, 1_500.0]]}, "sizes": [[256, 1]], "batching": batching});
    let alone = window(store.clone(), gateway(json!("none")), 20.0, 40.0);
    let stout = window(store.clone(), gateway(json!({"stout": {}})), 20.0, 40.0);
    assert!(alone.backlog.1 > alone.backlog.0 + 10_000, "{alone:?}");
    assert!(
        stout.backlog.1 < 5_000 && stout.done_per_s > 11_500.0,
        "{:?}",
        stout.backlog
    );
    let (limit_of, store) = (
        |limiter: Value| json!({"source": {"closed": [[0, 500]]}, "sizes": [[4096, 1]], "limiter": limiter}),
        json!({"servers": 12, "base_ms": 20.0, "sigma": 0.4}),
    );
    for name in ["adaptive", "gradient", "vegas", "bbr"] {
        let found = window(store.clone(), limit_of(json!({name: 64})), 30.0, 60.0);
        assert!(
            found.limit <= 64.0 && found.in_flight <= 64.5 && found.done_per_s > 20.0,
            "{name}: {found:?}"
        );
        if name == "adaptive" {
            assert!((10.0..20.0).contains(&found.limit), "{}", found.limit);
        }
    }
}

#[test]
fn a_seed_is_a_run() {
    let store = json!({"servers": 4, "base_ms": 5.0, "sigma": 0.5, "loss_permille": 10});
    let mut one = job(store, poisson(300.0), json!([[0, 30]]));
    let first = carried_out(&one);
    assert_eq!(first, carried_out(&one));
    one.seed = 2;
    assert_ne!(first, carried_out(&one));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let store = json!({"servers": 1, "base_ms": 1.0});
    for (field, change, value) in [
        ("store.servers", "/store/servers", json!(0)),
        ("store.base_ms", "/store/base_ms", json!(-1.0)),
        ("windows_s", "/windows_s/0", json!([5.0, 5.0])),
        ("gateways.sizes", "/gateways/0/sizes", json!([])),
        (
            "gateways.source",
            "/gateways/0/source",
            json!({"poisson": [[5, 1.0], [5, 2.0]]}),
        ),
        ("gateways.count", "/gateways/0/count", json!(0)),
    ] {
        let whole = job(
            store.clone(),
            json!({"count": 1, "source": {"poisson": [[0, 1.0]]}, "sizes": [[1, 1]]}),
            json!([[0, 1]]),
        );
        let mut text = serde_json::to_value(&whole).unwrap();
        *text.pointer_mut(change).unwrap() = value;
        let refused: Job = serde_json::from_value(text).unwrap();
        let error = run(&refused, &mut |_, _| Ok(())).unwrap_err();
        assert!(error.to_string().starts_with(field), "{field}: {error}");
    }
    let whole = job(store, poisson(1.0), json!([[0, 10]]));
    assert!(matches!(
        run(&whole, &mut |_, _| Err(Interrupted)),
        Err(Error::Interrupted)
    ));
}

/// Files that are read from end to end, over a way of 100 ms and 1 MiB/s.
fn chunk_job(chunk_bytes: u64, prefetch_chunks_max: u64, change: &Value) -> ChunkJob {
    let mut job = json!({
        "store": {"servers": 100, "base_ms": 100.0, "connection_mib_per_s": 1.0, "link_mib_per_s": 4.0},
        "files": {"count": 50, "mean_bytes": 4_194_304.0, "sigma": 0.0, "exponent": 0.0, "request_bytes": 16_384,
                  "run_requests": 1e6, "write_permille": 0, "from_beginning_permille": 1_000, "requests": 5_000,
                  "think_ms": 5.0},
        "chunk_bytes": chunk_bytes, "cache_bytes": 16 << 20, "prefetch_chunks_max": prefetch_chunks_max,
        "write_back_s": 30.0, "seed": 1,
    });
    for (name, value) in change.as_object().unwrap() {
        job["files"][name] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

fn chunks(chunk_bytes: u64, prefetch_chunks_max: u64, change: &Value) -> ChunkReport {
    run_chunks(&chunk_job(chunk_bytes, prefetch_chunks_max, change), &mut |_, _| Ok(())).unwrap()
}

#[test]
fn each_chunk_is_waited_for_once_and_takes_its_time() {
    let found = chunks(64 << 10, 0, &json!({}));
    assert_eq!(found.reads.latency_ms.count, 5_000);
    let misses = 5_000 - found.reads.hits;
    assert_eq!(found.demanded, misses, "one chunk for each miss");
    assert!(
        misses < 1_300 && misses > 900,
        "a quarter, less what is still there: {misses}"
    );
    let expected_ms = 100.0 + 1_000.0 / 16.0;
    assert!(
        (found.download_ms.p50 - expected_ms).abs() < 0.1,
        "{:?}",
        found.download_ms
    );
    let waited_ms = found.reads.latency_ms.mean * 5_000.0 / misses as f64;
    assert!(
        (waited_ms / expected_ms - 1.0).abs() < 0.01,
        "the last chunk of a file is shorter: {waited_ms}"
    );
}

#[test]
fn what_is_fetched_ahead_is_not_waited_for_in_full() {
    let (without, with) = (chunks(64 << 10, 0, &json!({})), chunks(64 << 10, 8, &json!({})));
    assert!(
        with.prefetched > 800 && with.demanded < without.demanded / 2,
        "{with:?}"
    );
    assert!(
        with.reads.latency_ms.mean < without.reads.latency_ms.mean / 2.0,
        "{with:?}"
    );
    // Large chunks come in each other's way: alone they take 1.1 s, with more than four at once longer.
    let large = chunks(1 << 20, 8, &json!({"mean_bytes": 33_554_432.0}));
    assert!(large.download_ms.p90 > 1_500.0, "{:?}", large.download_ms);
}

#[test]
fn what_is_written_is_uploaded() {
    let written = chunks(64 << 10, 0, &json!({"write_permille": 1_000}));
    assert_eq!(
        (written.reads.latency_ms.count, written.writes.latency_ms.count),
        (0, 5_000)
    );
    // Four requests fill a chunk; at most one write-back comes in between, and the last 30 s are still dirty.
    assert!((900..1_400).contains(&written.uploaded), "{}", written.uploaded);
    assert_eq!(chunks(64 << 10, 0, &json!({})).uploaded, 0);
    let mut bad = chunk_job(64 << 10, 0, &json!({}));
    bad.write_back_s = 0.0;
    let error = run_chunks(&bad, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().starts_with("write_back_s"), "{error}");
}
