//! Local metadata with the tree behind it.

use super::laying::{is_known, is_masked};
use super::tree::local_entry;
use super::{Backing, Progress, load_progress, mask_key};
use crate::bucket_tree::BucketTreeError;
use crate::format::local_metadata::{Entry, MetadataFault, MetadataRead, MetadataTransaction, Table};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use tombolo_metadata_tree::{Entries, Nodes, Scan, TreeError};

/// Why metadata that is not all here cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackedError<L, N> {
    /// What is here.
    #[error("{0}")]
    Local(L),
    /// What is in the bucket.
    #[error("{0}")]
    Tree(BucketTreeError<N>),
    /// How much is here.
    #[error("{0}")]
    Progress(MetadataFault<L>),
}

impl<L, N> From<BucketTreeError<N>> for BackedError<L, N> {
    fn from(error: BucketTreeError<N>) -> Self {
        Self::Tree(error)
    }
}

impl<L, N> From<TreeError<N>> for BackedError<L, N> {
    fn from(error: TreeError<N>) -> Self {
        Self::Tree(error.into())
    }
}

/// Local metadata, read or changed, with the tree behind it that has what it lacks.
#[derive(Clone, Debug)]
pub struct Backed<L, N> {
    /// What is here.
    pub local: L,
    tree: Option<Behind<N>>,
}

/// A tree, and the first key of a table that it has and that is not here.
type Lacking<'b, N> = (&'b Behind<N>, Vec<u8>);

/// The tree, and who reads its nodes.
#[derive(Clone, Debug)]
pub struct Behind<N> {
    /// As [`load_backing`] gave it.
    pub backing: Arc<Backing>,
    /// Cloned for each read.
    pub nodes: N,
}

type BackedResult<T, L, N> = Result<T, BackedError<<L as MetadataRead>::Error, <N as Nodes>::Error>>;

impl<L: MetadataRead, N: Nodes + Clone> Backed<L, N> {
    /// `tree`: nothing, if nothing is lacking. How much of it is here is read where it matters.
    pub fn new(local: L, tree: Option<Behind<N>>) -> Self {
        Self { local, tree }
    }

    /// The tree, if it may have what is asked for.
    fn behind(&self, table: Table) -> BackedResult<Option<Lacking<'_, N>>, L, N> {
        let Some(tree) = self
            .tree
            .as_ref()
            .filter(|_| Progress::start().lacking(table).is_some())
        else {
            return Ok(None);
        };
        let progress = load_progress(&self.local).map_err(BackedError::Progress)?;
        Ok(progress.lacking(table).map(|lacking| (tree, lacking)))
    }

    fn is_lacking(&self, table: Table, key: &[u8]) -> BackedResult<Option<&Behind<N>>, L, N> {
        let behind = self.behind(table)?;
        Ok(behind.filter(|(_, lacking)| key >= &lacking[..]).map(|(tree, _)| tree))
    }

    /// Entries with `from <= key < end`, at most `limit` of them, ascending.
    ///
    /// # Errors
    /// When local metadata or the tree cannot be read.
    pub fn entries(&self, from: &[u8], end: &[u8], limit: usize) -> BackedResult<Vec<Entry>, L, N> {
        let mut found = BTreeMap::new();
        let mut key = from.to_vec();
        while found.len() < limit {
            let here = self.local.ceiling(Table::Entries, &key).map_err(BackedError::Local)?;
            let Some((here, value)) = here.filter(|(here, _)| &here[..] < end) else {
                break;
            };
            key.clone_from(&here);
            key.push(0);
            found.insert(here, value);
        }
        if let Some((tree, lacking)) = self.behind(Table::Entries)? {
            let mut scan = Scan::<Entries>::new(&tree.backing.entries, lacking.max(from.to_vec()), Some(end.to_vec()));
            let (mut nodes, mut count) = (tree.nodes.clone(), 0);
            while count < limit
                && let Some(entry) = scan.next(&mut nodes)?
            {
                let Some((key, value)) = local_entry(Table::Entries, entry) else {
                    continue;
                };
                if !is_known(&self.local, Table::Entries, &key).map_err(BackedError::Local)? {
                    found.insert(key, value);
                    count += 1;
                }
            }
        }
        Ok(found.into_iter().take(limit).collect())
    }

    fn is_masked(&self, table: Table, key: &[u8]) -> BackedResult<bool, L, N> {
        is_masked(&self.local, table, key).map_err(BackedError::Local)
    }
}

impl<L: MetadataRead, N: Nodes + Clone> MetadataRead for Backed<L, N> {
    type Error = BackedError<L::Error, N::Error>;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        let here = self.local.get(table, key).map_err(BackedError::Local)?;
        match self.is_lacking(table, key)? {
            Some(tree) if here.is_none() && !self.is_masked(table, key)? => {
                Ok(tree.backing.get(&mut tree.nodes.clone(), table, key)?)
            }
            _ => Ok(here),
        }
    }

    fn ceiling(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error> {
        let here = self.local.ceiling(table, key).map_err(BackedError::Local)?;
        let Some((tree, lacking)) = self.behind(table)? else {
            return Ok(here);
        };
        let mut from = lacking.max(key.to_vec());
        // What is here under a key counts, so the tree is not asked for what lies behind it.
        while here.as_ref().is_none_or(|(found, _)| from < *found) {
            let Some((found, value)) = tree.backing.ceiling(&mut tree.nodes.clone(), table, &from)? else {
                break;
            };
            if here.as_ref().is_some_and(|(here, _)| *here <= found) {
                break;
            }
            if !self.is_masked(table, &found)? {
                return Ok(Some((found, value)));
            }
            from = found;
            from.push(0);
        }
        Ok(here)
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Entry>, Self::Error> {
        let here = self.local.floor(table, key).map_err(BackedError::Local)?;
        let Some((tree, lacking)) = self.behind(table)? else {
            return Ok(here);
        };
        let mut end = key.to_vec();
        end.push(0);
        while end > lacking && here.as_ref().is_none_or(|(found, _)| end > *found) {
            let Some((found, value)) = tree.backing.below(&mut tree.nodes.clone(), table, &end)? else {
                break;
            };
            if found < lacking || here.as_ref().is_some_and(|(here, _)| *here >= found) {
                break;
            }
            if !self.is_masked(table, &found)? {
                return Ok(Some((found, value)));
            }
            end = found;
        }
        Ok(here)
    }
}

impl<L: MetadataTransaction, N: Nodes + Clone> MetadataTransaction for Backed<L, N> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.local.put(table, key, value).map_err(BackedError::Local)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Self::Error> {
        if self.is_lacking(table, key)?.is_some() {
            let masked = self.local.put(Table::Backing, &mask_key(table, key), &[]);
            masked.map_err(BackedError::Local)?;
        }
        self.local.delete(table, key).map_err(BackedError::Local)
    }

    fn is_counted(&self, page: &[u8]) -> Result<bool, Self::Error> {
        if self.is_lacking(Table::Map, page)?.is_none() {
            return Ok(true);
        }
        is_known(&self.local, Table::Map, page).map_err(BackedError::Local)
    }
}
