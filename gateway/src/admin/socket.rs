//! Sockets of the admin server.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Why the admin server does not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("cannot start the threads of the admin server: {0}")]
    Threads(io::Error),
    #[error("{path}: {action}: {error}")]
    Socket {
        path: PathBuf,
        action: &'static str,
        error: io::Error,
    },
    #[error("{0} is answered by another gateway; choose another runtime_directory or stop that one")]
    Answered(PathBuf),
    #[error("{0} exists and is no socket; remove it or choose another runtime_directory")]
    NoSocket(PathBuf),
    #[error("[metrics] listen = {address}: {error}")]
    Metrics { address: SocketAddr, error: io::Error },
}

/// Must be called within a runtime.
pub(super) fn bind_unix(path: &Path) -> Result<tokio::net::UnixListener, AdminError> {
    let fault = |action| {
        move |error| AdminError::Socket {
            path: path.to_owned(),
            action,
            error,
        }
    };
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(fault("cannot make its directory"))?;
    }
    remove_stale(path)?;
    let listener = tokio::net::UnixListener::bind(path).map_err(fault("cannot listen"))?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(fault("cannot set mode 0600"))?;
    Ok(listener)
}

/// Must be called within a runtime.
pub(super) fn bind_tcp(address: SocketAddr) -> Result<tokio::net::TcpListener, AdminError> {
    let fault = |error| AdminError::Metrics { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    tokio::net::TcpListener::from_std(listener).map_err(fault)
}

fn remove_stale(path: &Path) -> Result<(), AdminError> {
    let fault = |action| {
        move |error| AdminError::Socket {
            path: path.to_owned(),
            action,
            error,
        }
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fault("cannot look at it")(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(AdminError::NoSocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(AdminError::Answered(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(fault("cannot remove the stale socket"))
        }
        Err(error) => Err(fault("cannot tell whether somebody answers on it")(error)),
    }
}
