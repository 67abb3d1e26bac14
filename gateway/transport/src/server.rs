//! The listening socket and its connections.
//!
//! | thread              | lives                        | does                             |
//! |---------------------|------------------------------|----------------------------------|
//! | `<protocol>-accept` | until the server stops       | accepts, up to `connections_max` |
//! | `<protocol>-N`      | as long as its connection    | serves it                        |

use crate::registry::{Registration, Registry};
use crate::socket::{enlarge_send_buffer, wait_for_either};
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long to leave a machine without free descriptors or memory alone.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// What connections get to come to rest after they were cut off.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// What clients and server say to each other.
pub trait Protocol: Send + Sync + Sized + 'static {
    /// For people, and for the names of threads.
    const NAME: &'static str;
    /// One connection, from its first byte on.
    type Connection: Send + Sync;
    /// What is known of a client from when it has said what it wants.
    type Client: Send;

    /// A client has connected. Must not wait.
    fn begin(&self, id: u64, socket: UnixStream) -> Self::Connection;

    /// Serves one client on a thread of its connection's own, and returns when nothing of it is left.
    fn serve(&self, registration: &Registration<Self>);

    /// Has [`Protocol::serve`] return soon, whatever is under way. Does not wait for it.
    fn cut_off(connection: &Self::Connection);
}

/// A running server. When it is dropped, it cuts its connections off.
pub struct Server<P: Protocol> {
    protocol: Arc<P>,
    registry: Arc<Registry<P>>,
    /// Dropping it wakes the accepting thread for good.
    stop: Option<UnixStream>,
    acceptor: Option<JoinHandle<()>>,
}

impl<P: Protocol> Server<P> {
    /// Accepts on a thread of its own until [`Server::stop_accepting`].
    ///
    /// # Panics
    /// When the machine has no thread or descriptors to start with.
    pub fn start(listener: UnixListener, protocol: P, connections_max: usize) -> Self {
        let (stop, stopped) = UnixStream::pair().expect("a socket pair to stop the server with");
        listener
            .set_nonblocking(true)
            .expect("a listening socket can be made non-blocking");
        let protocol = Arc::new(protocol);
        let registry = Arc::new(Registry::new(connections_max));
        let accepting = Acceptor {
            listener,
            stopped,
            protocol: Arc::clone(&protocol),
            registry: Arc::clone(&registry),
        };
        let acceptor = thread::Builder::new()
            .name(format!("{}-accept", P::NAME))
            .spawn(move || accepting.run())
            .expect("a thread to accept connections on");
        Self {
            protocol,
            registry,
            stop: Some(stop),
            acceptor: Some(acceptor),
        }
    }

    /// What its connections speak.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Who is connected.
    pub fn registry(&self) -> &Registry<P> {
        &self.registry
    }

    /// Takes no further connections.
    pub fn stop_accepting(&mut self) {
        self.registry.stop();
        drop(self.stop.take());
        if let Some(acceptor) = self.acceptor.take() {
            // It has no result; a panic there has been reported by the panic hook.
            let _ = acceptor.join();
        }
    }
}

impl<P: Protocol> Drop for Server<P> {
    fn drop(&mut self) {
        self.stop_accepting();
        let connections = self.registry.connections();
        connections.iter().for_each(|connection| P::cut_off(connection));
        let left = self.registry.wait_until_empty(Instant::now() + ABORT_GRACE);
        if left > 0 {
            tracing::error!(
                protocol = P::NAME,
                connections = left,
                "requests hold up the end of their connection"
            );
        }
    }
}

struct Acceptor<P: Protocol> {
    listener: UnixListener,
    stopped: UnixStream,
    protocol: Arc<P>,
    registry: Arc<Registry<P>>,
}

impl<P: Protocol> Acceptor<P> {
    fn run(&self) {
        while !self.registry.lock().is_stopping() {
            match wait_for_either(&self.listener, &self.stopped) {
                Ok(true) => self.accept(),
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(protocol = P::NAME, %error, "waiting for clients");
                    thread::sleep(ACCEPT_RETRY_DELAY);
                }
            }
        }
    }

    fn accept(&self) {
        let outcome = self
            .listener
            .accept()
            .and_then(|(socket, _)| socket.set_nonblocking(false).map(|()| socket))
            .and_then(|socket| self.start_connection(socket));
        match outcome {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                tracing::error!(protocol = P::NAME, %error, "a client could not be accepted");
                thread::sleep(ACCEPT_RETRY_DELAY);
            }
        }
    }

    fn start_connection(&self, socket: UnixStream) -> io::Result<()> {
        enlarge_send_buffer(&socket);
        let Some(registration) = self.registry.register(&self.protocol, socket) else {
            tracing::warn!(
                protocol = P::NAME,
                connections_max = self.registry.connections_max(),
                "a client is refused: there are as many connections as connections_max allows"
            );
            return Ok(());
        };
        let protocol = Arc::clone(&self.protocol);
        thread::Builder::new()
            .name(format!("{}-{}", P::NAME, registration.id))
            .spawn(move || protocol.serve(&registration))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
