//! One page of sorted entries. Every page of a run but the last is full, so a run's length follows from its count.
//!
//! ```text
//!     0  102 entries of 40 bytes: fingerprint 32, PVBN u64; unused ones are zero
//!  4080  entries used            u16
//!  4082  reserved, zero          u16
//!  4084  page number in the run  u32
//!  4088  XXH3-64 of all before, seeded with the run id
//! ```
//!
//! Run id and page number make a page that was written to, or read from, the wrong place as bad as a rotten one.

use crate::entry::{ENTRY_BYTES, Entry, FINGERPRINT_BYTES, Target, array};
use crate::{PageFault, RunId};
use core::cmp::Ordering;
use tombolo_base::Fingerprint;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_ENTRIES: usize = 102;
const COUNT_OFFSET: usize = PAGE_ENTRIES * ENTRY_BYTES;
const NUMBER_OFFSET: usize = COUNT_OFFSET + 4;
pub(crate) const SUM_OFFSET: usize = PAGE_BYTES - 8;

/// Writes the trailer. `page` is [`PAGE_BYTES`] long and holds `entry_count` entries.
pub(crate) fn seal(page: &mut [u8], run: RunId, number: u64, entry_count: usize) {
    page[COUNT_OFFSET..COUNT_OFFSET + 2].copy_from_slice(&(entry_count as u16).to_le_bytes());
    page[NUMBER_OFFSET..SUM_OFFSET].copy_from_slice(&(number as u32).to_le_bytes());
    seal_sum(page, run);
}

/// Writes the checksum only: footers end as pages do.
pub(crate) fn seal_sum(page: &mut [u8], run: RunId) {
    let sum = xxh3_64_with_seed(&page[..SUM_OFFSET], run.0);
    page[SUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
}

/// The checksum found and the one computed.
pub(crate) fn sums(page: &[u8], run: RunId) -> (u64, u64) {
    let found = u64::from_le_bytes(array(&page[SUM_OFFSET..]));
    (found, xxh3_64_with_seed(&page[..SUM_OFFSET], run.0))
}

/// A page whose checksum and place have been verified.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    bytes: &'a [u8],
    entry_count: usize,
}

/// Where a key lies relative to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    Found(Target),
    /// Between the page's first and last key, and not there.
    Absent,
    Before,
    After,
}

impl<'a> Page<'a> {
    pub fn verify(bytes: &'a [u8], run: RunId, number: u64, entry_count: usize) -> Result<Self, PageFault> {
        let (found, computed) = sums(bytes, run);
        if found != computed {
            return Err(PageFault::Checksum { found, computed });
        }
        let number_found = u32::from_le_bytes(array(&bytes[NUMBER_OFFSET..SUM_OFFSET]));
        if u64::from(number_found) != number {
            return Err(PageFault::Misplaced { found: number_found });
        }
        let count_found = u16::from_le_bytes(array(&bytes[COUNT_OFFSET..COUNT_OFFSET + 2]));
        if usize::from(count_found) != entry_count {
            return Err(PageFault::EntryCount {
                found: count_found,
                expected: entry_count as u16,
            });
        }
        Ok(Self { bytes, entry_count })
    }

    fn key(&self, index: usize) -> &'a [u8] {
        &self.bytes[index * ENTRY_BYTES..][..FINGERPRINT_BYTES]
    }

    fn entry(&self, index: usize) -> Entry {
        Entry::read(&self.bytes[index * ENTRY_BYTES..][..ENTRY_BYTES])
    }

    pub fn first_key(&self) -> Fingerprint {
        self.entry(0).key
    }

    pub fn last_key(&self) -> Fingerprint {
        self.entry(self.entry_count - 1).key
    }

    /// Binary search; a run's pages are never empty.
    pub fn search(&self, key: &Fingerprint) -> Search {
        let (mut low, mut high) = (0, self.entry_count);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(&key.0[..]) {
                Ordering::Equal => return Search::Found(self.entry(middle).target),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        match low {
            0 => Search::Before,
            end if end == self.entry_count => Search::After,
            _ => Search::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    fn sample() -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        for index in 0..3u64 {
            let entry = Entry {
                key: key(10 + 10 * index),
                target: Target(index),
            };
            entry.write(&mut page[index as usize * ENTRY_BYTES..][..ENTRY_BYTES]);
        }
        seal(&mut page, RunId(7), 5, 3);
        page
    }

    #[test]
    fn search_says_where() {
        let bytes = sample();
        let page = Page::verify(&bytes, RunId(7), 5, 3).unwrap();
        assert_eq!(page.search(&key(20)), Search::Found(Target(1)));
        assert_eq!(page.search(&key(25)), Search::Absent);
        assert_eq!(page.search(&key(9)), Search::Before);
        assert_eq!(page.search(&key(31)), Search::After);
    }

    #[test]
    fn wrong_run_place_count_or_any_flipped_bit_is_refused() {
        let mut bytes = sample();
        assert!(matches!(
            Page::verify(&bytes, RunId(8), 5, 3),
            Err(PageFault::Checksum { .. })
        ));
        assert!(matches!(
            Page::verify(&bytes, RunId(7), 6, 3),
            Err(PageFault::Misplaced { found: 5 })
        ));
        assert!(matches!(
            Page::verify(&bytes, RunId(7), 5, 4),
            Err(PageFault::EntryCount { found: 3, expected: 4 })
        ));
        for index in 0..bytes.len() {
            bytes[index] ^= 4;
            assert!(Page::verify(&bytes, RunId(7), 5, 3).is_err(), "byte {index}");
            bytes[index] ^= 4;
        }
    }
}
