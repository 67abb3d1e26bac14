//! The replicas of the store: each with retries, limits and counts of its own, and its note in the state directory. What follows
//! from them is the driver's ([`Replicated`]); here is how they are made, and how a copy that is not what was put is found and
//! replaced.

use super::Gateway;
use super::cloud::CheckedObject;
use super::durable_file;
use super::open::OpenError;
use super::publishing::{RootError, check_conditions};
use super::warm_connections::WarmConnections;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tombolo_base::ObjectDescriptor;
use tombolo_cloud_driver::latency_table::Cells;
use tombolo_cloud_driver::object::{ObjectError, decode_object};
use tombolo_cloud_driver::retry::RetryPolicy;
use tombolo_cloud_driver::{
    AcceptedRoot, BACKLOG_ENTRIES_MAX, Cause, CauseCounts, ComparedMetadata, Connections, Counting, ObjectStore, Pace,
    Paced, ReadCounts, ReadPrice, ReplicaOptions, ReplicaStatus, Replicated, Retrying, StoreCounts, StoreError,
};
use tombolo_core::bucket_journal::Salt;

/// How long a start waits for a replica.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// In the state directory, a file for each replica.
const DIRECTORY: &str = "replicas";

/// A replica as the settings have it.
#[derive(Clone, Debug)]
pub struct ReplicaStore {
    pub name: String,
    pub url: String,
    /// Without retries and limits.
    pub store: Arc<dyn ObjectStore>,
    /// Of the connections to it, those that are kept open while hosts are at work.
    pub warm_connections: usize,
    pub retry: RetryPolicy,
    pub pace: Arc<Pace>,
    pub read_price: ReadPrice,
    pub accepted_root: Option<AcceptedRoot>,
    pub away_after: Duration,
}

/// Which copies there are besides the store's, and by what is chosen.
#[derive(Clone, Debug, Default)]
pub struct ReplicaSettings {
    pub stores: Vec<ReplicaStore>,
    /// Of the store itself.
    pub read_price: ReadPrice,
    /// What reads of the store and of each replica were measured to take.
    pub measured_reads: Vec<Option<Cells>>,
    /// What a second of waiting for a read is worth, in the unit of the prices.
    pub read_second: u64,
}

/// All of them at work.
pub struct Replicas {
    pub replicated: Arc<Replicated>,
    counts: Vec<StoreCounts>,
    /// Of each.
    pub warm: Vec<WarmConnections>,
}

/// A replica for status, metrics and the bill.
#[derive(Clone, Debug)]
pub struct ReplicaLook {
    pub status: ReplicaStatus,
    pub causes: Vec<CauseCounts>,
}

/// What a check of one object has found of each copy.
#[derive(Debug)]
pub struct CheckedCopies {
    /// The best of them.
    pub object: CheckedObject,
    /// The store's own copy, then each replica's.
    pub copies: Vec<CheckedObject>,
    /// Of those that were missing or altered, the ones that are whole now.
    pub healed: Vec<bool>,
}

impl CheckedCopies {
    /// Nothing was found out.
    pub fn unknown(reason: String) -> Self {
        Self {
            object: CheckedObject::Unknown(reason),
            copies: Vec::new(),
            healed: Vec::new(),
        }
    }
}

fn note_path(state: &Path, name: &str) -> PathBuf {
    state.join(DIRECTORY).join(name)
}

