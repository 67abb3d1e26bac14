//! The process that holds a share's mount: the mount outlives the gateway, and a gateway that comes back is handed its
//! descriptors again.

mod identity;

use identity::Identity;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use tombolo_fuse::Errno;
use tombolo_fuse::mount::{self, AttachError, Holder, HolderConfig, KernelMount};
use tombolo_fuse::protocol::TRANSFER_BYTES_MAX;

/// What is mounted where.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The file service's socket.
    pub files_socket: PathBuf,
    pub share: String,
    /// An existing directory.
    pub directory: PathBuf,
    /// Nothing is written through this mount.
    pub read_only: bool,
    /// Where the holder keeps who it is; see [`identity`].
    pub state: PathBuf,
    /// Descriptors of the mount, each served by a thread of the gateway.
    pub threads: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{}", with_sources(.0))]
    System(#[from] mount::MountError),
    #[error("share {share:?} on {}: {}", socket.display(), with_sources(error))]
    Attach {
        share: String,
        socket: PathBuf,
        error: AttachError,
    },
    #[error("threads and signals of the mount: {0}")]
    Process(#[from] io::Error),
}

impl MountError {
    /// The gateway knows no such share.
    pub fn is_unknown_share(&self) -> bool {
        matches!(
            self,
            Self::Attach {
                error: AttachError::Refused(Errno::NOENT),
                ..
            }
        )
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}

/// Mounts, calls `mounted` once the mount serves, and holds it until SIGTERM or SIGINT, or until somebody unmounts it.
/// A mount that is in use at the signal disappears from its directory and is held until nothing is open there any more,
/// or a second signal ends the process.
pub fn run(options: &MountOptions, mounted: impl FnOnce()) -> Result<(), MountError> {
    remove_dead_mount(&options.directory)?;
    let directory = options.directory.display();
    let kernel_mount = KernelMount::mount(&mount::MountOptions {
        directory: options.directory.clone(),
        source: format!("tombolo:{}", options.share),
        subtype: "tombolo".into(),
        read_only: options.read_only,
        data_bytes_max: TRANSFER_BYTES_MAX,
    })?;
    let identity = Identity::take(&options.state, &options.share, &options.directory);
    let mut holder = Holder::new(kernel_mount, holder_config(options, &identity))?;
    let stop = stop_at_signal()?;
    let mut mounted = Some(mounted);
    let held = holder.hold(&stop, |_| {
        if let Some(mounted) = mounted.take() {
            tracing::info!(%directory, share = options.share, "mounted");
            mounted();
        }
    });
    if let Err(error) = held {
        let _ = holder.mount().unmount(true);
        return Err(MountError::Attach {
            share: options.share.clone(),
            socket: options.files_socket.clone(),
            error,
        });
    }
    end(&mut holder, options)
}

/// The signal came, or the mount is gone already.
fn end(holder: &mut Holder, options: &MountOptions) -> Result<(), MountError> {
    let directory = options.directory.display();
    if holder.mount().is_disconnected()? || holder.mount().unmount(false).is_ok() {
        tracing::info!(%directory, "unmounted");
        return Ok(());
    }
    tracing::warn!(%directory, "the mount is in use; it is held until nothing is open there any more");
    holder.mount().unmount(true)?;
    let stop = stop_at_signal()?;
    let held = holder.hold(&stop, |_| {});
    held.map_err(|error| MountError::Attach {
        share: options.share.clone(),
        socket: options.files_socket.clone(),
        error,
    })
}

fn holder_config(options: &MountOptions, identity: &Identity) -> HolderConfig {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    HolderConfig {
        socket: options.files_socket.clone(),
        client_name: identity.client_name(&options.directory),
        share_name: options.share.clone(),
        incarnation: since_epoch.as_nanos() as u64,
        stable: false,
        devices: options.threads as usize,
    }
}

/// What a holder that was killed leaves behind: a mount that answers nothing.
fn remove_dead_mount(directory: &Path) -> Result<(), mount::MountError> {
    match fs::metadata(directory) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => mount::unmount(directory, true),
        _ => Ok(()),
    }
}

/// SlotTransition readable at SIGTERM or SIGINT.
fn stop_at_signal() -> io::Result<UnixStream> {
    let (stop, signal) = UnixStream::pair()?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        if let Err(error) = crate::signals::wait_for_signal() {
            tracing::error!(%error, "signals cannot be waited for");
        }
        drop(signal);
    })?;
    Ok(stop)
}
