//! What the bucket is told, and when. The bench's bucket takes points as a recovery would.

use crate::config::Config;
use crate::event::{
    Answer, Command, Event, HashResult, PublishFailure, Refusal, StopReason, StoreFailure, Token, WriteRequest,
};
use crate::state::extent_map::Target;
use crate::state::unpublished::{RecoveryPoint, UnpublishedChanges};
use crate::test_bench::{Bench, VOLUME, Which, fingerprint_of, span};
use alloc::sync::Arc;
use std::collections::BTreeMap;
use tombolo_base::{BlockSum, EntryChange, FlushMode, MetadataChange, Pvbn, Span, VolumeId};

const PUBLISH: Which = |command| matches!(command, Command::Publish { .. });
const HASH: Which = |command| matches!(command, Command::Hash { .. });
const UPLOAD: Which = |command| matches!(command, Command::Upload { .. });
const SYNC: Which = |command| matches!(command, Command::Sync { .. });
/// Beyond the object that the bench has in the cloud.
const FIRST: u64 = 1 << 20;
const RECOVERY_POINT_MS: u64 = 1_000;

fn bench() -> Bench {
    Bench::with(Config {
        slot_count: 256,
        dirty_blocks_max: 128,
        recovery_point_ms: Some(RECOVERY_POINT_MS),
        ..Config::default()
    })
}

/// The bench begins with a state of which the bucket knows nothing.
fn published() -> Bench {
    let mut bench = bench();
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    assert!(bench.count(PUBLISH) > 0 && bench.core.is_drained());
    bench.commands.clear();
    bench
}

fn write(bench: &mut Bench, token: u64, block: u64, sum: u64) {
    bench.write(token, span(FIRST + block, 1), sum);
}

fn commit(bench: &mut Bench, token: u64, key: &[u8], amount: i64) {
    let entries = vec![
        EntryChange::Put {
            key: key.to_vec(),
            value: vec![token as u8],
        },
        EntryChange::Add {
            key: b"count".to_vec(),
            amount,
        },
    ];
    bench.step(Event::Commit {
        token: Token(token),
        change: MetadataChange {
            entries,
            holes: Vec::new(),
        },
        links: Vec::new(),
    });
}

fn flush(bench: &mut Bench, token: u64, mode: FlushMode) {
    let token = Token(token);
    bench.step(Event::Flush { token, mode });
}

fn points(bench: &Bench) -> Vec<Arc<RecoveryPoint>> {
    let commands = bench.commands.iter();
    let points = commands.filter_map(|command| match command {
        Command::Publish { point } => Some(point.clone()),
        _ => None,
    });
    points.collect()
}

/// What the point maps the file's blocks to, and whether one of its objects or an earlier one has that.
fn blocks(point: &RecoveryPoint) -> BTreeMap<u64, Target> {
    let extents = point.map.iter().filter(|extent| extent.volume == VOLUME);
    let blocks = extents.flat_map(|extent| {
        (0..extent.count).map(move |index| (extent.first + index - FIRST, extent.target.plus(index)))
    });
    blocks.collect()
}

fn holds(point: &RecoveryPoint, target: Target) -> bool {
    let Target::At(pvbn) = target else { return true };
    point.objects.values().any(|object| object.find(pvbn).is_some())
}

#[test]
fn a_point_is_published_when_the_oldest_change_is_old_enough() {
    let mut bench = published();
    write(&mut bench, 1, 0, 150);
    let since = bench.core.snapshot().oldest_unpublished.unwrap();
    bench.pass_millis(RECOVERY_POINT_MS / 2);
    write(&mut bench, 2, 1, 151);
    assert_eq!(bench.count(PUBLISH), 0);
    assert_eq!(bench.core.snapshot().oldest_unpublished, Some(since));
    bench.pass_millis(RECOVERY_POINT_MS);
    let points = points(&bench);
    assert_eq!(points.len(), 1);
    assert_eq!(
        (points[0].totals.objects, points[0].totals.blocks_unique),
        (1, 2),
        "its own are counted"
    );
    let blocks = blocks(&points[0]);
    assert_eq!(blocks.len(), 2);
    assert!(blocks.values().all(|target| holds(&points[0], *target)), "{blocks:?}");
    assert_eq!(bench.core.snapshot().oldest_unpublished, None);
    bench.pass_millis(10 * RECOVERY_POINT_MS);
    assert_eq!(bench.count(PUBLISH), 1, "nothing has changed since");
}

