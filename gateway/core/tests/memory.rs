//! What recovery holds in memory does not grow with the journal.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tombolo_base::{BlockSum, EntryChange, Instant, Lcbn, WallTime};
use tombolo_core::local_metadata::{MetadataRead, Table};
use tombolo_core::record::{Batch, Lsn, Record, SegmentHeader};
use tombolo_core::recovery::{LocalDisk, Parts, recover};
use tombolo_core::{Config, Policies, Superblock};

/// Counts what is allocated.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system's allocator; only numbers are taken down.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SEGMENT_BYTES: usize = 1 << 20;
const IDENTITY: u64 = 7;

/// Segments of a journal in which one entry is written again and again, made when they are asked for.
struct Segments(u64);

fn batch(lsn: Lsn) -> Vec<u8> {
    let change = EntryChange::Put {
        key: b"key".to_vec(),
        value: vec![5; 1000],
    };
    Batch {
        lsn,
        durable_lsn: Lsn(0),
        time: WallTime(0),
        records: vec![Record::Entries(vec![change])],
    }
    .encode(IDENTITY)
}

impl LocalDisk for Segments {
    fn segments(&self) -> Result<Vec<u64>, String> {
        Ok((1..=self.0).collect())
    }

    fn read_segment(&self, segment: u64) -> Result<Vec<u8>, String> {
        let batch_bytes = batch(Lsn(0)).len();
        let batches = (SEGMENT_BYTES / batch_bytes) as u64;
        let lsn_of = |index: u64| Lsn(index * batch_bytes as u64);
        let first = (segment - 1) * batches;
        let header = SegmentHeader {
            segment,
            first_lsn: lsn_of(first),
            journal_identity: IDENTITY,
            allocated_bytes: 0,
        };
        let mut bytes = Vec::with_capacity(SEGMENT_BYTES + 64);
        bytes.extend_from_slice(&header.encode());
        (first..first + batches).for_each(|index| bytes.extend_from_slice(&batch(lsn_of(index))));
        Ok(bytes)
    }

    fn cache_header(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn sum_slot(&self, slot: Lcbn) -> Result<BlockSum, String> {
        Err(format!("nothing is in slot {}", slot.0))
    }
}

/// What the first start writes.
struct Nothing;

impl MetadataRead for Nothing {
    type Error = String;

    fn get(&self, table: Table, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok((table == Table::Super).then(|| Superblock::first(IDENTITY, 64).encode()))
    }

    fn ceiling(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
        Ok(None)
    }

    fn floor(&self, _: Table, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
        Ok(None)
    }
}

#[test]
fn recovery_holds_one_segment_of_the_journal_at_a_time() {
    let config = Config {
        slot_count: 64,
        dirty_blocks_max: 8,
        ..Config::default()
    };
    let capacity = tombolo_cache::Capacity::of_blocks(64);
    let policies = Policies::new(
        Box::new(tombolo_cache::Lru::new(capacity)),
        Box::new(tombolo_prefetch::NoPrefetch),
    );
    let wall_micros = 0;
    let parts = Parts {
        config,
        wall_micros,
        policies,
        published: None,
    };
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let (_, report) = recover(Instant(0), parts, &Nothing, &Segments(24)).unwrap();
    let peak = PEAK.load(Relaxed) - before;
    assert!(report.batches > 20_000, "{report:?}");
    assert!(peak < 3 * SEGMENT_BYTES, "{peak} bytes for a journal of 24 MiB");
}
