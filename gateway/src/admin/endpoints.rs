//! The endpoints of the admin API, and what their requests hold. What is answered is in [`super::model`]. `/metrics`, which is
//! text, is the only other thing on the socket.

use super::endpoint::{Description, Endpoint, Method, Request, endpoints};
use super::model::{
    CheckStatus, ControlError, EncryptionStatus, ErrorKind, FlushMode, JournalStatus, PolicyStatus, ShareInfo, Status,
    StoreCheckStatus, TraceStatus, VolumeInfo, check_share_name, check_share_quota, check_trace_path, check_trace_size,
    check_volume_name, check_volume_size,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

endpoints! {
    /// What the gateway is doing.
    STATUS: Get "/v1/status", () => 200 Status;
    /// Begins to upload everything dirty now, partial packs included, of the store that is named, else of all. Progress shows in the status.
    DRAIN: Post "/v1/drain", OfStore => 202 ();
    /// Begins to bring local metadata up to the journal. Answers with what a restart would have to replay without that.
    /// In the store that is named; else in all, and answers of the first.
    CHECKPOINT: Post "/v1/checkpoint", OfStore => 202 JournalStatus;

    /// The keys that objects are encrypted with. No key is ever told, only ids.
    KEYS: Get "/v1/keys", OfStore => 200 EncryptionStatus;
    /// Makes another data key for new objects, or encrypts the data keys with another master key. In the store and in the
    /// state directory when it is answered. No object is written anew.
    KEY_ROTATE: Post "/v1/keys", RotateKey => 200 EncryptionStatus;

    /// All volumes, in the order of their names.
    VOLUME_LIST: Get "/v1/volumes", () => 200 Vec<VolumeInfo>;
    /// Creates a volume. Durable when it is answered.
    VOLUME_CREATE: Post "/v1/volumes", CreateVolume => 201 VolumeInfo;
    /// Changes a volume's size. Durable when it is answered.
    VOLUME_RESIZE: Patch "/v1/volumes/{name}", ResizeVolume => 200 VolumeInfo;
    /// Changes what a volume's flushes wait for: all that come after the answer. Durable when it is answered.
    VOLUME_FLUSH: Patch "/v1/volumes/{name}/flush", VolumeFlush => 200 VolumeInfo;
    /// Deletes a volume and all its data. Durable when it is answered. One with clients is refused as busy.
    VOLUME_DELETE: Delete "/v1/volumes/{name}", DeleteVolume => 204 ();

    /// All shares, in the order of their names, those being deleted included.
    SHARE_LIST: Get "/v1/shares", () => 200 Vec<ShareInfo>;
    /// Creates a share. Durable when it is answered.
    SHARE_CREATE: Post "/v1/shares", CreateShare => 201 ShareInfo;
    /// Changes a share's quota. Durable when it is answered. One below what is used takes nothing away; it only refuses more.
    SHARE_QUOTA: Patch "/v1/shares/{name}", ShareQuota => 200 ShareInfo;
    /// Changes what a share's flushes wait for: all that come after the answer. Durable when it is answered.
    SHARE_FLUSH: Patch "/v1/shares/{name}/flush", ShareFlush => 200 ShareInfo;
    /// Deletes a share. Durable when it is answered; its files are removed afterwards. One with sessions is refused as busy.
    SHARE_DELETE: Delete "/v1/shares/{name}", DeleteShare => 204 ();

    /// The check of all shares that is under way, else the latest.
    CHECK_STATUS: Get "/v1/check", OfStore => 200 CheckStatus;
    /// Begins to check all shares of one store, or joins the check that is under way; the answer tells which `run` it is.
    CHECK_START: Post "/v1/check", OfStore => 202 CheckStatus;

    /// The check of the store that is under way, else the latest.
    STORE_CHECK_STATUS: Get "/v1/check/store", OfStore => 200 StoreCheckStatus;
    /// Begins to check the store with local metadata, goes on with a check that was interrupted, or joins the one that is under
    /// way; the answer tells which `run` it is.
    STORE_CHECK_START: Post "/v1/check/store", StartStoreCheck => 202 StoreCheckStatus;

    /// The policies at work and how they fare.
    POLICY: Get "/v1/policy", OfStore => 200 PolicyStatus;
    /// Changes policies of all stores until the next start. What is cached stays.
    POLICY_SET: Patch "/v1/policy", PolicyChanges => 200 PolicyStatus;

    /// The recording of a trace that is under way, else the latest.
    TRACE_STATUS: Get "/v1/trace", OfStore => 200 TraceStatus;
    /// Begins to record what clients ask for into a new file; one recording at a time.
    TRACE_START: Post "/v1/trace", StartTrace => 201 TraceStatus;
    /// Ends the recording, if there is one; the file is whole when it is answered.
    TRACE_STOP: Delete "/v1/trace", OfStore => 200 TraceStatus;
}

/// Which store is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfStore {
    /// As in `[store.named.NAME]`; none, or `default`: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Request for OfStore {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// Where a check of the store begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartStoreCheck {
    /// Where the one before was interrupted, if it was; else at the beginning.
    #[serde(default)]
    pub resume: bool,
    /// As in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Request for StartStoreCheck {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// Which key is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKey {
    /// A file on the gateway's machine with the new master key; neither this nor the next: the data key is replaced.
    #[serde(default)]
    pub master_key_file: Option<PathBuf>,
    /// The key of AWS KMS (id, ARN or alias) that wraps a new master key.
    #[serde(default)]
    pub master_key_kms: Option<String>,
    /// As in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Request for RotateKey {
    fn check(&self) -> Result<(), ControlError> {
        let invalid = |text: &str| Err(ControlError::new(ErrorKind::Invalid, text.to_owned()));
        if let Some(key) = &self.master_key_kms {
            if self.master_key_file.is_some() {
                return invalid("master_key_file and master_key_kms are both given, and there is one master key");
            }
            if key.is_empty() || key.contains(char::is_whitespace) {
                return invalid("master_key_kms is not the id, ARN or alias of a key");
            }
        }
        match &self.master_key_file {
            Some(file) if !file.is_absolute() => Err(ControlError::new(
                ErrorKind::Invalid,
                format!(
                    "master_key_file {:?} is not an absolute path",
                    file.display().to_string()
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// A new volume, all of which reads as zeroes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, neither a dot nor a dash in front; not taken yet.
    pub name: String,
    /// A multiple of 4096.
    pub size_bytes: u64,
    /// What its flushes wait for.
    #[serde(default)]
    pub flush: FlushMode,
    /// Where it lives, as in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Request for CreateVolume {
    fn check(&self) -> Result<(), ControlError> {
        check_volume_name(&self.name)?;
        check_volume_size(self.size_bytes)
    }
}

/// Another size for a volume. LUNs of tgtd follow at once; other clients see it when they connect again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Of a volume that is there.
    pub name: String,
    /// A multiple of 4096.
    pub size_bytes: u64,
    /// Without it a smaller size is refused, because data beyond it is lost.
    #[serde(default)]
    pub allow_shrink: bool,
}

impl Request for ResizeVolume {
    fn check(&self) -> Result<(), ControlError> {
        check_volume_name(&self.name)?;
        check_volume_size(self.size_bytes)
    }
}

/// Another flush mode for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeFlush {
    /// Of a volume that is there.
    pub name: String,
    /// What its flushes wait for from now on.
    pub flush: FlushMode,
}

impl Request for VolumeFlush {
    fn check(&self) -> Result<(), ControlError> {
        check_volume_name(&self.name)
    }
}

/// Which volume goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteVolume {
    /// Of a volume that is there.
    pub name: String,
}

impl Request for DeleteVolume {
    fn check(&self) -> Result<(), ControlError> {
        check_volume_name(&self.name)
    }
}

/// A new share with nothing in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    /// 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, neither a dot nor a dash in front; not taken yet.
    pub name: String,
    /// A multiple of 4096; none: as much as the store holds.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
    /// What its flushes wait for.
    #[serde(default)]
    pub flush: FlushMode,
    /// Where it lives, as in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Request for CreateShare {
    fn check(&self) -> Result<(), ControlError> {
        check_share_name(&self.name)?;
        self.quota_bytes.map_or(Ok(()), check_share_quota)
    }
}

/// Another quota for a share, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareQuota {
    /// Of a share that is there.
    pub name: String,
    /// A multiple of 4096. Null takes the quota away; leaving it out is an error.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(required)]
    pub quota_bytes: Option<u64>,
}

