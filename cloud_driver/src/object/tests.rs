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

fn a_ring() -> KeyRing {
    KeyRing::new([SecretKey::new([1; 32])])
}

/// In clear, if it is to be altered in ways that encryption would find first.
fn encode(blocks: &[Vec<u8>], compression: Compression) -> (ObjectDescriptor, Vec<u8>) {
    encode_with(blocks, compression, &KeyRing::default())
}

fn decode(object: &[u8], descriptor: &ObjectDescriptor) -> Result<(ObjectDescriptor, Vec<u8>), ObjectError> {
    decode_object(object, descriptor.id(), &KeyRing::default())
}

fn encode_with(blocks: &[Vec<u8>], compression: Compression, ring: &KeyRing) -> (ObjectDescriptor, Vec<u8>) {
    let packed: Vec<_> = blocks
        .iter()
        .enumerate()
        .map(|(index, block)| (Pvbn(7 + 3 * index as u64), Fingerprint::of(block), &block[..]))
        .collect();
    encode_object(&packed, compression, ring)
}

/// What zstd alone would have decided.
fn pays(block: &[u8]) -> bool {
    let mut out = [0; COMPRESSED_BYTES_MAX];
    with_compressor(1, |compressor| compressor.compress_to_buffer(block, &mut out[..]).ok()).is_some()
}

proptest! {
    #[test]
    fn round_trip(blocks in any_blocks(), on in any::<bool>(), encrypted in any::<bool>()) {
        let compression = if on { LEVEL_1 } else { Compression::Off };
        let ring = if encrypted { a_ring() } else { KeyRing::default() };
        let (descriptor, object) = encode_with(&blocks, compression, &ring);
        prop_assert_eq!(object.len(), descriptor.object_bytes());
        let decoded = decode_object(&object, descriptor.id(), &ring.clone().reading_only()).unwrap();
        prop_assert_eq!(decoded, (descriptor.clone(), blocks.concat()));
        prop_assert_eq!(encode_with(&blocks, compression, &ring).1, object, "deterministic");
        for packed in descriptor.blocks() {
            match packed.encoding {
                BlockEncoding::Plain => prop_assert_eq!(usize::from(packed.stored_bytes), BLOCK_BYTES),
                BlockEncoding::Zstd => prop_assert!(on && usize::from(packed.stored_bytes) <= COMPRESSED_BYTES_MAX),
            }
        }
    }

    #[test]
    fn any_range_of_blocks_decodes_alone(blocks in any_blocks(), encrypted in any::<bool>(), one in any::<prop::sample::Index>(), two in any::<prop::sample::Index>()) {
        let ring = if encrypted { a_ring() } else { KeyRing::default() };
        let (descriptor, object) = encode_with(&blocks, LEVEL_1, &ring);
        let (one, two) = (one.index(blocks.len()), two.index(blocks.len()));
        let range = one.min(two)..one.max(two) + 1;
        let bytes = byte_range(&descriptor, range.clone()).unwrap();
        let stored = &object[bytes.start as usize..bytes.end as usize];
        let reader = ObjectReader::new(&descriptor, &ring).unwrap();
        prop_assert_eq!(reader.decode_range(range.clone(), stored).unwrap(), blocks[range.clone()].concat());
        prop_assert!(reader.decode_range(range, &stored[1..]).is_err());
    }

    #[test]
    fn an_encrypted_object_says_nothing_and_takes_no_change(blocks in any_blocks(), place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (descriptor, mut object) = encode_with(&blocks, LEVEL_1, &a_ring());
        for packed in descriptor.blocks() {
            prop_assert!(!object.windows(32).any(|bytes| bytes == packed.fingerprint.0));
        }
        let place = place.index(object.len());
        object[place] ^= 1 << bit;
        prop_assert!(decode_object(&object, descriptor.id(), &a_ring()).is_err());
    }

    /// A flip inside a zstd frame may leave its meaning unchanged (an unused header bit); then the block is still the
    /// right one. Wrong bytes never come out.
    #[test]
    fn a_flipped_bit_never_yields_wrong_bytes(blocks in any_blocks(), place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (descriptor, mut object) = encode(&blocks, LEVEL_1);
        let place = place.index(object.len());
        object[place] ^= 1 << bit;
        match decode(&object, &descriptor) {
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
        let (descriptor, mut object) = encode(&blocks, LEVEL_1);
        prop_assert!(decode(&object[..cut.index(object.len())], &descriptor).is_err());
        object.push(0);
        prop_assert!(decode(&object, &descriptor).is_err());
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
        let (descriptor, object) = object_of(fingerprint, &stored);
        prop_assert!(decode(&object, &descriptor).is_err());
        fuzz_decode(&object);
    }
}

/// An object in clear of one block that is stored so.
fn object_of(fingerprint: Fingerprint, stored: &[u8]) -> (ObjectDescriptor, Vec<u8>) {
    let blocks = [(Pvbn(1), fingerprint, stored.len() as u16, BlockEncoding::Zstd)];
    let descriptor = ObjectDescriptor::new(ObjectId([3; 32]), KeyId::NONE, blocks);
    let object = [&head_of(&descriptor).encode()[..], &descriptor.encode(), stored].concat();
    (descriptor, object)
}

#[test]
fn errors_name_the_block_and_both_fingerprints() {
    let block = random_block(&mut Prng::new(1));
    let (descriptor, mut object) = encode(&[block.clone(), block], LEVEL_1);
    let last = object.len() - 1;
    object[last] ^= 1;
    let error = decode(&object, &descriptor).unwrap_err();
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
    let (descriptor, object) = object_of(Fingerprint::of(&[]), &bomb);
    let error = decode(&object, &descriptor).unwrap_err();
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
    let error = decode_text(&packed, &frame, &mut out).unwrap_err();
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
        let reader = ObjectReader::new(&descriptor, &KeyRing::default()).unwrap();
        assert!(reader.decode_range(range.clone(), &[]).is_err(), "{range:?}");
    }
}

