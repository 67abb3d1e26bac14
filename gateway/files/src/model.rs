//! A POSIX tree as a model of the file service, for tests of this crate and of those above it: what each request is
//! answered, errors included, and what the tree then holds.
//!
//! A request is carried out by the service with [`ask`] and by the model with [`Model::carry_out`]; what a whole tree
//! holds is seen through the service with [`look`], and shown by the model with [`Model::shown`]. Inodes go by the
//! numbers that the service has given them; they are never taken out of the model, so that requests for what is gone are
//! made too.

use crate::error::FileError;
use crate::service::FileService;
use crate::storage::Storage;
use crate::types::{
    Caller, FileType, NameIn, NewNode, OpenFlags, Place, RenameMode, SetAttributes, XattrFlags, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

/// Sessions that the model tells apart, by the numbers below this.
pub const SESSIONS: usize = 2;
/// What every symbolic link of the model says.
const TARGET: &[u8] = b"else";

type Name = &'static str;
/// A name in a directory.
type At = (u64, Name);

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named as the calls of the service; a number is an inode, an offset or a session"
)]
pub enum Operation {
    Mkdir(At),
    Mknod(At),
    Symlink(At),
    Link(u64, At),
    Unlink(At),
    Rmdir(At),
    Rename(At, At, RenameMode),
    Create {
        at: At,
        session: usize,
        exclusive: bool,
    },
    Tmpfile {
        parent: u64,
        session: usize,
    },
    Open(u64, usize),
    Release(u64, usize),
    Lookup(At),
    LookupParent(u64),
    Chmod(u64, u32),
    Resize(u64, u64),
    Write {
        inode: u64,
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    SetXattr(u64, Name, u8, XattrMode),
    RemoveXattr(u64, Name),
}

/// What comes back of a request that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Nothing but that.
    Nothing,
    /// A new inode.
    Made(u64),
    /// One that was there.
    Found(u64),
}

impl Given {
    /// The new inode, if there is one.
    pub fn made(self) -> Option<u64> {
        match self {
            Self::Made(inode) => Some(inode),
            Self::Found(_) | Self::Nothing => None,
        }
    }
}

/// What a request is answered.
pub type Answer = Result<Given, FileError>;

impl Operation {
    fn session(&self) -> usize {
        match self {
            Self::Create { session, .. }
            | Self::Tmpfile { session, .. }
            | Self::Open(_, session)
            | Self::Release(_, session) => *session,
            _ => 0,
        }
    }

    /// The same for other inodes.
    pub fn on(&self, inode: impl Fn(u64) -> u64) -> Self {
        use Operation::*;
        let at = |(parent, name): At| (inode(parent), name);
        match self.clone() {
            Mkdir(place) => Mkdir(at(place)),
            Mknod(place) => Mknod(at(place)),
            Symlink(place) => Symlink(at(place)),
            Link(of, place) => Link(inode(of), at(place)),
            Unlink(place) => Unlink(at(place)),
            Rmdir(place) => Rmdir(at(place)),
            Rename(from, to, mode) => Rename(at(from), at(to), mode),
            Create {
                at: place,
                session,
                exclusive,
            } => Create {
                at: at(place),
                session,
                exclusive,
            },
            Tmpfile { parent, session } => Tmpfile {
                parent: inode(parent),
                session,
            },
            Open(of, session) => Open(inode(of), session),
            Release(of, session) => Release(inode(of), session),
            Lookup(place) => Lookup(at(place)),
            LookupParent(of) => LookupParent(inode(of)),
            Chmod(of, mode) => Chmod(inode(of), mode),
            Resize(of, size) => Resize(inode(of), size),
            Write {
                inode: of,
                offset,
                bytes,
                byte,
            } => Write {
                inode: inode(of),
                offset,
                bytes,
                byte,
            },
            SetXattr(of, name, value, mode) => SetXattr(inode(of), name, value, mode),
            RemoveXattr(of, name) => RemoveXattr(inode(of), name),
        }
    }

    /// Leaves the inode that it makes, or finds, open.
    fn opens(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Tmpfile { .. } | Self::Open(..))
    }
}

fn node(mode: u32) -> NewNode {
    NewNode {
        mode,
        umask: 0o022,
        device: 0,
        attributes: SetAttributes::default(),
    }
}

