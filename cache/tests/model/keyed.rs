//! The cache over keys itself: room, sizes, dirt, and sizes that change, for every policy.

use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{Prng, Pvbn};
use tombolo_cache::{Access, ArcBytes, Capacity, Grouping, KeyedCache, Object, Policy};

fn caches(capacity: Capacity) -> impl Iterator<Item = (Policy, KeyedCache)> {
    Policy::ALL.into_iter().map(move |policy| {
        let built = policy.build(capacity, Grouping::Slots);
        (policy, KeyedCache::new(capacity, built))
    })
}

/// What is inside, and what of it is dirty, is what came in less what was counted out.
#[test]
fn nothing_is_lost_or_counted_twice() {
    for (policy, mut cache) in caches(Capacity {
        blocks: 60,
        bytes: 90_000,
    }) {
        let mut prng = Prng::new(8);
        let (mut inside, mut dirty) = (0i64, BTreeSet::new());
        let mut dirty_out = 0;
        for _ in 0..5_000 {
            let key = prng.below(150);
            let object = Object {
                bytes: 500 + (key as u32 * 37) % 3_000,
                is_write: prng.chance(200),
                ..Object::block(key)
            };
            let outcome = cache.request(&object);
            inside += i64::from(!outcome.is_hit) - i64::from(outcome.evicted);
            dirty_out += outcome.evicted_dirty;
            if object.is_write {
                dirty.insert(key);
            }
            let before = dirty.len();
            dirty.retain(|key| cache.contains(*key));
            assert_eq!(before - dirty.len(), dirty_out as usize, "{}", policy.name());
            dirty_out = 0;
            if prng.chance(100) {
                cache.clean(key);
                dirty.remove(&key);
            }
            assert_eq!(cache.policy().len() as i64, inside);
            assert!(cache.used_bytes() <= 90_000 && inside <= 60);
        }
        cache.policy().check_invariants();
    }
}

#[test]
fn sizes_change_while_it_runs() {
    for (policy, mut cache) in caches(Capacity::of_blocks(300)) {
        let mut prng = Prng::new(4);
        for blocks in [300, 40, 500, 1, 120] {
            cache.resize(Capacity::of_blocks(blocks));
            assert!(cache.policy().len() <= blocks as usize);
            for _ in 0..2_000 {
                cache.access(prng.below(400));
            }
            cache.policy().check_invariants();
            let is_full = cache.policy().len() == blocks as usize;
            assert!(
                is_full || blocks > 400,
                "{} does not fill {blocks} blocks",
                policy.name()
            );
        }
    }
}

#[test]
fn what_exceeds_the_cache_passes_by() {
    for (_, mut cache) in caches(Capacity {
        blocks: 10,
        bytes: 5_000,
    }) {
        cache.access(1);
        let huge = Object {
            bytes: 5_001,
            ..Object::block(2)
        };
        assert_eq!(cache.request(&huge).evicted, 0);
        assert!(cache.contains(1) && !cache.contains(2));
    }
}

#[test]
fn another_size_is_another_object() {
    for (_, mut cache) in caches(Capacity::of_blocks(10)) {
        let small = Object {
            bytes: 100,
            ..Object::block(1)
        };
        assert!(!cache.request(&small).is_hit);
        assert!(cache.request(&small).is_hit);
        assert!(!cache.access(1));
        assert_eq!(cache.used_bytes(), 4096);
        cache.remove(1);
        assert_eq!((cache.used_bytes(), cache.policy().len()), (0, 0));
    }
}

#[test]
fn a_prefetched_block_is_hit() {
    for (_, mut cache) in caches(Capacity::of_blocks(10)) {
        let access = Access::to(Pvbn(5));
        assert!(cache.prefetch(access));
        assert!(!cache.prefetch(access), "it is here");
        assert!(cache.access(5));
    }
}

/// Objects grow and shrink in place: no byte is lost, the object itself is not evicted for it, what left is told.
#[test]
fn rewritten_objects_stay() {
    let capacity = Capacity {
        blocks: 60,
        bytes: 90_000,
    };
    let bytes_arc = (
        Policy::Arc,
        KeyedCache::new(capacity, Box::new(ArcBytes::new(capacity))),
    );
    for (policy, mut cache) in caches(capacity).chain([bytes_arc]) {
        let mut prng = Prng::new(9);
        let mut inside = BTreeMap::new();
        for _ in 0..5_000 {
            let key = prng.below(100);
            let was_inside = cache.contains(key);
            let object = Object {
                bytes: 1 + prng.below(4_000) as u32,
                is_write: prng.chance(500),
                ..Object::block(key)
            };
            assert_eq!(cache.rewrite(&object).is_hit, was_inside, "{}", policy.name());
            for evicted in cache.last_evicted() {
                assert_eq!(inside.remove(&evicted.key), Some(evicted.bytes));
            }
            inside.insert(key, object.bytes);
            assert!(cache.contains(key));
            assert_eq!(cache.used_bytes(), inside.values().map(|bytes| u64::from(*bytes)).sum());
            cache.policy().check_invariants();
        }
        let huge = Object {
            bytes: 90_001,
            ..Object::block(*inside.keys().next().unwrap())
        };
        assert!(!cache.rewrite(&huge).is_hit && !cache.contains(huge.key));
    }
}

/// Two objects have been used twice; the one that was rewritten at its second use has not lost its frequency.
#[test]
fn a_rewritten_object_keeps_its_frequency() {
    let capacity = Capacity { blocks: 10, bytes: 300 };
    let sized = |key, bytes| Object {
        bytes,
        latency_us: 1_000,
        ..Object::block(key)
    };
    let mut cache = KeyedCache::new(capacity, Policy::GdsfLatency.build(capacity, Grouping::Slots));
    cache.request(&sized(1, 90));
    cache.rewrite(&sized(1, 100));
    cache.request(&sized(2, 100));
    cache.request(&sized(3, 100));
    cache.request(&sized(4, 100));
    assert!(cache.contains(1) && !cache.contains(2));
}

/// Weighed in bytes and with objects of one size, ARC is ARC.
#[test]
fn arc_in_bytes_is_arc() {
    for (seed, blocks) in [(1, 7), (2, 40), (3, 200)] {
        let capacity = Capacity::of_blocks(blocks);
        let mut counted = KeyedCache::new(capacity, Policy::Arc.build(capacity, Grouping::Slots));
        let mut weighed = KeyedCache::new(capacity, Box::new(ArcBytes::new(capacity)));
        let mut prng = Prng::new(seed);
        for step in 0..30_000 {
            let range = u64::from(blocks) * if prng.chance(500) { 1 } else { 3 };
            let key = prng.below(range);
            assert_eq!(counted.access(key), weighed.access(key), "seed {seed}, access {step}");
        }
    }
}
