//! A store in memory, for tests of what sits above. Nothing survives the process.

use crate::store::{ETag, ListedObject, ObjectMeta, ObjectStore, PutMode, Result};
use crate::{Condition, Operation, StoreError, validate_key};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<String, (ETag, Bytes)>,
    puts: u64,
}

/// Refuses keys that are directories of one another, as a directory store does, so that tests over memory find such
/// mistakes.
#[derive(Debug, Default)]
pub struct MemoryStore {
    contents: Mutex<Contents>,
}

const NAME: &str = "memory";

impl MemoryStore {
    /// Without objects.
    pub fn new() -> Self {
        Self::default()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // No invariant spans a panic: every change is a single insert or remove.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found(key: &str) -> StoreError {
    StoreError::NotFound {
        store: NAME.into(),
        key: key.into(),
    }
}

fn refused(key: &str, condition: Condition) -> StoreError {
    StoreError::Precondition {
        store: NAME.into(),
        key: key.into(),
        condition,
        earlier_attempt_unknown: false,
    }
}

/// The part of an object of `size_bytes` that `range` selects (see [`ObjectStore::get`]).
pub(crate) fn clip_range(store: &str, key: &str, range: Range<u64>, size_bytes: u64) -> Result<Range<u64>> {
    if range.start >= range.end || range.start >= size_bytes {
        return Err(StoreError::RangeOutside {
            store: store.into(),
            key: key.into(),
            start: range.start,
            end: range.end,
        });
    }
    Ok(range.start..range.end.min(size_bytes))
}

fn check_hierarchy(objects: &BTreeMap<String, (ETag, Bytes)>, key: &str) -> Result<()> {
    let below = format!("{key}/");
    let has_below = objects
        .range(below.clone()..)
        .next()
        .is_some_and(|(other, _)| other.starts_with(&below));
    let has_above = key
        .match_indices('/')
        .any(|(index, _)| objects.contains_key(&key[..index]));
    if has_below || has_above {
        return Err(StoreError::Rejected {
            store: NAME.into(),
            operation: Operation::Put,
            key: key.into(),
            status: 409,
            detail: "the key is a directory of another key, or the other way round".into(),
        });
    }
    Ok(())
}

#[async_trait]
impl ObjectStore for MemoryStore {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        validate_key(key)?;
        let mut contents = self.contents();
        check_hierarchy(&contents.objects, key)?;
        contents.puts += 1;
        let etag = ETag(format!("memory-{}", contents.puts));
        // Owned bytes: a caller's slice must not pin a larger buffer.
        let stored = (etag.clone(), Bytes::copy_from_slice(&bytes));
        match (contents.objects.entry(key.into()), mode) {
            (Entry::Occupied(_), PutMode::IfAbsent) => return Err(refused(key, Condition::Absent)),
            (Entry::Occupied(entry), PutMode::IfMatch(expected)) if entry.get().0 != expected => {
                return Err(refused(key, Condition::ETagMatches));
            }
            (Entry::Vacant(_), PutMode::IfMatch(_)) => return Err(refused(key, Condition::ETagMatches)),
            (Entry::Occupied(mut entry), PutMode::Overwrite | PutMode::IfMatch(_)) => {
                entry.insert(stored);
            }
            (Entry::Vacant(entry), PutMode::Overwrite | PutMode::IfAbsent) => {
                entry.insert(stored);
            }
        }
        Ok(etag)
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        validate_key(key)?;
        let contents = self.contents();
        let (_, bytes) = contents.objects.get(key).ok_or_else(|| not_found(key))?;
        match range {
            None => Ok(bytes.clone()),
            Some(range) => {
                let range = clip_range(NAME, key, range, bytes.len() as u64)?;
                Ok(bytes.slice(range.start as usize..range.end as usize))
            }
        }
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        validate_key(key)?;
        let contents = self.contents();
        let (etag, bytes) = contents.objects.get(key).ok_or_else(|| not_found(key))?;
        Ok(ObjectMeta {
            size_bytes: bytes.len() as u64,
            etag: etag.clone(),
        })
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let lower = match start_after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        Ok(self
            .contents()
            .objects
            .range::<str, _>((lower, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit)
            .map(|(key, (_, bytes))| ListedObject {
                key: key.clone(),
                size_bytes: bytes.len() as u64,
            })
            .collect())
    }

    async fn delete(&self, key: &str) -> Result<()> {
        validate_key(key)?;
        self.contents().objects.remove(key);
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}