fn name_in((parent, name): At) -> NameIn<'static> {
    let name = name.as_bytes();
    NameIn { parent, name }
}

fn set<S: Storage>(service: &FileService<S>, caller: &Caller, inode: u64, set: SetAttributes) -> Answer {
    service.setattr(caller, inode, &set).map(|_| Given::Nothing)
}

/// Lets the service carry the request out, for the caller of its session.
pub fn ask<S: Storage>(service: &FileService<S>, callers: &[Caller; SESSIONS], operation: &Operation) -> Answer {
    use Operation::*;
    let caller = &callers[operation.session()];
    let nothing = |()| Given::Nothing;
    match operation.clone() {
        Mkdir(at) => Ok(Given::Made(service.mkdir(caller, name_in(at), node(0o777))?.inode)),
        Mknod(at) => Ok(Given::Made(service.mknod(caller, name_in(at), node(0o100_666))?.inode)),
        Symlink(at) => Ok(Given::Made(service.symlink(caller, name_in(at), TARGET)?.inode)),
        Link(of, at) => Ok(Given::Found(service.link(caller, of, name_in(at))?.inode)),
        Unlink(at) => service.unlink(caller, name_in(at)).map(nothing),
        Rmdir(at) => service.rmdir(caller, name_in(at)).map(nothing),
        Rename(from, to, mode) => service.rename(caller, name_in(from), name_in(to), mode).map(nothing),
        Create { at, exclusive, .. } => {
            let flags = OpenFlags {
                exclusive,
                ..OpenFlags::default()
            };
            let (entry, is_new) = service.create(caller, name_in(at), node(0o666), flags)?;
            Ok(match is_new {
                true => Given::Made(entry.inode),
                false => Given::Found(entry.inode),
            })
        }
        Tmpfile { parent, .. } => Ok(Given::Made(service.tmpfile(caller, parent, node(0o666))?.inode)),
        Open(inode, _) => service.open_inode(caller, inode, OpenFlags::default()).map(nothing),
        Release(inode, _) => service.release(caller, inode).map(nothing),
        Lookup(at) => Ok(Given::Found(service.lookup(caller, name_in(at))?.inode)),
        LookupParent(inode) => Ok(Given::Found(service.lookup(caller, name_in((inode, "..")))?.inode)),
        Chmod(inode, mode) => {
            let mode = Some(mode);
            let wanted = SetAttributes {
                mode,
                ..SetAttributes::default()
            };
            set(service, caller, inode, wanted)
        }
        Resize(inode, size) => {
            let size = Some(size);
            let wanted = SetAttributes {
                size,
                ..SetAttributes::default()
            };
            set(service, caller, inode, wanted)
        }
        Write {
            inode,
            offset,
            bytes,
            byte,
        } => {
            let data = vec![byte; bytes].into();
            let written = service.write(caller, Place { inode, offset }, data, false)?;
            assert_eq!(written, bytes, "a write is made whole");
            Ok(Given::Nothing)
        }
        SetXattr(inode, name, value, mode) => {
            let flags = XattrFlags {
                mode,
                ..XattrFlags::default()
            };
            service
                .setxattr(caller, inode, name.as_bytes(), &[value], flags)
                .map(nothing)
        }
        RemoveXattr(inode, name) => service.removexattr(caller, inode, name.as_bytes()).map(nothing),
    }
}

/// What can be seen of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Names that it has; of a directory also those of its subdirectories to it.
    pub links: u32,
    /// Permissions.
    pub mode: u32,
    /// By name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// By type.
    pub content: ShownContent,
}

/// What an inode holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownContent {
    /// Its bytes.
    File(Arc<Vec<u8>>),
    /// Its names, with inode and type.
    Directory(BTreeMap<Vec<u8>, (u64, FileType)>),
    /// Its target.
    Symlink(Vec<u8>),
}

/// `None` for inodes that are gone.
pub type Tree = BTreeMap<u64, Option<Shown>>;

/// Looks at all of these inodes.
pub fn look<S: Storage>(
    service: &FileService<S>,
    caller: &Caller,
    inodes: impl IntoIterator<Item = u64>,
) -> Result<Tree, FileError> {
    let look_at = |inode| match look_at(service, caller, inode) {
        Err(FileError::Stale) => Ok((inode, None)),
        shown => Ok((inode, Some(shown?))),
    };
    inodes.into_iter().map(look_at).collect()
}

