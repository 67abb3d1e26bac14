//! What every policy owes the gateway, under random calls: victims are inside and may go; nothing is found only when
//! everything is held; counts agree; the policy's own invariants hold after every call; sizes change at any time.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tombolo_base::{Lcbn, Pvbn};
use tombolo_cache::{
    Access, Advice, Arrival, Capacity, Cause, CostClass, Expectation, Grouping, Incoming, Policy, Probation,
    Replacement, Residents, Succession, Verdict,
};

const SLOTS: u32 = 24;

#[derive(Clone, Debug)]
enum Step {
    Demand(u32, u64),
    Write(u32, u64),
    Prefetch(u32, u64, bool),
    Touch(u32),
    Remove(u32),
    Expect(u32, bool),
    Dirty(u32, bool),
    Victim { held: u32, again: u32 },
    Resize(u32),
    Costs(u8, u32),
    Floor(u32),
    Follow(Policy),
    HandOver(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let block = || 0u64..60;
    let slot = || 0..SLOTS;
    let step = prop_oneof![
        8 => (slot(), block()).prop_map(|(slot, block)| Step::Demand(slot, block)),
        3 => (slot(), block()).prop_map(|(slot, block)| Step::Write(slot, block)),
        4 => (slot(), block(), any::<bool>()).prop_map(|(slot, block, flag)| Step::Prefetch(slot, block, flag)),
        8 => slot().prop_map(Step::Touch),
        2 => slot().prop_map(Step::Remove),
        2 => (slot(), any::<bool>()).prop_map(|(slot, flag)| Step::Expect(slot, flag)),
        2 => (slot(), any::<bool>()).prop_map(|(slot, flag)| Step::Dirty(slot, flag)),
        9 => (any::<u32>(), any::<u32>(), 0u8..4).prop_map(|(held, again, kind)| Step::Victim {
            held: if kind == 0 { u32::MAX } else if kind == 1 { held } else { 0 },
            again: if kind == 2 { again } else { 0 },
        }),
        1 => (1u32..40).prop_map(Step::Resize),
        1 => (0u8..3, 0u32..100_000).prop_map(|(class, us)| Step::Costs(class, us)),
        1 => (0u32..20).prop_map(Step::Floor),
    ];
    prop::collection::vec(step, 0..300)
}

/// Now and then another policy follows.
fn steps_of_successions() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![
        1 => prop::sample::select(&Policy::ALL[..]).prop_map(Step::Follow),
        4 => (0u32..8).prop_map(Step::HandOver),
    ];
    (
        steps(),
        prop::collection::vec((any::<prop::sample::Index>(), change), 0..60),
    )
        .prop_map(|(mut steps, changes)| {
            for (at, change) in changes {
                steps.insert(at.index(steps.len() + 1), change);
            }
            steps
        })
}

struct World {
    blocks: BTreeMap<u32, u64>,
    held: u32,
    again: u32,
}

impl Residents for World {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(self.blocks[&slot.0])
    }

    fn judge(&mut self, slot: Lcbn) -> Verdict {
        assert!(
            self.blocks.contains_key(&slot.0),
            "asked about a slot that is not inside"
        );
        if self.held & (1 << slot.0) != 0 {
            Verdict::Keep
        } else if self.again & (1 << slot.0) != 0 {
            self.again &= !(1 << slot.0);
            Verdict::Again
        } else {
            Verdict::Evict
        }
    }
}

struct Run {
    policy: Succession,
    grouping: Grouping,
    world: World,
}

impl Run {
    fn insert(&mut self, slot: u32, block: u64, cause: Cause, sequential: Option<bool>) {
        let access = Access {
            sequential,
            ..Access::to(Pvbn(block))
        };
        let is_free = !self.world.blocks.contains_key(&slot) && !self.world.blocks.values().any(|held| *held == block);
        if !is_free {
            return;
        }
        let miss_hint = match cause {
            Cause::Demand => self.policy.miss(&access),
            Cause::Write | Cause::Prefetch => Incoming::BLOCK.miss_hint,
        };
        let arrival = Arrival {
            object: block / 8,
            cost_class: (block % 3) as u8,
            is_dirty: block.is_multiple_of(7),
            ..Arrival::of_block(access, cause, miss_hint)
        };
        self.policy.insert(Lcbn(slot), &arrival);
        self.world.blocks.insert(slot, block);
    }

