//! Replays of small traces: nothing is lost or counted twice, and simple cases come out as they must.

use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use tombolo_base::Prng;
use tombolo_engine::keys;
use tombolo_engine::replay::{Error, GetRequest, Interrupted, Job, PutRequest, Report, Store, run};
use tombolo_trace::columnar::{FileHeader, Writer};
use tombolo_trace::{BlockSet, Operation, Record};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn trace(&self, records: &[Record]) -> String {
        let path = self.0.path().join("trace.tbtr");
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = Writer::new(file, FileHeader::default()).unwrap();
        records.iter().for_each(|record| writer.push(record).unwrap());
        writer.finish().unwrap();
        path.display().to_string()
    }
}

fn job(path: &str, settings: Value) -> Job {
    let mut job = json!({"trace": {"path": path}, "check": true});
    job.as_object_mut()
        .unwrap()
        .extend(settings.as_object().unwrap().clone());
    serde_json::from_value(job).unwrap()
}

fn replay(path: &str, settings: Value) -> Report {
    run(&job(path, settings), None, &mut |_, _| Ok(())).unwrap_or_else(|error| panic!("{error}"))
}

fn read(time_us: u64, first: u64, count: u64) -> Record {
    Record {
        time_us,
        first,
        count,
        bytes: count * 4096,
        ..Record::default()
    }
}

/// Single-block reads with a working set, some of them in runs.
fn reads(seed: u64, count: u64) -> Vec<Record> {
    let mut prng = Prng::new(seed);
    let mut next = 0;
    let block = |prng: &mut Prng| match prng.chance(600) {
        true => prng.below(300),
        false => prng.below(3_000),
    };
    (0..count)
        .map(|index| {
            next = if prng.chance(400) { next + 1 } else { block(&mut prng) };
            read(index * 500, next, 1)
        })
        .collect()
}

/// Everything that a trace may hold.
fn mixture(seed: u64, count: u64) -> Vec<Record> {
    let mut prng = Prng::new(seed);
    let mut time_us = 0;
    let mut names = 0;
    (0..count)
        .map(|_| {
            time_us += prng.below(20_000);
            let (first, count) = (prng.below(2_000), 1 + prng.below(40));
            let mut record = Record {
                client: prng.below(4) as u32,
                volume: [7, u64::MAX][prng.below(2) as usize],
                ..read(time_us, first, count)
            };
            match prng.below(20) {
                0..12 => {}
                12 => record.operation = Operation::Discard,
                13 => {
                    record.operation = Operation::Flush;
                    (record.first, record.count, record.bytes) = (0, 0, 0);
                }
                _ => {
                    record.operation = Operation::Write;
                    names += count;
                    let name = |index| {
                        if prng.chance(300) {
                            prng.below(50)
                        } else {
                            50 + names + index
                        }
                    };
                    record.contents = (0..count).map(name).collect();
                }
            }
            record
        })
        .collect()
}

