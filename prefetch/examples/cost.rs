//! What the policies cost: time per read for each, and memory of the history graph by blocks accessed. Times are
//! processor time, which a busy machine inflates less than the time of day, where nothing else is said.
//!
//! `cargo run --release -p tombolo-prefetch --example cost [LARGEST]`, where LARGEST is the number of accessed blocks up to
//! which the graph is measured (100000000 takes 5 GB, but for the bounded form, which comes first).

use std::time::Instant as Clock;
use tombolo_base::{Instant, Prng, VolumeId};
use tombolo_prefetch::graph::{History, HistoryConfig, NodeId, Range};
use tombolo_prefetch::{Access, ClientId, Outcome, PolicyConfig, PolicyName};

const READS: usize = 2_000_000;
/// 4 GiB.
const CACHE_BLOCKS: u64 = 1 << 20;
const VOLUME: VolumeId = VolumeId(1);

/// Half of the reads belong to 64 interleaved streams, a quarter to a loop over 10,000 places, a quarter to none.
fn mixed_reads() -> Vec<Access> {
    let mut prng = Prng::new(1);
    let places: Vec<u64> = (0..10_000).map(|_| prng.below(1 << 28)).collect();
    let mut streams: Vec<u64> = (0..64).map(|stream| stream << 32).collect();
    let mut turn = 0;
    let mut next = |prng: &mut Prng| match prng.below(4) {
        0 | 1 => {
            let stream = &mut streams[prng.below(64) as usize];
            *stream = if prng.chance(2) {
                prng.below(1 << 38)
            } else {
                *stream + 8
            };
            (*stream, 8)
        }
        2 => {
            turn += 1;
            (places[turn % places.len()], 4)
        }
        _ => (prng.below(1 << 32), 2),
    };
    (0..READS)
        .map(|at| {
            let (first, count) = next(&mut prng);
            let outcome = if at % 4 == 0 { Outcome::Miss } else { Outcome::Hit };
            let prefetched = u64::from(at % 4 == 1);
            Access {
                client: ClientId(0),
                volume: VOLUME,
                first,
                count,
                outcome,
                prefetched,
            }
        })
        .collect()
}

/// Reads of single blocks at random that find them in the cache, none of them fetched ahead.
fn cached_reads() -> Vec<Access> {
    let mut prng = Prng::new(2);
    let read = |_| Access {
        client: ClientId(0),
        volume: VOLUME,
        first: prng.below(CACHE_BLOCKS),
        count: 1,
        outcome: Outcome::Hit,
        prefetched: 0,
    };
    (0..READS).map(read).collect()
}

/// Time that this thread has spent on a processor.
fn cpu_nanoseconds() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells of its threads");
    let first = schedstat.split(' ').next().expect("three numbers");
    first.parse().expect("nanoseconds")
}

fn policies() {
    let (reads, cached) = (mixed_reads(), cached_reads());
    println!(
        "{:<12} {:>10} {:>10} {:>12} {:>14} {:>10} {:>12}",
        "policy", "ns/read", "worst us", "suggestions", "blocks/read", "MiB", "ns/cached"
    );
    for name in PolicyName::ALL {
        let mut policy = PolicyConfig::of(name).build();
        policy.resize(CACHE_BLOCKS);
        let (mut suggestions, mut count, mut blocks) = (Vec::new(), 0usize, 0u64);
        let mut worst = 0;
        let started = cpu_nanoseconds();
        for (at, thousand) in reads.chunks(1000).enumerate() {
            let begun = Clock::now();
            for (step, access) in thousand.iter().enumerate() {
                suggestions.clear();
                policy.on_read(Instant((at * 1000 + step) as u64 * 1000), *access, &mut suggestions);
                count += suggestions.len();
                blocks += suggestions.iter().map(|suggestion| suggestion.count).sum::<u64>();
            }
            worst = worst.max(begun.elapsed().as_nanos() / 1000);
        }
        let nanos = (cpu_nanoseconds() - started) / READS as u64;
        let started = cpu_nanoseconds();
        for (at, access) in cached.iter().enumerate() {
            suggestions.clear();
            policy.on_read(Instant((READS + at) as u64 * 1000), *access, &mut suggestions);
        }
        let nanos_cached = (cpu_nanoseconds() - started) / READS as u64;
        println!(
            "{:<12} {:>10} {:>10.1} {:>12.3} {:>14.1} {:>10.1} {:>12}",
            name.name(),
            nanos,
            worst as f64 / 1000.0,
            count as f64 / READS as f64,
            blocks as f64 / READS as f64,
            policy.statistics().bytes as f64 / f64::from(1 << 20),
            nanos_cached
        );
    }
    println!(
        "(worst: the slowest thousand reads by the clock, per read; cached: afterwards, of the cache's blocks at random)"
    );
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Random reads of `count` blocks over distinct places, each followed by another, until `blocks` were accessed.
fn graph(label: &str, blocks: u64, count: u64, memory_bytes: u64) {
    let before = resident_bytes();
    let config = HistoryConfig::within(memory_bytes, u64::MAX, 64);
    let mut history = History::new(config);
    let reads = blocks / count;
    // A permutation of the places: multiplication by an odd number modulo a power of two.
    let span = reads.next_power_of_two();
    let mut previous = None;
    let started = cpu_nanoseconds();
    let mut last = NodeId(0);
    for read in (0..span)
        .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (span - 1))
        .filter(|place| *place < reads)
    {
        let first = read * count;
        last = history
            .record(
                Instant(read),
                previous,
                Range {
                    volume: VOLUME,
                    first,
                    count,
                },
            )
            .unwrap_or(last);
        previous = Some((VOLUME, first + count - 1));
    }
    let nanos = (cpu_nanoseconds() - started) / reads;
    let held = history.bytes() as u64;
    let started = cpu_nanoseconds();
    let encoded: usize = (0..history.chunk_count())
        .map(|chunk| history.encode_chunk(Instant(0), chunk).len())
        .sum();
    println!(
        "{label:<26} {blocks:>10} {:>10} {:>10} {:>9.1} {:>9.1} {:>8.2} {:>8} {:>9.1} {:>7.2}",
        history.node_count(),
        history.edge_count(),
        held as f64 / f64::from(1 << 20),
        resident_bytes().saturating_sub(before) as f64 / f64::from(1 << 20),
        held as f64 / blocks as f64,
        nanos,
        encoded as f64 / f64::from(1 << 20),
        (cpu_nanoseconds() - started) as f64 / 1e9,
    );
}

fn main() {
    let largest = std::env::args()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(10_000_000);
    policies();
    println!(
        "\n{:<26} {:>10} {:>10} {:>10} {:>9} {:>9} {:>8} {:>8} {:>9} {:>7}",
        "graph", "blocks", "nodes", "edges", "MiB", "RSS MiB", "B/block", "ns/read", "disk MiB", "disk s"
    );
    for blocks in [1_000_000, 10_000_000, 100_000_000]
        .into_iter()
        .filter(|blocks| *blocks <= largest)
    {
        // First, so that its resident memory is its own.
        graph("one block each, 256 MiB", blocks, 1, 256 << 20);
        graph("one block each, unbounded", blocks, 1, u64::MAX);
        graph("16 blocks each, unbounded", blocks, 16, u64::MAX);
        graph("64 blocks each, unbounded", blocks, 64, u64::MAX);
    }
    println!(
        "highest resident memory: {:.0} MiB",
        peak_bytes() as f64 / f64::from(1 << 20)
    );
}
