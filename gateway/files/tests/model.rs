//! Random requests, against a model of a POSIX tree: the same answers, errors included, and at the end the same tree,
//! over restarts of the service.

mod support;

use proptest::prelude::*;
use std::collections::BTreeMap;
use support::{World, at, client, node};
use tombolo_files::{FileError, FileType, OpenFlags, RenameMode, SessionKind, SetAttributes, XattrFlags, XattrMode};

#[derive(Clone, Debug)]
enum Operation {
    Mkdir(usize, usize),
    Mknod(usize, usize),
    Symlink(usize, usize),
    Link(usize, usize, usize),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Rename(usize, usize, usize, usize, RenameMode),
    Create(usize, usize, usize, bool),
    Tmpfile(usize, usize),
    Open(usize, usize),
    Release(usize, usize),
    Lookup(usize, usize),
    LookupParent(usize),
    Chmod(usize, u32),
    Resize(usize, u64),
    Write(usize, u64, usize, u8),
    SetXattr(usize, usize, u8, XattrMode),
    RemoveXattr(usize, usize),
    Restart,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const XATTRS: [&str; 3] = ["user.one", "user.two", "trusted.three"];

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let inode = || 0usize..12;
    let name = || 0usize..NAMES.len();
    let session = || 0usize..2;
    let xattr = || 0usize..XATTRS.len();
    let rename_mode = prop_oneof![
        4 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange)
    ];
    let xattr_mode = prop_oneof![Just(XattrMode::Any), Just(XattrMode::Create), Just(XattrMode::Replace)];
    prop_oneof![
        6 => (inode(), name()).prop_map(|(at, name)| Mkdir(at, name)),
        4 => (inode(), name()).prop_map(|(at, name)| Mknod(at, name)),
        1 => (inode(), name()).prop_map(|(at, name)| Symlink(at, name)),
        4 => (inode(), inode(), name()).prop_map(|(of, at, name)| Link(of, at, name)),
        5 => (inode(), name()).prop_map(|(at, name)| Unlink(at, name)),
        4 => (inode(), name()).prop_map(|(at, name)| Rmdir(at, name)),
        12 => (inode(), name(), inode(), name(), rename_mode)
            .prop_map(|(from, name, to, new, mode)| Rename(from, name, to, new, mode)),
        4 => (inode(), name(), session(), any::<bool>()).prop_map(|(at, name, by, alone)| Create(at, name, by, alone)),
        1 => (inode(), session()).prop_map(|(at, by)| Tmpfile(at, by)),
        3 => (inode(), session()).prop_map(|(of, by)| Open(of, by)),
        4 => (inode(), session()).prop_map(|(of, by)| Release(of, by)),
        2 => (inode(), name()).prop_map(|(at, name)| Lookup(at, name)),
        1 => inode().prop_map(LookupParent),
        2 => (inode(), 0u32..0o1000).prop_map(|(of, mode)| Chmod(of, mode)),
        2 => (inode(), 0u64..20_000).prop_map(|(of, size)| Resize(of, size)),
        4 => (inode(), 0u64..20_000, 1usize..6000, any::<u8>()).prop_map(|(of, at, len, byte)| Write(of, at, len, byte)),
        2 => (inode(), xattr(), any::<u8>(), xattr_mode).prop_map(|(of, name, value, mode)| SetXattr(of, name, value, mode)),
        1 => (inode(), xattr()).prop_map(|(of, name)| RemoveXattr(of, name)),
        1 => Just(Restart),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    File(Vec<u8>),
    Directory {
        parent: usize,
        entries: BTreeMap<&'static str, usize>,
    },
    Symlink,
}

#[derive(Clone, Debug)]
struct ModelNode {
    inode: u64,
    content: Content,
    links: u32,
    mode: u32,
    xattrs: BTreeMap<&'static str, u8>,
    opens: [u32; 2],
    /// Sessions that keep it without a name.
    kept: [bool; 2],
    is_gone: bool,
}

type Answer = Result<(), FileError>;

/// Nodes are never taken out, so that requests for what is gone are made too.
struct Model {
    nodes: Vec<ModelNode>,
}

impl Model {
    fn new(root: u64) -> Self {
        let content = Content::Directory {
            parent: 0,
            entries: BTreeMap::new(),
        };
        let mut model = Self { nodes: Vec::new() };
        model.add(root, content, 0o755, 2);
        model
    }

    fn add(&mut self, inode: u64, content: Content, mode: u32, links: u32) -> usize {
        self.nodes.push(ModelNode {
            inode,
            content,
            links,
            mode,
            xattrs: BTreeMap::new(),
            opens: [0; 2],
            kept: [false; 2],
            is_gone: false,
        });
        self.nodes.len() - 1
    }

