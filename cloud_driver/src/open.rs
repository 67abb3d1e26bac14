use crate::store::{ObjectStore, Result};
use crate::{DirStore, S3Settings, S3Store, StoreUrl};
use std::sync::Arc;

/// What the kinds of stores take besides their URL; each reads its own part. (A directory takes nothing.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// Of `s3:` stores.
    pub s3: S3Settings,
}

/// Opens the store that a URL names, bare: no retries, limits or counters. A directory is made when its parent exists;
/// a bucket is not looked at before the first request (see [`ObjectStore::check`]).
pub fn open_store(url: &StoreUrl, settings: &StoreSettings) -> Result<Arc<dyn ObjectStore>> {
    Ok(match url {
        StoreUrl::Dir { path } => Arc::new(DirStore::open(path)?),
        StoreUrl::S3 { bucket, prefix } => Arc::new(S3Store::open(bucket, prefix, &settings.s3)?),
    })
}
