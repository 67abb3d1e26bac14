//! The one interface to a store of objects.

use crate::StoreError;
use async_trait::async_trait;
use bytes::Bytes;
use std::fmt::{self, Debug};
use std::ops::Range;

/// What a store answers.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Names one content of one object. Opaque; compare for equality, or hand it back in [`PutMode::IfMatch`]. Two puts of
/// the same bytes may have the same tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

impl fmt::Display for ETag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// When a put may take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Always.
    Overwrite,
    /// Only when no object has the key.
    IfAbsent,
    /// Only when the object has this tag now.
    IfMatch(ETag),
}

/// What [`ObjectStore::head`] tells of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its length.
    pub size_bytes: u64,
    /// Changes with its contents.
    pub etag: ETag,
}

/// One row of [`ObjectStore::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Relative to the store's prefix.
    pub key: String,
    /// Its length.
    pub size_bytes: u64,
}

/// A bucket, or a part of one below a prefix. Keys are relative to it and obey [`crate::validate_key`].
///
/// Every method may be cancelled by dropping its future; a put or delete then has an unknown outcome. All methods are
/// linearizable per key on the backends here and on S3 as AWS, MinIO and versitygw serve it.
#[async_trait]
pub trait ObjectStore: Send + Sync + Debug {
    /// Writes an object whole: readers see the old or the new content, never a part.
    ///
    /// *Durable* when it returns `Ok`: the store has promised to keep the object through a crash or power loss of its own.
    /// *Repeating*: `Overwrite` may be repeated freely. A conditional put whose answer was lost may find itself in
    /// the way; [`crate::Retrying`] sorts that out by comparing contents, so **what is put
    /// conditionally must differ between writers** (hold an epoch or nonce), or a lost race can look like success.
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag>;

    /// Reads an object or a part of it. A range that ends beyond the object is cut to it; one that is empty or begins at or beyond
    /// its end is [`StoreError::RangeOutside`]. May be repeated freely. The bytes are complete but not verified: that
    /// takes the fingerprints in the object.
    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes>;

    /// Size and tag. May be repeated freely. For read-modify-write call `head`, then `get`, then `put` with `IfMatch`:
    /// in this order a change in between makes the put fail.
    async fn head(&self, key: &str) -> Result<ObjectMeta>;

    /// Up to `limit` objects whose keys begin with `prefix` (any string, not only whole components) and sort after
    /// `start_after`, in ascending order of their bytes. Fewer than `limit` means the end was reached. Objects put or
    /// deleted meanwhile may or may not appear. May be repeated freely.
    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>>;

    /// Removes an object; one that is not there is success. Durable when it returns `Ok`. May be repeated freely, unless the
    /// key may have been written anew since.
    async fn delete(&self, key: &str) -> Result<()>;

    /// Verifies that the bucket or directory exists and the credentials may list it. Fails as
    /// [`StoreError::AccessDenied`], [`StoreError::Credentials`], [`StoreError::BucketMissing`],
    /// [`StoreError::Unreachable`] or another typed error. Changes nothing; may be repeated freely.
    async fn check(&self) -> Result<()>;
}

/// What a get brings. Nothing is known of whole objects: most are small ones of metadata, and who reads many large ones asks for few at
/// a time.
pub(crate) fn bytes_of(range: Option<&Range<u64>>) -> u64 {
    range.map_or(0, |range| range.end.saturating_sub(range.start))
}