    fn live(&self, id: usize) -> Result<&ModelNode, FileError> {
        match self.nodes[id].is_gone {
            true => Err(FileError::Stale),
            false => Ok(&self.nodes[id]),
        }
    }

    fn is_directory(&self, id: usize) -> bool {
        matches!(self.nodes[id].content, Content::Directory { .. })
    }

    fn entries(&mut self, id: usize) -> &mut BTreeMap<&'static str, usize> {
        match &mut self.nodes[id].content {
            Content::Directory { entries, .. } => entries,
            _ => panic!("not a directory"),
        }
    }

    fn parent(&mut self, id: usize) -> &mut usize {
        match &mut self.nodes[id].content {
            Content::Directory { parent, .. } => parent,
            _ => panic!("not a directory"),
        }
    }

    fn directory(&self, id: usize) -> Answer {
        match self.live(id)?.links {
            _ if !self.is_directory(id) => Err(FileError::NotDirectory),
            0 => Err(FileError::NotFound),
            _ => Ok(()),
        }
    }

    fn found(&mut self, at: usize, name: &str) -> Result<usize, FileError> {
        self.directory(at)?;
        self.entries(at).get(name).copied().ok_or(FileError::NotFound)
    }

    fn may_make(&mut self, at: usize, name: &str) -> Answer {
        self.directory(at)?;
        match self.entries(at).contains_key(name) {
            true => Err(FileError::Exists),
            false => Ok(()),
        }
    }

    fn make(&mut self, at: usize, name: &'static str, inode: u64, content: Content, mode: u32) -> usize {
        let is_directory = matches!(content, Content::Directory { .. });
        let id = self.add(inode, content, mode, if is_directory { 2 } else { 1 });
        self.entries(at).insert(name, id);
        if is_directory {
            self.nodes[at].links += 1;
        }
        id
    }

    fn drop_link(&mut self, id: usize) {
        let is_directory = self.is_directory(id);
        let node = &mut self.nodes[id];
        node.links = if is_directory { 0 } else { node.links - 1 };
        if node.links == 0 {
            node.kept = node.opens.map(|opens| opens > 0);
            node.is_gone = node.kept == [false; 2];
        }
    }

    fn unlink(&mut self, at: usize, name: &str) -> Answer {
        let id = self.found(at, name)?;
        if self.is_directory(id) {
            return Err(FileError::IsDirectory);
        }
        self.entries(at).remove(name);
        self.drop_link(id);
        Ok(())
    }

    fn empty(&mut self, id: usize) -> Answer {
        match self.entries(id).is_empty() {
            true => Ok(()),
            false => Err(FileError::NotEmpty),
        }
    }

    fn rmdir(&mut self, at: usize, name: &str) -> Answer {
        let id = self.found(at, name)?;
        if !self.is_directory(id) {
            return Err(FileError::NotDirectory);
        }
        self.empty(id)?;
        self.entries(at).remove(name);
        self.nodes[at].links -= 1;
        self.drop_link(id);
        Ok(())
    }

    fn link(&mut self, of: usize, at: usize, name: &'static str) -> Answer {
        self.directory(at)?;
        self.live(of)?;
        if self.is_directory(of) {
            return Err(FileError::NotPermitted("a hard link to a directory"));
        }
        self.may_make(at, name)?;
        self.nodes[of].links += 1;
        self.nodes[of].kept = [false; 2];
        self.entries(at).insert(name, of);
        Ok(())
    }

    fn is_below(&mut self, id: usize, top: usize) -> bool {
        let mut at = id;
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

    fn rename(&mut self, from: (usize, &'static str), to: (usize, &'static str), mode: RenameMode) -> Answer {
        self.directory(from.0)?;
        self.directory(to.0)?;
        let source = self.found(from.0, from.1)?;
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

    fn leave(&mut self, at: (usize, &'static str), id: usize) {
        self.entries(at.0).remove(at.1);
        if self.is_directory(id) {
            self.nodes[at.0].links -= 1;
        }
    }

    fn enter(&mut self, at: (usize, &'static str), id: usize) {
        self.entries(at.0).insert(at.1, id);
        if self.is_directory(id) {
            self.nodes[at.0].links += 1;
            *self.parent(id) = at.0;
        }
    }

    fn open(&mut self, id: usize, session: usize) -> Answer {
        if self.live(id)?.content == Content::Symlink {
            return Err(FileError::Loop);
        }
        let node = &mut self.nodes[id];
        node.opens[session] += 1;
        node.kept[session] = node.links == 0;
        Ok(())
    }

    fn release(&mut self, id: usize, session: usize) {
        let node = &mut self.nodes[id];
        node.opens[session] = node.opens[session].saturating_sub(1);
        if node.links == 0 && node.opens[session] == 0 && !node.is_gone {
            node.kept[session] = false;
            node.is_gone = node.kept == [false; 2];
        }
    }

    fn file(&mut self, id: usize) -> Result<&mut Vec<u8>, FileError> {
        self.live(id)?;
        match &mut self.nodes[id].content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory { .. } => Err(FileError::IsDirectory),
            Content::Symlink => Err(FileError::Invalid("not a regular file")),
        }
    }

    fn write(&mut self, id: usize, offset: u64, length: usize, byte: u8) -> Answer {
        let bytes = self.file(id)?;
        let end = offset as usize + length;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].fill(byte);
        Ok(())
    }

    fn set_xattr(&mut self, id: usize, name: &'static str, value: u8, mode: XattrMode) -> Answer {
        let node = self.live(id)?;
        if node.content == Content::Symlink && name.starts_with("user.") {
            return Err(FileError::NotPermitted(
                "user attributes of what is neither file nor directory",
            ));
        }
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(FileError::Exists),
            (XattrMode::Replace, false) => Err(FileError::NoData),
            _ => {
                self.nodes[id].xattrs.insert(name, value);
                Ok(())
            }
        }
    }
}

