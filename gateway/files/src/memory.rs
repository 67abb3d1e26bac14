//! Storage in memory, for tests: it keeps the changes in order, so that any prefix of them can be made into the storage
//! that a crash would have left; it fails when told to, and answers reads late when told to.
//!
//! A copy by reference is made in two steps, as storage may do it.

use crate::storage::{Entry, MapRun, ReadDone, Storage, StorageError, SyncDone};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tombolo_base::{
    BLOCK_BYTES, BlockSum, ENTRY_KEY_BYTES_MAX, ENTRY_VALUE_BYTES_MAX, EntryChange, FlushMode, MetadataChange, Span,
    VolumeId, is_zero,
};

type Block = Arc<[u8]>;

#[derive(Clone, Debug, Default)]
struct State {
    entries: BTreeMap<Vec<u8>, Arc<[u8]>>,
    counters: BTreeMap<Vec<u8>, i64>,
    blocks: BTreeMap<(VolumeId, u64), Block>,
}

/// One step: all of it or nothing survives a crash.
#[derive(Clone, Debug)]
pub struct Step {
    change: MetadataChange,
    /// Blocks that are written, `None` for those that become holes.
    blocks: Vec<((VolumeId, u64), Option<Block>)>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    steps: Option<Vec<Step>>,
    /// How many of them a sync has covered.
    synced: usize,
    /// Changes until one fails, and how.
    fault: Option<(u64, StorageError)>,
    /// Looks at entries until one fails, and how.
    get_fault: Option<(u64, StorageError)>,
    read_delay: Option<Duration>,
    gets: u64,
    scans: u64,
    commits: u64,
    maps: u64,
}

/// What a piece of work cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Of [`Storage::get`].
    pub gets: u64,
    /// Of [`Storage::scan`].
    pub scans: u64,
    /// Commits, writes and links.
    pub commits: u64,
    /// Of [`Storage::map`].
    pub maps: u64,
}

/// Storage in memory.
#[derive(Debug, Default)]
pub struct MemoryStorage(Mutex<Inner>);

impl MemoryStorage {
    /// Empty, and in order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also keeps every step from now on.
    pub fn recording() -> Self {
        let storage = Self::new();
        storage.inner().steps = Some(Vec::new());
        storage
    }

    /// The storage as a crash after these steps leaves it.
    pub fn replayed(steps: &[Step]) -> Self {
        let storage = Self::new();
        for step in steps {
            storage.inner().state.apply(step);
        }
        storage
    }

    /// What was changed since steps are recorded.
    pub fn steps(&self) -> Vec<Step> {
        self.inner().steps.clone().unwrap_or_default()
    }

    /// Those that a power loss leaves in any case.
    pub fn synced_steps(&self) -> Vec<Step> {
        let inner = self.inner();
        inner.steps.iter().flatten().take(inner.synced).cloned().collect()
    }

    /// The same contents, as after a kill of the process: nothing is lost.
    pub fn copy(&self) -> Self {
        let state = self.inner().state.clone();
        Self(Mutex::new(Inner {
            state,
            ..Inner::default()
        }))
    }

    /// The change after `after` more fails, once.
    pub fn fail_change(&self, after: u64, error: StorageError) {
        self.inner().fault = Some((after, error));
    }

    /// The look at an entry after `after` more fails, once.
    pub fn fail_get(&self, after: u64, error: StorageError) {
        self.inner().get_fault = Some((after, error));
    }

    /// Reads are answered on another thread, so much later.
    pub fn delay_reads(&self, delay: Duration) {
        self.inner().read_delay = Some(delay);
    }

    /// Since it was made.
    pub fn calls(&self) -> Calls {
        let inner = self.inner();
        Calls {
            gets: inner.gets,
            scans: inner.scans,
            commits: inner.commits,
            maps: inner.maps,
        }
    }

    /// Puts an entry behind the service's back.
    pub fn tamper(&self, key: &[u8], value: Option<&[u8]>) {
        let state = &mut self.inner().state;
        match value {
            Some(value) => drop(state.entries.insert(key.to_vec(), value.into())),
            None => drop(state.entries.remove(key)),
        }
    }

    /// Keys of all entries.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.inner().state.entries.keys().cloned().collect()
    }

    /// Blocks that are not holes, of all files.
    pub fn mapped_blocks(&self) -> usize {
        self.inner().state.blocks.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no thread panics while it holds this lock")
    }
}

/// The fault, when its time has come.
fn count_down(fault: &mut Option<(u64, StorageError)>) -> Result<(), StorageError> {
    match fault {
        None => Ok(()),
        Some((0, _)) => fault.take().map_or(Ok(()), |(_, error)| Err(error)),
        Some((after, _)) => {
            *after -= 1;
            Ok(())
        }
    }
}

impl Inner {
    fn make(&mut self, step: Step) -> Result<(), StorageError> {
        self.commits += 1;
        check_sizes(&step.change)?;
        count_down(&mut self.fault)?;
        self.state.apply(&step);
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
        Ok(())
    }
}

fn check_sizes(change: &MetadataChange) -> Result<(), StorageError> {
    for entry in &change.entries {
        let value_bytes = match entry {
            EntryChange::Put { value, .. } => value.len(),
            EntryChange::Delete { .. } | EntryChange::Add { .. } => 0,
        };
        if entry.key().len() > ENTRY_KEY_BYTES_MAX || value_bytes > ENTRY_VALUE_BYTES_MAX {
            return Err(StorageError::Failed("an entry is too long".into()));
        }
    }
    Ok(())
}

