//! One immutable run: opening it, looking a key up in it, reading its pages in order.
//!
//! ```text
//!  entries file: pages 0..n (page.rs), then the footer, 4096 bytes:
//!     0  magic "TMBFPR01"       8
//!     8  run id                 u64
//!    16  entry count            u64   pages = ceil(entries / 102)
//!    24  removed entries        u64   of these
//!    32  filter blocks          u64   of 64 bytes; 0: no filter
//!    40  filter probes          u32
//!    44  reserved, zero         u32
//!    48  fence stride           u64   in pages
//!    56  XXH3-64 of the filter  u64
//!    64  XXH3-64 of the fence   u64
//!    72  zero
//!  4088  XXH3-64 of all before, seeded with the run id
//!
//!  guide file: filter blocks (8 words u64 each), then one u64 per fence post
//! ```

use crate::budget::page_count;
use crate::entry::{Target, prefix, share_of};
use crate::fence::{self, Candidates, Fence, POST_BYTES};
use crate::filter::{BLOCK_BYTES, Filter, FilterReader, Shape};
use crate::page::{self, PAGE_BYTES, PAGE_ENTRIES, Page, Search};
use crate::{IndexError, ManifestRun, RunFault, RunFile, RunId, RunPart, RunStorage};
use alloc::{sync::Arc, vec::Vec};
use core::ops::RangeInclusive;
use tombolo_base::{DecodeError, Fingerprint, Reader, Writer};
use xxhash_rust::xxh3::Xxh3;

const MAGIC: u64 = u64::from_le_bytes(*b"TMBFPR01");
/// Bytes of a guide read at a time.
const GUIDE_CHUNK_BYTES: u64 = 1 << 18;
/// Guesses by interpolation before halving takes over, which bounds the reads whatever the keys are.
const GUESSES_MAX: u32 = 3;

/// What the footer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunMeta {
    pub run: RunId,
    pub entry_count: u64,
    pub removed_count: u64,
    pub filter: Shape,
    pub fence_stride: u64,
    pub filter_sum: u64,
    pub fence_sum: u64,
}

impl RunMeta {
    pub fn file(&self, part: RunPart) -> RunFile {
        RunFile { run: self.run, part }
    }

    pub fn page_count(&self) -> u64 {
        page_count(self.entry_count)
    }

    pub fn page_entry_count(&self, number: u64) -> usize {
        (self.entry_count - number * PAGE_ENTRIES as u64).min(PAGE_ENTRIES as u64) as usize
    }

    fn post_count(&self) -> u64 {
        fence::post_count(self.page_count(), self.fence_stride)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(PAGE_BYTES);
        out.u64(MAGIC)
            .u64(self.run.0)
            .u64(self.entry_count)
            .u64(self.removed_count)
            .u64(self.filter.block_count)
            .u32(self.filter.probes)
            .u32(0)
            .u64(self.fence_stride)
            .u64(self.filter_sum)
            .u64(self.fence_sum);
        let mut footer = out.0;
        footer.resize(PAGE_BYTES, 0);
        page::seal_sum(&mut footer, self.run);
        footer
    }

    /// `footer` is one page.
    fn decode(footer: &[u8], run: RunId) -> Result<Self, DecodeError> {
        let (found, computed) = page::sums(footer, run);
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "run footer",
                found,
                computed,
            });
        }
        let mut reader = Reader::new(footer);
        expect("run footer magic", reader.u64("run footer magic")?, |magic| {
            magic == MAGIC
        })?;
        expect("run id", reader.u64("run id")?, |id| id == run.0)?;
        let entry_count = reader.u64("run entry count")?;
        let removed_count = reader.u64("run removed entries")?;
        let filter = Shape {
            block_count: reader.u64("filter blocks")?,
            probes: reader.u32("filter probes")?,
        };
        expect("filter blocks", filter.block_count, |_| filter.is_valid())?;
        reader.u32("run footer reserved field")?;
        let fence_stride = reader.u64("fence stride")?;
        expect("fence stride", fence_stride, |stride| stride > 0)?;
        Ok(Self {
            run,
            entry_count,
            removed_count,
            filter,
            fence_stride,
            filter_sum: reader.u64("filter checksum")?,
            fence_sum: reader.u64("fence checksum")?,
        })
    }
}

