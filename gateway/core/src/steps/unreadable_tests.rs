//! Dirty blocks whose slots cannot be read for a while, or ever.

use super::*;
use crate::DiskError;
use crate::event::{Event, Token, WriteRequest};
use crate::test_bench::{Bench, Fails, span};
use alloc::{string::String, vec};
use tombolo_base::BlockSum;

const MINUTE_MS: u64 = 60_000;
/// The cloud has none like these.
const NEW_SUMS: [u64; 4] = [100, 101, 102, 103];

/// Hash jobs cannot read the block.
fn fails_hashing(bad: Pvbn) -> Fails {
    Box::new(move |command, event| {
        if let (Command::Hash { items, .. }, Event::Hashed { results, .. }) = (command, event) {
            for (_, result) in items.iter().zip(results).filter(|(item, _)| item.pvbn == bad) {
                *result = HashResult::Unreadable;
            }
        }
    })
}

/// Uploads cannot read the block.
fn fails_uploads(bad: Pvbn) -> Fails {
    Box::new(move |command, event| {
        if let (Command::Upload { items, .. }, Event::Uploaded { result, .. }) = (command, event)
            && items.iter().any(|item| item.pvbn == bad)
        {
            let error = DiskError {
                operation: "read of a slot",
                reason: String::from("EIO"),
            };
            let unreadable = vec![bad];
            *result = Err(UploadFailure::Disk { error, unreadable });
        }
    })
}

/// Four blocks were written, of which the second cannot be read, and are drained.
fn drain(fails: fn(Pvbn) -> Fails) -> (Bench, Pvbn) {
    let mut bench = Bench::new();
    let bad = bench.core.next_pvbn().plus(1);
    bench.fails = fails(bad);
    let sums = NEW_SUMS.map(|sum| Some(BlockSum(sum)));
    bench.step(Event::Write {
        token: Token(1),
        request: WriteRequest::new(span(0, 4), sums.to_vec()),
    });
    bench.step(Event::Drain);
    (bench, bad)
}

fn repair(bench: &mut Bench) {
    bench.fails = Box::new(|_, _| ());
}

/// The blocks of each object that was uploaded.
fn uploaded(bench: &Bench) -> Vec<Vec<Pvbn>> {
    let uploaded = bench.commands.iter().filter_map(|command| match command {
        Command::Remember { descriptor } => Some(descriptor.blocks().iter().map(|block| block.pvbn).collect()),
        _ => None,
    });
    uploaded.collect()
}

#[test]
fn a_disk_that_comes_back_within_minutes_loses_nothing() {
    let (mut bench, bad) = drain(fails_hashing);
    assert_eq!(uploaded(&bench).concat().len(), 3, "the others go on");
    bench.pass_millis(4 * MINUTE_MS);
    assert_eq!(bench.core.snapshot().unreadable_blocks, 1);
    assert_eq!(bench.core.snapshot().counters.blocks_lost, 0);
    let attempts = bench
        .commands
        .iter()
        .filter(|command| matches!(command, Command::Hash { items, .. } if items.iter().any(|item| item.pvbn == bad)));
    let attempts = attempts.count();
    assert!((6..12).contains(&attempts), "{attempts} attempts in four minutes");
    repair(&mut bench);
    bench.pass_millis(MINUTE_MS);
    assert!(uploaded(&bench).last().unwrap().contains(&bad));
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.unreadable_blocks, snapshot.counters.blocks_lost), (0, 0));
    assert!(bench.core.is_drained());
}

#[test]
fn a_block_that_stays_unreadable_is_given_up() {
    let (mut bench, _) = drain(fails_hashing);
    bench.pass_millis(7 * MINUTE_MS);
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.unreadable_blocks, snapshot.counters.blocks_lost), (0, 1));
    assert!(bench.core.is_drained());
}

#[test]
fn what_an_upload_cannot_read_does_not_hold_up_its_pack() {
    let (mut bench, bad) = drain(fails_uploads);
    assert_eq!(uploaded(&bench).concat().len(), 3, "the others go at once");
    let unique = bench.core.snapshot().totals.blocks_unique;
    assert_eq!(unique, 3);
    repair(&mut bench);
    bench.pass_millis(MINUTE_MS);
    assert_eq!(uploaded(&bench).last(), Some(&vec![bad]));
    assert_eq!(bench.core.snapshot().totals.blocks_unique, 4);
}

#[test]
fn an_unreadable_block_that_is_overwritten_is_gone_at_once() {
    let (mut bench, bad) = drain(fails_hashing);
    bench.write(2, span(1, 1), 104);
    bench.step(Event::Drain);
    assert!(bench.core.is_drained(), "before the time to read it again");
    assert!(!uploaded(&bench).concat().contains(&bad));
    assert_eq!(bench.core.snapshot().unreadable_blocks, 0);
}
