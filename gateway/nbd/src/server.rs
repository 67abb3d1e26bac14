//! NBD over Unix sockets: connections, and how a server of them ends.

use crate::Exports;
use crate::connection::{self, Output};
use crate::handshake::Agreed;
use crate::timed_source::SocketSource;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tombolo_transport::{Budget, Protocol, Sink};

type Registration = tombolo_transport::Registration<Nbd>;

/// Bounds of a server and of each connection.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Per connection; reading stops beyond it. 256 is twice what the kernel's NBD client keeps in flight.
    pub requests_in_flight_max: usize,
    /// Per connection: data of writes until answered, of reads until sent. A larger single request runs alone.
    pub bytes_in_flight_max: usize,
    /// What all clients, of this server and others, may hold together.
    pub budget: Arc<Budget>,
    /// Further clients are turned away.
    pub connections_max: usize,
    /// The longest read or write that is taken.
    pub payload_bytes_max: u32,
    /// The longest write that the exports take. Clients are told the lesser of both as the maximum block size, which bounds
    /// their reads too; longer reads of clients that did not ask are answered nonetheless.
    pub write_bytes_max: u32,
    /// From the connection to the choice of an export.
    pub handshake_timeout: Duration,
    /// A client that takes nothing of its answers for so long, or sends nothing of a write's data, is cut off: what it
    /// holds of the budget others may be waiting for.
    pub client_timeout: Duration,
    /// What requests in flight get to finish at a shutdown.
    pub shutdown_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            requests_in_flight_max: 256,
            bytes_in_flight_max: 64 << 20,
            budget: Budget::new(256 << 20),
            connections_max: 256,
            // What qemu and libnbd assume without being told.
            payload_bytes_max: 32 << 20,
            write_bytes_max: 32 << 20,
            handshake_timeout: Duration::from_secs(30),
            client_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// A running server. Dropped without [`Server::shutdown`], it closes its connections at once.
pub struct Server(tombolo_transport::Server<Nbd>);

struct Nbd {
    exports: Arc<dyn Exports>,
    config: ServerConfig,
}

struct Connection {
    socket: Arc<UnixStream>,
    /// From when an export was chosen.
    output: OnceLock<Arc<Output>>,
}

struct Client {
    export_name: String,
    follows_resize: bool,
}

impl Connection {
    fn close_when_idle(&self) {
        match self.output.get() {
            Some(output) => output.close_when_idle(),
            None => self.socket.close(),
        }
    }
}

impl Server {
    /// Accepts on a thread of its own until [`Server::shutdown`].
    ///
    /// # Panics
    /// When the machine has no thread or descriptors to start with.
    pub fn serve_unix(listener: UnixListener, exports: Arc<dyn Exports>, config: ServerConfig) -> Self {
        let connections_max = config.connections_max;
        let protocol = Nbd { exports, config };
        Self(tombolo_transport::Server::start(listener, protocol, connections_max))
    }

    /// Connections that are open, negotiating ones included.
    pub fn connections(&self) -> usize {
        self.0.registry().len()
    }

    /// To be called after the size of `export_name` has changed: closes the connections that negotiated
    /// `x-tombolo:resize` for it, each as soon as its requests in flight are answered. Others keep the old size.
    pub fn disconnect_resized(&self, export_name: &str) {
        let table = self.0.registry().lock();
        table
            .clients()
            .filter(|(_, client, _)| client.follows_resize && client.export_name == export_name)
            .for_each(|(_, _, connection)| connection.close_when_idle());
    }

    /// Accepts no more, lets requests in flight finish within `shutdown_timeout`, and closes every connection.
    pub fn shutdown(mut self) {
        self.0.stop_accepting();
        let connections = self.0.registry().connections();
        connections.iter().for_each(|connection| connection.close_when_idle());
        let deadline = Instant::now() + self.0.protocol().config.shutdown_timeout;
        let left = self.0.registry().wait_until_empty(deadline);
        if left > 0 {
            tracing::warn!(
                connections = left,
                "requests did not finish in time; their connections are closed"
            );
        }
    }
}

impl Protocol for Nbd {
    const NAME: &'static str = "nbd";
    type Connection = Connection;
    type Client = Client;

    fn begin(&self, _id: u64, socket: UnixStream) -> Connection {
        Connection {
            socket: Arc::new(socket),
            output: OnceLock::new(),
        }
    }

    fn serve(&self, registration: &Registration) {
        let socket = &registration.connection.socket;
        let source = SocketSource::new(Arc::clone(socket), self.config.client_timeout);
        let outcome = connection::run(
            source,
            socket.clone(),
            &*self.exports,
            &self.config,
            |agreed, output| {
                enter_transmission(registration, agreed, output);
            },
        );
        if let Err(error) = outcome {
            tracing::warn!(connection = registration.id, error = %Causes(&error), "an NBD connection has ended");
        }
    }

    fn cut_off(connection: &Connection) {
        match connection.output.get() {
            Some(output) => output.close(),
            None => connection.socket.close(),
        }
    }
}

fn enter_transmission(registration: &Registration, agreed: &Agreed, output: &Arc<Output>) {
    registration.connection.output.get_or_init(|| Arc::clone(output));
    let mut table = registration.registry.lock();
    let client = Client {
        export_name: agreed.name.clone(),
        follows_resize: agreed.contexts.resize,
    };
    table.set_client(registration.id, client);
    // A resize between the negotiation and this moment has not found the client in the registry.
    let is_resized = agreed.contexts.resize && agreed.export.info().size_bytes != agreed.info.size_bytes;
    if is_resized || table.is_stopping() {
        output.close_when_idle();
    }
}

/// An error and all that lies behind it, in one line.
struct Causes<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(out, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
