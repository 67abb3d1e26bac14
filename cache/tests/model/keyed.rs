//! The cache over keys itself: room, sizes, dirt, and sizes that change, for every policy.

use std::collections::BTreeMap;
use tombolo_base::{Prng, Pvbn};
use tombolo_cache::{Access, Capacity, Grouping, KeyedCache, Object, Policy};

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
        let (mut inside, mut dirty) = (0i64, BTreeMap::new());
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
                dirty.insert(key, ());
            }
            let before = dirty.len();
            dirty.retain(|key, ()| cache.contains(*key));
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
