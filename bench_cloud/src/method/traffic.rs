//! What passes between a system and its store: connections, requests, bytes and times.

use super::http::{Body, Head, Messages, Reader};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// A body of no more than this is control: roots, markers, empty files. What files are made of is longer.
pub const CONTROL_BYTES_MAX: u64 = 4 << 10;
/// Queries of requests for something else than an object's contents.
const NOT_CONTENTS: [&str; 9] = [
    "acl",
    "delimiter",
    "list-type",
    "location",
    "prefix",
    "tagging",
    "uploadId",
    "uploads",
    "versioning",
];

/// The first and the last time, in microseconds since the proxy's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Nothing when nothing has come.
    pub first_us: Option<u64>,
    /// Likewise.
    pub last_us: Option<u64>,
}

impl Times {
    fn add(&mut self, at_us: u64) {
        self.first_us.get_or_insert(at_us);
        self.last_us = Some(at_us);
    }

    /// From the first to the last.
    pub fn seconds(&self) -> Option<f64> {
        Some((self.last_us? - self.first_us?) as f64 / 1e6)
    }
}

/// All traffic of a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// That were opened in it.
    pub connections: u64,
    /// By method, where the traffic is plain HTTP.
    pub requests: BTreeMap<String, u64>,
    /// TCP payload towards the store, everything included.
    pub sent_bytes: u64,
    /// TCP payload from the store, everything included.
    pub received_bytes: u64,
    /// Bodies of requests that put something into the store; all that is sent when it is no HTTP.
    pub stored_bytes: u64,
    /// Bodies of answers that bring an object; all that is received when it is no HTTP.
    pub fetched_bytes: u64,
    /// Requests that stored more than control; connections when it is no HTTP.
    pub stores: u64,
    /// Requests that fetched more than control; connections when it is no HTTP.
    pub fetches: u64,
    /// Of the payload of those that stored.
    pub store_times: Times,
    /// Of the payload of those that fetched.
    pub fetch_times: Times,
    /// Whether some of it was no HTTP.
    pub is_opaque: bool,
}

impl Traffic {
    /// All TCP payload.
    pub fn bytes(&self) -> u64 {
        self.sent_bytes + self.received_bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Store,
    Fetch,
    Head,
    Control,
}

/// Of a request line of S3, with the bucket in the path.
fn kind_of(method: &str, target: &str) -> Kind {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let names_key = path.split('/').filter(|part| !part.is_empty()).count() >= 2;
    let keys: Vec<&str> = query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or_default())
        .collect();
    let of_contents = !keys.iter().any(|key| NOT_CONTENTS.contains(key));
    match method {
        // A part of an object is named by its upload.
        "PUT" if names_key && (of_contents || keys.contains(&"partNumber")) => Kind::Store,
        "GET" if names_key && of_contents => Kind::Fetch,
        "HEAD" => Kind::Head,
        _ => Kind::Control,
    }
}

/// One connection of the system.
#[derive(Debug)]
pub struct Connection {
    up: Messages,
    down: Messages,
    sending: Part,
    receiving: Part,
    /// Of requests that were not answered yet.
    asked: VecDeque<Kind>,
}

/// What the body that is passing counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Nothing,
    Small,
    Payload,
}

impl Part {
    fn of(length: Option<u64>) -> Self {
        if length.is_some_and(|length| length <= CONTROL_BYTES_MAX) {
            Self::Small
        } else {
            Self::Payload
        }
    }
}

impl Connection {
    /// A new one, which is counted.
    pub fn opened(traffic: &mut Traffic) -> Self {
        traffic.connections += 1;
        Self {
            up: Messages::default(),
            down: Messages::default(),
            sending: Part::Nothing,
            receiving: Part::Nothing,
            asked: VecDeque::new(),
        }
    }

    /// Bytes on their way to the store.
    pub fn sent(&mut self, at_us: u64, bytes: &[u8], traffic: &mut Traffic) {
        traffic.sent_bytes += bytes.len() as u64;
        let Self { up, sending, asked, .. } = self;
        up.feed(
            bytes,
            &mut Requests {
                at_us,
                part: sending,
                asked,
                traffic,
            },
        );
    }

    /// Bytes on their way back.
    pub fn received(&mut self, at_us: u64, bytes: &[u8], traffic: &mut Traffic) {
        traffic.received_bytes += bytes.len() as u64;
        let Self {
            down, receiving, asked, ..
        } = self;
        down.feed(
            bytes,
            &mut Answers {
                at_us,
                part: receiving,
                asked,
                traffic,
            },
        );
    }
}

struct Requests<'a> {
    at_us: u64,
    part: &'a mut Part,
    asked: &'a mut VecDeque<Kind>,
    traffic: &'a mut Traffic,
}

