//! Exact miss counts of every policy on a committed sample and on a generated mix of streams and random reads. A change
//! here is a change of behaviour: it needs a reason, and new figures for the documents.

#[path = "support/traces.rs"]
mod traces;

use std::fmt::Write as _;
use std::path::Path;
use tombolo_base::Prng;
use tombolo_cache::{
    Advice, Capacity, CostClass, Gds, GdsConfig, Grouping, KeyedCache, Min, Object, Policy, Replacement,
};

/// Requests to a web application; origin and licence in `data/README.md`.
fn web07() -> Vec<u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/web07.u32.zst");
    traces::read(&path).expect("the sample is part of the sources")
}

/// Four interleaved streams over 40,000 blocks each, and reads of a random set of 20,000 of which a tenth is hot.
fn streams_and_random() -> Vec<u64> {
    let mut prng = Prng::new(2026);
    let mut heads = [0u64; 4];
    (0..120_000)
        .map(|_| match prng.below(10) {
            0..=3 => {
                let stream = prng.below(4) as usize;
                heads[stream] = (heads[stream] + 1) % 40_000;
                ((stream as u64 + 1) << 32) + heads[stream]
            }
            4..=8 => prng.below(2_000) * 37,
            _ => prng.below(20_000) * 37,
        })
        .collect()
}

fn costs(class: u8) -> Advice {
    let costs = CostClass {
        round_trip_us: 20_000,
        download_us: 30_000 + 60_000 * u32::from(class),
        download_ns_per_kib: 10_000,
        upload_us: 60_000,
        upload_ns_per_kib: 20_000,
        get_nanodollars: 400,
        egress_nanodollars_per_mib: 87_890 * u32::from(class),
        put_nanodollars: 5_000,
    };
    Advice::Costs { class, costs }
}

/// Objects of eight keys each, every third from the dearer backend.
fn misses(mut policy: Box<dyn Replacement>, capacity: Capacity, trace: &[u64]) -> usize {
    policy.advise(costs(0));
    policy.advise(costs(1));
    let mut cache = KeyedCache::new(capacity, policy);
    let request = |key: &u64| Object {
        object: key / 8,
        cost_class: u8::from((key / 8).is_multiple_of(3)),
        ..Object::block(*key)
    };
    let misses = trace.iter().filter(|key| !cache.request(&request(key)).is_hit).count();
    cache.policy().check_invariants();
    misses
}

fn table(trace: &[u64], sizes: [u32; 3]) -> String {
    let mut table = String::new();
    let mut row = |name: &str, build: &dyn Fn(Capacity) -> Box<dyn Replacement>| {
        let counts = sizes.map(|size| {
            let capacity = Capacity::of_blocks(size);
            misses(build(capacity), capacity, trace)
        });
        writeln!(table, "{name} {} {} {}", counts[0], counts[1], counts[2]).expect("a string takes all");
    };
    for policy in Policy::ALL {
        row(policy.name(), &|capacity| policy.build(capacity, Grouping::Slots));
        if policy.name().starts_with("gds") {
            let name = format!("{}/objects", policy.name());
            row(&name, &|capacity| {
                policy.build(capacity, Grouping::Objects { evict_blocks: 4 })
            });
        }
    }
    // These are no policies of blocks; the simulator of whole objects has them.
    for member in [GdsConfig::L, GdsConfig::LF, GdsConfig::LC, GdsConfig::LCF] {
        let groupings = [
            (Grouping::Slots, ""),
            (Grouping::Objects { evict_blocks: 4 }, "/objects"),
        ];
        for (grouping, suffix) in groupings {
            row(&format!("{}{suffix}", member.name), &|capacity| {
                Box::new(Gds::new(capacity, member.with_grouping(grouping)))
            });
        }
    }
    row("min", &|_| Box::new(Min::new(trace)));
    table
}

#[test]
fn web07_misses() {
    assert_eq!(table(&web07(), [200, 2_000, 8_000]), include_str!("data/web07.misses"));
}

#[test]
fn streams_and_random_misses() {
    let expected = include_str!("data/streams_and_random.misses");
    assert_eq!(table(&streams_and_random(), [500, 2_000, 8_000]), expected);
}
