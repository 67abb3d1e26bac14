use super::requests::OperationMetrics;
use super::*;
use crate::admin::model::{
    BillStatus, CauseBill, DedupStatus, FlushMode, PolicyStatus, PolicyTally, RecoveryPointStatus, ReplicaBill,
    ReplicaInfo, SessionInfo, SessionKind, ShareInfo, Status, StoreState, StoreStatus, VolumeInfo,
};
use std::collections::{BTreeMap, BTreeSet};
use tombolo_cloud_driver::{
    Cause, CauseCounts, ErrorKind, GateDepth, Operation, OperationCounts, PaceState, ReadCounts, RetryCounts,
};
use tombolo_core::{Counters, PolicyCounters, Snapshot, Tally};
use tombolo_flow_control::concurrency::State;

fn example() -> Metrics {
    let micros = Distribution {
        bounds: &[1_000, 100_000],
        counts: vec![3, 2, 1],
        sum: 1_500_000,
    };
    Metrics {
        status: Status {
            version: "1.2.3".into(),
            dirty_bytes: 4096,
            oldest_dirty_age_s: 2.5,
            recovery_point: RecoveryPointStatus {
                age_s: 3.5,
                time_s: None,
                count: 4,
                failures: 1,
            },
            dedup: DedupStatus::new(1, 2, 3),
            store: StoreStatus {
                state: StoreState::Degraded,
                last_success_age_s: Some(7.0),
                ..Default::default()
            },
            policy: PolicyStatus {
                tallies: vec![PolicyTally::from(&Tally {
                    replacement: "sarc",
                    prefetch: "graph",
                    counters: PolicyCounters {
                        reads_partial: 5,
                        prefetched: 8,
                        used: 2,
                        ..Default::default()
                    },
                })],
                graph_nodes: 17,
                ..Default::default()
            },
            bill: BillStatus {
                month_storage_usd: 0.5,
                storage_usd_per_day: 0.25,
                usd_per_day_of_hour: 3.0,
                all_stores_forecast_usd: 12.5,
                budget_usd: Some(10.0),
                replicas: vec![ReplicaBill {
                    name: "far".into(),
                    month_usd: 0.75,
                    ..Default::default()
                }],
                causes: vec![CauseBill {
                    cause: "flush".into(),
                    since_start_usd: 0.125,
                    month_usd: 1.5,
                    usd_per_day: 2.0,
                    ..Default::default()
                }],
                ..Default::default()
            },
            replicas: vec![ReplicaInfo {
                name: "far".into(),
                state: "behind".into(),
                behind_objects: 3,
                behind_bytes: 12_288,
                behind_age_s: 60,
                brought: 5,
                ..Default::default()
            }],
            volumes: vec![VolumeInfo {
                name: "vol\"1".into(),
                size_bytes: 1 << 30,
                flush: FlushMode::Local,
                connections: 2,
                store: None,
            }],
            shares: vec![
                ShareInfo {
                    name: "docs".into(),
                    quota_bytes: Some(1 << 30),
                    used_bytes: 4096,
                    inodes: 3,
                    sessions: vec![SessionInfo {
                        client: "host".into(),
                        kind: SessionKind::Socket,
                        connected: false,
                    }],
                    ..Default::default()
                },
                ShareInfo {
                    name: "free".into(),
                    ..Default::default()
                },
            ],
            ..Default::default()
        },
        requests: vec![OperationMetrics {
            operation: "read",
            errors: 1,
            bytes: 8192,
            micros: micros.clone(),
        }],
        file_requests: vec![OperationMetrics {
            operation: "lookup",
            errors: 2,
            bytes: 0,
            micros: micros.clone(),
        }],
        check_findings: Some(0),
        reads: ReadCounts {
            answered: vec![8, 9],
            failed_over: vec![1, 0],
            healed: 2,
        },
        store_retries: RetryCounts {
            retries: 7,
            gave_up: 1,
            ..RetryCounts::default()
        },
        store_gate: GateDepth {
            demands_waiting: 2,
            ..GateDepth::default()
        },
        store_pace: PaceState {
            gets: State {
                limit: 12,
                bytes_per_s: 2e6,
                ..State::default()
            },
            puts: State {
                limit: 4,
                halvings: 3,
                ..State::default()
            },
            uploads_given_up: 11,
            upload_window_bytes: 8_192,
            download_window_bytes: 12_288,
        },
        store: vec![OperationCounts {
            operation: Operation::Put,
            bytes: 7,
            failures: vec![(ErrorKind::Throttled, 4)],
            micros: Distribution {
                bounds: &[100_000],
                counts: vec![1, 0],
                sum: 500_000,
            },
        }],
        store_causes: vec![CauseCounts {
            cause: Cause::Flush,
            operation: Operation::Put,
            requests: 6,
            charged: 5,
            bytes: 7,
        }],
        core: Snapshot {
            counters: Counters {
                uploads: 9,
                reads_refused: 3,
                ..Default::default()
            },
            ..Default::default()
        },
        ..Default::default()
    }
}

