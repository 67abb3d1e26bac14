//! The core in a hostile world: nothing promised is lost, nothing wrong is served, everything ends. A failing seed is
//! replayed by `make sim SEED=...`.

use tombolo_engine::{Canary, run_seed};

fn assert_seeds_pass(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(failure) = run_seed(seed, None, false) {
            panic!("seed {seed}: {failure}\nreplay: make sim SEED={seed}");
        }
    }
}

#[test]
fn every_promise_holds_in_the_first_hundred_seeds() {
    assert_seeds_pass(0..100);
}

#[test]
fn every_promise_holds_in_the_second_hundred_seeds() {
    assert_seeds_pass(100..200);
}

#[test]
fn same_seed_same_digest() {
    for seed in 0..20 {
        let (left, right) = (run_seed(seed, None, false), run_seed(seed, None, false));
        assert_eq!(left, right, "seed {seed}");
        assert_ne!(left, run_seed(seed + 1, None, false), "another seed is another run");
    }
}

/// The checkers can fail: each built-in defect is noticed within so many seeds.
fn assert_noticed(canary: Canary, seeds: std::ops::Range<u64>) {
    let noticed = seeds.clone().find(|seed| run_seed(*seed, Some(canary), false).is_err());
    assert!(noticed.is_some(), "{canary:?} goes unnoticed in seeds {seeds:?}");
}

#[test]
fn a_sync_that_does_nothing_is_noticed() {
    assert_noticed(Canary::SkipSync, 0..20);
}

#[test]
fn a_checkpoint_before_its_data_is_noticed() {
    assert_noticed(Canary::SkipCacheSyncAtCheckpoint, 0..400);
}

#[test]
fn an_acknowledgement_before_the_journal_is_noticed() {
    assert_noticed(Canary::AckBeforeJournal, 0..20);
}

#[test]
fn unverified_bytes_are_noticed() {
    assert_noticed(Canary::WrongBytes, 0..20);
}

#[test]
fn a_write_to_the_wrong_slot_is_noticed() {
    assert_noticed(Canary::WrongSlot, 0..20);
}

#[test]
fn an_index_ahead_of_the_journal_is_noticed() {
    assert_noticed(Canary::FreezeIndexLate, 0..600);
}

#[test]
fn entries_that_are_journaled_apart_from_their_data_are_noticed() {
    assert_noticed(Canary::SplitChange, 0..20);
}

#[test]
fn zeroes_that_are_journaled_apart_from_their_ragged_ends_are_noticed() {
    assert_noticed(Canary::SplitZeroes, 0..20);
}

#[test]
fn a_batch_that_loses_its_entries_is_noticed_after_a_crash() {
    assert_noticed(Canary::LoseEntriesOfBatch, 0..20);
}

#[test]
fn a_checkpoint_that_is_torn_between_maps_and_entries_is_noticed() {
    assert_noticed(Canary::TornCheckpoint, 0..200);
}

#[test]
fn a_checkpoint_before_its_journal_is_noticed() {
    assert_noticed(Canary::SkipJournalSyncAtCheckpoint, 0..800);
}

#[test]
fn a_checkpoint_that_moves_the_superblock_before_the_maps_is_noticed() {
    assert_noticed(Canary::SuperblockAhead, 0..200);
}

#[test]
fn slots_that_a_checkpoint_calls_dirty_after_their_blocks_were_unmapped_are_noticed() {
    assert_noticed(Canary::KeepDirtySlots, 0..20);
}

#[test]
fn a_change_of_files_without_its_note_is_noticed_when_it_is_sent_again() {
    assert_noticed(Canary::ForgetRequests, 0..200);
}

#[test]
fn a_lock_that_is_not_written_down_is_noticed_after_a_crash() {
    assert_noticed(Canary::ForgetLocks, 0..400);
}

#[test]
fn a_write_over_stale_edges_is_noticed() {
    assert_noticed(Canary::StaleEdges, 0..40);
}

#[test]
fn a_rename_in_two_steps_is_noticed_after_a_crash() {
    assert_noticed(Canary::SplitRename, 0..1_000);
}

#[test]
fn an_inode_in_two_steps_is_noticed_after_a_crash() {
    assert_noticed(Canary::SplitInode, 0..200);
}

#[test]
fn objects_in_clear_are_noticed() {
    assert_noticed(Canary::ClearObjects, 0..20);
}

#[test]
fn a_name_of_two_contents_is_noticed() {
    assert_noticed(Canary::TwoContentsOfAName, 0..20);
}

#[test]
fn an_older_cache_file_that_says_it_is_the_newest_is_noticed() {
    assert_noticed(Canary::CopyNotesAll, 0..40);
}

#[test]
fn a_root_before_its_journal_is_noticed() {
    assert_noticed(Canary::RootBeforeJournal, 0..20);
}

#[test]
fn a_root_before_the_nodes_of_its_tree_is_noticed() {
    assert_noticed(Canary::RootBeforeNodes, 0..40);
}

#[test]
fn the_removal_of_nodes_that_a_kept_root_needs_is_noticed() {
    assert_noticed(Canary::RemoveKeptNodes, 0..40);
}

#[test]
fn the_removal_of_nodes_that_local_metadata_lacks_is_noticed() {
    assert_noticed(Canary::RemoveNodesBehind, 0..400);
}

#[test]
fn a_recovery_point_before_its_objects_is_noticed() {
    assert_noticed(Canary::ConfirmBeforeUpload, 0..20);
}

#[test]
fn a_root_of_an_earlier_life_that_takes_effect_is_noticed() {
    assert_noticed(Canary::StaleRoot, 0..40);
}

#[test]
fn a_gateway_that_goes_on_although_it_was_taken_over_from_is_noticed() {
    assert_noticed(Canary::GoOnWhenFenced, 0..40);
}

#[test]
fn changes_that_the_bucket_is_not_told_of_are_noticed() {
    assert_noticed(Canary::OmitChange, 0..20);
}

#[test]
fn a_flush_that_does_not_wait_for_the_bucket_is_noticed() {
    assert_noticed(Canary::FlushToDiskAlone, 0..20);
}

#[test]
fn lost_metadata_that_is_made_again_without_the_journal_is_noticed() {
    assert_noticed(Canary::ForgetJournal, 0..40);
}

#[test]
fn a_checkpoint_cut_short_that_is_taken_for_a_state_is_noticed() {
    assert_noticed(Canary::TrustTornCheckpoint, 450..2_000);
}
