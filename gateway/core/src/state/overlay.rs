//! What has changed since the last checkpoint, in memory, and the same frozen while a checkpoint merges it.

use crate::format::superblock::Superblock;
use crate::state::entry_overlay::Entries;
use crate::state::extent_map::ExtentMap;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_base::ObjectDescriptor;

/// Changes since the last checkpoint; reads look here before local metadata.
#[derive(Debug, Default)]
pub struct Overlay {
    pub map: ExtentMap,
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    /// Of all `objects`.
    pub object_blocks: usize,
    pub entries: Entries,
}

/// Everything that changed between two checkpoints.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    /// How things stand at the end of it. Its LSN is where the next life's replay begins.
    pub superblock: Superblock,
    /// What blocks map to, where that has changed.
    pub map: ExtentMap,
    /// Objects that were confirmed, by their first PVBN.
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    /// Changed entries and counters.
    pub entries: Entries,
    /// Pages of slots that have changed: number, and the page as it is stored.
    pub slot_pages: Vec<(u32, Vec<u8>)>,
}