impl Request for ShareQuota {
    fn check(&self) -> Result<(), ControlError> {
        check_share_name(&self.name)?;
        self.quota_bytes.map_or(Ok(()), check_share_quota)
    }
}

/// Another flush mode for a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareFlush {
    /// Of a share that is there.
    pub name: String,
    /// What its flushes wait for from now on.
    pub flush: FlushMode,
}

impl Request for ShareFlush {
    fn check(&self) -> Result<(), ControlError> {
        check_share_name(&self.name)
    }
}

/// Which share goes, and whether its clients may keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteShare {
    /// Of a share that is there.
    pub name: String,
    /// Its sessions are ended, and their clients get ESTALE.
    #[serde(default)]
    pub force: bool,
}

impl Request for DeleteShare {
    fn check(&self) -> Result<(), ControlError> {
        check_share_name(&self.name)
    }
}

/// Keys of `[prefetch]`, and `replacement` of `[cache]`, with their values as in the settings file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PolicyChanges(#[schemars(with = "serde_json::Map<String, serde_json::Value>")] pub toml::Table);

impl Request for PolicyChanges {
    /// What is permitted depends on the settings in force.
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// Where a recording goes, and how large it may become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartTrace {
    /// Absolute; a file that does not exist yet.
    pub path: PathBuf,
    /// The recording ends when the file is as large.
    pub bytes_max: u64,
    /// As in `[store.named.NAME]`; none: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Request for StartTrace {
    fn check(&self) -> Result<(), ControlError> {
        check_trace_path(&self.path)?;
        check_trace_size(self.bytes_max)
    }
}
