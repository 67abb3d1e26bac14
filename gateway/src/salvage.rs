//! What a state directory has and its store lacks: found, and copied out. For a gateway that was taken over from, or one
//! whose store is gone. Nothing is changed, neither here nor in the store.

use crate::frontends::{FileStorage, GatewayAccess};
use crate::runtime::{Gateway, OpenError, Options};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tombolo_base::{BLOCK_BYTES, Span, VolumeId};
use tombolo_core::{Extent, Target, UnpublishedChanges};
use tombolo_file_storage::CoreAccess as _;
use tombolo_files::storage::StorageError;
use tombolo_files::{
    Attributes, DirectoryEntry, EntryAbout, FileError, FileService, FileType, Place, Seek, ShareStatus, about_entry,
    service_caller,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What is read at once; where that fails, block by block.
const PIECE_BYTES: u64 = 1 << 20;
/// Names that are read at once.
const NAMES: usize = 256;
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Why nothing was found, or not all of it copied.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the entries of the file service: {0}")]
    Files(#[from] FileError),
    #[error("{0} is there already; name a directory that is not")]
    Exists(PathBuf),
    #[error("{path}: {error}")]
    Write { path: PathBuf, error: io::Error },
}

/// Bytes that were changed; as holes, if they were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedRange {
    pub offset: u64,
    pub bytes: u64,
    pub is_hole: bool,
}

/// A volume with changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedVolume {
    pub name: String,
    pub size_bytes: u64,
    pub changed: Vec<ChangedRange>,
    #[serde(skip)]
    id: VolumeId,
}

/// A file, directory or other inode with changes, by one of its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    pub share: String,
    pub path: String,
    pub kind: &'static str,
    pub size_bytes: u64,
    /// None: its name or its attributes alone.
    pub changed: Vec<ChangedRange>,
    #[serde(skip)]
    found: Found,
}

/// A name that is gone; what had it may have another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RemovedName {
    pub share: String,
    pub path: String,
}

/// What could not be copied, for blocks that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// As it was to be copied to.
    pub copy: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub reason: String,
}

/// What the store lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Salvage {
    /// It is not known what the store has, so everything is named.
    pub is_all: bool,
    /// When the oldest of the changes was made; seconds before now.
    pub oldest_age_s: Option<u64>,
    pub volumes: Vec<ChangedVolume>,
    pub files: Vec<ChangedFile>,
    pub removed: Vec<RemovedName>,
    /// Empty where nothing was copied.
    pub unreadable: Vec<Unreadable>,
}

impl Salvage {
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.files.is_empty() && self.removed.is_empty()
    }
}

/// Finds what the store lacks, and copies it to `target`, a directory that is made.
///
/// # Errors
/// When the state directory cannot be opened or read, or the copies not be written. A block that cannot be read is no error:
/// its place in the copy is a hole, and the answer names it.
pub fn salvage(mut options: Options, target: Option<&Path>, tell: &dyn Fn(&str)) -> Result<Salvage, SalvageError> {
    if let Some(target) = target.filter(|target| target.exists()) {
        return Err(SalvageError::Exists(target.to_owned()));
    }
    options.read_only = true;
    // Without it the core does not note what the store lacks.
    options.core.recovery_point_ms.get_or_insert(u64::MAX);
    let gateway = Gateway::open(options)?;
    let result = State::open(&gateway).and_then(|state| {
        let mut found = state.find()?;
        if let Some(target) = target {
            state.copy(&mut found, target, tell)?;
        }
        Ok(found)
    });
    gateway.stop(STOP_PATIENCE);
    result
}

/// An inode as a walk has found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    share: u32,
    inode: u64,
    /// From the share's root; nothing for the root itself.
    path: Vec<u8>,
    mode: u32,
    mtime_s: i64,
}

struct State {
    access: GatewayAccess,
    service: FileService<FileStorage>,
    gateway: Arc<Gateway>,
}