impl Replicas {
    /// Above `primary`, which has its own retries and limits.
    pub fn open(state: &Path, primary: Arc<dyn ObjectStore>, settings: &ReplicaSettings) -> io::Result<Self> {
        durable_file::make_directory_durably(&state.join(DIRECTORY))?;
        let (mut replicas, mut counts, mut warm) = (Vec::new(), Vec::new(), Vec::new());
        for replica in &settings.stores {
            let path = note_path(state, &replica.name);
            let backlog = Replicated::open_backlog(&path, &replica.url, BACKLOG_ENTRIES_MAX)?;
            let counting = Counting::with_default(replica.store.clone(), Cause::Replication);
            counts.push(counting.counts());
            let (own, counting) = (counting.counts(), Arc::new(counting));
            warm.push(WarmConnections {
                connections: Connections::new(counting.clone(), own),
                count: replica.warm_connections,
            });
            let paced = Paced::new(counting, replica.pace.clone());
            let retrying = Retrying::new(Arc::new(paced), replica.retry);
            let limits = replica.pace.clone();
            replicas.push(ReplicaOptions {
                name: replica.name.clone(),
                url: replica.url.clone(),
                store: Arc::new(retrying),
                limits: Box::new(move || limits.limits()),
                backlog,
                accepted_root: replica.accepted_root.clone(),
                away_after: replica.away_after,
            });
        }
        let prices =
            std::iter::once(settings.read_price).chain(settings.stores.iter().map(|replica| replica.read_price));
        let prices: Vec<ReadPrice> = prices.collect();
        let replicated = Replicated::new(primary, replicas, &prices, settings.read_second);
        for (place, gets) in settings.measured_reads.iter().enumerate() {
            if let Some(gets) = gets {
                replicated.expect_reads(place, gets);
            }
        }
        Ok(Self {
            replicated: Arc::new(replicated),
            counts,
            warm,
        })
    }

    fn look(&self) -> Vec<ReplicaLook> {
        let looks = self.replicated.status().into_iter().zip(&self.counts);
        let look = |(status, counts): (ReplicaStatus, &StoreCounts)| ReplicaLook {
            status,
            causes: counts.by_cause(),
        };
        looks.map(look).collect()
    }
}

/// Whether each heeds the conditions of a put, as its root is put with one. Those that do not answer are asked at the next start.
pub fn check_replicas(runtime: &Runtime, settings: &ReplicaSettings) -> Result<(), OpenError> {
    for replica in &settings.stores {
        let check = check_conditions(&replica.store);
        let checked = runtime.block_on(async { tokio::time::timeout(START_PATIENCE, check).await });
        let (name, unknown) = (
            &replica.name,
            "a replica does not say whether it heeds conditions; the next start asks again",
        );
        match checked {
            Ok(Ok(())) => {}
            Ok(Err(RootError::Store(error))) => tracing::warn!(replica = name, %error, "{unknown}"),
            Ok(Err(error)) => {
                let name = name.clone();
                return Err(OpenError::Replica { name, error });
            }
            Err(_) => tracing::warn!(replica = name, "{unknown}"),
        }
    }
    Ok(())
}

/// For a state directory that has taken the bucket over from this root: a replica that has it is known by it.
pub fn expect_root(state: &Path, settings: &ReplicaSettings, before: Salt) -> io::Result<()> {
    if settings.stores.is_empty() {
        return Ok(());
    }
    durable_file::make_directory_durably(&state.join(DIRECTORY))?;
    for replica in &settings.stores {
        let path = note_path(state, &replica.name);
        let backlog = Replicated::open_backlog(&path, &replica.url, BACKLOG_ENTRIES_MAX)?;
        backlog.expect_root(before.0)?;
    }
    Ok(())
}

impl Gateway {
    /// In the order of the settings.
    pub fn replicas(&self) -> Vec<ReplicaLook> {
        self.cloud.replicas.as_ref().map_or_else(Vec::new, Replicas::look)
    }

    /// The store's, then each replica's.
    pub fn read_counts(&self) -> ReadCounts {
        let counts = |replicas: &Replicas| replicas.replicated.read_counts();
        self.cloud.replicas.as_ref().map_or_else(ReadCounts::default, counts)
    }

    /// Reads every copy of an object and verifies it. Where one is whole, it takes the place of those that are not.
    pub(super) async fn check_copies(&self, descriptor: &ObjectDescriptor) -> CheckedCopies {
        match &self.cloud.replicas {
            Some(replicas) => self.heal(&replicas.replicated, Cause::Check, descriptor).await.0,
            None => {
                let got = self.cloud.check.get(&descriptor.id().key(), None).await;
                CheckedCopies {
                    object: self.checked(descriptor, got).0,
                    copies: Vec::new(),
                    healed: Vec::new(),
                }
            }
        }
    }