#[test]
fn nothing_is_lost_or_counted_twice() {
    let folder = Folder::new();
    let policies = [
        ("lru", "none"),
        ("sarc", "amp"),
        ("arc", "graph"),
        ("gdsf-price", "linux"),
        ("lirs", "ramp"),
        ("lru", "oracle"),
    ];
    for (seed, (replacement, prefetch)) in policies.into_iter().enumerate() {
        let records = mixture(seed as u64, 3_000);
        let of = |operation| records.iter().filter(move |record| record.operation == operation);
        let blocks = |operation| of(operation).map(|record| record.count).sum::<u64>();
        let path = folder.trace(&records);
        let ways = [
            (json!("closed-loop"), true),
            (json!("trace"), false),
            (json!({"poisson_per_s": 40.0}), true),
        ];
        for (arrivals, dedup) in ways {
            let settings = json!({
                "cache_blocks": 600, "replacement": replacement, "prefetch": prefetch, "arrivals": arrivals,
                "seed": seed, "outstanding_max": 5, "flush_delay_ms": 300, "dedup": dedup,
                "addressing": if seed % 2 == 0 { "logical" } else { "pvbn" },
            });
            let report = replay(&path, settings);
            let reads = &report.reads;
            assert_eq!(report.requests, 3_000 + report.requests_split);
            assert_eq!(report.read_latency.count, reads.requests);
            assert_eq!(report.write_latency.count, report.writes.requests);
            assert_eq!(
                reads.hits + reads.partial_misses + reads.complete_misses,
                reads.requests
            );
            assert_eq!(reads.blocks, blocks(Operation::Read));
            let known = reads.block_hits + reads.block_partial_misses + reads.block_complete_misses;
            assert_eq!(known + reads.block_holes, reads.blocks);
            assert_eq!(report.writes.blocks, blocks(Operation::Write));
            assert_eq!(report.writes.flushes, of(Operation::Flush).count() as u64);
            // Blocks of one read with equal contents are missed each and fetched once.
            let asked_for = reads.block_complete_misses + report.prefetched.blocks;
            assert!(report.cloud.blocks_down == asked_for || (dedup && report.cloud.blocks_down < asked_for));
            let unique = report.writes.blocks_unique * 4096;
            let heads = report.cloud.bytes_up - unique;
            assert!(
                report.cloud.bytes_up > unique && heads < 130 * report.cloud.puts + 48 * report.writes.blocks_unique
            );
            let prefetched = &report.prefetched;
            assert!(prefetched.used + prefetched.wasted + prefetched.dropped <= prefetched.blocks);
            assert_eq!(
                report.series.points.iter().map(|point| point.gets).sum::<u64>(),
                report.cloud.gets
            );
            assert_eq!(
                report.series.points.iter().map(|point| point.reads).sum::<u64>(),
                reads.requests
            );
        }
    }
}

/// One read of one block of an object brings all 64, and the request is that of the object.
#[test]
fn a_fetch_may_bring_the_whole_object() {
    let folder = Folder::new();
    let records: Vec<_> = (0..256).map(|block| read(block, (block * 37) % 256, 1)).collect();
    let path = folder.trace(&records);
    let settings = |unit| json!({"cache_blocks": 2_000, "fetch_unit": unit, "preload": "touched"});
    let by_range = replay(&path, settings("range"));
    assert_eq!((by_range.cloud.gets, by_range.reads.complete_misses), (256, 256));
    let by_object = replay(&path, settings("object"));
    assert_eq!((by_object.cloud.gets, by_object.reads.complete_misses), (4, 4));
    assert_eq!(by_object.cloud.blocks_down, 256);
    assert!(by_object.cloud.bytes_down > 256 * 4096, "descriptors come with them");
    assert_eq!(by_object.prefetched.blocks, 0, "no prefetcher has asked for them");
}

/// Beside a prefetcher's suggestions, in a cache that has to evict; the core's invariants are checked after each event.
#[test]
fn whole_objects_and_prefetch_get_along() {
    let folder = Folder::new();
    for (replacement, prefetch) in [
        ("lru", "amp"),
        ("sarc", "seq"),
        ("sarc", "graph"),
        ("gds-latency", "none"),
    ] {
        let path = folder.trace(&mixture(5, 3_000));
        let report = replay(
            &path,
            json!({"cache_blocks": 1_200, "replacement": replacement, "prefetch": prefetch, "fetch_unit": "object",
                "arrivals": "trace", "sequential_by": "replacement"}),
        );
        let (reads, prefetched) = (&report.reads, &report.prefetched);
        assert_eq!(report.read_latency.count, reads.requests);
        assert!(report.cloud.blocks_down > reads.block_complete_misses + prefetched.blocks);
        assert!(prefetched.used + prefetched.wasted + prefetched.dropped <= prefetched.blocks);
    }
}

