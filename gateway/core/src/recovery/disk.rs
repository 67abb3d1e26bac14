//! The local disk as recovery reads it.

use crate::format::cache_header::JournalMark;
use alloc::{format, string::String, vec::Vec};
use tombolo_base::{BlockSum, Lcbn};

/// The local disk as recovery reads it: what the medium holds. Linux keeps pages that it could not write, as if it had,
/// so what was read through them would be called durable and vanish later: such pages MUST be dropped first.
pub trait LocalDisk {
    /// Segment numbers found, in any order.
    fn segments(&self) -> Result<Vec<u64>, String>;
    /// The whole file, room that was allocated ahead included.
    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String>;
    /// The first bytes of the cache file ([`crate::cache_header`]); `None`: there is none, so no slot holds anything.
    fn cache_header(&self) -> Result<Option<Vec<u8>>, String>;
    /// How far data was flushed, as that is noted outside of the cache file too ([`crate::cache_header::decode_marks`]).
    fn noted_beside(&self, _identity: u64) -> JournalMark {
        JournalMark::default()
    }
    /// Sum of the bytes in a slot.
    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String>;
}

/// The local disk of a gateway that starts for the first time.
pub struct NewDisk;

impl LocalDisk for NewDisk {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok(Vec::new())
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        Err(format!("there is no segment {segment}"))
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Err(format!("nothing is in slot {}", slot.0))
    }
}