fn look_at<S: Storage>(service: &FileService<S>, caller: &Caller, inode: u64) -> Result<Shown, FileError> {
    let attributes = service.getattr(caller, inode)?;
    let mut xattrs = BTreeMap::new();
    for name in service.listxattr(caller, inode)?.split(|byte| *byte == 0) {
        if !name.is_empty() {
            xattrs.insert(name.to_vec(), service.getxattr(caller, inode, name)?);
        }
    }
    let content = match attributes.file_type {
        FileType::Directory => {
            let listed = service.readdir(caller, inode, 2, usize::MAX, true)?;
            let entry = |entry: crate::types::DirectoryEntry| {
                let attributes = entry.attributes.expect("attributes were asked for");
                assert_eq!(attributes.file_type, entry.file_type);
                (entry.name, (entry.inode, entry.file_type))
            };
            ShownContent::Directory(listed.into_iter().map(entry).collect())
        }
        FileType::Symlink => ShownContent::Symlink(service.readlink(caller, inode)?),
        _ => {
            let bytes = read(service, caller, inode, attributes.size as usize + 1)?;
            assert_eq!(bytes.len() as u64, attributes.size, "a file reads as long as it is");
            ShownContent::File(Arc::new(bytes))
        }
    };
    Ok(Shown {
        links: attributes.links,
        mode: attributes.mode & 0o7777,
        xattrs,
        content,
    })
}

/// Reads from the beginning, and waits for it.
fn read<S: Storage>(
    service: &FileService<S>,
    caller: &Caller,
    inode: u64,
    bytes_max: usize,
) -> Result<Vec<u8>, FileError> {
    let (reply, answer) = mpsc::channel();
    let reply = Box::new(move |read| drop(reply.send(read)));
    service.read(caller, Place { inode, offset: 0 }, bytes_max, reply);
    answer
        .recv()
        .unwrap_or(Err(FileError::Failed("storage gave no answer".into())))
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    File(Arc<Vec<u8>>),
    Directory { parent: u64, entries: BTreeMap<Name, u64> },
    Symlink,
}

impl Content {
    fn file() -> Self {
        Self::File(Arc::default())
    }

    fn directory(parent: u64) -> Self {
        let entries = BTreeMap::new();
        Self::Directory { parent, entries }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ModelNode {
    content: Content,
    links: u32,
    mode: u32,
    xattrs: BTreeMap<Name, u8>,
    opens: [u32; SESSIONS],
    /// Sessions that keep it without a name.
    kept: [bool; SESSIONS],
    is_gone: bool,
}

/// A tree as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    nodes: BTreeMap<u64, ModelNode>,
}

impl Model {
    /// An empty directory, which no operation names.
    pub fn new(root: u64) -> Self {
        let nodes = BTreeMap::new();
        let mut model = Self { nodes };
        model.add(root, Content::directory(root), 0o755, 2);
        model
    }

    /// All that there ever were, in the order of their numbers.
    pub fn inodes(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.nodes.keys().copied()
    }

    /// How many have a name; the root has one.
    pub fn named(&self) -> usize {
        self.nodes.values().filter(|node| node.links > 0).count()
    }

    /// Inodes that are not gone.
    pub fn live(&self) -> usize {
        self.nodes.values().filter(|node| !node.is_gone).count()
    }

    /// What [`look`] must see of every inode that there ever was.
    pub fn shown(&self) -> Tree {
        let shown = |(inode, node): (&u64, &ModelNode)| (*inode, (!node.is_gone).then(|| self.shown_of(node)));
        self.nodes.iter().map(shown).collect()
    }

