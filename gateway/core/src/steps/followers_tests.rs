//! Blocks that equal one whose upload is under way: how many of them wait for it, and what confirms them.

use super::*;
use crate::config::Config;
use crate::event::{Event, StoreFailure};
use crate::test_bench::{Bench, span};

const FIRST_BLOCK: u64 = 1 << 20;
/// The cloud has no such block.
const NEW_SUM: u64 = 77;

fn holding_uploads(blocks: u32, followers_max: usize) -> Bench {
    let config = Config {
        slot_count: blocks + 1_024,
        dirty_blocks_max: blocks,
        followers_max,
        ..Config::default()
    };
    Bench::large(config).holding(|command| matches!(command, Command::Upload { .. }))
}

/// Blocks of one content, no two of them side by side.
fn write(bench: &mut Bench, blocks: u64) {
    for index in 0..blocks {
        bench.write(index, span(FIRST_BLOCK + 2 * index, 1), NEW_SUM);
        bench.commands.clear();
    }
    bench.step(Event::Drain);
}

fn end_uploads(bench: &mut Bench) {
    while let Some(upload) = bench.held.pop() {
        bench.finish(&upload);
    }
}

#[test]
fn an_outage_under_equal_blocks_ends_in_small_batches() {
    // One more redirect than a batch has room for.
    let blocks = (crate::format::record::BATCH_PAYLOAD_BYTES_MAX / 37 + 2) as u32;
    let mut bench = holding_uploads(blocks, Config::default().followers_max);
    write(&mut bench, u64::from(blocks));
    assert_eq!(bench.held.len(), 1, "the contents are uploaded once");
    end_uploads(&mut bench);
    assert!(bench.core.is_drained());
    let is_redirect = |record: &&Record| matches!(record, Record::Redirect { .. });
    let batches = bench.batches();
    let redirects = batches
        .iter()
        .map(|batch| batch.records.iter().filter(is_redirect).count());
    assert_eq!(redirects.clone().sum::<usize>(), blocks as usize - 1);
    let most = redirects.max().unwrap_or(0);
    assert!(most <= 2_048 + 2 * 256, "{most} redirects in a batch");
}

#[test]
fn a_pack_that_holds_back_others_is_uploaded_before_it_is_full() {
    let mut bench = holding_uploads(1_000, 1);
    write(&mut bench, 900);
    assert_eq!(bench.held.len(), 1);
    let followers = bench.core.flush.follower_count;
    assert!((1..=512).contains(&followers), "{followers}");
    end_uploads(&mut bench);
    assert!(bench.core.is_drained());
    assert_eq!(bench.core.flush.follower_count, 0);
}

#[test]
fn uploads_are_counted_and_a_failed_one_is_made_again() {
    let mut bench = holding_uploads(100, 10);
    write(&mut bench, 3);
    let Some(Command::Upload { job, .. }) = bench.held.pop() else {
        panic!("it is uploaded")
    };
    let failure = StoreFailure {
        retryable: true,
        reason: "away".into(),
    };
    let result = Err(UploadFailure::Store(failure));
    bench.step(Event::Uploaded { job, result });
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.counters.uploads, snapshot.counters.upload_failures), (0, 1));
    assert_eq!(snapshot.store.error.as_deref(), Some("away"));
    assert_eq!(snapshot.uploads_in_flight, 0);
    bench.now = bench.core.next_deadline().unwrap().0;
    bench.step(Event::Tick);
    assert_eq!(bench.held.len(), 1);
    end_uploads(&mut bench);
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.counters.uploads, snapshot.counters.upload_failures), (1, 1));
    assert!(snapshot.counters.upload_bytes >= 4096);
    assert_eq!(snapshot.counters.upload_bytes, snapshot.totals.object_bytes);
    assert_eq!(
        (snapshot.totals.blocks_unique, snapshot.totals.blocks_duplicate),
        (1, 2)
    );
    assert_eq!(snapshot.store.error, None);
}
