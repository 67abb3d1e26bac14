use super::*;
use crate::event::{Event, StoreFailure, WriteRequest};
use crate::format::page::MapPage;
use crate::format::record::{Batch, Record, SEGMENT_HEADER_BYTES};
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, VOLUME};
use std::collections::BTreeMap;

const WRITE: Token = Token(100);
const HEAD: Token = Token(101);
const TAIL: Token = Token(102);
/// Another client's write of the same blocks.
const OTHER: Token = Token(200);

fn span(first: u64, count: u64) -> Span {
    Span {
        volume: VOLUME,
        first,
        count,
    }
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

fn write_other(bench: &mut Bench, first: u64) {
    bench.step(Event::Write {
        token: OTHER,
        request: WriteRequest::new(span(first, 1), vec![Some(BlockSum(9))]),
    });
}

/// What the core did until nothing was left to be done but what waits for a fetch.
#[derive(Debug, Default)]
struct Done {
    merges: u32,
    batches: Vec<Vec<Record>>,
    answers: BTreeMap<Token, bool>,
    fetches: Vec<crate::event::JobId>,
}

/// `merges`: whether commands to merge are carried out, with so many blocks.
fn carry_out(bench: &mut Bench, merges: Option<usize>) -> Done {
    let mut done = Done::default();
    while !bench.out.is_empty() {
        for command in std::mem::take(&mut bench.out) {
            match command {
                Command::Merge { token } => {
                    done.merges += 1;
                    if let Some(count) = merges {
                        let sums = vec![Some(BlockSum(1)); count];
                        bench.step(Event::Merged { token, sums });
                    }
                }
                Command::WriteSlots { token, .. } => bench.step(Event::SlotsWritten { token, result: Ok(()) }),
                Command::ReadSlots { token, .. } => bench.step(Event::SlotsRead {
                    token,
                    result: Ok(()),
                    corrupt: Vec::new(),
                    unreadable: Vec::new(),
                }),
                Command::WriteJournal(write) => {
                    let head = usize::from(write.offset == 0) * SEGMENT_HEADER_BYTES;
                    let identity = u64::from_le_bytes(write.bytes[head + 24..head + 32].try_into().unwrap());
                    let (batch, _) = Batch::decode(&write.bytes[head..], identity).unwrap();
                    done.batches.push(batch.records);
                    let (lsn, end, result) = (write.lsn, write.end, Ok(()));
                    bench.step(Event::JournalWritten { lsn, end, result });
                }
                Command::Answer { token, result } => {
                    let before = done.answers.insert(token, result.is_ok());
                    assert_eq!(before, None, "{token:?} is answered once");
                }
                Command::LoadPage {
                    volume,
                    page,
                    generation,
                } => bench.step(Event::PageLoaded {
                    volume,
                    page,
                    generation,
                    result: Ok(MapPage::default()),
                }),
                Command::Fetch { fetch, .. } => done.fetches.push(fetch),
                // What is lost is looked for elsewhere.
                Command::FindCopies { job, fingerprints } => {
                    let copies = vec![None; fingerprints.len()];
                    bench.step(Event::CopiesFound { job, copies });
                }
                _ => {}
            }
        }
    }
    done
}

#[test]
fn zeroes_with_ragged_ends_are_one_batch() {
    let mut bench = Bench::new(Economy::default());
    begin(&mut bench, 1000, Some(span(1001, 1)));
    let done = carry_out(&mut bench, Some(2));
    assert_eq!((done.merges, done.answers.get(&WRITE)), (1, Some(&true)));
    let [records] = &done.batches[..] else {
        panic!("{:?}", done.batches)
    };
    let place = |record: &Record| match record {
        Record::Hole { first, count, .. } => (*first, *count, true),
        Record::Write { first, sums, .. } => (*first, sums.len() as u64, false),
        other => panic!("{other:?}"),
    };
    let places: Vec<_> = records.iter().map(place).collect();
    assert_eq!(places, [(1001, 1, true), (1000, 1, false), (1002, 1, false)]);
}

#[test]
fn others_wait_until_it_is_written() {
    let mut bench = Bench::new(Economy::default());
    begin(&mut bench, 1000, None);
    write_other(&mut bench, 1001);
    let done = carry_out(&mut bench, None);
    assert_eq!((done.merges, done.answers.len()), (1, 0));
    let sums = vec![Some(BlockSum(1)); 3];
    bench.step(Event::Merged { token: WRITE, sums });
    let done = carry_out(&mut bench, None);
    assert_eq!(done.answers, BTreeMap::from([(WRITE, true), (OTHER, true)]));
    let first_of = |records: &Vec<Record>| match &records[0] {
        Record::Write { first, .. } => *first,
        other => panic!("{other:?}"),
    };
    assert_eq!(done.batches.iter().map(first_of).collect::<Vec<_>>(), [1000, 1001]);
}

#[test]
fn a_client_that_leaves_holds_nobody_up() {
    // While it reads: its edges are in the cloud.
    let mut bench = Bench::new(Economy::default());
    begin(&mut bench, 8, None);
    write_other(&mut bench, 9);
    let done = carry_out(&mut bench, None);
    assert!(done.answers.is_empty() && !done.fetches.is_empty());
    bench.step(Event::Cancel { token: WRITE });
    for fetch in done.fetches {
        let result = Err(StoreFailure {
            retryable: false,
            reason: "gone".into(),
        });
        bench.step(Event::Fetched { fetch, result });
    }
    let done = carry_out(&mut bench, None);
    assert_eq!((done.merges, done.answers), (0, BTreeMap::from([(OTHER, true)])));

    // While it merges.
    let mut bench = Bench::new(Economy::default());
    begin(&mut bench, 1000, None);
    write_other(&mut bench, 1001);
    assert_eq!(carry_out(&mut bench, None).merges, 1);
    bench.step(Event::Cancel { token: WRITE });
    let sums = vec![Some(BlockSum(1)); 3];
    bench.step(Event::Merged { token: WRITE, sums });
    assert_eq!(carry_out(&mut bench, None).answers, BTreeMap::from([(OTHER, true)]));

    // While it waits for another of its kind.
    let mut bench = Bench::new(Economy::default());
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
    let done = carry_out(&mut bench, Some(3));
    assert_eq!(
        (done.merges, done.answers),
        (1, BTreeMap::from([(WRITE, true), (OTHER, true)]))
    );
}

#[test]
fn an_edge_that_cannot_be_read_refuses_the_write() {
    let mut bench = Bench::new(Economy::default());
    begin(&mut bench, 8, None);
    write_other(&mut bench, 9);
    let fetches = carry_out(&mut bench, None).fetches;
    for fetch in fetches {
        let result = Err(StoreFailure {
            retryable: false,
            reason: "gone".into(),
        });
        bench.step(Event::Fetched { fetch, result });
    }
    let done = carry_out(&mut bench, None);
    assert_eq!(
        (done.merges, done.answers),
        (0, BTreeMap::from([(WRITE, false), (OTHER, true)]))
    );
}
