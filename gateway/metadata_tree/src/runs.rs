//! Maps: runs of blocks of files, and the PVBNs that they have.
//!
//! ```text
//! key   file: varint of the difference to the key before, or to 0
//!       block: varint of the difference to the key before, if that is of the same file, else itself
//! run   length << 3 | is of another file << 2 | has a birth << 1 | is a hole: varint
//!       file, if it is another: varint of the difference to the run before, or to 0
//!       block: varint of the difference to the end of the run before, if that is of the same file, else itself
//!       first PVBN, unless it is a hole: zigzag varint of the difference to the end of the mapped run before, or to 0
//!       birth, if it has one: varint
//! ```
//!
//! Of a random write of one block this is five or six bytes, so the file is left out where it is the same.

use crate::codec::Codec;
use crate::varint;
use alloc::vec::Vec;
use tombolo_base::{DecodeError, Pvbn, Reader, Writer};

/// Blocks are below this: a file of 2^64 bytes has no more.
pub const BLOCKS_MAX: u64 = 1 << 52;

/// A block of a file or volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapKey {
    /// A file's or a volume's number, as of [`tombolo_base::VolumeId`].
    pub file: u64,
    /// Below [`BLOCKS_MAX`].
    pub block: u64,
}

impl MapKey {
    /// Whether there is no key from this one, as an end, to `next`.
    fn is_followed_by(&self, next: &Self) -> bool {
        let is_end_of_file = self.block == BLOCKS_MAX && next.block == 0;
        self == next || (is_end_of_file && self.file.checked_add(1) == Some(next.file))
    }
}

/// What the first block of a run is mapped to; those behind it follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The block's name.
    pub pvbn: Pvbn,
    /// The checkpoint that mapped it, where this does not follow from the PVBN.
    pub birth: Option<u32>,
}

/// Consecutive blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block.
    pub start: MapKey,
    /// How many blocks; at least one.
    pub length: u64,
    /// None for a hole, which takes away what lies below.
    pub target: Option<Target>,
}

impl Run {
    /// The key behind the last block.
    pub fn end(&self) -> MapKey {
        MapKey {
            block: self.start.block.saturating_add(self.length),
            ..self.start
        }
    }

    /// What is left of it from a key in it on.
    fn from(&self, start: MapKey) -> Self {
        self.without_first(start.block - self.start.block)
    }

    /// What is left of it behind some blocks, which are not all.
    pub(crate) fn without_first(&self, count: u64) -> Self {
        let block = self.start.block + count;
        Self {
            start: MapKey { block, ..self.start },
            length: self.length - count,
            target: self.target.map(|target| target.plus(count)),
        }
    }

    /// What is left of it below a key in it.
    fn until(&self, end: MapKey) -> Self {
        Self {
            length: end.block - self.start.block,
            ..*self
        }
    }

    fn is_valid(&self) -> bool {
        let is_in_file = self.start.block < BLOCKS_MAX && self.end().block <= BLOCKS_MAX;
        let has_names = self
            .target
            .is_none_or(|target| target.pvbn.0.checked_add(self.length).is_some());
        self.length > 0 && is_in_file && has_names
    }
}

impl Target {
    fn plus(self, count: u64) -> Self {
        Self {
            pvbn: self.pvbn.plus(count),
            ..self
        }
    }
}

/// Trees of maps.
#[derive(Clone, Copy, Debug)]
pub struct Runs;

/// Where the run before ends, and the PVBN behind it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunPosition {
    end: MapKey,
    pvbn: u64,
}

const RANDOM_RUN_BYTES: u32 = 6;
const HIDDEN_RUNS_MAX: u64 = 16;
const IS_HOLE: u64 = 1;
const HAS_BIRTH: u64 = 2;
const IS_OTHER_FILE: u64 = 4;
const LENGTH_SHIFT: u32 = 3;

fn invalid(what: &'static str, value: u64) -> DecodeError {
    DecodeError::Invalid { what, value }
}

/// Relative to a key or the end of a run.
fn put_block(out: &mut Writer, before: MapKey, key: MapKey) {
    let base = if key.file == before.file { before.block } else { 0 };
    varint::put(out, key.block - base);
}

fn get_block(reader: &mut Reader<'_>, before: MapKey, file_difference: u64) -> Result<MapKey, DecodeError> {
    let file = before.file.checked_add(file_difference);
    let file = file.ok_or(invalid("file", file_difference))?;
    let offset = varint::get(reader, "block")?;
    let base = if file_difference == 0 { before.block } else { 0 };
    match base.checked_add(offset) {
        Some(block) if block < BLOCKS_MAX => Ok(MapKey { file, block }),
        _ => Err(invalid("block", offset)),
    }
}

impl Codec for Runs {
    type Key = MapKey;
    type Record = Run;
    type Value = Target;
    type Position = RunPosition;
    const LEAF_KIND: u8 = 1;

    fn lowest_key() -> MapKey {
        MapKey::default()
    }

    fn put_key(out: &mut Writer, before: Option<&MapKey>, key: &MapKey) {
        let before = before.copied().unwrap_or_default();
        varint::put(out, key.file - before.file);
        put_block(out, before, *key);
    }

    fn get_key(reader: &mut Reader<'_>, before: Option<&MapKey>) -> Result<MapKey, DecodeError> {
        let file_difference = varint::get(reader, "file")?;
        get_block(reader, before.copied().unwrap_or_default(), file_difference)
    }

