//! Where messages of HTTP/1.1 begin and end in one direction of a connection. Bytes that are no HTTP, such as TLS, are counted
//! as one body without an end.

/// More than any client sends; what is longer is no HTTP.
const HEAD_BYTES_MAX: usize = 64 << 10;
const LINE_BYTES_MAX: usize = 1 << 10;

/// What is known of a message before its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The request or status line.
    pub first_line: String,
    /// As its sender says.
    pub length: Option<u64>,
    /// Whether the body comes in chunks.
    pub is_chunked: bool,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes; also none.
    Length(u64),
    /// Until a chunk of no bytes.
    Chunked,
    /// Until the connection ends.
    Endless,
}

/// What is told of a direction.
pub trait Reader {
    /// A message begins; says how long its body is.
    fn head(&mut self, head: &Head) -> Body;
    /// Bytes of the body of the message that began last, without what chunks are framed with.
    fn body(&mut self, bytes: u64);
    /// Bytes that are not HTTP, and none after them is.
    fn opaque(&mut self, bytes: u64);
}

#[derive(Debug)]
enum State {
    Head,
    Body(u64),
    ChunkHead,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    Endless,
    Opaque,
}

/// One direction of a connection, fed as its bytes come.
#[derive(Debug)]
pub struct Messages {
    state: State,
    /// Of a head or line that is not complete yet.
    kept: Vec<u8>,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            state: State::Head,
            kept: Vec::new(),
        }
    }
}

impl Messages {
    /// Takes what has come, in pieces of any size.
    pub fn feed(&mut self, mut bytes: &[u8], reader: &mut impl Reader) {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::Head => self.take_head(bytes, reader),
                State::Body(left) => {
                    let count = take_body(left, bytes, reader);
                    self.state = after(left - count, State::Head, State::Body);
                    count as usize
                }
                State::Chunk(left) => {
                    let count = take_body(left, bytes, reader);
                    self.state = after(left - count, State::ChunkEnd, State::Chunk);
                    count as usize
                }
                State::Endless => {
                    reader.body(bytes.len() as u64);
                    bytes.len()
                }
                State::Opaque => {
                    reader.opaque(bytes.len() as u64);
                    bytes.len()
                }
                State::ChunkHead | State::ChunkEnd | State::Trailer => self.take_line(bytes, reader),
            };
            bytes = &bytes[taken..];
        }
    }

    fn take_head(&mut self, bytes: &[u8], reader: &mut impl Reader) -> usize {
        let before = self.kept.len();
        self.kept.extend_from_slice(bytes);
        // An empty line between messages is permitted.
        let is_text = self
            .kept
            .first()
            .is_none_or(|byte| byte.is_ascii_uppercase() || b"\r\n".contains(byte));
        let end = find(&self.kept, b"\r\n\r\n", before.saturating_sub(3));
        let head = end.and_then(|end| parse(&self.kept[..end]));
        match (end, head) {
            (Some(end), Some(head)) if is_text => {
                self.state = match reader.head(&head) {
                    Body::Length(0) => State::Head,
                    Body::Length(length) => State::Body(length),
                    Body::Chunked => State::ChunkHead,
                    Body::Endless => State::Endless,
                };
                self.kept.clear();
                end + 4 - before
            }
            (None, _) if is_text && self.kept.len() <= HEAD_BYTES_MAX => bytes.len(),
            _ => {
                reader.opaque(self.kept.len() as u64);
                self.give_up();
                bytes.len()
            }
        }
    }

    fn take_line(&mut self, bytes: &[u8], reader: &mut impl Reader) -> usize {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.kept.extend_from_slice(bytes);
            if self.kept.len() > LINE_BYTES_MAX {
                reader.opaque(0);
                self.give_up();
            }
            return bytes.len();
        };
        self.kept.extend_from_slice(&bytes[..end]);
        let line = String::from_utf8_lossy(&self.kept).trim().to_owned();
        self.kept.clear();
        self.state = match self.state {
            State::ChunkHead => match chunk_bytes(&line) {
                Some(0) => State::Trailer,
                Some(count) => State::Chunk(count),
                None => State::Opaque,
            },
            State::Trailer if line.is_empty() => State::Head,
            State::Trailer => State::Trailer,
            _ => State::ChunkHead,
        };
        end + 1
    }

    fn give_up(&mut self) {
        self.state = State::Opaque;
        self.kept = Vec::new();
    }
}

