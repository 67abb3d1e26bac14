//! How many blocks an object holds, and how many objects are on their way.

use super::*;
use crate::config::Config;
use crate::event::{Event, Lanes};
use crate::test_bench::{Bench, is_checkpoint, span};

const FIRST_BLOCK: u64 = 1 << 20;
const LANES: usize = 4;

fn is_upload(command: &Command) -> bool {
    matches!(command, Command::Upload { .. })
}

fn config() -> Config {
    Config {
        slot_count: 1 << 15,
        dirty_blocks_max: 1 << 14,
        uploads_max: LANES,
        ..Config::default()
    }
}

/// Blocks of as many contents, no two of them side by side, which nobody waits for.
fn write(bench: &mut Bench, blocks: u64) {
    write_from(bench, 0, blocks);
}

fn write_from(bench: &mut Bench, first: u64, blocks: u64) {
    for index in first..first + blocks {
        bench.write(index, span(FIRST_BLOCK + 2 * index, 1), 1_000 + index);
        bench.commands.clear();
    }
}

fn after_the_delay(config: Config, blocks: u64) -> Bench {
    let flush_delay_ms = config.flush_delay_ms;
    let mut bench = Bench::large(config).holding(is_upload);
    write(&mut bench, blocks);
    bench.pass_millis(flush_delay_ms + 1);
    bench
}

fn drained(config: Config, blocks: u64) -> Bench {
    let mut bench = Bench::large(config).holding(is_upload);
    write(&mut bench, blocks);
    bench.step(Event::Drain);
    bench
}

/// Blocks of the uploads that are held, and of those that follow them.
fn sizes(bench: &mut Bench) -> Vec<usize> {
    let mut sizes = Vec::new();
    while !bench.held.is_empty() {
        assert!(bench.held.len() <= LANES);
        let upload = bench.held.remove(0);
        let Command::Upload { items, .. } = &upload else {
            panic!("uploads alone are held")
        };
        sizes.push(items.len());
        bench.finish(&upload);
    }
    sizes
}

#[test]
fn what_nobody_waits_for_goes_in_the_largest_objects() {
    let mut bench = after_the_delay(config(), 5_000);
    assert_eq!(sizes(&mut bench), [1_024, 1_024, 1_024, 1_024, 904]);
}

#[test]
fn what_nobody_replaces_is_on_its_way_while_it_is_written() {
    let mut bench = Bench::large(config()).holding(is_upload);
    write(&mut bench, 4_095);
    assert!(bench.held.is_empty(), "the delay is not over");
    write_from(&mut bench, 4_095, 4_905);
    assert_eq!(
        sizes(&mut bench),
        [1_024; 8],
        "as soon as there is enough of it for whole objects"
    );
}

#[test]
fn what_is_replaced_soon_waits_for_the_delay() {
    let mut bench = Bench::large(config()).holding(is_upload);
    for _ in 0..4 {
        write(&mut bench, 3_000);
    }
    write_from(&mut bench, 3_000, 3_000);
    assert!(bench.held.is_empty(), "most of what was written is gone already");
    bench.pass_millis(Config::default().flush_delay_ms + 1);
    assert_eq!(sizes(&mut bench).iter().sum::<usize>(), 6_000);
}

#[test]
fn nothing_goes_before_the_delay_if_that_is_not_wanted() {
    let early_flush_blocks = None;
    let mut bench = Bench::large(Config {
        early_flush_blocks,
        ..config()
    })
    .holding(is_upload);
    write(&mut bench, 8_000);
    assert!(bench.held.is_empty());
}

#[test]
fn what_is_waited_for_is_spread_over_the_lanes() {
    let mut bench = drained(config(), 1_000);
    let sizes = sizes(&mut bench);
    assert_eq!(sizes.iter().sum::<usize>(), 1_000);
    assert!(sizes.len() >= LANES, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 256), "{sizes:?}");
}

