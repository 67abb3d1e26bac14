//! Redirects: blocks that get the name of a block of the same contents which is in the cloud.

use crate::core_state::Core;
use crate::format::record::Record;
use crate::state::dirty::DirtyBlock;
use crate::state::slot_transitions::SlotTransition;
use alloc::vec::Vec;
use tombolo_base::{Pvbn, VolumeId};

/// Redirects of consecutive blocks to consecutive targets share a record.
#[derive(Default)]
pub(crate) struct Redirects {
    pub records: Vec<Record>,
    pub blocks: usize,
}

impl Redirects {
    pub fn add(&mut self, volume: VolumeId, block: u64, from: Pvbn, to: Pvbn) {
        assert_ne!(from, to, "a block is not redirected to itself");
        self.blocks += 1;
        if let Some(Record::Redirect {
            volume: last_volume,
            first,
            count,
            from: last_from,
            to: last_to,
        }) = self.records.last_mut()
        {
            let length = u64::from(*count);
            if *last_volume == volume
                && *first + length == block
                && last_from.plus(length) == from
                && last_to.plus(length) == to
            {
                *count += 1;
                return;
            }
        }
        self.records.push(Record::Redirect {
            volume,
            first: block,
            count: 1,
            from,
            to,
        });
    }
}

impl Core {
    /// Redirects of followers that are still mapped, and those that are not.
    pub(crate) fn redirect_followers(
        &mut self,
        followers: impl IntoIterator<Item = (Pvbn, Pvbn)>,
    ) -> (Vec<Record>, Vec<DirtyBlock>) {
        let (mut redirects, mut dead) = (Redirects::default(), Vec::new());
        for (follower, to) in followers {
            self.end_wait_of_follower();
            match self.dirty.find(follower).copied() {
                Some(block) if self.dirty.is_live(&block) => {
                    self.totals.blocks_duplicate += 1;
                    redirects.add(block.volume, block.block, block.pvbn, to);
                }
                Some(block) => {
                    self.unpublished
                        .redirect_frozen(block.volume, block.block, block.pvbn, to);
                    dead.push(block);
                }
                None => {}
            }
        }
        (redirects.records, dead)
    }

    /// Journals the records; the blocks that nothing maps to any more go with them.
    pub(crate) fn commit_redirects(
        &mut self,
        records: Vec<Record>,
        dead: Vec<DirtyBlock>,
    ) -> crate::format::record::Lsn {
        let end = if records.is_empty() {
            self.journal.next()
        } else {
            self.commit(records)
        };
        for block in dead {
            self.dirty.remove(block.pvbn);
            self.slots.retire(block.slot);
            self.transition_at(end, block.slot, SlotTransition::Free);
        }
        end
    }

    /// What they wait for will not come: they are hashed again.
    pub(crate) fn requeue_followers(&mut self, followers: impl IntoIterator<Item = Pvbn>) {
        for follower in followers {
            self.end_wait_of_follower();
            self.dirty.requeue(follower);
        }
    }

    fn end_wait_of_follower(&mut self) {
        assert!(self.flush.follower_count > 0, "it was counted when it began to wait");
        self.flush.follower_count -= 1;
    }
}
