//! The S3 store behind a proxy that does harm: without [`Retrying`] every fault is a typed error, with it all ends well.

mod support;

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::proxy::{Fault, Proxy};
use support::{BUCKET, Server, settings_for};
use tokio::task::JoinSet;
use tombolo_base::Prng;
use tombolo_cloud_driver::retry::RetryPolicy;
use tombolo_cloud_driver::{
    Counting, ErrorKind, ObjectStore, Operation, Pace, Paced, PutMode, Retrying, S3Settings, S3Store, StoreError,
};
use tombolo_flow_control::concurrency::Parameters;
use tombolo_flow_control::deadline;

/// Quick, since the faults come by chance and do not last.
const POLICY: RetryPolicy = RetryPolicy {
    attempts_max: 40,
    backoff_base: Duration::from_millis(1),
    backoff_max: Duration::from_millis(20),
    throttled_base: Duration::from_millis(2),
    throttled_max: Duration::from_millis(40),
    deadline: Duration::from_secs(300),
};

fn behind(proxy: &Proxy) -> Arc<S3Store> {
    let settings = S3Settings {
        request_timeout_ms: 2_000,
        ..settings_for(&format!("http://{}", proxy.address))
    };
    Arc::new(S3Store::open(BUCKET, "", &settings).unwrap())
}

/// Deadlines as quick as the timeout.
fn pace() -> Arc<Pace> {
    let deadlines = deadline::Parameters {
        min_us: 1_000_000,
        ..deadline::Parameters::answered_within(Duration::from_secs(2))
    };
    Pace::new(Parameters::default(), Parameters::default(), Some(deadlines))
}

