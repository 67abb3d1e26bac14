//! One client of a share: its requests, carried out and answered.
//!
//! | answered | when |
//! |---|---|
//! | what only looks | at once |
//! | a change | when it is in the journal; flushed first if the client attached so (NFS demands it) |
//! | a write with O_SYNC or O_DSYNC over the socket, FSYNC, FSYNCDIR, SYNCFS | when it is flushed, as the share has it: on stable storage, or in the bucket too |
//! | a read | when its blocks are there, on whichever thread brings them |
//! | a waiting lock | when it is granted, or taken back |
//!
//! When the backlog is at its cap or the cloud does not answer, a client on the socket is told to try again; for the
//! kernel, which cannot be told so, the request waits, as on a hard mount, until it succeeds or is interrupted.

use super::convert::{self, errno};
use super::handles::{self, Handles};
use super::invalidations::Subscription;
use super::listings::Listings;
use super::{Shares, locks, now, operations};
use crate::metrics::requests::{FileOperation, Started};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tombolo_base::BLOCK_BYTES;
use tombolo_files::{
    Allocate, Caller, FileError, FileType, MODE_SETGID, MODE_SETUID, NAME_BYTES_MAX, NameIn, NewNode, Place, ROOT,
    Request as RequestNumber, SessionKind, SessionStart,
};
use tombolo_fuse::protocol::flags::bits::ROOT_ID;
use tombolo_fuse::protocol::request::{CopyRange, Read, Readdir, SetAttributes, Write};
use tombolo_fuse::{
    Completion, DirectoryBuffer, DirectoryEntry, Entry, Opened, Reply, Request, RequestHeader, Session, Statfs,
};

/// Between two attempts at what was refused with "try again".
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Entries of a directory that are read at a time; about what fits into the kernel's buffer of a page.
const ENTRIES_AT_A_TIME: usize = 64;

pub struct ShareSession(Arc<Inner>);

pub(super) struct Inner {
    pub shares: Arc<Shares>,
    start: SessionStart,
    kind: SessionKind,
    /// Changes are on stable storage when they are answered.
    stable: bool,
    _listening: Subscription,
    is_unmounted: AtomicBool,
    listings: Listings,
    handles: Handles,
    pub waiting: locks::Waiting,
}

/// A request, its number and its client.
pub(super) struct Pending {
    completion: Completion,
    started: Started<FileOperation>,
    session: Arc<Inner>,
}

impl Pending {
    pub fn answer(self, result: Result<Reply, FileError>) {
        self.session.shares.meters.observe(&self.started, result.is_ok());
        if let Err(error @ (FileError::Damaged(_) | FileError::Inconsistent(_) | FileError::Failed(_))) = &result {
            tracing::error!(session = self.session.start.session, %error, "a file request failed");
        }
        self.completion.complete(result.map_err(|error| errno(&error)));
    }

    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// Answers when everything done so far is where the share's flush mode wants it. While the bucket takes nothing, who may
    /// ask for the same again is told so; for others the request waits.
    fn answer_stable(self, reply: Reply, is_repeatable: bool) {
        let service = self.session.shares.service.clone();
        let waits = self.session.kind == SessionKind::Kernel || !is_repeatable;
        let mode = service.flush_mode(self.session.start.share);
        let answer = move |synced| match synced {
            Err(FileError::Busy(_)) if waits && !self.completion.is_interrupted() => {
                after_pause(move || self.answer_stable(reply, is_repeatable));
            }
            Err(FileError::Busy(_)) if waits => self.answer(Err(FileError::Interrupted)),
            synced => self.answer(synced.map(|()| reply)),
        };
        service.sync(mode, Box::new(answer));
    }

    /// Carries out what may be told to try again; for the kernel it is tried until it succeeds. What is refused so has
    /// changed nothing.
    pub fn attempt<T>(&self, mut attempt: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
        loop {
            match attempt() {
                Err(FileError::Busy(_)) if self.session.kind == SessionKind::Kernel => {
                    if self.completion.is_interrupted() {
                        return Err(FileError::Interrupted);
                    }
                    thread::sleep(BUSY_PAUSE);
                }
                other => return other,
            }
        }
    }
}

impl ShareSession {
    pub fn new(
        shares: Arc<Shares>,
        start: SessionStart,
        kind: SessionKind,
        stable: bool,
        listening: Subscription,
    ) -> Self {
        Self(Arc::new(Inner {
            handles: Handles::new(kind, shares.generation),
            shares,
            start,
            kind,
            stable,
            _listening: listening,
            is_unmounted: AtomicBool::new(false),
            listings: Listings::default(),
            waiting: locks::Waiting::default(),
        }))
    }
}

