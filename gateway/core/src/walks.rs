//! What takes several requests: state machines that say what they need next.

pub(crate) mod entry_scan;
pub(crate) mod link;
pub(crate) mod map_walk;
