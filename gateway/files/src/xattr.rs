//! Extended attributes. Three of them are not mere bytes: the ACLs go together with the mode, and capabilities go when
//! the file is written. Flags in the inode's record say which of these there are.

use crate::acl::Acl;
use crate::error::FileError;
use crate::keys;
use crate::node::Node;
use crate::records::{Outcome, inode_flag};
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{
    Caller, FileType, MODE_PERMISSIONS, MODE_SETGID, NAME_BYTES_MAX, XATTR_BYTES_MAX, XattrFlags, XattrMode,
};

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// Bits of a mode that an ACL sets.
const MODE_ACL: u32 = 0o777;

fn flag(name: &[u8]) -> u8 {
    match name {
        ACCESS_ACL => inode_flag::ACCESS_ACL,
        DEFAULT_ACL => inode_flag::DEFAULT_ACL,
        CAPABILITY => inode_flag::CAPABILITY,
        _ => 0,
    }
}

fn check_name(name: &[u8]) -> Result<(), FileError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(FileError::Range);
    }
    if name.contains(&0) {
        return Err(FileError::Invalid("a name with a NUL"));
    }
    let is_acl = matches!(name, ACCESS_ACL | DEFAULT_ACL);
    let is_known = |space: &&[u8]| name.starts_with(space) && name.len() > space.len();
    match is_acl || NAMESPACES.iter().any(is_known) {
        true => Ok(()),
        false => Err(FileError::NotSupported("this namespace of extended attributes")),
    }
}

fn listed_bytes(name: &[u8]) -> u32 {
    name.len() as u32 + 1
}

impl<S: Storage> FileService<S> {
    /// The value of an extended attribute.
    pub fn getxattr(&self, caller: &Caller, inode: u64, name: &[u8]) -> Result<Vec<u8>, FileError> {
        check_name(name)?;
        let _names = self.reading();
        let node = self.node(caller, inode)?;
        let value = self.xattr(&node, name)?;
        value.ok_or(FileError::NoData)
    }

