//! Not a test but a measurement: how long the core is held at a time while another replacement policy takes the cache over,
//! and how long all of it takes.
//! `cargo test --release -p tombolo-core the_cost_of_changing_the_policy -- --ignored --nocapture`

use crate::config::Config;
use crate::state::slots::Slots;
use crate::test_bench::cpu_nanoseconds;
use tombolo_base::{BlockSum, Lcbn, Prng, Pvbn};
use tombolo_cache::{Access, Arrival, Capacity, Cause, Grouping, MissHint, Policy, Replacement};

const GROUPING: Grouping = Grouping::Objects { evict_blocks: 16 };

fn fresh(policy: Policy, count: u32) -> Box<dyn Replacement> {
    let mut fresh = policy.build(Capacity::of_blocks(count), GROUPING);
    fresh.reach(Lcbn(count - 1));
    fresh
}

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

/// Microseconds of the longest piece, the last one, with which the old policy goes, and milliseconds of all.
fn change(from: Policy, to: Policy, count: u32) -> (u64, u64, u64) {
    let piece = Config::default().sweep_blocks_max as u32;
    let mut slots = filled(from, count);
    let policy = fresh(to, count);
    let timed = |work: &mut dyn FnMut()| {
        let began = cpu_nanoseconds();
        work();
        cpu_nanoseconds() - began
    };
    let (mut policy, mut replaced) = (Some(policy), None);
    let mut pieces = vec![timed(&mut || slots.set_policy(policy.take().expect("it is set once")))];
    while slots.left_to_hand_over().is_some() {
        pieces.push(timed(&mut || replaced = slots.hand_over(piece)));
    }
    assert_eq!(slots.clean_count(), count);
    let (longest, last) = (pieces.iter().max(), pieces.last());
    let micros = |nanoseconds: Option<&u64>| nanoseconds.copied().unwrap_or(0) / 1_000;
    (micros(longest), micros(last), pieces.iter().sum::<u64>() / 1_000_000)
}

#[test]
#[ignore = "a measurement"]
fn the_cost_of_changing_the_policy() {
    println!("| from | to | slots | longest piece, us | last piece, us | all, ms |\n|---|---|---|---|---|---|");
    let mut changes: Vec<_> = Policy::ALL.iter().map(|policy| (Policy::Lru, *policy)).collect();
    changes.extend(Policy::ALL.iter().map(|policy| (*policy, Policy::Lru)));
    for (from, to) in changes {
        for count in [1_000_000, 10_000_000] {
            let (longest, last, all) = change(from, to, count);
            println!(
                "| {} | {} | {count} | {longest} | {last} | {all} |",
                from.name(),
                to.name()
            );
        }
    }
}
