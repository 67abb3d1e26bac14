use super::*;
use proptest::prelude::*;
use tombolo_base::Prng;

const LEVEL_1: Compression = Compression::Zstd { level: 1 };

fn random_block(prng: &mut Prng) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    prng.fill(&mut block);
    block
}

/// Words from a small vocabulary: English-like redundancy.
fn text_block(prng: &mut Prng) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "the ", "volume ", "of ", "block ", "cache ", "and ", "a ", "journal ", "is ", "to ", "flush ", "bucket\n",
    ];
    let mut block = Vec::with_capacity(BLOCK_BYTES + 16);
    while block.len() < BLOCK_BYTES {
        block.extend_from_slice(WORDS[prng.below(12) as usize].as_bytes());
    }
    block.truncate(BLOCK_BYTES);
    block
}

/// Entropy-coded data as JPEG holds it: every 0xff is followed by a stuffed zero.
fn jpeg_like_block(prng: &mut Prng) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK_BYTES + 1);
    while block.len() < BLOCK_BYTES {
        let byte = prng.next_u64() as u8;
        block.push(byte);
        if byte == 0xff {
            block.push(0);
        }
    }
    block.truncate(BLOCK_BYTES);
    block
}

/// Random up to `used_bytes`, then zeros: the last block of a file.
fn padded_block(prng: &mut Prng, used_bytes: usize) -> Vec<u8> {
    let mut block = random_block(prng);
    block[used_bytes..].fill(0);
    block
}

fn any_block() -> impl Strategy<Value = Vec<u8>> {
    (0..5usize, any::<u64>(), 0..=BLOCK_BYTES).prop_map(|(shape, seed, used_bytes)| {
        let mut prng = Prng::new(seed);
        match shape {
            0 => random_block(&mut prng),
            1 => text_block(&mut prng),
            2 => jpeg_like_block(&mut prng),
            3 => padded_block(&mut prng, used_bytes),
            _ => vec![seed as u8; BLOCK_BYTES],
        }
    })
}

fn any_blocks() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(any_block(), 1..9)
}

fn encode(blocks: &[Vec<u8>], compression: Compression) -> (ObjectDescriptor, Vec<u8>) {
    let packed: Vec<_> = blocks
        .iter()
        .enumerate()
        .map(|(index, block)| (Pvbn(7 + 3 * index as u64), Fingerprint::of(block), &block[..]))
        .collect();
    encode_object(&packed, compression)
}

/// What zstd alone would have decided.
fn pays(block: &[u8]) -> bool {
    let mut out = [0; COMPRESSED_BYTES_MAX];
    with_compressor(1, |compressor| compressor.compress_to_buffer(block, &mut out[..]).ok()).is_some()
}

