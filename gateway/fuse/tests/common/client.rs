//! A client over the socket.

use super::{Fixture, PATIENCE};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tombolo_fuse::mount::{AttachError, attach};
use tombolo_fuse::protocol::abi::{OUT_HEADER_BYTES, OutHeader};
use tombolo_fuse::protocol::encode::{encode, encode_interrupt, opcode_of};
use tombolo_fuse::protocol::request::RequestHeader;
use tombolo_fuse::protocol::wire::Wire;
use tombolo_fuse::{Attach, AttachReply, Request};

pub fn plain_attach() -> Attach {
    Attach {
        client_name: "tester".into(),
        share_name: "toy".into(),
        incarnation: 1,
        stable: false,
        device: false,
        resume: false,
        notify: false,
        fuse_minor: 39,
        init_flags: 0,
    }
}

pub struct Client {
    pub stream: UnixStream,
    unique_next: u64,
}

/// What came back: 0 or a negative errno, or a notification's code.
#[derive(Debug)]
pub struct Answer {
    pub unique: u64,
    pub error: i32,
    pub body: Vec<u8>,
}

impl Fixture {
    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn attach(&self, request: &Attach) -> Result<(Client, AttachReply), AttachError> {
        let stream = self.connect();
        let reply = attach(&stream, request, &[])?;
        let unique_next = 2;
        Ok((Client { stream, unique_next }, reply))
    }

    pub fn client(&self) -> Client {
        self.attach(&plain_attach()).unwrap().0
    }
}

impl Client {
    pub fn message(&mut self, node: u64, request: &Request) -> (u64, Vec<u8>) {
        let unique = self.unique_next;
        self.unique_next += 2;
        let header = RequestHeader {
            opcode: opcode_of(request),
            unique,
            node,
            uid: 0,
            gid: 0,
            pid: 1,
        };
        (unique, encode(&header, request))
    }

    /// The request's number.
    pub fn send(&mut self, node: u64, request: &Request) -> u64 {
        let (unique, message) = self.message(node, request);
        self.stream.write_all(&message).unwrap();
        unique
    }

    pub fn interrupt(&mut self, unique: u64) {
        self.stream.write_all(&encode_interrupt(unique | 1, unique)).unwrap();
    }

    pub fn receive(&mut self) -> Answer {
        self.try_receive().expect("an answer")
    }

    /// `None` when the server has closed the connection.
    pub fn try_receive(&mut self) -> Option<Answer> {
        let mut header = [0; OUT_HEADER_BYTES];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) => {
                let gone = [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset];
                assert!(gone.contains(&error.kind()), "{error}");
                return None;
            }
        }
        let header = OutHeader::get(&header);
        let mut body = vec![0; header.len as usize - OUT_HEADER_BYTES];
        self.stream.read_exact(&mut body).unwrap();
        Some(Answer {
            unique: header.unique,
            error: header.error,
            body,
        })
    }

    pub fn call(&mut self, node: u64, request: &Request) -> Answer {
        let unique = self.send(node, request);
        let answer = self.receive();
        assert_eq!(answer.unique, unique);
        answer
    }
}