#[test]
fn what_is_overwritten_behind_the_point_is_uploaded_for_it() {
    for held in [HASH, UPLOAD] {
        let mut bench = published().holding(held);
        for block in 0..3 {
            write(&mut bench, block, block, 150 + block);
        }
        bench.pass_millis(RECOVERY_POINT_MS);
        // One is overwritten, one is punched, one stays.
        write(&mut bench, 10, 0, 160);
        bench.zero(11, span(FIRST + 1, 1));
        assert_eq!(bench.count(PUBLISH), 0, "blocks of the point are not in the store");
        bench.holds = |_| false;
        bench.finish_held(held);
        bench.pass_millis(1);
        let first = points(&bench).remove(0);
        let mapped = blocks(&first);
        assert_eq!(mapped.len(), 3);
        assert!(
            mapped
                .values()
                .all(|target| *target != Target::Hole && holds(&first, *target)),
            "{mapped:?}"
        );
        bench.pass_millis(3 * RECOVERY_POINT_MS);
        let second = points(&bench).remove(1);
        let later = blocks(&second);
        assert_eq!(later.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(later[&1], Target::Hole);
        assert!(later[&0] != mapped[&0] && holds(&second, later[&0]));
        assert!(bench.core.is_drained());
    }
}

#[test]
fn a_block_that_waits_in_the_queue_is_kept_for_its_point_when_it_is_overwritten() {
    let config = Config {
        slot_count: 256,
        dirty_blocks_max: 128,
        hash_blocks: 1,
        hash_jobs_max: 1,
        recovery_point_ms: Some(RECOVERY_POINT_MS),
        ..Config::default()
    };
    let mut bench = Bench::with(config);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    bench.commands.clear();
    bench.holds = HASH;
    write(&mut bench, 1, 0, 150);
    write(&mut bench, 2, 1, 151);
    bench.pass_millis(RECOVERY_POINT_MS);
    let dirty = bench.core.snapshot().dirty_blocks;
    // The second is at rest: its only job has not begun.
    write(&mut bench, 3, 1, 161);
    assert_eq!(bench.core.snapshot().dirty_blocks, dirty + 1);
    bench.holds = |_| false;
    bench.finish_held(HASH);
    bench.pass_millis(1);
    let point = points(&bench).remove(0);
    let mapped = blocks(&point);
    assert!(mapped.len() == 2 && mapped.values().all(|target| holds(&point, *target)));
}

#[test]
fn a_duplicate_that_was_overwritten_is_told_as_what_it_equals() {
    let mut bench = published();
    write(&mut bench, 1, 0, 150);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    let original = blocks(&points(&bench)[0])[&0];
    bench.commands.clear();
    bench.holds = HASH;
    write(&mut bench, 2, 5, 150);
    bench.pass_millis(RECOVERY_POINT_MS);
    write(&mut bench, 3, 5, 151);
    bench.holds = |_| false;
    bench.finish_held(HASH);
    bench.pass_millis(1);
    assert_eq!(blocks(&points(&bench)[0])[&5], original);
    bench.pass_millis(3 * RECOVERY_POINT_MS);
    assert!(bench.core.is_drained());
}

#[test]
fn the_bucket_is_told_nothing_that_a_crash_could_undo() {
    let mut bench = published();
    bench.holds = SYNC;
    commit(&mut bench, 1, b"key", 2);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    assert_eq!((bench.count(PUBLISH), bench.count_held(SYNC)), (0, 1));
    bench.holds = |_| false;
    bench.finish_held(SYNC);
    bench.pass_millis(1);
    let point = points(&bench).remove(0);
    assert_eq!(point.entries.iter_from(&[]).count(), 1);
    assert_eq!(point.entries.counters().collect::<Vec<_>>(), [(&b"count".to_vec(), 2)]);
}

#[test]
fn a_counter_is_told_as_it_stood_at_the_point() {
    let mut bench = published().holding(PUBLISH);
    commit(&mut bench, 1, b"key", 2);
    bench.pass_millis(RECOVERY_POINT_MS);
    commit(&mut bench, 2, b"other", 3);
    let counter = |point: &RecoveryPoint| point.entries.counters().next().map(|(_, value)| value);
    assert_eq!(counter(&points(&bench)[0]), Some(2));
    bench.finish_held(PUBLISH);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    let second = points(&bench).remove(1);
    assert_eq!(counter(&second), Some(5));
    assert_eq!(second.entries.iter_from(&[]).count(), 1, "the first key was told");
}

fn answer_publish(bench: &mut Bench, result: Result<(), PublishFailure>) {
    bench.take_held(PUBLISH);
    bench.step(Event::Published { result });
}

#[test]
fn after_a_failure_the_same_point_is_told_again() {
    let mut bench = published().holding(PUBLISH);
    write(&mut bench, 1, 0, 150);
    bench.pass_millis(RECOVERY_POINT_MS);
    let failure = StoreFailure {
        retryable: true,
        reason: "away".into(),
    };
    answer_publish(&mut bench, Err(PublishFailure::Retry(failure)));
    assert!(bench.core.snapshot().store.error.is_some());
    write(&mut bench, 2, 1, 151);
    bench.pass_millis(RECOVERY_POINT_MS);
    let told = points(&bench);
    assert_eq!(told.len(), 2);
    assert!(Arc::ptr_eq(&told[0], &told[1]));
    answer_publish(&mut bench, Ok(()));
    assert_eq!(bench.core.snapshot().store.error, None);
}

#[test]
fn who_is_fenced_changes_and_uploads_nothing_and_reads() {
    let mut bench = published().holding(PUBLISH);
    write(&mut bench, 1, 0, 150);
    bench.pass_millis(RECOVERY_POINT_MS);
    answer_publish(&mut bench, Err(PublishFailure::Fenced("gateway 8".into())));
    bench.commands.clear();
    write(&mut bench, 2, 1, 151);
    flush(&mut bench, 3, FlushMode::Local);
    let refusals: Vec<_> = bench.answers.iter().rev().take(2).collect();
    for (_, answer) in refusals {
        assert!(matches!(answer, Err(Refusal::Failed(reason)) if reason.to_string().contains("gateway 8")));
    }
    bench.pass_millis(100 * RECOVERY_POINT_MS);
    assert_eq!(
        (bench.count(PUBLISH), bench.count(UPLOAD), bench.count(HASH)),
        (0, 0, 0)
    );
    let token = bench.next_token();
    bench.step(Event::Read {
        token,
        client: tombolo_prefetch::ClientId(7),
        span: span(FIRST, 1),
    });
    assert!(
        bench
            .answers
            .iter()
            .any(|(found, answer)| *found == token && answer.is_ok())
    );
}

#[test]
fn a_drain_ends_when_the_bucket_knows_of_it() {
    let mut bench = published().holding(PUBLISH);
    commit(&mut bench, 1, b"key", 1);
    // No sync comes after the drain that would make it go on.
    flush(&mut bench, 3, FlushMode::Local);
    bench.step(Event::Drain);
    assert_eq!(bench.count_held(PUBLISH), 1, "at once");
    bench.pass_millis(10);
    assert!(bench.core.snapshot().draining && !bench.core.is_drained());
    bench.finish_held(PUBLISH);
    bench.pass_millis(1);
    assert!(!bench.core.snapshot().draining && bench.core.is_drained());
    // Nothing is left of it: what is changed next waits as ever.
    commit(&mut bench, 2, b"other", 1);
    bench.pass_millis(RECOVERY_POINT_MS / 2);
    assert_eq!(bench.count_held(PUBLISH), 0);
}

#[test]
fn changes_wait_for_a_bucket_that_is_too_far_behind() {
    let config = Config {
        recovery_point_ms: Some(RECOVERY_POINT_MS),
        unpublished_entry_bytes_max: 1 << 10,
        stall_timeout_ms: 5 * RECOVERY_POINT_MS,
        ..Config::default()
    };
    let mut bench = Bench::with(config);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    bench.holds = PUBLISH;
    for token in 0..20 {
        commit(&mut bench, token, &[token as u8], 1);
    }
    let acknowledged = bench.take_answers().len();
    assert!((5..20).contains(&acknowledged), "{acknowledged} of 20");
    bench.finish_held(PUBLISH);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers().len(), 20 - acknowledged, "the rest has room");
}

