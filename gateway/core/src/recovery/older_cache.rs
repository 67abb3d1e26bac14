//! Is the cache file as new as local metadata and the journal are?
//!
//! What it notes of the journal comes with each sync, so a copy of the file notes what was flushed when it was made. Less than
//! local metadata or the journal says was flushed is either an older copy, or a note that a power loss has taken. Which of the
//! two is told by the blocks themselves: those that were flushed since the note are in the file, or it is an older one.

use crate::core_state::Core;
use crate::format::record::{Lsn, Record};
use crate::recovery::disk::LocalDisk;
use crate::recovery::error::RecoveryError;
use crate::state::dirty::DirtyBlock;
use alloc::vec::Vec;
use tombolo_base::Pvbn;

pub struct CacheAge {
    noted: Lsn,
    durable: Lsn,
    /// The note is older than the checkpoint, of whose blocks nobody knows when they were written.
    is_behind_checkpoint: bool,
    /// What the journal's tail has written that was flushed after the note.
    written_since: Vec<(Pvbn, u64)>,
}

impl CacheAge {
    pub fn new(noted: Lsn, checkpoint: Lsn, durable: Lsn) -> Self {
        Self {
            noted,
            durable,
            is_behind_checkpoint: noted < checkpoint,
            written_since: Vec::new(),
        }
    }

    /// Takes the next record that is replayed, of the batch there.
    pub fn note(&mut self, batch: Lsn, record: &Record) {
        if let Record::Write { pvbn, sums, .. } = record
            && (self.noted..self.durable).contains(&batch)
        {
            self.written_since.push((*pvbn, sums.len() as u64));
        }
    }

    /// Of the blocks that are dirty when all is replayed. One that cannot be read says nothing of the others.
    pub fn check<E>(&self, core: &Core, disk: &impl LocalDisk) -> Result<(), RecoveryError<E>> {
        let is_absent = |block: &DirtyBlock| {
            let sum = core.slots.sum(block.slot);
            disk.sum_slot(block.slot).is_ok_and(|found| found != sum)
        };
        let is_older = match self.is_behind_checkpoint {
            true => core.dirty.live_blocks().any(is_absent),
            false => self.written_since.iter().any(|(first, count)| {
                let written = (0..*count).filter_map(|offset| core.dirty.find(first.plus(offset)));
                written.filter(|block| core.dirty.is_live(block)).any(is_absent)
            }),
        };
        let (noted, durable) = (self.noted, self.durable);
        match is_older {
            true => Err(RecoveryError::CacheOlder { noted, durable }),
            false => Ok(()),
        }
    }
}
