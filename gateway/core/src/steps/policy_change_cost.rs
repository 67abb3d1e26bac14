//! Not a test but a measurement: how long the core is held while another replacement policy takes the cache over.
//! `cargo test --release -p tombolo-core the_cost_of_changing_the_policy -- --ignored --nocapture`

use crate::state::slots::Slots;
use crate::test_bench::cpu_nanoseconds;
use tombolo_base::{BlockSum, Lcbn, Prng, Pvbn};
use tombolo_cache::{Access, Arrival, Capacity, Cause, Grouping, MissHint, Policy};

const GROUPING: Grouping = Grouping::Objects { evict_blocks: 16 };

/// A full cache, half of which was read since, at random.
fn filled(policy: Policy, count: u32) -> Slots {
    let mut slots = Slots::new(count, policy.build(Capacity::of_blocks(count), GROUPING));
    for block in 0..u64::from(count) {
        let Some(runs) = slots.take(1, None) else {
            unreachable!("there are as many slots as blocks");
        };
        let arrival = Arrival {
            object: block / 64,
            ..Arrival::of_block(Access::to(Pvbn(block)), Cause::Demand, MissHint::default())
        };
        slots.hold_clean(runs[0].first, BlockSum(block), &arrival);
    }
    let mut prng = Prng::new(1);
    for _ in 0..count / 2 {
        let slot = prng.below(u64::from(count));
        slots.touch(Lcbn(slot as u32), slot, None);
    }
    slots
}

#[test]
#[ignore = "a measurement"]
fn the_cost_of_changing_the_policy() {
    println!("| from | to | 10^6 slots, ms | 10^7 slots, ms |\n|---|---|---|---|");
    let mut changes: Vec<_> = Policy::ALL.iter().map(|policy| (Policy::Lru, *policy)).collect();
    changes.extend(Policy::ALL.iter().map(|policy| (*policy, Policy::Lru)));
    for (from, to) in changes {
        let pause_ms = [1_000_000, 10_000_000].map(|count| {
            let mut slots = filled(from, count);
            let policy = to.build(Capacity::of_blocks(count), GROUPING);
            let began = cpu_nanoseconds();
            slots.set_policy(policy);
            let pause = cpu_nanoseconds() - began;
            assert_eq!(slots.clean_count(), count);
            pause / 1_000_000
        });
        println!(
            "| {} | {} | {} | {} |",
            from.name(),
            to.name(),
            pause_ms[0],
            pause_ms[1]
        );
    }
}