/// SARC finds runs by the tracks that are resident; the stream table of a prefetcher finds them sooner.
#[test]
fn sarc_may_judge_for_itself_what_is_sequential() {
    let folder = Folder::new();
    let path = folder.trace(&reads(11, 20_000));
    let misses = |by| {
        let report = replay(
            &path,
            json!({"cache_blocks": 600, "replacement": "sarc", "prefetch": "seq", "sequential_by": by}),
        );
        report.reads.block_complete_misses
    };
    assert_ne!(misses("prefetcher"), misses("replacement"));
    let lru = |by| {
        let settings = json!({"cache_blocks": 600, "replacement": "lru", "prefetch": "seq", "sequential_by": by});
        replay(&path, settings).digest
    };
    assert_eq!(lru("prefetcher"), lru("replacement"), "LRU does not care");
}

/// What the trace overwrites lies where it was written last, and what was replaced between it; equal contents lie once.
#[test]
fn a_log_ages_the_layout() {
    let folder = Folder::new();
    let write = |time_us, first, contents: &[u64]| Record {
        operation: Operation::Write,
        contents: contents.to_vec(),
        ..read(time_us, first, contents.len() as u64)
    };
    let records = [
        read(0, 500, 1),
        write(1, 0, &[1, 2, 3, 4]),
        write(2, 2, &[5]),
        write(3, 100, &[1, 0, 6]),
        read(4, 0, 4),
    ];
    let path = folder.trace(&records);
    let preloaded = |dedup| {
        let settings = json!({"cache_blocks": 64, "preload": "aged", "dedup": dedup});
        replay(&path, settings).cloud.preloaded_blocks
    };
    assert_eq!(preloaded(true), 256 + 6, "a page around block 500, then six contents");
    assert_eq!(preloaded(false), 256 + 7);
}

#[test]
fn the_same_job_gives_the_same_report() {
    let folder = Folder::new();
    let path = folder.trace(&mixture(77, 2_000));
    let settings = |seed: u64| json!({"cache_blocks": 500, "replacement": "sarc", "prefetch": "graph", "seed": seed, "arrivals": "trace"});
    // Hash tables grow as their keys happen to fall.
    let timeless = |mut report: Report| {
        report.policy.cache_bytes = 0;
        Report {
            wall_seconds: 0.0,
            requests_per_second: 0.0,
            ..report
        }
    };
    let first = timeless(replay(&path, settings(1)));
    assert_eq!(first, timeless(replay(&path, settings(1))));
    assert_ne!(first.digest, replay(&path, settings(2)).digest);
}

#[test]
fn a_cache_that_holds_everything_misses_each_block_once() {
    let folder = Folder::new();
    let records = reads(3, 8_000);
    let mut touched = BlockSet::default();
    records.iter().for_each(|record| {
        touched.insert(0, record.first, record.count);
    });
    let path = folder.trace(&records);
    let report = replay(&path, json!({"cache_blocks": 10_000, "preload": "touched"}));
    assert_eq!(report.reads.block_complete_misses, touched.len());
    assert_eq!(report.cloud.preloaded_blocks, touched.len());
    assert_eq!(report.reads.block_holes, 0);
}

#[test]
fn lru_misses_what_lru_alone_misses() {
    let folder = Folder::new();
    let path = folder.trace(&reads(4, 20_000));
    for blocks in [16u32, 100, 700] {
        for policy in ["lru", "arc", "s3-fifo", "sieve", "2q"] {
            let report = replay(
                &path,
                json!({"cache_blocks": blocks, "replacement": policy, "cloud": {"put_ms": "none"}}),
            );
            let job = json!({"trace": {"path": path}, "runs": [{"policy": policy, "capacity": {"keys": blocks}}]});
            let alone = keys::run(&serde_json::from_value(job).unwrap(), &mut |_, _| Ok(())).unwrap();
            assert_eq!(report.reads.complete_misses, alone.runs[0].misses, "{policy} {blocks}");
        }
    }
}

