//! What has a layout in bytes: in the journal, in local metadata, at the head of the cache file, and in the bucket what
//! recovery reads there.

pub mod bucket_journal;
pub mod cache_header;
pub mod local_metadata;
pub(crate) mod page;
pub mod record;
pub mod root;
pub mod sealed;
pub mod slot_page;
pub mod superblock;
