//! Keeps a mount served: finds a server, hands it the descriptors, and does so again whenever it is gone.
//!
//! | thread | does |
//! |---|---|
//! | the caller's | connects, attaches, reads notifications until the server is gone |
//! | `fuse-notify` | writes notifications to the kernel, which may take long |

use super::KernelMount;
use super::system::is_readable_within;
use crate::Errno;
use crate::protocol::abi::{OUT_HEADER_BYTES, OutHeader};
use crate::protocol::attach::{ATTACH_REPLY_BYTES, Attach, AttachReply};
use crate::protocol::flags::init;
use crate::protocol::wire::Wire;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;
use tombolo_transport::descriptors::{DESCRIPTORS_MAX, send_with_descriptors};
use tombolo_transport::socket::wait_for_either;

/// Longest notification: a removed name.
const NOTIFICATION_BYTES_MAX: usize = 512;
/// What the kernel has not taken yet. Beyond it they are dropped: the time for which it may believe its caches is what
/// then bounds how old they get.
const NOTIFICATIONS_MAX: usize = 64 * 1024;
/// A server waits for requests of ours that it has under way, for less than this.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);

/// Why a server does not serve a mount.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what happened")]
pub enum AttachError {
    #[error("the connection to the server")]
    Io(#[from] io::Error),
    #[error("the server refuses: {0}")]
    Refused(Errno),
    #[error("not an answer to ATTACH")]
    Malformed,
}

impl AttachError {
    /// Whether a later try may succeed: everything but a refusal for good.
    fn may_pass(&self) -> bool {
        match self {
            Self::Io(_) | Self::Malformed => true,
            Self::Refused(errno) => *errno == Errno::BUSY || *errno == Errno::AGAIN,
        }
    }
}

/// Sends ATTACH, with descriptors of `/dev/fuse` if there are any, and waits for the answer.
pub fn attach(socket: &UnixStream, attach: &Attach, devices: &[RawFd]) -> Result<AttachReply, AttachError> {
    const UNIQUE: u64 = 1;
    send_with_descriptors(socket, &attach.encode(UNIQUE), devices)?;
    let mut header = [0; OUT_HEADER_BYTES];
    (&*socket).read_exact(&mut header)?;
    let header = OutHeader::get(&header);
    if header.unique != UNIQUE || header.error > 0 {
        return Err(AttachError::Malformed);
    }
    if header.error < 0 {
        return Err(AttachError::Refused(Errno::new(header.error.saturating_neg())));
    }
    if header.len as usize != ATTACH_REPLY_BYTES {
        return Err(AttachError::Malformed);
    }
    let mut body = vec![0; ATTACH_REPLY_BYTES - OUT_HEADER_BYTES];
    (&*socket).read_exact(&mut body)?;
    AttachReply::decode(&body).ok_or(AttachError::Malformed)
}

/// Whom to attach to, and as whom.
#[derive(Clone, Debug)]
pub struct HolderConfig {
    /// The server's socket.
    pub socket: PathBuf,
    /// The name of the session's client.
    pub client_name: String,
    /// The share that is mounted.
    pub share_name: String,
    /// Another one for each mount.
    pub incarnation: u64,
    /// [`ATTACH_STABLE`](crate::protocol::attach::ATTACH_STABLE).
    pub stable: bool,
    /// Descriptors handed to the server, 1 to 64: it can answer as many requests at once without a lock between them.
    pub devices: usize,
}

/// The process that keeps a mount alive.
pub struct Holder {
    mount: KernelMount,
    config: HolderConfig,
    clones: Vec<File>,
    /// A server was found before: it may have left requests unanswered.
    served: bool,
    /// The server that a stop has left: it goes on, and sees the mount end before its holder does.
    server: Option<UnixStream>,
    to_kernel: SyncSender<Vec<u8>>,
}

impl Holder {
    /// Does not attach yet.
    ///
    /// # Errors
    /// When the device cannot be opened once more, or no thread can be started.
    pub fn new(mount: KernelMount, config: HolderConfig) -> io::Result<Self> {
        let (to_kernel, notifications) = mpsc::sync_channel(NOTIFICATIONS_MAX);
        let device = Arc::new(mount.device().try_clone()?);
        thread::Builder::new()
            .name("fuse-notify".into())
            .spawn(move || pass_to_kernel(&device, &notifications))?;
        let mut holder = Self {
            mount,
            config,
            clones: Vec::new(),
            served: false,
            server: None,
            to_kernel,
        };
        holder.make_clones()?;
        Ok(holder)
    }

    /// What is held.
    pub fn mount(&self) -> &KernelMount {
        &self.mount
    }

