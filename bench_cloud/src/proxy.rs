//! Stands between a system and its store: passes TCP on as it is, and counts what passes.
//!
//! A thread for each direction of a connection, as a benchmark has few of them.

use crate::error::BenchError;
use crate::method::traffic::{Connection, Traffic};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 64 << 10;
/// More than any client opens; further ones are closed at once.
const CONNECTIONS_MAX: usize = 1_024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens until it is dropped. Connections that are open then go on until one of their ends closes them.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    counted: Arc<Counted>,
}

#[derive(Debug)]
struct Counted {
    begun: Instant,
    traffic: Mutex<Traffic>,
    open: AtomicUsize,
    has_ended: AtomicBool,
}

impl Counted {
    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Counts are whole after each piece, so that a thread's panic harms none.
    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Begins to listen. Times are from `begun` on.
    pub fn start(listen: &str, store: SocketAddr, begun: Instant) -> Result<Self, BenchError> {
        let failed = |error| BenchError::Listen {
            address: listen.to_owned(),
            error,
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let counted = Arc::new(Counted {
            begun,
            traffic: Mutex::default(),
            open: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&counted);
        thread::spawn(move || accept(&listener, store, &accepting));
        Ok(Self { address, counted })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Microseconds since it was begun, as in its counts.
    pub fn now_us(&self) -> u64 {
        self.counted.now_us()
    }

    /// All that has passed since the last [`take`](Self::take).
    pub fn bytes(&self) -> u64 {
        self.counted.traffic().bytes()
    }

    /// What has passed, and begins to count anew.
    pub fn take(&self) -> Traffic {
        std::mem::take(&mut *self.counted.traffic())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.counted.has_ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
    }
}

fn accept(listener: &TcpListener, store: SocketAddr, counted: &Arc<Counted>) {
    for client in listener.incoming() {
        if counted.has_ended.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else { continue };
        if counted.open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            counted.open.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let counted = Arc::clone(counted);
        thread::spawn(move || {
            let _ = serve(client, store, &counted);
            counted.open.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

fn serve(client: TcpStream, store: SocketAddr, counted: &Arc<Counted>) -> std::io::Result<()> {
    let server = TcpStream::connect_timeout(&store, CONNECT_TIMEOUT)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let connection = Mutex::new(Connection::opened(&mut counted.traffic()));
    let (mut from_client, mut to_client) = (client.try_clone()?, client);
    let (mut from_server, mut to_server) = (server.try_clone()?, server);
    let with = |count: &dyn Fn(&mut Connection, u64, &mut Traffic)| {
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        count(&mut connection, counted.now_us(), &mut counted.traffic());
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pass(&mut from_client, &mut to_server, &|bytes: &[u8]| {
                with(&|connection, at_us, traffic| connection.sent(at_us, bytes, traffic));
            });
        });
        pass(&mut from_server, &mut to_client, &|bytes: &[u8]| {
            with(&|connection, at_us, traffic| connection.received(at_us, bytes, traffic));
        });
    });
    Ok(())
}

/// Until an end or an error of one side, which is passed on as an end.
fn pass(from: &mut TcpStream, to: &mut TcpStream, count: &dyn Fn(&[u8])) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => {
                count(&buffer[..bytes]);
                if to.write_all(&buffer[..bytes]).is_err() {
                    // Or the other direction would wait for a side that hears nobody.
                    let _ = from.shutdown(Shutdown::Both);
                    break;
                }
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"GET /bucket/key HTTP/1.1\r\n\r\n";

    /// Answers each connection's first request with 10,000 bytes.
    fn store() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                client.read_exact(&mut [0; REQUEST.len()]).unwrap();
                client
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
                    .unwrap();
                client.write_all(&[7; 10_000]).unwrap();
            }
        });
        address
    }

    fn get(address: SocketAddr) -> Vec<u8> {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(REQUEST).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    }

    #[test]
    fn bytes_pass_unchanged_and_are_counted_once() {
        let proxy = Proxy::start("127.0.0.1:0", store(), Instant::now()).unwrap();
        let answer = get(proxy.address());
        assert!(answer.ends_with(&[7; 10_000]));
        let traffic = proxy.take();
        assert_eq!(
            (traffic.connections, traffic.fetches, traffic.fetched_bytes),
            (1, 1, 10_000)
        );
        assert_eq!(traffic.received_bytes, answer.len() as u64);
        assert!(traffic.fetch_times.first_us.unwrap() <= proxy.now_us());
        assert_eq!(proxy.bytes(), 0);
        get(proxy.address());
        assert_eq!(proxy.take().connections, 1);
    }

    #[test]
    fn a_store_that_is_away_is_seen_as_a_closed_connection() {
        let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = Proxy::start("127.0.0.1:0", away, Instant::now()).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let mut answer = Vec::new();
        // An end or a reset, but no wait.
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }

    #[test]
    fn an_address_in_use_is_refused() {
        let proxy = Proxy::start("127.0.0.1:0", store(), Instant::now()).unwrap();
        let error = Proxy::start(&proxy.address().to_string(), store(), Instant::now()).unwrap_err();
        assert!(error.to_string().contains("--listen"), "{error}");
    }
}