impl Reader for Requests<'_> {
    fn head(&mut self, head: &Head) -> Body {
        let mut words = head.first_line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        *self.traffic.requests.entry(method.to_owned()).or_default() += 1;
        let kind = kind_of(method, target);
        self.asked.push_back(kind);
        let body = match (head.is_chunked, head.length) {
            (true, _) => Body::Chunked,
            (false, length) => Body::Length(length.unwrap_or(0)),
        };
        *self.part = match kind {
            Kind::Store => Part::of(if head.is_chunked {
                None
            } else {
                Some(head.length.unwrap_or(0))
            }),
            _ => Part::Nothing,
        };
        self.traffic.stores += u64::from(*self.part == Part::Payload);
        body
    }

    fn body(&mut self, bytes: u64) {
        if *self.part == Part::Nothing {
            return;
        }
        self.traffic.stored_bytes += bytes;
        if *self.part == Part::Payload {
            self.traffic.store_times.add(self.at_us);
        }
    }

    fn opaque(&mut self, bytes: u64) {
        self.traffic.is_opaque = true;
        self.traffic.stores += u64::from(*self.part == Part::Nothing);
        *self.part = Part::Payload;
        self.body(bytes);
    }
}

struct Answers<'a> {
    at_us: u64,
    part: &'a mut Part,
    asked: &'a mut VecDeque<Kind>,
    traffic: &'a mut Traffic,
}

impl Reader for Answers<'_> {
    fn head(&mut self, head: &Head) -> Body {
        *self.part = Part::Nothing;
        let status = head.first_line.split(' ').nth(1).unwrap_or_default();
        if status.starts_with('1') {
            return Body::Length(0);
        }
        let kind = self.asked.pop_front().unwrap_or(Kind::Control);
        if kind == Kind::Head || status == "204" || status == "304" {
            return Body::Length(0);
        }
        if kind == Kind::Fetch && status.starts_with('2') {
            *self.part = Part::of(head.length.filter(|_| !head.is_chunked));
            self.traffic.fetches += u64::from(*self.part == Part::Payload);
        }
        match (head.is_chunked, head.length) {
            (true, _) => Body::Chunked,
            (false, Some(length)) => Body::Length(length),
            (false, None) => Body::Endless,
        }
    }

    fn body(&mut self, bytes: u64) {
        if *self.part == Part::Nothing {
            return;
        }
        self.traffic.fetched_bytes += bytes;
        if *self.part == Part::Payload {
            self.traffic.fetch_times.add(self.at_us);
        }
    }

    fn opaque(&mut self, bytes: u64) {
        self.traffic.is_opaque = true;
        self.traffic.fetches += u64::from(*self.part == Part::Nothing);
        *self.part = Part::Payload;
        self.body(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(length: usize) -> Vec<u8> {
        let mut bytes = format!("PUT /bucket/key HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + length, b'x');
        bytes
    }

    #[test]
    fn what_is_stored_and_fetched_is_told_from_control() {
        let mut traffic = Traffic::default();
        let mut connection = Connection::opened(&mut traffic);
        connection.sent(10, &put(10_000), &mut traffic);
        connection.received(
            11,
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            &mut traffic,
        );
        connection.sent(12, &put(100), &mut traffic);
        connection.received(13, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &mut traffic);
        connection.sent(
            20,
            b"HEAD /bucket/key HTTP/1.1\r\n\r\nGET /bucket/key HTTP/1.1\r\n\r\n",
            &mut traffic,
        );
        connection.received(21, b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", &mut traffic);
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n".to_vec();
        answer.resize(answer.len() + 10_000, 0);
        connection.received(22, &answer, &mut traffic);
        connection.sent(30, b"GET /bucket/?list-type=2&prefix=a HTTP/1.1\r\n\r\n", &mut traffic);
        connection.received(31, &answer, &mut traffic);
        assert_eq!((traffic.stores, traffic.stored_bytes), (1, 10_100));
        assert_eq!((traffic.fetches, traffic.fetched_bytes), (1, 10_000));
        assert_eq!(
            (traffic.store_times.first_us, traffic.store_times.last_us),
            (Some(10), Some(10))
        );
        assert_eq!(traffic.fetch_times.first_us, Some(22));
        assert_eq!(
            traffic.requests,
            BTreeMap::from([("GET".into(), 2), ("HEAD".into(), 1), ("PUT".into(), 2)])
        );
        assert!(!traffic.is_opaque);
    }

    #[test]
    fn parts_of_an_upload_are_stored_and_its_ends_are_not() {
        assert_eq!(kind_of("POST", "/b/k?uploads="), Kind::Control);
        assert_eq!(kind_of("PUT", "/b/k?partNumber=1&uploadId=x"), Kind::Store);
        assert_eq!(kind_of("POST", "/b/k?uploadId=x"), Kind::Control);
        assert_eq!(kind_of("GET", "/b/k?x-id=GetObject"), Kind::Fetch);
        assert_eq!(kind_of("PUT", "/b"), Kind::Control);
    }

    #[test]
    fn of_what_is_no_http_everything_counts() {
        let mut traffic = Traffic::default();
        let mut connection = Connection::opened(&mut traffic);
        connection.sent(1, &[0x16; 300], &mut traffic);
        connection.received(2, &[0x16; 500], &mut traffic);
        connection.sent(3, &[0x17; 200], &mut traffic);
        assert!(traffic.is_opaque);
        assert_eq!((traffic.stored_bytes, traffic.fetched_bytes), (500, 500));
        assert_eq!((traffic.stores, traffic.fetches, traffic.connections), (1, 1, 1));
        assert_eq!(traffic.store_times.seconds(), Some(2e-6));
    }
}
