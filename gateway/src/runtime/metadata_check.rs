//! Reads and verifies what the bucket's current root names, and compares it with local metadata, for `tombolo check --store`.

use super::Gateway;
use super::metadata::Reading;
use super::publishing::{PutError, RootError, find_root, is_of_the_object, read_root};
use super::tree_nodes::{NodesError, WholeObjects};
use std::collections::BTreeMap;
use tombolo_cloud_driver::keys::KEYS_NAME;
use tombolo_cloud_driver::node_object::{NODES_PREFIX, node_object_name};
use tombolo_core::MetadataError;
use tombolo_core::audit::{AuditFinding, BucketAudit, Moving};
use tombolo_core::bucket_tree::{BucketTree, BucketTreeError, JournalChanges, ReadTreeError, all_nodes, read_tree};
use tombolo_core::local_metadata::MetadataFault;
use tombolo_core::publisher::KnownRoot;
use tombolo_core::root::{ROOT_NAME, Root};
use tombolo_metadata_tree::TreeError;

/// What is wrong with the metadata in the bucket.
#[derive(Debug)]
pub enum MetadataFinding {
    /// An object, or what objects begin with, and how.
    Object { name: String, reason: String },
    /// It is not what local metadata says.
    Differs(AuditFinding),
    /// Local metadata cannot be read to its end.
    Local(String),
}

/// How far the bucket's metadata and local metadata were compared.
#[derive(Debug, Default)]
pub struct MetadataChecked {
    /// Blocks and records.
    pub compared: u64,
    /// Why they were not.
    pub remark: Option<&'static str>,
}

/// Local metadata at the moment of a root, and what may differ.
struct Moment<'g> {
    reading: Reading<'g>,
    moving: Moving,
}

impl Gateway {
    /// Reads what the current root names, all of the tree and of the journal, and compares it with local metadata. `tell` hears
    /// how many blocks and records were compared so far.
    ///
    /// # Errors
    /// When the store does not answer: that says nothing about the objects.
    pub fn check_metadata(
        &self,
        find: &mut dyn FnMut(MetadataFinding),
        tell: &mut dyn FnMut(u64),
    ) -> Result<MetadataChecked, String> {
        match self.data_keys.stored_fault(&self.cloud.runtime, &self.cloud.check) {
            Ok(None) => {}
            Ok(Some(reason)) => find(MetadataFinding::Object {
                name: KEYS_NAME.into(),
                reason: reason.into(),
            }),
            Err(error) => return Err(error.to_string()),
        }
        let mut state = self.publishing.state();
        let Some(KnownRoot { root, salt }) = state.kept.publisher.current().cloned() else {
            return Ok(MetadataChecked {
                remark: Some("the store has no root yet, so nothing was compared with it"),
                ..MetadataChecked::default()
            });
        };
        let mut find_object = |name: &str, reason: String| {
            find(MetadataFinding::Object {
                name: name.to_owned(),
                reason,
            });
        };
        // With the lock, so that no root takes its place while it is read.
        let found = self.cloud.runtime.block_on(find_root(&self.cloud.check));
        let ring = self.data_keys.ring();
        match found {
            Ok(Some(found)) if found.salt == salt => {
                if let Err(error) = read_root(&found, &ring) {
                    find_object(ROOT_NAME, error.to_string());
                }
            }
            Ok(Some(_)) if !state.kept.publisher.attempts().is_empty() => state.etag = None,
            Ok(Some(_)) => find_object(ROOT_NAME, "it is not the one that this gateway has put".into()),
            Ok(None) => find_object(ROOT_NAME, "it is missing".into()),
            Err(RootError::Store(error)) => return Err(error.to_string()),
            Err(error) => find_object(ROOT_NAME, error.to_string()),
        }
        let _hold = state.removal.hold();
        // While the lock keeps the root: all that the core does not call unpublished is in it.
        let moment = {
            let core = self.core();
            Moment {
                reading: self.metadata.read().map_err(|error| error.to_string())?,
                moving: core.moving(),
            }
        };
        drop(state);
        let mut journal = JournalChanges::default();
        let is_journal_whole = match self.journal_of(&self.cloud.check, &root) {
            Ok(parts) => {
                parts.into_iter().for_each(|part| journal.lay(part));
                true
            }
            Err(PutError::Object { name, reason }) => {
                find_object(&name, reason);
                false
            }
            Err(error) => return Err(error.to_string()),
        };
        let remark = match (is_journal_whole, moment.moving.is_all) {
            (false, _) => {
                Some("the store's journal is damaged, so the store's metadata was not compared with the local")
            }
            (true, true) => {
                Some("the store is yet to be told everything, so its metadata was not compared with the local")
            }
            (true, false) => None,
        };
        let compare = remark.is_none().then_some(&moment);
        match self.check_tree(&root, compare, &journal, find, tell) {
            Ok(compared) => Ok(MetadataChecked { compared, remark }),
            Err(BucketTreeError::Tree(TreeError::Nodes(NodesError::Store(error)))) if !is_of_the_object(&error) => {
                Err(error.to_string())
            }
            Err(error) => {
                find(MetadataFinding::Object {
                    name: NODES_PREFIX.to_owned(),
                    reason: error.to_string(),
                });
                Ok(MetadataChecked {
                    compared: 0,
                    remark: Some("the store's metadata is damaged, so it was not compared with the local to its end"),
                })
            }
        }
    }

