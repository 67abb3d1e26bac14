//! Data of the core's: what it holds, and no step of it.

pub(crate) mod ages;
pub(crate) mod candidate;
pub(crate) mod checkpoints;
pub(crate) mod dirty;
pub(crate) mod entry_overlay;
pub(crate) mod extent_map;
pub(crate) mod fetches;
pub(crate) mod flush_pipeline;
pub(crate) mod group_commit;
pub(crate) mod journal;
pub(crate) mod lost_blocks;
pub(crate) mod metadata_loads;
pub(crate) mod overlay;
pub(crate) mod partial_writes;
pub(crate) mod policy_counters;
pub(crate) mod prefetch_state;
pub(crate) mod prefetched;
pub(crate) mod pvbn_index;
pub(crate) mod reads;
pub(crate) mod slot_transitions;
pub(crate) mod slots;
pub(crate) mod unreadable;
pub(crate) mod verifications;
pub(crate) mod wall_clock;
pub(crate) mod weighted_lru;
pub(crate) mod writes;