impl State {
    fn open(gateway: &Arc<Gateway>) -> Result<Self, SalvageError> {
        let access = GatewayAccess(gateway.clone());
        let storage = Arc::new(tombolo_file_storage::FileStorage(access.clone()));
        let service = FileService::open_to_read(storage, Box::new(|_| {}), None)?;
        let gateway = gateway.clone();
        Ok(Self {
            access,
            service,
            gateway,
        })
    }

    fn find(&self) -> Result<Salvage, SalvageError> {
        let changes = self.gateway.core().unpublished_changes();
        let now = self.gateway.now();
        let mut found = Salvage {
            is_all: changes.is_all,
            oldest_age_s: changes.since.map(|since| now.0.saturating_sub(since.0) / 1_000_000),
            volumes: self.volumes(&changes),
            files: Vec::new(),
            removed: Vec::new(),
            unreadable: Vec::new(),
        };
        let mut wanted = Wanted::new(&changes);
        for share in self.service.shares() {
            self.walk(&share, &mut wanted, &mut found)?;
        }
        found.removed.sort();
        Ok(found)
    }

    fn volumes(&self, changes: &UnpublishedChanges) -> Vec<ChangedVolume> {
        let mut runs = runs_by_volume(changes);
        let volumes = self.gateway.snapshot().volumes.into_iter();
        let volumes = volumes.filter_map(|volume| {
            let size_bytes = volume.blocks * BLOCK;
            let changed = match changes.is_all {
                true => vec![ChangedRange {
                    offset: 0,
                    bytes: size_bytes,
                    is_hole: false,
                }],
                false => ranges(runs.remove(&volume.id).unwrap_or_default(), size_bytes),
            };
            let is_new = changes.volumes.contains(&volume.id);
            (is_new || !changed.is_empty()).then_some(ChangedVolume {
                name: volume.name,
                size_bytes,
                changed,
                id: volume.id,
            })
        });
        volumes.collect()
    }

    /// Every file of the share that something is known of.
    fn walk(&self, share: &ShareStatus, wanted: &mut Wanted, found: &mut Salvage) -> Result<(), SalvageError> {
        let caller = service_caller(share.id);
        let mut directories = vec![(share.root, Vec::new())];
        while let Some((directory, path)) = directories.pop() {
            for name in wanted.removed.remove(&directory).unwrap_or_default() {
                found.removed.push(RemovedName {
                    share: share.name.clone(),
                    path: shown(&below(&path, &name)),
                });
            }
            let mut cookie = 0;
            loop {
                let entries = self.service.readdir(&caller, directory, cookie, NAMES, true)?;
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                for entry in &entries {
                    let DirectoryEntry {
                        name,
                        attributes: Some(attributes),
                        ..
                    } = entry
                    else {
                        continue;
                    };
                    if matches!(&name[..], b"." | b"..") {
                        continue;
                    }
                    let path = below(&path, name);
                    let is_named = wanted.names.contains(&(directory, name.clone()));
                    if attributes.file_type == FileType::Directory {
                        directories.push((attributes.inode, path.clone()));
                    }
                    found.files.extend(wanted.file(share, &path, attributes, is_named));
                }
            }
        }
        Ok(())
    }

    fn copy(&self, found: &mut Salvage, target: &Path, tell: &dyn Fn(&str)) -> Result<(), SalvageError> {
        make_directory(target)?;
        let mut unreadable = Vec::new();
        for volume in &found.volumes {
            tell(&format!("volume {}", volume.name));
            let path = target.join("volumes").join(&volume.name);
            let file = make_file(&path, volume.size_bytes)?;
            for range in volume.changed.iter().filter(|range| !range.is_hole) {
                let read = |offset, bytes| {
                    let span = Span {
                        volume: volume.id,
                        first: offset / BLOCK,
                        count: bytes / BLOCK,
                    };
                    self.access.read_blocks(span).map_err(|error| error.to_string())
                };
                copy_range(&file, &path, range.offset, range.bytes, &read, &mut unreadable)?;
            }
            file.sync_all().map_err(write_error(&path))?;
        }
        for changed in &found.files {
            tell(&format!("{}:{}", changed.share, changed.path));
            match self.copy_file(changed, target, &mut unreadable) {
                Err(SalvageError::Write { path, error }) if is_of_one_file(&error) => {
                    unreadable.push(Unreadable {
                        copy: path,
                        offset: 0,
                        bytes: changed.size_bytes,
                        reason: format!("it cannot be copied: {error}"),
                    });
                }
                copied => copied?,
            }
        }
        found.unreadable = unreadable;
        let path = target.join("salvage.json");
        let text = serde_json::to_vec_pretty(found).map_err(io::Error::from);
        text.and_then(|text| fs::write(&path, text)).map_err(write_error(&path))
    }

