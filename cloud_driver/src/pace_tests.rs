use super::*;
use crate::retry::RetryPolicy;
use crate::{MemoryStore, Retrying};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A store with so many places: who finds none waits, or is refused.
#[derive(Debug)]
struct Places {
    inner: MemoryStore,
    free: tokio::sync::Semaphore,
    service: Duration,
    refuses: bool,
    served: AtomicU32,
}

impl Places {
    fn new(places: usize, service: Duration, refuses: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::default(),
            free: tokio::sync::Semaphore::new(places),
            service,
            refuses,
            served: AtomicU32::new(0),
        })
    }

    async fn serve(&self) -> Result<()> {
        let place = match self.refuses {
            false => self.free.acquire().await.ok(),
            true => self.free.try_acquire().ok(),
        };
        // Not all alike, or requests would end and begin in step.
        let turn = self.served.fetch_add(1, Ordering::Relaxed) % 7;
        sleep(self.service.mul_f64(0.85 + 0.05 * f64::from(turn))).await;
        match place {
            Some(_) => Ok(()),
            None => Err(StoreError::Throttled {
                store: "places".into(),
                operation: crate::Operation::Put,
                key: "k".into(),
                retry_after: None,
                detail: "slow down".into(),
            }),
        }
    }
}

#[async_trait]
impl ObjectStore for Places {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        self.serve().await?;
        self.inner.put(key, bytes, mode).await
    }
    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.serve().await?;
        self.inner.get(key, range).await
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

/// As many puts at once as are permitted, for so long; what each limit was at the end.
async fn load(store: Arc<Places>, pace: Arc<Pace>, lasting: Duration) -> PaceState {
    let paced = Arc::new(Paced::new(store, pace.clone()));
    let until = RealInstant::now() + lasting;
    let mut running = tokio::task::JoinSet::new();
    while RealInstant::now() < until {
        while running.len() < pace.limits().puts_max {
            let paced = paced.clone();
            running.spawn(async move {
                let bytes = Bytes::from(vec![0; 1 << 16]);
                let _ = paced.put("k", bytes, PutMode::Overwrite).await;
            });
        }
        running.join_next().await;
    }
    pace.state()
}

#[tokio::test(start_paused = true)]
async fn uploads_grow_where_more_of_them_bring_more() {
    let pace = Pace::new(Parameters::default(), Parameters::default(), None);
    let store = Places::new(40, Duration::from_millis(100), false);
    let state = load(store, pace, Duration::from_secs(60)).await;
    assert!((24..=64).contains(&state.puts.limit), "{state:?}");
    assert_eq!(
        state.gets.limit,
        Parameters::default().limit_initial,
        "nothing was downloaded"
    );
}

#[tokio::test(start_paused = true)]
async fn uploads_shrink_where_fewer_bring_as_much() {
    let pace = Pace::new(Parameters::default(), Parameters::default(), None);
    let store = Places::new(2, Duration::from_millis(100), false);
    let state = load(store, pace, Duration::from_secs(120)).await;
    assert!(state.puts.limit <= 6, "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_for_patience_gets_it() {
    let pace = Pace::new(Parameters::default(), Parameters::default(), None);
    let store = Places::new(3, Duration::from_millis(50), true);
    let state = load(store, pace, Duration::from_secs(60)).await;
    assert!(state.puts.halvings > 0 && state.puts.limit <= 6, "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_pinned_stays() {
    let pinned = Parameters {
        pinned: Some(5),
        ..Parameters::default()
    };
    let pace = Pace::new(pinned, pinned, None);
    let store = Places::new(40, Duration::from_millis(100), false);
    let state = load(store, pace.clone(), Duration::from_secs(20)).await;
    assert_eq!(state.puts.limit, 5);
    let limits = pace.limits();
    assert_eq!((limits.gets_max, limits.prefetches_max, limits.total_max), (5, 3, 10));
}

#[test]
fn what_is_fetched_ahead_alone_can_use_the_limit_up() {
    for limit in 1..200 {
        let found = Parameters {
            limit_min: limit,
            limit_initial: limit,
            limit_max: limit,
            ..Parameters::default()
        };
        let limits = Pace::new(found, found, None).limits();
        assert_eq!(limits.prefetches_max, limit as usize);
        assert!(
            limits.gets_max > limits.prefetches_max,
            "there is room for demand beside it"
        );
    }
}

#[tokio::test]
async fn requests_that_are_given_up_are_not_in_flight() {
    let pace = Pace::new(Parameters::default(), Parameters::default(), None);
    let paced = Paced::new(Places::new(1, Duration::from_secs(3_600), false), pace.clone());
    let get = tokio::time::timeout(Duration::from_millis(10), paced.get("k", None));
    assert!(get.await.is_err());
    assert_eq!(pace.gets.in_flight.load(Ordering::Relaxed), 0);
}

fn with_deadlines() -> Arc<Pace> {
    let deadlines = deadline::Parameters::answered_within(Duration::from_secs(30));
    Pace::new(Parameters::default(), Parameters::default(), Some(deadlines))
}

/// Puts of keys that begin with `hang` never come to an end, as often as it says; others take so long.
#[derive(Debug)]
struct Hanging {
    inner: MemoryStore,
    service: Duration,
    hangs_left: AtomicU32,
    puts: AtomicU32,
}

impl Hanging {
    fn new(service: Duration, hangs: u32) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::default(),
            service,
            hangs_left: AtomicU32::new(hangs),
            puts: AtomicU32::new(0),
        })
    }
}

