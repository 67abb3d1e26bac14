//! Everything that leaves for the cloud or comes back from it.
//!
//! Two layers, split by the feature `net`:
//!
//! * without it, pure functions that the simulator shares with the gateway: the object format ([`object`]) and its
//!   encryption ([`encryption`], [`keys`]), objects of metadata ([`metadata_object`], [`node_object`]), the timing of retries ([`retry`]), the error types ([`StoreError`]), the store
//!   URL ([`StoreUrl`]), and tables of what a store was measured to take ([`latency_table`]);
//! * with it (the default), [`ObjectStore`] and its backends [`MemoryStore`], [`DirStore`] and [`S3Store`], and the
//!   decorators [`Retrying`], [`Limited`], [`Paced`] and [`Counting`], which work over any of them, and [`Replicated`], which makes one of
//!   several. The feature `kms` adds master keys
//!   that AWS KMS wraps.
//!
//! It owns the bytes of an object, their encryption, and the manners of a request. It does not own which object is written
//! when, what a key means, or when a copy may be deleted: that is the core's.
#![warn(missing_docs, clippy::unwrap_used)]

pub mod encryption;
mod error;
mod key;
pub mod keys;
pub mod latency_table;
pub mod metadata_object;
pub mod node_object;
pub mod object;
pub mod retry;
mod url;

pub use error::{Condition, ErrorKind, Operation, StoreError};
pub use key::{COMPONENT_BYTES_MAX, KEY_BYTES_MAX, validate_key};
pub use url::StoreUrl;

#[cfg(feature = "net")]
mod buffer_pool;
#[cfg(feature = "net")]
mod cause;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "net")]
mod counting;
#[cfg(feature = "net")]
mod dir;
#[cfg(feature = "net")]
mod gate;
#[cfg(feature = "kms")]
pub mod kms;
#[cfg(feature = "net")]
mod limited;
#[cfg(feature = "net")]
mod memory;
#[cfg(feature = "net")]
mod open;
#[cfg(feature = "net")]
mod pace;
#[cfg(feature = "net")]
mod replication;
#[cfg(feature = "net")]
mod retrying;
#[cfg(feature = "net")]
mod s3;
#[cfg(feature = "net")]
mod store;
#[cfg(feature = "net")]
mod warm;

#[cfg(feature = "net")]
pub use buffer_pool::{BufferPool, PooledBuffer};
#[cfg(feature = "net")]
pub use cause::Cause;
#[cfg(feature = "net")]
pub use counting::{CauseCounts, Counting, OperationCounts, StoreCounts};
#[cfg(feature = "net")]
pub use dir::DirStore;
#[cfg(feature = "net")]
pub use gate::{GateDepth, Limits};
#[cfg(feature = "net")]
pub use limited::{Limited, Priority};
#[cfg(feature = "net")]
pub use memory::MemoryStore;
#[cfg(feature = "net")]
pub use open::{StoreSettings, open_store};
#[cfg(feature = "net")]
pub use pace::{Pace, PaceState, Paced, with_room_for_demand};
#[cfg(feature = "net")]
pub use replication::{
    AcceptedRoot, BACKLOG_ENTRIES_MAX, BacklogFile, Behind, ComparedMetadata, ReadCounts, ReadPrice, ReplicaOptions,
    ReplicaState, ReplicaStatus, Replicated,
};
#[cfg(feature = "net")]
pub use retrying::{RetryCounts, Retrying};
#[cfg(feature = "net")]
pub use s3::{AddressingStyle, Environment, S3Settings, S3Store, Secret, StaticCredentials, UploadChecksum};
#[cfg(feature = "net")]
pub use store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
#[cfg(feature = "net")]
pub use warm::Connections;
