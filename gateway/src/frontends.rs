//! What clients reach: volumes over NBD, shares over FUSE, each put together with the runtime. Owns no sockets and no wire
//! formats (`gateway/nbd`, `gateway/fuse`), no files (`gateway/files`) and no blocks (`gateway/core`).

mod file_storage;
pub mod fuse;
mod nbd;
mod stores;

pub(crate) use file_storage::SESSION_CLIENTS;
pub use file_storage::{FileStorage, GatewayAccess};
pub use nbd::VolumeExports;
pub use stores::{AbsentStore, OpenStore, Stores};
