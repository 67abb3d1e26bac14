//! Merges neighbouring runs into one, a few pages at a time. Owns its view of the inputs, so it runs on any thread;
//! nothing changes for lookups until the index adopts the result.

use crate::budget::Grant;
use crate::entry::{ENTRY_BYTES, Entry, prefix};
use crate::page::{PAGE_BYTES, PAGE_ENTRIES};
use crate::run::Run;
use crate::writer::RunWriter;
use crate::{IndexError, PageFault, RunId, RunStorage};
use alloc::{boxed::Box, vec::Vec};

/// A merge under way.
#[must_use = "its inputs are set aside until it is adopted or abandoned"]
pub struct Merge {
    output: RunId,
    /// Newest first, as in the index: of equal keys the first wins.
    inputs: Vec<Cursor>,
    drops_removals: bool,
    grant: Grant,
    entry_count: u64,
    buffer_bytes: usize,
    state: State,
    entries_read: u64,
}

enum State {
    Unstarted,
    Writing(Box<RunWriter>),
    Over,
}

/// A written and synced run, for [`crate::Index::adopt_merge`].
pub struct Merged {
    pub(crate) run: Run,
}

impl Merge {
    /// `inputs` newest first. `drops_removals` when no older run exists in which they could hide an entry.
    pub(crate) fn new(
        output: RunId,
        inputs: Vec<Run>,
        drops_removals: bool,
        grant: Grant,
        buffer_bytes: usize,
    ) -> Self {
        let share_bytes = buffer_bytes / (inputs.len() + 1);
        let entry_count = inputs.iter().map(|run| run.meta.entry_count).sum();
        Self {
            output,
            inputs: inputs.into_iter().map(|run| Cursor::new(run, share_bytes)).collect(),
            drops_removals,
            grant,
            entry_count,
            buffer_bytes: share_bytes,
            state: State::Unstarted,
            entries_read: 0,
        }
    }

    /// The run being written.
    pub fn run(&self) -> RunId {
        self.output
    }

    /// Entries read so far, and in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.entries_read, self.entry_count)
    }

    /// Goes on for about `page_count` input pages (at least one entry); returns the merged run when done.
    ///
    /// After a failure the merge is over: abandon it ([`crate::Index::abandon_merge`]) and plan anew.
    pub fn step<S: RunStorage>(
        &mut self,
        storage: &S,
        page_count: u64,
    ) -> Result<Option<Merged>, IndexError<S::Error>> {
        let mut writer = match core::mem::replace(&mut self.state, State::Over) {
            State::Unstarted => self.start(storage)?,
            State::Writing(writer) => writer,
            State::Over => return Err(IndexError::MergeFailed { run: self.output }),
        };
        let pause_at = self.entries_read + (page_count * PAGE_ENTRIES as u64).max(1);
        while self.entries_read < pause_at {
            let Some(entry) = self.next(storage)? else {
                let run = writer.finish(storage)?;
                return Ok(Some(Merged { run }));
            };
            if !self.drops_removals || entry.target.pvbn().is_some() {
                writer.push(storage, &entry)?;
            }
        }
        self.state = State::Writing(writer);
        Ok(None)
    }

    fn start<S: RunStorage>(&mut self, storage: &S) -> Result<Box<RunWriter>, IndexError<S::Error>> {
        for input in &mut self.inputs {
            input.advance(storage)?;
        }
        let writer = RunWriter::create(storage, self.output, self.grant, self.entry_count, self.buffer_bytes)?;
        Ok(Box::new(writer))
    }

    /// The next key's newest entry; every input moves past that key.
    fn next<S: RunStorage>(&mut self, storage: &S) -> Result<Option<Entry>, IndexError<S::Error>> {
        let mut least: Option<(usize, Head)> = None;
        for (index, input) in self.inputs.iter().enumerate() {
            if let Some(head) = input.head {
                match &least {
                    Some((_, other)) if !head.precedes(other) => {}
                    _ => least = Some((index, head)),
                }
            }
        }
        let Some((first, head)) = least else {
            return Ok(None);
        };
        // Older inputs only: a newer one with this key would have come first.
        for input in &mut self.inputs[first..] {
            if input
                .head
                .is_some_and(|other| other.prefix == head.prefix && other.entry.key == head.entry.key)
            {
                input.advance(storage)?;
                self.entries_read += 1;
            }
        }
        Ok(Some(head.entry))
    }
}

