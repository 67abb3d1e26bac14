use super::*;
use crate::event::{Command, Event};
use crate::format::record::{Batch, Record};
use crate::test_bench::{Bench, is_fetch, span};

const WRITE: Token = Token(100);
const HEAD: Token = Token(101);
const TAIL: Token = Token(102);
/// Another client's write of the same blocks.
const OTHER: u64 = 200;

fn holding_merges_and_fetches() -> Bench {
    Bench::new().holding(|command| is_merge(command) || is_fetch(command))
}

fn is_merge(command: &Command) -> bool {
    matches!(command, Command::Merge { .. })
}

/// A write from `first` on that keeps some bytes of the first and the last of its three blocks.
fn begin(bench: &mut Bench, first: u64, zeroes: Option<Span>) {
    let write = PartialWrite {
        span: span(first, 3),
        head: Some(HEAD),
        tail: Some(TAIL),
        zeroes,
        force_unit_access: false,
    };
    bench.step(Event::WritePartly { token: WRITE, write });
}

fn write_other(bench: &mut Bench, block: u64) {
    bench.write(OTHER, span(block, 1), 9);
}

fn fail_fetches(bench: &mut Bench) {
    let fetches = bench.take_fetches();
    assert!(!fetches.is_empty());
    fetches.iter().for_each(|fetch| bench.fail_fetch(fetch, false));
}

#[test]
fn zeroes_with_ragged_ends_are_one_batch() {
    let mut bench = Bench::new();
    begin(&mut bench, 1000, Some(span(1001, 1)));
    assert_eq!(
        (bench.count(is_merge), bench.take_answers()),
        (1, vec![(WRITE.0, true)])
    );
    let batches = bench.batches();
    let [batch] = &batches[..] else { panic!("{batches:?}") };
    let place = |record: &Record| match record {
        Record::Hole { first, count, .. } => (*first, *count, true),
        Record::Write { first, sums, .. } => (*first, sums.len() as u64, false),
        other => panic!("{other:?}"),
    };
    let places: Vec<_> = batch.records.iter().map(place).collect();
    assert_eq!(places, [(1001, 1, true), (1000, 1, false), (1002, 1, false)]);
}

#[test]
fn others_wait_until_it_is_written() {
    let mut bench = holding_merges_and_fetches();
    begin(&mut bench, 1000, None);
    write_other(&mut bench, 1001);
    assert_eq!((bench.count(is_merge), bench.take_answers().len()), (1, 0));
    bench.finish_held(is_merge);
    assert_eq!(bench.take_answers(), [(WRITE.0, true), (OTHER, true)]);
    let first_of = |batch: &Batch| match &batch.records[0] {
        Record::Write { first, .. } => *first,
        other => panic!("{other:?}"),
    };
    assert_eq!(bench.batches().iter().map(first_of).collect::<Vec<_>>(), [1000, 1001]);
}

#[test]
fn a_client_that_leaves_holds_nobody_up() {
    // While it reads: its edges are in the cloud.
    let mut bench = holding_merges_and_fetches();
    begin(&mut bench, 8, None);
    write_other(&mut bench, 9);
    assert!(bench.answers.is_empty());
    bench.step(Event::Cancel { token: WRITE });
    fail_fetches(&mut bench);
    assert_eq!((bench.count(is_merge), bench.take_answers()), (0, vec![(OTHER, true)]));

    // While it merges.
    let mut bench = holding_merges_and_fetches();
    begin(&mut bench, 1000, None);
    write_other(&mut bench, 1001);
    assert_eq!(bench.count(is_merge), 1);
    bench.step(Event::Cancel { token: WRITE });
    bench.finish_held(is_merge);
    assert_eq!(bench.take_answers(), [(OTHER, true)]);

    // While it waits for another of its kind.
    let mut bench = holding_merges_and_fetches();
    begin(&mut bench, 1000, None);
    let write = PartialWrite {
        span: span(1002, 3),
        head: Some(Token(301)),
        tail: None,
        zeroes: None,
        force_unit_access: false,
    };
    bench.step(Event::WritePartly {
        token: Token(300),
        write,
    });
    write_other(&mut bench, 1003);
    bench.step(Event::Cancel { token: Token(300) });
    bench.finish_held(is_merge);
    let mut answers = bench.take_answers();
    answers.sort_unstable();
    assert_eq!(
        (bench.count(is_merge), answers),
        (1, vec![(WRITE.0, true), (OTHER, true)])
    );
}

#[test]
fn an_edge_that_cannot_be_read_refuses_the_write() {
    let mut bench = holding_merges_and_fetches();
    begin(&mut bench, 8, None);
    write_other(&mut bench, 9);
    fail_fetches(&mut bench);
    assert_eq!(
        (bench.count(is_merge), bench.take_answers()),
        (0, vec![(WRITE.0, false), (OTHER, true)])
    );
}