/// Samples by series, and TYPE by family, of a text in Prometheus's own format.
fn parse(text: &str) -> (BTreeMap<String, f64>, BTreeMap<String, String>) {
    let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(
                types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} is described twice"
            );
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(
                samples.insert(series.to_owned(), value).is_none(),
                "{series} stands twice"
            );
        }
    }
    (samples, types)
}

#[test]
fn values_arrive_under_their_names() {
    let (samples, types) = parse(&encode(example()).unwrap());
    for (series, value) in [
        ("tombolo_build_info{version=\"1.2.3\"}", 1.0),
        ("tombolo_dirty_bytes", 4096.0),
        ("tombolo_oldest_dirty_age_seconds", 2.5),
        ("tombolo_recovery_point_age_seconds", 3.5),
        ("tombolo_recovery_points_total", 4.0),
        ("tombolo_recovery_point_failures_total", 1.0),
        ("tombolo_dedup_blocks_total{outcome=\"duplicate\"}", 2.0),
        ("tombolo_dedup_ratio", 2.0),
        ("tombolo_uploads_total", 9.0),
        ("tombolo_reads_refused_total", 3.0),
        ("tombolo_store_state{state=\"ok\"}", 0.0),
        ("tombolo_store_state{state=\"degraded\"}", 1.0),
        ("tombolo_store_last_success_age_seconds", 7.0),
        ("tombolo_volume_size_bytes{volume=\"vol\\\"1\"}", 1073741824.0),
        ("tombolo_request_duration_seconds_count{operation=\"read\"}", 6.0),
        ("tombolo_request_duration_seconds_sum{operation=\"read\"}", 1.5),
        (
            "tombolo_request_duration_seconds_bucket{le=\"0.1\",operation=\"read\"}",
            5.0,
        ),
        (
            "tombolo_request_duration_seconds_bucket{le=\"+Inf\",operation=\"read\"}",
            6.0,
        ),
        (
            "tombolo_store_request_duration_seconds_bucket{le=\"+Inf\",operation=\"put\"}",
            1.0,
        ),
        (
            "tombolo_store_request_failures_total{operation=\"put\",kind=\"throttled\"}",
            4.0,
        ),
        ("tombolo_request_errors_total{operation=\"read\"}", 1.0),
        ("tombolo_shares", 2.0),
        ("tombolo_share_used_bytes{share=\"docs\"}", 4096.0),
        ("tombolo_share_quota_bytes{share=\"docs\"}", 1073741824.0),
        ("tombolo_share_inodes{share=\"docs\"}", 3.0),
        (
            "tombolo_share_sessions{share=\"docs\",kind=\"socket\",state=\"away\"}",
            1.0,
        ),
        (
            "tombolo_share_sessions{share=\"docs\",kind=\"mount\",state=\"connected\"}",
            0.0,
        ),
        ("tombolo_file_request_duration_seconds_count{operation=\"lookup\"}", 6.0),
        ("tombolo_file_request_errors_total{operation=\"lookup\"}", 2.0),
        ("tombolo_check_findings", 0.0),
        ("tombolo_store_requests_total{operation=\"put\",cause=\"flush\"}", 6.0),
        (
            "tombolo_store_requests_charged_total{operation=\"put\",cause=\"flush\"}",
            5.0,
        ),
        (
            "tombolo_store_cause_bytes_total{operation=\"put\",cause=\"flush\"}",
            7.0,
        ),
        ("tombolo_replica_state{replica=\"far\",state=\"behind\"}", 1.0),
        ("tombolo_replica_state{replica=\"far\",state=\"even\"}", 0.0),
        ("tombolo_replica_behind_objects{replica=\"far\"}", 3.0),
        ("tombolo_replica_behind_bytes{replica=\"far\"}", 12_288.0),
        ("tombolo_replica_behind_age_seconds{replica=\"far\"}", 60.0),
        ("tombolo_replica_brought_total{replica=\"far\"}", 5.0),
        ("tombolo_replica_bill_month_dollars{replica=\"far\"}", 0.75),
        ("tombolo_copy_reads_total{copy=\"store\"}", 8.0),
        ("tombolo_copy_reads_total{copy=\"far\"}", 9.0),
        ("tombolo_copy_reads_failed_over_total{copy=\"store\"}", 1.0),
        ("tombolo_store_healed_total", 2.0),
        ("tombolo_bill_dollars_total{cause=\"flush\"}", 0.125),
        ("tombolo_bill_month_dollars{cause=\"flush\"}", 1.5),
        ("tombolo_bill_month_dollars{cause=\"storage\"}", 0.5),
        ("tombolo_bill_dollars_per_day{cause=\"flush\"}", 2.0),
        ("tombolo_bill_dollars_per_day{cause=\"storage\"}", 0.25),
        ("tombolo_bill_hour_dollars_per_day", 3.0),
        ("tombolo_bill_forecast_dollars", 12.5),
        ("tombolo_bill_budget_dollars", 10.0),
        ("tombolo_store_retries_total", 7.0),
        ("tombolo_store_uploads_given_up_total", 11.0),
        ("tombolo_store_upload_window_bytes", 8_192.0),
        ("tombolo_store_download_window_bytes", 12_288.0),
        ("tombolo_store_requests_given_up_total", 1.0),
        ("tombolo_store_requests_waiting{class=\"demand\"}", 2.0),
        (
            "tombolo_policy_reads_total{replacement=\"sarc\",prefetch=\"graph\",result=\"partial_miss\"}",
            5.0,
        ),
        (
            "tombolo_prefetch_efficiency_ratio{replacement=\"sarc\",prefetch=\"graph\"}",
            0.25,
        ),
        ("tombolo_prefetch_graph_nodes", 17.0),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series}");
    }
    assert!(!samples.contains_key("tombolo_share_quota_bytes{share=\"free\"}"));
    assert_eq!(types["tombolo_uploads_total"], "counter");
    assert_eq!(types["tombolo_request_duration_seconds"], "histogram");
}

