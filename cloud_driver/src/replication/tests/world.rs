//! Buckets in memory that verify after each change that they hold all that their root names, and a model of a gateway over them.

use super::*;
use crate::encryption::KeyRing;
use crate::metadata_object::{MetadataKind, decode_metadata, encode_metadata};
use crate::{Condition, Limits, MemoryStore};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;
use tombolo_base::Prng;

pub const AWAY_AFTER: Duration = Duration::from_secs(10);

/// A root that names these objects.
pub fn root_object(number: u64, names: &[&str]) -> Bytes {
    let contents = format!("{number}\n{}", names.join("\n"));
    encode_metadata(MetadataKind::Root, contents.as_bytes(), &KeyRing::default())
        .bytes
        .into()
}

fn named_by(root: &Bytes) -> Vec<String> {
    let decoded = decode_metadata(MetadataKind::Root, ROOT, root, 1 << 20, &KeyRing::default());
    let text = String::from_utf8(decoded.unwrap().1).unwrap();
    text.lines().skip(1).map(ToOwned::to_owned).collect()
}

type Objects = std::collections::BTreeMap<String, (ETag, Bytes)>;

/// A store with a mind of its own.
#[derive(Debug)]
pub struct Bucket {
    name: &'static str,
    objects: Mutex<Objects>,
    /// What lay there before another place was put in its stead.
    set_aside: Mutex<Option<Objects>>,
    puts: AtomicU64,
    is_watched: bool,
    is_away: AtomicBool,
    is_hanging: AtomicBool,
    latency_us: AtomicU64,
    /// What all puts together may send; 0: anything.
    bytes_per_s: AtomicU64,
    /// Of all puts, which take turns.
    link: tokio::sync::Mutex<()>,
    gets: AtomicU64,
    /// Of 1000 requests so many fail; some of them are carried out all the same.
    failing_permille: AtomicU64,
    prng: Mutex<Prng>,
}