impl Session for ShareSession {
    fn handle(&self, header: &RequestHeader, request: Request, completion: Completion) {
        let pending = Pending {
            started: operations::begin(&request),
            completion,
            session: self.0.clone(),
        };
        let caller = self.0.caller(header);
        self.0.carry_out(caller, header, request, pending);
    }

    /// Reads, syncs and locks are answered by others; what makes something new waits for nobody. Whatever has to be
    /// known for it may have to be read in the store as long as local metadata is not complete.
    fn may_wait(&self, request: &Request) -> bool {
        match request {
            Request::Forget { .. } | Request::BatchForget(_) => false,
            _ if !self.0.shares.gateway.is_metadata_complete() => true,
            Request::Read(_)
            | Request::Fsync { .. }
            | Request::Fsyncdir { .. }
            | Request::Syncfs
            | Request::Setlk { .. }
            | Request::Flush { .. }
            | Request::Symlink { .. }
            | Request::Mknod { .. }
            | Request::Mkdir { .. }
            | Request::Tmpfile { .. } => false,
            Request::Open { flags, .. } | Request::Create { flags, .. } => *flags as i32 & libc::O_TRUNC != 0,
            request => request.may_wait(),
        }
    }

    fn unmounted(&self) {
        self.0.is_unmounted.store(true, Ordering::SeqCst);
    }

    fn detached(&self) {
        self.0.waiting.take_all_back(&self.0);
        let comes_back = !self.0.is_unmounted.load(Ordering::SeqCst);
        self.0.shares.detached(self.0.start.session, comes_back);
    }
}

impl Inner {
    fn caller(&self, header: &RequestHeader) -> Caller {
        let number = header.request_id();
        Caller {
            session: self.start.session,
            share: self.start.share,
            uid: header.uid,
            gid: header.gid,
            now: now(),
            request: match header.is_resent() {
                true => RequestNumber::Again(number),
                false => RequestNumber::Number(number),
            },
        }
    }

    fn carry_out(self: &Arc<Self>, caller: Caller, header: &RequestHeader, request: Request, pending: Pending) {
        let node = header.node;
        match request {
            request if self.handles.are_lost(&request) => {
                pending.answer(handles::answer_of_lost(&request, Reply::Done));
            }
            Request::Read(read) => self.read(caller, node, &read, pending),
            Request::Write(write) => self.write(caller, node, write, pending),
            Request::Fsync { .. } | Request::Fsyncdir { .. } | Request::Syncfs => {
                pending.answer_stable(Reply::Done, true);
            }
            Request::Getlk(lock) => {
                let found = pending.attempt(|| locks::test(self, &caller, node, &lock));
                pending.answer(found);
            }
            Request::Setlk { lock, wait } => locks::set(self, &caller, node, &lock, wait, pending),
            Request::Forget { .. } => self.forget(node),
            Request::BatchForget(nodes) => nodes.iter().for_each(|forgotten| self.forget(forgotten.node)),
            request if changes(&request) => match pending.attempt(|| self.change(&caller, node, &request)) {
                // It is made: the same again would find what it has made itself.
                Ok(reply) if self.stable => pending.answer_stable(reply, false),
                result => pending.answer(result),
            },
            // Once, for it counts; its client hears nothing of a failure.
            request @ (Request::Release(_) | Request::Releasedir { .. }) => {
                pending.answer(self.look(&caller, node, &request));
            }
            request => {
                let result = pending.attempt(|| self.look(&caller, node, &request));
                pending.answer(result);
            }
        }
    }

