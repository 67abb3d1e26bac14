//! The journal's writing side: positions, segments, and how far writes and syncs have come. It holds no record.

use crate::format::cache_header::JournalMark;
use crate::format::record::{Batch, Lsn, Record, SEGMENT_HEADER_BYTES, SegmentHeader};
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::WallTime;

/// How long a segment file is made: beyond the size at which a new segment begins, as the last batch may pass it.
pub fn allocated_bytes(segment_bytes: u64) -> u64 {
    segment_bytes + (segment_bytes / 64).max(4096)
}

/// Bytes for the world to write at an offset of a segment file; offset zero means a new segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalWrite {
    /// The number of the file.
    pub segment: u64,
    /// In the file: behind the batch before.
    pub offset: u64,
    /// A batch, with the segment's header before it at offset zero.
    pub bytes: Vec<u8>,
    /// The batch covers `lsn..end`.
    pub lsn: Lsn,
    /// Where the next batch begins.
    pub end: Lsn,
}

#[derive(Debug)]
pub struct Journal {
    identity: u64,
    segment: u64,
    /// Where the next batch goes in the segment; zero: the segment has no header yet.
    segment_offset: u64,
    segment_bytes: u64,
    /// First LSN of each segment that is still needed, the current one included.
    segments: BTreeMap<u64, Lsn>,
    next: Lsn,
    /// Every batch below this has been written to the file.
    written: Lsn,
    /// Batches written beyond a gap: start to end.
    ahead: BTreeMap<Lsn, Lsn>,
    durable: Lsn,
    /// The highest durable LSN that a batch carries.
    told: Lsn,
    /// The latest batch without records: from, to.
    mark: Option<(Lsn, Lsn)>,
    /// No segment from this number on can be begun.
    lacking: Option<u64>,
}

impl Journal {
    /// Continues after recovery (or starts) with a fresh segment; everything below `next` is durable.
    pub fn new(identity: u64, segment: u64, next: Lsn, segment_bytes: u64, older: BTreeMap<u64, Lsn>) -> Self {
        let mut segments = older;
        segments.insert(segment, next);
        Self {
            identity,
            segment,
            segment_offset: 0,
            segment_bytes,
            segments,
            next,
            written: next,
            ahead: BTreeMap::new(),
            durable: next,
            told: next,
            mark: None,
            lacking: None,
        }
    }

    pub fn set_lacking(&mut self, segment: Option<u64>) {
        self.lacking = segment;
    }

    /// The next batch would go to a segment that cannot be begun.
    pub fn is_full(&self) -> bool {
        let next = self.segment + u64::from(self.segment_offset >= self.segment_bytes);
        self.lacking.is_some_and(|lacking| next >= lacking)
    }

    /// A batch without records that carries the durable LSN, if no batch does yet and none is about to: so that
    /// recovery knows that damage below it is damage, not a write that never reached the disk.
    pub fn append_mark(&mut self, time: WallTime) -> Option<JournalWrite> {
        if self.durable != self.next || self.told == self.durable {
            return None;
        }
        let write = self.append(time, Vec::new());
        self.mark = Some((write.lsn, write.end));
        Some(write)
    }

    /// Whether something was written that a sync would make durable; a mark is nothing to be made durable.
    pub fn has_unsynced(&self) -> bool {
        self.durable != self.written && self.mark != Some((self.durable, self.written))
    }

    /// Whether every record appended so far is durable.
    pub fn is_durable(&self) -> bool {
        self.durable == self.next || self.mark == Some((self.durable, self.next))
    }

    pub fn append(&mut self, time: WallTime, records: Vec<Record>) -> JournalWrite {
        if self.segment_offset >= self.segment_bytes {
            self.segment += 1;
            self.segment_offset = 0;
            self.segments.insert(self.segment, self.next);
        }
        let lsn = self.next;
        self.told = self.durable;
        let batch = Batch {
            lsn,
            durable_lsn: self.durable,
            time,
            records,
        }
        .encode(self.identity);
        let end = Lsn(lsn.0 + batch.len() as u64);
        self.next = end;
        let offset = self.segment_offset;
        let bytes = if offset == 0 {
            let header = SegmentHeader {
                segment: self.segment,
                first_lsn: lsn,
                journal_identity: self.identity,
                allocated_bytes: allocated_bytes(self.segment_bytes),
            }
            .encode();
            let mut bytes = Vec::with_capacity(SEGMENT_HEADER_BYTES + batch.len());
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(&batch);
            bytes
        } else {
            batch
        };
        self.segment_offset += bytes.len() as u64;
        JournalWrite {
            segment: self.segment,
            offset,
            bytes,
            lsn,
            end,
        }
    }

