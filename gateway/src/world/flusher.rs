//! Hash and upload jobs: slots to fingerprints, slots to objects.

use super::Gateway;
use super::execute::disk_error;
use std::sync::Arc;
use tombolo_base::{BLOCK_BYTES, BlockSum, Fingerprint, ObjectDescriptor, Pvbn};
use tombolo_core::{Event, HashItem, HashResult, JobId, UploadFailure, UploadItem};
use tombolo_dedup::InsertError;

impl Gateway {
    pub(super) fn hash(self: &Arc<Self>, job: JobId, items: Vec<HashItem>) {
        let gateway = self.clone();
        self.hashing.run(move || {
            let results = items.iter().map(|item| gateway.hash_block(item)).collect();
            gateway.drive(Event::Hashed { job, results });
        });
    }

    fn hash_block(&self, item: &HashItem) -> HashResult {
        let mut block = [0; BLOCK_BYTES];
        if let Err(error) = self.cache.read(item.slot, &mut block) {
            disk_error("cache file read", &error);
            return HashResult::Unreadable;
        }
        if BlockSum::of(&block) != item.sum {
            tracing::error!(
                pvbn = item.pvbn.0,
                slot = item.slot.0,
                "a dirty block is corrupt in the cache file: lost"
            );
            return HashResult::Corrupt;
        }
        let fingerprint = Fingerprint::of(&block);
        HashResult::Done {
            fingerprint,
            existing: self.find_fingerprint(&fingerprint),
        }
    }

    fn find_fingerprint(&self, fingerprint: &Fingerprint) -> Option<Pvbn> {
        let probe = self.index().probe(fingerprint);
        probe.resolve(&self.index_files).unwrap_or_else(|error| {
            // Costs one chance to deduplicate, never data.
            tracing::warn!(%error, "fingerprint index");
            None
        })
    }

    /// Takes a confirmed object's fingerprints into the index; runs under the core's lock and does no I/O.
    pub(super) fn remember(self: &Arc<Self>, descriptor: &ObjectDescriptor) {
        let mut index = self.index();
        for block in descriptor.blocks() {
            if let Err(error) = index.insert(block.fingerprint, block.pvbn) {
                self.index_entries_dropped
                    .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if matches!(error, InsertError::MemtableFull { .. })
                    && !self.index_is_full.swap(true, std::sync::atomic::Ordering::Relaxed)
                {
                    let gateway = self.clone();
                    self.checkpointing.run(move || gateway.drive(Event::CheckpointNow));
                }
            }
        }
    }

    pub(super) fn upload(self: &Arc<Self>, job: JobId, items: Vec<UploadItem>) {
        let gateway = self.clone();
        self.hashing.run(move || match gateway.make_object(&items) {
            Ok((descriptor, object)) => gateway.put(job, descriptor, object),
            Err(failure) => gateway.drive(Event::Uploaded {
                job,
                result: Err(failure),
            }),
        });
    }

    fn make_object(&self, items: &[UploadItem]) -> Result<(ObjectDescriptor, Vec<u8>), UploadFailure> {
        let mut bytes = vec![0; items.len() * BLOCK_BYTES];
        let mut corrupt = Vec::new();
        for (item, block) in items.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            let read = self.cache.read(item.slot, block);
            read.map_err(|error| UploadFailure::Disk(disk_error("cache file read", &error)))?;
            if BlockSum::of(block) != item.sum {
                corrupt.push(item.pvbn);
            }
        }
        if !corrupt.is_empty() {
            return Err(UploadFailure::Corrupt(corrupt));
        }
        let blocks: Vec<_> = items
            .iter()
            .zip(bytes.chunks_exact(BLOCK_BYTES))
            .map(|(item, block)| (item.pvbn, item.fingerprint, block))
            .collect();
        Ok(tombolo_cloud_driver::object::encode_object(
            &blocks,
            self.cloud.compression,
        ))
    }
}