/// A loop that does not fit is what LRU never hits.
#[test]
fn an_adaptive_cache_leaves_lru_where_that_holds_nothing_and_only_there() {
    let folder = Folder::new();
    let looping: Vec<_> = (0..60_000).map(|at| read(at * 1_000, at % 1_000, 1)).collect();
    let path = folder.trace(&looping);
    let hits = |replacement: &str| {
        let report = replay(&path, json!({"cache_blocks": 800, "replacement": replacement}));
        (report.replacement, report.reads.hits)
    };
    let ((_, of_lru), (of_lirs, most), (chosen, adapted)) = (hits("lru"), hits("lirs"), hits("adaptive"));
    assert_eq!((of_lru, &*of_lirs), (0, "lirs"));
    assert_ne!(chosen, "lru");
    assert!(adapted > most / 2, "{adapted} of {most}");
    let path = folder.trace(&reads(6, 20_000));
    let report = |replacement| {
        let report = replay(&path, json!({"cache_blocks": 3_000, "replacement": replacement}));
        (report.replacement, report.digest)
    };
    assert_eq!(report("adaptive"), report("lru"), "all fits");
}

/// A single run lets the trace pass by; several have it loaded.
#[test]
fn keys_come_out_the_same_however_the_trace_is_read() {
    let folder = Folder::new();
    // More keys than are read at a time, of two volumes, some of them written, some discarded.
    let mut records = reads(5, 40_000);
    for (at, record) in records.iter_mut().enumerate() {
        record.volume = at as u64 % 2 * 7;
        record.operation = match at % 10 {
            0..=2 => Operation::Write,
            3 => Operation::Discard,
            _ => Operation::Read,
        };
        record.count += at as u64 % 3 * 4;
    }
    let path = folder.trace(&records);
    let report = |runs: Value| {
        let job = json!({"trace": {"path": path}, "runs": runs});
        keys::run(&serde_json::from_value(job).unwrap(), &mut |_, _| Ok(())).unwrap()
    };
    let outcome = |report: &keys::Report, run: usize| {
        let run = &report.runs[run];
        (
            report.requests,
            report.reads,
            run.misses,
            run.read_misses,
            run.miss_ratio,
        )
    };
    let policies = ["lru", "arc", "sarc"];
    let runs = policies.map(|policy| json!({"policy": policy, "capacity": {"keys": 500}}));
    let together = report(json!(runs));
    assert!(together.requests > 1 << 17 && together.reads < together.requests);
    for (at, run) in runs.iter().enumerate() {
        let alone = report(json!([run]));
        assert_eq!(outcome(&alone, 0), outcome(&together, at), "{}", policies[at]);
        assert_eq!(alone.distinct, None, "nothing is counted that nobody needs");
    }
    let share = report(json!([{"policy": "lru", "capacity": {"percent": 10.0}}]));
    let distinct = together.distinct.unwrap();
    assert_eq!(share.distinct, Some(distinct));
    assert_eq!(u64::from(share.runs[0].capacity), distinct / 10);
}

#[test]
fn duplicates_are_uploaded_once() {
    let folder = Folder::new();
    let write = |time_us, first, name| Record {
        operation: Operation::Write,
        contents: vec![name; 10],
        ..read(time_us, first, 10)
    };
    let path = folder.trace(&[write(0, 0, 5), write(1, 20, 5), write(2, 40, 0), write(3, 60, 6)]);
    let with = |dedup: bool| replay(&path, json!({"cache_blocks": 100, "dedup": dedup})).writes;
    let deduplicated = with(true);
    assert_eq!(
        (
            deduplicated.blocks_unique,
            deduplicated.blocks_duplicate,
            deduplicated.blocks_zero
        ),
        (2, 28, 10)
    );
    let plain = with(false);
    assert_eq!(
        (plain.blocks_unique, plain.blocks_duplicate, plain.blocks_zero),
        (30, 0, 10)
    );
}

