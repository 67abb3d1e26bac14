//! Local metadata that cannot be had: by whom it is missed, and what they are told.

use super::*;
use crate::event::{Answer, Event, PartialWrite, Refusal, StoreFailure, Token};
use crate::format::page::PAGE_ENTRIES;
use crate::steps::checkpoint::CHECKPOINT_RETRY_MS;
use crate::test_bench::{Bench, is_checkpoint, is_fetch, span};
use alloc::format;
use tombolo_prefetch::ClientId;

/// Where the core does not know the map by itself.
const FAR: u64 = PAGE_ENTRIES;
const READ: Token = Token(1);
const STATUS: Token = Token(2);
const RESOLVE: Token = Token(3);
const PARTIAL: Token = Token(4);
const EDGE: Token = Token(5);

fn away() -> MetadataError {
    MetadataError::Unanswered("no route to host".into())
}

fn altered() -> MetadataError {
    MetadataError::Altered("nodes/7 does not exist".into())
}

/// Every load of the map fails with this.
fn failing(error: fn() -> MetadataError) -> Bench {
    let mut bench = Bench::new();
    bench.fails = Box::new(move |_, event| {
        if let Event::PageLoaded { result, .. } = event {
            *result = Err(error());
        }
    });
    bench
}

/// Of everything that a client may wait for the map with.
fn answers(bench: &mut Bench) -> Vec<(Token, Result<Answer, Refusal>)> {
    let client = ClientId::default();
    bench.step(Event::Read {
        token: READ,
        client,
        span: span(FAR, 2),
    });
    bench.step(Event::Status {
        token: STATUS,
        span: span(FAR, 2),
    });
    bench.step(Event::Resolve {
        token: RESOLVE,
        span: span(FAR, 2),
    });
    let write = PartialWrite {
        span: span(FAR, 1),
        head: Some(EDGE),
        tail: None,
        zeroes: None,
        force_unit_access: false,
    };
    bench.step(Event::WritePartly { token: PARTIAL, write });
    core::mem::take(&mut bench.answers)
}

#[test]
fn while_the_store_has_the_map_and_is_away_clients_are_told_what_they_are_told_of_data() {
    let mut bench = failing(away);
    let told = answers(&mut bench);
    let refusal = Refusal::CloudUnavailable("no route to host".into());
    let expected = [READ, STATUS, RESOLVE, PARTIAL].map(|token| (token, Err(refusal.clone())));
    assert_eq!(told, expected);
    assert_eq!(bench.core.counters.reads_refused, 2, "that of the edge is one too");
    assert_eq!(bench.core.reads.reserved, 0);
    // It is asked anew when it is there again.
    bench.fails = Box::new(|_, _| {});
    let told = answers(&mut bench);
    assert!(
        told.len() == 4 && told.iter().all(|(_, result)| result.is_ok()),
        "{told:?}"
    );
}

#[test]
fn a_part_of_the_map_that_is_gone_from_the_store_is_named_and_nobody_is_told_to_try_again() {
    let told = answers(&mut failing(altered));
    assert_eq!(told.len(), 4);
    for (_, result) in told {
        let Err(refusal @ Refusal::Metadata(_)) = result else {
            panic!("{result:?}")
        };
        let said = format!("{refusal}");
        assert!(
            said.contains("nodes/7 does not exist") && said.contains("in the store"),
            "{said}"
        );
    }
}

#[test]
fn a_descriptor_that_the_store_has_is_waited_for_like_data() {
    let mut bench = Bench::new().holding(is_fetch);
    bench.fails = Box::new(|_, event| match event {
        Event::PageLoaded { result: Ok(page), .. } => page.set(0, 2, Some(Pvbn(5))),
        Event::DescriptorLoaded { result, .. } => *result = Err(away()),
        _ => {}
    });
    let fetches = bench.read(FAR, 2);
    assert!(fetches.is_empty());
    assert!(
        matches!(bench.answers[..], [(_, Err(Refusal::CloudUnavailable(_)))]),
        "{:?}",
        bench.answers
    );
}

#[test]
fn the_state_of_the_store_follows_from_what_it_says_of_metadata() {
    let mut bench = Bench::new();
    let failure = |retryable| StoreFailure {
        retryable,
        reason: "no route to host".into(),
    };
    let state = |bench: &Bench| {
        let store = bench.core.snapshot().store;
        (store.error, store.error_since, store.last_success)
    };
    bench.step(Event::StoreAsked {
        result: Err(failure(true)),
    });
    let since = bench.core.now;
    bench.pass_millis(10);
    bench.step(Event::StoreAsked {
        result: Err(failure(true)),
    });
    assert_eq!(state(&bench), (Some("no route to host".into()), Some(since), None));
    // It has answered: that it does not have the object.
    bench.step(Event::StoreAsked {
        result: Err(failure(false)),
    });
    assert_eq!(state(&bench), (None, None, Some(bench.core.now)));
    bench.step(Event::StoreAsked {
        result: Err(failure(true)),
    });
    bench.step(Event::StoreAsked { result: Ok(()) });
    assert_eq!(state(&bench), (None, None, Some(bench.core.now)));
}

#[test]
fn a_checkpoint_that_needs_the_store_says_so_and_is_made_when_it_answers() {
    let mut bench = Bench::new().holding(is_checkpoint);
    bench.zero(1, span(0, 4));
    bench.step(Event::CheckpointNow);
    bench.take_held(is_checkpoint);
    bench.step(Event::Checkpointed { result: Err(away()) });
    let said = bench.core.snapshot().metadata_error;
    assert_eq!(said, Some(away()));
    assert!(format!("{}", away()).contains("in the store, which does not answer"));
    bench.pass_millis(CHECKPOINT_RETRY_MS);
    bench.finish_held(is_checkpoint);
    let snapshot = bench.core.snapshot();
    assert_eq!((snapshot.metadata_error, snapshot.counters.checkpoints), (None, 1));
}
