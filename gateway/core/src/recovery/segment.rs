//! Segments of the journal as they are found on the disk: their batches, and what stopped the reading of them.

use crate::format::record::{Batch, Lsn, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::recovery::disk::LocalDisk;
use crate::recovery::error::RecoveryError;
use alloc::collections::BTreeMap;
use tombolo_base::{DecodeError, WallTime};

/// What a first look through a segment finds. Its batches are read again when they are wanted, so that memory holds
/// one segment at a time.
pub struct Segment {
    pub header: SegmentHeader,
    /// LSN behind the last readable batch.
    pub end: Lsn,
    pub batches: u64,
    /// When the last of them was made.
    pub last_time: WallTime,
    /// What stopped the reading, where, and how many bytes follow.
    pub stopped: Option<(DecodeError, u64, u64)>,
    /// The highest durable LSN that any intact batch names, even beyond the damage.
    pub durable: Lsn,
}

pub fn read_segments<E>(
    disk: &impl LocalDisk,
    superblock: &Superblock,
) -> Result<BTreeMap<u64, Result<Segment, DecodeError>>, RecoveryError<E>> {
    let mut segments = BTreeMap::new();
    for number in disk.segments().map_err(RecoveryError::Disk)? {
        let bytes = disk.read_segment(number).map_err(RecoveryError::Disk)?;
        let segment = read_segment(&bytes, number, superblock.journal_identity);
        if let Ok(Segment { header, .. }) = &segment
            && number >= superblock.segment
            && (bytes.len() as u64) < header.allocated_bytes
        {
            return Err(RecoveryError::JournalCut {
                segment: number,
                found: bytes.len() as u64,
                allocated: header.allocated_bytes,
            });
        }
        segments.insert(number, segment);
    }
    Ok(segments)
}

pub fn read_segment(bytes: &[u8], number: u64, identity: u64) -> Result<Segment, DecodeError> {
    let header = SegmentHeader::decode(bytes)?;
    if header.segment != number {
        return Err(DecodeError::Invalid {
            what: "segment number",
            value: header.segment,
        });
    }
    if header.journal_identity != identity {
        return Err(DecodeError::Invalid {
            what: "segment journal identity",
            value: header.journal_identity,
        });
    }
    let mut segment = Segment {
        end: header.first_lsn,
        batches: 0,
        last_time: WallTime(0),
        stopped: None,
        durable: Lsn(0),
        header,
    };
    let mut batches = Batches::new(bytes, &segment.header);
    for found in &mut batches {
        segment.end = found.end;
        segment.batches += 1;
        segment.last_time = found.batch.time;
        segment.durable = segment.durable.max(found.batch.durable_lsn);
    }
    if let (offset, Some(error)) = (batches.offset, batches.error) {
        segment.stop(error, bytes, offset);
    }
    Ok(segment)
}

impl Segment {
    pub fn stop(&mut self, error: DecodeError, bytes: &[u8], offset: usize) {
        let rest = &bytes[offset..];
        // Preallocated space is zero: that is the ordinary end.
        let Some(last) = rest.iter().rposition(|byte| *byte != 0) else {
            return;
        };
        self.stopped = Some((error, offset as u64, last as u64 + 1));
        // Look for intact batches beyond the damage: they may say that the damaged part was durable.
        let identity = self.header.journal_identity;
        let mut at = 1;
        while at + crate::format::record::BATCH_HEADER_BYTES <= rest.len() {
            if rest[at..].starts_with(b"TJB1")
                && let Ok((batch, length)) = Batch::decode(&rest[at..], identity)
                && batch.lsn >= self.end
            {
                self.durable = self.durable.max(batch.durable_lsn);
                at += length;
            } else {
                at += 1;
            }
        }
    }
}

/// A batch of a segment, and where it lies.
pub struct Found {
    pub batch: Batch,
    pub end: Lsn,
    pub place: Place,
}

#[derive(Clone, Copy)]
pub struct Place {
    pub segment: u64,
    pub offset: u64,
    pub lsn: Lsn,
}

/// A segment's batches one after another, up to the first that cannot be read.
pub struct Batches<'b> {
    pub bytes: &'b [u8],
    pub segment: u64,
    pub identity: u64,
    pub offset: usize,
    pub next: Lsn,
    /// What ended it before the end of the bytes.
    pub error: Option<DecodeError>,
}

impl<'b> Batches<'b> {
    pub fn new(bytes: &'b [u8], header: &SegmentHeader) -> Self {
        Self {
            bytes,
            segment: header.segment,
            identity: header.journal_identity,
            offset: SEGMENT_HEADER_BYTES,
            next: header.first_lsn,
            error: None,
        }
    }
}

impl Iterator for Batches<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if self.offset >= self.bytes.len() || self.error.is_some() {
            return None;
        }
        match Batch::decode(&self.bytes[self.offset..], self.identity) {
            Ok((batch, length)) if batch.lsn == self.next => {
                let place = Place {
                    segment: self.segment,
                    offset: self.offset as u64,
                    lsn: batch.lsn,
                };
                self.next = Lsn(batch.lsn.0 + length as u64);
                self.offset += length;
                Some(Found {
                    batch,
                    end: self.next,
                    place,
                })
            }
            Ok((batch, _)) => {
                self.error = Some(DecodeError::Invalid {
                    what: "batch LSN",
                    value: batch.lsn.0,
                });
                None
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}