#[test]
fn a_large_drain_takes_large_objects_as_long_as_there_is_enough() {
    let mut bench = drained(config(), 12_000);
    let sizes = sizes(&mut bench);
    assert_eq!(sizes.iter().sum::<usize>(), 12_000);
    assert_eq!(sizes[..LANES], [1_024; LANES]);
    assert!(sizes.len() < 12_000 / 1_024 + 4 * LANES, "{sizes:?}");
}

#[test]
fn objects_are_as_large_as_is_set() {
    let object_blocks_max = 64;
    let config = Config {
        object_blocks_max,
        ..config()
    };
    let mut bench = after_the_delay(config, 1_000);
    let sizes = sizes(&mut bench);
    assert_eq!(sizes.len(), 1_000_usize.div_ceil(64));
    assert!(sizes.iter().all(|size| *size <= 64));
}

#[test]
fn a_small_backlog_keeps_all_lanes_busy() {
    let dirty_blocks_max = 1_024;
    let config = Config {
        dirty_blocks_max,
        ..config()
    };
    let bench = after_the_delay(config, 1_000);
    assert_eq!(bench.held.len(), LANES, "one object may not hold all that is permitted");
}

/// One block every time that the delay is over.
fn trickle(bench: &mut Bench, first: u64, blocks: u64) {
    for index in first..first + blocks {
        write_from(bench, index, 1);
        bench.pass_millis(bench.core.config.flush_delay_ms + 1);
    }
}

/// Uploads of what was written one block every `every_ms`, with a delay that many of them fit in, while others are on their way.
fn uploads_of_a_stream(flush_delay_ms: u64, every_ms: u64, blocks: u64) -> usize {
    let config = Config {
        flush_delay_ms,
        ..config()
    };
    let mut bench = Bench::large(config).holding(is_upload);
    let mut uploads = 0;
    for index in 0..blocks {
        bench.write(index, span(FIRST_BLOCK + 2 * index, 1), 1_000 + index);
        bench.pass_millis(every_ms);
        bench.commands.clear();
        while bench.held.len() >= LANES {
            bench.finish_held(is_upload);
            uploads += 1;
        }
    }
    uploads + bench.held.len()
}

#[test]
fn a_block_waits_for_the_whole_delay_also_if_others_were_written_just_before() {
    for (flush_delay_ms, every_ms, expected) in [(20, 2, 100), (100, 5, 50), (5_000, 100, 20)] {
        let uploads = uploads_of_a_stream(flush_delay_ms, every_ms, 1_000);
        let (least, most) = (expected * 9 / 10, expected * 11 / 10);
        assert!(
            (least..=most).contains(&uploads),
            "{flush_delay_ms} ms: {uploads}, not about {expected}"
        );
    }
}

fn trickling() -> Bench {
    let flush_delay_ms = 20;
    let config = Config {
        flush_delay_ms,
        ..config()
    };
    Bench::large(config).holding(is_upload)
}

#[test]
fn what_finds_all_lanes_taken_gathers_in_one_object() {
    let mut bench = trickling();
    trickle(&mut bench, 0, 54);
    assert_eq!(sizes(&mut bench), [1, 1, 1, 1, 50], "and not in fifty that queue");
    assert!(bench.core.flush.target.is_none() && bench.core.dirty.is_empty());
}

#[test]
fn an_object_that_waits_for_a_lane_goes_when_it_is_full() {
    let mut bench = trickling();
    trickle(&mut bench, 0, 4);
    write_from(&mut bench, 4, 1_500);
    bench.pass_millis(bench.core.config.flush_delay_ms + 1);
    trickle(&mut bench, 1_504, 100);
    assert_eq!(sizes(&mut bench), [1, 1, 1, 1, 1_024, 576]);
}

