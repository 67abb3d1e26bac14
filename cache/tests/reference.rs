//! Misses to the last one against an independent simulator, libCacheSim, whose counts stand in `data/libcachesim.tsv` (how
//! they were made: its first line). On samples that are part of the sources in every run, on whole public traces where
//! `TOMBOLO_TRACES` names their folder: `cargo test --workspace --test reference -- --ignored`, as `make test` does then.
//!
//! LIRS and W-TinyLFU are variants by design (see their modules), so their misses are bounded and not equal.

#[path = "support/traces.rs"]
mod traces;

use std::collections::BTreeMap;
use std::path::Path;
use tombolo_cache::{Capacity, Grouping, KeyedCache, Min, Policy, Replacement, S3Fifo};

const GOLDENS: &str = include_str!("data/libcachesim.tsv");

/// Policies that miss exactly what libCacheSim's do.
const EXACT: [&str; 6] = ["lru", "arc", "2q", "s3-fifo", "sieve", "min"];
/// How far the misses of a variant may be apart, of all requests. Found on all traces, small and large: 0.00015, 0.036.
const VARIANTS: [(&str, f64); 2] = [("lirs", 0.0002), ("w-tinylfu", 0.04)];

#[derive(Debug)]
struct Golden {
    keys: u32,
    policy: &'static str,
    misses: u64,
    requests: u64,
}

/// Those of one origin, `sample` or `public`, by file.
fn goldens(origin: &str) -> BTreeMap<&'static str, Vec<Golden>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for line in GOLDENS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [of, file, keys, policy, misses, requests] = fields[..] else {
            panic!("not six fields: {line}");
        };
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|error| panic!("{line}: {error}"));
        if of == origin {
            found.entry(file).or_default().push(Golden {
                keys: number(keys) as u32,
                policy,
                misses: number(misses),
                requests: number(requests),
            });
        }
    }
    found
}

fn policy_of(name: &str, capacity: Capacity, trace: &[u64]) -> Box<dyn Replacement> {
    match name.parse::<Policy>() {
        Ok(policy) => policy.build(capacity, Grouping::Slots),
        Err(_) => Box::new(Min::new(trace)),
    }
}

fn misses(policy: Box<dyn Replacement>, capacity: Capacity, trace: &[u64]) -> u64 {
    let mut cache = KeyedCache::new(capacity, policy);
    trace.iter().filter(|key| !cache.access(**key)).count() as u64
}

fn judge(golden: &Golden, found: u64) -> Result<(), String> {
    let off = found.abs_diff(golden.misses) as f64 / golden.requests as f64;
    let allowed = VARIANTS.iter().find(|(name, _)| *name == golden.policy);
    match allowed {
        Some((_, bound)) if off <= *bound => Ok(()),
        None if off == 0.0 => Ok(()),
        _ => Err(format!(
            "{}, {} keys: {found} misses instead of {}, {:.4} % of the requests apart",
            golden.policy,
            golden.keys,
            golden.misses,
            off * 100.0
        )),
    }
}

fn faults(folder: &Path, file: &str, goldens: &[Golden]) -> Vec<String> {
    let path = folder.join(file);
    let trace = traces::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let fault_of = |golden: &Golden| {
        assert_eq!(trace.len() as u64, golden.requests, "{file} is another trace");
        let capacity = Capacity::of_blocks(golden.keys);
        let policy = policy_of(golden.policy, capacity, &trace);
        judge(golden, misses(policy, capacity, &trace)).err()
    };
    let found = goldens.iter().filter_map(fault_of);
    found.map(|fault| format!("{file}: {fault}")).collect()
}

fn check(folder: &Path, origin: &str) {
    let files = goldens(origin);
    let found = files.iter().flat_map(|(file, goldens)| faults(folder, file, goldens));
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"))
}

#[test]
fn every_policy_is_compared_at_several_sizes_of_every_trace() {
    assert!(GOLDENS.starts_with("# libCacheSim 0.3.5 "));
    for (origin, files, sizes) in [("sample", 4, 4), ("public", 3, 3)] {
        let goldens = goldens(origin);
        assert_eq!(goldens.len(), files, "{origin}");
        for (file, goldens) in goldens {
            for name in EXACT.iter().chain(VARIANTS.iter().map(|(name, _)| name)) {
                let count = goldens.iter().filter(|golden| golden.policy == *name).count();
                assert_eq!(count, sizes, "{name}, {file}");
            }
            assert_eq!(goldens.len(), sizes * (EXACT.len() + VARIANTS.len()), "{file}");
        }
    }
}

#[test]
fn misses_of_the_samples_are_libcachesims() {
    check(samples(), "sample");
}

#[test]
#[ignore = "not checked on whole traces, which are not part of the sources: TOMBOLO_TRACES names their folder"]
fn misses_of_public_traces_are_libcachesims() {
    let folder = std::env::var_os("TOMBOLO_TRACES").expect("TOMBOLO_TRACES names a folder of traces");
    check(Path::new(&folder), "public");
}

/// A canary: one parameter is changed, and every sample tells.
#[test]
fn one_changed_parameter_is_found_on_every_sample() {
    for (file, goldens) in goldens("sample") {
        let trace = traces::read(&samples().join(file)).expect("the sample is part of the sources");
        let told = goldens
            .iter()
            .filter(|golden| golden.policy == "s3-fifo")
            .filter(|golden| {
                let capacity = Capacity::of_blocks(golden.keys);
                let changed = Box::new(S3Fifo::with_promotion_reads(capacity, 1));
                judge(golden, misses(changed, capacity, &trace)).is_err()
            });
        assert!(told.count() >= 3, "{file}");
    }
}

/// A canary: the cache is larger than it is said to be, for exact policies by one key, and every policy tells.
#[test]
fn another_size_is_found_for_every_policy() {
    let (file, goldens) = goldens("sample").pop_last().expect("there are samples");
    let trace = traces::read(&samples().join(file)).expect("the sample is part of the sources");
    let is_told = |golden: &&Golden| {
        // What is only bounded, and by how much, decides how small a change can be told.
        let keys = match golden.policy {
            "lirs" => golden.keys + golden.keys / 10,
            "w-tinylfu" => golden.keys * 2,
            _ => golden.keys + 1,
        };
        let capacity = Capacity::of_blocks(keys);
        let policy = policy_of(golden.policy, capacity, &trace);
        judge(golden, misses(policy, capacity, &trace)).is_err()
    };
    let variants = VARIANTS.map(|(name, _)| name);
    for name in EXACT.into_iter().chain(variants) {
        let of_policy = goldens.iter().filter(|golden| golden.policy == name);
        let told = of_policy.filter(is_told).count();
        assert!(told >= 3, "{name}: at {told} sizes");
    }
}
