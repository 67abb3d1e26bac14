//! What is in the cloud when the trace begins. A first pass over the trace finds the blocks that are read before they are
//! ever written; they, and with [`Preload::Pages`] their neighbours, get PVBNs in logical order, and every `pack_blocks`
//! of them are one object. So the layout is that of data written sequentially: a few bytes a page, nothing an object.
//! With [`Preload::Aged`] a log follows that the first pass has written.

use super::contents;
use super::error::{Error, Progress};
use super::job::{Job, Preload};
use super::policies::ORACLE;
use super::requests::{Kind, Request, Requests};
use hashbrown::HashMap;
use std::sync::Arc;
use tombolo_base::{BLOCK_BYTES, BlockEncoding, ObjectDescriptor, Pvbn, VolumeId};
use tombolo_core::{MapPage, PAGE_ENTRIES};
use tombolo_prefetch::FutureRead;
use tombolo_trace::BlockSet;

#[derive(Debug, Default)]
pub struct Layout {
    pages: HashMap<(VolumeId, u64), Preloaded>,
    blocks: u64,
    pack_blocks: u64,
    /// Pages that the log has blocks of.
    logged: HashMap<(VolumeId, u64), MapPage>,
}

/// What an earlier run of the trace has written.
#[derive(Debug, Default)]
struct Log {
    /// Where each block was written last, from 0 on.
    places: HashMap<(VolumeId, u64), [Option<u64>; PAGE_ENTRIES as usize]>,
    /// Contents that have a name.
    names: HashMap<u64, u64>,
    next: u64,
}

impl Log {
    fn write(&mut self, request: &Request<'_>, dedup: bool) {
        for offset in 0..request.span.count {
            let block = request.span.first + offset;
            let next = self.next;
            let place = match request.contents.get(offset as usize) {
                Some(0) => None,
                Some(name) if dedup => Some(*self.names.entry(*name).or_insert(next)),
                Some(_) | None => Some(next),
            };
            self.next += u64::from(place == Some(next));
            let page = self.places.entry((request.span.volume, block / PAGE_ENTRIES));
            page.or_insert([None; PAGE_ENTRIES as usize])[(block % PAGE_ENTRIES) as usize] = place;
        }
    }
}

/// A page of the map: which of its blocks are there, and the PVBN of the first of them.
#[derive(Clone, Copy, Debug)]
struct Preloaded {
    first: u64,
    bits: [u64; 4],
}

/// PVBNs begin here.
const FIRST_PVBN: u64 = 1;
const _: () = assert!(PAGE_ENTRIES == 256, "a page has four words of bits");

/// What the first pass tells of the trace besides.
#[derive(Debug, Default)]
pub struct Scan {
    pub requests: u64,
    pub last_us: u64,
    /// All reads in order, for the prefetcher that knows the future.
    pub future: Vec<FutureRead>,
}

/// Reads the whole trace.
pub fn scan(requests: &mut Requests, job: &Job, progress: Progress<'_>) -> Result<(Layout, Scan), Error> {
    let (mut read, mut written) = (BlockSet::default(), BlockSet::default());
    let mut scan = Scan::default();
    let mut log = (job.preload == Preload::Aged).then(Log::default);
    while let Some(request) = requests.next()? {
        scan.requests += 1;
        scan.last_us = request.time_us;
        let (volume, first, count) = (request.span.volume, request.span.first, request.span.count);
        match request.kind {
            Kind::Read => {
                read.insert_unless(volume.0, first, count, Some(&written));
                if job.prefetch == ORACLE {
                    scan.future.push(FutureRead { volume, first, count });
                }
            }
            Kind::Write => {
                written.insert_unless(volume.0, first, count, Some(&read));
                if let Some(log) = &mut log {
                    log.write(&request, job.dedup);
                }
            }
            Kind::Discard | Kind::Flush => {}
        }
        if scan.requests.is_multiple_of(super::PROGRESS_REQUESTS) {
            progress(0, 0)?;
        }
    }
    let mut layout = Layout::new(&read, job.preload, job.pack_blocks);
    if let Some(log) = log {
        layout.append(log);
    }
    Ok((layout, scan))
}

