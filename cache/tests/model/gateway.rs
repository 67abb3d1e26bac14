//! What the gateway needs beyond the papers: prefetched blocks, and a cache partly taken by dirty blocks.

use std::collections::BTreeMap;
use tombolo_base::{Lcbn, Prng, Pvbn};
use tombolo_cache::{
    Access, Arrival, Capacity, Cause, Grouping, Incoming, KeyedCache, MissHint, Policy, Replacement, Residents, Verdict,
};

struct Names;

impl Residents for Names {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(1000 + u64::from(slot.0))
    }

    fn judge(&mut self, _slot: Lcbn) -> Verdict {
        Verdict::Evict
    }
}

fn access(slot: u32) -> Access {
    Access::to(Names.block(Lcbn(slot)))
}

fn prefetch(policy: &mut dyn Replacement, slot: u32) {
    let arrival = Arrival::of_block(access(slot), Cause::Prefetch, MissHint::default());
    policy.insert(Lcbn(slot), &arrival);
}

fn demand(policy: &mut dyn Replacement, slot: u32) {
    let miss_hint = policy.miss(&access(slot));
    policy.insert(Lcbn(slot), &Arrival::of_block(access(slot), Cause::Demand, miss_hint));
}

fn victims(policy: &mut dyn Replacement, count: usize) -> Vec<u32> {
    let victim = || policy.victim(Incoming::BLOCK, &mut Names).map(|slot| slot.0);
    std::iter::from_fn(victim).take(count).collect()
}

#[test]
fn a_prefetch_evicted_unread_leaves_no_ghost() {
    // SARC has no ghosts; what it miss_hints is the length of a run.
    let has_ghosts = |policy: &Policy| !policy.name().starts_with("sarc");
    for policy in Policy::ALL.into_iter().filter(has_ghosts) {
        let mut policy = policy.build(Capacity::of_blocks(20), Grouping::Slots);
        (0..20).for_each(|slot| prefetch(&mut *policy, slot));
        assert_eq!(victims(&mut *policy, 20).len(), 20);
        let fresh = policy.miss(&access(900));
        for slot in 0..20 {
            assert_eq!(policy.miss(&access(slot)), fresh, "{}", policy.name());
        }
    }
}

/// LIRS is left out: it takes blocks that were asked for as LIR while there is room, and prefetched ones never. So is
/// SARC: a block that turns out sequential when it is read stays where it is.
#[test]
fn the_first_read_of_a_prefetch_is_its_first_use() {
    let policies = [
        Policy::Lru,
        Policy::Arc,
        Policy::TwoQ,
        Policy::S3Fifo,
        Policy::Sieve,
        Policy::WTinyLfu,
        Policy::GdsfPrice,
    ];
    for policy in policies {
        let build = || policy.build(Capacity::of_blocks(40), Grouping::Slots);
        let (mut prefetched, mut demanded) = (build(), build());
        for slot in 0..40 {
            prefetch(&mut *prefetched, slot * 7);
            prefetched.touch(Lcbn(slot * 7), &access(slot * 7));
            demand(&mut *demanded, slot * 7);
        }
        for slot in [3, 30, 5] {
            prefetched.touch(Lcbn(slot * 7), &access(slot * 7));
            demanded.touch(Lcbn(slot * 7), &access(slot * 7));
        }
        let gone = victims(&mut *prefetched, 20);
        assert_eq!(gone, victims(&mut *demanded, 20), "{}", policy.name());
        for slot in gone {
            assert_eq!(
                prefetched.miss(&access(slot)),
                demanded.miss(&access(slot)),
                "{}",
                policy.name()
            );
        }
        assert_eq!(
            victims(&mut *prefetched, 40),
            victims(&mut *demanded, 40),
            "{}",
            policy.name()
        );
    }
}

/// With three quarters of the cache dirty, a policy does about as well as one made for the rest.
#[test]
fn shares_follow_what_dirty_blocks_leave() {
    let mut prng = Prng::new(3);
    let trace: Vec<u64> = (0..60_000)
        .map(|step| match prng.below(4) {
            0 => 1_000_000 + step,
            1 => prng.below(8_000),
            _ => prng.below(900),
        })
        .collect();
    let misses = |policy: Policy, made_for: u32| {
        let policy = policy.build(Capacity::of_blocks(made_for), Grouping::Slots);
        let mut cache = KeyedCache::new(Capacity::of_blocks(1_000), policy);
        trace.iter().filter(|key| !cache.access(**key)).count()
    };
    let mut table = BTreeMap::new();
    for policy in Policy::ALL {
        table.insert(policy.name(), (misses(policy, 1_000), misses(policy, 4_000)));
    }
    let far = table
        .iter()
        .filter(|(_, (whole, part))| part.abs_diff(*whole) * 20 > *whole);
    assert_eq!(far.collect::<Vec<_>>(), [], "{table:?}");
}
