//! What every [`ObjectStore`] promises, as one suite: run it over each backend, and over each decorator on memory.
//!
//! It panics at the first broken promise. Everything is written below the prefix given, which must be unused; the suite leaves it
//! empty. Contents that are put conditionally differ between writers, as the trait demands.

use crate::{ETag, ErrorKind, ObjectStore, PutMode, StoreError};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use tokio::task::JoinSet;
use tombolo_base::Prng;

const WRITERS: usize = 16;
const INCREMENTS_PER_WRITER: usize = 4;

/// All of it.
pub async fn run(store: Arc<dyn ObjectStore>, prefix: &str) {
    let suite = Suite {
        store,
        prefix: prefix.into(),
    };
    suite.store.check().await.expect("check");
    suite.reads_what_was_put().await;
    suite.reads_ranges().await;
    suite.overwrites().await;
    suite.types_absence().await;
    suite.puts_if_absent_once().await;
    suite.counts_with_if_match().await;
    suite.lists_in_order().await;
    suite.deletes_repeatedly().await;
    suite.keeps_large_objects().await;
    suite.keeps_unusual_keys().await;
    suite.refuses_illegal_keys().await;
    suite.leaves_nothing().await;
}

struct Suite {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Suite {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    async fn put(&self, key: &str, bytes: impl Into<Bytes>) -> ETag {
        let put = self.store.put(key, bytes.into(), PutMode::Overwrite);
        put.await.unwrap_or_else(|error| panic!("put {key}: {error}"))
    }

    async fn get(&self, key: &str) -> Bytes {
        let get = self.store.get(key, None);
        get.await.unwrap_or_else(|error| panic!("get {key}: {error}"))
    }

    async fn delete(&self, key: &str) {
        let delete = self.store.delete(key);
        delete.await.unwrap_or_else(|error| panic!("delete {key}: {error}"));
    }

    async fn reads_what_was_put(&self) {
        for size_bytes in [0, 1, 4096, 300_001] {
            let key = self.key("read");
            let content = content(1, size_bytes);
            let etag = self.put(&key, content.clone()).await;
            assert!(self.get(&key).await == content, "{size_bytes} bytes came back changed");
            let meta = self.store.head(&key).await.expect("head");
            assert_eq!(
                (meta.size_bytes, meta.etag),
                (size_bytes as u64, etag),
                "head after put"
            );
        }
        self.delete(&self.key("read")).await;
    }

    async fn reads_ranges(&self) {
        let key = self.key("range");
        let content = content(2, 10_000);
        self.put(&key, content.clone()).await;
        for range in [0..1, 0..10_000, 1..2, 4096..8192, 9_999..10_000] {
            let expected = content.slice(range.start as usize..range.end as usize);
            assert!(
                self.range(&key, range.clone()).await.expect("range") == expected,
                "{range:?}"
            );
        }
        for range in [9_000..20_000, 0..u64::from(u32::MAX)] {
            let expected = content.slice(range.start as usize..);
            assert!(
                self.range(&key, range.clone()).await.expect("long range") == expected,
                "{range:?}"
            );
        }
        let reversed = Range { start: 7, end: 3 };
        for range in [5..5, 0..0, reversed, 10_000..10_001, 20_000..30_000] {
            let error = self
                .range(&key, range.clone())
                .await
                .expect_err("a range without bytes");
            assert!(matches!(error, StoreError::RangeOutside { .. }), "{range:?}: {error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        self.delete(&key).await;
    }

    async fn range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.store.get(key, Some(range)).await
    }

    async fn overwrites(&self) {
        let key = self.key("overwrite");
        let first = self.put(&key, "first").await;
        let second = self.put(&key, "the second").await;
        assert_ne!(first, second, "contents differ, so tags differ");
        assert_eq!(self.get(&key).await, "the second");
        // Readers of an object that is being overwritten see one content or the other.
        let contents = [content(3, 50_000), content(4, 70_000)];
        self.put(&key, contents[0].clone()).await;
        let mut tasks = JoinSet::new();
        for index in 0..8 {
            let (store, key, content) = (Arc::clone(&self.store), key.clone(), contents[index % 2].clone());
            tasks.spawn(async move { store.put(&key, content, PutMode::Overwrite).await.map(|_| ()) });
            let (store, key, contents) = (Arc::clone(&self.store), self.key("overwrite"), contents.clone());
            tasks.spawn(async move {
                let found = store.get(&key, None).await?;
                assert!(contents.contains(&found), "a reader saw a mixture");
                Ok(())
            });
        }
        finish(tasks).await;
        self.delete(&key).await;
    }

    async fn types_absence(&self) {
        let key = self.key("absent/object");
        let errors = [
            self.store.get(&key, None).await.expect_err("get"),
            self.store.get(&key, Some(0..10)).await.expect_err("get of a range"),
            self.store.head(&key).await.expect_err("head"),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(&key), "{error}");
        }
        let if_match = PutMode::IfMatch(ETag("\"00000000000000000000000000000000\"".into()));
        let error = self
            .store
            .put(&key, Bytes::new(), if_match)
            .await
            .expect_err("if-match");
        assert_eq!(error.kind(), ErrorKind::Precondition, "{error}");
    }