#[test]
fn a_duplicate_is_read_back_from_the_cache() {
    let folder = Folder::new();
    let write = |seconds: u64, first| Record {
        operation: Operation::Write,
        contents: vec![5],
        ..read(seconds * 1_000_000, first, 1)
    };
    let others = (0..8).map(|index| read(20_000_000 + index, 300 + index * 4, 4));
    let mut records = vec![write(0, 0)];
    records.extend(others);
    records.extend([write(40, 20), read(60_000_000, 20, 1), read(70_000_000, 0, 1)]);
    let settings = json!({"cache_blocks": 16, "preload": "touched", "arrivals": "trace"});
    let report = replay(&folder.trace(&records), settings);
    assert_eq!((report.writes.blocks_unique, report.writes.blocks_duplicate), (1, 1));
    assert_eq!((report.reads.complete_misses, report.reads.hits), (8, 2));
}

/// Each takes its turn in the trace's order, so the last of 12 begins after five rounds of two.
#[test]
fn clients_think_before_they_ask_again() {
    let folder = Folder::new();
    let path = folder.trace(&(0..12).map(|index| read(0, index * 1_000, 1)).collect::<Vec<_>>());
    let seconds = |think_time_us: u64| {
        let settings = json!({
            "cache_blocks": 100, "preload": "touched", "outstanding_max": 2, "think_time_us": think_time_us,
            "cloud": {"get_ms": [[0.5, 20.0]], "ms_per_mib": 0.0}, "disk": {"read_ms": "none", "write_ms": "none"},
        });
        replay(&path, settings).virtual_seconds
    };
    assert!((seconds(0) - 0.120).abs() < 1e-6);
    assert!((seconds(5_000) - 0.145).abs() < 1e-6);
    assert!((seconds(100_000) - 0.620).abs() < 1e-6);
}

/// A block that is fetched ahead while a client thinks is there when it asks; the others are still on their way.
#[test]
fn who_thinks_longer_hits_more() {
    let folder = Folder::new();
    let path = folder.trace(&(0..200).map(|index| read(0, index, 1)).collect::<Vec<_>>());
    let reads = |think_time_us: u64| {
        let settings = json!({"cache_blocks": 1000, "prefetch": "seq", "think_time_us": think_time_us});
        replay(&path, settings).reads
    };
    let (hasty, slow) = (reads(0), reads(100_000));
    assert!(
        hasty.partial_misses > 0 && slow.partial_misses == 0,
        "{hasty:?} {slow:?}"
    );
    assert!(slow.hits > hasty.hits);
}

#[test]
fn latencies_are_what_the_tables_say() {
    let folder = Folder::new();
    let path = folder.trace(&[read(0, 1, 1), read(1_000_000, 1, 1)]);
    let settings = json!({
        "cache_blocks": 100, "preload": "touched", "arrivals": "trace",
        "cloud": {"get_ms": [[0.5, 20.0]], "rtt_ms": 5.0, "ms_per_mib": 256.0},
        "disk": {"read_ms": [[0.5, 3.0]]},
    });
    let report = replay(&path, settings);
    assert!(
        (report.read_latency.max - 26.0).abs() < 0.03,
        "{:?}",
        report.read_latency
    );
    assert!((report.read_latency.min - 3.0).abs() < 0.01);
    assert_eq!((report.reads.hits, report.reads.complete_misses), (1, 1));
    let twice = folder.trace(&[read(0, 1, 1), read(1_000, 1, 1)]);
    let report = replay(&twice, json!({"cache_blocks": 100, "arrivals": "trace"}));
    assert_eq!((report.reads.partial_misses, report.reads.complete_misses), (1, 1));
}

