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
    pub entries: Entries,
}

/// Everything that changed between two checkpoints.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    pub superblock: Superblock,
    pub map: ExtentMap,
    pub objects: BTreeMap<u64, Arc<ObjectDescriptor>>,
    pub entries: Entries,
    pub slot_pages: Vec<(u32, Vec<u8>)>,
}
