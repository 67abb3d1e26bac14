//! The client's side of a kernel mount: the process that holds it.
//!
//! Mechanism: [`KernelMount::mount`] mounts the file system and answers INIT. [`Holder::hold`] then hands clones of the
//! descriptor to the server and waits. When the server dies, the mount stays: requests wait in the kernel until the
//! holder has found a server again, which takes over and has unanswered ones sent again. The holder also passes the
//! server's notifications to the kernel, because whoever does so may get stuck in the kernel (see
//! `server/device.rs`), and the holder is the one that is not missed meanwhile.
//!
//! Owns: the mount, the descriptors. Does not own: what is mounted.

mod holder;
mod init;
pub(crate) mod system;

pub use holder::{AttachError, Holder, HolderConfig, attach};
pub use init::{InitError, Negotiated};
pub use system::{MountError, is_mounted};

use crate::mount::system::{clone_device, is_disconnected, mount_fuse, open_device};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What to mount and where.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Must exist.
    pub directory: PathBuf,
    /// Shown as what is mounted (`fsname`).
    pub source: String,
    /// Shown behind "fuse." as the type.
    pub subtype: String,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Largest read and write.
    pub data_bytes_max: u32,
}

/// A mounted file system whose INIT is answered. Dropping it closes the connection: whatever uses the mount gets
/// ENOTCONN, until it is unmounted.
#[derive(Debug)]
pub struct KernelMount {
    device: File,
    negotiated: Negotiated,
    directory: PathBuf,
}

impl KernelMount {
    /// Needs CAP_SYS_ADMIN. The directory is usable only once a server has attached.
    pub fn mount(options: &MountOptions) -> Result<Self, MountError> {
        let device = open_device()?;
        mount_fuse(&device, options)?;
        let negotiated = match init::answer(&device, options.data_bytes_max) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                // Nobody can have used it yet.
                if let Err(error) = system::unmount(&options.directory, libc::MNT_DETACH) {
                    tracing::error!(%error, directory = %options.directory.display(), "a useless mount is left behind");
                }
                return Err(MountError::Init(error));
            }
        };
        Ok(Self {
            device,
            negotiated,
            directory: options.directory.clone(),
        })
    }

    /// What the kernel and this side agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Where it is mounted.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A further descriptor of the same connection. Requests that were read from one and not answered are lost with
    /// EIO or ECONNABORTED to whoever waits for them when its last holder closes it.
    pub fn clone_device(&self) -> io::Result<File> {
        clone_device(&self.device)
    }

    /// It was unmounted, or its connection aborted: no server is needed any more.
    pub fn is_disconnected(&self) -> io::Result<bool> {
        is_disconnected(&self.device)
    }

    pub(crate) fn device(&self) -> &File {
        &self.device
    }

    /// Fails with EBUSY while something is open there, unless `lazy`: then it is out of sight at once and gone when
    /// nothing is open any more.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        system::unmount(&self.directory, if lazy { libc::MNT_DETACH } else { 0 })
    }
}

/// As [`KernelMount::unmount`], from another process.
pub fn unmount(directory: &Path, lazy: bool) -> Result<(), MountError> {
    system::unmount(directory, if lazy { libc::MNT_DETACH } else { 0 })
}
