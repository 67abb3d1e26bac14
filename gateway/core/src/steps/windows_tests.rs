//! Reads that are larger than the cache, or whose clients go, or whose blocks never come.

use super::*;
use crate::config::Config;
use crate::event::{Event, FetchItem, JobId};
use crate::state::extent_map::Extent;
use crate::state::prefetch_state::Economy;
use crate::test_bench::{Bench, FIRST_PVBN, VOLUME};
use tombolo_base::BlockSum;

const SLOTS: u32 = 32;

struct Reader {
    bench: Bench,
    fetches: Vec<(JobId, Vec<FetchItem>)>,
    answers: Vec<(Token, Result<Answer, Refusal>)>,
}

impl Reader {
    fn new() -> Self {
        let config = Config {
            slot_count: SLOTS,
            dirty_blocks_max: 8,
            ..Config::default()
        };
        Self {
            bench: Bench::with(config, Economy::default()),
            fetches: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn step(&mut self, event: Event) {
        self.bench.step(event);
        for command in core::mem::take(&mut self.bench.out) {
            match command {
                Command::Fetch { fetch, items, .. } => self.fetches.push((fetch, items)),
                Command::Answer { token, result } => self.answers.push((token, result)),
                Command::ReadSlots { token, .. } => self.step(Event::SlotsRead {
                    token,
                    result: Ok(()),
                    corrupt: Vec::new(),
                    unreadable: Vec::new(),
                }),
                _ => {}
            }
        }
    }

    fn read(&mut self, token: u64, first: u64, count: u64) {
        let (token, client) = (Token(token), ClientId(1));
        let volume = VOLUME;
        let span = Span { volume, first, count };
        self.step(Event::Read { token, client, span });
    }

    fn arrive_all(&mut self) {
        while let Some((fetch, items)) = self.fetches.pop() {
            let result = Ok(items.iter().map(|item| Ok(BlockSum(item.index.into()))).collect());
            self.step(Event::Fetched { fetch, result });
        }
    }

    fn answered(&self) -> Vec<(u64, bool)> {
        self.answers
            .iter()
            .map(|(token, result)| (token.0, result.is_ok()))
            .collect()
    }
}

#[test]
fn a_read_of_more_blocks_than_there_are_slots_is_answered() {
    let mut reader = Reader::new();
    reader.read(1, 0, 64);
    reader.arrive_all();
    assert_eq!(reader.answered(), [(1, true)]);
    assert_eq!(reader.bench.core.reads.reserved, 0);
    let dispensable = reader.bench.core.slots.take(SLOTS, None);
    assert!(dispensable.is_some(), "nothing is held any more");
}

#[test]
fn many_large_reads_are_all_answered() {
    let mut reader = Reader::new();
    for token in 0..20 {
        reader.read(token, token, 40);
    }
    reader.arrive_all();
    let mut answered = reader.answered();
    answered.sort_unstable();
    assert_eq!(answered, (0..20).map(|token| (token, true)).collect::<Vec<_>>());
    assert!(reader.bench.core.reads.queue.is_empty());
}

#[test]
fn a_client_that_leaves_makes_room() {
    let mut reader = Reader::new();
    for token in 0..6 {
        reader.read(token, 10 * token, 10);
    }
    let lost = core::mem::take(&mut reader.fetches);
    assert!(!lost.is_empty() && !reader.bench.core.reads.queue.is_empty());
    for token in (0..6).map(Token) {
        reader.step(Event::Cancel { token });
    }
    assert_eq!(reader.bench.core.reads.reserved, 0);
    assert!(reader.bench.core.reads.queue.is_empty() && reader.answers.is_empty());
    // What was under way for them arrives late and is of use to others.
    reader.fetches.extend(lost);
    reader.arrive_all();
    reader.read(9, 0, 64);
    reader.arrive_all();
    assert_eq!(reader.answered(), [(9, true)]);
}

#[test]
fn a_read_for_which_nothing_comes_is_refused() {
    let mut reader = Reader::new();
    for token in 0..6 {
        reader.read(token, 10 * token, 4);
    }
    let deadline = reader.bench.core.next_deadline().unwrap();
    assert!(deadline <= Instant(60_000_000 + 10_000));
    reader.bench.now = 60_000_000 - 1_000;
    reader.step(Event::Tick);
    assert!(reader.answers.is_empty());
    reader.bench.now += 10_000;
    reader.step(Event::Tick);
    assert_eq!(reader.answers.len(), 6);
    let unavailable =
        |(_, result): &(Token, Result<Answer, Refusal>)| matches!(result, Err(Refusal::CloudUnavailable(_)));
    assert!(reader.answers.iter().all(unavailable));
    assert_eq!(reader.bench.core.counters.reads_refused, 6);
    assert_eq!(reader.bench.core.reads.reserved, 0);
}

#[test]
fn a_read_asks_at_once_for_all_pages_of_the_map_that_it_needs() {
    let mut bench = Bench::new(Economy::default());
    let (volume, first, count) = (VOLUME, crate::format::page::PAGE_ENTRIES - 2, 4);
    bench.step(Event::Read {
        token: Token(1),
        client: ClientId(1),
        span: Span { volume, first, count },
    });
    let pages = bench.out.iter().filter_map(|command| match command {
        Command::LoadPage { page, .. } => Some(*page),
        _ => None,
    });
    assert_eq!(pages.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_read_that_meets_a_block_of_no_known_object_says_which() {
    let mut bench = Bench::new(Economy::default());
    let pvbn = Pvbn(FIRST_PVBN + 1_000);
    bench.core.overlay.map.insert(Extent {
        volume: VOLUME,
        first: 64,
        count: 1,
        target: Target::At(pvbn),
    });
    let (volume, first, count) = (VOLUME, 60, 5);
    bench.step(Event::Read {
        token: Token(1),
        client: ClientId(1),
        span: Span { volume, first, count },
    });
    bench.out.clear();
    bench.step(Event::DescriptorLoaded { pvbn, result: Ok(None) });
    let answers = bench.out.iter().filter_map(|command| match command {
        Command::Answer {
            result: Err(Refusal::Lost { block, .. }),
            ..
        } => Some(*block),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), [64]);
}

#[test]
fn a_cache_file_that_gives_nothing_back_ends_the_read() {
    let mut bench = Bench::new(Economy::default());
    let span = Span {
        volume: VOLUME,
        first: 0,
        count: 1,
    };
    bench.step(Event::Read {
        token: Token(1),
        client: ClientId(1),
        span,
    });
    let mut fetches = 0;
    let refusal = loop {
        let mut events = Vec::new();
        let mut answer = None;
        for command in core::mem::take(&mut bench.out) {
            match command {
                Command::Fetch { fetch, items, .. } => {
                    fetches += 1;
                    assert!(fetches < 100, "it is fetched again and again");
                    let result = Ok(items.iter().map(|_| Ok(BlockSum(7))).collect());
                    events.push(Event::Fetched { fetch, result });
                }
                Command::ReadSlots { token, pieces } => {
                    let error = DiskError {
                        operation: "cache file read",
                        reason: "EIO".into(),
                    };
                    events.push(Event::SlotsRead {
                        token,
                        result: Err(error),
                        corrupt: Vec::new(),
                        unreadable: pieces.iter().map(|piece| piece.slot).collect(),
                    });
                }
                Command::Answer { result, .. } => answer = Some(result),
                _ => {}
            }
        }
        if let Some(answer) = answer {
            break answer.unwrap_err();
        }
        events.into_iter().for_each(|event| bench.step(event));
    };
    assert!(matches!(refusal, Refusal::Disk(_)), "{refusal:?}");
    assert_eq!(fetches, 1 + SLOTS_DROPPED_MAX_PER_BLOCK);
}
