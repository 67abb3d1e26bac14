//! The listening socket and its connections.
//!
//! | thread         | lives                            | does                                     |
//! |----------------|----------------------------------|------------------------------------------|
//! | `nbd-accept`   | until shutdown                   | accepts, up to `connections_max`         |
//! | `nbd-N`        | as long as its connection        | negotiates, reads requests, submits them |
//! | `nbd-writer`   | from the first congestion on     | writes replies that a full socket held up|

use crate::Exports;
use crate::connection::{self, Output};
use crate::handshake::Agreed;
use crate::timed_source::SocketSource;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tombolo_transport::socket::{enlarge_send_buffer, wait_for_either};
use tombolo_transport::{Budget, Sink};

/// How long to leave a machine without free descriptors or memory alone.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// What connections get to notice that their socket was closed under them.
const ABORT_GRACE: Duration = Duration::from_secs(2);

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
pub struct Server {
    shared: Arc<Shared>,
    /// Dropping or writing it wakes the accepting thread for good.
    stop: Option<UnixStream>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    exports: Arc<dyn Exports>,
    config: ServerConfig,
    registry: Mutex<Registry>,
    /// A connection has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Registry {
    connections: HashMap<u64, Entry>,
    id_next: u64,
    stopping: bool,
}

struct Entry {
    sink: Arc<dyn Sink>,
    transmission: Option<InTransmission>,
}

struct InTransmission {
    export_name: String,
    follows_resize: bool,
    output: Arc<Output>,
}

impl Entry {
    fn close_when_idle(&self) {
        match &self.transmission {
            Some(transmission) => transmission.output.close_when_idle(),
            None => self.sink.close(),
        }
    }

    fn close(&self) {
        match &self.transmission {
            Some(transmission) => transmission.output.close(),
            None => self.sink.close(),
        }
    }
}

impl Server {
    /// Accepts on a thread of its own until [`Server::shutdown`].
    ///
    /// # Panics
    /// When the machine has no thread or descriptors to start with.
    pub fn serve_unix(listener: UnixListener, exports: Arc<dyn Exports>, config: ServerConfig) -> Self {
        let shared = Arc::new(Shared {
            exports,
            config,
            registry: Mutex::default(),
            ended: Condvar::new(),
        });
        let (stop, stopped) = UnixStream::pair().expect("a socket pair to stop the server with");
        listener
            .set_nonblocking(true)
            .expect("a listening socket can be made non-blocking");
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("nbd-accept".into())
            .spawn(move || accept_all(&listener, &stopped, &accepting))
            .expect("a thread to accept connections on");
        Self {
            shared,
            stop: Some(stop),
            acceptor: Some(acceptor),
        }
    }

    /// Connections that are open, negotiating ones included.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// To be called after the size of `export_name` has changed: closes the connections that negotiated
    /// `x-tombolo:resize` for it, each as soon as its requests in flight are answered. Others keep the old size.
    pub fn disconnect_resized(&self, export_name: &str) {
        let registry = self.shared.lock();
        let transmissions = registry
            .connections
            .values()
            .filter_map(|entry| entry.transmission.as_ref());
        transmissions
            .filter(|transmission| transmission.follows_resize && transmission.export_name == export_name)
            .for_each(|transmission| transmission.output.close_when_idle());
    }

    /// Accepts no more, lets requests in flight finish within `shutdown_timeout`, and closes every connection.
    pub fn shutdown(mut self) {
        self.stop_accepting();
        self.shared.lock().connections.values().for_each(Entry::close_when_idle);
        let left = self.shared.wait_for_end(self.shared.config.shutdown_timeout);
        if left > 0 {
            tracing::warn!(
                connections = left,
                "requests did not finish in time; their connections are closed"
            );
        }
    }

    fn stop_accepting(&mut self) {
        self.shared.lock().stopping = true;
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
        self.shared.lock().connections.values().for_each(Entry::close);
        let left = self.shared.wait_for_end(ABORT_GRACE);
        if left > 0 {
            tracing::error!(connections = left, "an export holds up its connection's thread");
        }
    }
}

impl Shared {
    /// Every critical section leaves the registry consistent.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how many connections are left.
    fn wait_for_end(&self, timeout: Duration) -> usize {
        let registry = self.lock();
        let (registry, _) = self
            .ended
            .wait_timeout_while(registry, timeout, |registry| !registry.connections.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        registry.connections.len()
    }

    /// `None` when there are too many.
    fn register(self: &Arc<Self>, sink: Arc<dyn Sink>) -> Option<Registration> {
        let mut registry = self.lock();
        if registry.connections.len() >= self.config.connections_max {
            return None;
        }
        let id = registry.id_next;
        registry.id_next += 1;
        let transmission = None;
        registry.connections.insert(id, Entry { sink, transmission });
        Some(Registration {
            shared: Arc::clone(self),
            id,
        })
    }
}

/// A connection's place in the registry, given up when its thread ends.
struct Registration {
    shared: Arc<Shared>,
    id: u64,
}

impl Registration {
    fn enter_transmission(&self, agreed: &Agreed, output: &Arc<Output>) {
        let mut registry = self.shared.lock();
        if registry.stopping {
            output.close_when_idle();
        }
        let Some(entry) = registry.connections.get_mut(&self.id) else {
            return;
        };
        entry.transmission = Some(InTransmission {
            export_name: agreed.name.clone(),
            follows_resize: agreed.contexts.resize,
            output: Arc::clone(output),
        });
        // A resize between the negotiation and this moment has not found the connection in the registry.
        if agreed.contexts.resize && agreed.export.info().size_bytes != agreed.info.size_bytes {
            output.close_when_idle();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.lock().connections.remove(&self.id);
        self.shared.ended.notify_all();
    }
}

fn accept_all(listener: &UnixListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    while !shared.lock().stopping {
        match wait_for_either(listener, stopped) {
            Ok(true) => accept_one(listener, shared),
            Ok(false) => return,
            Err(error) => {
                tracing::error!(%error, "waiting for NBD clients");
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
            tracing::error!(%error, "an NBD client could not be accepted");
            thread::sleep(ACCEPT_RETRY_DELAY);
        }
    }
}

fn start_connection(stream: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    enlarge_send_buffer(&stream);
    let stream = Arc::new(stream);
    let sink: Arc<dyn Sink> = stream.clone();
    let Some(registration) = shared.register(Arc::clone(&sink)) else {
        tracing::warn!(
            connections_max = shared.config.connections_max,
            "an NBD client is turned away: there are as many connections as connections_max allows"
        );
        return Ok(());
    };
    thread::Builder::new()
        .name(format!("nbd-{}", registration.id))
        .spawn(move || run_connection(stream, sink, &registration))?;
    Ok(())
}

fn run_connection(stream: Arc<UnixStream>, sink: Arc<dyn Sink>, registration: &Registration) {
    let shared = &registration.shared;
    let source = SocketSource::new(stream, shared.config.client_timeout);
    let outcome = connection::run(source, sink, &*shared.exports, &shared.config, |agreed, output| {
        registration.enter_transmission(agreed, output);
    });
    if let Err(error) = outcome {
        tracing::warn!(connection = registration.id, error = %Causes(&error), "an NBD connection has ended");
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
