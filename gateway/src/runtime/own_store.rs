//! Is the store that the settings name the one that has this gateway's objects? An empty folder where the right one is
//! not mounted, or a mistyped prefix, answers like any store: reads would be called lost, and new data would go there.

use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tombolo_base::ObjectDescriptor;
use tombolo_cloud_driver::{ETag, ListedObject, ObjectMeta, ObjectStore, Operation, PutMode, Result, StoreError};
use tombolo_core::local_metadata::{MetadataRead, Table};

/// How long a start waits for the answer. It is asked for again when the store is first used.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How many objects a start asks the store for: enough to tell it from another one.
const SAMPLES_MAX: usize = 3;

/// The store has none of the objects that were looked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "store: {store} has none of the objects that this gateway has put into its store, such as {key}: it is another store \
     or an empty one; correct [store] url, or mount the folder that it names; if they are lost for good, set [store] \
     accept_foreign = true"
)]
pub struct ForeignStore {
    store: String,
    key: String,
}

#[derive(Debug, thiserror::Error)]
enum Unrecognised {
    #[error(transparent)]
    Foreign(ForeignStore),
    #[error(transparent)]
    NoAnswer(StoreError),
}

impl From<Unrecognised> for StoreError {
    /// A foreign store gets a kind that is tried again and never taken for the loss of an object.
    fn from(unrecognised: Unrecognised) -> Self {
        match unrecognised {
            Unrecognised::Foreign(foreign) => Self::Local {
                detail: foreign.to_string(),
                store: foreign.store,
                operation: Operation::Head,
                key: foreign.key,
            },
            Unrecognised::NoAnswer(error) => error,
        }
    }
}

/// Lets nothing through before the store has shown one of the objects that it must have.
#[derive(Debug)]
pub(super) struct OwnStore {
    inner: Arc<dyn ObjectStore>,
    samples: Vec<String>,
    is_known: AtomicBool,
}

impl OwnStore {
    /// `samples`: objects that were put; without any, every store will do.
    pub(super) fn new(inner: Arc<dyn ObjectStore>, samples: &[ObjectDescriptor]) -> Self {
        let samples = samples.iter().take(SAMPLES_MAX);
        let mut samples: Vec<String> = samples.map(|descriptor| descriptor.id().key()).collect();
        samples.dedup();
        Self {
            inner,
            is_known: AtomicBool::new(samples.is_empty()),
            samples,
        }
    }

    /// A store that gives no answer does not keep a gateway from starting; the first request asks again.
    pub(super) fn check_at_start(&self, runtime: &Runtime) -> Result<(), ForeignStore> {
        let answer = runtime.block_on(async { tokio::time::timeout(START_PATIENCE, self.recognise()).await });
        match answer {
            Ok(Ok(())) => {}
            Ok(Err(Unrecognised::Foreign(foreign))) => return Err(foreign),
            Ok(Err(Unrecognised::NoAnswer(error))) => {
                tracing::warn!(%error, "the store does not say whether it has this gateway's objects; it is asked again");
            }
            Err(_) => {
                tracing::warn!("the store takes long to say whether it has this gateway's objects; it is asked again");
            }
        }
        Ok(())
    }

    async fn recognise(&self) -> Result<(), Unrecognised> {
        if self.is_known.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut found = 0;
        let mut missing = Vec::new();
        let mut foreign = None;
        let mut failure = None;
        for sample in &self.samples {
            match self.inner.head(sample).await {
                Ok(_) => found += 1,
                Err(StoreError::NotFound { store, key }) => {
                    missing.push(sample.as_str());
                    foreign.get_or_insert(ForeignStore { store, key });
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        match (found, failure, foreign) {
            (0, Some(error), _) => Err(Unrecognised::NoAnswer(error)),
            (0, None, Some(foreign)) => Err(Unrecognised::Foreign(foreign)),
            _ => {
                self.accept(&missing);
                Ok(())
            }
        }
    }

    fn accept(&self, missing: &[&str]) {
        if !self.is_known.swap(true, Ordering::Relaxed) && !missing.is_empty() {
            tracing::warn!(?missing, "objects of this gateway are missing in the store");
        }
    }
}

/// Up to six objects that the store must have: first, middle and last of those in local metadata and of those that were
/// confirmed since. A record that cannot be read is left to those who need it.
pub(super) fn samples<R: MetadataRead>(reader: &R, replayed: &[Arc<ObjectDescriptor>]) -> Vec<ObjectDescriptor> {
    let mut samples = checkpointed(reader);
    let places = [0, replayed.len() / 2, replayed.len().saturating_sub(1)];
    let of_journal = places.iter().filter_map(|place| replayed.get(*place));
    samples.extend(of_journal.map(|descriptor| ObjectDescriptor::clone(descriptor)));
    samples
}

fn checkpointed<R: MetadataRead>(reader: &R) -> Vec<ObjectDescriptor> {
    let floor = |first: u64| reader.floor(Table::Objects, &first.to_be_bytes()).ok().flatten();
    let first = reader.ceiling(Table::Objects, &0_u64.to_be_bytes()).ok().flatten();
    let last = floor(u64::MAX);
    let number = |entry: &Option<(Vec<u8>, Vec<u8>)>| {
        let key = entry.as_ref()?.0.as_slice();
        Some(u64::from_be_bytes(key.try_into().ok()?))
    };
    let middle = number(&first)
        .zip(number(&last))
        .and_then(|(first, last)| floor(first.midpoint(last)));
    let entries = [first, middle, last].into_iter().flatten();
    entries
        .filter_map(|(_, bytes)| ObjectDescriptor::decode(&bytes).ok())
        .collect()
}

#[async_trait]
impl ObjectStore for OwnStore {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        self.recognise().await?;
        self.inner.put(key, bytes, mode).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.recognise().await?;
        self.inner.get(key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.recognise().await?;
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        self.recognise().await?;
        self.inner.list(prefix, start_after, limit).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.recognise().await?;
        self.inner.delete(key).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}