impl State {
    fn apply(&mut self, step: &Step) {
        for (place, block) in &step.blocks {
            match block {
                Some(block) => drop(self.blocks.insert(*place, block.clone())),
                None => drop(self.blocks.remove(place)),
            }
        }
        for change in &step.change.entries {
            match change.clone() {
                EntryChange::Put { key, value } => drop(self.entries.insert(key, value.into())),
                EntryChange::Delete { key } => drop(self.entries.remove(&key)),
                EntryChange::Add { key, amount } => *self.counters.entry(key).or_default() += amount,
            }
        }
        for hole in &step.change.holes {
            let range = (hole.volume, hole.first)..(hole.volume, hole.end());
            let mapped: Vec<(VolumeId, u64)> = self.blocks.range(range).map(|(place, _)| *place).collect();
            for place in mapped {
                self.blocks.remove(&place);
            }
        }
    }

    fn read(&self, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.count as usize * BLOCK_BYTES];
        let range = (span.volume, span.first)..(span.volume, span.end());
        for ((_, block), data) in self.blocks.range(range) {
            let at = (block - span.first) as usize * BLOCK_BYTES;
            bytes[at..at + BLOCK_BYTES].copy_from_slice(data);
        }
        bytes
    }

    fn map(&self, span: Span) -> Vec<MapRun> {
        let mut runs: Vec<MapRun> = Vec::new();
        let mut push = |count: u64, mapped: bool| match runs.last_mut() {
            _ if count == 0 => (),
            Some(run) if run.mapped == mapped => run.count += count,
            _ => runs.push(MapRun { count, mapped }),
        };
        let mut at = span.first;
        let end = span.end();
        for (_, block) in self
            .blocks
            .range((span.volume, span.first)..(span.volume, end))
            .map(|(place, _)| *place)
        {
            push(block - at, false);
            push(1, true);
            at = block + 1;
        }
        push(end - at, false);
        runs
    }
}

impl Storage for MemoryStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, StorageError> {
        let mut inner = self.inner();
        inner.gets += 1;
        count_down(&mut inner.get_fault)?;
        Ok(inner.state.entries.get(key).cloned())
    }

    fn scan(&self, from: &[u8], end: &[u8], limit: usize) -> Result<Vec<Entry>, StorageError> {
        let mut inner = self.inner();
        inner.scans += 1;
        let range = (Bound::Included(from), Bound::Excluded(end));
        let found = inner.state.entries.range::<[u8], _>(range).take(limit);
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn counter(&self, key: &[u8]) -> Result<i64, StorageError> {
        Ok(self.inner().state.counters.get(key).copied().unwrap_or(0))
    }

    fn commit(&self, change: MetadataChange) -> Result<(), StorageError> {
        self.inner().make(Step {
            change,
            blocks: Vec::new(),
        })
    }

    fn write(
        &self,
        span: Span,
        data: Bytes,
        sums: Vec<Option<BlockSum>>,
        change: MetadataChange,
    ) -> Result<(), StorageError> {
        if data.len() != span.count as usize * BLOCK_BYTES || sums.len() as u64 != span.count {
            return Err(StorageError::Failed("data and span differ".into()));
        }
        let mut blocks = Vec::new();
        for (index, (bytes, sum)) in data.chunks_exact(BLOCK_BYTES).zip(&sums).enumerate() {
            let expected = (!is_zero(bytes)).then(|| BlockSum::of(bytes));
            if *sum != expected {
                return Err(StorageError::Failed("a wrong sum".into()));
            }
            blocks.push(((span.volume, span.first + index as u64), sum.map(|_| bytes.into())));
        }
        self.inner().make(Step { change, blocks })
    }

    #[expect(clippy::disallowed_methods, reason = "the disk of a test, which may be slow")]
    fn read(&self, _session: u64, span: Span, done: ReadDone) {
        let (bytes, delay) = {
            let inner = self.inner();
            (inner.state.read(span), inner.read_delay)
        };
        match delay {
            None => done(Ok(bytes)),
            Some(delay) => drop(std::thread::spawn(move || {
                std::thread::sleep(delay);
                done(Ok(bytes));
            })),
        }
    }

    fn map(&self, span: Span) -> Result<Vec<MapRun>, StorageError> {
        let mut inner = self.inner();
        inner.maps += 1;
        Ok(inner.state.map(span))
    }

    fn link(&self, from: Span, to: Span, change: MetadataChange) -> Result<(), StorageError> {
        let mut inner = self.inner();
        let block = |index: u64| {
            let data = inner.state.blocks.get(&(from.volume, from.first + index)).cloned();
            ((to.volume, to.first + index), data)
        };
        let first: Vec<_> = (0..from.count / 2).map(block).collect();
        let rest: Vec<_> = (from.count / 2..from.count).map(block).collect();
        inner.make(Step {
            change: MetadataChange::default(),
            blocks: first,
        })?;
        inner.make(Step { change, blocks: rest })
    }

    fn next_mapped(&self, from: u64) -> Result<Option<u64>, StorageError> {
        Ok(self
            .inner()
            .state
            .blocks
            .range((VolumeId::of_inode(from), 0)..)
            .next()
            .and_then(|((volume, _), _)| volume.inode()))
    }

    /// There is no bucket, so nothing is lost with the disk.
    fn sync(&self, _mode: FlushMode, done: SyncDone) {
        {
            let mut inner = self.inner();
            inner.synced = inner.steps.as_ref().map_or(0, Vec::len);
        }
        done(Ok(()));
    }
}
