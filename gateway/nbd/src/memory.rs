//! A sparse export in memory: for tests, fuzzing and measurements of the server itself. Every request is answered
//! inline, so what is measured is the protocol.

use crate::{Answer, Completion, Export, ExportInfo, Exports, Extent, OpenError, Request};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// The unit of allocation.
pub const PAGE_BYTES: usize = 32 * 1024;
/// Pages are spread over locks so that connections rarely meet.
const SHARDS: usize = 64;

type Page = Box<[u8]>;
type Shard = RwLock<HashMap<u64, Page>>;

/// The bytes of one export; clones share them.
#[derive(Clone)]
pub struct MemoryDisk {
    shards: Arc<[Shard; SHARDS]>,
    size_bytes: Arc<AtomicU64>,
    read_only: bool,
}

/// The part of a request that lies in one page.
struct Part {
    page: u64,
    within: Range<usize>,
    /// Where the part lies in the request's data.
    data: Range<usize>,
}

impl MemoryDisk {
    /// All zeroes.
    pub fn new(size_bytes: u64, read_only: bool) -> Self {
        Self {
            shards: Arc::new(std::array::from_fn(|_| Shard::default())),
            size_bytes: Arc::new(AtomicU64::new(size_bytes)),
            read_only,
        }
    }

    /// Clients see it when they connect anew.
    pub fn resize(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::SeqCst);
    }

    fn shard(&self, page: u64) -> &Shard {
        &self.shards[page as usize % SHARDS]
    }

    fn parts(offset: u64, length: usize) -> impl Iterator<Item = Part> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let at = offset + done as u64;
            let start = (at % PAGE_BYTES as u64) as usize;
            let count = (PAGE_BYTES - start).min(length - done);
            let part = Part {
                page: at / PAGE_BYTES as u64,
                within: start..start + count,
                data: done..done + count,
            };
            done += count;
            Some(part)
        })
    }

    /// Zeroes where nothing was written.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(length);
        for part in Self::parts(offset, length) {
            match self.shard(part.page).read().expect("no writer panics").get(&part.page) {
                Some(page) => data.extend_from_slice(&page[part.within]),
                None => data.resize(part.data.end, 0),
            }
        }
        data
    }

    /// Answered at once.
    pub fn write(&self, offset: u64, data: &[u8]) {
        for part in Self::parts(offset, data.len()) {
            self.with_page(part.page, |page| page[part.within].copy_from_slice(&data[part.data]));
        }
    }

    fn with_page(&self, page: u64, change: impl FnOnce(&mut [u8])) {
        let mut shard = self.shard(page).write().expect("no writer panics");
        change(
            shard
                .entry(page)
                .or_insert_with(|| vec![0; PAGE_BYTES].into_boxed_slice()),
        );
    }

    /// Whole pages are given up unless they are to stay allocated.
    fn zero(&self, offset: u64, length: usize, allocate: bool) {
        for part in Self::parts(offset, length) {
            if allocate {
                self.with_page(part.page, |page| page[part.within].fill(0));
                continue;
            }
            let mut shard = self.shard(part.page).write().expect("no writer panics");
            if part.within.len() == PAGE_BYTES {
                shard.remove(&part.page);
            } else if let Some(page) = shard.get_mut(&part.page) {
                page[part.within].fill(0);
            }
        }
    }

    fn extents(&self, offset: u64, length: u32) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for part in Self::parts(offset, length as usize) {
            let shard = self.shard(part.page).read().expect("no writer panics");
            let hole = !shard.contains_key(&part.page);
            let length = part.within.len() as u32;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += length,
                _ => extents.push(Extent {
                    length,
                    hole,
                    zero: hole,
                }),
            }
        }
        extents
    }

    fn carry_out(&self, request: Request) -> Answer {
        match request {
            Request::Read { offset, length } => return Answer::Data(self.read(offset, length as usize)),
            Request::Write { offset, data, .. } => self.write(offset, &data),
            Request::Flush => {}
            Request::Trim { offset, length, .. } => self.zero(offset, length as usize, false),
            Request::WriteZeroes {
                offset,
                length,
                no_hole,
                ..
            } => self.zero(offset, length as usize, no_hole),
            Request::BlockStatus { offset, length, .. } => {
                return Answer::Extents(self.extents(offset, length));
            }
        }
        Answer::Done
    }
}

impl Export for MemoryDisk {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: self.size_bytes.load(Ordering::SeqCst),
            read_only: self.read_only,
            description: "sparse memory".into(),
        }
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(Ok(self.carry_out(request)));
    }
}

/// Named disks. The first one is also the default export, with the empty name.
pub struct MemoryExports(pub Vec<(String, MemoryDisk)>);

impl MemoryExports {
    fn find(&self, name: &str) -> Result<&MemoryDisk, OpenError> {
        let mut disks = self.0.iter();
        let found = match name {
            "" => disks.next(),
            _ => disks.find(|(own, _)| own == name),
        };
        found
            .map(|(_, disk)| disk)
            .ok_or_else(|| OpenError::NotFound { name: name.into() })
    }
}

impl Exports for MemoryExports {
    fn list(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn describe(&self, name: &str) -> Result<ExportInfo, OpenError> {
        Ok(self.find(name)?.info())
    }

    fn open(&self, name: &str) -> Result<Box<dyn Export>, OpenError> {
        Ok(Box::new(self.find(name)?.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 4 * PAGE_BYTES;

    proptest! {
        /// Against a plain vector: what is read is what was written, and nothing reported as zero is not.
        #[test]
        fn behaves_as_a_vector_does(operations in prop::collection::vec(
            (0u8..3, 0..SIZE, 1..SIZE, any::<u8>(), any::<bool>()), 1..12)
        ) {
            let disk = MemoryDisk::new(SIZE as u64, false);
            let mut model = vec![0u8; SIZE];
            for (operation, offset, length, fill, no_hole) in operations {
                let length = length.min(SIZE - offset);
                match operation {
                    0 => {
                        disk.write(offset as u64, &vec![fill; length]);
                        model[offset..offset + length].fill(fill);
                    }
                    _ => {
                        disk.zero(offset as u64, length, no_hole);
                        model[offset..offset + length].fill(0);
                    }
                }
                prop_assert_eq!(&disk.read(0, SIZE), &model);
                let mut at = 0;
                for extent in disk.extents(0, SIZE as u32) {
                    let end = at + extent.length as usize;
                    prop_assert!(!extent.zero || model[at..end].iter().all(|byte| *byte == 0));
                    at = end;
                }
                prop_assert_eq!(at, SIZE);
            }
        }
    }
}