#[test]
fn every_series_is_named_in_the_table() {
    let known: BTreeSet<String> = names().into_iter().collect();
    let (samples, types) = parse(&encode(example()).unwrap());
    for series in samples.keys() {
        let name = series.split('{').next().unwrap();
        assert!(known.contains(name), "{name}");
    }
    let families: Vec<&str> = all().iter().map(|metric| metric.name).collect();
    assert!(types.keys().all(|family| families.contains(&family.as_str())));
    assert_eq!(types.len(), families.len());
}

#[test]
fn names_and_help_follow_the_conventions() {
    for metric in all() {
        assert!(metric.name.starts_with("tombolo_"));
        assert_eq!(
            metric.name.ends_with("_total"),
            metric.kind == Kind::Counter,
            "{}",
            metric.name
        );
        assert!(
            metric.help.ends_with('.') && !metric.help.contains('\n'),
            "{}",
            metric.name
        );
    }
}

#[test]
fn an_idle_gateway_has_metrics_too() {
    let (samples, _) = parse(&encode(Metrics::default()).unwrap());
    assert_eq!(samples["tombolo_uploads_total"], 0.0);
    assert!(!samples.contains_key("tombolo_store_last_success_age_seconds"));
    assert!(!samples.contains_key("tombolo_check_findings"));
    assert!(!samples.contains_key("tombolo_bill_budget_dollars"));
}

#[test]
fn series_have_their_store_once_there_are_several() {
    let alone = encode(example()).unwrap();
    assert!(!alone.contains("store=\""), "{alone}");
    let several = encode(Metrics {
        named: vec![("far".into(), example())],
        ..example()
    })
    .unwrap();
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for store in ["default", "far"] {
        let label = format!("store=\"{store}\"");
        let of_store = series(&several).into_iter().filter(|line| line.contains(&label));
        // The same but for the label, which stands last or alone.
        let plain = |line: String| {
            line.replace(&format!("{{{label}}}"), "")
                .replace(&format!(",{label}"), "")
        };
        let mut of_store: Vec<String> = of_store.map(plain).collect();
        let mut expected = series(&alone);
        // Of a histogram it stands before the bound.
        let dense = |lines: &mut Vec<String>| {
            lines.retain(|line| !line.contains("_bucket{"));
            lines.sort();
        };
        dense(&mut of_store);
        dense(&mut expected);
        assert_eq!(of_store, expected);
    }
    assert_eq!(series(&several).len(), 2 * series(&alone).len());
    // Told once, however many stores there are.
    assert_eq!(
        several.lines().filter(|line| line.starts_with("# HELP")).count(),
        all().len()
    );
}