    fn shown_of(&self, node: &ModelNode) -> Shown {
        let xattrs = node.xattrs.iter();
        let entry = |(name, inode): (&Name, &u64)| {
            let file_type = match self.nodes[inode].content {
                Content::File(_) => FileType::Regular,
                Content::Directory { .. } => FileType::Directory,
                Content::Symlink => FileType::Symlink,
            };
            (name.as_bytes().to_vec(), (*inode, file_type))
        };
        Shown {
            links: node.links,
            mode: node.mode,
            xattrs: xattrs
                .map(|(name, value)| (name.as_bytes().to_vec(), vec![*value]))
                .collect(),
            content: match &node.content {
                Content::File(bytes) => ShownContent::File(bytes.clone()),
                Content::Directory { entries, .. } => ShownContent::Directory(entries.iter().map(entry).collect()),
                Content::Symlink => ShownContent::Symlink(TARGET.to_vec()),
            },
        }
    }

    /// The service has started again: nobody has anything open any more.
    pub fn restart(&mut self) {
        for node in self.nodes.values_mut() {
            node.opens = [0; SESSIONS];
        }
    }

    /// A request that was carried out before a restart is answered again: what it opened is open again.
    pub fn open_again(&mut self, operation: &Operation, answer: &Answer) {
        let inode = match (operation, answer) {
            (Operation::Open(inode, _), Ok(_)) => *inode,
            (_, Ok(Given::Made(inode) | Given::Found(inode))) if operation.opens() => *inode,
            _ => return,
        };
        let _gone = self.open(inode, operation.session());
    }

    /// Makes the change; what it is answered. The number of what it makes is the service's to say.
    pub fn carry_out(&mut self, operation: &Operation, made: Option<u64>) -> Answer {
        use Operation::*;
        let made = made.unwrap_or(u64::MAX);
        let nothing = |()| Given::Nothing;
        match operation.clone() {
            Mkdir(at) => self.make(at, made, Content::directory(at.0), 0o755),
            Mknod(at) => self.make(at, made, Content::file(), 0o644),
            Symlink(at) => self.make(at, made, Content::Symlink, 0o777),
            Link(of, at) => self.link(of, at).map(|()| Given::Found(of)),
            Unlink(at) => self.unlink(at).map(nothing),
            Rmdir(at) => self.rmdir(at).map(nothing),
            Rename(from, to, mode) => self.rename(from, to, mode).map(nothing),
            Create { at, session, exclusive } => self.create(at, session, exclusive, made),
            Tmpfile { parent, session } => {
                self.directory(parent)?;
                self.add(made, Content::file(), 0o644, 0);
                self.open(made, session)?;
                Ok(Given::Made(made))
            }
            Open(inode, session) => self.open(inode, session).map(nothing),
            Release(inode, session) => {
                self.release(inode, session);
                Ok(Given::Nothing)
            }
            Lookup((parent, name)) => match self.live_node(parent)?.content {
                Content::Directory { ref entries, .. } => entries
                    .get(name)
                    .map(|inode| Given::Found(*inode))
                    .ok_or(FileError::NotFound),
                _ => Err(FileError::NotDirectory),
            },
            LookupParent(inode) => match self.live_node(inode)?.content {
                Content::Directory { parent, .. } => Ok(Given::Found(parent)),
                _ => Err(FileError::NotDirectory),
            },
            Chmod(inode, mode) => {
                if self.live_node(inode)?.content == Content::Symlink {
                    return Err(FileError::NotSupported("permissions of a symbolic link"));
                }
                self.node(inode).mode = mode;
                Ok(Given::Nothing)
            }
            Resize(inode, size) => {
                self.file(inode)?.resize(size as usize, 0);
                Ok(Given::Nothing)
            }
            Write {
                inode,
                offset,
                bytes,
                byte,
            } => self.write(inode, offset as usize, bytes, byte).map(nothing),
            SetXattr(inode, name, value, mode) => self.set_xattr(inode, name, value, mode).map(nothing),
            RemoveXattr(inode, name) => {
                self.live_node(inode)?;
                let removed = self.node(inode).xattrs.remove(name);
                removed.map(|_| Given::Nothing).ok_or(FileError::NoData)
            }
        }
    }

    /// Whether the model knows the inode's `..`: that of a directory which has lost its name is nobody's promise.
    pub fn has_parent(&self, inode: u64) -> bool {
        self.directory(inode).is_ok()
    }

    fn add(&mut self, inode: u64, content: Content, mode: u32, links: u32) {
        let node = ModelNode {
            content,
            links,
            mode,
            xattrs: BTreeMap::new(),
            opens: [0; SESSIONS],
            kept: [false; SESSIONS],
            is_gone: false,
        };
        let before = self.nodes.insert(inode, node);
        assert!(before.is_none(), "inode number {inode} is given out twice");
    }

