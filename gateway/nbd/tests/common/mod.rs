//! A server on a socket of its own, and a client that sends exactly what it is told to, be it wrong.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tombolo_nbd::memory::{MemoryDisk, MemoryExports};
use tombolo_nbd::protocol::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    option_code, option_reply,
};
use tombolo_nbd::{Exports, Server, ServerConfig};

pub const SIZE: u64 = 1 << 20;
/// A hang is a failure; no test needs more.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Fixture {
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub disk: MemoryDisk,
    pub directory: TempDir,
}

impl Fixture {
    /// Exports "disk" (writable, the default) and "frozen" (read-only), of `size_bytes` each.
    pub fn memory(size_bytes: u64, config: ServerConfig) -> Self {
        let disk = MemoryDisk::new(size_bytes, false);
        let exports = MemoryExports(vec![
            ("disk".into(), disk.clone()),
            ("frozen".into(), MemoryDisk::new(size_bytes, true)),
        ]);
        Self::start(Arc::new(exports), disk, config)
    }

    pub fn start(exports: Arc<dyn Exports>, disk: MemoryDisk, config: ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let listener = UnixListener::bind(&socket).unwrap();
        Self {
            server: Some(Server::serve_unix(listener, exports, config)),
            socket,
            disk,
            directory,
        }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn connect(&self) -> Raw {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Raw { stream }
    }

    /// Past greeting and client flags.
    pub fn negotiating(&self) -> Raw {
        let mut raw = self.connect();
        raw.greeting();
        raw.send(&3u32.to_be_bytes());
        raw
    }

    /// In transmission, with what the arguments say.
    pub fn transmitting(&self, export: &str, structured: bool, contexts: &[&str]) -> Raw {
        let mut raw = self.negotiating();
        if structured {
            raw.option(option_code::STRUCTURED_REPLY, &[]);
            assert_eq!(raw.option_reply().kind, option_reply::ACK);
        }
        if !contexts.is_empty() {
            raw.option(option_code::SET_META_CONTEXT, &meta_query(export, contexts));
            for _ in contexts {
                assert_eq!(raw.option_reply().kind, option_reply::META_CONTEXT);
            }
            assert_eq!(raw.option_reply().kind, option_reply::ACK);
        }
        raw.option(option_code::GO, &go(export, &[]));
        while raw.option_reply().kind != option_reply::ACK {}
        raw
    }
}

pub fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub fn go(name: &str, items: &[u16]) -> Vec<u8> {
    let mut data = sized(name);
    data.extend((items.len() as u16).to_be_bytes());
    items.iter().for_each(|item| data.extend(item.to_be_bytes()));
    data
}

pub fn meta_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = sized(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(sized(query)));
    data
}

pub struct Raw {
    pub stream: UnixStream,
}

#[derive(Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub code: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub payload: Vec<u8>,
}

impl Raw {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.receive(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.receive(4).try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.receive(8).try_into().unwrap())
    }

    pub fn greeting(&mut self) {
        assert_eq!(self.u64(), GREETING_MAGIC);
        assert_eq!(self.u64(), OPTION_MAGIC);
        assert_eq!(self.u16(), 3);
    }

    pub fn option(&mut self, code: u32, data: &[u8]) {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(code.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes);
    }

    pub fn option_reply(&mut self) -> OptionReply {
        assert_eq!(self.u64(), OPTION_REPLY_MAGIC);
        let (code, kind, length) = (self.u32(), self.u32(), self.u32());
        let data = self.receive(length as usize);
        OptionReply { code, kind, data }
    }

    /// Sends an option and takes its one reply.
    pub fn ask(&mut self, code: u32, data: &[u8]) -> u32 {
        self.option(code, data);
        let reply = self.option_reply();
        assert_eq!(reply.code, code);
        reply.kind
    }

    pub fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(
            &RequestHeader {
                flags,
                command,
                cookie,
                offset,
                length,
            }
            .encode(),
        );
    }

    /// Error and cookie.
    pub fn simple_reply(&mut self) -> (u32, u64) {
        assert_eq!(self.u32(), SIMPLE_REPLY_MAGIC);
        (self.u32(), self.u64())
    }

    pub fn chunk(&mut self) -> Chunk {
        assert_eq!(self.u32(), STRUCTURED_REPLY_MAGIC);
        let (flags, kind, cookie, length) = (self.u16(), self.u16(), self.u64(), self.u32());
        let payload = self.receive(length as usize);
        Chunk {
            flags,
            kind,
            cookie,
            payload,
        }
    }

    /// The error and its message.
    pub fn error_chunk(&mut self) -> (u32, String) {
        let chunk = self.chunk();
        assert_eq!((chunk.flags, chunk.kind), (1, 0x8001));
        let error = u32::from_be_bytes(chunk.payload[..4].try_into().unwrap());
        let message = String::from_utf8(chunk.payload[6..].to_vec()).unwrap();
        let length = u16::from_be_bytes([chunk.payload[4], chunk.payload[5]]);
        assert_eq!(usize::from(length), message.len());
        assert!(!message.is_empty(), "a structured error carries a message");
        (error, message)
    }

    /// The connection is closed, and nothing was said before.
    pub fn assert_closed(&mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Ok(_) => panic!("the server still talks: {byte:?}"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server neither talks nor closes: {error}"),
        }
    }
}
