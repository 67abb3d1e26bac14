use super::*;
use crate::MemoryStore;
use std::time::Duration;
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
    let pace = Pace::new(Parameters::default(), Parameters::default());
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
    let pace = Pace::new(Parameters::default(), Parameters::default());
    let store = Places::new(2, Duration::from_millis(100), false);
    let state = load(store, pace, Duration::from_secs(120)).await;
    assert!(state.puts.limit <= 6, "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_for_patience_gets_it() {
    let pace = Pace::new(Parameters::default(), Parameters::default());
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
    let pace = Pace::new(pinned, pinned);
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
        let limits = Pace::new(found, found).limits();
        assert_eq!(limits.prefetches_max, limit as usize);
        assert!(
            limits.gets_max > limits.prefetches_max,
            "there is room for demand beside it"
        );
    }
}

#[tokio::test]
async fn requests_that_are_given_up_are_not_in_flight() {
    let pace = Pace::new(Parameters::default(), Parameters::default());
    let paced = Paced::new(Places::new(1, Duration::from_secs(3_600), false), pace.clone());
    let get = tokio::time::timeout(Duration::from_millis(10), paced.get("k", None));
    assert!(get.await.is_err());
    assert_eq!(pace.gets.in_flight.load(Ordering::Relaxed), 0);
}
