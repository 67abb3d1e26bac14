//! Local metadata and fingerprint index from what the store holds, under other names than theirs: for a new state directory, and
//! for one that has lost its own.

use super::data_keys::DataKeys;
use super::durable_file;
use super::first_start::Paths;
use super::index_files::IndexFiles;
use super::metadata::Metadata;
use super::metadata_file::DATA_FILE;
use super::open::Options;
use super::publishing::{FoundRoot, find_root, read_root};
use super::recover::{RecoverError, RecoverProgress, at};
use super::removal::usage_of;
use super::tree_nodes::{CachedNodes, StoreNodes, WholeObjects};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tombolo_base::{DecodeError, ObjectDescriptor};
use tombolo_cloud_driver::ObjectStore;
use tombolo_cloud_driver::encryption::KeyRing;
use tombolo_cloud_driver::metadata_object::{JOURNAL_PREFIX, MetadataKind, decode_metadata, journal_sequence};
use tombolo_core::backing::{begin, read_head};
use tombolo_core::bucket_journal::{PART_BYTES_MAX, Part, Salt};
use tombolo_core::bucket_tree::{
    BucketTree, FoldBase, Folded, JournalChanges, ReadTreeError, TreeContents, fold, read_tree,
};
use tombolo_core::local_metadata::{MetadataRead as _, Table};
use tombolo_core::recovery::{Rebuild, RebuildError};
use tombolo_core::root::Root;
use tombolo_core::{Frozen, Merge, Superblock};
use tombolo_dedup::{Index, Manifest, OlderRuns, OnBadRun};
use tombolo_metadata_tree::Shape;

/// Objects fetched at the same time.
const FETCHES: usize = 32;
/// What one LIST asks for.
const LIST_KEYS: usize = 1000;
/// Pages that one transaction changes.
const PAGES_MAX: usize = 4096;

/// What an object of metadata holds, and its salt.
pub fn decode_object<T>(
    kind: MetadataKind,
    name: &str,
    bytes: &[u8],
    contents_bytes_max: usize,
    ring: &KeyRing,
    decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<(T, Salt), RecoverError> {
    let owned = || name.to_owned();
    let (salt, contents) = decode_metadata(kind, name, bytes, contents_bytes_max, ring)
        .map_err(|error| RecoverError::Journal { name: owned(), error })?;
    let decoded = decode(&contents).map_err(|error| RecoverError::JournalContents { name: owned(), error })?;
    Ok((decoded, Salt(salt)))
}

/// Makes local metadata and index of what the store holds.
pub struct FromStore<'r> {
    pub runtime: &'r Runtime,
    pub store: Arc<dyn ObjectStore>,
    pub keys: &'r DataKeys,
    /// Where an unfinished recovery keeps what it has.
    pub work: PathBuf,
    pub paths: &'r Paths,
    pub options: &'r Options,
    pub tell: &'r dyn Fn(RecoverProgress),
}