fn expect(what: &'static str, value: u64, allowed: impl FnOnce(u64) -> bool) -> Result<(), DecodeError> {
    if allowed(value) {
        Ok(())
    } else {
        Err(DecodeError::Invalid { what, value })
    }
}

/// A run in use. Clones share everything; the count of references to `meta` tells whether anybody still reads it.
#[derive(Clone)]
pub(crate) struct Run {
    pub meta: Arc<RunMeta>,
    pub fence: Arc<Fence>,
    /// `None` also while the filter has not been loaded yet: every lookup then reads a page.
    pub filter: Option<Arc<Filter>>,
    /// Memory that the filter takes, or takes in part and is set aside for in part while a better one is read.
    pub filter_bytes: u64,
    /// A better filter may be loaded; false while one is being read, and after that failed.
    pub loads: bool,
}

impl Run {
    pub fn new(meta: RunMeta, fence: Fence) -> Self {
        Self {
            filter_bytes: 0,
            loads: true,
            meta: Arc::new(meta),
            fence: Arc::new(fence),
            filter: None,
        }
    }

    pub fn id(&self) -> RunId {
        self.meta.run
    }

    /// Opens a run within the memory given; reads the footer and the guide.
    pub fn open<S: RunStorage>(
        storage: &S,
        named: ManifestRun,
        filter_bytes_max: u64,
        fence_bytes_max: u64,
    ) -> Result<Self, IndexError<S::Error>> {
        let meta = read_footer(storage, named)?;
        let fence = read_fence(storage, &meta, fence_bytes_max)?;
        let mut run = Self::new(meta, fence);
        let load = FilterLoad {
            meta: run.meta.clone(),
            bytes_max: filter_bytes_max,
        };
        run.set_filter(load.read(storage)?.filter);
        Ok(run)
    }

    pub fn set_filter(&mut self, filter: Option<Arc<Filter>>) {
        self.filter_bytes = filter.as_ref().map_or(0, |filter| filter.bytes());
        self.filter = filter;
    }

    pub fn lookup<S: RunStorage>(
        &self,
        storage: &S,
        key: &Fingerprint,
    ) -> Result<Option<Target>, IndexError<S::Error>> {
        if self.filter.as_ref().is_some_and(|filter| !filter.may_contain(key)) {
            return Ok(None);
        }
        match self.fence.search(prefix(key)) {
            Some(candidates) => self.lookup_among(storage, key, candidates),
            None => Ok(None),
        }
    }

    fn lookup_among<S: RunStorage>(
        &self,
        storage: &S,
        key: &Fingerprint,
        candidates: Candidates,
    ) -> Result<Option<Target>, IndexError<S::Error>> {
        let Candidates {
            mut pages,
            mut bounds,
            mut likely,
        } = candidates;
        let mut bytes = [0; PAGE_BYTES];
        let mut guesses = 0;
        while !pages.is_empty() {
            let number = likely
                .take()
                .unwrap_or_else(|| guess(&pages, bounds, prefix(key), guesses));
            guesses += 1;
            self.read_pages(storage, number, &mut bytes)?;
            let page = self.verify(&bytes, number)?;
            match page.search(key) {
                Search::Found(target) => return Ok(Some(target)),
                Search::Absent => return Ok(None),
                Search::Before if number == *pages.start() => return Ok(None),
                Search::Before => {
                    pages = *pages.start()..=number - 1;
                    bounds.1 = prefix(&page.first_key());
                }
                Search::After => {
                    pages = number + 1..=*pages.end();
                    bounds.0 = prefix(&page.last_key());
                }
            }
        }
        Ok(None)
    }

    /// Fills `bytes`, a whole number of pages, from page `number` on; the caller verifies them.
    pub fn read_pages<S: RunStorage>(
        &self,
        storage: &S,
        number: u64,
        bytes: &mut [u8],
    ) -> Result<(), IndexError<S::Error>> {
        let file = self.meta.file(RunPart::Entries);
        storage
            .read(file, number * PAGE_BYTES as u64, bytes)
            .map_err(IndexError::storage(file, "read a page"))
    }