#[test]
fn measured_latencies_depend_on_size_and_parallelism() {
    let cell = |size_bytes: u64, parallelism: u32, ms: f64| {
        json!({"size_bytes": size_bytes, "parallelism": parallelism, "requests": 1, "failed": 0, "repeats": 1, "dropped": 0,
               "bytes_per_s": 1e6, "mean_ms": ms, "mean_ms_deviation": 0, "latency_ms": [[0.5, ms]]})
    };
    let cells = json!([
        cell(4096, 1, 20.0),
        cell(4096, 2, 30.0),
        cell(65_536, 1, 80.0),
        cell(65_536, 2, 120.0)
    ]);
    let settings = json!({
        "cache_blocks": 1000, "preload": "touched", "arrivals": "trace", "pack_blocks": 16,
        "cloud": {"get_ms": cells, "put_ms": [[0.5, 1.0]], "rtt_ms": 5.0, "ms_per_mib": 1e5},
        "disk": {"read_ms": [[0.5, 0.0]], "write_ms": [[0.5, 0.0]]},
    });
    let folder = Folder::new();
    let latencies = |records: &[Record]| {
        let report = replay(&folder.trace(records), settings.clone());
        (report.read_latency.min, report.read_latency.max)
    };
    let near = |found: f64, ms: f64| assert!((found - ms).abs() < ms * 0.02, "{found} ms, not {ms}");
    // Alone; beside another one; sixteen blocks, whose bytes alone decide.
    near(latencies(&[read(0, 0, 1)]).1, 25.0);
    let (first, second) = latencies(&[read(0, 0, 1), read(1_000, 1 << 20, 1)]);
    near(first, 25.0);
    near(second, 35.0);
    near(latencies(&[read(0, 0, 1), read(500_000, 1 << 20, 1)]).1, 25.0);
    near(latencies(&[read(0, 0, 16)]).1, 85.0);
    let mut job = job(&folder.trace(&[read(0, 0, 1)]), settings);
    job.disk.read_ms = job.cloud.get_ms.clone();
    let error = run(&job, None, &mut |_, _| Ok(())).unwrap_err().to_string();
    assert_eq!(
        error,
        "disk.read_ms: cells of a store that was measured stand for no disk"
    );
    job.disk = tombolo_engine::replay::Disk::default();
    if let tombolo_engine::replay::Latency::Measured(cells) = &mut job.cloud.get_ms {
        cells[1].parallelism = 1;
    }
    let error = run(&job, None, &mut |_, _| Ok(())).unwrap_err().to_string();
    assert_eq!(
        error,
        "cloud.get_ms: cells: 4096 bytes, parallelism 1, stand there twice"
    );
}

#[test]
fn the_warm_up_is_left_out() {
    let folder = Folder::new();
    let path = folder.trace(&reads(9, 5_000));
    let whole = replay(&path, json!({"cache_blocks": 300}));
    let rest = replay(&path, json!({"cache_blocks": 300, "warmup_requests": 2_000}));
    assert_eq!(
        (rest.requests, rest.reads.requests, rest.read_latency.count),
        (3_000, 3_000, 3_000)
    );
    assert_eq!(rest.digest, whole.digest);
    assert!(rest.cloud.gets < whole.cloud.gets && rest.dollars.storage < whole.dollars.storage);
}

struct Slow {
    gets: u64,
    puts: u64,
    fails: bool,
    /// Whether it leaves the latencies to the tables.
    is_silent: bool,
}

impl Store for Slow {
    fn get(&mut self, request: &GetRequest) -> Result<Option<f64>, String> {
        self.gets += 1;
        assert!(request.bytes.is_multiple_of(4096) && request.object > 0);
        if self.fails {
            Err("no such bucket".into())
        } else {
            Ok((!self.is_silent).then_some(7.0))
        }
    }

    fn put(&mut self, request: &PutRequest) -> Result<Option<f64>, String> {
        self.puts += 1;
        assert!(request.bytes > 4096);
        Ok((!self.is_silent).then_some(9.0))
    }
}

