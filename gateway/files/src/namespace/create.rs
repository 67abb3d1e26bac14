//! New inodes: files, directories, symbolic links, devices and the like, and files without a name.

use super::check_new_name;
use crate::attributes::check_times;
use crate::error::FileError;
use crate::exclusion::locked;
use crate::node::{Node, stamped};
use crate::records::{Directory, FileRecord, InodeRecord, Kind, Outcome};
use crate::service::{FileService, IdAllocator};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{
    Caller, Entry, FILE_BYTES_MAX, FileType, MODE_PERMISSIONS, MODE_SETGID, NameIn, NewNode, OpenFlags,
    SYMLINK_BYTES_MAX, SetAttributes, Timestamp,
};

/// Positions 1 and 2 of a directory are `.` and `..`.
const COOKIE_FIRST: u64 = 3;

/// What a new inode is made from.
struct Plan<'a> {
    node: NewNode,
    /// Of a symbolic link.
    target: &'a [u8],
    /// The caller has it open.
    open: bool,
}

impl<S: Storage> FileService<S> {
    /// Makes anything but a directory or a symbolic link.
    pub fn mknod(&self, caller: &Caller, at: NameIn<'_>, node: NewNode) -> Result<Entry, FileError> {
        match FileType::of_mode(node.mode) {
            Some(FileType::Directory | FileType::Symlink) => Err(FileError::NotPermitted("mknod of this type")),
            None => Err(FileError::Invalid("no such file type")),
            Some(_) => self.make(caller, at, Plan::of(node)),
        }
    }

    /// A new directory.
    pub fn mkdir(&self, caller: &Caller, at: NameIn<'_>, node: NewNode) -> Result<Entry, FileError> {
        let node = NewNode {
            mode: FileType::Directory.mode() | node.mode & MODE_PERMISSIONS,
            ..node
        };
        self.make(caller, at, Plan::of(node))
    }

    /// A new symbolic link.
    pub fn symlink(&self, caller: &Caller, at: NameIn<'_>, target: &[u8]) -> Result<Entry, FileError> {
        match target.len() {
            0 => return Err(FileError::NotFound),
            bytes if bytes > SYMLINK_BYTES_MAX => return Err(FileError::NameTooLong),
            _ if target.contains(&0) => return Err(FileError::Invalid("a target with a NUL")),
            _ => (),
        }
        let node = NewNode {
            mode: FileType::Symlink.mode() | 0o777,
            umask: 0,
            device: 0,
            attributes: SetAttributes::default(),
        };
        self.make(
            caller,
            at,
            Plan {
                target,
                ..Plan::of(node)
            },
        )
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, caller: &Caller, inode: u64) -> Result<Vec<u8>, FileError> {
        let _names = self.reading();
        match self.node(caller, inode)?.record.kind {
            Kind::Symlink { target } => Ok(target),
            Kind::Directory(_) | Kind::Other => Err(FileError::Invalid("not a symbolic link")),
        }
    }

    /// Creates a regular file and opens it, or opens what is there. True when it was created.
    pub fn create(
        &self,
        caller: &Caller,
        at: NameIn<'_>,
        node: NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, bool), FileError> {
        let node = NewNode {
            mode: FileType::Regular.mode() | node.mode & MODE_PERMISSIONS,
            ..node
        };
        let plan = Plan {
            open: true,
            ..Plan::of(node)
        };
        // It found a file before, and has truncated it already: opening it again will not.
        if self.outcome_before(caller)? == Some(Outcome::Done) {
            return self.open_existing(caller, at, flags);
        }
        match self.make(caller, at, plan) {
            Err(FileError::Exists) if !flags.exclusive => self.open_existing(caller, at, flags),
            made => Ok((made?, true)),
        }
    }

    fn open_existing(&self, caller: &Caller, at: NameIn<'_>, flags: OpenFlags) -> Result<(Entry, bool), FileError> {
        let found = self.lookup(caller, at)?;
        if found.attributes.file_type == FileType::Directory {
            return Err(FileError::IsDirectory);
        }
        self.open_inode(caller, found.inode, flags)?;
        let opened = {
            let _names = self.reading();
            self.entry(caller, found.inode)
        };
        if opened.is_err() {
            // Who is told of no open will never close it.
            self.release(caller, found.inode)?;
        }
        Ok((opened?, false))
    }

    /// A regular file without a name, opened. It goes with its last open unless it is linked before.
    pub fn tmpfile(&self, caller: &Caller, parent: u64, node: NewNode) -> Result<Entry, FileError> {
        if let Some(entry) = self.entry_before(caller)? {
            return self.opened_again(caller, entry);
        }
        let mut numbers = self.changing();
        self.must_have_session(caller.session)?;
        let parent = self.directory(caller, parent)?;
        let mode = FileType::Regular.mode() | node.mode & MODE_PERMISSIONS;
        let mut transaction = Transaction::default();
        let plan = Plan::of(NewNode { mode, ..node });
        let mut made = self.plan_inode(caller, &mut numbers, &mut transaction, &parent, plan)?;
        made.record.links = 0;
        transaction.orphan(&mut made, vec![caller.session]);
        let invalidations = self.commit(caller, transaction, Outcome::Entry(made.inode))?;
        locked(&self.open_files).open(made.inode, caller.session);
        drop(numbers);
        self.notify(invalidations);
        Ok(entry_of(&made))
    }

