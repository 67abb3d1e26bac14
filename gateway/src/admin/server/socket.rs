//! Sockets of the admin server.

use crate::unix_socket::{self, SocketError};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Why the admin server does not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The machine gives no more threads, or descriptors.
    #[error("cannot start the threads of the admin server: {0}")]
    Threads(io::Error),
    /// As [`SocketError`] says, of `admin.sock`.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The socket is there but cannot be watched: too many descriptors are open.
    #[error("the admin socket cannot be waited on: {0}")]
    Wait(io::Error),
    /// The address is taken, or not one of this machine; choose another, or none.
    #[error("[metrics] listen = {address}: {error}")]
    Metrics {
        /// As the settings have it; port 0 stands for any.
        address: SocketAddr,
        /// What the system said to it.
        error: io::Error,
    },
}

/// Must be called within a runtime.
pub(super) fn bind_unix(path: &Path) -> Result<tokio::net::UnixListener, AdminError> {
    let listener = unix_socket::listen(path)?;
    listener.set_nonblocking(true).map_err(AdminError::Wait)?;
    tokio::net::UnixListener::from_std(listener).map_err(AdminError::Wait)
}

/// Must be called within a runtime.
pub(super) fn bind_tcp(address: SocketAddr) -> Result<tokio::net::TcpListener, AdminError> {
    let fault = |error| AdminError::Metrics { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    tokio::net::TcpListener::from_std(listener).map_err(fault)
}
