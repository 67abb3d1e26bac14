//! What the admin API and the command line tell of the running gateway: status, volumes, shares, errors, and the rules for
//! names and sizes.

mod bill;
mod check;
mod error;
mod flush;
mod name;
mod policy;
mod replica;
mod share;
mod status;
mod trace;
mod volume;

pub use bill::{BillStatus, CauseBill, OperationRequests, ReplicaBill};
pub use check::{
    CHECK_FINDINGS_KEPT_MAX, CheckFinding, CheckState, CheckStatus, StoreCheckStage, StoreCheckStatus, StoreFinding,
    StoreFindingKind,
};
pub use error::{ControlError, ErrorKind};
pub use flush::FlushMode;
pub use name::NAME_BYTES_MAX;
pub use policy::{ComparedPolicy, PolicyComparison, PolicySetting, PolicyStatus, PolicyTally};
pub use replica::{ReplicaCheck, ReplicaInfo};
pub use share::{SHARE_QUOTA_BYTES_MAX, SessionInfo, SessionKind, ShareInfo, check_share_name, check_share_quota};
pub use status::{
    CacheStatus, ConcurrencyStatus, DataKeyStatus, DedupStatus, EncryptionStatus, GroupCommitStatus, JournalStatus,
    LatencyTableStatus, LossStatus, LostRange, MemoryStatus, MetadataStatus, NamedStoreStatus, RecoveryPointStatus,
    Status, StoreState, StoreStatus, UploadIntervalStatus, UploadStatus, WriteStatus,
};
pub use trace::{TRACE_BYTES_MAX, TRACE_BYTES_MIN, TraceState, TraceStatus, check_trace_path, check_trace_size};
pub use volume::{VOLUME_BYTES_MAX, VolumeInfo, check_volume_name, check_volume_size};