/// Records of its objects come after the point, and change nothing.
#[test]
fn a_journal_that_is_full_of_what_is_no_change_lets_changes_in() {
    let config = Config {
        slot_count: 256,
        dirty_blocks_max: 128,
        recovery_point_ms: Some(RECOVERY_POINT_MS),
        unpublished_journal_bytes_max: 64,
        ..Config::default()
    };
    let mut bench = Bench::with(config);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    for block in 0..32 {
        write(&mut bench, block, block, 150 + block);
    }
    bench.pass_millis(10 * RECOVERY_POINT_MS);
    assert_eq!(bench.core.snapshot().oldest_unpublished, None);
    bench.take_answers();
    write(&mut bench, 100, 0, 190);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers().len(), 1);
}

#[test]
fn what_the_bucket_lacks_is_known_with_the_point_on_its_way() {
    let mut bench = published().holding(PUBLISH);
    write(&mut bench, 1, 0, 150);
    commit(&mut bench, 2, b"first", 1);
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    write(&mut bench, 3, 0, 151);
    write(&mut bench, 4, 1, 152);
    bench.zero(5, span(FIRST + 5, 1));
    commit(&mut bench, 6, b"second", 1);
    let changes = bench.core.unpublished_changes();
    let blocks: Vec<_> = changes.runs.iter().flat_map(|run| run.first..run.end()).collect();
    assert_eq!(blocks, [FIRST, FIRST + 1, FIRST + 5]);
    assert_eq!(changes.runs.last().unwrap().target, Target::Hole);
    assert_ne!(changes.runs[0].target, Target::At(Pvbn(0)));
    let entries = [(b"first".to_vec(), true), (b"second".to_vec(), true)];
    assert_eq!((changes.entries, changes.is_all), (entries.to_vec(), false));
    assert_eq!(changes.since, bench.core.snapshot().oldest_unpublished);
    bench.finish_held(PUBLISH);
    bench.holds = |_| false;
    bench.pass_millis(3 * RECOVERY_POINT_MS);
    assert_eq!(bench.core.unpublished_changes(), UnpublishedChanges::default());
}

