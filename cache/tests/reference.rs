//! Miss ratios to ten digits against an independent simulator (libCacheSim 0.3.5, objects of size one): on the sample that
//! is part of the sources, and on public traces that are too large for that. The folder of these is named by
//! `TOMBOLO_TRACES`, and their test is run by `cargo test -p tombolo-cache --test reference -- --ignored`.
//!
//! LIRS and W-TinyLFU differ from that simulator by design (see their modules) and are not compared.

#[path = "support/traces.rs"]
mod traces;

use std::path::{Path, PathBuf};
use tombolo_cache::{Capacity, Grouping, KeyedCache, Min, Policy};

struct Reference {
    file: &'static str,
    sizes: [u32; 3],
    ratios: &'static [(&'static str, [&'static str; 3])],
}

/// Origin and licence are in `data/README.md`.
const SAMPLE: Reference = Reference {
    file: "web07.u32.zst",
    sizes: [204, 2_048, 6_145],
    ratios: &[
        ("lru", ["0.6085420006", "0.4433511127", "0.3550539951"]),
        ("arc", ["0.5809007068", "0.4194014556", "0.3409311858"]),
        ("s3-fifo", ["0.5625082109", "0.4178380935", "0.3475787593"]),
        ("sieve", ["0.5767886702", "0.4207283428", "0.3431776978"]),
        ("2q", ["0.5659896477", "0.4301742032", "0.3593630941"]),
        ("min", ["0.4662234951", "0.3190835282", "0.2691084895"]),
    ],
};

const PUBLIC: [Reference; 3] = [
    Reference {
        file: "cloudPhysicsIO.oracleGeneral.bin.zst",
        sizes: [489, 4_897, 14_692],
        ratios: &[
            ("lru", ["0.8379584094", "0.8049125334", "0.6608033582"]),
            ("arc", ["0.8274992975", "0.7728150906", "0.6001563159"]),
            ("s3-fifo", ["0.8304851061", "0.7552866376", "0.5833479697"]),
            ("sieve", ["0.8291678376", "0.7907123788", "0.6328245750"]),
            ("2q", ["0.8305202332", "0.7742026135", "0.6339486441"]),
            ("min", ["0.7926707180", "0.6289518055", "0.5018880849"]),
        ],
    },
    Reference {
        file: "arc_OLTP.lis.zst",
        sizes: [1_868, 18_688, 56_064],
        ratios: &[
            ("lru", ["0.5836710806", "0.3347871508", "0.2557110743"]),
            ("arc", ["0.5460391951", "0.3273495999", "0.2490162939"]),
            ("s3-fifo", ["0.5353756789", "0.3233557040", "0.2501145879"]),
            ("sieve", ["0.5970770501", "0.3333978745", "0.2518320398"]),
            ("min", ["0.4024164657", "0.2379338070", "0.2044314633"]),
        ],
    },
    Reference {
        file: "arc_P3.lis.zst",
        sizes: [7_625, 76_254, 228_762],
        ratios: &[
            ("lru", ["0.9840835152", "0.8319332177", "0.3749844081"]),
            ("arc", ["0.9617119973", "0.6773554455", "0.3743671236"]),
            ("s3-fifo", ["0.9579244515", "0.6608426356", "0.3497322288"]),
            ("sieve", ["0.9714211297", "0.7517220067", "0.4191676703"]),
            ("min", ["0.8931295076", "0.4479402888", "0.2390473522"]),
        ],
    },
];

fn ratio(name: &str, size: u32, trace: &[u64]) -> String {
    let capacity = Capacity::of_blocks(size);
    let policy = match name.parse::<Policy>() {
        Ok(policy) => policy.build(capacity, Grouping::Slots),
        Err(_) => Box::new(Min::new(trace)),
    };
    let mut cache = KeyedCache::new(capacity, policy);
    let misses = trace.iter().filter(|key| !cache.access(**key)).count();
    format!("{:.10}", misses as f64 / trace.len() as f64)
}

fn check(folder: &Path, reference: &Reference) {
    let path = folder.join(reference.file);
    let trace = traces::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (name, expected) in reference.ratios {
        for (size, expected) in reference.sizes.iter().zip(expected) {
            let found = ratio(name, *size, &trace);
            assert_eq!(found, *expected, "{name}, {size} blocks, {}", reference.file);
        }
    }
}

#[test]
fn miss_ratios_of_the_sample_equal_the_reference() {
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"), &SAMPLE);
}

#[test]
#[ignore = "the traces are not part of the sources: TOMBOLO_TRACES names their folder"]
fn miss_ratios_of_public_traces_equal_the_reference() {
    let folder = std::env::var_os("TOMBOLO_TRACES").expect("TOMBOLO_TRACES names a folder of traces");
    for reference in &PUBLIC {
        check(&PathBuf::from(&folder), reference);
    }
}
