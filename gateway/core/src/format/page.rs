//! Pages of the two tables that lie in local metadata: the volume map and the reference counts. A page covers
//! [`PAGE_ENTRIES`] consecutive numbers (blocks of a volume, or PVBNs) as runs; what no run covers is a hole, or a
//! count of zero.
//!
//! ```text
//! per run, 10 bytes, ascending:   start u8 | length - 1 u8 | value u64
//! ```
//! In a map page the value is the PVBN of the run's first entry and rises by one per entry; in a count page it is
//! the same for the whole run.

use alloc::vec::Vec;
use core::fmt::Debug;
use tombolo_base::{DecodeError, Reader, Writer};

/// Entries per page: a full page of single runs stays below what LMDB keeps inside a B-tree leaf.
pub const PAGE_ENTRIES: u64 = 256;

/// How a value changes along a run.
pub trait RunValue: Copy + PartialEq + Debug {
    fn plus(self, count: u64) -> Self;
    fn to_raw(self) -> u64;
    fn from_raw(raw: u64) -> Self;
}

impl RunValue for tombolo_base::Pvbn {
    fn plus(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count))
    }
    fn to_raw(self) -> u64 {
        self.0
    }
    fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// References to one PVBN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct References(pub u64);

impl RunValue for References {
    fn plus(self, _count: u64) -> Self {
        self
    }
    fn to_raw(self) -> u64 {
        self.0
    }
    fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run<V> {
    start: u16,
    length: u16,
    value: V,
}

/// One decoded page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<V> {
    runs: Vec<Run<V>>,
}

/// What [`PAGE_ENTRIES`] blocks of a volume map to; no value is a hole.
pub type MapPage = Page<tombolo_base::Pvbn>;
pub type CountPage = Page<References>;

impl<V> Default for Page<V> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<V: RunValue> Page<V> {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of memory, roughly.
    pub fn weight_bytes(&self) -> usize {
        64 + self.runs.len() * size_of::<Run<V>>()
    }

    /// The value at `entry`, and for how many entries from there on the same run goes; `None` with the distance to
    /// the next run where nothing is mapped.
    pub fn get(&self, entry: u16) -> (Option<V>, u16) {
        let index = self.runs.partition_point(|run| run.start + run.length <= entry);
        match self.runs.get(index) {
            Some(run) if run.start <= entry => {
                let skipped = entry - run.start;
                (Some(run.value.plus(u64::from(skipped))), run.length - skipped)
            }
            Some(run) => (None, run.start - entry),
            None => (None, PAGE_ENTRIES as u16 - entry),
        }
    }

    /// Sets `length` entries from `start` on.
    pub fn set(&mut self, start: u16, length: u16, value: Option<V>) {
        debug_assert!(length > 0 && u64::from(start + length) <= PAGE_ENTRIES);
        let end = start + length;
        let mut runs: Vec<Run<V>> = Vec::with_capacity(self.runs.len() + 2);
        let mut inserted = value.map(|value| Run { start, length, value });
        for run in &self.runs {
            let run_end = run.start + run.length;
            if run.start < start {
                push_joined(
                    &mut runs,
                    Run {
                        length: run_end.min(start) - run.start,
                        ..*run
                    },
                );
            }
            if run_end > end {
                if let Some(new) = inserted.take() {
                    push_joined(&mut runs, new);
                }
                let from = run.start.max(end);
                let value = run.value.plus(u64::from(from - run.start));
                push_joined(
                    &mut runs,
                    Run {
                        start: from,
                        length: run_end - from,
                        value,
                    },
                );
            }
        }
        if let Some(new) = inserted {
            push_joined(&mut runs, new);
        }
        self.runs = runs;
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(self.runs.len() * 10);
        for run in &self.runs {
            out.u8(run.start as u8)
                .u8((run.length - 1) as u8)
                .u64(run.value.to_raw());
        }
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut runs: Vec<Run<V>> = Vec::with_capacity(bytes.len() / 10);
        while reader.remaining() > 0 {
            let start = u16::from(reader.u8("page run start")?);
            let length = u16::from(reader.u8("page run length")?) + 1;
            let value = V::from_raw(reader.u64("page run value")?);
            let floor = runs.last().map_or(0, |run| run.start + run.length);
            if start < floor || u64::from(start + length) > PAGE_ENTRIES {
                return Err(DecodeError::Invalid {
                    what: "page run",
                    value: u64::from(start),
                });
            }
            runs.push(Run { start, length, value });
        }
        Ok(Self { runs })
    }
}

fn push_joined<V: RunValue>(runs: &mut Vec<Run<V>>, run: Run<V>) {
    if let Some(last) = runs.last_mut()
        && last.start + last.length == run.start
        && last.value.plus(u64::from(last.length)) == run.value
    {
        last.length += run.length;
        return;
    }
    runs.push(run);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tombolo_base::Pvbn;

    fn decoded(runs: &[(u8, u8)]) -> Result<MapPage, DecodeError> {
        let mut out = Writer::default();
        for (start, last) in runs {
            out.u8(*start).u8(last - start).u64(7);
        }
        MapPage::decode(&out.0)
    }

    #[test]
    fn runs_that_overlap_or_go_down_are_refused() {
        assert!(decoded(&[(0, 9), (10, 19), (30, 30)]).is_ok());
        for runs in [[(0, 9), (9, 12)], [(20, 29), (0, 9)], [(5, 5), (5, 5)]] {
            assert!(decoded(&runs).is_err(), "{runs:?}");
        }
    }

    #[test]
    fn runs_that_leave_the_page_are_refused() {
        assert!(decoded(&[(0, 255)]).is_ok());
        assert!(decoded(&[(200, 255)]).is_ok());
        let mut out = Writer::default();
        out.u8(200).u8(56).u64(7);
        assert!(MapPage::decode(&out.0).is_err());
    }

    proptest! {
        #[test]
        fn equals_an_array(sets in prop::collection::vec((0u16..256, 1u16..80, prop::option::of(0u64..500)), 0..40)) {
            let mut page = MapPage::default();
            let mut model = [None; PAGE_ENTRIES as usize];
            for (start, length, value) in sets {
                let length = length.min(256 - start);
                page.set(start, length, value.map(Pvbn));
                for index in 0..length {
                    model[usize::from(start + index)] = value.map(|value| Pvbn(value + u64::from(index)));
                }
            }
            let decoded = MapPage::decode(&page.encode()).unwrap();
            prop_assert_eq!(&decoded, &page);
            for (entry, expected) in model.iter().enumerate() {
                let (found, run) = page.get(entry as u16);
                prop_assert_eq!(found, *expected);
                prop_assert!(run >= 1 && entry + usize::from(run) <= 256);
                for further in 0..usize::from(run) {
                    prop_assert_eq!(model[entry + further], found.map(|pvbn| pvbn.plus(further as u64)));
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = CountPage::decode(&bytes);
        }
    }
}
