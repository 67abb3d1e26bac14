//! Slots that change their state once the journal is durable up to a position.

use crate::format::record::Lsn;
use alloc::collections::VecDeque;
use tombolo_base::{Lcbn, Pvbn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotTransition {
    /// The block was written at this address and is in this object.
    Clean {
        address: u64,
        object: Pvbn,
    },
    Free,
}

#[derive(Debug, Default)]
pub struct SlotTransitions {
    pub queue: VecDeque<(Lsn, Lcbn, SlotTransition)>,
    /// How many of them may still be made in this step.
    pub left_in_step: u64,
}
