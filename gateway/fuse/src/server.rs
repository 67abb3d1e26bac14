//! The listening socket, its connections, and the devices that come over them.
//!
//! | thread         | lives                                | does                                            |
//! |----------------|--------------------------------------|-------------------------------------------------|
//! | `fuse-accept`  | until shutdown                       | accepts, up to `connections_max`                |
//! | `fuse-N`       | as long as its connection            | attaches; then reads the socket, or watches it  |
//! | `fuse-N-M`     | from when it is first needed         | reads and carries out requests of connection N  |
//! | `fuse-writer`  | from the first congestion on         | writes what a full socket held up               |

mod connection;
mod device;
mod device_io;
mod input;
mod intake;
mod messages;
mod registry;
mod stream;

use crate::service::Service;
use connection::Connection;
use registry::Registry;
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tombolo_transport::Budget;
use tombolo_transport::socket::{enlarge_send_buffer, wait_for_either};

/// How long to leave a machine without free descriptors or memory alone.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// What connections get to come to rest after they were cut off.
const ABORT_GRACE: Duration = Duration::from_secs(2);

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
            data_bytes_max: 1 << 20,
            attach_timeout: Duration::from_secs(30),
            client_timeout: Duration::from_secs(30),
            replace_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// A running server. Dropped without [`Server::shutdown`], it cuts its connections off at once.
pub struct Server {
    shared: Arc<Shared>,
    /// Dropping it wakes the accepting thread for good.
    stop: Option<UnixStream>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    service: Arc<dyn Service>,
    config: ServerConfig,
    registry: Arc<Registry>,
}

impl Server {
    /// Accepts on a thread of its own until [`Server::shutdown`]. Who may connect is a matter of the socket's mode.
    ///
    /// # Panics
    /// When the machine has no thread or descriptors to start with.
    pub fn serve_unix(listener: UnixListener, service: Arc<dyn Service>, config: ServerConfig) -> Self {
        let shared = Arc::new(Shared {
            service,
            config,
            registry: Arc::default(),
        });
        let (stop, stopped) = UnixStream::pair().expect("a socket pair to stop the server with");
        listener
            .set_nonblocking(true)
            .expect("a listening socket can be made non-blocking");
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("fuse-accept".into())
            .spawn(move || accept_all(&listener, &stopped, &accepting))
            .expect("a thread to accept connections on");
        Self {
            shared,
            stop: Some(stop),
            acceptor: Some(acceptor),
        }
    }

    /// Connections that are open, attaching ones included.
    pub fn connections(&self) -> usize {
        self.shared.registry.len()
    }

    /// Accepts and reads no more, lets requests in flight finish within `shutdown_timeout`, and ends every connection.
    /// What waits for a lock, or was not finished in time, stays unanswered: it is to be sent again.
    pub fn shutdown(mut self) {
        self.stop_accepting();
        let connections = self.shared.registry.connections();
        connections.iter().for_each(|connection| connection.stop());
        let deadline = Instant::now() + self.shared.config.shutdown_timeout;
        for connection in &connections {
            if !connection.in_flight.wait_until_answered(deadline) {
                tracing::warn!(connection = connection.id, "requests did not finish in time");
            }
        }
    }

    fn stop_accepting(&mut self) {
        self.shared.registry.stop();
        drop(self.stop.take());
        if let Some(acceptor) = self.acceptor.take() {
            // It has no result; a panic there has been reported by the panic hook.
            let _ = acceptor.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting();
        self.shared
            .registry
            .connections()
            .iter()
            .for_each(|connection| connection.end());
        let left = self.shared.registry.wait_until_empty(Instant::now() + ABORT_GRACE);
        if left > 0 {
            tracing::error!(connections = left, "requests hold up the end of their connection");
        }
    }
}

fn accept_all(listener: &UnixListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    while !shared.registry.is_stopping() {
        match wait_for_either(listener, stopped) {
            Ok(true) => accept_one(listener, shared),
            Ok(false) => return,
            Err(error) => {
                tracing::error!(%error, "waiting for FUSE clients");
                thread::sleep(ACCEPT_RETRY_DELAY);
            }
        }
    }
}

fn accept_one(listener: &UnixListener, shared: &Arc<Shared>) {
    let outcome = listener
        .accept()
        .and_then(|(stream, _)| stream.set_nonblocking(false).map(|()| stream))
        .and_then(|stream| start_connection(stream, shared));
    match outcome {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
        Err(error) => {
            tracing::error!(%error, "a FUSE client could not be accepted");
            thread::sleep(ACCEPT_RETRY_DELAY);
        }
    }
}

fn start_connection(stream: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    enlarge_send_buffer(&stream);
    let make = |id, stream| Connection::new(id, stream, &shared.config);
    let Some(registration) = shared.registry.register(shared.config.connections_max, stream, make) else {
        tracing::warn!(
            connections_max = shared.config.connections_max,
            "a FUSE client is turned away: there are as many connections as connections_max allows"
        );
        return Ok(());
    };
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name(format!("fuse-{}", registration.connection.id))
        .spawn(move || connection::run(&registration, &*shared.service, &shared.config))?;
    Ok(())
}