    fn node(&mut self, inode: u64) -> &mut ModelNode {
        self.nodes
            .get_mut(&inode)
            .expect("requests are for inodes that were made")
    }

    fn live_node(&self, inode: u64) -> Result<&ModelNode, FileError> {
        // In a state from before an inode was made, its number is as good as one that is gone.
        let node = self.nodes.get(&inode).filter(|node| !node.is_gone);
        node.ok_or(FileError::Stale)
    }

    fn is_directory(&self, inode: u64) -> bool {
        matches!(self.nodes[&inode].content, Content::Directory { .. })
    }

    fn entries(&mut self, inode: u64) -> &mut BTreeMap<Name, u64> {
        match &mut self.node(inode).content {
            Content::Directory { entries, .. } => entries,
            _ => panic!("not a directory"),
        }
    }

    fn parent(&mut self, inode: u64) -> &mut u64 {
        match &mut self.node(inode).content {
            Content::Directory { parent, .. } => parent,
            _ => panic!("not a directory"),
        }
    }

    fn directory(&self, inode: u64) -> Result<(), FileError> {
        match self.live_node(inode)?.links {
            _ if !self.is_directory(inode) => Err(FileError::NotDirectory),
            0 => Err(FileError::NotFound),
            _ => Ok(()),
        }
    }

    fn found(&mut self, (parent, name): At) -> Result<u64, FileError> {
        self.directory(parent)?;
        self.entries(parent).get(name).copied().ok_or(FileError::NotFound)
    }

    fn may_make(&mut self, at: At) -> Result<(), FileError> {
        match self.found(at) {
            Ok(_) => Err(FileError::Exists),
            Err(FileError::NotFound) => self.directory(at.0),
            Err(error) => Err(error),
        }
    }

    fn make(&mut self, at: At, made: u64, content: Content, mode: u32) -> Answer {
        self.may_make(at)?;
        let is_directory = matches!(content, Content::Directory { .. });
        self.add(made, content, mode, if is_directory { 2 } else { 1 });
        self.entries(at.0).insert(at.1, made);
        self.node(at.0).links += u32::from(is_directory);
        Ok(Given::Made(made))
    }

    fn create(&mut self, at: At, session: usize, exclusive: bool, made: u64) -> Answer {
        match self.found(at) {
            Err(FileError::NotFound) if self.directory(at.0).is_ok() => {
                self.make(at, made, Content::file(), 0o644)?;
                self.open(made, session)?;
                Ok(Given::Made(made))
            }
            Err(error) => Err(error),
            Ok(_) if exclusive => Err(FileError::Exists),
            Ok(inode) if self.is_directory(inode) => Err(FileError::IsDirectory),
            Ok(inode) => self.open(inode, session).map(|()| Given::Found(inode)),
        }
    }

    fn drop_link(&mut self, inode: u64) {
        let is_directory = self.is_directory(inode);
        let node = self.node(inode);
        node.links = if is_directory { 0 } else { node.links - 1 };
        if node.links == 0 {
            node.kept = node.opens.map(|opens| opens > 0);
            node.is_gone = node.kept == [false; SESSIONS];
        }
    }

    fn unlink(&mut self, at: At) -> Result<(), FileError> {
        let inode = self.found(at)?;
        if self.is_directory(inode) {
            return Err(FileError::IsDirectory);
        }
        self.entries(at.0).remove(at.1);
        self.drop_link(inode);
        Ok(())
    }

    fn empty(&mut self, inode: u64) -> Result<(), FileError> {
        match self.entries(inode).is_empty() {
            true => Ok(()),
            false => Err(FileError::NotEmpty),
        }
    }

    fn rmdir(&mut self, at: At) -> Result<(), FileError> {
        let inode = self.found(at)?;
        if !self.is_directory(inode) {
            return Err(FileError::NotDirectory);
        }
        self.empty(inode)?;
        self.entries(at.0).remove(at.1);
        self.node(at.0).links -= 1;
        self.drop_link(inode);
        Ok(())
    }