struct Run {
    world: World,
    model: Model,
    second: u64,
}

impl Run {
    fn new() -> Self {
        let world = World::new();
        let second = world.attach(b"second", SessionKind::Client);
        let root = world.service.share_named(support::SHARE).unwrap().root;
        Self {
            world,
            model: Model::new(root),
            second,
        }
    }

    fn id(&self, index: usize) -> usize {
        // The latest inodes are the interesting ones, and the root.
        match index {
            0 => 0,
            _ => (self.model.nodes.len() - 1).saturating_sub(index - 1),
        }
    }

    fn inode(&self, id: usize) -> u64 {
        self.model.nodes[id].inode
    }

    fn session(&self, index: usize) -> u64 {
        [self.world.session, self.second][index]
    }

    fn restart(&mut self) {
        let storage = self.world.storage.clone();
        let (session, second) = (self.world.session, self.second);
        self.world = World::again(storage);
        self.second = self.world.attach(b"second", SessionKind::Client);
        assert_eq!((self.world.session, self.second), (session, second));
        for node in &mut self.model.nodes {
            node.opens = [0; 2];
        }
    }

    fn carry_out(&mut self, operation: &Operation) {
        use Operation::*;
        let world = &self.world;
        let service = world.service.clone();
        let caller = world.caller();
        match operation.clone() {
            Mkdir(parent, name) => {
                let (parent, name) = (self.id(parent), NAMES[name]);
                let made = service.mkdir(&caller, at(self.inode(parent), name), node(0o777));
                assert_eq!(made.clone().map(drop), self.model.may_make(parent, name));
                if let Ok(made) = made {
                    let entries = BTreeMap::new();
                    self.model
                        .make(parent, name, made.inode, Content::Directory { parent, entries }, 0o755);
                }
            }
            Mknod(parent, name) => {
                let (parent, name) = (self.id(parent), NAMES[name]);
                let made = service.mknod(&caller, at(self.inode(parent), name), node(0o100_666));
                assert_eq!(made.clone().map(drop), self.model.may_make(parent, name));
                if let Ok(made) = made {
                    self.model
                        .make(parent, name, made.inode, Content::File(Vec::new()), 0o644);
                }
            }
            Symlink(parent, name) => {
                let (parent, name) = (self.id(parent), NAMES[name]);
                let made = service.symlink(&caller, at(self.inode(parent), name), b"else");
                assert_eq!(made.clone().map(drop), self.model.may_make(parent, name));
                if let Ok(made) = made {
                    self.model.make(parent, name, made.inode, Content::Symlink, 0o777);
                }
            }
            Link(of, parent, name) => {
                let (of, parent, name) = (self.id(of), self.id(parent), NAMES[name]);
                let linked = service.link(&caller, self.inode(of), at(self.inode(parent), name));
                assert_eq!(linked.map(drop), self.model.link(of, parent, name));
            }
            Unlink(parent, name) => {
                let (parent, name) = (self.id(parent), NAMES[name]);
                let removed = service.unlink(&caller, at(self.inode(parent), name));
                assert_eq!(removed, self.model.unlink(parent, name));
            }
            Rmdir(parent, name) => {
                let (parent, name) = (self.id(parent), NAMES[name]);
                let removed = service.rmdir(&caller, at(self.inode(parent), name));
                assert_eq!(removed, self.model.rmdir(parent, name));
            }
            Rename(from, name, to, new, mode) => {
                let (from, to) = ((self.id(from), NAMES[name]), (self.id(to), NAMES[new]));
                let from_name = at(self.inode(from.0), from.1);
                let to_name = at(self.inode(to.0), to.1);
                let renamed = service.rename(&caller, from_name, to_name, mode);
                assert_eq!(renamed, self.model.rename(from, to, mode));
            }
            Create(parent, name, session, exclusive) => self.create(parent, NAMES[name], session, exclusive),
            Tmpfile(parent, session) => {
                let parent = self.id(parent);
                let by = world.caller_of(self.session(session));
                let made = service.tmpfile(&by, self.inode(parent), node(0o666));
                assert_eq!(made.clone().map(drop), self.model.directory(parent));
                if let Ok(made) = made {
                    let id = self.model.add(made.inode, Content::File(Vec::new()), 0o644, 0);
                    self.model.open(id, session).unwrap();
                }
            }
            Open(of, session) => {
                let of = self.id(of);
                let by = world.caller_of(self.session(session));
                let opened = service.open_inode(&by, self.inode(of), OpenFlags::default());
                assert_eq!(opened, self.model.open(of, session));
            }
            Release(of, session) => {
                let of = self.id(of);
                let by = world.caller_of(self.session(session));
                service.release(&by, self.inode(of)).unwrap();
                self.model.release(of, session);
            }
            Lookup(parent, name) => {
                let (parent, name) = (self.id(parent), NAMES[name]);
                let found = service.lookup(&caller, at(self.inode(parent), name));
                let expected = self
                    .model
                    .live(parent)
                    .cloned()
                    .and_then(|_| match self.model.is_directory(parent) {
                        true => self.model.entries(parent).get(name).copied().ok_or(FileError::NotFound),
                        false => Err(FileError::NotDirectory),
                    });
                assert_eq!(found.map(|entry| entry.inode), expected.map(|id| self.inode(id)));
            }
            LookupParent(of) => {
                let of = self.id(of);
                let found = service.lookup(&caller, at(self.inode(of), ".."));
                if self.model.directory(of).is_ok() {
                    let parent = *self.model.parent(of);
                    assert_eq!(found.unwrap().inode, self.inode(parent));
                }
            }
            Chmod(of, mode) => {
                let of = self.id(of);
                let set = SetAttributes {
                    mode: Some(mode),
                    ..SetAttributes::default()
                };
                let changed = service.setattr(&caller, self.inode(of), &set).map(drop);
                let expected = match self.model.live(of) {
                    Ok(node) if node.content == Content::Symlink => {
                        Err(FileError::NotSupported("permissions of a symbolic link"))
                    }
                    other => other.map(drop),
                };
                if expected.is_ok() {
                    self.model.nodes[of].mode = mode;
                }
                assert_eq!(changed, expected);
            }
            Resize(of, size) => {
                let of = self.id(of);
                let set = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                let changed = service.setattr(&caller, self.inode(of), &set).map(drop);
                let expected = self.model.file(of).map(|bytes| bytes.resize(size as usize, 0));
                assert_eq!(changed, expected);
            }
            Write(of, offset, length, byte) => {
                let of = self.id(of);
                let written = world.write(self.inode(of), offset, &vec![byte; length]).map(drop);
                assert_eq!(written, self.model.write(of, offset, length, byte));
            }
            SetXattr(of, name, value, mode) => {
                let (of, name) = (self.id(of), XATTRS[name]);
                let flags = XattrFlags {
                    mode,
                    ..XattrFlags::default()
                };
                let set = service.setxattr(&caller, self.inode(of), name.as_bytes(), &[value], flags);
                assert_eq!(set, self.model.set_xattr(of, name, value, mode));
            }
            RemoveXattr(of, name) => {
                let (of, name) = (self.id(of), XATTRS[name]);
                let removed = service.removexattr(&caller, self.inode(of), name.as_bytes());
                let expected = self.model.live(of).map(drop).and_then(|()| {
                    self.model.nodes[of]
                        .xattrs
                        .remove(name)
                        .map(drop)
                        .ok_or(FileError::NoData)
                });
                assert_eq!(removed, expected);
            }
            Restart => self.restart(),
        }
    }