    /// Requests that change names, attributes or maps.
    fn change(&self, caller: &Caller, node: u64, request: &Request) -> Result<Reply, FileError> {
        let service = &self.shares.service;
        let at = |name| NameIn { parent: node, name };
        let new = |mode: u32, umask: u32, device: u32| NewNode {
            mode,
            umask,
            device,
            attributes: tombolo_files::SetAttributes::default(),
        };
        let with = |node: NewNode, attributes: &Option<Box<SetAttributes>>| NewNode {
            attributes: attributes.as_deref().map(convert::set_attributes).unwrap_or_default(),
            ..node
        };
        match request {
            Request::Setattr(set) => {
                let set = convert::set_attributes(set);
                let found = service.setattr(caller, node, &set)?;
                Ok(Reply::Attributes {
                    valid: self.attributes_valid(&found),
                    attributes: convert::attributes(&found),
                })
            }
            Request::Symlink { name, target } => service
                .symlink(caller, at(name), target)
                .map(|found| self.found(&found)),
            Request::Mknod {
                name,
                mode,
                device,
                umask,
                attributes,
            } => service
                .mknod(caller, at(name), with(new(*mode, *umask, *device), attributes))
                .map(|found| self.found(&found)),
            Request::Mkdir { name, mode, umask } => service
                .mkdir(caller, at(name), new(*mode, *umask, 0))
                .map(|found| self.found(&found)),
            Request::Link { node: linked, name } => {
                service.link(caller, *linked, at(name)).map(|found| self.found(&found))
            }
            Request::Unlink { name } => done(service.unlink(caller, at(name))),
            Request::Rmdir { name } => done(service.rmdir(caller, at(name))),
            Request::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let to = NameIn {
                    parent: *new_parent,
                    name: new_name,
                };
                done(service.rename(caller, at(name), to, convert::rename_mode(*flags)?))
            }
            Request::Create {
                name,
                flags,
                mode,
                umask,
                kill_privileges,
                attributes,
            } => {
                let flags = convert::open_flags(*flags, *kill_privileges);
                let node = with(new(*mode, *umask, 0), attributes);
                let (found, _) = service.create(caller, at(name), node, flags)?;
                Ok(Reply::Created(self.entry(&found), self.opened(caller)))
            }
            Request::Tmpfile { mode, umask, .. } => {
                let found = service.tmpfile(caller, node, new(*mode, *umask, 0))?;
                Ok(Reply::Created(self.entry(&found), self.opened(caller)))
            }
            Request::Setxattr {
                name,
                value,
                flags,
                clear_setgid,
            } => {
                let flags = convert::xattr_flags(*flags, *clear_setgid)?;
                done(service.setxattr(caller, node, name, value, flags))
            }
            Request::Removexattr { name } => done(service.removexattr(caller, node, name)),
            Request::Fallocate {
                offset, length, mode, ..
            } => {
                let mode = Allocate::of_flags(*mode)?;
                let at = Place {
                    inode: node,
                    offset: *offset,
                };
                done(service.fallocate(caller, at, *length, mode))
            }
            Request::CopyFileRange(copy) => self.copy(caller, node, copy),
            Request::Open { flags, kill_privileges } => {
                let flags = convert::open_flags(*flags, *kill_privileges);
                service.open_inode(caller, node, flags)?;
                Ok(Reply::Opened(self.opened(caller)))
            }
            _ => Err(FileError::NotSupported("this request")),
        }
    }

    /// Requests that change nothing that must be kept.
    fn look(&self, caller: &Caller, node: u64, request: &Request) -> Result<Reply, FileError> {
        let service = &self.shares.service;
        match request {
            Request::Lookup { name } => {
                let found = service.lookup(caller, NameIn { parent: node, name })?;
                Ok(self.found(&found))
            }
            Request::Getattr { .. } => {
                let found = service.getattr(caller, node)?;
                Ok(Reply::Attributes {
                    valid: self.attributes_valid(&found),
                    attributes: convert::attributes(&found),
                })
            }
            Request::Statx { .. } => {
                let found = service.getattr(caller, node)?;
                Ok(Reply::Statx {
                    valid: self.attributes_valid(&found),
                    attributes: convert::attributes(&found),
                })
            }
            Request::Readlink => service.readlink(caller, node).map(Reply::Data),
            Request::Open { flags, kill_privileges } => {
                let flags = convert::open_flags(*flags, *kill_privileges);
                service.open_inode(caller, node, flags)?;
                Ok(Reply::Opened(self.opened(caller)))
            }
            Request::Opendir { .. } => {
                service.open_inode(caller, node, tombolo_files::OpenFlags::default())?;
                Ok(Reply::Opened(self.opened(caller)))
            }
            Request::Release(release) => {
                locks::release(self, caller, node, release)?;
                done(service.release(caller, node))
            }
            Request::Releasedir { fh, .. } => {
                self.listings.close(*fh);
                done(service.release(caller, node))
            }
            Request::Flush { lock_owner, .. } => done(locks::close(self, caller, node, *lock_owner)),
            Request::Statfs => self.statfs(caller),
            Request::Getxattr { name, size } => sized(service.getxattr(caller, node, name)?, *size),
            Request::Listxattr { size } => sized(service.listxattr(caller, node)?, *size),
            Request::Readdir(readdir) => self.readdir(caller, node, readdir, false),
            Request::Readdirplus(readdir) => self.readdir(caller, node, readdir, true),
            Request::Lseek { offset, whence, .. } => {
                let what = convert::seek(*whence)?;
                let from = Place {
                    inode: node,
                    offset: *offset,
                };
                service.seek(caller, from, what).map(Reply::Position)
            }
            // The front ends check permissions before they ask.
            Request::Access { .. } => service.getattr(caller, node).map(|_| Reply::Done),
            _ => Err(FileError::NotSupported("this request")),
        }
    }

    fn read(self: &Arc<Self>, caller: Caller, node: u64, read: &Read, pending: Pending) {
        let (from, bytes) = (
            Place {
                inode: node,
                offset: read.offset,
            },
            read.size as usize,
        );
        let session = self.clone();
        let read = *read;
        let reply = move |result| match result {
            Err(FileError::Busy(_)) if session.kind == SessionKind::Kernel => {
                session.read_again(caller, node, read, pending);
            }
            result => pending.answer(result.map(Reply::Data)),
        };
        self.shares.service.read(&caller, from, bytes, Box::new(reply));
    }

    fn read_again(self: &Arc<Self>, caller: Caller, node: u64, read: Read, pending: Pending) {
        if pending.completion.is_interrupted() {
            return pending.answer(Err(FileError::Interrupted));
        }
        let session = self.clone();
        after_pause(move || session.read(caller, node, &read, pending));
    }

    fn write(self: &Arc<Self>, caller: Caller, node: u64, write: Write, pending: Pending) {
        let to = Place {
            inode: node,
            offset: write.offset,
        };
        let service = &self.shares.service;
        let (flags, kill_privileges, wants_attributes) = (write.flags, write.kill_privileges, write.wants_attributes);
        // Shared between attempts, not copied.
        let data = Bytes::from(write.data);
        let written = pending.attempt(|| service.write(&caller, to, data.clone(), kill_privileges));
        // The kernel sends an FSYNC of its own after the write.
        let stable = self.kind == SessionKind::Client && convert::is_synchronous(flags);
        let reply = written.and_then(|bytes| match wants_attributes {
            true => self.written_with(&caller, node, bytes as u32),
            false => Ok(Reply::Written(bytes as u32)),
        });
        match reply {
            Ok(reply) if stable => pending.answer_stable(reply, true),
            result => pending.answer(result),
        }
    }

    fn written_with(&self, caller: &Caller, node: u64, bytes: u32) -> Result<Reply, FileError> {
        let found = self.shares.service.getattr(caller, node)?;
        Ok(Reply::WrittenWith {
            bytes,
            attributes: convert::attributes(&found),
        })
    }

    fn copy(&self, caller: &Caller, node: u64, copy: &CopyRange) -> Result<Reply, FileError> {
        if copy.flags != 0 {
            return Err(FileError::Invalid("flags of a copy"));
        }
        let place = |inode, offset| Place { inode, offset };
        let (from, to) = (place(node, copy.offset_in), place(copy.node_out, copy.offset_out));
        let copied = self.shares.service.copy_range(caller, from, to, copy.length)?;
        Ok(Reply::Copied(copied))
    }

    fn readdir(&self, caller: &Caller, node: u64, readdir: &Readdir, plus: bool) -> Result<Reply, FileError> {
        let mut buffer = DirectoryBuffer::new(readdir.size);
        let end = || self.shares.service.directory_end(caller, node);
        let mut positions = self.listings.positions(readdir, end)?;
        'full: loop {
            let entries = self
                .shares
                .service
                .readdir(caller, node, positions, ENTRIES_AT_A_TIME, plus)?;
            let Some(last) = entries.last() else { break };
            positions.after = last.cookie;
            for entry in &entries {
                let name = DirectoryEntry {
                    node: entry.inode,
                    cookie: entry.cookie,
                    kind: entry.file_type.directory_type(),
                    name: &entry.name,
                };
                let taken = match plus {
                    true => buffer.push_plus(&self.listed(entry), &name),
                    false => buffer.push(&name),
                };
                if !taken {
                    break 'full;
                }
            }
        }
        Ok(buffer.into_reply())
    }

    /// What READDIRPLUS tells of an entry; "." and ".." are not looked up by it.
    fn listed(&self, entry: &tombolo_files::DirectoryEntry) -> Entry {
        match entry.attributes {
            Some(attributes) if entry.name != b"." && entry.name != b".." => self.entry(&tombolo_files::Entry {
                inode: entry.inode,
                attributes,
            }),
            _ => Entry::default(),
        }
    }

    fn statfs(&self, caller: &Caller) -> Result<Reply, FileError> {
        let status = self.shares.service.statfs(caller)?;
        Ok(Reply::Statfs(Statfs {
            blocks: status.blocks,
            blocks_free: status.blocks_free,
            blocks_available: status.blocks_free,
            inodes: status.inodes,
            inodes_free: status.inodes_free,
            block_bytes: BLOCK_BYTES as u32,
            name_bytes_max: NAME_BYTES_MAX as u32,
        }))
    }

    fn forget(&self, node: u64) {
        if node == ROOT {
            return;
        }
        if let Err(error) = self.shares.service.forget(self.start.session, node) {
            tracing::warn!(node, %error, "a file that nobody has open any more could not be removed");
        }
    }

    fn found(&self, found: &tombolo_files::Entry) -> Reply {
        Reply::Entry(self.entry(found))
    }

    fn entry(&self, found: &tombolo_files::Entry) -> Entry {
        Entry {
            node: self.node(found),
            generation: 0,
            entry_valid: self.valid(),
            attributes_valid: self.attributes_valid(&found.attributes),
            attributes: convert::attributes(&found.attributes),
        }
    }

    /// The open file goes by the number of the request that opened it: the session's client gives each number once.
    /// Most requests do without.
    fn opened(&self, caller: &Caller) -> Opened {
        let fh = match caller.request {
            RequestNumber::Number(number) | RequestNumber::Again(number) => self.handles.of_request(number),
            RequestNumber::Unnumbered => 0,
        };
        Opened {
            fh,
            ..Opened::default()
        }
    }

    /// The kernel knows the root by its own number.
    fn node(&self, found: &tombolo_files::Entry) -> u64 {
        match self.kind {
            SessionKind::Kernel
                if found.inode == self.start.root && found.attributes.file_type == FileType::Directory =>
            {
                u64::from(ROOT_ID)
            }
            SessionKind::Kernel | SessionKind::Client => found.inode,
        }
    }

    /// How long the client may believe what it is told.
    fn valid(&self) -> Duration {
        match self
            .shares
            .invalidations
            .is_shared(self.start.share, self.start.session)
        {
            true => Duration::ZERO,
            false => self.shares.options.attribute_timeout,
        }
    }

    /// A file's setuid and setgid go when it is written, of which the kernel that writes is not told.
    fn attributes_valid(&self, found: &tombolo_files::Attributes) -> Duration {
        let is_privileged = found.mode & (MODE_SETUID | MODE_SETGID) != 0;
        match found.file_type {
            FileType::Regular if is_privileged => Duration::ZERO,
            _ => self.valid(),
        }
    }
}