    /// All of the tree: against local metadata, and whether the table has counted its nodes.
    fn check_tree(
        &self,
        root: &Root,
        compare: Option<&Moment<'_>>,
        journal: &JournalChanges,
        find: &mut dyn FnMut(MetadataFinding),
        tell: &mut dyn FnMut(u64),
    ) -> Result<u64, BucketTreeError<NodesError>> {
        let (handle, store) = (self.cloud.runtime.handle().clone(), self.cloud.check.clone());
        let mut nodes = WholeObjects::new(handle, store, self.data_keys.ring());
        let tree = BucketTree::decode(&root.tree).map_err(|error| BucketTreeError::Record {
            key: ROOT_NAME.into(),
            error,
        })?;
        let mut compared = 0;
        let mut fault = None;
        {
            let mut find_difference = |finding| find(MetadataFinding::Differs(finding));
            let mut audit =
                compare.map(|moment| BucketAudit::new(&moment.reading, &moment.moving, journal, &mut find_difference));
            // Where local metadata cannot be read the tree still is.
            let mut keep =
                |result: Result<(), MetadataFault<MetadataError>>| result.map_err(|error| fault = Some(error)).is_ok();
            let contents = read_tree(&mut nodes, &tree, &mut |part| {
                if let Some(found) = &mut audit {
                    match keep(found.take(&part)) {
                        true => tell(found.compared),
                        false => audit = None,
                    }
                }
                Ok::<(), std::convert::Infallible>(())
            });
            let contents = contents.map_err(|ReadTreeError::Tree(error)| error)?;
            if let Some(audit) = audit {
                keep(audit.finish(Some(&contents)).map(|count| compared = count));
            }
        }
        if let Some(fault) = fault {
            find(MetadataFinding::Local(fault.to_string()));
        }
        let mut counted: BTreeMap<u64, u32> = BTreeMap::new();
        for pointer in all_nodes(&mut nodes, &tree)?.iter().chain(&root.usage) {
            *counted.entry(pointer.object).or_default() += 1;
        }
        self.check_usage(root, counted, find);
        Ok(compared)
    }

    fn check_usage(&self, root: &Root, mut counted: BTreeMap<u64, u32>, find: &mut dyn FnMut(MetadataFinding)) {
        if root.tree.is_empty() {
            // A point that holds everything has taken the tree's place, and the next fold gives up what the table counts.
            return;
        }
        let mut fault = |object: u64, reason: &str| {
            find(MetadataFinding::Object {
                name: node_object_name(object),
                reason: reason.to_owned(),
            });
        };
        match self.usage_of(&self.cloud.check, root) {
            Ok((usage, Some(_))) => {
                let mut table: BTreeMap<u64, u32> = usage.live().collect();
                counted.retain(|object, count| table.remove(object) != Some(*count));
                for object in counted.keys().chain(table.keys()) {
                    fault(
                        *object,
                        "the tree has as many nodes of it as the usage table does not say",
                    );
                }
            }
            Ok((_, None)) => {
                if let Some(usage) = &root.usage {
                    fault(usage.object, "the usage table in it cannot be read");
                }
            }
            // Nothing was found out about it.
            Err(error) => tracing::warn!(%error, "the usage table could not be checked"),
        }
    }
}