    fn create(&mut self, parent: usize, name: &'static str, session: usize, exclusive: bool) {
        let parent = self.id(parent);
        let by = self.world.caller_of(self.session(session));
        let flags = OpenFlags {
            exclusive,
            ..OpenFlags::default()
        };
        let made = self
            .world
            .service
            .create(&by, at(self.inode(parent), name), node(0o666), flags);
        let expected = match self.model.found(parent, name) {
            Err(FileError::NotFound) if self.model.directory(parent).is_ok() => Ok(true),
            Err(error) => Err(error),
            Ok(_) if exclusive => Err(FileError::Exists),
            Ok(id) if self.model.is_directory(id) => Err(FileError::IsDirectory),
            Ok(id) => self.model.open(id, session).map(|()| false),
        };
        assert_eq!(made.clone().map(|(_, created)| created), expected);
        if let Ok((entry, true)) = made {
            let id = self
                .model
                .make(parent, name, entry.inode, Content::File(Vec::new()), 0o644);
            self.model.open(id, session).unwrap();
        }
    }

    fn compare_all(&self) {
        for node in &self.model.nodes {
            match node.is_gone {
                true => assert_eq!(self.world.getattr(node.inode), Err(FileError::Stale)),
                false => self.compare(node),
            }
        }
        let live = self.model.nodes.iter().filter(|node| !node.is_gone).count();
        assert_eq!(
            self.world.service.share_named(support::SHARE).unwrap().inodes,
            live as u64
        );
    }