    fn copy_file(
        &self,
        changed: &ChangedFile,
        target: &Path,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<(), SalvageError> {
        let of = &changed.found;
        let relative = Path::new(OsStr::from_bytes(&of.path));
        let path = target.join("shares").join(&changed.share).join(relative);
        let caller = service_caller(of.share);
        match changed.kind {
            "directory" => return make_directory(&path),
            "symlink" => {
                let link = self.service.readlink(&caller, of.inode)?;
                make_parent(&path)?;
                return std::os::unix::fs::symlink(OsStr::from_bytes(&link), &path).map_err(write_error(&path));
            }
            "file" => {}
            _ => return Ok(()),
        }
        let file = make_file(&path, changed.size_bytes)?;
        let read = |offset, bytes| {
            let (sender, receiver) = sync_channel(1);
            let place = Place {
                inode: of.inode,
                offset,
            };
            let reply = move |read: Result<Vec<u8>, FileError>| drop(sender.send(read));
            self.service.read(&caller, place, bytes as usize, Box::new(reply));
            let read = receiver.recv().unwrap_or_else(|_| Err(stopped().into()));
            read.map_err(|error| error.to_string())
        };
        let mut at = 0;
        let seek = |offset, what| {
            self.service.seek(
                &caller,
                Place {
                    inode: of.inode,
                    offset,
                },
                what,
            )
        };
        while at < changed.size_bytes {
            let data = match seek(at, Seek::Data) {
                Err(FileError::NoSuchPosition) => break,
                found => found?,
            };
            at = seek(data, Seek::Hole)?;
            copy_range(&file, &path, data, at - data, &read, unreadable)?;
        }
        let modified = std::time::UNIX_EPOCH + Duration::from_secs(of.mtime_s.max(0).cast_unsigned());
        file.set_modified(modified)
            .and_then(|()| file.set_permissions(Permissions::from_mode(of.mode & 0o777)))
            .and_then(|()| file.sync_all())
            .map_err(write_error(&path))
    }
}

fn stopped() -> StorageError {
    StorageError::Failed("the gateway is stopping".into())
}

/// What a walk looks for.
struct Wanted {
    is_all: bool,
    inodes: BTreeSet<u64>,
    names: BTreeSet<(u64, Vec<u8>)>,
    removed: BTreeMap<u64, Vec<Vec<u8>>>,
    runs: BTreeMap<VolumeId, Vec<Extent>>,
}

impl Wanted {
    fn new(changes: &UnpublishedChanges) -> Self {
        let mut wanted = Self {
            is_all: changes.is_all,
            inodes: BTreeSet::new(),
            names: BTreeSet::new(),
            removed: BTreeMap::new(),
            runs: runs_by_volume(changes),
        };
        for (key, is_there) in &changes.entries {
            match about_entry(key) {
                EntryAbout::Inode(inode) => drop(wanted.inodes.insert(inode)),
                EntryAbout::Name { directory, name } if *is_there => drop(wanted.names.insert((directory, name))),
                EntryAbout::Name { directory, name } => wanted.removed.entry(directory).or_default().push(name),
                EntryAbout::Service => {}
            }
        }
        wanted
    }