#[test]
fn a_point_that_lost_a_block_is_given_up_for_the_next() {
    let mut bench = published().holding(HASH);
    write(&mut bench, 1, 0, 150);
    commit(&mut bench, 2, b"key", 4);
    bench.pass_millis(RECOVERY_POINT_MS);
    write(&mut bench, 3, 0, 160);
    let Command::Hash { job, .. } = bench.take_held(HASH) else {
        panic!("a hash job")
    };
    bench.holds = |_| false;
    bench.step(Event::Hashed {
        job,
        results: vec![HashResult::Corrupt],
    });
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    let points = points(&bench);
    assert_eq!(points.len(), 1);
    let mapped = blocks(&points[0]);
    assert!(holds(&points[0], mapped[&0]));
    assert_eq!(points[0].entries.iter_from(&[]).count(), 1);
    let counters: Vec<_> = points[0].entries.counters().map(|(_, value)| value).collect();
    assert_eq!(counters, [4]);
    let object = points[0].objects.values().next().unwrap();
    assert_eq!(object.blocks()[0].fingerprint, fingerprint_of(BlockSum(160)));
    assert_ne!(mapped[&0], Target::At(Pvbn(0)));
    assert!(bench.core.is_drained());
}

/// The journal then ends with a mark, which nobody syncs.
#[test]
fn a_drain_of_what_is_clean_ends_at_once() {
    for recovery_point_ms in [None, Some(RECOVERY_POINT_MS)] {
        let mut bench = Bench::with(Config {
            recovery_point_ms,
            ..Config::default()
        });
        commit(&mut bench, 1, b"key", 1);
        flush(&mut bench, 2, FlushMode::Local);
        bench.pass_millis(10 * RECOVERY_POINT_MS);
        bench.step(Event::Drain);
        bench.pass_millis(1);
        assert!(!bench.core.snapshot().draining, "{recovery_point_ms:?}");
    }
}

