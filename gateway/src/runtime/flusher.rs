//! Hash and upload jobs: slots to fingerprints, slots to objects.

use super::Gateway;
use super::execute::disk_error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tombolo_base::{BLOCK_BYTES, BlockSum, Fingerprint, ObjectDescriptor, Pvbn};
use tombolo_core::{Event, HashItem, HashResult, JobId, UploadFailure, UploadItem};

impl Gateway {
    pub(super) fn hash(self: &Arc<Self>, job: JobId, items: Vec<HashItem>) {
        let gateway = self.clone();
        self.hashing.run(move || {
            let results = items.iter().map(|item| gateway.hash_block(item)).collect();
            gateway.submit(Event::Hashed { job, results });
        });
    }

    fn hash_block(&self, item: &HashItem) -> HashResult {
        let mut block = [0; BLOCK_BYTES];
        if let Err(error) = self.cache.read(item.slot, &mut block) {
            tracing::error!(slot = item.slot.0, pvbn = item.pvbn.0, %error, "a block that is not uploaded cannot be read");
            return HashResult::Unreadable;
        }
        if BlockSum::of(&block) != item.sum {
            return HashResult::Corrupt;
        }
        let fingerprint = Fingerprint::of(&block);
        HashResult::Done {
            fingerprint,
            existing: self.find_fingerprint(&fingerprint),
        }
    }

    pub(super) fn find_fingerprint(&self, fingerprint: &Fingerprint) -> Option<Pvbn> {
        let probe = self.index().probe(fingerprint);
        probe.resolve(&self.index_files).unwrap_or_else(|error| {
            // Costs one chance to deduplicate, never data.
            tracing::warn!(%error, "fingerprint index");
            None
        })
    }

    /// Lost blocks' fingerprints: the core uses none of them in this life, so there is no hurry.
    pub(super) fn forget_fingerprints(self: &Arc<Self>, blocks: Vec<(Fingerprint, Pvbn)>) {
        let gateway = self.clone();
        self.hashing.run(move || {
            for (fingerprint, pvbn) in blocks {
                // Without the lock first: most are found by reading.
                if gateway.find_fingerprint(&fingerprint) == Some(pvbn)
                    && let Err(error) = gateway.index().remove(&gateway.index_files, fingerprint, pvbn)
                {
                    tracing::warn!(%error, "the fingerprint of a lost block could not be removed from the index");
                }
            }
        });
    }

    pub(super) fn find_copies(self: &Arc<Self>, job: JobId, fingerprints: Vec<Fingerprint>) {
        let gateway = self.clone();
        self.io.run(move || {
            let copies = fingerprints
                .iter()
                .map(|fingerprint| gateway.find_fingerprint(fingerprint));
            let copies = copies.collect();
            gateway.submit(Event::CopiesFound { job, copies });
        });
    }

    /// Takes a confirmed object's fingerprints into the index; runs under the core's lock and does no I/O.
    pub(super) fn remember(self: &Arc<Self>, descriptor: &ObjectDescriptor) {
        let mut index = self.index();
        for block in descriptor.blocks() {
            // The core holds uploads back before the memtable is full; it can be so only when it cannot be written.
            if let Err(error) = index.insert(block.fingerprint, block.pvbn) {
                self.index_entries_dropped.fetch_add(1, Ordering::Relaxed);
                if !self.index_is_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "fingerprints are dropped, so that their contents may be stored twice");
                }
            }
        }
    }

    pub(super) fn upload(self: &Arc<Self>, job: JobId, items: Vec<UploadItem>) {
        let gateway = self.clone();
        self.hashing.run(move || match gateway.make_object(&items) {
            Ok((descriptor, object)) => gateway.put(job, descriptor, object),
            Err(failure) => gateway.submit(Event::Uploaded {
                job,
                result: Err(failure),
            }),
        });
    }

    fn make_object(&self, items: &[UploadItem]) -> Result<(ObjectDescriptor, Vec<u8>), UploadFailure> {
        let mut bytes = vec![0; items.len() * BLOCK_BYTES];
        let (mut corrupt, mut unreadable, mut unread) = (Vec::new(), Vec::new(), None);
        for (item, block) in items.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            match self.cache.read(item.slot, block) {
                Ok(()) if BlockSum::of(block) != item.sum => corrupt.push(item.pvbn),
                Ok(()) => {}
                Err(error) => {
                    unread = Some(disk_error("cache file read", &error));
                    unreadable.push(item.pvbn);
                }
            }
        }
        if let Some(error) = unread {
            return Err(UploadFailure::Disk { error, unreadable });
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
            &self.data_keys.ring(),
        ))
    }
}