/// The entry that a cursor stands on. The prefix decides nearly every comparison.
#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    entry: Entry,
}

impl Head {
    fn precedes(&self, other: &Self) -> bool {
        self.prefix < other.prefix || (self.prefix == other.prefix && self.entry.key < other.entry.key)
    }
}

/// Reads one run from its first entry to its last.
pub(crate) struct Cursor {
    run: Run,
    /// `None` before the first and after the last entry.
    head: Option<Head>,
    /// Verified pages, read ahead.
    buffer: Vec<u8>,
    buffer_pages_max: u64,
    /// The next page to read from storage.
    page_next: u64,
    /// The place in `buffer` of the page of the next entry, and of that entry in the page.
    page_offset: usize,
    entry_index: usize,
    /// Entries in the page at `page_offset`; zero before the first.
    page_entry_count: usize,
    entries_left: u64,
}

impl Cursor {
    pub fn new(run: Run, buffer_bytes: usize) -> Self {
        Self {
            head: None,
            buffer: Vec::new(),
            buffer_pages_max: (buffer_bytes / PAGE_BYTES).max(1) as u64,
            page_next: 0,
            page_offset: 0,
            entry_index: 0,
            page_entry_count: 0,
            entries_left: run.meta.entry_count,
            run,
        }
    }

    pub fn next<S: RunStorage>(&mut self, storage: &S) -> Result<Option<Entry>, IndexError<S::Error>> {
        self.advance(storage)?;
        Ok(self.head.map(|head| head.entry))
    }

    fn advance<S: RunStorage>(&mut self, storage: &S) -> Result<(), IndexError<S::Error>> {
        if self.entries_left == 0 {
            self.head = None;
            return Ok(());
        }
        if self.entry_index == self.page_entry_count {
            self.turn_page(storage)?;
        }
        let slot = self.page_offset + self.entry_index * ENTRY_BYTES;
        let entry = Entry::read(&self.buffer[slot..slot + ENTRY_BYTES]);
        self.head = Some(Head {
            prefix: prefix(&entry.key),
            entry,
        });
        self.entry_index += 1;
        self.entries_left -= 1;
        Ok(())
    }

    fn turn_page<S: RunStorage>(&mut self, storage: &S) -> Result<(), IndexError<S::Error>> {
        self.page_offset += PAGE_BYTES;
        if self.page_offset >= self.buffer.len() {
            self.fill(storage)?;
        }
        let pages_ahead = ((self.buffer.len() - self.page_offset) / PAGE_BYTES) as u64;
        let number = self.page_next - pages_ahead;
        let page = self
            .run
            .verify(&self.buffer[self.page_offset..][..PAGE_BYTES], number)?;
        if self.head.is_some_and(|head| page.first_key() <= head.entry.key) {
            return Err(IndexError::CorruptPage {
                run: self.run.id(),
                page: number,
                fault: PageFault::Order,
            });
        }
        self.page_entry_count = self.run.meta.page_entry_count(number);
        self.entry_index = 0;
        Ok(())
    }

    fn fill<S: RunStorage>(&mut self, storage: &S) -> Result<(), IndexError<S::Error>> {
        let page_count = self.buffer_pages_max.min(self.run.meta.page_count() - self.page_next);
        self.buffer.resize(page_count as usize * PAGE_BYTES, 0);
        self.run.read_pages(storage, self.page_next, &mut self.buffer)?;
        self.page_next += page_count;
        self.page_offset = 0;
        Ok(())
    }
}
