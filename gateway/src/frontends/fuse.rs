//! Shares: the file service over this gateway, and its clients.
//!
//! A client attaches to the socket of the file service ([`tombolo_fuse`]) and gets a session ([`session`]); its requests
//! are carried out by [`tombolo_files::FileService`] and its answers told in FUSE's terms ([`convert`]). What one session
//! changes is announced to the others of the share ([`news`]). Owns: sessions' connections, their grace period, the
//! check of all shares. Does not own: files, the wire.

mod check;
mod convert;
mod handles;
mod invalidations;
mod listings;
mod locks;
mod operations;
mod session;

use crate::frontends::{FileStorage, GatewayAccess, Stores};
use crate::metrics::requests::{FileOperation, Meters};
use crate::runtime::Gateway;
use invalidations::Invalidations;
use session::ShareSession;
use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tombolo_base::FlushMode;
use tombolo_files::{FileError, FileService, SessionKind, SessionRequest, ShareStatus, Timestamp};
use tombolo_fuse::{Attach, AttachReply, Attached, Errno, Notifier, Service};

pub use check::Checking;

/// Interval of the check for sessions whose grace period is over.
const GRACE_STEP: Duration = Duration::from_secs(1);

/// How sessions are treated.
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    /// How long a client that has gone may come back to its locks and open files.
    pub session_grace: Duration,
    /// How long the only client of a share may believe what it was told.
    pub attribute_timeout: Duration,
    /// The longest write, told to clients.
    pub write_bytes_max: u32,
}

/// The file service and its clients.
pub struct Shares {
    gateway: Arc<Gateway>,
    pub service: Arc<FileService<FileStorage>>,
    pub checking: Checking,
    pub meters: Meters<FileOperation>,
    invalidations: Arc<Invalidations>,
    options: ShareOptions,
    /// Another one after each start: what was written without a sync before may be lost after a power failure.
    boot: u64,
    /// Of what was answered: [`crate::runtime::Generation`].
    generation: u64,
    /// Since when sessions have no connection.
    absent: Mutex<HashMap<u64, Instant>>,
}

impl Shares {
    /// # Errors
    /// When the entries of the file service cannot be read.
    pub fn open(gateway: &Arc<Gateway>, options: ShareOptions) -> Result<Arc<Self>, FileError> {
        let invalidations = Arc::new(Invalidations::default());
        let listener = invalidations.clone();
        let service = FileService::open(
            Arc::new(tombolo_file_storage::FileStorage(GatewayAccess(gateway.clone()))),
            Box::new(move |invalidation| listener.announce(&invalidation)),
        )?;
        let now = Instant::now();
        let absent = service.sessions().iter().map(|status| (status.session, now)).collect();
        let shares = Arc::new(Self {
            gateway: gateway.clone(),
            service: Arc::new(service),
            checking: Checking::default(),
            meters: Meters::default(),
            invalidations,
            options,
            boot: boot_number(),
            generation: gateway.generation.number(),
            absent: Mutex::new(absent),
        });
        shares.end_lost_mounts(gateway);
        shares.watch_absent();
        shares.resume_deletions();
        Ok(shares)
    }

    /// What mounts held before something was lost is given up: their locks, which others may have been granted since in
    /// the state that this start has found, and removed files that they kept.
    fn end_lost_mounts(&self, gateway: &Gateway) {
        if !gateway.generation.is_new() {
            return;
        }
        let mut all_ended = true;
        for session in self.service.sessions() {
            if session.kind == SessionKind::Kernel {
                self.absent().remove(&session.session);
                all_ended &= self.end(session.session);
            }
        }
        if all_ended {
            gateway.generation.settle();
        }
    }

    /// Ends, on a thread of its own, the sessions whose clients stay away too long.
    fn watch_absent(self: &Arc<Self>) {
        let shares = Arc::downgrade(self);
        let watch = move || {
            while let Some(shares) = Weak::upgrade(&shares) {
                shares.end_absent();
                drop(shares);
                thread::sleep(GRACE_STEP);
            }
        };
        if let Err(error) = thread::Builder::new().name("grace".into()).spawn(watch) {
            tracing::error!(%error, "sessions of clients that stay away will not be ended");
        }
    }

    fn end_absent(&self) {
        let grace = self.options.session_grace;
        let mut ended = Vec::new();
        self.absent().retain(|session, since| {
            let over = since.elapsed() >= grace;
            if over {
                ended.push(*session);
            }
            !over
        });
        for session in ended {
            tracing::info!(session, "the client stayed away; its locks and open files are given up");
            self.end(session);
        }
    }