#[async_trait]
impl ObjectStore for Hanging {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        let counted = |left: u32| left.checked_sub(1);
        if key.starts_with("hang")
            && self
                .hangs_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted)
                .is_ok()
        {
            std::future::pending::<()>().await;
        }
        sleep(self.service).await;
        self.inner.put(key, bytes, mode).await
    }
    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.inner.get(key, range).await
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

fn object() -> Bytes {
    Bytes::from(vec![0; 4 << 20])
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_hangs_is_made_again_in_seconds() {
    let (store, pace) = (Hanging::new(Duration::from_millis(200), 2), with_deadlines());
    let paced = Paced::new(store.clone(), pace.clone());
    let retrying = Retrying::new(Arc::new(paced), RetryPolicy::default());
    for number in 0..8 {
        retrying
            .put(&format!("fine{number}"), object(), PutMode::Overwrite)
            .await
            .unwrap();
    }
    let begun = RealInstant::now();
    retrying.put("hanging", object(), PutMode::Overwrite).await.unwrap();
    // The second one in a row may take twice as long, as the path may have become slow.
    assert!(
        (15.0..15.5).contains(&begun.elapsed().as_secs_f64()),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(store.puts.load(Ordering::Relaxed), 8 + 3, "one attempt at a time");
    assert_eq!(pace.state().uploads_given_up, 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_measured_makes_deadlines_before_anything_was_put() {
    let hung_for = async |table: Option<&Cells>| {
        let pace = with_deadlines();
        if let Some(puts) = table {
            pace.expect_uploads(puts);
        }
        let paced = Paced::new(Hanging::new(Duration::ZERO, 1), pace);
        let begun = RealInstant::now();
        let error = paced.put("hanging", object(), PutMode::Overwrite).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Retry && error.outcome_unknown(), "{error}");
        begun.elapsed().as_secs()
    };
    let cell = crate::latency_table::tests::cell(4 << 20, 1, 1_000.0);
    assert_eq!(hung_for(Some(&Cells::new(vec![cell]).unwrap())).await, 12);
    assert_eq!(hung_for(None).await, 63);
}

/// 4 MiB take 33.5 s at 1 Mbit/s, whoever's turn it is.
#[tokio::test(start_paused = true)]
async fn a_slow_path_carries_all_with_one_attempt_each() {
    let pace = with_deadlines();
    let store = Places::new(1, Duration::from_millis(33_500), false);
    let paced = Arc::new(Paced::new(store.clone(), pace.clone()));
    let mut running = JoinSet::new();
    for number in 0..48 {
        let paced = paced.clone();
        if running.len() == 16 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(async move {
            let key = format!("object{number}");
            paced.put(&key, object(), PutMode::Overwrite).await.unwrap();
        });
    }
    while let Some(put) = running.join_next().await {
        put.unwrap();
    }
    assert_eq!(
        (store.served.load(Ordering::Relaxed), pace.state().uploads_given_up),
        (48, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn one_answer_is_enough_to_find_those_that_hang() {
    let (store, pace) = (Hanging::new(Duration::from_millis(200), 1), with_deadlines());
    let paced = Arc::new(Paced::new(store, pace));
    let other = paced.clone();
    let begun = RealInstant::now();
    let hanging = tokio::spawn(async move { other.put("hanging", object(), PutMode::Overwrite).await });
    sleep(Duration::from_millis(10)).await;
    paced.put("fine", object(), PutMode::Overwrite).await.unwrap();
    assert!(hanging.await.unwrap().is_err());
    assert_eq!(begun.elapsed().as_secs(), 5);
}