    pub fn verify<'a, E>(&self, bytes: &'a [u8], number: u64) -> Result<Page<'a>, IndexError<E>> {
        let run = self.meta.run;
        Page::verify(bytes, run, number, self.meta.page_entry_count(number)).map_err(|fault| IndexError::CorruptPage {
            run,
            page: number,
            fault,
        })
    }
}

/// Where among `pages` a key with this prefix should lie, given the prefixes at both ends.
fn guess(pages: &RangeInclusive<u64>, bounds: (u64, u64), prefix: u64, guesses: u32) -> u64 {
    let (first, last) = (*pages.start(), *pages.end());
    let (low, high) = bounds;
    if guesses >= GUESSES_MAX || high <= low {
        return first + (last - first) / 2;
    }
    let offset = prefix.saturating_sub(low).min(high - low);
    let share = (u128::from(offset) << 64) / (u128::from(high - low) + 1);
    first + share_of(share as u64, last - first + 1)
}

fn read_footer<S: RunStorage>(storage: &S, named: ManifestRun) -> Result<RunMeta, IndexError<S::Error>> {
    let run = named.run;
    let corrupt = |fault| IndexError::CorruptRun { run, fault };
    let file = RunFile {
        run,
        part: RunPart::Entries,
    };
    // Checked before anything is believed, so that no count can ask for more memory than the files have bytes.
    let footer_offset = page_count(named.entry_count).saturating_mul(PAGE_BYTES as u64);
    expect_length(storage, file, footer_offset.saturating_add(PAGE_BYTES as u64))?;
    let mut footer = [0; PAGE_BYTES];
    storage
        .read(file, footer_offset, &mut footer)
        .map_err(IndexError::storage(file, "read the footer"))?;
    let meta = RunMeta::decode(&footer, run).map_err(|error| corrupt(error.into()))?;
    expect("run entry count", meta.entry_count, |count| count == named.entry_count)
        .map_err(|error| corrupt(error.into()))?;
    let guide_bytes =
        u128::from(meta.filter.block_count) * BLOCK_BYTES as u128 + u128::from(meta.post_count()) * POST_BYTES as u128;
    let guide_bytes = u64::try_from(guide_bytes).unwrap_or(u64::MAX);
    expect_length(storage, meta.file(RunPart::Guide), guide_bytes)?;
    Ok(meta)
}

fn expect_length<S: RunStorage>(storage: &S, file: RunFile, expected: u64) -> Result<(), IndexError<S::Error>> {
    let found = storage
        .length(file)
        .map_err(IndexError::storage(file, "read the length"))?;
    if found == expected {
        return Ok(());
    }
    Err(IndexError::CorruptRun {
        run: file.run,
        fault: RunFault::Length { file, found, expected },
    })
}

/// Reads the fence, leaving out posts as far as `bytes_max` demands.
fn read_fence<S: RunStorage>(storage: &S, meta: &RunMeta, bytes_max: u64) -> Result<Fence, IndexError<S::Error>> {
    let page_count = meta.page_count();
    let stride = fence::stride_for(page_count, bytes_max).max(meta.fence_stride);
    // Strides are powers of two, unless the footer of a stranger says otherwise; then all posts are kept.
    let keep_every = if stride.is_multiple_of(meta.fence_stride) {
        stride / meta.fence_stride
    } else {
        1
    };
    let stride = meta.fence_stride * keep_every;
    let mut posts = Vec::with_capacity(fence::post_count(page_count, stride) as usize);
    let mut index = 0;
    let length = meta.post_count() * POST_BYTES as u64;
    let section = (meta.filter.bytes(), length, "fence", meta.fence_sum);
    read_guide(storage, meta, section, |chunk| {
        for post in chunk.chunks_exact(POST_BYTES) {
            if index % keep_every == 0 {
                posts.push(u64::from_le_bytes(crate::entry::array(post)));
            }
            index += 1;
        }
    })?;
    Ok(Fence::new(stride, page_count, posts))
}