    fn put_record(out: &mut Writer, position: &mut RunPosition, run: &Run) {
        let file_difference = run.start.file - position.end.file;
        let mut flags = if file_difference > 0 { IS_OTHER_FILE } else { 0 };
        flags |= match run.target {
            None => IS_HOLE,
            Some(target) if target.birth.is_some() => HAS_BIRTH,
            Some(_) => 0,
        };
        varint::put(out, run.length << LENGTH_SHIFT | flags);
        if file_difference > 0 {
            varint::put(out, file_difference);
        }
        put_block(out, position.end, run.start);
        position.end = run.end();
        let Some(target) = run.target else { return };
        varint::put_difference(out, position.pvbn, target.pvbn.0);
        if let Some(birth) = target.birth {
            varint::put(out, birth.into());
        }
        position.pvbn = target.pvbn.0 + run.length;
    }

    fn get_record(reader: &mut Reader<'_>, position: &mut RunPosition) -> Result<Run, DecodeError> {
        let field = varint::get(reader, "run's length")?;
        let has = |flag| field & flag != 0;
        let file_difference = match has(IS_OTHER_FILE) {
            true => varint::get(reader, "file")?,
            false => 0,
        };
        let is_same_file = file_difference == 0;
        if (has(IS_HOLE) && has(HAS_BIRTH)) || has(IS_OTHER_FILE) == is_same_file {
            return Err(invalid("run's flags", field));
        }
        let start = get_block(reader, position.end, file_difference)?;
        let length = field >> LENGTH_SHIFT;
        let mut target = None;
        if !has(IS_HOLE) {
            let pvbn = Pvbn(varint::get_difference(reader, "run's PVBN", position.pvbn)?);
            let birth = match has(HAS_BIRTH) {
                true => Some(varint::get_u32(reader, "run's birth")?),
                false => None,
            };
            target = Some(Target { pvbn, birth });
        }
        let run = Run { start, length, target };
        if !run.is_valid() {
            return Err(invalid("run's length", field));
        }
        position.end = run.end();
        if let Some(target) = target {
            position.pvbn = target.pvbn.0 + length;
        }
        Ok(run)
    }

    fn start(run: &Run) -> MapKey {
        run.start
    }

    fn is_deletion(run: &Run) -> bool {
        run.target.is_none()
    }

    /// Of a random run for each block, but only some: holes to the end of a file mostly hide a small one.
    fn hidden_bytes(run: &Run) -> u32 {
        match run.target {
            Some(_) => 0,
            None => run.length.min(HIDDEN_RUNS_MAX) as u32 * RANDOM_RUN_BYTES,
        }
    }

    fn check(runs: &[Run]) -> Result<(), DecodeError> {
        let mut end = MapKey::default();
        for (index, run) in runs.iter().enumerate() {
            if !run.is_valid() || run.start < end {
                return Err(invalid("index of a run that is too long or out of order", index as u64));
            }
            end = run.end();
        }
        Ok(())
    }

    fn find<'a>(runs: &'a [Run], key: &MapKey) -> Option<&'a Run> {
        let run = runs.get(runs.partition_point(|run| run.end() <= *key))?;
        (run.start <= *key).then_some(run)
    }

    fn value(run: &Run, key: &MapKey) -> Option<Target> {
        run.from(*key).target
    }

    fn lay_over(older: Vec<Run>, newer: Vec<Run>) -> Vec<Run> {
        let mut runs = Vec::with_capacity(older.len() + newer.len());
        let mut rest = older.into_iter();
        let mut current = rest.next();
        for new in newer {
            while let Some(old) = current
                && old.start < new.end()
            {
                if old.start < new.start {
                    push_joined(&mut runs, old.until(old.end().min(new.start)));
                }
                if old.end() > new.end() {
                    current = Some(old.from(new.end()));
                    break;
                }
                current = rest.next();
            }
            push_joined(&mut runs, new);
        }
        for old in current.into_iter().chain(rest) {
            push_joined(&mut runs, old);
        }
        runs
    }

    fn cut(runs: &[Run], low: &MapKey, high: Option<&MapKey>) -> Vec<Run> {
        // An empty range may lie within one run, which would be cut at its end below its start.
        if high.is_some_and(|high| high <= low) {
            return Vec::new();
        }
        let from = runs.partition_point(|run| run.end() <= *low);
        let to = high.map_or(runs.len(), |high| runs.partition_point(|run| run.start < *high));
        let mut part = runs[from..to].to_vec();
        if let Some(first) = part.first_mut()
            && first.start < *low
        {
            *first = first.from(*low);
        }
        if let Some(last) = part.last_mut()
            && let Some(high) = high
            && last.end() > *high
        {
            *last = last.until(*high);
        }
        part
    }

    fn is_within(runs: &[Run], low: &MapKey, high: Option<&MapKey>) -> bool {
        let is_above = runs.first().is_none_or(|run| run.start >= *low);
        is_above && runs.last().is_none_or(|run| high.is_none_or(|high| run.end() <= *high))
    }

    fn covers(runs: &[Run], low: &MapKey, high: Option<&MapKey>) -> bool {
        let Some(high) = high else { return false };
        let mut covered = *low;
        for run in runs {
            if !covered.is_followed_by(&run.start) {
                return false;
            }
            covered = run.end();
        }
        covered.is_followed_by(high)
    }
}

/// Runs that continue each other become one.
fn push_joined(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut()
        && last.end() == run.start
        && last.target.map(|target| target.plus(last.length)) == run.target
    {
        last.length += run.length;
        return;
    }
    runs.push(run);
}

#[cfg(test)]
mod tests;
