//! The border to the running gateway: what the admin API, `/metrics` and the command line may ask of it.
//!
//! Owns the shapes (status, volumes, shares, errors) and the rules for names and sizes. It does not own how a gateway
//! answers.

mod check;
mod error;
mod name;
mod policy;
mod share;
mod status;
mod trace;
mod volume;

pub use check::{CHECK_FINDINGS_KEPT_MAX, CheckFinding, CheckState, CheckStatus};
pub use error::{ControlError, ErrorKind};
pub use name::NAME_BYTES_MAX;
pub use policy::{PolicySetting, PolicyStatus, PolicyTally};
pub use share::{SHARE_QUOTA_BYTES_MAX, SessionInfo, SessionKind, ShareInfo, check_share_name, check_share_quota};
pub use status::{
    CacheStatus, DedupStatus, JournalStatus, LossStatus, LostRange, MemoryStatus, Status, StoreState, StoreStatus,
    UploadStatus, WriteStatus,
};
pub use trace::{TRACE_BYTES_MAX, TRACE_BYTES_MIN, TraceState, TraceStatus, check_trace_path, check_trace_size};
pub use volume::{VOLUME_BYTES_MAX, VolumeInfo, check_volume_name, check_volume_size};

use crate::metrics::model::Metrics;
use std::path::Path;

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

    /// Begins to record what clients ask for into a new file; one recording at a time.
    fn trace_start(&self, path: &Path, bytes_max: u64) -> Result<TraceStatus, ControlError>;

    /// Ends the recording, if there is one; the file is whole when it returns.
    fn trace_stop(&self) -> TraceStatus;

    /// The recording that is under way, else the latest.
    fn trace_status(&self) -> TraceStatus;

    /// Begins to upload everything dirty now, partial packs included. Progress shows in the status.
    fn drain(&self) -> Result<(), ControlError>;

    /// The policies at work and how they fare.
    fn policy(&self) -> PolicyStatus;

    /// Changes keys of `[prefetch]`, and `replacement` of `[cache]`, until the next start. What is cached stays.
    fn policy_set(&self, changes: toml::Table) -> Result<PolicyStatus, ControlError>;

    /// In the order of their names, those being deleted included.
    fn share_list(&self) -> Result<Vec<ShareInfo>, ControlError>;

    /// Durable when it returns. `name` and the quota have passed [`check_share_name`] and [`check_share_quota`].
    fn share_create(&self, name: &str, quota_bytes: Option<u64>) -> Result<ShareInfo, ControlError>;

    /// Durable when it returns. A quota below what is used takes nothing away; it only refuses more.
    fn share_quota(&self, name: &str, quota_bytes: Option<u64>) -> Result<ShareInfo, ControlError>;

    /// Durable when it returns; the files are removed afterwards. A share with sessions is refused with
    /// [`ErrorKind::Busy`]; with `force` its sessions are ended, and their clients get ESTALE.
    fn share_delete(&self, name: &str, force: bool) -> Result<(), ControlError>;

    /// Begins to check all shares, or joins the check that is under way; the answer tells which `run` it is.
    fn check_start(&self) -> Result<CheckStatus, ControlError>;

    /// The check that is under way, else the latest.
    fn check_status(&self) -> CheckStatus;
}
