//! Hash and upload jobs: slots to fingerprints, slots to objects.

use super::Gateway;
use super::execute::disk_error;
use super::upload_buffers::KeptBlock;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tombolo_base::{BLOCK_BYTES, BlockSum, Fingerprint, ObjectDescriptor, Pvbn};
use tombolo_cloud_driver::PooledBuffer;
use tombolo_cloud_driver::object::encode_object_into;
use tombolo_core::{Event, HashItem, HashResult, JobId, UploadFailure, UploadItem};

impl Gateway {
    pub(super) fn hash(self: &Arc<Self>, job: JobId, items: Vec<HashItem>) {
        let gateway = self.clone();
        self.hashing.run(move || {
            let results = gateway.hash_blocks(&items);
            gateway.submit(Event::Hashed { job, results });
        });
    }

    /// New blocks stay in memory for their upload.
    fn hash_blocks(&self, items: &[HashItem]) -> Vec<HashResult> {
        let bytes = items.len() * BLOCK_BYTES;
        let mut buffer = self.buffers.take(bytes).with_length(bytes);
        let slots: Vec<_> = items.iter().map(|item| item.slot).collect();
        let read = self.cache.read_each(&slots, &mut buffer.bytes);
        let blocks = items.iter().zip(buffer.bytes.chunks_exact(BLOCK_BYTES)).zip(read);
        let results: Vec<_> = blocks
            .map(|((item, block), read)| self.hash_block(item, block, read))
            .collect();
        let new = results
            .iter()
            .zip(items)
            .enumerate()
            .filter(|(_, (result, _))| matches!(result, HashResult::Done { existing: None, .. }));
        let new = new.map(|(index, (_, item))| (item.pvbn, index)).collect();
        self.upload_buffers.keep(buffer, new);
        results
    }

    fn hash_block(&self, item: &HashItem, block: &[u8], read: io::Result<()>) -> HashResult {
        if let Err(error) = read {
            tracing::error!(slot = item.slot.0, pvbn = item.pvbn.0, %error, "a block that is not uploaded cannot be read");
            return HashResult::Unreadable;
        }
        if BlockSum::of(block) != item.sum {
            return HashResult::Corrupt;
        }
        let fingerprint = Fingerprint::of(block);
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

    fn make_object(&self, items: &[UploadItem]) -> Result<(ObjectDescriptor, PooledBuffer), UploadFailure> {
        let kept: Vec<_> = items.iter().map(|item| self.upload_buffers.take(item.pvbn)).collect();
        let missing: Vec<_> = items.iter().zip(&kept).filter(|(_, kept)| kept.is_none()).collect();
        let slots: Vec<_> = missing.iter().map(|(item, _)| item.slot).collect();
        let mut bytes = vec![0; missing.len() * BLOCK_BYTES];
        let read = self.cache.read_each(&slots, &mut bytes);
        let (mut corrupt, mut unreadable, mut unread) = (Vec::new(), Vec::new(), None);
        for (((item, _), block), read) in missing.iter().zip(bytes.chunks_exact(BLOCK_BYTES)).zip(read) {
            match read {
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
        let mut read = bytes.chunks_exact(BLOCK_BYTES);
        let blocks = items.iter().zip(&kept).map(|(item, kept)| {
            let block = kept.as_ref().map(KeptBlock::bytes).or_else(|| read.next());
            (item.pvbn, item.fingerprint, block.expect("what was not kept was read"))
        });
        let blocks: Vec<_> = blocks.collect();
        let mut object = self.buffers.take(ObjectDescriptor::object_bytes_max(blocks.len()));
        let ring = self.data_keys.ring();
        let descriptor = encode_object_into(&blocks, self.cloud.compression, &ring, &mut object.bytes);
        Ok((descriptor, object))
    }
}