    fn victim(&mut self, held: u32, again: u32) -> Result<(), TestCaseError> {
        (self.world.held, self.world.again) = (held, again);
        match self.policy.victim(Incoming::BLOCK, &mut self.world) {
            Some(slot) => {
                prop_assert!(
                    self.world.blocks.remove(&slot.0).is_some(),
                    "victim {} is not inside",
                    slot.0
                );
                prop_assert!(held & (1 << slot.0) == 0, "victim {} is held", slot.0);
            }
            None => prop_assert!(
                self.world.blocks.keys().all(|slot| held & (1 << slot) != 0),
                "a slot may go and none was found"
            ),
        }
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let block_in = |world: &World, slot: u32| world.blocks.get(&slot).copied();
        match *step {
            Step::Demand(slot, block) => self.insert(slot, block, Cause::Demand, None),
            Step::Write(slot, block) => self.insert(slot, block, Cause::Write, None),
            Step::Prefetch(slot, block, flag) => self.insert(slot, block, Cause::Prefetch, Some(flag)),
            Step::Victim { held, again } => self.victim(held, again)?,
            Step::Resize(blocks) => self.policy.resize(Capacity::of_blocks(blocks)),
            Step::Follow(policy) => {
                if self.policy.left().is_none() {
                    self.policy
                        .follow(policy.build(Capacity::of_blocks(SLOTS), self.grouping));
                }
            }
            Step::HandOver(count) => {
                let (before, world) = (self.policy.len(), &self.world);
                let arrival = |slot: Lcbn| {
                    Arrival::of_block(Access::to(world.block(slot)), Cause::Write, Incoming::BLOCK.miss_hint)
                };
                let replaced = self.policy.hand_over(count, arrival);
                prop_assert!(replaced.is_none_or(|policy| policy.is_empty()));
                prop_assert_eq!(self.policy.len(), before);
            }
            Step::Floor(blocks) => self.policy.advise(Advice::SequentialFloorBlocks(blocks)),
            Step::Costs(class, us) => {
                let costs = CostClass {
                    round_trip_us: us / 10,
                    download_us: us,
                    put_nanodollars: us,
                    get_nanodollars: us / 3,
                    ..CostClass::default()
                };
                self.policy.advise(Advice::Costs { class, costs });
            }
            Step::Touch(slot) => {
                if let Some(block) = block_in(&self.world, slot) {
                    self.policy.touch(Lcbn(slot), &Access::to(Pvbn(block)));
                }
            }
            Step::Remove(slot) => {
                if self.world.blocks.remove(&slot).is_some() {
                    self.policy.remove(Lcbn(slot));
                }
            }
            Step::Expect(slot, flag) => {
                if let Some(block) = block_in(&self.world, slot) {
                    let expectation = if flag {
                        Expectation::InGroup
                    } else {
                        Expectation::RestOfGroup
                    };
                    self.policy.expect(Lcbn(slot), &Access::to(Pvbn(block)), expectation);
                }
            }
            Step::Dirty(slot, flag) => {
                if self.world.blocks.contains_key(&slot) {
                    self.policy.set_dirty(Lcbn(slot), flag);
                }
            }
        }
        Ok(())
    }
}

fn check(policy: Box<dyn Replacement>, grouping: Grouping, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut run = Run {
        policy: Succession::new(policy),
        grouping,
        world: World {
            blocks: BTreeMap::new(),
            held: 0,
            again: 0,
        },
    };
    for step in steps {
        run.apply(step)?;
        run.policy.check_invariants();
        prop_assert_eq!(run.policy.len(), run.world.blocks.len());
    }
    while !run.world.blocks.is_empty() {
        run.victim(0, 0)?;
    }
    prop_assert!(run.policy.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_policy_keeps_the_contract(capacity in 1u32..30, steps in steps()) {
        let capacity = Capacity::of_blocks(capacity);
        for policy in Policy::ALL {
            for grouping in [Grouping::Slots, Grouping::Objects { evict_blocks: 3 }] {
                let is_gds = policy.name().starts_with("gds");
                if is_gds || grouping == Grouping::Slots {
                    let outcome = check(policy.build(capacity, grouping), grouping, &steps);
                    prop_assert!(outcome.is_ok(), "{}: {:?}", policy.name(), outcome);
                    let probation = Probation::new(policy.build(capacity, grouping), capacity);
                    let outcome = check(Box::new(probation), grouping, &steps);
                    prop_assert!(outcome.is_ok(), "{} with probation: {:?}", policy.name(), outcome);
                }
            }
        }
    }

    /// No slot is lost or doubled, however changes and their pieces lie among everything else.
    #[test]
    fn a_succession_keeps_the_contract(
        first in prop::sample::select(&Policy::ALL[..]), capacity in 1u32..30, steps in steps_of_successions(),
    ) {
        for grouping in [Grouping::Slots, Grouping::Objects { evict_blocks: 3 }] {
            check(first.build(Capacity::of_blocks(capacity), grouping), grouping, &steps)?;
        }
    }

    /// The order is the one that a change at once would have given, as long as nothing is read: then it is that of one LRU.
    #[test]
    fn a_succession_keeps_the_order(steps in steps_of_successions()) {
        let run = || Run {
            policy: Succession::new(Policy::Lru.build(Capacity::of_blocks(SLOTS), Grouping::Slots)),
            grouping: Grouping::Slots,
            world: World {
                blocks: BTreeMap::new(),
                held: 0,
                again: 0,
            },
        };
        let (mut one, mut several) = (run(), run());
        for step in &steps {
            match step {
                Step::Touch(_) | Step::Victim { .. } => {}
                Step::Follow(_) => several.apply(&Step::Follow(Policy::Lru))?,
                Step::HandOver(_) => several.apply(step)?,
                _ => {
                    one.apply(step)?;
                    several.apply(step)?;
                }
            }
            if let Step::Victim { .. } = step {
                one.victim(0, 0)?;
                several.victim(0, 0)?;
                prop_assert_eq!(&one.world.blocks, &several.world.blocks);
            }
        }
    }
}
