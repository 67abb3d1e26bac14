//! A store of limited capacity, for measurements on one machine: stands before an S3 server, serves so many requests at once and no
//! more, and each takes a while; the others wait in the order in which they came.
//!
//! ```text
//! capacity_proxy LISTEN-ADDRESS:PORT TO-ADDRESS:PORT SERVERS SERVICE-MS MS-PER-MIB [LOG]
//! ```
//!
//! A request is served for `SERVICE-MS`, give or take a third, and `MS-PER-MIB` for each MiB of its body or its answer's; longer if the
//! server behind takes longer. So the capacity is `SERVERS / SERVICE-MS` small requests. Each line of the log is a request that was
//! answered: when (Unix time in microseconds), method, path, status, bytes of its body, how long it waited for a server, and the times
//! from the marks in its body. A mark is `MARK` and a time in little endian; who writes blocks that begin with marks learns from the
//! log when each of them was in the store, as long as they are neither compressed nor encrypted.
//!
//! Bodies are held whole. It knows requests with a length, and answers with a length or in chunks, which is what S3 needs.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tombolo_base::Prng;

const MARK: &[u8; 16] = b"written-at-micro";
/// From one mark to the next at the least.
const MARKED_BYTES: usize = 4096;
const HEAD_BYTES_MAX: usize = 64 << 10;
const MIB: f64 = (1 << 20) as f64;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Store {
    to: String,
    servers: Semaphore,
    service: Duration,
    per_mib: Duration,
    chance: Mutex<Prng>,
    log: Option<Mutex<std::fs::File>>,
}

/// A request or an answer.
struct Message {
    head: Vec<u8>,
    body: Vec<u8>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [listen, to, numbers @ ..] if (3..=4).contains(&numbers.len()) => serve(listen, to, numbers).await,
        _ => {
            Err("usage: capacity_proxy LISTEN-ADDRESS:PORT TO-ADDRESS:PORT SERVERS SERVICE-MS MS-PER-MIB [LOG]".into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capacity_proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(listen: &str, to: &str, numbers: &[String]) -> Result<(), Failure> {
    let milliseconds = |word: &str| Ok::<_, Failure>(Duration::try_from_secs_f64(word.parse::<f64>()? / 1e3)?);
    let store = Arc::new(Store {
        to: to.to_owned(),
        servers: Semaphore::new(numbers[0].parse()?),
        service: milliseconds(&numbers[1])?,
        per_mib: milliseconds(&numbers[2])?,
        chance: Mutex::new(Prng::new(1)),
        log: numbers.get(3).map(std::fs::File::create).transpose()?.map(Mutex::new),
    });
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (client, _) = listener.accept().await?;
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            if let Err(error) = store.pass(client).await {
                eprintln!("capacity_proxy: {error}");
            }
        });
    }
}

impl Store {
    /// The requests of one connection, one after the other.
    async fn pass(&self, client: TcpStream) -> Result<(), Failure> {
        client.set_nodelay(true)?;
        let server = TcpStream::connect(&self.to).await?;
        server.set_nodelay(true)?;
        let (from_client, mut to_client) = client.into_split();
        let (from_server, mut to_server) = server.into_split();
        let (mut from_client, mut from_server) = (BufReader::new(from_client), BufReader::new(from_server));
        while let Some(head) = head(&mut from_client).await? {
            if field(&head, "expect").is_some() {
                to_client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            let request = with_body(head, &mut from_client).await?;
            let ready = Instant::now();
            let permit = self.servers.acquire().await?;
            let begun = Instant::now();
            to_server.write_all(&request.head).await?;
            to_server.write_all(&request.body).await?;
            let Some(answer) = answer(&mut from_server, &request).await? else {
                return Ok(());
            };
            sleep_until(begun + self.takes(request.body.len() + answer.body.len())).await;
            drop(permit);
            self.note(&request, &answer, begun - ready)?;
            to_client.write_all(&answer.head).await?;
            to_client.write_all(&answer.body).await?;
        }
        Ok(())
    }

    fn takes(&self, bytes: usize) -> Duration {
        let drawn = self.chance.lock().unwrap_or_else(PoisonError::into_inner).below(1_000);
        let give_or_take = (drawn as f64 / 1e3 - 0.5) * 2.0 / 3.0;
        self.service.mul_f64(1.0 + give_or_take) + self.per_mib.mul_f64(bytes as f64 / MIB)
    }

    fn note(&self, request: &Message, answer: &Message, waited: Duration) -> Result<(), Failure> {
        use std::io::Write as _;
        let Some(log) = &self.log else { return Ok(()) };
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let (line, status) = (first_line(&request.head), first_line(&answer.head));
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let status = status.split(' ').nth(1).unwrap_or_default();
        let mut said = format!(
            "{at} {method} {path} {status} {} {}",
            request.body.len(),
            waited.as_micros()
        );
        for written in marks(&request.body) {
            write!(said, " {written}")?;
        }
        said.push('\n');
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(said.as_bytes())?;
        Ok(())
    }
}

fn first_line(head: &[u8]) -> String {
    String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned()
}

fn marks(body: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        let Some(time) = rest[at + MARK.len()..].first_chunk() else {
            break;
        };
        found.push(u64::from_le_bytes(*time));
        rest = rest.get(at + MARKED_BYTES..).unwrap_or_default();
    }
    found
}

/// `None` at the end of the connection.
async fn head(from: &mut BufReader<OwnedReadHalf>) -> Result<Option<Vec<u8>>, Failure> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if from.read_until(b'\n', &mut head).await? == 0 {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err("the end within a head".into())
            };
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err("a head without an end".into());
        }
    }
    Ok(Some(head))
}

/// Without the leave to go on that the client has been given already. The answer to a HEAD has a length, but no body.
async fn answer(from: &mut BufReader<OwnedReadHalf>, request: &Message) -> Result<Option<Message>, Failure> {
    while let Some(found) = head(from).await? {
        if found.starts_with(b"HTTP/1.1 100") {
            continue;
        }
        if request.head.starts_with(b"HEAD ") {
            let body = Vec::new();
            return Ok(Some(Message { head: found, body }));
        }
        return with_body(found, from).await.map(Some);
    }
    Ok(None)
}

async fn with_body(head: Vec<u8>, from: &mut BufReader<OwnedReadHalf>) -> Result<Message, Failure> {
    let mut body = Vec::new();
    if let Some(length) = field(&head, "content-length") {
        body.resize(length.parse()?, 0);
        from.read_exact(&mut body).await?;
    } else if field(&head, "transfer-encoding").is_some() {
        chunks(from, &mut body).await?;
    }
    Ok(Message { head, body })
}

/// As they are on the wire, so that they are passed on unaltered.
async fn chunks(from: &mut BufReader<OwnedReadHalf>, body: &mut Vec<u8>) -> Result<(), Failure> {
    loop {
        let begun = body.len();
        from.read_until(b'\n', body).await?;
        let line = String::from_utf8_lossy(&body[begun..]).trim().to_owned();
        let length = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16)?;
        let end = body.len();
        body.resize(end + length + 2, 0);
        from.read_exact(&mut body[end..]).await?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn field(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}
