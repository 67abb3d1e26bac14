//! A small HTTP proxy that does harm: one request per connection, a fault chosen per request from a seed.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tombolo_base::Prng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// 503 with `SlowDown`; the server never sees the request.
    SlowDown,
    /// 500; the server never sees the request.
    InternalError,
    /// The connection is reset before the request reaches the server.
    ResetBefore,
    /// The request is carried out, then the connection is reset without an answer.
    ReplyLost,
    /// Half of the answer's body, then the end.
    Truncated,
    /// The request is swallowed and nothing ever comes back.
    BlackHole,
}

pub struct Proxy {
    pub address: SocketAddr,
    pub faults: Arc<AtomicU64>,
    accept: JoinHandle<()>,
}

struct Script {
    prng: Mutex<Prng>,
    faults: Vec<Fault>,
    permille: u64,
    count: Arc<AtomicU64>,
}

impl Script {
    fn choose(&self) -> Fault {
        let mut prng = self.prng.lock().unwrap();
        if !prng.chance(self.permille) {
            return Fault::None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.faults[prng.below(self.faults.len() as u64) as usize]
    }
}

impl Proxy {
    /// Every request suffers one of `faults` with a chance of `permille`.
    pub async fn start(upstream: SocketAddr, faults: &[Fault], permille: u64, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let script = Arc::new(Script {
            prng: Mutex::new(Prng::new(seed)),
            faults: faults.to_vec(),
            permille,
            count: Arc::clone(&count),
        });
        let accept = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                tokio::spawn(async move {
                    // A client that goes away is its own affair.
                    let _ = serve(client, upstream, &script).await;
                });
            }
        });
        Self {
            address,
            faults: count,
            accept,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn serve(mut client: TcpStream, upstream: SocketAddr, script: &Script) -> std::io::Result<()> {
    let request = read_request(&mut client).await?;
    match script.choose() {
        Fault::None => client.write_all(&exchange(upstream, &request).await?).await,
        Fault::SlowDown => refuse(&mut client, "503 Slow Down", "SlowDown").await,
        Fault::InternalError => refuse(&mut client, "500 Internal Server Error", "InternalError").await,
        Fault::ResetBefore => reset(client),
        Fault::ReplyLost => {
            exchange(upstream, &request).await?;
            reset(client)
        }
        Fault::Truncated => {
            let reply = exchange(upstream, &request).await?;
            let head_bytes = head_end(&reply).unwrap_or(reply.len());
            client
                .write_all(&reply[..head_bytes + (reply.len() - head_bytes) / 2])
                .await
        }
        Fault::BlackHole => {
            // Until the client gives up.
            let mut ignored = [0; 64];
            while client.read(&mut ignored).await? > 0 {}
            Ok(())
        }
    }
}

async fn refuse(client: &mut TcpStream, status: &str, code: &str) -> std::io::Result<()> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>");
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(reply.as_bytes()).await
}

/// Closing with SO_LINGER zero sends RST.
fn reset(client: TcpStream) -> std::io::Result<()> {
    client.set_zero_linger()
}

async fn exchange(upstream: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(request).await?;
    let mut reply = Vec::new();
    server.read_to_end(&mut reply).await?;
    Ok(reply)
}

/// The whole request, with `Connection: close` added so that the answer ends with the connection. That header is not
/// among those that a signature covers.
async fn read_request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        if let Some(head_bytes) = head_end(&request) {
            let body_bytes = content_length(&request[..head_bytes]);
            if request.len() >= head_bytes + body_bytes {
                request.splice(head_bytes - 2..head_bytes - 2, *b"Connection: close\r\n");
                return Ok(request);
            }
        }
        let read = client.read(&mut buffer).await?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&buffer[..read]);
    }
}

fn head_end(message: &[u8]) -> Option<usize> {
    message
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|index| index + 4)
}

fn content_length(head: &[u8]) -> usize {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}
