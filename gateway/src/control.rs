//! The border to the running gateway: what the admin API, `/metrics` and the command line may ask of it.
//!
//! Owns the shapes (status, volumes, errors) and the rules for names and sizes. It does not own how a gateway answers.

mod error;
mod metrics;
mod status;
mod volume;

pub use error::{ControlError, ErrorKind};
pub use metrics::{Histogram, Metrics, OperationMetrics, StoreOperationMetrics, WorkMetrics};
pub use status::{
    CacheStatus, DedupStatus, JournalStatus, MemoryStatus, Status, StoreState, StoreStatus, UploadStatus, WriteStatus,
};
pub use volume::{VOLUME_BYTES_MAX, VOLUME_NAME_BYTES_MAX, VolumeInfo, check_volume_name, check_volume_size};

/// A running gateway. Calls may block for as long as a journal write takes; the admin server makes them on threads that
/// may. Nothing here is retried; a caller that got no answer asks for the state and decides.
pub trait Control: Send + Sync + 'static {
    fn status(&self) -> Status;

    /// Counters and distributions for `/metrics`, taken together with one status.
    fn metrics(&self) -> Metrics;

    /// Durable when it returns. `name` and `size_bytes` have passed [`check_volume_name`] and [`check_volume_size`].
    fn volume_create(&self, name: &str, size_bytes: u64) -> Result<VolumeInfo, ControlError>;

    /// In the order of their names.
    fn volume_list(&self) -> Vec<VolumeInfo>;

    /// Durable when it returns. Without `allow_shrink` a smaller size is refused, because data beyond it is lost.
    fn volume_resize(&self, name: &str, size_bytes: u64, allow_shrink: bool) -> Result<VolumeInfo, ControlError>;

    /// Durable when it returns. A volume with clients is refused with [`ErrorKind::Busy`].
    fn volume_delete(&self, name: &str) -> Result<(), ControlError>;

    /// Begins to upload everything dirty now, partial packs included. Progress shows in the status.
    fn drain(&self) -> Result<(), ControlError>;
}
