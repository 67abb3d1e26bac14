//! The check finds what it is there to find.

use crate::history::{History, any_history};
use crate::reference::{Fault, Seen, check};
use crate::subject::Subject;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tombolo_metadata_tree::{Entries, Runs};

/// The same ones each time, all of some length.
fn some_histories<C: Subject>() -> Vec<History<C>> {
    let mut runner = TestRunner::deterministic();
    let any = any_history::<C>();
    let histories = core::iter::repeat_with(|| any.new_tree(&mut runner).unwrap().current());
    histories
        .filter(|history| history.checkpoints.len() > 8)
        .take(20)
        .collect()
}

fn faults_are_found<C: Subject>(fault: Fault) {
    for history in some_histories::<C>() {
        check(&history, None).unwrap();
        assert!(check(&history, Some(fault)).is_err(), "{fault:?} in {history:?}");
    }
}

macro_rules! canaries {
    ($($name:ident: $fault:ident,)*) => {
        $(
            #[test]
            fn $name() {
                faults_are_found::<Runs>(Fault::$fault);
                faults_are_found::<Entries>(Fault::$fault);
            }
        )*
    };
}

canaries! {
    a_lost_change_is_found: LostChange,
    a_leaked_node_is_found: LeakedNode,
    a_forgotten_death_is_found: ForgottenDeath,
    a_wrong_death_is_found: WrongDeath,
    a_node_that_is_freed_early_is_found: EarlyFree,
}

/// Else the other tests would show little.
#[test]
fn histories_have_trees_of_several_levels() {
    fn heights<C: Subject>() -> Vec<u8> {
        let seen = some_histories::<C>()
            .iter()
            .map(|history| check(history, None).unwrap())
            .collect::<Vec<Seen>>();
        seen.iter().map(|seen| seen.height_max).collect()
    }
    for heights in [heights::<Runs>(), heights::<Entries>()] {
        let high = heights.iter().filter(|height| **height >= 2).count();
        assert!(
            high * 2 > heights.len() && heights.iter().any(|height| *height >= 5),
            "{heights:?}"
        );
    }
}
