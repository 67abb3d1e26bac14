//! What follows from traffic, by the paper's rules. Bounds between "about the same" and "much less" are ours, and stand here.

use super::probes::Position;
use tombolo_base::names;

names! {
    /// An answer, as it stands in the table of capabilities.
    pub enum Verdict: "verdict" {
        /// The system can do it.
        Yes = "yes",
        /// Sometimes, or less than the whole of it.
        Partly = "partly",
        /// It cannot.
        No = "no",
        /// It compresses everything.
        Always = "always",
        /// It compresses what is worth it by its name or head.
        Smart = "smart",
        /// It finds what it has, but not what it had once.
        NotAfterDeletion = "not after deletion",
        /// No more than what was added is sent, wherever that was.
        DeltaEncoding = "delta encoding",
        /// What has moved is sent too, but not what lies before it.
        ChangedChunks = "changed chunks",
        /// It takes two clients.
        NotApplicable = "not applicable",
        /// Nothing was sent where something had to be.
        Inconclusive = "inconclusive",
    }
}

/// Requests for each further file, below which files go together, and above which each goes alone.
const BUNDLED_PER_FILE: f64 = 0.1;
const ALONE_PER_FILE: f64 = 0.9;
/// Of what is to be sent in any case, for names and other metadata.
const METADATA_BYTES: u64 = 64_000;
/// What is below this fraction of a file's bytes was made smaller.
const COMPRESSED_FRACTION: f64 = 0.9;
/// What is below this fraction was not sent again.
const KNOWN_FRACTION: f64 = 0.1;
/// What is above this fraction is the whole.
const WHOLE_FRACTION: f64 = 0.85;
/// Up to so many times the added bytes are about these.
const DELTA_FACTOR: f64 = 1.5;

/// From files and requests; the first has the fewest files. Connections do not tell where they are used again, requests do.
pub fn bundling(points: &[(u64, u64)]) -> Verdict {
    let (Some(fewest), Some(most)) = (points.first(), points.last()) else {
        return Verdict::Inconclusive;
    };
    if fewest.1 == 0 || most.1 == 0 || most.0 <= fewest.0 {
        return Verdict::Inconclusive;
    }
    let per_file = most.1.saturating_sub(fewest.1) as f64 / (most.0 - fewest.0) as f64;
    match per_file {
        slope if slope <= BUNDLED_PER_FILE => Verdict::Yes,
        slope if slope < ALONE_PER_FILE => Verdict::Partly,
        _ => Verdict::No,
    }
}

/// Chunks in one direction, from sizes and requests by growing size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// One request, however large the file.
    None,
    /// The number of requests grows by one in about so many bytes.
    About(u64),
    /// There were no requests.
    Unknown,
}

/// The slope of the least squares: steps at multiples of a chunk's size have its reciprocal.
pub fn chunks(points: &[(u64, u64)]) -> Chunks {
    let [first, .., last] = points else {
        return Chunks::Unknown;
    };
    if points.iter().any(|(_, requests)| *requests == 0) {
        return Chunks::Unknown;
    }
    if last.1 <= first.1 {
        return Chunks::None;
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(u64, u64)) -> u64| points.iter().map(|point| of(point) as f64).sum::<f64>() / count;
    let (size, requests) = (mean(|point| point.0), mean(|point| point.1));
    let product: f64 = points
        .iter()
        .map(|point| (point.0 as f64 - size) * (point.1 as f64 - requests))
        .sum();
    let square: f64 = points.iter().map(|point| (point.0 as f64 - size).powi(2)).sum();
    if product <= 0.0 {
        return Chunks::None;
    }
    Chunks::About((square / product) as u64)
}

/// From bytes of text files and bytes that were sent for them, and the same of the fake JPEG.
pub fn compression(text: &[(u64, u64)], fake_jpeg: (u64, u64)) -> Verdict {
    let is_smaller = |(bytes, sent): (u64, u64)| (sent as f64) < bytes as f64 * COMPRESSED_FRACTION;
    if text.iter().chain([&fake_jpeg]).any(|(_, sent)| *sent == 0) {
        return Verdict::Inconclusive;
    }
    match text.iter().filter(|point| is_smaller(**point)).count() {
        0 => Verdict::No,
        smaller if smaller < text.len() => Verdict::Partly,
        _ if is_smaller(fake_jpeg) => Verdict::Always,
        _ => Verdict::Smart,
    }
}

/// From the file's bytes and what was sent in the four steps.
pub fn dedup(bytes: u64, sent: [u64; 4]) -> Verdict {
    let is_known = |sent: u64| (sent as f64) < bytes as f64 * KNOWN_FRACTION;
    if (sent[0] as f64) < bytes as f64 * WHOLE_FRACTION {
        return Verdict::Inconclusive;
    }
    match [is_known(sent[1]), is_known(sent[2]), is_known(sent[3])] {
        [true, true, true] => Verdict::Yes,
        [true, true, false] => Verdict::NotAfterDeletion,
        [false, false, false] => Verdict::No,
        _ => Verdict::Partly,
    }
}

/// A file that was replaced.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    /// Where something was added.
    pub position: Position,
    /// Of the new file.
    pub bytes: u64,
    /// Of what was added.
    pub added_bytes: u64,
    /// To the store.
    pub sent_bytes: u64,
}

/// How much of one changed file was sent.
pub fn replaced(case: &Replaced) -> Verdict {
    let sent = case.sent_bytes as f64;
    let delta = case.added_bytes as f64 * DELTA_FACTOR + METADATA_BYTES as f64;
    if case.sent_bytes == 0 {
        Verdict::Inconclusive
    } else if sent <= delta {
        Verdict::DeltaEncoding
    } else if sent < case.bytes as f64 * WHOLE_FRACTION {
        Verdict::ChangedChunks
    } else {
        Verdict::No
    }
}