impl Layout {
    fn new(read: &BlockSet, preload: Preload, pack_blocks: u32) -> Self {
        let mut layout = Self {
            pages: HashMap::new(),
            blocks: 0,
            pack_blocks: u64::from(pack_blocks),
            logged: HashMap::new(),
        };
        for ((volume, page), bits) in read.pages() {
            let bits = match preload {
                Preload::Touched => bits,
                Preload::Pages | Preload::Aged => [u64::MAX; 4],
            };
            let first = FIRST_PVBN + layout.blocks;
            layout.blocks += bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            layout.pages.insert((VolumeId(volume), page), Preloaded { first, bits });
        }
        layout
    }

    fn append(&mut self, log: Log) {
        let first = self.next_pvbn();
        for ((volume, page), places) in log.places {
            let mut map = self.page(volume, page);
            for (entry, place) in (0u16..).zip(places) {
                if let Some(place) = place {
                    map.set(entry, 1, Some(Pvbn(first + place)));
                }
            }
            self.logged.insert((volume, page), map);
        }
        self.blocks += log.next;
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Of all objects.
    pub fn stored_bytes(&self) -> u64 {
        let bytes =
            |blocks: u64| (ObjectDescriptor::encoded_bytes_for(blocks as usize) + blocks as usize * BLOCK_BYTES) as u64;
        let (whole, rest) = (self.blocks / self.pack_blocks, self.blocks % self.pack_blocks);
        whole * bytes(self.pack_blocks) + if rest > 0 { bytes(rest) } else { 0 }
    }

    /// One past the last PVBN.
    pub fn next_pvbn(&self) -> u64 {
        FIRST_PVBN + self.blocks
    }

    #[expect(clippy::disallowed_methods, reason = "the caller changes each page for itself")]
    pub fn pages_of(&self, volume: VolumeId) -> impl Iterator<Item = u64> + '_ {
        let all = self.pages.keys().chain(self.logged.keys());
        let of_volume = all.filter(move |(found, _)| *found == volume);
        of_volume.map(|(_, page)| *page)
    }

    pub fn page(&self, volume: VolumeId, page: u64) -> MapPage {
        if let Some(logged) = self.logged.get(&(volume, page)) {
            return logged.clone();
        }
        let mut map = MapPage::default();
        let Some(Preloaded { first, bits }) = self.pages.get(&(volume, page)) else {
            return map;
        };
        let is_set = |entry: u16| bits[usize::from(entry / 64)] & 1 << (entry % 64) != 0;
        let (mut entry, mut pvbn) = (0, *first);
        while u64::from(entry) < PAGE_ENTRIES {
            let mut end = entry;
            while u64::from(end) < PAGE_ENTRIES && is_set(end) {
                end += 1;
            }
            if end > entry {
                map.set(entry, end - entry, Some(Pvbn(pvbn)));
                pvbn += u64::from(end - entry);
            }
            entry = end + 1;
        }
        map
    }

    /// The object that holds a PVBN, if it is one of these.
    pub fn descriptor(&self, pvbn: Pvbn) -> Option<Arc<ObjectDescriptor>> {
        let index = pvbn.0.checked_sub(FIRST_PVBN).filter(|index| *index < self.blocks)?;
        let start = index - index % self.pack_blocks;
        let end = (start + self.pack_blocks).min(self.blocks);
        let block = |index| {
            let pvbn = Pvbn(FIRST_PVBN + index);
            let fingerprint = contents::fingerprint(contents::of_preloaded(pvbn));
            (pvbn, fingerprint, BLOCK_BYTES as u16, BlockEncoding::Plain)
        };
        Some(Arc::new(ObjectDescriptor::unnamed((start..end).map(block))))
    }
}