impl Bucket {
    pub fn new(name: &'static str, is_watched: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            objects: Mutex::default(),
            set_aside: Mutex::default(),
            puts: AtomicU64::new(0),
            is_watched,
            is_away: AtomicBool::new(false),
            is_hanging: AtomicBool::new(false),
            latency_us: AtomicU64::new(0),
            bytes_per_s: AtomicU64::new(0),
            link: tokio::sync::Mutex::default(),
            gets: AtomicU64::new(0),
            failing_permille: AtomicU64::new(0),
            prng: Mutex::new(Prng::new(7)),
        })
    }

    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    pub fn set_hanging(&self, is_hanging: bool) {
        self.is_hanging.store(is_hanging, Ordering::Relaxed);
    }

    pub fn set_latency(&self, latency: Duration) {
        self.latency_us.store(latency.as_micros() as u64, Ordering::Relaxed);
    }

    pub fn set_rate(&self, bytes_per_s: u64) {
        self.bytes_per_s.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Since it was made.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    pub fn set_failing(&self, permille: u64) {
        self.failing_permille.store(permille, Ordering::Relaxed);
    }

    pub fn keys(&self) -> Vec<String> {
        locked(&self.objects).keys().cloned().collect()
    }

    pub fn get(&self, key: &str) -> Option<Bytes> {
        locked(&self.objects).get(key).map(|(_, bytes)| bytes.clone())
    }

    pub fn set(&self, key: &str, text: &str) {
        self.set_bytes(key, Bytes::copy_from_slice(text.as_bytes()));
    }

    pub fn set_bytes(&self, key: &str, bytes: Bytes) {
        let etag = self.next_etag();
        locked(&self.objects).insert(key.into(), (etag, bytes));
        self.verify();
    }

    /// As a bucket's disk might.
    pub fn set_quietly(&self, key: &str, text: Option<&'static str>) {
        let mut objects = locked(&self.objects);
        match text {
            Some(text) => {
                objects.insert(key.into(), (ETag("quiet".into()), Bytes::from_static(text.as_bytes())));
            }
            None => {
                objects.remove(key);
            }
        }
    }

    pub fn remove(&self, key: &str) {
        locked(&self.objects).remove(key);
    }

    pub fn empty(&self) {
        locked(&self.objects).clear();
    }

    /// An empty place takes its stead, as that of a folder that is not mounted.
    pub fn set_aside(&self) {
        let before = std::mem::take(&mut *locked(&self.objects));
        *locked(&self.set_aside) = Some(before);
    }

    pub fn is_set_aside(&self) -> bool {
        locked(&self.set_aside).is_some()
    }

    /// As it was before [`Self::set_aside`]; what was put into the other place meanwhile is gone.
    pub fn put_back(&self) {
        if let Some(before) = locked(&self.set_aside).take() {
            *locked(&self.objects) = before;
        }
    }

    fn next_etag(&self) -> ETag {
        ETag(format!("{}-{}", self.name, self.puts.fetch_add(1, Ordering::Relaxed)))
    }

    fn verify(&self) {
        let objects = locked(&self.objects);
        let Some((_, root)) = objects.get(ROOT).filter(|_| self.is_watched) else {
            return;
        };
        for key in named_by(root) {
            assert!(
                objects.contains_key(&key),
                "{}: {key} is named by the root and is not there",
                self.name
            );
        }
    }

    /// Whether the request is carried out, and whether that is told.
    async fn fate(&self) -> (bool, bool) {
        let latency = Duration::from_micros(self.latency_us.load(Ordering::Relaxed));
        if !latency.is_zero() {
            sleep(latency).await;
        }
        if self.is_hanging.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_away.load(Ordering::Relaxed) {
            return (false, false);
        }
        let permille = self.failing_permille.load(Ordering::Relaxed);
        let mut prng = locked(&self.prng);
        match prng.chance(permille) {
            true => (prng.chance(500), false),
            false => (true, true),
        }
    }

    /// Puts share the link piece by piece, as connections do.
    async fn carry(&self, mut bytes: u64) {
        const PIECE_BYTES: u64 = 64 << 10;
        let rate = self.bytes_per_s.load(Ordering::Relaxed);
        while rate > 0 && bytes > 0 {
            let piece = bytes.min(PIECE_BYTES);
            let _turn = self.link.lock().await;
            sleep(Duration::from_micros(piece * 1_000_000 / rate)).await;
            bytes -= piece;
        }
    }

    fn lost(&self, key: &str, is_done: bool) -> StoreError {
        match is_done {
            true => StoreError::Interrupted {
                store: self.name.into(),
                operation: Operation::Put,
                key: key.into(),
                detail: "lost answer".into(),
            },
            false => StoreError::Unreachable {
                store: self.name.into(),
                detail: "away".into(),
            },
        }
    }

    fn put_now(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let etag = self.next_etag();
        {
            let mut objects = locked(&self.objects);
            let there = objects.get(key).map(|(etag, _)| etag.clone());
            let refused = |condition| StoreError::Precondition {
                store: self.name.into(),
                key: key.into(),
                condition,
                earlier_attempt_unknown: false,
            };
            match (mode, there) {
                (PutMode::IfAbsent, Some(_)) => return Err(refused(Condition::Absent)),
                (PutMode::IfMatch(wanted), there) if there.as_ref() != Some(&wanted) => {
                    return Err(refused(Condition::ETagMatches));
                }
                _ => objects.insert(key.into(), (etag.clone(), bytes)),
            };
        }
        self.verify();
        Ok(etag)
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<ETag> {
        let (is_done, is_told) = self.fate().await;
        self.carry(bytes.len() as u64).await;
        let put = match is_done {
            true => self.put_now(key, bytes, mode),
            false => Err(self.lost(key, false)),
        };
        match is_told {
            true => put,
            false => Err(self.lost(key, is_done)),
        }
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let (_, is_told) = self.fate().await;
        if !is_told {
            return Err(self.lost(key, false));
        }
        let absent = || StoreError::NotFound {
            store: self.name.into(),
            key: key.into(),
        };
        let bytes = Bucket::get(self, key).ok_or_else(absent)?;
        let end = range
            .map_or(bytes.len() as u64, |range| range.end)
            .min(bytes.len() as u64);
        Ok(bytes.slice(..end as usize))
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        let size_bytes = ObjectStore::get(self, key, None).await?.len() as u64;
        let etag = locked(&self.objects).get(key).map(|(etag, _)| etag.clone());
        let etag = etag.ok_or_else(|| self.lost(key, false))?;
        Ok(ObjectMeta { size_bytes, etag })
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>> {
        let (_, is_told) = self.fate().await;
        if !is_told {
            return Err(self.lost(prefix, false));
        }
        let objects = locked(&self.objects);
        let wanted = objects.iter().filter(|(key, _)| key.starts_with(prefix));
        let wanted = wanted.filter(|(key, _)| start_after.is_none_or(|after| key.as_str() > after));
        let listed = wanted.take(limit).map(|(key, (_, bytes))| ListedObject {
            key: key.clone(),
            size_bytes: bytes.len() as u64,
        });
        Ok(listed.collect())
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let (is_done, is_told) = self.fate().await;
        if is_done {
            locked(&self.objects).remove(key);
            self.verify();
        }
        match is_told {
            true => Ok(()),
            false => Err(self.lost(key, is_done)),
        }
    }

    async fn check(&self) -> Result<()> {
        MemoryStore::new().check().await
    }
}

/// A primary and a replica, and the state directory of whoever opens them.
pub struct World {
    pub primary: Arc<Bucket>,
    pub replica: Arc<Bucket>,
    state: TempDir,
    entries_max: usize,
    prices: [ReadPrice; 2],
    second: u64,
    accepted_root: Option<AcceptedRoot>,
    limits: Limits,
    roots: Arc<AtomicU64>,
}

impl World {
    pub fn new() -> Self {
        Self {
            primary: Bucket::new("primary", false),
            replica: Bucket::new("replica", true),
            state: tempfile::tempdir().unwrap(),
            entries_max: 100,
            prices: [ReadPrice::default(); 2],
            second: 0,
            accepted_root: None,
            limits: Limits::default(),
            roots: Arc::default(),
        }
    }

    pub fn with_entries_max(self, entries_max: usize) -> Self {
        Self { entries_max, ..self }
    }

    pub fn with_prices(self, primary: u64, replica: u64) -> Self {
        let price = |request| ReadPrice { request, block: 0 };
        Self {
            prices: [price(primary), price(replica)],
            ..self
        }
    }

    pub fn with_puts_max(self, puts_max: usize) -> Self {
        let limits = Limits {
            puts_max,
            ..self.limits
        };
        Self { limits, ..self }
    }

    pub fn with_second(self, second: u64) -> Self {
        Self { second, ..self }
    }

    pub fn with_accepted_root(self, accepted_root: AcceptedRoot) -> Self {
        Self {
            accepted_root: Some(accepted_root),
            ..self
        }
    }

    /// The same, and what is new has been compared.
    pub async fn open_compared(&self) -> Gateway {
        let gateway = self.open();
        tokio::time::sleep(MINUTE).await;
        gateway
    }

    /// As a gateway's start does.
    pub fn open(&self) -> Gateway {
        let path = self.state.path().join("far");
        let limits = self.limits;
        let backlog = Replicated::open_backlog(&path, "memory:far", self.entries_max).unwrap();
        let options = ReplicaOptions {
            name: "far".into(),
            url: "memory:far".into(),
            store: self.replica.clone(),
            limits: Box::new(move || limits),
            backlog,
            accepted_root: self.accepted_root.clone(),
            away_after: AWAY_AFTER,
        };
        let store = Replicated::new(self.primary.clone(), vec![options], &self.prices, self.second);
        store.start(&tokio::runtime::Handle::current());
        Gateway {
            store: Arc::new(store),
            primary: self.primary.clone(),
            roots: self.roots.clone(),
        }
    }
}

/// What uses the stores.
#[derive(Clone)]
pub struct Gateway {
    pub store: Arc<Replicated>,
    primary: Arc<Bucket>,
    roots: Arc<AtomicU64>,
}

impl Gateway {
    pub async fn put(&self, key: &str, text: &str) -> Result<ETag> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.store.put(key, bytes, PutMode::Overwrite).await
    }

    pub async fn get(&self, key: &str) -> Result<Bytes> {
        self.store.get(key, None).await
    }

    pub async fn delete(&self, key: &str) -> Result<()> {
        self.store.delete(key).await
    }

    pub async fn put_root(&self, names: &[&str]) -> Result<ETag> {
        let bytes = root_object(self.roots.fetch_add(1, Ordering::Relaxed), names);
        let etag = locked(&self.primary.objects).get(ROOT).map(|(etag, _)| etag.clone());
        let mode = etag.map_or(PutMode::IfAbsent, PutMode::IfMatch);
        self.store.put(ROOT, bytes, mode).await
    }

    fn has_had_root(&self) -> bool {
        self.store.replicas[0].backlog.backlog().has_had_root()
    }

    pub fn status(&self) -> Vec<ReplicaStatus> {
        self.store.status()
    }
}

/// Puts, folds, removals, outages of either store, another place in the replica's stead, restarts; then peace.
pub async fn random_life(seed: u64) {
    let mut prng = Prng::new(seed);
    let entries_max = [4, 20, 1000][prng.below(3) as usize];
    let world = World::new().with_entries_max(entries_max);
    let mut gateway = world.open();
    // What was confirmed, and what of it the next root names.
    let (mut live, mut confirmed): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    let mut dying: Vec<String> = Vec::new();
    let mut number = 0;
    for _ in 0..300 {
        match prng.below(100) {
            0..45 => {
                let folder = ["objects", "nodes", "journal"][prng.below(3) as usize];
                let keys: Vec<String> = (0..=prng.below(4))
                    .map(|offset| format!("{folder}/{:06}", number + offset))
                    .collect();
                number += keys.len() as u64;
                let puts = keys.iter().map(|key| gateway.put(key, key));
                for (key, put) in keys.iter().zip(join_all(puts).await) {
                    if put.is_ok() {
                        live.insert(key.clone());
                        confirmed.insert(key.clone());
                    }
                }
            }
            45..65 => {
                let names: Vec<&str> = live.iter().map(String::as_str).collect();
                if gateway.put_root(&names).await.is_ok() {
                    // Now nothing names them any more.
                    for key in dying.drain(..) {
                        confirmed.remove(&key);
                        let _ = gateway.delete(&key).await;
                    }
                }
            }
            65..75 => {
                let wanted = live
                    .iter()
                    .filter(|key| !key.starts_with("objects/") && prng.chance(500));
                dying.extend(wanted.cloned());
                dying.iter().for_each(|key| {
                    live.remove(key);
                });
            }
            75..80 => world.replica.set_away(prng.chance(500)),
            80..83 => world.replica.set_failing(prng.below(3) * 150),
            83..85 => world.primary.set_away(prng.chance(500)),
            85..87 => world.primary.set_failing(prng.below(2) * 100),
            87..89 => world.replica.set_latency(Duration::from_millis(prng.below(3) * 100)),
            89..92 => {
                // Some restart in the middle of something.
                if prng.chance(500) {
                    let puts = gateway.put("objects/half", "objects/half");
                    let _ = tokio::time::timeout(Duration::from_millis(prng.below(150)), puts).await;
                }
                drop(gateway);
                if prng.chance(500) {
                    world.replica.put_back();
                }
                tokio::time::sleep(Duration::from_millis(prng.below(2_000))).await;
                gateway = world.open();
            }
            // Only of a bucket that has had a root it can be told that it is another place.
            92 if !world.replica.is_set_aside() && gateway.has_had_root() => world.replica.set_aside(),
            93 if gateway.status()[0].state == ReplicaState::Foreign => world.replica.put_back(),
            92..96 => {
                if let Some(key) = confirmed.iter().nth(prng.below(confirmed.len().max(1) as u64) as usize)
                    && let Ok(bytes) = gateway.get(key).await
                {
                    assert_eq!(bytes, key.as_bytes(), "seed {seed}");
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(prng.below(20_000))).await,
        }
    }
    if world.replica.is_set_aside() {
        drop(gateway);
        world.replica.put_back();
        gateway = world.open();
    }
    for bucket in [&world.primary, &world.replica] {
        bucket.set_away(false);
        bucket.set_failing(0);
        bucket.set_latency(Duration::ZERO);
    }
    for _ in 0..10 {
        let names: Vec<&str> = live.iter().map(String::as_str).collect();
        gateway.put_root(&names).await.unwrap();
        tokio::time::sleep(MINUTE).await;
    }
    let status = &gateway.status()[0];
    assert_eq!(status.state, ReplicaState::Even, "seed {seed}: {status:?}");
    assert_eq!(world.replica.get(ROOT), world.primary.get(ROOT), "seed {seed}");
    for key in &confirmed {
        assert_eq!(world.replica.get(key), world.primary.get(key), "seed {seed}: {key}");
    }
    let extras = world.replica.keys();
    let extras = extras.iter().filter(|key| world.primary.get(key).is_none());
    // Puts that failed on the primary, and journal parts that may still have been on their way when they were seen.
    let extras: Vec<_> = extras.filter(|key| key.starts_with("roots/")).collect();
    assert!(extras.is_empty(), "seed {seed}: {extras:?}");
}