    /// Takes note of a finished write and returns the new contiguous end.
    pub fn on_written(&mut self, lsn: Lsn, end: Lsn) -> Lsn {
        assert!(
            self.written <= lsn && lsn < end && end <= self.next,
            "a batch is written once"
        );
        self.ahead.insert(lsn, end);
        while let Some(end) = self.ahead.remove(&self.written) {
            self.written = end;
        }
        self.written
    }

    pub fn on_durable(&mut self, upto: Lsn) {
        assert!(upto <= self.written, "what is durable was written");
        self.durable = self.durable.max(upto);
    }

    /// Forgets segments that lie wholly below `lsn` and returns the lowest that must stay.
    pub fn trim(&mut self, lsn: Lsn) -> u64 {
        let keep = self
            .segments
            .iter()
            .filter(|(_, first)| **first <= lsn)
            .map(|(segment, _)| *segment)
            .next_back();
        let first = self.segments.keys().next().copied();
        let keep = keep.or(first).unwrap_or(self.segment);
        assert!(keep <= self.segment, "the segment that is being written stays");
        self.segments.retain(|segment, _| *segment >= keep);
        keep
    }

    pub fn identity(&self) -> u64 {
        self.identity
    }

    pub fn segment(&self) -> u64 {
        self.segment
    }

    pub fn next(&self) -> Lsn {
        self.next
    }

    /// Behind the last batch with records: a mark behind it may be undone by a crash although nothing was.
    pub fn end_of_records(&self) -> Lsn {
        match self.mark {
            Some((from, to)) if to == self.next => from,
            _ => self.next,
        }
    }

    pub fn written(&self) -> Lsn {
        self.written
    }

    pub fn mark_of_written(&self) -> JournalMark {
        JournalMark {
            segment: self.segment,
            lsn: self.written,
        }
    }

    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Bytes that recovery would have to replay if it started at `lsn`.
    pub fn bytes_since(&self, lsn: Lsn) -> u64 {
        self.next.0 - lsn.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_base::VolumeId;

    const TIME: WallTime = WallTime(0);

    #[test]
    fn segments_roll_over_and_are_trimmed_below_a_checkpoint() {
        let mut journal = Journal::new(1, 10, Lsn(500), 200, BTreeMap::new());
        let mut writes = Vec::new();
        for _ in 0..9 {
            writes.push(journal.append(TIME, vec![Record::Delete { volume: VolumeId(1) }]));
        }
        let length = (writes[1].end.0 - writes[1].lsn.0) as usize;
        assert_eq!(writes[0].offset, 0);
        assert_eq!(writes[0].bytes.len(), SEGMENT_HEADER_BYTES + length);
        assert!(writes.iter().any(|write| write.segment == 12 && write.offset == 0));
        let third = writes.iter().position(|write| write.segment == 12).unwrap();
        assert_eq!(journal.trim(writes[third].lsn), 12);
        assert_eq!(journal.segments.len(), writes.last().unwrap().segment as usize - 11);
    }

    #[test]
    fn the_written_mark_never_passes_a_gap() {
        let mut journal = Journal::new(1, 1, Lsn(0), 1 << 20, BTreeMap::new());
        let writes: Vec<_> = (0..3)
            .map(|_| journal.append(TIME, vec![Record::Delete { volume: VolumeId(1) }]))
            .collect();
        assert_eq!(journal.on_written(writes[1].lsn, writes[1].end), Lsn(0));
        assert_eq!(journal.on_written(writes[0].lsn, writes[0].end), writes[1].end);
        assert_eq!(journal.on_written(writes[2].lsn, writes[2].end), writes[2].end);
    }

    #[test]
    fn a_mark_tells_what_is_durable_once_and_asks_for_no_sync() {
        let mut journal = Journal::new(1, 1, Lsn(0), 1 << 20, BTreeMap::new());
        assert_eq!(journal.append_mark(TIME), None);
        let write = journal.append(TIME, vec![Record::Delete { volume: VolumeId(1) }]);
        journal.on_written(write.lsn, write.end);
        assert!(journal.has_unsynced() && !journal.is_durable());
        assert_eq!(journal.append_mark(TIME), None, "not durable yet");
        journal.on_durable(write.end);
        let mark = journal.append_mark(TIME).unwrap();
        assert_eq!(Batch::decode(&mark.bytes, 1).unwrap().0.durable_lsn, write.end);
        journal.on_written(mark.lsn, mark.end);
        assert!(!journal.has_unsynced() && journal.is_durable());
        assert_eq!(journal.append_mark(TIME), None, "told already");
        let next = journal.append(TIME, vec![Record::Delete { volume: VolumeId(2) }]);
        journal.on_written(next.lsn, next.end);
        assert!(journal.has_unsynced() && !journal.is_durable());
    }
}