#[test]
fn a_flush_to_the_bucket_is_answered_when_a_point_that_covers_it_is_there() {
    let mut bench = published().holding(PUBLISH);
    write(&mut bench, 1, 0, 150);
    flush(&mut bench, 2, FlushMode::Local);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers(), [(1, true), (2, true)]);
    flush(&mut bench, 3, FlushMode::Bucket);
    bench.pass_millis(1);
    assert_eq!(bench.count_held(PUBLISH), 1, "it begins at once");
    assert_eq!(bench.take_answers(), []);
    bench.finish_held(PUBLISH);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers(), [(3, true)]);
    flush(&mut bench, 4, FlushMode::Bucket);
    assert_eq!(bench.take_answers(), [(4, true)], "the bucket has everything");
    // Nothing is left of it: what is changed next waits as ever.
    write(&mut bench, 5, 0, 151);
    bench.pass_millis(RECOVERY_POINT_MS / 2);
    assert_eq!(bench.count_held(PUBLISH), 0);
}

#[test]
fn flushes_to_the_bucket_share_points() {
    let mut bench = published().holding(PUBLISH);
    commit(&mut bench, 1, b"key", 1);
    flush(&mut bench, 2, FlushMode::Bucket);
    flush(&mut bench, 3, FlushMode::Bucket);
    bench.pass_millis(1);
    // This one covers these, and not what comes now.
    commit(&mut bench, 4, b"other", 1);
    flush(&mut bench, 5, FlushMode::Bucket);
    commit(&mut bench, 6, b"third", 1);
    flush(&mut bench, 7, FlushMode::Bucket);
    bench.pass_millis(1);
    assert_eq!((bench.count(PUBLISH), bench.count_held(PUBLISH)), (1, 1));
    bench.take_answers();
    bench.finish_held(PUBLISH);
    assert_eq!(bench.take_answers(), [(2, true), (3, true)]);
    bench.pass_millis(1);
    assert_eq!(
        (bench.count(PUBLISH), bench.count_held(PUBLISH)),
        (2, 1),
        "the next one at once"
    );
    bench.finish_held(PUBLISH);
    assert_eq!(bench.take_answers(), [(5, true), (7, true)]);
    bench.pass_millis(10 * RECOVERY_POINT_MS);
    assert_eq!(bench.count(PUBLISH), 2);
}

fn volume_in_bucket_mode(bench: &mut Bench) -> VolumeId {
    bench.step(Event::VolumeCreate {
        token: Token(90),
        name: "disk".into(),
        blocks: 16,
        flush: FlushMode::Bucket,
    });
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    let created = bench.answers.drain(..).next_back();
    let Some((_, Ok(Answer::Volume(volume)))) = created else {
        panic!("{created:?}")
    };
    assert_eq!(bench.core.flush_mode(volume), FlushMode::Bucket);
    volume
}

/// A block written and one made a hole, both to be flushed.
fn force(bench: &mut Bench, volume: VolumeId) {
    let span = |first| Span {
        volume,
        first,
        count: 1,
    };
    bench.step(Event::Write {
        token: Token(1),
        request: WriteRequest {
            force_unit_access: true,
            ..WriteRequest::new(span(0), vec![Some(BlockSum(150))])
        },
    });
    bench.step(Event::Zero {
        token: Token(2),
        span: span(1),
        force_unit_access: true,
    });
}

#[test]
fn forced_writes_are_flushed_in_the_mode_of_their_volume() {
    let mut bench = published();
    let volume = volume_in_bucket_mode(&mut bench);
    bench.holds = PUBLISH;
    force(&mut bench, volume);
    bench.pass_millis(1);
    assert_eq!((bench.count_held(PUBLISH), bench.take_answers()), (1, vec![]));
    while bench.count_held(PUBLISH) > 0 {
        bench.finish_held(PUBLISH);
    }
    assert_eq!(bench.take_answers(), [(1, true), (2, true)]);

    bench.step(Event::VolumeResize {
        token: Token(3),
        volume,
        blocks: 32,
    });
    assert_eq!(bench.core.flush_mode(volume), FlushMode::Bucket, "it goes by no size");
    bench.step(Event::VolumeFlushMode {
        token: Token(4),
        volume,
        flush: FlushMode::Local,
    });
    bench.take_answers();
    force(&mut bench, volume);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers(), [(1, true), (2, true)]);
    let unknown = VolumeId(77);
    bench.step(Event::VolumeFlushMode {
        token: Token(5),
        volume: unknown,
        flush: FlushMode::Local,
    });
    let refused = bench.answers.pop();
    assert_eq!(refused, Some((Token(5), Err(Refusal::UnknownVolume(unknown)))));
}

