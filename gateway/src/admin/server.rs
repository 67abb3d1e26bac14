//! The admin server: a JSON API and `/metrics` on a Unix socket, and `/metrics` alone over TCP.
//!
//! Whoever can open the socket may do everything; its mode 0600 and the directory's 0700 decide who that is. It owns
//! sockets, routes and the mapping of errors to HTTP; it does not own what is done ([`Handlers`]).

mod body;
mod connections;
mod handlers;
mod socket;

pub use handlers::Handlers;
pub use socket::AdminError;

use connections::{Limited, serve};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Enough for every tool at once; a leak in one of them must not take all descriptors of the process.
const CONNECTIONS_MAX: usize = 64;
/// What a client gets to send a request's head, and then its body; also how long a connection may idle, and for how long a
/// client may take nothing of an answer. How long an answer takes to make has no limit.
pub const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// What requests in flight get to finish at a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A running admin server with threads of its own.
pub struct Server {
    runtime: Runtime,
    stop: watch::Sender<bool>,
    socket_path: PathBuf,
    metrics_address: Option<SocketAddr>,
}

impl Server {
    /// Binds the socket, and `metrics` if it is given, and begins to serve. A socket file that nobody answers on is
    /// replaced; one that is answered is another gateway's, and an error.
    pub fn start<Shared: Send + Sync + 'static>(
        socket_path: &Path,
        metrics: Option<SocketAddr>,
        handlers: &Handlers<Shared>,
        receive_timeout: Duration,
    ) -> Result<Self, AdminError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(8)
            .thread_name("admin")
            .enable_all()
            .build()
            .map_err(AdminError::Threads)?;
        let (stop, stopped) = watch::channel(false);
        let inside = runtime.enter();
        let tcp = metrics.map(socket::bind_tcp).transpose()?;
        let metrics_address = tcp.as_ref().and_then(|listener| listener.local_addr().ok());
        let unix = socket::bind_unix(socket_path)?;
        runtime.spawn(serve(
            Limited::new(unix, CONNECTIONS_MAX),
            handlers.admin_routes(receive_timeout),
            stopped.clone(),
            receive_timeout,
        ));
        if let Some(tcp) = tcp {
            runtime.spawn(serve(
                Limited::new(tcp, CONNECTIONS_MAX),
                handlers.metrics_routes(),
                stopped,
                receive_timeout,
            ));
        }
        drop(inside);
        Ok(Self {
            runtime,
            stop,
            socket_path: socket_path.to_owned(),
            metrics_address,
        })
    }

    /// Where `/metrics` is served over TCP; tells the port when port 0 was asked for.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Takes no new requests, lets those in flight finish, and removes the socket.
    pub fn shutdown(self) {
        // The file goes first: whoever comes now is told at once that nobody is there.
        if let Err(error) = std::fs::remove_file(&self.socket_path) {
            tracing::debug!(path = %self.socket_path.display(), %error, "cannot remove the admin socket");
        }
        let _ = self.stop.send(true);
        self.runtime.block_on(async {
            // Every server task holds a receiver until it has finished.
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.stop.closed()).await;
        });
        self.runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    }
}