/// Over all positions and sizes: delta encoding knows what has moved, chunks of fixed places do not.
pub fn delta(cases: &[Replaced]) -> Verdict {
    let verdicts: Vec<Verdict> = cases.iter().map(replaced).collect();
    let all = |wanted: Verdict| verdicts.iter().all(|verdict| *verdict == wanted);
    if verdicts.is_empty() || verdicts.contains(&Verdict::Inconclusive) {
        Verdict::Inconclusive
    } else if all(Verdict::DeltaEncoding) {
        Verdict::DeltaEncoding
    } else if all(Verdict::No) {
        Verdict::No
    } else {
        Verdict::ChangedChunks
    }
}

/// From the file's bytes and what the reader has fetched from the store.
pub fn peer_to_peer(bytes: u64, fetched_bytes: u64) -> Verdict {
    if (fetched_bytes as f64) < bytes as f64 * KNOWN_FRACTION {
        Verdict::Yes
    } else {
        Verdict::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_do_not_grow_with_the_number_of_files() {
        assert_eq!(bundling(&[(1, 1), (10, 1), (100, 1)]), Verdict::Yes);
        assert_eq!(bundling(&[(1, 2), (10, 3), (100, 11)]), Verdict::Yes);
        assert_eq!(bundling(&[(1, 1), (10, 10), (100, 50)]), Verdict::Partly);
        assert_eq!(bundling(&[(1, 1), (10, 10), (100, 100)]), Verdict::No);
        assert_eq!(bundling(&[(1, 1), (10, 20), (100, 200)]), Verdict::No);
        assert_eq!(bundling(&[(1, 0), (10, 0), (100, 0)]), Verdict::Inconclusive);
    }

    #[test]
    fn chunks_are_seen_in_the_steps() {
        let sizes: [u64; 8] = [1, 2, 3, 5, 7, 9, 13, 20];
        let of = |requests: fn(u64) -> u64| sizes.map(|size| (size * 1_000_000, requests(size))).to_vec();
        assert_eq!(chunks(&of(|_| 1)), Chunks::None);
        assert_eq!(chunks(&of(|_| 0)), Chunks::Unknown);
        let Chunks::About(four) = chunks(&of(|size| size.div_ceil(4))) else {
            panic!("no chunks of 4 MB");
        };
        assert!((3_400_000..4_600_000).contains(&four), "{four}");
        let Chunks::About(small) = chunks(&of(|size| 3 + 4 * size)) else {
            panic!("no chunks of 250 kB");
        };
        assert_eq!(small, 250_000);
        assert_ne!(chunks(&of(|size| size.div_ceil(10))), Chunks::None);
    }

    #[test]
    fn compression_is_told_from_smart_compression() {
        let text = |percent: u64| [100_000, 1_000_000].map(|bytes| (bytes, bytes * percent / 100));
        assert_eq!(compression(&text(40), (1_000_000, 400_000)), Verdict::Always);
        assert_eq!(compression(&text(40), (1_000_000, 1_010_000)), Verdict::Smart);
        assert_eq!(compression(&text(101), (1_000_000, 1_010_000)), Verdict::No);
        assert_eq!(
            compression(&[(100, 101), (1_000, 400)], (1_000, 1_000)),
            Verdict::Partly
        );
        assert_eq!(compression(&text(40), (1_000_000, 0)), Verdict::Inconclusive);
    }

    #[test]
    fn deduplication_is_judged_by_all_four_steps() {
        let whole = 4_010_000;
        assert_eq!(dedup(4_000_000, [whole, 900, 900, 900]), Verdict::Yes);
        assert_eq!(dedup(4_000_000, [whole, 900, 900, whole]), Verdict::NotAfterDeletion);
        assert_eq!(dedup(4_000_000, [whole, 900, whole, whole]), Verdict::Partly);
        assert_eq!(dedup(4_000_000, [whole; 4]), Verdict::No);
        // The first was known already: the others prove nothing.
        assert_eq!(dedup(4_000_000, [900; 4]), Verdict::Inconclusive);
    }

    #[test]
    fn delta_encoding_is_told_from_changed_chunks() {
        let cases = |end, start, random| {
            Position::ALL.map(|position| Replaced {
                position,
                bytes: 11_000_000,
                added_bytes: 1_000_000,
                sent_bytes: match position {
                    Position::End => end,
                    Position::Start => start,
                    Position::Random => random,
                },
            })
        };
        let whole = 11_100_000;
        assert_eq!(delta(&cases(1_010_000, 1_010_000, 1_010_000)), Verdict::DeltaEncoding);
        assert_eq!(delta(&cases(1_010_000, whole, 6_000_000)), Verdict::ChangedChunks);
        assert_eq!(delta(&cases(1_010_000, whole, whole)), Verdict::ChangedChunks);
        assert_eq!(delta(&cases(whole, whole, whole)), Verdict::No);
        assert_eq!(delta(&cases(0, whole, whole)), Verdict::Inconclusive);
        assert_eq!(delta(&[]), Verdict::Inconclusive);
    }

    #[test]
    fn what_comes_past_the_store_comes_from_a_peer() {
        assert_eq!(peer_to_peer(1_000_000, 2_000), Verdict::Yes);
        assert_eq!(peer_to_peer(1_000_000, 1_000_000), Verdict::No);
    }
}