/// What is in another place, in another object or under another name does not open.
#[test]
fn an_encrypted_block_opens_in_its_own_place_alone() {
    let block = vec![5; BLOCK_BYTES];
    let (descriptor, object) = encode_with(&[block.clone(), block.clone()], Compression::Off, &a_ring());
    let (other, _) = encode_with(&[block.clone(), block.clone(), block], Compression::Off, &a_ring());
    let extent = |index: usize| descriptor.extent(&descriptor.blocks()[index]);
    let mut out = [0; BLOCK_BYTES];
    let reader = ObjectReader::new(&descriptor, &a_ring()).unwrap();
    assert_eq!(reader.decode_block(0, &object[extent(0)], &mut out), Ok(()));
    let error = reader.decode_block(1, &object[extent(0)], &mut out).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("block PVBN 10: message 2 does not authenticate"),
        "{error}"
    );
    let reader = ObjectReader::new(&other, &a_ring()).unwrap();
    assert!(reader.decode_block(0, &object[extent(0)], &mut out).is_err());
    assert!(decode_object(&object, other.id(), &a_ring()).is_err());
}

#[test]
fn a_key_that_is_missing_is_named() {
    let (descriptor, object) = encode_with(&[vec![5; BLOCK_BYTES]], LEVEL_1, &a_ring());
    let needed = ObjectError::KeyMissing(SecretKey::new([1; 32]).id());
    for ring in [KeyRing::default(), KeyRing::new([SecretKey::new([2; 32])])] {
        assert_eq!(decode_object(&object, descriptor.id(), &ring).unwrap_err(), needed);
        assert_eq!(ObjectReader::new(&descriptor, &ring).err(), Some(needed.clone()));
    }
}

/// An object of this format, byte by byte as docs/FORMAT.md says: it must stay readable.
#[test]
fn golden_object() {
    let blocks = [vec![b'a'; BLOCK_BYTES], vec![b'b'; BLOCK_BYTES]];
    let (descriptor, object) = encode_with(&blocks, Compression::Off, &a_ring());
    assert_eq!(&object[..8], b"TOMB\x02\0\x01\x01");
    assert_eq!(object.len(), 56 + (56 + 2 * 48 + 8 + 16) + 2 * (4096 + 16));
    assert_eq!(object[24..56], descriptor.id().0);
    assert_eq!(
        (
            descriptor.id().key().as_str(),
            Fingerprint::of(&object).to_string().as_str()
        ),
        (
            "objects/eb/6920fc33ecc8fee82efcff126d53f174fa731276585b4b665b1b8a97430b09",
            "b3255650978803006c1753ecfe3021c6178c0bd96bb54259b3634043c0925f68"
        )
    );
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
