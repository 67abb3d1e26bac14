//! Runs a policy and its model side by side.

use proptest::prelude::*;
use tombolo_cache::{Capacity, KeyedCache, Replacement};

pub trait Model {
    /// True: a hit. A miss brings the key in.
    fn access(&mut self, key: u64) -> bool;
}

/// Traces with something of everything: a hot set, loops, and keys that come once.
pub fn traces() -> impl Strategy<Value = Vec<u64>> {
    let part = prop_oneof![
        prop::collection::vec(0u64..12, 1..60),
        prop::collection::vec(0u64..80, 1..60),
        (0u64..40, 2u64..50, 1usize..4)
            .prop_map(|(first, len, rounds)| (first..first + len).cycle().take(len as usize * rounds).collect()),
        (1000u64..9000, 1u64..60).prop_map(|(first, len)| (first..first + len).collect::<Vec<_>>()),
    ];
    prop::collection::vec(part, 1..12).prop_map(|parts| parts.concat())
}

pub fn agree(
    capacity: u32,
    trace: &[u64],
    policy: Box<dyn Replacement>,
    mut model: impl Model,
) -> Result<(), TestCaseError> {
    let mut cache = KeyedCache::new(Capacity::of_blocks(capacity), policy);
    for (step, key) in trace.iter().enumerate() {
        let (hit, expected) = (cache.access(*key), model.access(*key));
        prop_assert_eq!(hit, expected, "access {} to {}", step, key);
        cache.policy().check_invariants();
    }
    Ok(())
}
