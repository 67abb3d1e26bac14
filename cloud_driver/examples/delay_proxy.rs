//! A path with a round trip, for measurements on one machine: passes TCP on, each byte half a round trip later, in both directions.
//! As much may be under way as the path takes, so it bounds latency and not throughput.
//!
//! ```text
//! delay_proxy LISTEN-ADDRESS:PORT TO-ADDRESS:PORT ROUND-TRIP-MS
//! ```
//!
//! A new connection costs one round trip before its first byte, as a handshake does. Slow start and loss are not modelled.

use bytes::BytesMut;
use std::process::ExitCode;
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
    let [listen, to, round_trip_ms] = &words[..] else {
        eprintln!("usage: delay_proxy LISTEN-ADDRESS:PORT TO-ADDRESS:PORT ROUND-TRIP-MS");
        return ExitCode::FAILURE;
    };
    match serve(listen, to, round_trip_ms).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delay_proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(listen: &str, to: &str, round_trip_ms: &str) -> Result<(), Failure> {
    let one_way = Duration::from_secs_f64(round_trip_ms.parse::<f64>()? / 2_000.0);
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (client, _) = listener.accept().await?;
        let to = to.to_owned();
        tokio::spawn(async move {
            // The client's own handshake took no time.
            sleep(2 * one_way).await;
            if let Err(error) = connect(client, &to, one_way).await {
                eprintln!("delay_proxy: {error}");
            }
        });
    }
}

async fn connect(client: TcpStream, to: &str, one_way: Duration) -> Result<(), Failure> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::spawn(pass(from_client, to_server, one_way));
    pass(from_server, to_client, one_way).await;
    Ok(())
}

/// An end of one direction, by a close or an error, is passed on as an end.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, one_way: Duration) {
    let (sender, mut receiver) = channel::<(Instant, BytesMut)>(CHUNKS_UNDER_WAY);
    let reading = async move {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
            match from.read_buf(&mut chunk).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            if sender.send((Instant::now() + one_way, chunk)).await.is_err() {
                return;
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
