//! Writes one run from entries in ascending order, in one pass and constant memory: pages and footer to one file,
//! filter and fence to the other. Only the fence, 8 bytes per page or fewer, accumulates, for the run needs it next.

use crate::budget::{Grant, page_count};
use crate::entry::{ENTRY_BYTES, Entry, Target, prefix};
use crate::fence::{Fence, POST_BYTES, post_count};
use crate::filter::FilterWriter;
use crate::page::{self, PAGE_BYTES, PAGE_ENTRIES};
use crate::run::{Run, RunMeta};
use crate::{IndexError, RunFile, RunId, RunPart, RunStorage};
use alloc::vec::Vec;
use xxhash_rust::xxh3::Xxh3;

/// Gathers small appends into large ones.
struct AppendBuffer {
    file: RunFile,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl AppendBuffer {
    fn create<S: RunStorage>(storage: &S, file: RunFile, bytes_max: usize) -> Result<Self, IndexError<S::Error>> {
        storage
            .create(file)
            .map_err(IndexError::storage(file, "create the file"))?;
        Ok(Self {
            file,
            bytes: Vec::with_capacity(bytes_max),
            bytes_max,
        })
    }

    fn push<S: RunStorage>(&mut self, storage: &S, bytes: &[u8]) -> Result<(), IndexError<S::Error>> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.drain(storage)?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn drain<S: RunStorage>(&mut self, storage: &S) -> Result<(), IndexError<S::Error>> {
        storage
            .append(self.file, &self.bytes)
            .map_err(IndexError::storage(self.file, "append"))?;
        self.bytes.clear();
        Ok(())
    }

    fn sync<S: RunStorage>(&mut self, storage: &S) -> Result<(), IndexError<S::Error>> {
        self.drain(storage)?;
        storage.sync(self.file).map_err(IndexError::storage(self.file, "sync"))
    }
}

pub(crate) struct RunWriter {
    run: RunId,
    grant: Grant,
    entries: AppendBuffer,
    guide: AppendBuffer,
    /// The page being filled.
    page: Vec<u8>,
    page_entry_count: usize,
    pages_done: u64,
    entry_count: u64,
    removed_count: u64,
    filter: FilterWriter,
    filter_sum: Xxh3,
    posts: Vec<u64>,
}

impl RunWriter {
    /// `entry_count_max` is what the grant was made for. Buffers take about `buffer_bytes`.
    pub fn create<S: RunStorage>(
        storage: &S,
        run: RunId,
        grant: Grant,
        entry_count_max: u64,
        buffer_bytes: usize,
    ) -> Result<Self, IndexError<S::Error>> {
        let buffer_bytes = (buffer_bytes / 2).max(PAGE_BYTES);
        let part = |part| RunFile { run, part };
        let post_count_max = post_count(page_count(entry_count_max), grant.fence_stride);
        Ok(Self {
            run,
            grant,
            entries: AppendBuffer::create(storage, part(RunPart::Entries), buffer_bytes)?,
            guide: AppendBuffer::create(storage, part(RunPart::Guide), buffer_bytes)?,
            page: alloc::vec![0; PAGE_BYTES],
            page_entry_count: 0,
            pages_done: 0,
            entry_count: 0,
            removed_count: 0,
            filter: FilterWriter::new(grant.filter),
            filter_sum: Xxh3::new(),
            posts: Vec::with_capacity(post_count_max as usize),
        })
    }

    pub fn push<S: RunStorage>(&mut self, storage: &S, entry: &Entry) -> Result<(), IndexError<S::Error>> {
        while let Some(block) = self.filter.finished_before(&entry.key) {
            self.push_block(storage, &block)?;
        }
        self.filter.insert(&entry.key);
        if self.page_entry_count == 0 && self.pages_done.is_multiple_of(self.grant.fence_stride) {
            self.posts.push(prefix(&entry.key));
        }
        entry.write(&mut self.page[self.page_entry_count * ENTRY_BYTES..][..ENTRY_BYTES]);
        self.page_entry_count += 1;
        self.entry_count += 1;
        self.removed_count += u64::from(entry.target == Target::REMOVED);
        if self.page_entry_count == PAGE_ENTRIES {
            self.push_page(storage)?;
        }
        Ok(())
    }

    /// Syncs both files; the run is durable once a manifest that names it is.
    pub fn finish<S: RunStorage>(mut self, storage: &S) -> Result<Run, IndexError<S::Error>> {
        if self.page_entry_count > 0 {
            self.push_page(storage)?;
        }
        while let Some(block) = self.filter.finished() {
            self.push_block(storage, &block)?;
        }
        let mut fence_sum = Xxh3::new();
        for post in &self.posts {
            let bytes: [u8; POST_BYTES] = post.to_le_bytes();
            fence_sum.update(&bytes);
            self.guide.push(storage, &bytes)?;
        }
        self.guide.sync(storage)?;
        let meta = RunMeta {
            run: self.run,
            entry_count: self.entry_count,
            removed_count: self.removed_count,
            filter: self.grant.filter,
            fence_stride: self.grant.fence_stride,
            filter_sum: self.filter_sum.digest(),
            fence_sum: fence_sum.digest(),
        };
        self.entries.push(storage, &meta.encode())?;
        self.entries.sync(storage)?;
        self.posts.shrink_to_fit();
        let fence = Fence::new(self.grant.fence_stride, self.pages_done, self.posts);
        Ok(Run::new(meta, fence))
    }

    fn push_block<S: RunStorage>(&mut self, storage: &S, block: &[u8]) -> Result<(), IndexError<S::Error>> {
        self.filter_sum.update(block);
        self.guide.push(storage, block)
    }

    fn push_page<S: RunStorage>(&mut self, storage: &S) -> Result<(), IndexError<S::Error>> {
        page::seal(&mut self.page, self.run, self.pages_done, self.page_entry_count);
        self.entries.push(storage, &self.page)?;
        self.page.fill(0);
        self.page_entry_count = 0;
        self.pages_done += 1;
        Ok(())
    }
}