#[test]
fn what_an_object_waits_for_a_lane_is_part_of_the_latency_that_stout_sees() {
    let flush_delay_ms = 20;
    let config = Config {
        flush_delay_ms,
        flush_interval: crate::config::FlushInterval::Stout,
        ..config()
    };
    let mut bench = Bench::large(config).holding(is_upload);
    trickle(&mut bench, 0, 5);
    bench.pass_millis(1_000);
    for _ in 0..4 {
        let upload = bench.held.remove(0);
        bench.finish(&upload);
    }
    let last = bench
        .core
        .flush
        .uploads
        .values()
        .next()
        .expect("the fifth is on its way");
    let waited_ms = bench.core.now.micros_since(last.ready) / 1_000;
    assert!(last.running && waited_ms >= 1_000, "{waited_ms} ms");
}

#[test]
fn a_small_backlog_fills_objects_where_few_lanes_are_in_use() {
    let config = Config {
        uploads_max: 64,
        ..config()
    };
    for (uploads, blocks) in [(2, 1_024), (LANES, 1_024), (16, 512), (64, 128)] {
        let mut bench = Bench::large(config.clone()).holding(is_upload);
        bench.step(Event::Lanes(Lanes {
            uploads,
            upload_blocks: usize::MAX,
            ..Lanes::default()
        }));
        write(&mut bench, 3_000);
        bench.pass_millis(config.flush_delay_ms + 1);
        let Some(Command::Upload { items, .. }) = bench.held.first() else {
            panic!("uploads alone are held")
        };
        assert_eq!(items.len(), blocks, "{uploads} lanes");
    }
}

#[test]
fn no_more_is_under_way_than_the_path_carries() {
    for (upload_blocks, under_way) in [(2_048, 2), (1_500, 1), (1, 1), (usize::MAX, LANES)] {
        let mut bench = Bench::large(config()).holding(is_upload);
        bench.step(Event::Lanes(Lanes {
            uploads: LANES,
            upload_blocks,
            ..Lanes::default()
        }));
        write(&mut bench, 5_000);
        bench.pass_millis(Config::default().flush_delay_ms + 1);
        assert_eq!(bench.held.len(), under_way, "{upload_blocks} blocks");
        assert_eq!(sizes(&mut bench).iter().sum::<usize>(), 5_000);
    }
}

/// Less than an object may hold: the first one goes, whatever its size, and no second one beside it.
#[test]
fn uploads_wait_for_room_in_the_index_and_a_checkpoint_makes_it() {
    for (fingerprints_max, at_once, checkpoints_min) in [(2_500, 2 * 1_024, 2), (700, 700, 7)] {
        uploads_wait_for_room(fingerprints_max, at_once, checkpoints_min);
    }
}

fn uploads_wait_for_room(fingerprints_max: usize, at_once: usize, checkpoints_min: usize) {
    let config = Config {
        fingerprints_max,
        checkpoint_interval_ms: 3_600_000,
        ..config()
    };
    let mut bench = Bench::large(config).holding(|command| is_upload(command) || is_checkpoint(command));
    write(&mut bench, 5_000);
    bench.pass_millis(Config::default().flush_delay_ms + 1);
    let blocks = |bench: &Bench| {
        let held = bench.held.iter();
        let items = held.filter_map(|command| match command {
            Command::Upload { items, .. } => Some(items.len()),
            _ => None,
        });
        items.sum::<usize>()
    };
    assert_eq!(
        blocks(&bench),
        at_once,
        "another object's fingerprints would find no room"
    );
    let (mut uploaded, mut checkpoints) = (0, 0);
    while let Some(command) = (!bench.held.is_empty()).then(|| bench.held.remove(0)) {
        let taken = blocks(&bench) + bench.core.flush.remembered;
        assert!(taken <= fingerprints_max, "{taken}");
        match &command {
            Command::Upload { items, .. } => uploaded += items.len(),
            _ => checkpoints += 1,
        }
        bench.finish(&command);
    }
    assert_eq!(uploaded, 5_000);
    assert!(checkpoints >= checkpoints_min, "nothing else makes room");
}