    fn xattr(&self, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>, FileError> {
        if node.record.xattr_name_bytes == 0 {
            return Ok(None);
        }
        let value = self.storage.get(&keys::xattr(node.inode, name))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Names, a NUL behind each.
    pub fn listxattr(&self, caller: &Caller, inode: u64) -> Result<Vec<u8>, FileError> {
        let _names = self.reading();
        let node = self.node(caller, inode)?;
        let mut list = Vec::with_capacity(node.record.xattr_name_bytes as usize);
        if node.record.xattr_name_bytes == 0 {
            return Ok(list);
        }
        for name in self.xattr_names(node.inode)? {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// Sets an extended attribute, as `flags` permit.
    pub fn setxattr(
        &self,
        caller: &Caller,
        inode: u64,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), FileError> {
        check_name(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(FileError::TooBig);
        }
        self.change_xattrs(caller, inode, |service, transaction, node| {
            check_type(node, name)?;
            let is_there = service.xattr(node, name)?.is_some();
            match flags.mode {
                XattrMode::Create if is_there => return Err(FileError::Exists),
                XattrMode::Replace if !is_there => return Err(FileError::NoData),
                _ => (),
            }
            let value = match name {
                ACCESS_ACL => set_mode_of_acl(node, value, flags.kill_setgid)?,
                DEFAULT_ACL => default_acl(node, value)?,
                _ => Some(value.to_vec()),
            };
            match value {
                Some(value) => put(transaction, node, name, value, is_there),
                None => {
                    remove(transaction, node, name, is_there);
                    Ok(())
                }
            }
        })
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, caller: &Caller, inode: u64, name: &[u8]) -> Result<(), FileError> {
        check_name(name)?;
        self.change_xattrs(caller, inode, |service, transaction, node| {
            match service.xattr(node, name)?.is_some() {
                true => remove(transaction, node, name, true),
                // Whoever takes an ACL away wants the mode alone to count, which is so.
                false if flag(name) & (inode_flag::ACCESS_ACL | inode_flag::DEFAULT_ACL) != 0 => (),
                false => return Err(FileError::NoData),
            }
            Ok(())
        })
    }

    fn change_xattrs(
        &self,
        caller: &Caller,
        inode: u64,
        change: impl FnOnce(&Self, &mut Transaction, &mut Node) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        if self.is_done_before(caller)? {
            return Ok(());
        }
        let inode = self.number(caller, inode)?;
        let file = self.files.lock(inode);
        let names = self.changing();
        let mut node = self.node(caller, inode)?;
        let mut transaction = Transaction::default();
        change(self, &mut transaction, &mut node)?;
        node.stamp(caller.now);
        transaction.put_node(&mut node);
        transaction.tell_attributes(inode);
        let invalidations = self.commit(caller, transaction, Outcome::Done)?;
        drop(names);
        drop(file);
        self.notify(invalidations);
        Ok(())
    }

    fn acl(&self, node: &Node, name: &[u8]) -> Result<Option<Acl>, FileError> {
        if node.record.flags & flag(name) == 0 {
            return Ok(None);
        }
        match self.xattr(node, name)? {
            Some(value) => Acl::parse(&value),
            None => Err(FileError::Inconsistent("an ACL that the inode has and storage has not")),
        }
    }

    /// What a new inode has from its directory's default ACL; without one, the umask counts.
    pub(crate) fn inherit_acls(
        &self,
        transaction: &mut Transaction,
        parent: &Node,
        node: &mut Node,
        umask: u32,
    ) -> Result<(), FileError> {
        if node.file_type() == FileType::Symlink {
            return Ok(());
        }
        let Some(default) = self.acl(parent, DEFAULT_ACL)? else {
            node.record.mode &= !(umask & MODE_ACL);
            return Ok(());
        };
        let (access, mode) = default.clone().for_new(node.record.mode);
        node.record.mode = mode;
        if !access.is_minimal() {
            put(transaction, node, ACCESS_ACL, access.encode(), false)?;
        }
        if node.is_directory() {
            put(transaction, node, DEFAULT_ACL, default.encode(), false)?;
        }
        Ok(())
    }

    /// Sets the permissions, in the ACL too.
    pub(crate) fn set_mode(&self, transaction: &mut Transaction, node: &mut Node, mode: u32) -> Result<(), FileError> {
        node.record.mode = node.record.mode & !MODE_PERMISSIONS | mode & MODE_PERMISSIONS;
        match self.acl(node, ACCESS_ACL)? {
            Some(acl) => put(transaction, node, ACCESS_ACL, acl.with_mode(mode).encode(), true),
            None => Ok(()),
        }
    }
}

fn check_type(node: &Node, name: &[u8]) -> Result<(), FileError> {
    let file_type = node.file_type();
    let takes_user_attributes = matches!(file_type, FileType::Regular | FileType::Directory);
    match name {
        ACCESS_ACL if file_type == FileType::Symlink => Err(FileError::NotSupported("an ACL of a symbolic link")),
        _ if name.starts_with(b"user.") && !takes_user_attributes => Err(FileError::NotPermitted(
            "user attributes of what is neither file nor directory",
        )),
        _ => Ok(()),
    }
}

/// Brings the mode in line with a new access ACL. `None` when the mode says it all.
fn set_mode_of_acl(node: &mut Node, value: &[u8], kill_setgid: bool) -> Result<Option<Vec<u8>>, FileError> {
    let Some(acl) = Acl::parse(value)? else {
        return Ok(None);
    };
    node.record.mode = node.record.mode & !MODE_ACL | acl.mode_bits();
    if kill_setgid {
        node.record.mode &= !MODE_SETGID;
    }
    Ok((!acl.is_minimal()).then(|| acl.encode()))
}

fn default_acl(node: &Node, value: &[u8]) -> Result<Option<Vec<u8>>, FileError> {
    match Acl::parse(value)? {
        Some(_) if !node.is_directory() => Err(FileError::AccessDenied),
        acl => Ok(acl.map(|acl| acl.encode())),
    }
}

fn put(
    transaction: &mut Transaction,
    node: &mut Node,
    name: &[u8],
    value: Vec<u8>,
    is_there: bool,
) -> Result<(), FileError> {
    if !is_there {
        let listed = node.record.xattr_name_bytes.saturating_add(listed_bytes(name));
        if listed as usize > XATTR_BYTES_MAX {
            return Err(FileError::NoSpace("too many extended attributes".into()));
        }
        node.record.xattr_name_bytes = listed;
    }
    node.record.flags |= flag(name);
    transaction.put(keys::xattr(node.inode, name), value);
    Ok(())
}

fn remove(transaction: &mut Transaction, node: &mut Node, name: &[u8], is_there: bool) {
    if is_there {
        let listed = node.record.xattr_name_bytes;
        node.record.xattr_name_bytes = listed.saturating_sub(listed_bytes(name));
        node.record.flags &= !flag(name);
        transaction.delete(keys::xattr(node.inode, name));
    }
}

/// A file that is written or changes hands has its capabilities no longer.
pub fn remove_capability(transaction: &mut Transaction, node: &mut Node) {
    let is_there = node.record.flags & inode_flag::CAPABILITY != 0;
    remove(transaction, node, CAPABILITY, is_there);
}

/// Which of the special attributes a name is, for checking.
pub fn special_flag(name: &[u8]) -> u8 {
    flag(name)
}
