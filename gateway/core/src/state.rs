//! Data of the core's: what it holds, and no step of it.

pub(crate) mod ages;
pub(crate) mod dirty;
pub(crate) mod entry_overlay;
pub(crate) mod extent_map;
pub(crate) mod journal;
pub(crate) mod marks;
pub(crate) mod overlay;
pub(crate) mod slots;
pub(crate) mod wall_clock;
pub(crate) mod weighted_lru;
