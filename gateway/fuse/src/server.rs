//! FUSE over Unix sockets: connections, the devices that come over them, and how a server of them ends.
//!
//! | thread         | lives                                | does                                            |
//! |----------------|--------------------------------------|-------------------------------------------------|
//! | `fuse-N`       | as long as its connection            | attaches; then reads the socket, or watches it  |
//! | `fuse-N-M`     | from when it is first needed         | reads and carries out requests of connection N  |

mod connection;
mod device;
mod device_io;
mod input;
mod intake;
mod messages;
mod place;
mod stream;

use crate::protocol::TRANSFER_BYTES_MAX;
use crate::service::Service;
use connection::Connection;
use place::Client;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tombolo_transport::{Budget, Protocol};

type Registration = tombolo_transport::Registration<Fuse>;

/// Bounds of a server and of each connection.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Per connection, those that wait for a lock apart; reading from a socket stops beyond it.
    pub requests_in_flight_max: usize,
    /// Per connection: data of writes until answered, of reads until sent. A larger single request runs alone.
    pub bytes_in_flight_max: usize,
    /// What all clients, of this server and others, may hold together.
    pub budget: Arc<Budget>,
    /// Per connection; further ones are refused with ENOLCK.
    pub lock_waiters_max: usize,
    /// Per connection: requests that are carried out at the same time.
    pub threads_max: usize,
    /// Further clients are turned away.
    pub connections_max: usize,
    /// The largest write.
    pub data_bytes_max: usize,
    /// For each part of the ATTACH and its answer.
    pub attach_timeout: Duration,
    /// A client that takes nothing of its answers for so long is cut off: what it holds of the budget others may be
    /// waiting for. The kernel always takes them.
    pub client_timeout: Duration,
    /// What requests of a connection get to come to rest when another takes its place.
    pub replace_timeout: Duration,
    /// What requests in flight get to finish at a shutdown.
    pub shutdown_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            // NFS servers have some hundred threads at the most.
            requests_in_flight_max: 512,
            bytes_in_flight_max: 64 << 20,
            budget: Budget::new(256 << 20),
            lock_waiters_max: 4096,
            threads_max: 32,
            connections_max: 256,
            // The most that the kernel's client sends without further settings.
            data_bytes_max: TRANSFER_BYTES_MAX as usize,
            attach_timeout: Duration::from_secs(30),
            client_timeout: Duration::from_secs(30),
            replace_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// A running server. Dropped without [`Server::shutdown`], it cuts its connections off at once.
pub struct Server(tombolo_transport::Server<Fuse>);

struct Fuse {
    service: Arc<dyn Service>,
    config: ServerConfig,
}

impl Server {
    /// Accepts on a thread of its own until [`Server::shutdown`]. Who may connect is a matter of the socket's mode.
    ///
    /// # Panics
    /// When the machine has no thread or descriptors to start with.
    pub fn serve_unix(listener: UnixListener, service: Arc<dyn Service>, config: ServerConfig) -> Self {
        let connections_max = config.connections_max;
        let protocol = Fuse { service, config };
        Self(tombolo_transport::Server::start(listener, protocol, connections_max))
    }

    /// Connections that are open, attaching ones included.
    pub fn connections(&self) -> usize {
        self.0.registry().len()
    }

    /// Accepts and reads no more, lets requests in flight finish within `shutdown_timeout`, and ends every connection.
    /// What waits for a lock, or was not finished in time, stays unanswered: it is to be sent again.
    pub fn shutdown(mut self) {
        self.0.stop_accepting();
        let connections = self.0.registry().connections();
        connections.iter().for_each(|connection| connection.stop());
        let deadline = Instant::now() + self.0.protocol().config.shutdown_timeout;
        for connection in &connections {
            if !connection.in_flight.wait_until_answered(deadline) {
                tracing::warn!(connection = connection.id, "requests did not finish in time");
            }
        }
    }
}

impl Protocol for Fuse {
    const NAME: &'static str = "fuse";
    type Connection = Connection;
    type Client = Client;

    fn begin(&self, id: u64, socket: UnixStream) -> Connection {
        Connection::new(id, socket, &self.config)
    }

    fn serve(&self, registration: &Registration) {
        connection::run(registration, &*self.service, &self.config);
    }

    fn cut_off(connection: &Connection) {
        connection.end();
    }
}