proptest! {
    #[test]
    fn round_trip(blocks in any_blocks(), on in any::<bool>()) {
        let compression = if on { LEVEL_1 } else { Compression::Off };
        let (descriptor, object) = encode(&blocks, compression);
        prop_assert_eq!(object.len(), descriptor.object_bytes());
        prop_assert_eq!(decode_object(&object).unwrap(), (descriptor.clone(), blocks.concat()));
        prop_assert_eq!(encode(&blocks, compression).1, object, "deterministic");
        for packed in descriptor.blocks() {
            match packed.encoding {
                BlockEncoding::Plain => prop_assert_eq!(usize::from(packed.stored_bytes), BLOCK_BYTES),
                BlockEncoding::Zstd => prop_assert!(on && usize::from(packed.stored_bytes) <= COMPRESSED_BYTES_MAX),
            }
        }
    }

    #[test]
    fn any_range_of_blocks_decodes_alone(blocks in any_blocks(), one in any::<prop::sample::Index>(), two in any::<prop::sample::Index>()) {
        let (descriptor, object) = encode(&blocks, LEVEL_1);
        let (one, two) = (one.index(blocks.len()), two.index(blocks.len()));
        let range = one.min(two)..one.max(two) + 1;
        let bytes = byte_range(&descriptor, range.clone()).unwrap();
        let stored = &object[bytes.start as usize..bytes.end as usize];
        prop_assert_eq!(decode_range(&descriptor, range.clone(), stored).unwrap(), blocks[range.clone()].concat());
        prop_assert!(decode_range(&descriptor, range, &stored[1..]).is_err());
    }

    /// A flip inside a zstd frame may leave its meaning unchanged (an unused header bit); then the block is still the
    /// right one. Wrong bytes never come out.
    #[test]
    fn a_flipped_bit_never_yields_wrong_bytes(blocks in any_blocks(), place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (descriptor, mut object) = encode(&blocks, LEVEL_1);
        let place = place.index(object.len());
        object[place] ^= 1 << bit;
        match decode_object(&object) {
            Ok((_, decoded)) => {
                let inside_zstd = descriptor.blocks().iter().any(|packed| {
                    let start = packed.offset_bytes as usize;
                    packed.encoding == BlockEncoding::Zstd && (start..start + usize::from(packed.stored_bytes)).contains(&place)
                });
                prop_assert!(inside_zstd, "byte {place} bit {bit} went unnoticed");
                prop_assert_eq!(decoded, blocks.concat());
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_cut_or_lengthened_object_is_refused(blocks in any_blocks(), cut in any::<prop::sample::Index>()) {
        let (_, mut object) = encode(&blocks, LEVEL_1);
        prop_assert!(decode_object(&object[..cut.index(object.len())]).is_err());
        object.push(0);
        prop_assert!(decode_object(&object).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
        fuzz_decode(&bytes);
    }

    /// Whatever follows a valid descriptor is refused or right.
    #[test]
    fn arbitrary_stored_bytes_never_panic(stored in prop::collection::vec(any::<u8>(), 1..=BLOCK_BYTES), frame in any::<bool>()) {
        let mut stored = stored;
        if frame && stored.len() > 4 {
            stored[..4].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd]);
        }
        let fingerprint = Fingerprint::of(b"something else");
        let descriptor =
            ObjectDescriptor::new([(Pvbn(1), fingerprint, stored.len() as u16, BlockEncoding::Zstd)]);
        let object = [descriptor.encode(), stored].concat();
        prop_assert!(decode_object(&object).is_err());
        fuzz_decode(&object);
    }
}

#[test]
fn errors_name_the_block_and_both_fingerprints() {
    let block = random_block(&mut Prng::new(1));
    let (descriptor, mut object) = encode(&[block.clone(), block], LEVEL_1);
    let last = object.len() - 1;
    object[last] ^= 1;
    let error = decode_object(&object).unwrap_err();
    let ObjectError::Fingerprint { pvbn, expected, found } = &error else {
        panic!("{error}");
    };
    assert_eq!((*pvbn, *expected), (Pvbn(10), descriptor.blocks()[1].fingerprint));
    let text = error.to_string();
    assert!(text.contains("PVBN 10") && text.contains(&expected.to_string()) && text.contains(&found.to_string()));
}

#[test]
fn a_frame_that_claims_more_than_a_block_is_stopped() {
    let bomb = zstd::bulk::compress(&vec![0u8; 64 << 20], 1).unwrap();
    assert!(bomb.len() <= BLOCK_BYTES);
    let descriptor = ObjectDescriptor::new([(Pvbn(1), Fingerprint::of(&[]), bomb.len() as u16, BlockEncoding::Zstd)]);
    let error = decode_object(&[descriptor.encode(), bomb].concat()).unwrap_err();
    assert!(matches!(error, ObjectError::Decompress { .. }), "{error}");
}

#[test]
fn a_frame_shorter_than_a_block_is_refused() {
    let frame = zstd::bulk::compress(&[1u8; 4095], 1).unwrap();
    let packed = PackedBlock {
        pvbn: Pvbn(1),
        fingerprint: Fingerprint::of(&[1u8; 4095]),
        offset_bytes: 0,
        stored_bytes: frame.len() as u16,
        encoding: BlockEncoding::Zstd,
    };
    let mut out = [0; BLOCK_BYTES];
    let error = decode_block(&packed, &frame, &mut out).unwrap_err();
    assert_eq!(
        error,
        ObjectError::BlockLength {
            pvbn: Pvbn(1),
            found: 4095
        }
    );
}

#[test]
fn impossible_ranges_are_refused() {
    let (descriptor, _) = encode(&[vec![1; BLOCK_BYTES]], Compression::Off);
    #[expect(clippy::reversed_empty_ranges, reason = "they are what is refused")]
    for range in [0..0, 1..1, 0..2, 1..2, 1..0] {
        assert!(byte_range(&descriptor, range.clone()).is_err(), "{range:?}");
        assert!(decode_range(&descriptor, range.clone(), &[]).is_err(), "{range:?}");
    }
}

#[test]
fn threads_and_levels_do_not_disturb_each_other() {
    let blocks: Vec<_> = (0..4).map(|seed| text_block(&mut Prng::new(seed))).collect();
    let expected: Vec<_> = [1, 3, 9]
        .map(|level| encode(&blocks, Compression::Zstd { level }).1)
        .into();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    for (level, object) in [1, 3, 9].into_iter().zip(&expected) {
                        assert_eq!(&encode(&blocks, Compression::Zstd { level }).1, object, "level {level}");
                    }
                }
            });
        }
    });
}

/// Counts how often the probe and zstd disagree. Every bound is for a fixed seed.
#[test]
fn the_probe_agrees_with_zstd() {
    let mut prng = Prng::new(42);
    let mut judge = |make: &mut dyn FnMut(&mut Prng) -> Vec<u8>| {
        let (mut wasted, mut missed) = (0, 0);
        for _ in 0..2_000 {
            let block = make(&mut prng);
            match (looks_random(&block), pays(&block)) {
                (false, false) => wasted += 1,
                (true, true) => missed += 1,
                _ => {}
            }
        }
        (wasted, missed)
    };
    assert_eq!(judge(&mut random_block), (0, 0), "random");
    assert_eq!(judge(&mut text_block), (0, 0), "text");
    assert_eq!(judge(&mut jpeg_like_block), (0, 0), "JPEG-like");
    for used_bytes in [0, 100, 2048, 3000, 3500] {
        assert_eq!(
            judge(&mut |prng| padded_block(prng, used_bytes)),
            (0, 0),
            "{used_bytes} bytes used"
        );
    }
    let (_, missed) = judge(&mut |prng| {
        // Evenly spread bytes with long repeats, which only the second look finds.
        let record = random_block(prng);
        record[..256].repeat(16)
    });
    assert_eq!(missed, 0, "repeated records");
}

/// This very test binary is ELF: text, tables, debug information.
#[test]
fn the_probe_misses_little_in_elf() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let (mut blocks, mut missed) = (0u32, 0u32);
    for block in program.chunks_exact(BLOCK_BYTES).take(4_000) {
        blocks += 1;
        missed += u32::from(looks_random(block) && pays(block));
    }
    assert!(blocks > 100 && missed * 100 < blocks, "{missed} of {blocks} blocks");
}
