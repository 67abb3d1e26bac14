//! The journal and local metadata: what a damaged disk may hand to recovery. Where a checksum guards a format, the input
//! is tried once more with the checksum put right, as a faulty writer would.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_base::BlockSum;
use tombolo_core::record::{BATCH_HEADER_BYTES, Batch, SegmentHeader};
use tombolo_core::slot_page::decode_slot_page;
use tombolo_core::{MapPage, Superblock};

const SUM_OFFSET: usize = 40;
const IDENTITY_OFFSET: usize = 24;

fuzz_target!(|bytes: &[u8]| {
    let _ = SegmentHeader::decode(bytes);
    let _ = Superblock::decode(bytes);
    let _ = decode_slot_page(bytes);
    if let Ok(page) = MapPage::decode(bytes) {
        for entry in 0..256 {
            let (_, run) = page.get(entry);
            assert!(run >= 1 && entry + run <= 256);
        }
    }
    round_trip(bytes);
    round_trip(&as_batch(bytes));
});

fn round_trip(bytes: &[u8]) {
    let Some(identity) = bytes.get(IDENTITY_OFFSET..IDENTITY_OFFSET + 8) else { return };
    let identity = u64::from_le_bytes(identity.try_into().unwrap());
    if let Ok((batch, length)) = Batch::decode(bytes, identity) {
        assert_eq!(Batch::decode(&batch.encode(identity), identity).unwrap().0, batch);
        assert!(length <= bytes.len());
    }
}

/// The input as the payload of a batch whose first byte says how many records it has.
fn as_batch(bytes: &[u8]) -> Vec<u8> {
    let empty = Batch {
        lsn: Default::default(),
        durable_lsn: Default::default(),
        time: Default::default(),
        records: Vec::new(),
    };
    let mut batch = empty.encode(1);
    let Some((count, payload)) = bytes.split_first() else { return batch };
    batch.extend_from_slice(payload);
    batch[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    batch[32..36].copy_from_slice(&u32::from(*count).to_le_bytes());
    let summed = [&batch[..SUM_OFFSET], &batch[BATCH_HEADER_BYTES..]].concat();
    batch[SUM_OFFSET..BATCH_HEADER_BYTES].copy_from_slice(&BlockSum::of(&summed).0.to_le_bytes());
    batch
}