#[test]
fn a_store_takes_the_place_of_the_tables() {
    let folder = Folder::new();
    let path = folder.trace(&mixture(5, 500));
    let job = job(&path, json!({"cache_blocks": 1_000}));
    let mut store = Slow {
        gets: 0,
        puts: 0,
        fails: false,
        is_silent: false,
    };
    let report = run(&job, Some(&mut store), &mut |_, _| Ok(())).unwrap();
    assert_eq!((report.cloud.gets, report.cloud.puts), (store.gets, store.puts));
    assert!(report.read_latency.max < 10.0);
    let mut silent = Slow {
        gets: 0,
        puts: 0,
        is_silent: true,
        ..store
    };
    let drawn = run(&job, Some(&mut silent), &mut |_, _| Ok(())).unwrap();
    assert_eq!(drawn.digest, run(&job, None, &mut |_, _| Ok(())).unwrap().digest);
    assert!(silent.gets > 0 && drawn.digest != report.digest);
    let mut store = Slow { fails: true, ..store };
    let error = run(&job, Some(&mut store), &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Store(reason) if reason == "no such bucket"));
}

#[test]
fn a_job_that_makes_no_sense_is_refused() {
    let folder = Folder::new();
    let path = folder.trace(&[read(0, 1, 1), read(0, 2, 1)]);
    let refused = [
        (json!({"cache_blocks": 1}), "cache_blocks"),
        (json!({"cache_blocks": 100, "replacement": "best"}), "replacement"),
        (json!({"cache_blocks": 100, "prefetch": "best"}), "prefetch"),
        (
            json!({"cache_blocks": 100, "prefetch": "amp", "prefetch_settings": {"speed": 1}}),
            "prefetch_settings",
        ),
        (
            json!({"cache_blocks": 100, "prefetch": "amp", "prefetch_settings": {"threshold": "x"}}),
            "prefetch_settings",
        ),
        (json!({"cache_blocks": 100, "cloud": {"get_ms": "s4"}}), "cloud.get_ms"),
        (json!({"cache_blocks": 100, "arrivals": "trace"}), "arrivals"),
        (
            json!({"cache_blocks": 100, "arrivals": {"poisson_per_s": 0.0}}),
            "arrivals",
        ),
        (json!({"cache_blocks": 100, "pack_blocks": 0}), "pack_blocks"),
        (
            json!({"cache_blocks": 100, "dirty_blocks_max": 101}),
            "dirty_blocks_max",
        ),
    ];
    for (settings, field) in refused {
        let error = run(&job(&path, settings), None, &mut |_, _| Ok(())).unwrap_err();
        assert!(
            matches!(error, Error::Job { field: found, .. } if found == field),
            "{field}: {error}"
        );
    }
    assert!(serde_json::from_value::<Job>(json!({"trace": {"path": path}, "cache_blocks": 9, "colour": 1})).is_err());
    let settings = json!({
        "cache_blocks": 100, "prefetch": "graph",
        "prefetch_settings": {"track_blocks": 8, "scope": "global", "amp.growth": "rate", "amp.threshold": 4},
    });
    assert_eq!(replay(&path, settings).prefetch, "graph");
    let stop = &mut |_, _| Err(Interrupted);
    let job = job(&path, json!({"cache_blocks": 100}));
    assert!(matches!(run(&job, None, stop), Err(Error::Interrupted)));
}

/// Misses of libCacheSim; `cache/tests/reference.rs` says of which policies exactly.
const LIBCACHESIM: &str = include_str!("../../../cache/tests/data/libcachesim.tsv");
const EXACT: [&str; 6] = ["lru", "arc", "2q", "s3-fifo", "sieve", "min"];