    fn compare(&self, node: &ModelNode) {
        let attributes = self.world.getattr(node.inode).unwrap();
        assert_eq!(
            (attributes.links, attributes.mode & 0o7777),
            (node.links, node.mode),
            "{node:?}"
        );
        let caller = self.world.caller();
        let list = self.world.service.listxattr(&caller, node.inode).unwrap();
        let expected: Vec<u8> = node
            .xattrs
            .keys()
            .flat_map(|name| [name.as_bytes(), b"\0"].concat())
            .collect();
        assert_eq!(sorted(&list), sorted(&expected));
        for (name, value) in &node.xattrs {
            let got = self.world.service.getxattr(&caller, node.inode, name.as_bytes());
            assert_eq!(got, Ok(vec![*value]));
        }
        match &node.content {
            Content::File(bytes) => {
                assert_eq!(attributes.size, bytes.len() as u64);
                assert!(
                    self.world.read(node.inode, 0, 1 << 20).unwrap() == *bytes,
                    "contents of {}",
                    node.inode
                );
            }
            Content::Directory { entries, .. } => {
                let listed = self.world.service.readdir(&caller, node.inode, 2, 100, true).unwrap();
                let listed: BTreeMap<Vec<u8>, (u64, bool)> = listed
                    .into_iter()
                    .map(|entry| {
                        assert_eq!(entry.attributes.unwrap().file_type, entry.file_type);
                        (entry.name, (entry.inode, entry.file_type == FileType::Directory))
                    })
                    .collect();
                let expected = entries.iter().map(|(name, id)| {
                    (
                        name.as_bytes().to_vec(),
                        (self.inode(*id), self.model.is_directory(*id)),
                    )
                });
                assert_eq!(listed, expected.collect());
            }
            Content::Symlink => {
                assert_eq!(self.world.service.readlink(&caller, node.inode), Ok(b"else".to_vec()));
            }
        }
    }

    /// When both sessions end, nothing without a name stays.
    fn end(mut self) {
        self.restart();
        for name in [&b"first"[..], b"second"] {
            let start = self.world.service.attach(&client(name, SessionKind::Client)).unwrap();
            self.world.service.end_session(start.session).unwrap();
        }
        let named = self.model.nodes.iter().filter(|node| node.links > 0).count();
        assert_eq!(
            self.world.service.share_named(support::SHARE).unwrap().inodes,
            named as u64
        );
        self.world.check();
        let progress = &mut |_| ();
        self.world.service.delete_share(support::SHARE, progress).unwrap();
        assert_eq!(self.world.storage.keys(), vec![b"G".to_vec()]);
        assert_eq!(self.world.storage.mapped_blocks(), 0);
    }
}

fn sorted(list: &[u8]) -> Vec<&[u8]> {
    let mut names: Vec<&[u8]> = list.split(|byte| *byte == 0).collect();
    names.sort_unstable();
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn answers_and_trees_are_those_of_the_model(operations in prop::collection::vec(operation(), 1..120)) {
        let mut run = Run::new();
        for operation in &operations {
            run.carry_out(operation);
        }
        run.compare_all();
        run.world.check();
        run.end();
    }
}
