//! Trees of both kinds against a sorted map in memory: after each checkpoint what is read, which nodes there are, and
//! that no older root has changed. Shapes are tiny, so that a few hundred records make trees of several levels.

mod behaviour;
mod canaries;
mod default_shape;
mod history;
mod reference;
mod snapshots;
mod store;
mod subject;

use history::any_history;
use proptest::prelude::*;
use reference::check;
use tombolo_metadata_tree::{Entries, Runs};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn maps_equal_the_reference(history in any_history::<Runs>()) {
        let seen = check(&history, None);
        prop_assert!(seen.is_ok(), "{}", seen.unwrap_err());
    }

    #[test]
    fn entries_equal_the_reference(history in any_history::<Entries>()) {
        let seen = check(&history, None);
        prop_assert!(seen.is_ok(), "{}", seen.unwrap_err());
    }

    #[test]
    fn a_map_with_damaged_nodes_never_panics(history in any_history::<Runs>(), at in any::<u64>()) {
        reference::use_damaged(&history, at);
    }

    #[test]
    fn entries_with_damaged_nodes_never_panic(history in any_history::<Entries>(), at in any::<u64>()) {
        reference::use_damaged(&history, at);
    }
}