impl FromStore<'_> {
    /// For the state directory that has put the root, whose journal goes on at the root's position, in this segment. Under
    /// another name; the index under its own.
    pub fn make(&self, root: &Root, segment: u64) -> Result<(), RecoverError> {
        durable_file::make_directory(&self.work).map_err(at(&self.work))?;
        let names = self.fetch_journal(root)?;
        self.rebuild(root, segment, &names)?;
        let metadata = Metadata::open(&new_metadata(&self.work), self.options.metadata_map_bytes, Some(0))
            .map_err(|error| RecoverError::Metadata(error.to_string()))?;
        make_index(&metadata, self.paths, self.options, self.tell)?;
        metadata.close();
        Ok(())
    }

    /// For another state directory, which has taken the store over. Nothing of the tree is here yet but what a start needs: the
    /// rest is read in the store as long as it is not. The root MUST name no journal. Under another name.
    pub fn make_backed(&self, root: &Root) -> Result<(Superblock, TreeContents), RecoverError> {
        durable_file::make_directory(&self.work).map_err(at(&self.work))?;
        let mut rebuild = Rebuild::new(root.clone(), root.identity, self.options.core.slot_count);
        let metadata = self.make_empty(&rebuild.superblock())?;
        let tree = BucketTree::decode(&root.tree).map_err(|error| RecoverError::Tree(error.to_string()))?;
        let mut nodes = self.nodes();
        let head = read_head(&mut nodes, &tree).map_err(|error| RecoverError::Tree(error.to_string()))?;
        let Frozen { superblock, .. } = rebuild.lay_tree(head.contents.clone());
        merge(
            &metadata,
            Frozen {
                superblock,
                ..head.counters
            },
        )?;
        let failed = |error: &dyn std::fmt::Display| RecoverError::Metadata(error.to_string());
        let mut writing = metadata.write_local().map_err(|error| failed(&error))?;
        begin(&mut writing, &head.backing).map_err(|error| failed(&error))?;
        writing.commit().map_err(|error| failed(&error))?;
        metadata.set_behind(Some(head.backing), nodes);
        let key = tombolo_files::next_numbers_key();
        let numbers = skipped_numbers(&metadata)?;
        let entry = numbers.as_ref().map(|value| (&key[..], &value[..]));
        let last = rebuild.finish(root.epoch, entry)?;
        let superblock = last.superblock.clone();
        merge(&metadata, last)?;
        metadata.close();
        // Its fingerprints come with the table of objects.
        let index = &self.paths.index;
        if index.exists() {
            fs::remove_dir_all(index).map_err(at(index))?;
        }
        Ok((superblock, head.contents))
    }

    /// The root's tree with its journal folded in, for the root of this sequence; `None`: it names none. Nothing is put yet.
    pub fn fold<'k>(
        &'k self,
        root: &Root,
        ring: &'k KeyRing,
        next_root: u64,
    ) -> Result<Option<(Folded, StoreNodes<'k>)>, RecoverError> {
        durable_file::make_directory(&self.work).map_err(at(&self.work))?;
        let names = self.fetch_journal(root)?;
        if names.is_empty() {
            return Ok(None);
        }
        let mut changes = JournalChanges::default();
        for (done, name) in (1..).zip(&names) {
            changes.lay(self.read_part(name)?.0);
            let of = names.len() as u64;
            (self.tell)(RecoverProgress::Rebuilt { objects: done, of });
        }
        let failed = |error: &dyn std::fmt::Display| RecoverError::Tree(error.to_string());
        let mut nodes = StoreNodes::new(self.runtime, &self.store, ring);
        let (usage, usage_at) = usage_of(&mut nodes, root)?;
        let base = FoldBase {
            tree: BucketTree::decode(&root.tree).map_err(|error| failed(&error))?,
            usage,
            usage_at,
            next_root,
            shape: Shape::default(),
        };
        let folded = fold(&mut nodes, base, &changes).map_err(|error| failed(&error))?;
        Ok(Some((folded, nodes)))
    }

    /// Those of its tree, as long as the runtime lives.
    pub fn nodes(&self) -> CachedNodes {
        CachedNodes::new(self.runtime.handle().clone(), self.store.clone(), self.keys.ring())
    }

    /// The store's root, and what it says.
    pub fn find_root(&self) -> Result<(FoundRoot, Root), RecoverError> {
        let found = self.runtime.block_on(find_root(&self.store))?;
        let found = found.ok_or(RecoverError::NoRoot)?;
        let has_keys = self.keys.info().master_key.is_some();
        match (found.is_encrypted()?, has_keys) {
            (true, false) => return Err(RecoverError::NoKeys),
            (false, true) if self.keys.info().is_on => return Err(RecoverError::ClearRoot),
            _ => {}
        }
        let root = read_root(&found, &self.keys.ring())?;
        Ok((found, root))
    }

    fn journal_directory(&self) -> PathBuf {
        self.work.join("journal")
    }

    /// Brings the journal here, object by object, and finds out which of those with the same number are the root's. In their
    /// order.
    fn fetch_journal(&self, root: &Root) -> Result<Vec<String>, RecoverError> {
        let directory = self.journal_directory();
        durable_file::make_directory(&directory).map_err(at(&directory))?;
        if root.journal().next().is_none() {
            return Ok(Vec::new());
        }
        let candidates = self.list_journal(root)?;
        let of = candidates.values().map(|names| names.len() as u64).sum();
        let mut fetched = 0;
        let names: Vec<&String> = candidates.values().flatten().collect();
        for some in names.chunks(FETCHES) {
            self.fetch_objects(some)?;
            fetched += some.len() as u64;
            (self.tell)(RecoverProgress::Fetched { objects: fetched, of });
        }
        // The root names the last, and each the one before it.
        let mut chain = Vec::new();
        let mut salt = root.journal_salt;
        for sequence in root.journal().rev() {
            let name = MetadataKind::Journal(sequence).name(&salt.0);
            let is_there = candidates.get(&sequence).is_some_and(|names| names.contains(&name));
            if !is_there {
                return Err(RecoverError::JournalMissing(sequence));
            }
            let read = self.read_part(&name);
            if read.is_err() {
                // All are fetched again when it has been mended in the store.
                let path = self.journal_directory();
                fs::remove_dir_all(&path).map_err(at(&path))?;
            }
            let (part, found) = read?;
            if found != salt {
                return Err(RebuildError::Chain { sequence }.into());
            }
            salt = part.header.before;
            chain.push(name);
        }
        chain.reverse();
        Ok(chain)
    }

    fn list_journal(&self, root: &Root) -> Result<BTreeMap<u64, Vec<String>>, RecoverError> {
        let mut candidates: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        // Just before the first: no key ends so.
        let mut after = format!("{JOURNAL_PREFIX}{:016x}", root.journal_first);
        loop {
            let listed = self
                .runtime
                .block_on(self.store.list(JOURNAL_PREFIX, Some(&after), LIST_KEYS))?;
            for object in &listed {
                if let Some(sequence) = journal_sequence(&object.key).filter(|found| *found <= root.journal_last) {
                    candidates.entry(sequence).or_default().push(object.key.clone());
                }
            }
            match listed.last() {
                Some(last) if listed.len() == LIST_KEYS => after.clone_from(&last.key),
                _ => return Ok(candidates),
            }
        }
    }

    fn local_copy(&self, name: &str) -> PathBuf {
        self.journal_directory().join(name.trim_start_matches(JOURNAL_PREFIX))
    }

    fn fetch_objects(&self, names: &[&String]) -> Result<(), RecoverError> {
        let gets: Vec<_> = names
            .iter()
            .filter(|name| !self.local_copy(name).exists())
            .map(|name| {
                let (store, key) = (self.store.clone(), String::clone(name));
                self.runtime.spawn(async move {
                    let got = store.get(&key, None).await;
                    (key, got)
                })
            })
            .collect();
        for get in gets {
            let (key, got) = self
                .runtime
                .block_on(get)
                .map_err(|error| RecoverError::Runtime(error.into()))?;
            let (bytes, path) = (got?, self.local_copy(&key));
            durable_file::replace(&path, |mut file| file.write_all(&bytes)).map_err(at(&path))?;
        }
        Ok(())
    }

    fn read_part(&self, name: &str) -> Result<(Part, Salt), RecoverError> {
        let path = self.local_copy(name);
        let bytes = fs::read(&path).map_err(at(&path))?;
        let kind = MetadataKind::Journal(journal_sequence(name).unwrap_or_default());
        decode_object(kind, name, &bytes, PART_BYTES_MAX, &self.keys.ring(), Part::decode)
    }

    /// Local metadata under another name, with nothing in it. It is made anew each time: that takes no requests.
    fn make_empty(&self, superblock: &Superblock) -> Result<Metadata, RecoverError> {
        let directory = new_metadata(&self.work);
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(at(&directory))?;
        }
        let failed = |error: &dyn std::fmt::Display| RecoverError::Metadata(error.to_string());
        let map_bytes = self.options.metadata_map_bytes;
        Metadata::make(&directory, map_bytes, superblock).map_err(|error| failed(&error))?;
        Metadata::open(&directory, map_bytes, Some(0)).map_err(|error| failed(&error))
    }

    /// All of it, under another name.
    fn rebuild(&self, root: &Root, segment: u64, names: &[String]) -> Result<(), RecoverError> {
        let mut rebuild = Rebuild::again(root.clone(), self.options.core.slot_count, segment);
        let first = rebuild.superblock();
        let metadata = self.make_empty(&first)?;
        let tree = BucketTree::decode(&root.tree).map_err(|error| RecoverError::Tree(error.to_string()))?;
        let ring = self.keys.ring();
        let mut nodes = WholeObjects::new(self.runtime.handle().clone(), self.store.clone(), ring);
        let mut pieces = 0;
        let contents = read_tree(&mut nodes, &tree, &mut |frozen| {
            pieces += 1;
            (self.tell)(RecoverProgress::ReadTree { pieces });
            merge(
                &metadata,
                Frozen {
                    superblock: first.clone(),
                    ..frozen
                },
            )
        });
        let contents = contents.map_err(|error| match error {
            ReadTreeError::Tree(error) => RecoverError::Tree(error.to_string()),
            ReadTreeError::Sink(error) => error,
        })?;
        merge(&metadata, rebuild.lay_tree(contents))?;
        for (done, name) in (1..).zip(names) {
            let (part, salt) = self.read_part(name)?;
            merge(&metadata, rebuild.lay(part, salt)?)?;
            let of = names.len() as u64;
            (self.tell)(RecoverProgress::Rebuilt { objects: done, of });
        }
        let key = tombolo_files::next_numbers_key();
        let numbers = skipped_numbers(&metadata)?;
        let entry = numbers.as_ref().map(|value| (&key[..], &value[..]));
        merge(&metadata, rebuild.finish(root.epoch, entry)?)?;
        metadata.close();
        Ok(())
    }
}

