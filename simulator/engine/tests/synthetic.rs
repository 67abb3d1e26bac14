//! Stand-ins for the Tombolo paper's traces: the printed totals are met whatever the seed, jumps repeat as often as in real
//! traces, and without repeated tasks hardly ever. No policy is asked.

use proptest::prelude::*;
use std::cell::Cell;
use tempfile::TempDir;
use tombolo_engine::replay::{Error, Interrupted};
use tombolo_engine::synthetic::{Dataset, Generator, Job, Printed, Specification, write};
use tombolo_trace::analysis::RunLength;
use tombolo_trace::{Analyser, Analysis, Operation, Record, Source};

const SCALE: f64 = 0.01;
const SEEDS: std::ops::Range<u64> = 1..6;
const DAY_US: f64 = 86.4e9;
const BLOCK_BYTES: f64 = 4096.0;

fn records(trace: Specification) -> impl Iterator<Item = Record> {
    Generator::new(trace).unwrap()
}

fn analyse(trace: Specification) -> Analysis {
    let mut analyser = Analyser::new(DAY_US as u64);
    records(trace).for_each(|record| analyser.on_record(&record));
    analyser.finish()
}

fn control(dataset: Dataset, seed: u64) -> Specification {
    Specification {
        templates: 0,
        ..Specification::new(dataset, SCALE, seed)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Of all blocks read, those in runs of fewer than ten.
fn short(lengths: &[RunLength]) -> f64 {
    let units = |counted: &dyn Fn(&&RunLength) -> bool| -> u64 {
        lengths.iter().filter(counted).map(|run| run.units * run.runs).sum()
    };
    share(units(&|run| run.units < 10), units(&|_| true))
}

/// A relative tolerance.
fn assert_near(name: &str, found: f64, wanted: f64, tolerance: f64) {
    let off = found / wanted - 1.0;
    assert!(
        off.abs() <= tolerance,
        "{name}: {found} instead of {wanted}, {:.2} %",
        off * 100.0
    );
}

fn assert_table_1(found: &Analysis, printed: &Printed) {
    let scaled = |count: u64| (count as f64 * SCALE).round() as u64;
    assert_eq!(
        (found.reads, found.writes, found.clients),
        (scaled(printed.reads), scaled(printed.writes), scaled(printed.clients))
    );
    assert_near(
        "bytes read",
        found.read_bytes as f64,
        printed.read_gb * 1e9 * SCALE,
        0.01,
    );
    assert_near(
        "bytes written",
        found.written_bytes as f64,
        printed.written_gb * 1e9 * SCALE,
        0.02,
    );
    let new = found.distinct_contents as f64 * BLOCK_BYTES;
    assert_near("new data", new, printed.growth_gb * 1e9 * SCALE, 0.03);
    let new_share = share(found.distinct_contents, found.named_contents);
    assert_near("share of new data", new_share, printed.new_share(), 0.02);
    assert_near("days", found.span_us as f64 / DAY_US, printed.days as f64, 0.01);
}

fn assert_figure_5(found: &Analysis) {
    for (name, lengths) in [("strict", &found.runs.strict), ("streams", &found.runs.streams)] {
        let short = short(lengths);
        assert!((0.60..0.67).contains(&short), "{name}: {short}");
    }
    // Another client's read may break a run, a stream goes on.
    assert_eq!(found.runs.streams_longest, 10_000);
    assert!(found.runs.strict_longest >= 5_000);
}

#[test]
fn table_1_and_figure_5_are_met_for_every_seed() {
    for dataset in Dataset::ALL {
        for seed in SEEDS {
            for trace in [Specification::new(dataset, SCALE, seed), control(dataset, seed)] {
                let found = analyse(trace);
                assert_table_1(&found, dataset.printed());
                assert_figure_5(&found);
            }
        }
    }
}

#[test]
fn jumps_repeat_as_in_real_traces_and_hardly_in_the_control() {
    for dataset in Dataset::ALL {
        for seed in SEEDS {
            let shares = |trace| {
                let found = analyse(trace).successors;
                (share(found.to_last, found.jumps), share(found.to_any_of_4, found.jumps))
            };
            let (last, any) = shares(Specification::new(dataset, SCALE, seed));
            assert!(
                (0.19..0.53).contains(&last) && (0.27..0.65).contains(&any),
                "{last} {any}"
            );
            let (last, any) = shares(control(dataset, seed));
            assert!(last < 0.015 && any < 0.035, "control: {last} {any}");
        }
    }
}

#[test]
fn work_is_done_by_day() {
    let mut by_hour = [0u64; 24];
    let trace = Specification::new(Dataset::Corp, SCALE, 1);
    records(trace).for_each(|record| by_hour[(record.time_us as f64 / DAY_US * 24.0) as usize % 24] += 1);
    let (day, night): (u64, u64) = (by_hour[9..17].iter().sum(), by_hour[0..6].iter().sum());
    assert!(day > 8 * night, "{by_hour:?}");
}

#[test]
fn a_seed_is_one_trace_and_another_seed_another() {
    let trace = |seed| records(Specification::new(Dataset::Eng, 0.001, seed)).collect::<Vec<_>>();
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
    let other = |dataset| {
        records(Specification::new(dataset, 0.001, 7))
            .take(100)
            .collect::<Vec<_>>()
    };
    assert_ne!(other(Dataset::Corp), other(Dataset::Eng));
}

fn specifications() -> impl Strategy<Value = Specification> {
    let dataset = prop_oneof![Just(Dataset::Corp), Just(Dataset::Eng)];
    (dataset, 0.0005..0.002, any::<u64>(), 0u32..10).prop_map(|(dataset, scale, seed, templates)| Specification {
        dataset,
        scale,
        seed,
        templates,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_trace_is_in_order_whole_and_within_its_bounds(trace in specifications()) {
        let printed = trace.dataset.printed();
        let scaled = |count: u64| (count as f64 * trace.scale).round() as u64;
        let (mut time_us, mut writes, mut names, mut written) = (0, 0, 0, 0);
        let requests = Generator::new(trace).unwrap().requests();
        let mut count = 0;
        for record in records(trace) {
            prop_assert!(record.time_us >= time_us);
            time_us = record.time_us;
            prop_assert!((1..=16).contains(&record.count));
            prop_assert_eq!(record.bytes, record.count * 4096);
            prop_assert!(u64::from(record.client) < scaled(printed.clients).max(1));
            let is_write = record.operation == Operation::Write;
            prop_assert_eq!(record.contents.len() as u64, if is_write { record.count } else { 0 });
            // Names are given out one after another: none is skipped.
            for name in &record.contents {
                prop_assert!((1..=names + 1).contains(name));
                names = names.max(*name);
            }
            written += if is_write { record.count } else { 0 };
            // What is stored beforehand, and what has been written since.
            prop_assert!(record.end() <= (printed.stored_blocks() * trace.scale).ceil() as u64 + written);
            writes += u64::from(is_write);
            count += 1;
        }
        prop_assert_eq!(count, requests);
        prop_assert_eq!(count, scaled(printed.reads) + scaled(printed.writes));
        prop_assert_eq!(writes, scaled(printed.writes));
    }
}

#[test]
fn the_file_holds_the_same_records() {
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("corp.tbtr");
    let trace = Specification::new(Dataset::Corp, 0.001, 3);
    let written = write(
        &Job {
            trace,
            target: target.clone(),
        },
        &mut |_, _| Ok(()),
    )
    .unwrap();
    let source: Source = serde_json::from_value(serde_json::json!({"path": target})).unwrap();
    let mut reader = tombolo_trace::open(&source).unwrap();
    let (mut record, mut read) = (Record::default(), 0);
    for expected in records(trace) {
        assert!(reader.next(&mut record).unwrap());
        assert_eq!(record, expected);
        read += 1;
    }
    assert!(!reader.next(&mut record).unwrap());
    assert_eq!(read, written);
}

#[test]
fn an_interruption_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("corp.tbtr");
    let job = Job {
        trace: Specification::new(Dataset::Corp, SCALE, 1),
        target,
    };
    let calls = Cell::new(0);
    let stop_at_the_third = &mut |_, _| {
        calls.set(calls.get() + 1);
        if calls.get() < 3 { Ok(()) } else { Err(Interrupted) }
    };
    assert!(matches!(write(&job, stop_at_the_third), Err(Error::Interrupted)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_out_of_range_is_refused_by_name() {
    let good = Specification::new(Dataset::Corp, SCALE, 1);
    let refused = |trace: Specification| match Generator::new(trace) {
        Err(Error::Job { field, reason }) => format!("{field}: {reason}"),
        other => panic!("{other:?}"),
    };
    for scale in [0.0, -1.0, 1.1, f64::NAN, f64::INFINITY] {
        assert!(refused(Specification { scale, ..good }).starts_with("scale: "));
    }
    let many = Specification {
        templates: 1001,
        ..good
    };
    assert_eq!(refused(many), "templates: 1001; it must be 0 to 1000");
    let misspelt = serde_json::json!({"dataset": "Corp", "scale": 0.1, "seed": 1});
    assert!(serde_json::from_value::<Specification>(misspelt).is_err());
}
