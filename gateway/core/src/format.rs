//! What has a layout in bytes: in the journal, in local metadata, and at the head of the cache file.

pub mod cache_header;
pub mod local_metadata;
pub(crate) mod page;
pub mod record;
pub mod sealed;
pub mod slot_page;
pub mod superblock;
