use super::*;
use crate::{Condition, ListedObject, MemoryStore, Operation};
use std::collections::VecDeque;

/// Fails as scripted, then lets requests through to memory.
#[derive(Debug, Default)]
struct Scripted {
    inner: MemoryStore,
    script: Mutex<VecDeque<Step>>,
    calls: AtomicU64,
}

#[derive(Debug)]
enum Step {
    /// The request never arrives.
    Fail(StoreError),
    /// The request is carried out, and then its answer is lost.
    DoAndFail(StoreError),
    /// Another writer comes first.
    PutByOther(&'static str),
}

impl Scripted {
    fn new(script: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            ..Self::default()
        })
    }

    fn step(&self) -> Option<Step> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.script.lock().unwrap().pop_front()
    }
}

#[async_trait]
impl ObjectStore for Scripted {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        match self.step() {
            Some(Step::Fail(error)) => Err(error),
            Some(Step::DoAndFail(error)) => {
                self.inner.put(key, bytes, mode).await?;
                Err(error)
            }
            Some(Step::PutByOther(content)) => {
                let content = Bytes::from_static(content.as_bytes());
                self.inner.put(key, content, PutMode::Overwrite).await?;
                self.inner.put(key, bytes, mode).await
            }
            None => self.inner.put(key, bytes, mode).await,
        }
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        match self.step() {
            Some(Step::Fail(error) | Step::DoAndFail(error)) => Err(error),
            _ => self.inner.get(key, range).await,
        }
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        self.inner.list(prefix, start_after, limit).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

fn lost() -> StoreError {
    StoreError::Interrupted {
        store: "scripted".into(),
        operation: Operation::Put,
        key: "k".into(),
        detail: "reset".into(),
    }
}

fn throttled(retry_after: Option<Duration>) -> StoreError {
    StoreError::Throttled {
        store: "scripted".into(),
        operation: Operation::Get,
        key: "k".into(),
        retry_after,
        detail: "SlowDown".into(),
    }
}

fn retrying(inner: Arc<Scripted>) -> Retrying {
    Retrying::with_seed(inner, RetryPolicy::default(), 1)
}

const OURS: Bytes = Bytes::from_static(b"ours");

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_conditional_put_is_settled() {
    for mode in [PutMode::IfAbsent, PutMode::IfMatch(ETag("memory-1".into()))] {
        let scripted = Scripted::new([Step::DoAndFail(lost())]);
        if mode != PutMode::IfAbsent {
            let old = Bytes::from_static(b"old");
            scripted.inner.put("k", old, PutMode::Overwrite).await.unwrap();
        }
        let store = retrying(Arc::clone(&scripted));
        let etag = store.put("k", OURS, mode).await.unwrap();
        assert_eq!(scripted.inner.head("k").await.unwrap().etag, etag);
        assert_eq!(scripted.inner.get("k", None).await.unwrap(), OURS);
    }
}

#[tokio::test(start_paused = true)]
async fn another_writer_that_won_meanwhile_is_reported_with_the_doubt() {
    let scripted = Scripted::new([Step::Fail(lost()), Step::PutByOther("theirs")]);
    let error = retrying(scripted).put("k", OURS, PutMode::IfAbsent).await.unwrap_err();
    let StoreError::Precondition {
        condition,
        earlier_attempt_unknown,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((condition, earlier_attempt_unknown), (Condition::Absent, true));
}

#[tokio::test(start_paused = true)]
async fn a_plain_refusal_is_final_and_without_doubt() {
    let scripted = Scripted::new([Step::PutByOther("ours")]);
    let store = retrying(Arc::clone(&scripted));
    let error = store.put("k", OURS, PutMode::IfAbsent).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Precondition {
                earlier_attempt_unknown: false,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(store.counts().attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_after_the_last_attempt_and_says_so() {
    let scripted = Scripted::new((0..50).map(|_| Step::Fail(lost())));
    let store = retrying(Arc::clone(&scripted));
    let error = store.get("k", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    let expected = RetryCounts {
        attempts: 10,
        retries: 9,
        throttles: 0,
        gave_up: 1,
    };
    assert_eq!(store.counts(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_request_pauses_its_neighbours() {
    let asked = Duration::from_secs(7);
    let scripted = Scripted::new([Step::Fail(throttled(Some(asked)))]);
    scripted.inner.put("k", OURS, PutMode::Overwrite).await.unwrap();
    let store = Arc::new(retrying(Arc::clone(&scripted)));
    let begun = Instant::now();
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.get("k", None).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(scripted.calls.load(Ordering::Relaxed), 1);
    store.get("k", None).await.unwrap();
    assert!(
        begun.elapsed() >= asked,
        "the neighbour went after {:?}",
        begun.elapsed()
    );
    first.await.unwrap().unwrap();
    assert_eq!(store.counts().throttles, 1);
    let later = Instant::now();
    store.get("k", None).await.unwrap();
    assert_eq!(later.elapsed(), Duration::ZERO, "the pause is over");
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_deadline_ends_the_request() {
    let scripted = Scripted::new([Step::Fail(throttled(Some(Duration::from_secs(600))))]);
    let store = retrying(scripted);
    assert_eq!(store.get("k", None).await.unwrap_err().kind(), ErrorKind::Throttled);
    assert_eq!(store.counts().gave_up, 1);
}
