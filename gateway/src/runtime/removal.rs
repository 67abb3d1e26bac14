//! What the bucket's metadata needs no more is removed: journal objects that were folded in, objects of nodes that no root has,
//! copies of roots that are not kept.
//!
//! Nothing is removed that the current root needs, or one that it keeps. Whoever takes the bucket over takes it over from that
//! root or from a later one, so a gateway that was taken over from, and does not know it yet, removes nothing that is needed,
//! however long it slept before.

use super::Gateway;
use super::publishing::{PutError, State, is_of_the_object};
use super::tree_nodes::{NodesError, StoreNodes};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant as RealInstant};
use tombolo_cloud_driver::metadata_object::{JOURNAL_PREFIX, KEPT_ROOTS_PREFIX, journal_sequence, kept_root_sequence};
use tombolo_cloud_driver::node_object::{NODES_PREFIX, node_object_name, node_object_number};
use tombolo_cloud_driver::{ListedObject, ObjectStore, StoreError};
use tombolo_core::publisher::KnownRoot;
use tombolo_core::root::Root;
use tombolo_metadata_tree::{Pointer, ReadUsageError, UsageTable};

/// What one LIST asks for, and what is removed at once.
const LIST_KEYS: usize = 1000;

/// What was folded in, and what is removed.
#[derive(Debug, Default)]
pub struct Removal {
    /// Folds after which nothing was removed yet.
    folds: VecDeque<Fold>,
    /// Objects of nodes that are gone and that the table of the current root still has.
    removed: BTreeSet<u64>,
    /// Objects of nodes that no table had, and when that was.
    unknown: Option<(RealInstant, BTreeSet<u64>)>,
    /// As long as somebody else has it, nothing is removed.
    hold: Arc<()>,
}

#[derive(Debug)]
struct Fold {
    at: RealInstant,
    /// Sequence of the last journal object in it.
    journal_last: u64,
    /// Sequence of its root.
    root: u64,
}

impl Removal {
    /// This root has its whole journal in its tree.
    pub fn folded(&mut self, root: &Root) {
        self.folds.push_back(Fold {
            at: RealInstant::now(),
            journal_last: root.journal_last,
            root: root.sequence,
        });
        // The table of that root has none of them.
        self.removed.clear();
    }

    /// Nothing is removed until what it returns is dropped.
    pub fn hold(&self) -> Arc<()> {
        self.hold.clone()
    }

    /// Objects of nodes that are gone.
    pub fn removed(&self) -> &BTreeSet<u64> {
        &self.removed
    }

    /// The last fold that was so long ago.
    fn take_old(&mut self, delay: Duration) -> Option<Fold> {
        let old = self.folds.iter().take_while(|fold| fold.at.elapsed() >= delay).count();
        self.folds.drain(..old).next_back()
    }
}

impl Gateway {
    /// After each root that was put. What fails is tried again after a later one.
    pub(super) fn remove_unneeded(&self, state: &mut State) {
        if Arc::strong_count(&state.removal.hold) > 1 {
            return;
        }
        let delay = self.publishing.options().removal_delay;
        if let Err(error) = self
            .remove_after_folds(state, delay)
            .and_then(|()| self.remove_unknown(state, delay))
        {
            tracing::debug!(%error, "what the store's metadata needs no more could not be removed; it is tried again");
        }
    }