/// Traces of one origin, by names of files, through the readers and [`keys::run`].
fn assert_keys_miss_as_libcachesim_says(folder: &Path, origin: &str) {
    let mut compared = 0;
    let lines = LIBCACHESIM.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let lines: Vec<_> = lines
        .filter(|line| line[0] == origin && EXACT.contains(&line[3]))
        .collect();
    for of_file in lines.chunk_by(|a, b| a[1] == b[1]) {
        let run = |line: &Vec<&str>| json!({"policy": line[3], "capacity": {"keys": line[2].parse::<u32>().unwrap()}});
        let runs: Vec<Value> = of_file.iter().map(run).collect();
        let file = of_file[0][1];
        let view = if file.contains(".lis") { "units" } else { "ids" };
        let format = if file.contains(".u32") { "u32-le" } else { "auto" };
        let job = json!({"trace": {"path": folder.join(file), "view": view, "format": format}, "runs": runs});
        let report = keys::run(&serde_json::from_value(job).unwrap(), &mut |_, _| Ok(())).unwrap();
        for (line, run) in of_file.iter().zip(&report.runs) {
            assert_eq!(run.misses.to_string(), line[4], "{line:?}");
            assert_eq!(report.requests.to_string(), line[5], "{line:?}");
            compared += 1;
        }
    }
    assert!(compared >= 50, "{compared} lines of {origin}");
}

#[test]
fn keys_of_samples_miss_as_libcachesim_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cache/tests/data");
    assert_keys_miss_as_libcachesim_says(&folder, "sample");
}

#[test]
#[ignore = "not checked on whole traces, which are not part of the sources: TOMBOLO_TRACES names their folder"]
fn keys_of_public_traces_miss_as_libcachesim_says() {
    let folder = std::env::var_os("TOMBOLO_TRACES").expect("TOMBOLO_TRACES names a folder of traces");
    assert_keys_miss_as_libcachesim_says(Path::new(&folder), "public");
}

/// Streams that are read slowly beside random reads of a working set that does not fit.
fn slow_streams(seed: u64, count: u64) -> Vec<Record> {
    let mut prng = Prng::new(seed);
    let mut next: [u64; 16] = std::array::from_fn(|stream| (1 << 20) + stream as u64 * 100_000);
    (0..count)
        .map(|index| {
            if prng.chance(200) {
                let stream = &mut next[prng.below(16) as usize];
                *stream += 4;
                return read(index * 1000, *stream - 4, 4);
            }
            let (left, right) = (prng.below(200), prng.below(200));
            read(index * 1000, left * right * 2, 1)
        })
        .collect()
}

#[test]
fn a_floor_keeps_what_was_prefetched_for_slow_streams() {
    let folder = Folder::new();
    let path = folder.trace(&slow_streams(3, 30_000));
    for replacement in ["sarc", "sarc-streams"] {
        let run = |floor: bool| {
            let policies = json!({"replacement": replacement, "prefetch": "amp", "sequential_floor": floor,
                                  "cache_blocks": 4_000, "check": false});
            replay(&path, policies)
        };
        let (without, with) = (run(false), run(true));
        let wasted = (without.prefetched.wasted, with.prefetched.wasted);
        assert!(wasted.0 > 200 && wasted.1 * 2 < wasted.0, "{replacement}: {wasted:?}");
        assert!(with.prefetched.efficiency > without.prefetched.efficiency);
        assert!(with.reads.miss_ratio < without.reads.miss_ratio + 0.01);
    }
}

#[test]
fn a_floor_changes_nothing_where_it_is_not_heeded_or_not_asked_for() {
    let folder = Folder::new();
    let path = folder.trace(&slow_streams(4, 6_000));
    let digest = |replacement: &str, prefetch: &str, floor: Value| {
        let mut policies =
            json!({"replacement": replacement, "prefetch": prefetch, "cache_blocks": 1_000, "check": false});
        policies
            .as_object_mut()
            .unwrap()
            .extend(floor.as_object().unwrap().clone());
        replay(&path, policies).digest
    };
    let on = json!({"sequential_floor": true});
    for (replacement, prefetch) in [("lru", "amp"), ("arc", "amp"), ("sarc", "seq"), ("sarc", "none")] {
        assert_eq!(
            digest(replacement, prefetch, on.clone()),
            digest(replacement, prefetch, json!({}))
        );
    }
    assert_eq!(
        digest("sarc", "amp", json!({"sequential_floor": false})),
        digest("sarc", "amp", json!({}))
    );
    assert_ne!(digest("sarc", "amp", on), digest("sarc", "amp", json!({})));
}
