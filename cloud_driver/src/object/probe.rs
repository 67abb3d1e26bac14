use tombolo_base::BLOCK_BYTES;

const RUN_BYTES: usize = 64;
const STRIDE_BYTES: usize = 512;
/// Sum of squared byte counts at and above which the sample is not random. For `n` sampled bytes drawn evenly from `k`
/// values the sum is about `n + n²/k`. With n = 512: 1,536 for random bytes (deviation about 45), 2,560 for bytes of 7
/// bits of entropy, which is where an eighth can be saved. 2,200 lies far from both.
const SQUARES_MIN: u32 = 2_200;
/// Repeated words at and above which the block has structure although its bytes are evenly spread. 512 random words
/// hashed to 4,096 places collide about 30 times (deviation about 5.5); when an eighth of the words repeat, 64 more do.
const REPEATS_MIN: u32 = 64;

/// True when the block looks like random, compressed or encrypted bytes, so that zstd would not pay.
///
/// Two looks in integer arithmetic, the first usually enough: how evenly are the values of sampled bytes spread (runs
/// of 64 bytes, one in every 512, so that any stretch of zeros that would save an eighth is met), and how many of the
/// block's aligned 8-byte words repeat. Deterministic, as the encoding of a block must be.
pub fn looks_random(block: &[u8]) -> bool {
    block.len() == BLOCK_BYTES && sampled_squares(block) < SQUARES_MIN && repeated_words(block) < REPEATS_MIN
}

fn sampled_squares(block: &[u8]) -> u32 {
    let mut counts = [0u16; 256];
    for stretch in block.chunks_exact(STRIDE_BYTES) {
        for byte in &stretch[STRIDE_BYTES - RUN_BYTES..] {
            counts[usize::from(*byte)] += 1;
        }
    }
    counts.iter().map(|count| u32::from(*count) * u32::from(*count)).sum()
}

fn repeated_words(block: &[u8]) -> u32 {
    let mut seen = [0u64; 64];
    let mut repeats = 0;
    for chunk in block.chunks_exact(8) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        // Fibonacci hashing: the top bits of a product with 2^64 / golden ratio.
        let place = u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let (slot, bit) = ((place >> 6) as usize, place & 63);
        repeats += ((seen[slot] >> bit) & 1) as u32;
        seen[slot] |= 1 << bit;
    }
    repeats
}