    fn remove_after_folds(&self, state: &mut State, delay: Duration) -> Result<(), PutError> {
        let Some(KnownRoot { root, .. }) = state.kept.publisher.current().cloned() else {
            return Ok(());
        };
        let Some(fold) = state.removal.take_old(delay) else {
            return Ok(());
        };
        let journal = self.list(JOURNAL_PREFIX, None)?;
        let is_folded = |key: &str| journal_sequence(key).is_some_and(|sequence| sequence <= fold.journal_last);
        self.remove(journal.iter().map(|object| &*object.key).filter(|key| is_folded(key)))?;
        let kept = state.kept.publisher.kept();
        let copies = self.list(KEPT_ROOTS_PREFIX, None)?;
        let is_given_up =
            |key: &str| kept_root_sequence(key).is_some_and(|found| found < root.sequence && !kept.contains(&found));
        self.remove(copies.iter().map(|object| &*object.key).filter(|key| is_given_up(key)))?;
        let (usage, _) = self.usage_of(&self.cloud.removal, &root)?;
        let unused = usage.unused(&kept).filter(|(_, died)| *died <= fold.root);
        let unused: Vec<u64> = unused.map(|(object, _)| object).collect();
        for object in unused {
            if !state.removal.removed.contains(&object) {
                self.remove([&*node_object_name(object)])?;
                state.removal.removed.insert(object);
            }
        }
        Ok(())
    }

    /// Objects of nodes whose root never came. They are looked for twice: another gateway may be about to take the bucket over
    /// with one of them.
    fn remove_unknown(&self, state: &mut State, delay: Duration) -> Result<(), PutError> {
        if state
            .removal
            .unknown
            .as_ref()
            .is_some_and(|(at, _)| at.elapsed() < delay)
        {
            return Ok(());
        }
        let mut listed = BTreeSet::new();
        let mut after = None;
        loop {
            let some = self.list(NODES_PREFIX, after.as_deref())?;
            listed.extend(some.iter().filter_map(|object| node_object_number(&object.key)));
            match some.last() {
                Some(last) if some.len() == LIST_KEYS => after = Some(last.key.clone()),
                _ => break,
            }
        }
        // Only now: as long as the root is ours, all that was listed is ours too, and no attempt will come that has any of it.
        state.etag = None;
        self.find_own_root(state)?;
        let Some(KnownRoot { root, .. }) = state.kept.publisher.current().cloned() else {
            return Ok(());
        };
        let (usage, _) = self.usage_of(&self.cloud.removal, &root)?;
        if !usage.is_complete() || !state.kept.publisher.attempts().is_empty() {
            return Ok(());
        }
        let mut unknown: BTreeSet<u64> = &listed - &usage.objects().collect();
        if let Some((_, before)) = state.removal.unknown.take() {
            for object in unknown.intersection(&before).copied().collect::<Vec<_>>() {
                tracing::debug!(object, "an object of nodes without a root is removed");
                self.remove([&*node_object_name(object)])?;
                unknown.remove(&object);
            }
        }
        state.removal.unknown = Some((RealInstant::now(), unknown));
        Ok(())
    }

    pub(super) fn usage_of(
        &self,
        store: &Arc<dyn ObjectStore>,
        root: &Root,
    ) -> Result<(UsageTable, Option<Pointer>), PutError> {
        let ring = self.data_keys.ring();
        let mut nodes = StoreNodes::new(&self.cloud.runtime, store, &ring);
        Ok(usage_of(&mut nodes, root)?)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<ListedObject>, StoreError> {
        let list = self.cloud.removal.list(prefix, after, LIST_KEYS);
        self.cloud.runtime.block_on(list)
    }

    fn remove<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> Result<(), StoreError> {
        for key in keys {
            self.cloud.runtime.block_on(self.cloud.removal.delete(key))?;
        }
        Ok(())
    }
}

/// Which objects of nodes the root needs, and where that lies. When it cannot be read any more, nothing that there is now is ever
/// removed.
pub fn usage_of(nodes: &mut StoreNodes<'_>, root: &Root) -> Result<(UsageTable, Option<Pointer>), StoreError> {
    let Some(pointer) = root.usage else {
        let is_first = root.tree.is_empty();
        let usage = if is_first {
            UsageTable::complete()
        } else {
            UsageTable::default()
        };
        return Ok((usage, None));
    };
    match UsageTable::read(nodes, &pointer) {
        Ok(usage) => Ok((usage, Some(pointer))),
        Err(ReadUsageError::Nodes(NodesError::Store(error))) if !is_of_the_object(&error) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the store's metadata is damaged; `tombolo check --store` tells more");
            Ok((UsageTable::default(), None))
        }
    }
}