fn content(seed: u64) -> Bytes {
    let mut prng = Prng::new(seed);
    let mut content = vec![0; 1 + prng.below(40_000) as usize];
    prng.fill(&mut content);
    content.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_typed() {
    let server = Server::start();
    let direct = S3Store::open(BUCKET, "", &server.settings()).unwrap();
    direct.put("k", content(1), PutMode::Overwrite).await.unwrap();
    for (fault, put_kind, get_kind) in [
        (Fault::SlowDown, ErrorKind::Throttled, ErrorKind::Throttled),
        (Fault::InternalError, ErrorKind::Retry, ErrorKind::Retry),
        (Fault::ResetBefore, ErrorKind::Retry, ErrorKind::Retry),
        (Fault::ReplyLost, ErrorKind::Retry, ErrorKind::Retry),
    ] {
        let proxy = Proxy::start(server.address, &[fault], 1000, 1).await;
        let store = behind(&proxy);
        let put = store.put("new", content(2), PutMode::Overwrite).await.unwrap_err();
        assert_eq!(put.kind(), put_kind, "{fault:?}: {put}");
        let get = store.get("k", None).await.unwrap_err();
        assert_eq!(get.kind(), get_kind, "{fault:?}: {get}");
        assert_eq!(get.outcome_unknown(), get_kind == ErrorKind::Retry);
        let arrived = direct.head("new").await.is_ok();
        assert_eq!(arrived, fault == Fault::ReplyLost, "{fault:?}");
        direct.delete("new").await.unwrap();
    }
    let proxy = Proxy::start(server.address, &[Fault::Truncated], 1000, 1).await;
    for range in [None, Some(0..1)] {
        let error = behind(&proxy).get("k", range).await.unwrap_err();
        assert!(matches!(error, StoreError::Interrupted { .. }), "{error}");
    }
    let proxy = Proxy::start(server.address, &[Fault::BlackHole], 1000, 1).await;
    let settings = S3Settings {
        request_timeout_ms: 300,
        ..settings_for(&format!("http://{}", proxy.address))
    };
    let store = S3Store::open(BUCKET, "", &settings).unwrap();
    let error = store.put("k", content(1), PutMode::Overwrite).await.unwrap_err();
    assert!(matches!(error, StoreError::Interrupted { .. }), "{error}");
}

/// Half of all requests are throttled; all of them end well, and the pause is shared.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_requests_throttled() {
    let server = Server::start();
    let proxy = Proxy::start(server.address, &[Fault::SlowDown], 500, 2).await;
    put_and_get(&server, &proxy, 120, |counts| {
        assert!(counts.throttles > 60, "{counts:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_at_random() {
    let server = Server::start();
    let faults = [
        Fault::SlowDown,
        Fault::InternalError,
        Fault::ResetBefore,
        Fault::ReplyLost,
        Fault::Truncated,
    ];
    let proxy = Proxy::start(server.address, &faults, 400, 3).await;
    put_and_get(&server, &proxy, 120, |counts| {
        assert!(counts.retries > 60, "{counts:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn black_holes_are_left_by_the_timeout() {
    let server = Server::start();
    let proxy = Proxy::start(server.address, &[Fault::BlackHole], 150, 4).await;
    put_and_get(&server, &proxy, 30, |counts| assert!(counts.retries > 0, "{counts:?}")).await;
}

async fn put_and_get(server: &Server, proxy: &Proxy, objects: u64, judge: impl Fn(tombolo_cloud_driver::RetryCounts)) {
    let counting = Arc::new(Counting::new(behind(proxy)));
    let paced = Paced::new(counting.clone(), pace());
    let store = Arc::new(Retrying::with_seed(Arc::new(paced), POLICY, 5));
    let mut tasks = JoinSet::new();
    for index in 0..objects {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let key = format!("objects/{index}");
            // Every other one conditionally: a lost answer must not look like a lost race.
            let mode = if index % 2 == 0 {
                PutMode::Overwrite
            } else {
                PutMode::IfAbsent
            };
            store.put(&key, content(index), mode).await?;
            assert!(store.get(&key, None).await? == content(index), "{key}");
            let part = store.get(&key, Some(0..1)).await?;
            assert_eq!(part, content(index).slice(0..1));
            if index % 3 == 0 {
                store.delete(&key).await?;
            }
            Ok::<(), StoreError>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap().unwrap();
    }
    assert!(proxy.faults.load(Ordering::Relaxed) > 0);
    let counts = store.counts();
    judge(counts);
    assert_eq!(counts.gave_up, 0, "{counts:?}");
    let requests: u64 = Operation::ALL
        .map(|operation| counting.counts().of(operation).micros.count())
        .iter()
        .sum();
    assert!(
        requests >= counts.attempts,
        "attempts are counted below, and reads that settle puts besides"
    );
    // What is in the bucket, seen past the proxy.
    let direct = S3Store::open(BUCKET, "", &server.settings()).unwrap();
    let listed = direct.list("objects/", None, 1_000).await.unwrap();
    assert_eq!(listed.len() as u64, objects - objects.div_ceil(3));
    for object in listed {
        let index = object.key["objects/".len()..].parse().unwrap();
        assert!(
            direct.get(&object.key, None).await.unwrap() == content(index),
            "{}",
            object.key
        );
    }
}

/// With answers lost, an increment may be applied although its writer is told otherwise, but then it is told of the doubt:
/// the counter lies between the certain successes and these plus the doubtful ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_counter_under_lost_answers_is_explained() {
    let server = Server::start();
    let faults = [Fault::ReplyLost, Fault::ResetBefore];
    let proxy = Proxy::start(server.address, &faults, 250, 6).await;
    let store = Arc::new(Retrying::with_seed(behind(&proxy), POLICY, 7));
    store
        .put("counter", Bytes::from_static(b"0 start"), PutMode::Overwrite)
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for writer in 0..8 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let (mut certain, mut doubtful) = (0, 0);
            for turn in 0..12 {
                let etag = store.head("counter").await.unwrap().etag;
                let current = store.get("counter", None).await.unwrap();
                let text = String::from_utf8(current.to_vec()).unwrap();
                let count: u64 = text.split_once(' ').unwrap().0.parse().unwrap();
                let next = Bytes::from(format!("{} writer {writer} turn {turn}", count + 1));
                match store.put("counter", next, PutMode::IfMatch(etag)).await {
                    Ok(_) => certain += 1,
                    Err(StoreError::Precondition {
                        earlier_attempt_unknown,
                        ..
                    }) => {
                        doubtful += u64::from(earlier_attempt_unknown);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            (certain, doubtful)
        });
    }
    let (mut certain, mut doubtful) = (0, 0);
    while let Some(task) = tasks.join_next().await {
        let (one, two) = task.unwrap();
        certain += one;
        doubtful += two;
    }
    let text = String::from_utf8(store.get("counter", None).await.unwrap().to_vec()).unwrap();
    let count: u64 = text.split_once(' ').unwrap().0.parse().unwrap();
    assert!(
        certain > 0 && (certain..=certain + doubtful).contains(&count),
        "{certain} {doubtful} {count}"
    );
}
