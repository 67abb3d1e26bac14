//! What a thread is given to do, and what comes of it.

use super::common::Meeting;
use super::storage::{SimulatedAccess, SimulatedStorage};
use super::threads::Turns;
use std::sync::{Arc, mpsc};
use tombolo_base::FlushMode;
use tombolo_files::model::{Answer, Tree};
use tombolo_files::{
    Caller, CheckReport, FileError, FileService, NameIn, NewNode, Request, SessionKind, SessionRequest, SetAttributes,
    Timestamp,
};

pub(super) type Files = FileService<SimulatedStorage>;
pub(super) type Job = Box<dyn FnOnce() -> Outcome + Send>;

pub(super) enum Outcome {
    Opened(Result<(Arc<Files>, Places), FileError>),
    Checked(Result<CheckReport, FileError>),
    /// A request in a client's own directory.
    Answered(Answer),
    Looked(Result<Tree, FileError>),
    Synced(Result<(), FileError>),
    /// A request where clients meet.
    Met(Result<Meeting, FileError>),
}

/// Where clients do their work, made when the service is opened for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub share: u32,
    pub sessions: Vec<u64>,
    /// A directory of each client.
    pub own: Vec<u64>,
    /// Directories of all of them.
    pub common: [u64; 2],
    /// A file of all of them.
    pub file: u64,
}

const SHARE: &str = "data";

/// Opens the service, attaches the clients, and makes what is not there yet.
pub(super) fn open(clients: usize, flush: FlushMode) -> Job {
    Box::new(move || Outcome::Opened(try_open(clients, flush)))
}

fn try_open(clients: usize, flush: FlushMode) -> Result<(Arc<Files>, Places), FileError> {
    let files = FileService::open_with(
        Arc::new(tombolo_file_storage::FileStorage(SimulatedAccess)),
        Box::new(|_| ()),
        Some(Arc::new(Turns)),
    )?;
    if files.share_named(SHARE).is_none() {
        files.create_share(SHARE, 0, flush, Timestamp::default())?;
    }
    let mut sessions = Vec::new();
    let (mut share, mut root) = (0, 0);
    for client in 0..clients {
        let start = files.attach(&SessionRequest {
            client: format!("client-{client}").as_bytes(),
            share: SHARE,
            incarnation: 1,
            kind: SessionKind::Client,
        })?;
        sessions.push(start.session);
        (share, root) = (start.share, start.root);
    }
    let caller = Caller {
        session: sessions[0],
        share,
        uid: 1000,
        gid: 100,
        now: Timestamp::default(),
        request: Request::Unnumbered,
    };
    let place = |name: String, mode| make(&files, &caller, root, &name, mode);
    let own = (0..clients).map(|client| place(format!("own-{client}"), 0o040_755));
    let own = own.collect::<Result<_, _>>()?;
    let common = [place("one".into(), 0o040_755)?, place("two".into(), 0o040_755)?];
    let file = place("records".into(), 0o100_644)?;
    synced_in(&files, FlushMode::Local)?;
    let places = Places {
        share,
        sessions,
        own,
        common,
        file,
    };
    Ok((Arc::new(files), places))
}

fn make(files: &Files, caller: &Caller, parent: u64, name: &str, mode: u32) -> Result<u64, FileError> {
    let at = NameIn {
        parent,
        name: name.as_bytes(),
    };
    let node = NewNode {
        mode,
        umask: 0,
        device: 0,
        attributes: SetAttributes::default(),
    };
    let found = match files.lookup(caller, at) {
        Err(FileError::NotFound) if mode & 0o040_000 != 0 => files.mkdir(caller, at, node),
        Err(FileError::NotFound) => files.mknod(caller, at, node),
        found => found,
    };
    Ok(found?.inode)
}

/// What a client of the share asks for.
pub(super) fn synced(files: &Files, share: u32) -> Result<(), FileError> {
    synced_in(files, files.flush_mode(share))
}

fn synced_in(files: &Files, mode: FlushMode) -> Result<(), FileError> {
    let (reply, answer) = mpsc::channel();
    files.sync(mode, Box::new(move |synced| drop(reply.send(synced))));
    answer
        .recv()
        .unwrap_or(Err(FileError::Failed("storage gave no answer".into())))
}

/// The service could not have it from storage; it may, when it is asked again.
pub(super) fn is_for_now(error: &FileError) -> bool {
    matches!(error, FileError::Busy(_) | FileError::Failed(_) | FileError::NoSpace(_))
}