    /// The open that came with the file died with the service that counted it.
    fn opened_again(&self, caller: &Caller, entry: Entry) -> Result<Entry, FileError> {
        self.open_inode(caller, entry.inode, OpenFlags::default())?;
        Ok(entry)
    }

    fn make(&self, caller: &Caller, at: NameIn<'_>, plan: Plan<'_>) -> Result<Entry, FileError> {
        check_new_name(at.name)?;
        if let Some(entry) = self.entry_before(caller)? {
            return match plan.open {
                true => self.opened_again(caller, entry),
                false => Ok(entry),
            };
        }
        let open = plan.open;
        let mut numbers = self.changing();
        if open {
            self.must_have_session(caller.session)?;
        }
        let mut parent = self.directory(caller, at.parent)?;
        if self.name(parent.inode, at.name)?.is_some() {
            return Err(FileError::Exists);
        }
        let mut transaction = Transaction::default();
        let mut made = self.plan_inode(caller, &mut numbers, &mut transaction, &parent, plan)?;
        transaction.put_node(&mut made);
        transaction.add_name(&mut parent, at.name, made.inode, made.file_type())?;
        if made.is_directory() {
            parent.add_subdirectory();
        }
        parent.modify(caller.now);
        transaction.put_node(&mut parent);
        let invalidations = self.commit(caller, transaction, Outcome::Entry(made.inode))?;
        if open {
            locked(&self.open_files).open(made.inode, caller.session);
        }
        drop(numbers);
        self.notify(invalidations);
        Ok(entry_of(&made))
    }

    /// The new inode, with what it inherits; not yet put, but for its ACLs.
    fn plan_inode(
        &self,
        caller: &Caller,
        numbers: &mut IdAllocator,
        transaction: &mut Transaction,
        parent: &Node,
        plan: Plan<'_>,
    ) -> Result<Node, FileError> {
        let file_type = FileType::of_mode(plan.node.mode).ok_or(FileError::Invalid("no such file type"))?;
        let hands_down_group = parent.record.mode & MODE_SETGID != 0;
        let mut record = new_record(caller, file_type, plan.node);
        if hands_down_group {
            record.gid = parent.record.gid;
        }
        if hands_down_group && file_type == FileType::Directory {
            record.mode |= MODE_SETGID;
        }
        record.kind = match file_type {
            FileType::Directory => Kind::Directory(new_directory(parent.inode)),
            FileType::Symlink => Kind::Symlink {
                target: plan.target.to_vec(),
            },
            _ => Kind::Other,
        };
        let mut node = Node {
            inode: self.take_inode(numbers)?,
            file: (file_type == FileType::Regular).then(|| new_file(caller.share, record.ctime)),
            record,
        };
        self.inherit_acls(transaction, parent, &mut node, plan.node.umask)?;
        set_first(&mut node, &plan.node.attributes)?;
        transaction.inodes += 1;
        Ok(node)
    }
}

impl Plan<'_> {
    fn of(node: NewNode) -> Self {
        Self {
            node,
            target: b"",
            open: false,
        }
    }
}

/// What a new inode has that is not as usual. Its mode is what it was made with: nobody has lost a right yet.
fn set_first(node: &mut Node, set: &SetAttributes) -> Result<(), FileError> {
    check_times(set)?;
    node.record.uid = set.uid.unwrap_or(node.record.uid);
    node.record.gid = set.gid.unwrap_or(node.record.gid);
    let born = node.attributes().ctime;
    node.set_times(set.atime, set.mtime, born);
    match (set.size, &mut node.file) {
        (None, _) => Ok(()),
        (Some(size), _) if size > FILE_BYTES_MAX => Err(FileError::FileTooLarge),
        (Some(size), Some(file)) => {
            file.size = size;
            Ok(())
        }
        (Some(_), None) => Err(FileError::Invalid("a size for what is not a regular file")),
    }
}

fn entry_of(node: &Node) -> Entry {
    Entry {
        inode: node.inode,
        attributes: node.attributes(),
    }
}

pub fn new_directory(parent: u64) -> Directory {
    Directory {
        parent,
        cookie_next: COOKIE_FIRST,
        entries: 0,
    }
}

/// A record of a type that needs nothing more to say.
pub fn new_record(caller: &Caller, file_type: FileType, node: NewNode) -> InodeRecord {
    let born = stamped(Timestamp::default(), caller.now);
    let is_device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
    InodeRecord {
        share: caller.share,
        mode: file_type.mode() | node.mode & MODE_PERMISSIONS,
        uid: caller.uid,
        gid: caller.gid,
        links: if file_type == FileType::Directory { 2 } else { 1 },
        device: if is_device { node.device } else { 0 },
        flags: 0,
        xattr_name_bytes: 0,
        atime: born,
        mtime: born,
        ctime: born,
        btime: born,
        kind: Kind::Other,
    }
}

fn new_file(share: u32, born: Timestamp) -> FileRecord {
    FileRecord {
        share,
        is_privileged: false,
        is_unsettled: false,
        size: 0,
        allocated_blocks: 0,
        mtime: born,
        ctime: born,
    }
}