/// Tries again what was refused. The thread that brings an answer must not wait, so another one does.
fn after_pause(again: impl FnOnce() + Send + 'static) {
    let waiting = move || {
        thread::sleep(BUSY_PAUSE);
        again();
    };
    // A thread that cannot be started takes the request with it, which then is answered with EIO.
    if let Err(error) = thread::Builder::new().name("try-again".into()).spawn(waiting) {
        tracing::error!(%error, "a request that was to be tried again fails");
    }
}

fn changes(request: &Request) -> bool {
    match request {
        Request::Open { flags, .. } => *flags as i32 & libc::O_TRUNC != 0,
        Request::Setattr(_)
        | Request::Symlink { .. }
        | Request::Mknod { .. }
        | Request::Mkdir { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::Rmdir { .. }
        | Request::Rename { .. }
        | Request::Create { .. }
        | Request::Tmpfile { .. }
        | Request::Setxattr { .. }
        | Request::Removexattr { .. }
        | Request::Fallocate { .. }
        | Request::CopyFileRange(_) => true,
        _ => false,
    }
}

fn done(result: Result<(), FileError>) -> Result<Reply, FileError> {
    result.map(|()| Reply::Done)
}

fn sized(value: Vec<u8>, size: u32) -> Result<Reply, FileError> {
    Reply::sized(value, size).map_err(|_| FileError::Range)
}