fn after(left: u64, done: State, more: fn(u64) -> State) -> State {
    if left == 0 { done } else { more(left) }
}

fn take_body(left: u64, bytes: &[u8], reader: &mut impl Reader) -> u64 {
    let count = left.min(bytes.len() as u64);
    reader.body(count);
    count
}

fn chunk_bytes(line: &str) -> Option<u64> {
    u64::from_str_radix(line.split(';').next()?.trim(), 16).ok()
}

fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let found = bytes
        .get(from..)?
        .windows(wanted.len())
        .position(|window| window == wanted)?;
    Some(from + found)
}

/// Nothing when it is no head.
fn parse(bytes: &[u8]) -> Option<Head> {
    let text = core::str::from_utf8(bytes).ok()?;
    let mut lines = text.trim_start().split("\r\n");
    let first_line = lines.next()?.to_owned();
    if !first_line.contains("HTTP/1.") {
        return None;
    }
    let mut head = Head {
        first_line,
        length: None,
        is_chunked: false,
    };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.trim().parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.is_chunked = value.to_ascii_lowercase().contains("chunked");
        }
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        messages: Vec<(String, u64)>,
        opaque_bytes: u64,
    }

    impl Reader for Seen {
        fn head(&mut self, head: &Head) -> Body {
            self.messages.push((head.first_line.clone(), 0));
            match (head.is_chunked, head.length) {
                (true, _) => Body::Chunked,
                (false, Some(length)) => Body::Length(length),
                (false, None) => Body::Length(0),
            }
        }

        fn body(&mut self, bytes: u64) {
            self.messages.last_mut().expect("a body has a head").1 += bytes;
        }

        fn opaque(&mut self, bytes: u64) {
            self.opaque_bytes += bytes;
        }
    }

    fn seen(pieces: &[&[u8]]) -> Seen {
        let (mut messages, mut seen) = (Messages::default(), Seen::default());
        for piece in pieces {
            messages.feed(piece, &mut seen);
        }
        seen
    }

    const STREAM: &[u8] = b"PUT /b/k HTTP/1.1\r\nHost: x\r\ncontent-length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\n\r\n\
        POST /b/k?uploads HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n\
        DELETE /b/k HTTP/1.1\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn messages_are_told_apart_and_bodies_counted() {
        let expected = [
            ("PUT /b/k HTTP/1.1", 5),
            ("GET /b HTTP/1.1", 0),
            ("POST /b/k?uploads HTTP/1.1", 5),
            ("DELETE /b/k HTTP/1.1", 0),
        ];
        let found = seen(&[STREAM]);
        assert_eq!(found.messages, expected.map(|(line, bytes)| (line.to_owned(), bytes)));
        assert_eq!(found.opaque_bytes, 0);
    }

    #[test]
    fn what_is_no_http_is_counted_as_it_is() {
        let tls = [0x16, 3, 1, 0, 200, 1, 0];
        assert_eq!(seen(&[&tls, b"PUT /b/k HTTP/1.1\r\n\r\n"]).opaque_bytes, 7 + 21);
        assert!(seen(&[b"SSH-2.0-x\r\n\r\nmore"]).messages.is_empty());
        let endless = vec![b'A'; HEAD_BYTES_MAX + 1];
        assert_eq!(seen(&[&endless]).opaque_bytes, endless.len() as u64);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_bytes_come(cuts in proptest::collection::vec(0..STREAM.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &STREAM[ends[0]..ends[1]]).collect();
            prop_assert_eq!(seen(&pieces), seen(&[STREAM]));
        }

        #[test]
        fn no_byte_is_counted_twice(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let found = seen(&[&bytes]);
            let counted = found.opaque_bytes + found.messages.iter().map(|(_, bytes)| bytes).sum::<u64>();
            prop_assert!(counted <= bytes.len() as u64);
        }
    }
}