    fn absent(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when everything done so far is on stable storage here.
    pub fn sync(&self) -> Result<(), FileError> {
        let (sender, receiver) = sync_channel(1);
        let reply = Box::new(move |synced| {
            let _ = sender.send(synced);
        });
        self.service.sync(FlushMode::Local, reply);
        let gone = |_| Err(FileError::Failed("the gateway is stopping".into()));
        receiver.recv().unwrap_or_else(gone)
    }

    /// Closes the share for good and removes its files on a thread of its own; returns when its end is certain. With
    /// `force` the sessions of connected clients are ended first.
    pub fn delete(self: &Arc<Self>, share: &ShareStatus, force: bool) -> Result<(), FileError> {
        let sessions = self.service.sessions();
        for session in sessions.iter().filter(|session| force && session.share == share.id) {
            self.service.end_session(session.session)?;
        }
        let (sender, receiver) = sync_channel(1);
        let (shares, name) = (self.clone(), share.name.clone());
        let remove = move || {
            let mut begun = |_| {
                let _ = sender.try_send(Ok(()));
            };
            let result = shares.service.delete_share(&name, &mut begun);
            if let Err(error) = &result {
                tracing::warn!(share = name, %error, "the share is not deleted");
            }
            let _ = sender.try_send(result);
        };
        let started = thread::Builder::new().name("delete-share".into()).spawn(remove);
        started.map_err(|error| FileError::Failed(error.to_string()))?;
        let gone = |_| Err(FileError::Failed("the gateway is stopping".into()));
        receiver.recv().unwrap_or_else(gone)?;
        self.sync()
    }

    /// Goes on with deletions that a stop cut short.
    fn resume_deletions(self: &Arc<Self>) {
        for share in self.service.shares().iter().filter(|share| share.being_deleted) {
            if let Err(error) = self.delete(share, true) {
                tracing::warn!(share = share.name, %error, "the share is not deleted");
            }
        }
    }

    /// A connection has gone. With the last one its session waits for the client, unless that comes back no more.
    fn detached(&self, session: u64, comes_back: bool) {
        if self.service.detach(session) > 0 {
            return;
        }
        if comes_back {
            self.absent().insert(session, Instant::now());
        } else {
            self.end(session);
        }
    }

    /// Whether it has ended.
    fn end(&self, session: u64) -> bool {
        let ended = self.service.end_session(session);
        if let Err(error) = &ended {
            tracing::warn!(session, %error, "the session could not be ended; it is tried again");
            self.absent().insert(session, Instant::now());
        }
        ended.is_ok()
    }
}

/// What the file server asks for each connection, which is one share's from then on, and so one store's.
pub struct ShareService(pub Arc<Stores>);

impl Service for ShareService {
    fn attach(&self, attach: &Attach, notifier: Notifier) -> Result<Attached, Errno> {
        let name = attach.share_name.as_str();
        let shares = match (self.0.share(name), self.0.may_be_absent()) {
            (Some(store), _) => store.shares.clone(),
            (None, None) => self.0.first().shares.clone(),
            (None, Some(reason)) => {
                tracing::warn!(client = attach.client_name, share = name, reason, "a client is refused");
                return Err(convert::errno(&FileError::Busy(reason)));
            }
        };
        let kind = if attach.device {
            SessionKind::Kernel
        } else {
            SessionKind::Client
        };
        let start = shares.service.attach(&SessionRequest {
            client: attach.client_name.as_bytes(),
            share: &attach.share_name,
            incarnation: attach.incarnation,
            kind,
        });
        let start = start.map_err(|error| {
            tracing::warn!(client = attach.client_name, share = attach.share_name, %error, "a client is refused");
            convert::errno(&error)
        })?;
        shares.absent().remove(&start.session);
        let listening = shares.invalidations.listen(start, kind, notifier);
        tracing::info!(
            client = attach.client_name,
            share = attach.share_name,
            session = start.session,
            resumed = start.resumed,
            "a client is attached"
        );
        Ok(Attached {
            reply: AttachReply {
                session: start.session,
                boot: shares.boot,
                root: start.root,
                max_write: shares.options.write_bytes_max,
                grace_ms: u32::try_from(shares.options.session_grace.as_millis()).unwrap_or(u32::MAX),
                resumed: start.resumed,
                acl_flags: true,
                write_attributes: true,
                creation_attributes: true,
            },
            session: Arc::new(ShareSession::new(shares.clone(), start, kind, attach.stable, listening)),
        })
    }
}

pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(since_epoch.as_secs() as i64, since_epoch.subsec_nanos())
}

fn boot_number() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_nanos() as u64
}