    /// Compares an object of metadata in each replica with the store's; where the store's is known to be good, it takes the place of
    /// what differs. Nothing if it has been removed meanwhile.
    pub fn compare_metadata(&self, key: &str, is_mended: bool) -> Result<Vec<Option<ComparedMetadata>>, StoreError> {
        let Some(replicas) = &self.cloud.replicas else {
            return Ok(Vec::new());
        };
        let compare = replicas.replicated.compare_metadata(key, is_mended, Cause::Check);
        match self.cloud.runtime.block_on(compare) {
            Err(StoreError::NotFound { .. }) => Ok(Vec::new()),
            compared => compared,
        }
    }

    /// A whole copy, if there is any, and the others mended.
    pub(super) async fn whole_copy(&self, descriptor: &ObjectDescriptor) -> Option<bytes::Bytes> {
        let replicas = self.cloud.replicas.as_ref()?;
        self.heal(&replicas.replicated, Cause::Demand, descriptor).await.1
    }

    async fn heal(
        &self,
        stores: &Replicated,
        cause: Cause,
        descriptor: &ObjectDescriptor,
    ) -> (CheckedCopies, Option<bytes::Bytes>) {
        let key = &descriptor.id().key();
        let is_to_come = stores.is_to_come(key);
        let checked = stores.copies(key, cause).await.into_iter();
        let checked: Vec<_> = checked.map(|copy| self.checked(descriptor, copy)).collect();
        let whole = checked.iter().find_map(|(_, bytes)| bytes.clone());
        let mut copies: Vec<CheckedObject> = checked.into_iter().map(|(copy, _)| copy).collect();
        let mut healed = vec![false; copies.len()];
        for (place, copy) in copies.iter_mut().enumerate() {
            match (&*copy, &whole) {
                (CheckedObject::Missing, _) if is_to_come[place] => *copy = CheckedObject::Whole,
                (CheckedObject::Missing | CheckedObject::Altered(_), Some(bytes)) => {
                    match stores.heal(place, key, bytes.clone(), cause).await {
                        Ok(()) => {
                            tracing::warn!(key, place, found = ?copy, "a copy of an object was not what was put; it was put again");
                            healed[place] = true;
                        }
                        Err(error) => tracing::warn!(%error, key, place, "a copy of an object could not be mended"),
                    }
                }
                _ => {}
            }
        }
        let object = match (copies[0].unknown(), &whole) {
            // A check goes on when the store answers.
            (Some(reason), _) => CheckedObject::Unknown(reason.to_owned()),
            (None, Some(_)) => CheckedObject::Whole,
            (None, None) => worst(&copies),
        };
        let checked = CheckedCopies { object, copies, healed };
        (checked, whole)
    }

    fn checked(
        &self,
        descriptor: &ObjectDescriptor,
        copy: Result<bytes::Bytes, StoreError>,
    ) -> (CheckedObject, Option<bytes::Bytes>) {
        let object = match copy {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return (CheckedObject::Missing, None),
            Err(error) => return (CheckedObject::Unknown(error.to_string()), None),
        };
        match decode_object(&object, descriptor.id(), &self.data_keys.ring()) {
            Ok((found, _)) if found == *descriptor => (CheckedObject::Whole, Some(object)),
            Ok(_) => {
                let reason = "it holds other blocks than were put there";
                (CheckedObject::Altered(reason.into()), None)
            }
            Err(error @ ObjectError::KeyMissing(_)) => (CheckedObject::Unknown(error.to_string()), None),
            Err(error) => (CheckedObject::Altered(error.to_string()), None),
        }
    }
}

/// Where none is whole: one that does not answer may be.
fn worst(copies: &[CheckedObject]) -> CheckedObject {
    let unknown = copies.iter().find_map(CheckedObject::unknown);
    let altered = copies.iter().find_map(|copy| match copy {
        CheckedObject::Altered(reason) => Some(reason),
        _ => None,
    });
    match (unknown, altered) {
        (Some(reason), _) => CheckedObject::Unknown(reason.to_owned()),
        (None, Some(reason)) => CheckedObject::Altered(reason.clone()),
        (None, None) => CheckedObject::Missing,
    }
}