    fn link(&mut self, of: u64, at: At) -> Result<(), FileError> {
        self.directory(at.0)?;
        self.live_node(of)?;
        if self.is_directory(of) {
            return Err(FileError::NotPermitted("a hard link to a directory"));
        }
        self.may_make(at)?;
        let node = self.node(of);
        node.links += 1;
        node.kept = [false; SESSIONS];
        self.entries(at.0).insert(at.1, of);
        Ok(())
    }

    fn is_below(&mut self, inode: u64, top: u64) -> bool {
        let mut at = inode;
        loop {
            if at == top {
                return true;
            }
            let parent = *self.parent(at);
            if parent == at {
                return false;
            }
            at = parent;
        }
    }

    fn rename(&mut self, from: At, to: At, mode: RenameMode) -> Result<(), FileError> {
        self.directory(from.0)?;
        self.directory(to.0)?;
        let source = self.found(from)?;
        let target = self.entries(to.0).get(to.1).copied();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(FileError::Exists),
            (RenameMode::Exchange, None) => return Err(FileError::NotFound),
            (_, Some(target)) if target == source => return Ok(()),
            _ => (),
        }
        let below = FileError::Invalid("a directory below itself");
        let is_exchange = mode == RenameMode::Exchange;
        if let (Some(target), false) = (target, is_exchange) {
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(FileError::NotDirectory),
                (false, true) => return Err(FileError::IsDirectory),
                _ => (),
            }
        }
        if self.is_directory(source) && self.is_below(to.0, source) {
            return Err(below);
        }
        match target {
            Some(target) if is_exchange => {
                if self.is_directory(target) && self.is_below(from.0, target) {
                    return Err(below);
                }
                self.leave(from, source);
                self.leave(to, target);
                self.enter(from, target);
            }
            Some(target) => {
                if self.is_directory(target) {
                    self.empty(target)?;
                }
                self.leave(to, target);
                self.drop_link(target);
                self.leave(from, source);
            }
            None => self.leave(from, source),
        }
        self.enter(to, source);
        Ok(())
    }

    fn leave(&mut self, at: At, inode: u64) {
        self.entries(at.0).remove(at.1);
        if self.is_directory(inode) {
            self.node(at.0).links -= 1;
        }
    }

    fn enter(&mut self, at: At, inode: u64) {
        self.entries(at.0).insert(at.1, inode);
        if self.is_directory(inode) {
            self.node(at.0).links += 1;
            *self.parent(inode) = at.0;
        }
    }

    fn open(&mut self, inode: u64, session: usize) -> Result<(), FileError> {
        if self.live_node(inode)?.content == Content::Symlink {
            return Err(FileError::Loop);
        }
        let node = self.node(inode);
        node.opens[session] += 1;
        if node.links == 0 {
            node.kept[session] = true;
        }
        Ok(())
    }

    fn release(&mut self, inode: u64, session: usize) {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return;
        };
        node.opens[session] = node.opens[session].saturating_sub(1);
        if node.links == 0 && node.opens[session] == 0 && !node.is_gone {
            node.kept[session] = false;
            node.is_gone = node.kept == [false; SESSIONS];
        }
    }

    fn file(&mut self, inode: u64) -> Result<&mut Vec<u8>, FileError> {
        self.live_node(inode)?;
        match &mut self.node(inode).content {
            Content::File(bytes) => Ok(Arc::make_mut(bytes)),
            Content::Directory { .. } => Err(FileError::IsDirectory),
            Content::Symlink => Err(FileError::Invalid("not a regular file")),
        }
    }

    fn write(&mut self, inode: u64, offset: usize, length: usize, byte: u8) -> Result<(), FileError> {
        let bytes = self.file(inode)?;
        let end = offset + length;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].fill(byte);
        Ok(())
    }

    fn set_xattr(&mut self, inode: u64, name: Name, value: u8, mode: XattrMode) -> Result<(), FileError> {
        let node = self.live_node(inode)?;
        if node.content == Content::Symlink && name.starts_with("user.") {
            return Err(FileError::NotPermitted(
                "user attributes of what is neither file nor directory",
            ));
        }
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(FileError::Exists),
            (XattrMode::Replace, false) => Err(FileError::NoData),
            _ => {
                self.node(inode).xattrs.insert(name, value);
                Ok(())
            }
        }
    }
}
