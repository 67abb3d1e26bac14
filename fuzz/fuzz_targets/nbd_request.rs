//! A whole connection in its transmission phase against an export in memory. The first byte chooses what was
//! negotiated; the rest is what the client sends. No panic, no hang, and every reply is well formed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use tombolo_fuzz::{Bytes, Kept};
use tombolo_nbd::ServerConfig;
use tombolo_nbd::connection::serve;
use tombolo_nbd::memory::{MemoryDisk, MemoryExports};
use tombolo_nbd::protocol::{OPTION_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, option_code};
use tombolo_transport::Sink;

const PAYLOAD_BYTES_MAX: u32 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, requests)) = bytes.split_first() else {
        return;
    };
    let structured = choice & 1 != 0;
    let mut client = negotiation(structured, choice & 2 != 0);
    client.extend_from_slice(requests);
    let exports = MemoryExports(vec![("a".into(), MemoryDisk::new(1 << 20, choice & 4 != 0))]);
    let config = ServerConfig {
        requests_in_flight_max: 4,
        bytes_in_flight_max: 1 << 17,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        ..ServerConfig::default()
    };
    let kept = Arc::new(Kept::default());
    let sink: Arc<dyn Sink> = kept.clone();
    // How it ends is the input's affair.
    let _ = serve(Bytes(&client), sink, &exports, &config);
    if structured {
        check_replies(&kept.0.lock().expect("no sender panics"));
    }
});

fn option(client: &mut Vec<u8>, code: u32, data: &[u8]) {
    client.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    client.extend_from_slice(&code.to_be_bytes());
    client.extend_from_slice(&(data.len() as u32).to_be_bytes());
    client.extend_from_slice(data);
}

fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// Ends in EXPORT_NAME without padding.
fn negotiation(structured: bool, contexts: bool) -> Vec<u8> {
    let mut client = vec![0, 0, 0, 3];
    if structured {
        option(&mut client, option_code::STRUCTURED_REPLY, &[]);
    }
    if contexts {
        let queries = [sized("base:allocation"), sized("x-tombolo:resize")].concat();
        let data = [sized("a"), vec![0, 0, 0, 2], queries].concat();
        option(&mut client, option_code::SET_META_CONTEXT, &data);
    }
    option(&mut client, option_code::EXPORT_NAME, b"a");
    client
}

/// Structured replies can be told apart without the requests: all the way to the end there must be nothing else.
fn check_replies(sent: &[u8]) {
    let is_reply = |at: usize| {
        let magic = sent
            .get(at..at + 4)
            .map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")));
        magic.filter(|magic| [SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC].contains(magic))
    };
    // The answer to EXPORT_NAME, size and flags, comes after the option replies: find it by their lengths.
    let mut at = 18;
    while sent[at..].starts_with(&tombolo_nbd::protocol::OPTION_REPLY_MAGIC.to_be_bytes()) {
        at += 20 + be32(sent, at + 16);
    }
    at += 10;
    while at < sent.len() {
        at += match is_reply(at).expect("a reply begins with its magic") {
            SIMPLE_REPLY_MAGIC => 16,
            _ => 20 + be32(sent, at + 16),
        };
        assert!(at <= sent.len(), "a reply is cut");
    }
}

fn be32(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}
