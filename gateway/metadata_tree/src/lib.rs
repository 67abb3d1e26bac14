//! Metadata in the bucket: a copy-on-write B-tree of immutable nodes, in which a child may have *segments* before it:
//! changes to that subtree, sorted, in immutable nodes of their own, the newest last. A change is written into a
//! segment until there are enough of them to be worth rewriting the node behind. Why:
//! `docs/decisions/0016-bucket-metadata.md`.
//!
//! | module      | holds                                                                                     |
//! |-------------|-------------------------------------------------------------------------------------------|
//! | `varint`    | numbers of variable length                                                                |
//! | `pointer`   | what names a node                                                                         |
//! | `codec`     | the trait of what differs between the two kinds of trees                                  |
//! | `runs`      | maps: blocks of files to PVBNs                                                            |
//! | `entries`   | byte strings with values                                                                  |
//! | `node`      | the bytes of nodes and of a tree's root                                                   |
//! | `load`      | nodes read and checked against their place in the tree                                    |
//! | `apply`     | changes to a tree                                                                         |
//! | `level`     | the nodes of one level while they are made: splitting, joining                            |
//! | `read`      | one key, a range, all nodes                                                               |
//! | `snapshots` | earlier roots that are kept, and what only one of them has                                |
//! | `usage`     | which objects of nodes are needed, and until which root                                   |
//!
//! Pure: nodes are read and written through [`Nodes`]. Whoever implements it encrypts, packs and names them, puts them
//! before the root that has them, and keeps each node until no root has it; [`apply`] says which ones its new root does
//! not have any more. Any root that is kept stays readable: nothing is changed in place.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
#![warn(missing_docs, clippy::unwrap_used)]
extern crate alloc;

mod apply;
mod codec;
mod entries;
mod level;
mod load;
mod node;
mod pointer;
mod read;
mod runs;
mod snapshots;
mod usage;
mod varint;

pub use apply::{Applied, Shape, apply};
pub use codec::Codec;
pub use entries::{Entries, Entry};
pub use load::{Nodes, TreeError, Written};
pub use node::{
    Child, HEIGHT_MAX, RecordNode, Root, Segments, decode_children, decode_records, encode_children, encode_records,
};
pub use pointer::{Pointer, PointerSequence};
pub use read::{Scan, get, last_below, visit};
pub use runs::{BLOCKS_MAX, MapKey, Run, Runs, Target};
pub use snapshots::{ExclusiveRuns, Moment, exclusive_nodes};
pub use usage::{Counting, ReadUsageError, UsageTable};