    fn make_clones(&mut self) -> io::Result<()> {
        // The old ones go first: a kernel that cannot send again ends what was read from them and not answered.
        self.clones.clear();
        for _ in 0..self.config.devices.clamp(1, DESCRIPTORS_MAX) {
            self.clones.push(self.mount.clone_device()?);
        }
        Ok(())
    }

    /// Serves the mount until it is unmounted, or `stop` becomes readable or is closed at its other end. `on_attached`
    /// is told of each server. May be called again after a stop; the server serves on in between. Fails only when the
    /// first server refuses for good; a mount that was served once is not given up, for a server may yet come that knows
    /// the share.
    pub fn hold(&mut self, stop: &impl AsRawFd, mut on_attached: impl FnMut(&AttachReply)) -> Result<(), AttachError> {
        let mut delay = RETRY_DELAY_MIN;
        while !self.mount.is_disconnected()? {
            match self.server(&mut on_attached) {
                Ok(socket) => {
                    delay = RETRY_DELAY_MIN;
                    if self.relay(&socket, stop)? == Ended::Stopped {
                        self.server = Some(socket);
                        return Ok(());
                    }
                    // After an unmount it goes first.
                    if self.mount.is_disconnected()? {
                        return Ok(());
                    }
                    tracing::warn!("the server is gone; the mount waits for it");
                }
                Err(error) if !self.served && !error.may_pass() => return Err(error),
                Err(error) => tracing::debug!(%error, "no server yet"),
            }
            if is_readable_within(stop, delay)? {
                return Ok(());
            }
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
        Ok(())
    }

    /// The one that is there, or a new one.
    fn server(&mut self, on_attached: &mut impl FnMut(&AttachReply)) -> Result<UnixStream, AttachError> {
        if let Some(socket) = self.server.take() {
            return Ok(socket);
        }
        let (socket, reply) = self.connect(self.served)?;
        if self.served && !reply.resumed {
            tracing::warn!(
                "the server knows nothing of this mount any more: its locks are gone, and what the server may have lost \
                 of files that are open is said by errors (EIO) until they are closed and opened again"
            );
        }
        on_attached(&reply);
        self.served = true;
        Ok(socket)
    }

    fn connect(&mut self, resume: bool) -> Result<(UnixStream, AttachReply), AttachError> {
        let negotiated = *self.mount.negotiated();
        if resume && negotiated.flags & init::HAS_RESEND == 0 {
            self.make_clones()?;
        }
        let socket = UnixStream::connect(&self.config.socket)?;
        let request = Attach {
            client_name: self.config.client_name.clone(),
            share_name: self.config.share_name.clone(),
            incarnation: self.config.incarnation,
            stable: self.config.stable,
            device: true,
            resume,
            notify: true,
            fuse_minor: negotiated.minor,
            init_flags: negotiated.flags,
        };
        let devices: Vec<RawFd> = self.clones.iter().map(AsRawFd::as_raw_fd).collect();
        socket.set_read_timeout(Some(ATTACH_TIMEOUT))?;
        socket.set_write_timeout(Some(ATTACH_TIMEOUT))?;
        let reply = attach(&socket, &request, &devices)?;
        socket.set_read_timeout(None)?;
        Ok((socket, reply))
    }

    /// Reads notifications until the server is gone.
    fn relay(&self, socket: &UnixStream, stop: &impl AsRawFd) -> io::Result<Ended> {
        let mut lost = false;
        loop {
            if wait_for_either(stop, socket)? {
                return Ok(Ended::Stopped);
            }
            let message = match read_notification(socket) {
                Ok(message) => message,
                Err(error) => {
                    tracing::debug!(%error, "no more notifications");
                    return Ok(Ended::ServerGone);
                }
            };
            match self.to_kernel.try_send(message) {
                Ok(()) => lost = false,
                Err(TrySendError::Full(_)) if lost => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    lost = true;
                    tracing::warn!("the kernel does not take notifications; some are dropped");
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    ServerGone,
    Stopped,
}

fn read_notification(mut socket: &UnixStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; OUT_HEADER_BYTES];
    socket.read_exact(&mut message)?;
    let header = OutHeader::get(&message);
    let bytes = header.len as usize;
    if header.unique != 0 || !(OUT_HEADER_BYTES..=NOTIFICATION_BYTES_MAX).contains(&bytes) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a notification"));
    }
    message.resize(bytes, 0);
    socket.read_exact(&mut message[OUT_HEADER_BYTES..])?;
    Ok(message)
}

/// Ends when the holder does. A notification about what the kernel has not cached is ENOENT.
fn pass_to_kernel(device: &File, notifications: &Receiver<Vec<u8>>) {
    while let Ok(message) = notifications.recv() {
        if let Err(error) = (&*device).write_all(&message)
            && !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV))
        {
            tracing::debug!(%error, "the kernel does not take a notification");
        }
    }
}
