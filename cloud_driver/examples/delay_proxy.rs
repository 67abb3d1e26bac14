//! A path with a round trip, for measurements on one machine: passes TCP on, each byte half a round trip later, in both directions.
//! With a rate it is a link besides, which all connections share in each direction; without one only latency is bounded. With a second
//! rate no connection has more than that of it.
//!
//! ```text
//! delay_proxy LISTEN-ADDRESS:PORT TO-ADDRESS:PORT ROUND-TRIP-MS [LINK-MIB-S [CONNECTION-MIB-S]]
//! ```
//!
//! A new connection costs one round trip before its first byte, as a handshake does. Slow start and loss are not modelled.

use bytes::BytesMut;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::channel;
use tokio::time::{Instant, sleep, sleep_until};

const CHUNK_BYTES: usize = 256 << 10;
/// Of one connection and direction: 256 MiB at the most.
const CHUNKS_UNDER_WAY: usize = 1_024;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [listen, to, round_trip_ms, rates @ ..] if rates.len() <= 2 => serve(listen, to, round_trip_ms, rates).await,
        _ => Err(
            "usage: delay_proxy LISTEN-ADDRESS:PORT TO-ADDRESS:PORT ROUND-TRIP-MS [LINK-MIB-S [CONNECTION-MIB-S]]"
                .into(),
        ),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delay_proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What takes so many bytes a second, one after the other.
struct Line {
    /// `None`: as fast as it goes.
    bytes_per_s: Option<f64>,
    /// When it has sent what it was given.
    free_at: Mutex<Instant>,
}

impl Line {
    fn new(bytes_per_s: Option<f64>) -> Self {
        Self {
            bytes_per_s,
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// When so many bytes have left, after all that was given to it before.
    fn departure(&self, bytes: usize) -> Instant {
        let now = Instant::now();
        let Some(bytes_per_s) = self.bytes_per_s else {
            return now;
        };
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now) + Duration::from_secs_f64(bytes as f64 / bytes_per_s);
        *free_at
    }
}

/// One direction of the path.
struct Direction {
    one_way: Duration,
    /// Of all connections.
    link: Line,
    /// Of each.
    connection_bytes_per_s: Option<f64>,
}

async fn serve(listen: &str, to: &str, round_trip_ms: &str, rates: &[String]) -> Result<(), Failure> {
    let one_way = Duration::from_secs_f64(round_trip_ms.parse::<f64>()? / 2_000.0);
    let rate = |index: usize| {
        let mib_s = rates.get(index).map(|mib_s| mib_s.parse::<f64>()).transpose()?;
        Ok::<_, Failure>(mib_s.map(|mib_s| mib_s * f64::from(1 << 20)))
    };
    let (link, connection_bytes_per_s) = (rate(0)?, rate(1)?);
    let direction = || {
        Arc::new(Direction {
            one_way,
            link: Line::new(link),
            connection_bytes_per_s,
        })
    };
    let (up, down) = (direction(), direction());
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (client, _) = listener.accept().await?;
        let (to, up, down) = (to.to_owned(), up.clone(), down.clone());
        tokio::spawn(async move {
            // The client's own handshake took no time.
            sleep(2 * one_way).await;
            if let Err(error) = connect(client, &to, up, down).await {
                eprintln!("delay_proxy: {error}");
            }
        });
    }
}

async fn connect(client: TcpStream, to: &str, up: Arc<Direction>, down: Arc<Direction>) -> Result<(), Failure> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::spawn(pass(from_client, to_server, up));
    pass(from_server, to_client, down).await;
    Ok(())
}

/// An end of one direction, by a close or an error, is passed on as an end.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, direction: Arc<Direction>) {
    let (sender, mut receiver) = channel::<(Instant, BytesMut)>(CHUNKS_UNDER_WAY);
    let own = Line::new(direction.connection_bytes_per_s);
    let reading = async move {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
            match from.read_buf(&mut chunk).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            let departure = direction.link.departure(chunk.len()).max(own.departure(chunk.len()));
            if sender.send((departure + direction.one_way, chunk)).await.is_err() {
                return;
            }
            if direction.link.bytes_per_s.is_some() {
                // Who sends faster than the link finds it full.
                sleep_until(departure).await;
            }
        }
    };
    let writing = async move {
        while let Some((at, chunk)) = receiver.recv().await {
            sleep_until(at).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}
