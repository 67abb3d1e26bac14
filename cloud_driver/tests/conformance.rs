//! The conformance suite over the backends that need no server, and over every decorator.

use std::sync::Arc;
use std::time::Duration;
use tombolo_cloud_driver::retry::RetryPolicy;
use tombolo_cloud_driver::{
    BACKLOG_ENTRIES_MAX, Counting, DirStore, ErrorKind, Limited, Limits, MemoryStore, ObjectStore, Operation, Priority,
    PutMode, ReadPrice, ReplicaOptions, ReplicaState, Replicated, Retrying, StoreSettings, StoreUrl, conformance,
    open_store,
};

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(MemoryStore::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_store() {
    conformance::run(memory(), "suite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dir_store() {
    let root = tempfile::tempdir().unwrap();
    conformance::run(Arc::new(DirStore::open(root.path()).unwrap()), "suite").await;
}

/// Two openers of one directory exclude each other as two processes do: locks belong to an opening, not to a process.
#[tokio::test(flavor = "multi_thread")]
async fn dir_store_beside_another_opener() {
    let root = tempfile::tempdir().unwrap();
    let url: StoreUrl = format!("dir:{}", root.path().display()).parse().unwrap();
    let one = open_store(&url, &StoreSettings::default()).unwrap();
    let two = open_store(&url, &StoreSettings::default()).unwrap();
    tokio::join!(conformance::run(one, "one"), conformance::run(two, "two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_decorator() {
    let store = Arc::new(Retrying::new(memory(), RetryPolicy::default()));
    conformance::run(store.clone(), "suite").await;
    let counts = store.counts();
    assert!(counts.attempts > 0);
    assert_eq!(
        (counts.retries, counts.gave_up),
        (0, 0),
        "memory never fails for a passing reason"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_decorator() {
    let narrow = Limits {
        puts_max: 1,
        gets_max: 1,
        prefetches_max: 1,
        total_max: 1,
        get_bytes_max: 1,
    };
    for limits in [Limits::default(), narrow] {
        let demand = Limited::new(memory(), move || limits);
        let prefetch = demand.with_priority(Priority::Prefetch);
        tokio::join!(
            conformance::run(Arc::new(demand.clone()), "demand"),
            conformance::run(Arc::new(prefetch), "prefetch"),
        );
        assert_eq!(demand.depth(), tombolo_cloud_driver::GateDepth::default());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_decorator() {
    let store = Counting::new(memory());
    let counts = store.counts();
    conformance::run(Arc::new(store), "suite").await;
    for operation in Operation::ALL {
        let count = counts.of(operation);
        assert!(count.micros.count() > 0, "{operation}");
    }
    let absent = counts.of(Operation::Get).failures;
    assert!(
        absent.iter().any(|(kind, _)| *kind == ErrorKind::NotFound),
        "{absent:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_decorators_stacked() {
    let counted = Arc::new(Counting::new(memory()));
    let retrying = Arc::new(Retrying::new(counted, RetryPolicy::default()));
    conformance::run(Arc::new(Limited::new(retrying, Limits::default)), "suite").await;
}

/// What has other contents under one name from time to time is the primary's affair; the replica follows.
#[tokio::test(flavor = "multi_thread")]
async fn several_stores() {
    let state = tempfile::tempdir().unwrap();
    let (primary, far) = (memory(), memory());
    let backlog = Replicated::open_backlog(&state.path().join("far"), "memory:far", BACKLOG_ENTRIES_MAX);
    let replica = ReplicaOptions {
        name: "far".into(),
        url: "memory:far".into(),
        store: far.clone(),
        limits: Box::new(Limits::default),
        backlog: backlog.unwrap(),
        accepted_root: None,
        away_after: Duration::from_secs(10),
    };
    let store = Replicated::new(primary.clone(), vec![replica], &[ReadPrice::default(); 2], 0);
    store.start(&tokio::runtime::Handle::current());
    let store = Arc::new(store);
    conformance::run(store.clone(), "suite").await;
    assert_ne!(store.status()[0].state, ReplicaState::Away);
    let bytes = bytes::Bytes::from_static(b"one");
    store.put("objects/a", bytes.clone(), PutMode::Overwrite).await.unwrap();
    for copy in [primary, far] {
        assert_eq!(copy.get("objects/a", None).await.unwrap(), bytes);
    }
}
