//! A Unix socket of the gateway: private to the service's user, in place of a stale one, never of one that is answered.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Usually the directory belongs to somebody else, or the path is longer than an address of a socket can be.
    #[error("{path}: {action}: {error}")]
    System {
        /// Of the socket, also where its directory is concerned.
        path: PathBuf,
        /// What was not possible, such as "cannot listen".
        action: &'static str,
        /// What the system said to it.
        error: io::Error,
    },
    /// A daemon serves this directory already.
    #[error("another gateway answers on {0}; stop it or choose another runtime_directory")]
    Answered(PathBuf),
    /// Somebody put another kind of file there, which is left alone.
    #[error("{0} exists and is not a socket; remove it or choose another runtime_directory")]
    NoSocket(PathBuf),
}

/// Listens with mode 0600, in a directory of mode 0700 that is made when it is missing.
pub fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    if let Some(directory) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(fault(path, "cannot make its directory"))?;
    }
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(fault(path, "cannot listen"))?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(fault(path, "cannot set mode 0600"))?;
    Ok(listener)
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fault(path, "cannot read what kind of file it is")(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(SocketError::NoSocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Answered(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(fault(path, "cannot remove the stale socket"))
        }
        Err(error) => Err(fault(path, "cannot tell whether a gateway answers on it")(error)),
    }
}

fn fault(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |error| SocketError::System { path, action, error }
}