    async fn puts_if_absent_once(&self) {
        let key = self.key("if-absent");
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let (store, key) = (Arc::clone(&self.store), key.clone());
            tasks.spawn(async move {
                let bytes = Bytes::from(format!("writer {writer}"));
                (writer, store.put(&key, bytes, PutMode::IfAbsent).await)
            });
        }
        let mut winners = Vec::new();
        while let Some(task) = tasks.join_next().await {
            match task.expect("writer") {
                (writer, Ok(_)) => winners.push(writer),
                // A store may ask colliding writers to come again; they have not won.
                (_, Err(error)) => assert!(
                    matches!(error.kind(), ErrorKind::Precondition | ErrorKind::Retry),
                    "{error}"
                ),
            }
        }
        assert_eq!(winners.len(), 1, "writers {winners:?} all believe to have been first");
        assert_eq!(self.get(&key).await, format!("writer {}", winners[0]));
        self.delete(&key).await;
        let again = self.store.put(&key, Bytes::from_static(b"again"), PutMode::IfAbsent);
        again.await.expect("the key is free after the delete");
        self.delete(&key).await;
    }

    async fn counts_with_if_match(&self) {
        let key = self.key("counter");
        self.put(&key, "0 start").await;
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let (store, key) = (Arc::clone(&self.store), key.clone());
            tasks.spawn(async move {
                for _ in 0..INCREMENTS_PER_WRITER {
                    increment(&*store, &key, writer).await?;
                }
                Ok(())
            });
        }
        finish(tasks).await;
        assert_eq!(
            count_in(&self.get(&key).await),
            WRITERS * INCREMENTS_PER_WRITER,
            "lost increments"
        );
        let stale = PutMode::IfMatch(ETag("\"00000000000000000000000000000000\"".into()));
        let error = self
            .store
            .put(&key, Bytes::new(), stale)
            .await
            .expect_err("a stale tag");
        assert_eq!(error.kind(), ErrorKind::Precondition, "{error}");
        self.delete(&key).await;
    }

    async fn lists_in_order(&self) {
        // '.' sorts before '/', which sorts before '0': directories must not be sorted by their bare names.
        let names = ["a", "b.x", "b/1", "b/2/deep", "b/2.x", "b0", "b-", "c/a", "ä"];
        let mut expected: Vec<String> = names.iter().map(|name| self.key(&format!("list/{name}"))).collect();
        expected.sort();
        for key in &expected {
            self.put(key, key.clone()).await;
        }
        let root = self.key("list/");
        assert_eq!(self.keys(&root, None, 100).await, expected);
        for page_keys in 1..=expected.len() {
            let mut paged: Vec<String> = Vec::new();
            loop {
                let page = self.keys(&root, paged.last().map(String::as_str), page_keys).await;
                let ended = page.len() < page_keys;
                paged.extend(page);
                if ended {
                    break;
                }
            }
            assert_eq!(paged, expected, "in pages of {page_keys}");
        }
        for part in ["list/b", "list/b/", "list/b/2", "list/b/2/", "list/nothing", "list/a"] {
            let prefix = self.key(part);
            let fitting: Vec<_> = expected
                .iter()
                .filter(|key| key.starts_with(&prefix))
                .cloned()
                .collect();
            assert_eq!(self.keys(&prefix, None, 100).await, fitting, "prefix {part}");
        }
        // `start_after` need not exist.
        let after = self.key("list/b/1x");
        let rest: Vec<_> = expected.iter().filter(|key| **key > after).cloned().collect();
        assert_eq!(self.keys(&root, Some(&after), 100).await, rest);
        assert!(self.keys(&root, None, 0).await.is_empty());
        let sizes = self.store.list(&root, None, 100).await.expect("list");
        assert!(sizes.iter().all(|object| object.size_bytes == object.key.len() as u64));
        for key in &expected {
            self.delete(key).await;
        }
        assert!(self.keys(&root, None, 100).await.is_empty());
    }

    async fn keys(&self, prefix: &str, start_after: Option<&str>, limit: usize) -> Vec<String> {
        let listed = self.store.list(prefix, start_after, limit).await.expect("list");
        listed.into_iter().map(|object| object.key).collect()
    }

    async fn deletes_repeatedly(&self) {
        let key = self.key("delete/me");
        self.delete(&key).await;
        self.put(&key, "x").await;
        self.delete(&key).await;
        self.delete(&key).await;
        let error = self.store.get(&key, None).await.expect_err("deleted");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }

    async fn keeps_large_objects(&self) {
        let key = self.key("large");
        let content = content(5, 8 << 20);
        self.put(&key, content.clone()).await;
        assert!(self.get(&key).await == content, "8 MiB came back changed");
        let middle = (3 << 20) + 7..(5 << 20) + 1;
        let expected = content.slice(middle.start as usize..middle.end as usize);
        assert!(self.range(&key, middle).await.expect("range") == expected);
        self.delete(&key).await;
    }

    async fn keeps_unusual_keys(&self) {
        let long = "l".repeat(200);
        let names = [
            "with space",
            "plus+plus",
            "per%cent",
            "%2e%2e",
            "hash#",
            "what?",
            "a=b&c",
            "tilde~",
            "comma,;:@",
            "(){}[]!$*'",
            "quote\"",
            "<tag>",
            "back\\slash",
            "umlaut-äöü",
            "日本語",
            "🎲",
            "...",
            ".hidden",
            "UPPER",
            "upper",
            &long,
        ];
        for name in names {
            let key = self.key(&format!("odd/{name}"));
            self.put(&key, key.clone()).await;
        }
        let mut expected: Vec<String> = names.iter().map(|name| self.key(&format!("odd/{name}"))).collect();
        expected.sort();
        assert_eq!(self.keys(&self.key("odd/"), None, 100).await, expected);
        for key in expected {
            assert_eq!(self.get(&key).await, key, "{key}");
            let head = self.store.head(&key).await.expect("head");
            assert_eq!(head.size_bytes, key.len() as u64);
            self.delete(&key).await;
        }
    }

    async fn refuses_illegal_keys(&self) {
        for key in ["", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", "a\nb", "a\0b"] {
            let errors = [
                self.store
                    .put(key, Bytes::new(), PutMode::Overwrite)
                    .await
                    .expect_err("put"),
                self.store.get(key, None).await.expect_err("get"),
                self.store.head(key).await.expect_err("head"),
                self.store.delete(key).await.expect_err("delete"),
            ];
            for error in errors {
                assert!(matches!(error, StoreError::InvalidKey { .. }), "{key:?}: {error}");
            }
        }
    }

    async fn leaves_nothing(&self) {
        assert_eq!(self.keys(&self.key(""), None, 10).await, [""; 0]);
    }
}

/// Adds one to the counter in `key`; the content names its writer. Exact unless answers are lost.
async fn increment(store: &dyn ObjectStore, key: &str, writer: usize) -> Result<(), StoreError> {
    loop {
        let etag = store.head(key).await?.etag;
        let count = count_in(&store.get(key, None).await?);
        let next = Bytes::from(format!("{} writer {writer}", count + 1));
        match store.put(key, next, PutMode::IfMatch(etag)).await {
            Ok(_) => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::Precondition | ErrorKind::Retry) => {}
            Err(error) => return Err(error),
        }
    }
}

fn count_in(bytes: &[u8]) -> usize {
    let text = std::str::from_utf8(bytes).expect("a counter");
    let (count, _) = text.split_once(' ').expect("a count and its writer");
    count.parse().expect("a number")
}

async fn finish(mut tasks: JoinSet<Result<(), StoreError>>) {
    while let Some(task) = tasks.join_next().await {
        task.expect("task").unwrap_or_else(|error| panic!("{error}"));
    }
}

fn content(seed: u64, size_bytes: usize) -> Bytes {
    let mut content = vec![0; size_bytes];
    Prng::new(seed).fill(&mut content);
    content.into()
}