/// Gives what was made its name.
pub fn publish_metadata(work: &Path, paths: &Paths) -> Result<(), RecoverError> {
    let (new, metadata) = (new_metadata(work), &paths.metadata);
    let data = metadata.join(DATA_FILE);
    fs::File::open(new.join(DATA_FILE))
        .and_then(|file| file.sync_all())
        .and_then(|()| durable_file::make_directory(metadata))
        .and_then(|()| durable_file::sync_directory_of(metadata))
        .and_then(|()| durable_file::rename(&new.join(DATA_FILE), &data))
        .map_err(at(&data))
}

/// Where local metadata lies until then.
pub fn new_metadata(work: &Path) -> PathBuf {
    work.join("metadata")
}

/// What the entry of numbers has to be where some may have been given out that local metadata does not know of.
pub fn skipped_numbers(metadata: &Metadata) -> Result<Option<Vec<u8>>, RecoverError> {
    let numbers = metadata.entry(&tombolo_files::next_numbers_key());
    let numbers = numbers.map_err(|error| RecoverError::Metadata(error.to_string()))?;
    let numbers = numbers.map(|entry| tombolo_files::skip_numbers(&entry));
    numbers.transpose().map_err(RecoverError::Numbers)
}

/// The fingerprint index of all objects that local metadata knows, so that what is written again is found. Returns how many
/// objects there are.
pub fn make_index(
    metadata: &Metadata,
    paths: &Paths,
    options: &Options,
    tell: &dyn Fn(RecoverProgress),
) -> Result<u64, RecoverError> {
    let failed = |error: &dyn std::fmt::Display| RecoverError::Index(error.to_string());
    if paths.index.exists() {
        fs::remove_dir_all(&paths.index).map_err(at(&paths.index))?;
    }
    let files = IndexFiles::open(paths.index.clone()).map_err(at(&paths.index))?;
    let policy = OnBadRun::Drop(OlderRuns::Keep);
    let (mut index, _) =
        Index::open(&files, &Manifest::default(), options.index.clone(), policy).map_err(|error| failed(&error))?;
    let mut count = 0;
    {
        let reading = metadata.read().map_err(|error| failed(&error))?;
        let mut key = vec![0; 8];
        while let Some((found, bytes)) = reading.ceiling(Table::Objects, &key).map_err(|error| failed(&error))? {
            let descriptor = ObjectDescriptor::decode(&bytes).map_err(|error| failed(&error))?;
            for block in descriptor.blocks() {
                if index.insert(block.fingerprint, block.pvbn).is_err() {
                    index.flush_memtable(&files).map_err(|error| failed(&error))?;
                    index
                        .insert(block.fingerprint, block.pvbn)
                        .map_err(|error| failed(&error))?;
                }
            }
            count += 1;
            if count % 1024 == 0 {
                tell(RecoverProgress::Indexed { objects: count });
            }
            key = found;
            key.push(0);
        }
    }
    index.flush_memtable(&files).map_err(|error| failed(&error))?;
    let mut writing = metadata.write().map_err(|error| failed(&error))?;
    let manifest = index.manifest().encode();
    writing.put_manifest(&manifest).map_err(|error| failed(&error))?;
    writing.commit().map_err(|error| failed(&error))?;
    Ok(count)
}

/// Brings a change into local metadata, durably.
pub fn merge(metadata: &Metadata, frozen: Frozen) -> Result<(), RecoverError> {
    let failed = |error: &dyn std::fmt::Display| RecoverError::Metadata(error.to_string());
    let mut merge = Merge::new(Arc::new(frozen), PAGES_MAX);
    loop {
        let mut writing = metadata.write().map_err(|error| failed(&error))?;
        let is_last = merge.step(&mut writing).map_err(|error| failed(&error))?;
        writing.commit().map_err(|error| failed(&error))?;
        if is_last {
            return Ok(());
        }
    }
}