/// Hands a section (offset, length, name, checksum) of the guide to `take` in chunks, and verifies it as a whole.
fn read_guide<S: RunStorage>(
    storage: &S,
    meta: &RunMeta,
    (offset, length, what, sum): (u64, u64, &'static str, u64),
    mut take: impl FnMut(&[u8]),
) -> Result<(), IndexError<S::Error>> {
    let file = meta.file(RunPart::Guide);
    let mut buffer = alloc::vec![0; GUIDE_CHUNK_BYTES.min(length) as usize];
    let mut hash = Xxh3::new();
    let mut done = 0;
    while done < length {
        let chunk = &mut buffer[..GUIDE_CHUNK_BYTES.min(length - done) as usize];
        storage
            .read(file, offset + done, chunk)
            .map_err(IndexError::storage(file, "read the guide"))?;
        hash.update(chunk);
        take(chunk);
        done += chunk.len() as u64;
    }
    let computed = hash.digest();
    if computed == sum {
        return Ok(());
    }
    Err(IndexError::CorruptRun {
        run: meta.run,
        fault: RunFault::Decode(DecodeError::Checksum {
            what,
            found: sum,
            computed,
        }),
    })
}

/// A filter to be read. That of a merged run is, because the filters of its inputs have to go first, or the memory
/// would be needed twice; until it is installed, lookups of absent fingerprints read a page of that run.
#[must_use = "its memory is set aside until it is installed or abandoned"]
pub struct FilterLoad {
    pub(crate) meta: Arc<RunMeta>,
    pub(crate) bytes_max: u64,
}

/// A filter ready for [`crate::Index::install_filter`].
pub struct LoadedFilter {
    pub(crate) run: RunId,
    pub(crate) filter: Option<Arc<Filter>>,
}

impl FilterLoad {
    /// Sequential; needs no lock. Safe to repeat.
    pub fn read<S: RunStorage>(&self, storage: &S) -> Result<LoadedFilter, IndexError<S::Error>> {
        let shape = self.meta.filter;
        let run = self.meta.run;
        let fold = shape.fold_for(self.bytes_max).filter(|_| shape.block_count > 0);
        let Some(fold) = fold else {
            return Ok(LoadedFilter { run, filter: None });
        };
        let mut reader = FilterReader::new(shape, fold);
        let section = (0, shape.bytes(), "filter", self.meta.filter_sum);
        read_guide(storage, &self.meta, section, |chunk| reader.push(chunk))?;
        let filter = Some(Arc::new(reader.finish()));
        Ok(LoadedFilter { run, filter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RunMeta {
        RunMeta {
            run: RunId(3),
            entry_count: 1000,
            removed_count: 7,
            filter: Shape {
                block_count: 64,
                probes: 8,
            },
            fence_stride: 2,
            filter_sum: 0x1122,
            fence_sum: 0x3344,
        }
    }

    #[test]
    fn golden_footer() {
        let mut expected = b"TMBFPR01".to_vec();
        for word in [3u64, 1000, 7, 64, 8, 2, 0x1122, 0x3344] {
            expected.extend(word.to_le_bytes());
        }
        let footer = sample().encode();
        assert_eq!(footer.len(), PAGE_BYTES);
        assert_eq!(footer[..72], expected);
        assert!(footer[72..page::SUM_OFFSET].iter().all(|byte| *byte == 0));
        assert_eq!(page::sums(&footer, RunId(3)).0, 8_097_753_956_208_160_778);
        assert_eq!(RunMeta::decode(&footer, RunId(3)), Ok(sample()));
        assert!(RunMeta::decode(&footer, RunId(4)).is_err());
    }

    #[test]
    fn guesses_stay_among_the_pages() {
        for prefix in [0, 5, 10, 15, 20, u64::MAX] {
            for bounds in [(10, 20), (10, 10), (20, 10), (0, u64::MAX)] {
                for guesses in 0..5 {
                    assert!((3..=9).contains(&guess(&(3..=9), bounds, prefix, guesses)));
                }
            }
        }
        assert_eq!(guess(&(0..=9), (0, 100), 55, 0), 5);
    }
}
