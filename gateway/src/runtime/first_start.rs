//! The making of a state directory. Its last step gives the file of local metadata its name: what lies under that name is
//! whole and holds a superblock, so damage found there later is damage, and what an interrupted first start left is known.

use super::cache_file;
use super::durable_file;
use super::journal_files::segments_in;
use super::metadata::Metadata;
use super::metadata_file::DATA_FILE;
use super::open::{OpenError, fresh_identity};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tombolo_core::Superblock;
use tombolo_core::cache_header::{CacheHeader, Mark};

/// Where everything lies in a state directory.
#[derive(Clone, Debug)]
pub struct Paths {
    pub cache: PathBuf,
    /// The cache file's marks once more.
    pub flushed: PathBuf,
    pub journal: PathBuf,
    pub metadata: PathBuf,
    pub index: PathBuf,
}

impl Paths {
    pub fn new(state: &Path) -> Self {
        Self {
            cache: state.join("cache"),
            flushed: state.join("flushed"),
            journal: state.join("journal"),
            metadata: state.join("metadata"),
            index: state.join("index"),
        }
    }
}

/// Whether there is no state here yet.
pub fn is_new(paths: &Paths) -> bool {
    !paths.metadata.join(DATA_FILE).exists()
}

/// Refuses a directory without local metadata in which other parts are, or in which a recovery was interrupted.
pub fn check_unfinished(paths: &Paths) -> Result<(), OpenError> {
    if paths.cache.exists() || has_files(&paths.journal).map_err(disk(&paths.journal, "cannot look into"))? {
        return Err(OpenError::MetadataLost(paths.metadata.join(DATA_FILE)));
    }
    match super::recover::unfinished(paths) {
        Some(unfinished) => Err(OpenError::RecoveryUnfinished(unfinished)),
        None => Ok(()),
    }
}

/// Refuses a directory of which a part is lost; makes what an empty one lacks.
pub fn make_if_new(paths: &Paths, slot_count: u32, map_bytes: u64) -> Result<(), OpenError> {
    let data = paths.metadata.join(DATA_FILE);
    if !is_new(paths) {
        return check_journal(paths);
    }
    check_unfinished(paths)?;
    let identity = fresh_identity();
    durable_file::make_directory(&paths.journal).map_err(disk(&paths.journal, "cannot make the journal"))?;
    let header = CacheHeader {
        identity,
        slot_count,
        mark: Mark::default(),
    };
    make_cache(paths, &header)?;
    make_metadata(paths, &data, map_bytes, &Superblock::first(identity, slot_count))?;
    durable_file::publish(&paths.cache).map_err(disk(&paths.cache, "cannot make the cache file"))
}

/// How far the journal went is noted in the cache file. Where that has gone too, a journal without a segment would look
/// like one that was never written to; a first start that was interrupted leaves the cache file under its other name.
fn check_journal(paths: &Paths) -> Result<(), OpenError> {
    let lost = || OpenError::JournalLost(paths.journal.clone());
    if !paths.journal.is_dir() {
        return Err(lost());
    }
    let has_cache = paths.cache.exists() || durable_file::new_path(&paths.cache).exists();
    let has_segments = || segments_in(&paths.journal).map(|segments| !segments.is_empty());
    if !has_cache && !has_segments().map_err(disk(&paths.journal, "cannot look into"))? {
        return Err(lost());
    }
    Ok(())
}

/// In a folder of another name, from which its file is moved once all else has a durable name.
fn make_metadata(paths: &Paths, data: &Path, map_bytes: u64, superblock: &Superblock) -> Result<(), OpenError> {
    let new = paths.metadata.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).map_err(disk(&new, "cannot remove what an interrupted start left"))?;
    }
    Metadata::make(&new, map_bytes, superblock).map_err(|error| OpenError::Metadata {
        path: new.clone(),
        error,
    })?;
    let moved = durable_file::make_directory(&paths.metadata)
        .and_then(|()| durable_file::sync_directory_of(&paths.metadata))
        .and_then(|()| durable_file::rename(&new.join(DATA_FILE), data));
    moved.map_err(disk(data, "cannot make local metadata"))?;
    fs::remove_dir_all(&new).map_err(disk(&new, "cannot remove what is not needed any more"))
}

pub fn make_cache(paths: &Paths, header: &CacheHeader) -> Result<(), OpenError> {
    cache_file::make(&paths.cache, header).map_err(disk(
        &paths.cache,
        "cannot make the cache file in full; is there room for [cache] size?",
    ))
}

pub fn has_files(directory: &Path) -> io::Result<bool> {
    match fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn disk(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |error| OpenError::Disk { path, action, error }
}
