//! What it costs to make objects and to read them back, on one core, with and without compression and encryption:
//!
//! ```text
//! cargo run --release -p tombolo-cloud-driver --example object_cost -- 5
//! ```
//! Prints a row of a Markdown table for each kind of data and setting: the median of so many rounds, in MiB of blocks a
//! second. All settings take turns in each round.

use std::time::Instant;
use tombolo_base::{BLOCK_BYTES, Fingerprint, Prng, Pvbn};
use tombolo_cloud_driver::encryption::{KeyRing, SecretKey};
use tombolo_cloud_driver::object::{Compression, ObjectReader, decode_object, encode_object};

const PACK_BLOCKS: usize = 64;
/// 64 MiB.
const PACKS: usize = 256;
const MIB: f64 = (PACKS * PACK_BLOCKS * BLOCK_BYTES) as f64 / (1 << 20) as f64;

fn blocks(random_bytes: usize) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(1);
    let block = |_| {
        let mut block = vec![0; BLOCK_BYTES];
        prng.fill(&mut block[..random_bytes]);
        block
    };
    (0..PACKS * PACK_BLOCKS).map(block).collect()
}

/// Seconds to make all objects, to read them whole, and to read one block of each 64 times.
fn measure(
    blocks: &[Vec<u8>],
    fingerprints: &[Fingerprint],
    compression: Compression,
    ring: &KeyRing,
) -> Result<[f64; 3], Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let mut objects = Vec::with_capacity(PACKS);
    for (pack, fingerprints) in blocks.chunks(PACK_BLOCKS).zip(fingerprints.chunks(PACK_BLOCKS)) {
        let first = 64 * objects.len() as u64;
        let packed: Vec<_> = (first..)
            .zip(pack.iter().zip(fingerprints))
            .map(|(pvbn, (block, fingerprint))| (Pvbn(pvbn), *fingerprint, &block[..]))
            .collect();
        objects.push(encode_object(&packed, compression, ring));
    }
    let encoded = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for (descriptor, object) in &objects {
        decode_object(object, descriptor.id(), ring)?;
    }
    let decoded = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut out = [0; BLOCK_BYTES];
    for (descriptor, object) in &objects {
        for (index, block) in descriptor.blocks().iter().enumerate() {
            // As each ranged GET of one block does.
            let reader = ObjectReader::new(descriptor, ring)?;
            reader.decode_block(index, &object[descriptor.extent(block)], &mut out)?;
        }
    }
    Ok([encoded, decoded, begun.elapsed().as_secs_f64()])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let encrypted = KeyRing::new([SecretKey::generate()?]);
    let settings = [
        ("stored as it is, in clear", Compression::Off, KeyRing::default()),
        ("stored as it is, encrypted", Compression::Off, encrypted.clone()),
        ("zstd 1, in clear", Compression::default(), KeyRing::default()),
        ("zstd 1, encrypted", Compression::default(), encrypted),
    ];
    println!("| data | setting | make | read whole | read block by block |");
    println!("|---|---|---|---|---|");
    for (data, random_bytes) in [("random", BLOCK_BYTES), ("half zeroes", BLOCK_BYTES / 2)] {
        let blocks = blocks(random_bytes);
        let fingerprints: Vec<_> = blocks.iter().map(|block| Fingerprint::of(block)).collect();
        let mut seconds = vec![Vec::new(); settings.len()];
        for _ in 0..rounds {
            for ((_, compression, ring), seconds) in settings.iter().zip(&mut seconds) {
                seconds.push(measure(&blocks, &fingerprints, *compression, ring)?);
            }
        }
        for ((setting, ..), seconds) in settings.iter().zip(&mut seconds) {
            let median = |part: usize| {
                let mut sorted: Vec<f64> = seconds.iter().map(|all| all[part]).collect();
                sorted.sort_by(f64::total_cmp);
                MIB / sorted[sorted.len() / 2]
            };
            let [make, whole, single] = [0, 1, 2].map(median);
            println!("| {data} | {setting} | {make:.0} | {whole:.0} | {single:.0} |");
        }
    }
    Ok(())
}