    fn file(&self, share: &ShareStatus, path: &[u8], attributes: &Attributes, is_named: bool) -> Option<ChangedFile> {
        let inode = attributes.inode;
        let runs = self.runs.get(&VolumeId::of_inode(inode));
        // A directory's attributes change with each name in it, which is told by itself.
        let has_changed = attributes.file_type != FileType::Directory && self.inodes.contains(&inode);
        if !(self.is_all || is_named || has_changed || runs.is_some()) {
            return None;
        }
        Some(ChangedFile {
            share: share.name.clone(),
            path: shown(path),
            kind: match attributes.file_type {
                FileType::Regular => "file",
                FileType::Directory => "directory",
                FileType::Symlink => "symlink",
                _ => "special",
            },
            size_bytes: attributes.size,
            changed: ranges(runs.cloned().unwrap_or_default(), attributes.size),
            found: Found {
                share: share.id,
                inode,
                path: path.to_vec(),
                mode: attributes.mode,
                mtime_s: attributes.mtime.seconds,
            },
        })
    }
}

fn runs_by_volume(changes: &UnpublishedChanges) -> BTreeMap<VolumeId, Vec<Extent>> {
    let mut runs: BTreeMap<VolumeId, Vec<Extent>> = BTreeMap::new();
    for run in &changes.runs {
        runs.entry(run.volume).or_default().push(*run);
    }
    runs
}

/// Neighbours are one range; what lies behind the end is none.
fn ranges(runs: Vec<Extent>, size_bytes: u64) -> Vec<ChangedRange> {
    let mut ranges: Vec<ChangedRange> = Vec::new();
    for run in runs {
        let (offset, end) = (run.first * BLOCK, run.end() * BLOCK);
        let (end, is_hole) = (end.min(size_bytes), run.target == Target::Hole);
        if offset >= end {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.offset + last.bytes == offset && last.is_hole == is_hole => {
                last.bytes = end - last.offset;
            }
            _ => ranges.push(ChangedRange {
                offset,
                bytes: end - offset,
                is_hole,
            }),
        }
    }
    ranges
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path {
        [] => name.to_vec(),
        path => [path, b"/", name].concat(),
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Zeroes stay holes.
fn copy_range(
    file: &File,
    path: &Path,
    offset: u64,
    bytes: u64,
    read: &dyn Fn(u64, u64) -> Result<Vec<u8>, String>,
    unreadable: &mut Vec<Unreadable>,
) -> Result<(), SalvageError> {
    let mut at = offset;
    while at < offset + bytes {
        let piece = PIECE_BYTES.min(offset + bytes - at);
        match read(at, piece) {
            Ok(data) if data.iter().any(|byte| *byte != 0) => {
                file.write_all_at(&data, at).map_err(write_error(path))?;
            }
            Ok(_) => {}
            Err(reason) if piece <= BLOCK => unreadable.push(Unreadable {
                copy: path.to_owned(),
                offset: at,
                bytes: piece,
                reason,
            }),
            Err(_) => {
                let mut block = at;
                while block < at + piece {
                    let length = BLOCK.min(at + piece - block);
                    copy_range(file, path, block, length, read, unreadable)?;
                    block += length;
                }
            }
        }
        at += piece;
    }
    Ok(())
}

/// The next one may be copied all the same.
fn is_of_one_file(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENAMETOOLONG | libc::EFBIG))
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> SalvageError {
    let path = path.to_owned();
    move |error| SalvageError::Write { path, error }
}

fn make_directory(path: &Path) -> Result<(), SalvageError> {
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path).map_err(write_error(path))
}

fn make_parent(path: &Path) -> Result<(), SalvageError> {
    path.parent().map_or(Ok(()), make_directory)
}

fn make_file(path: &Path, size_bytes: u64) -> Result<File, SalvageError> {
    make_parent(path)?;
    let mut open = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let file = open.read(true).write(true).create_new(true).open(path);
    file.and_then(|file| file.set_len(size_bytes).map(|()| file))
        .map_err(write_error(path))
}