#[test]
fn a_flush_to_a_bucket_that_takes_nothing_is_refused_in_the_end() {
    const STALL_TIMEOUT_MS: u64 = 3 * RECOVERY_POINT_MS;
    let mut bench = Bench::with(Config {
        slot_count: 256,
        dirty_blocks_max: 128,
        recovery_point_ms: Some(RECOVERY_POINT_MS),
        stall_timeout_ms: STALL_TIMEOUT_MS,
        uploads_max: 1,
        ..Config::default()
    });
    bench.pass_millis(2 * RECOVERY_POINT_MS);
    bench.holds = UPLOAD;
    for block in 0..80 {
        write(&mut bench, block, block, 150 + block);
    }
    bench.take_answers();
    flush(&mut bench, 100, FlushMode::Bucket);
    bench.pass_millis(STALL_TIMEOUT_MS * 2 / 3);
    assert_eq!(bench.take_answers(), []);
    // It has taken an object.
    bench.finish_held(UPLOAD);
    bench.pass_millis(STALL_TIMEOUT_MS * 2 / 3);
    assert_eq!(bench.take_answers(), []);
    bench.pass_millis(STALL_TIMEOUT_MS * 2 / 3);
    assert_eq!(bench.answers, [(Token(100), Err(Refusal::Busy))]);
    assert_eq!(bench.core.snapshot().counters.writes_refused_busy, 1);
    bench.take_answers();
    flush(&mut bench, 101, FlushMode::Bucket);
    bench.holds = |_| false;
    bench.finish_held(UPLOAD);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers(), [(101, true)]);
}

#[test]
fn a_flush_to_the_bucket_fails_with_the_gateway() {
    let mut bench = published().holding(PUBLISH);
    write(&mut bench, 1, 0, 150);
    flush(&mut bench, 2, FlushMode::Bucket);
    bench.pass_millis(1);
    bench.take_answers();
    answer_publish(&mut bench, Err(PublishFailure::Fenced("gateway 8".into())));
    assert!(matches!(&bench.answers[..], [(Token(2), Err(Refusal::Failed(_)))]));
}

/// Such a change is in the journal, but by now it is known that the bucket will never have it.
#[test]
fn an_answer_that_is_held_back_fails_with_the_gateway() {
    let config = Config {
        throttle_start_permille: 0,
        throttle_delay_ms_max: 10_000,
        ..bench().core.config.clone()
    };
    let mut bench = Bench::with(config);
    write(&mut bench, 1, 0, 150);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers(), []);
    assert_eq!(bench.core.snapshot().counters.writes_throttled, 1);
    let reason = StopReason::Fenced("gateway 8".into());
    bench.step(Event::Stop { reason });
    assert!(matches!(&bench.answers[..], [(Token(1), Err(Refusal::Failed(_)))]));
    bench.take_answers();
    bench.pass_millis(20_000);
    assert_eq!(bench.take_answers(), []);
}

/// It would never be answered, or falsely.
#[test]
fn without_recovery_points_no_flush_waits_for_the_bucket() {
    let mut bench = Bench::with(Config::default());
    flush(&mut bench, 1, FlushMode::Bucket);
    bench.step(Event::VolumeCreate {
        token: Token(2),
        name: "disk".into(),
        blocks: 16,
        flush: FlushMode::Bucket,
    });
    let refused = Err(Refusal::NoRecoveryPoints);
    assert_eq!(bench.answers, [(Token(1), refused.clone()), (Token(2), refused)]);
}

/// The state is as old as the checkpoint, and the bucket knows nothing of it.
#[test]
fn a_bucket_that_was_told_of_no_point_covers_nothing() {
    let mut bench = bench().holding(PUBLISH);
    flush(&mut bench, 1, FlushMode::Bucket);
    bench.step(Event::Drain);
    bench.pass_millis(1);
    assert_eq!((bench.count_held(PUBLISH), bench.take_answers()), (1, vec![]));
    assert!(bench.core.snapshot().draining);
    bench.finish_held(PUBLISH);
    bench.pass_millis(1);
    assert_eq!(bench.take_answers(), [(1, true)]);
    assert!(!bench.core.snapshot().draining);
}
