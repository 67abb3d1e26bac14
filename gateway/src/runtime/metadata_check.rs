//! Reads and verifies what the bucket's current root names, for `tombolo check --store`.

use super::Gateway;
use super::publishing::{PutError, RootError, find_root, is_of_the_object, read_root};
use super::tree_nodes::{NodesError, WholeObjects};
use std::collections::BTreeMap;
use std::convert::Infallible;
use tombolo_cloud_driver::node_object::{NODES_PREFIX, node_object_name};
use tombolo_core::bucket_tree::{BucketTree, BucketTreeError, ReadTreeError, all_nodes, read_tree};
use tombolo_core::publisher::KnownRoot;
use tombolo_core::root::{ROOT_NAME, Root};
use tombolo_metadata_tree::TreeError;

impl Gateway {
    /// Reads what the current root names, all of the tree and of the journal. What is wrong: the object, and how.
    ///
    /// # Errors
    /// When the store does not answer: that says nothing about the objects.
    pub fn check_metadata(&self) -> Result<Vec<(String, String)>, String> {
        let mut state = self.publishing.state();
        let Some(KnownRoot { root, salt }) = state.kept.publisher.current().cloned() else {
            return Ok(Vec::new());
        };
        // With the lock, so that no root takes its place while it is read.
        let found = self.cloud.runtime.block_on(find_root(&self.cloud.prefetch));
        let ring = self.data_keys.ring();
        let mut faults = Vec::new();
        match found {
            Ok(Some(found)) if found.salt == salt => {
                let read = read_root(&found, &ring);
                faults.extend(read.err().map(|error| (ROOT_NAME.to_owned(), error.to_string())));
            }
            Ok(Some(_)) if !state.kept.publisher.attempts().is_empty() => state.etag = None,
            Ok(Some(_)) => faults.push((
                ROOT_NAME.to_owned(),
                "it is not the one that this gateway has put".into(),
            )),
            Ok(None) => faults.push((ROOT_NAME.to_owned(), "it is missing".into())),
            Err(RootError::Store(error)) => return Err(error.to_string()),
            Err(error) => faults.push((ROOT_NAME.to_owned(), error.to_string())),
        }
        let _hold = state.removal.hold();
        drop(state);
        match self.journal_of(&root) {
            Ok(_) => {}
            Err(PutError::Object { name, reason }) => faults.push((name, reason)),
            Err(error) => return Err(error.to_string()),
        }
        match self.check_tree(&root) {
            Ok(found) => faults.extend(found),
            Err(BucketTreeError::Tree(TreeError::Nodes(NodesError::Store(error)))) if !is_of_the_object(&error) => {
                return Err(error.to_string());
            }
            Err(error) => faults.push((NODES_PREFIX.to_owned(), error.to_string())),
        }
        Ok(faults)
    }

    /// All of the tree, and whether the table has counted its nodes.
    fn check_tree(&self, root: &Root) -> Result<Vec<(String, String)>, BucketTreeError<NodesError>> {
        let (handle, store) = (self.cloud.runtime.handle().clone(), self.cloud.prefetch.clone());
        let mut nodes = WholeObjects::new(handle, store, self.data_keys.ring());
        let tree = BucketTree::decode(&root.tree).map_err(|error| BucketTreeError::Record {
            key: ROOT_NAME.into(),
            error,
        })?;
        let read = read_tree(&mut nodes, &tree, &mut |_| Ok::<(), Infallible>(()));
        read.map_err(|ReadTreeError::Tree(error)| error)?;
        let mut counted: BTreeMap<u64, u32> = BTreeMap::new();
        for pointer in all_nodes(&mut nodes, &tree)?.iter().chain(&root.usage) {
            *counted.entry(pointer.object).or_default() += 1;
        }
        let mut faults = Vec::new();
        if root.tree.is_empty() {
            // A point that holds everything has taken the tree's place, and the next fold gives up what the table counts.
            return Ok(faults);
        }
        match self.usage_of(root) {
            Ok((usage, Some(_))) => {
                let mut table: BTreeMap<u64, u32> = usage.live().collect();
                counted.retain(|object, count| table.remove(object) != Some(*count));
                for object in counted.keys().chain(table.keys()) {
                    let fault = "the tree has as many nodes of it as the usage table does not say";
                    faults.push((node_object_name(*object), fault.to_owned()));
                }
            }
            Ok((_, None)) => faults.extend(root.usage.iter().map(|usage| {
                let fault = "the usage table in it cannot be read";
                (node_object_name(usage.object), fault.to_owned())
            })),
            // Nothing was found out about it.
            Err(error) => tracing::warn!(%error, "the usage table could not be checked"),
        }
        Ok(faults)
    }
}
