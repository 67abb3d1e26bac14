//! Messages one after the other, as a socket or the kernel would bring them. No panic; what is taken for a request can
//! be sent as one and is the same again; every refusal has an errno that a reply can carry; and ATTACH likewise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_fuse::protocol::abi::IN_HEADER_BYTES;
use tombolo_fuse::protocol::encode::encode;
use tombolo_fuse::protocol::malformed::Malformed;
use tombolo_fuse::protocol::opcode::Opcode;
use tombolo_fuse::protocol::parse::{parse, parse_interrupt, split};
use tombolo_fuse::protocol::request::{Request, RequestHeader};
use tombolo_fuse::{Attach, Errno};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Some((message, after)) = next_message(rest) {
        check(message);
        rest = after;
    }
});

/// The header's length decides; one that cannot be takes all there is.
fn next_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.len() < IN_HEADER_BYTES {
        return None;
    }
    let announced = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let length = match announced {
        IN_HEADER_BYTES.. => announced.min(bytes.len()),
        _ => bytes.len(),
    };
    Some(bytes.split_at(length))
}

fn check(message: &[u8]) {
    let body = &message[IN_HEADER_BYTES..];
    let (header, arguments, data) = split(message).expect("it has a header");
    match parse(&header, arguments, data) {
        Ok((header, request)) => round_trip(&header, &request),
        Err(Malformed::OutOfPlace { opcode }) => special(opcode, body),
        Err(malformed) => assert_ne!(Errno::from(&malformed), Errno::PROTO),
    }
}

fn round_trip(header: &RequestHeader, request: &Request) {
    let again = encode(header, request);
    let (raw, arguments, data) = split(&again).expect("it has a header");
    assert_eq!(raw.len as usize, again.len());
    let (header_again, request_again) = parse(&raw, arguments, data).expect("a request was encoded");
    assert_eq!((&header_again, &request_again), (header, request));
}

fn special(opcode: Opcode, body: &[u8]) {
    match opcode {
        Opcode::Attach => {
            if let Ok(attach) = Attach::decode(body) {
                assert_eq!(Attach::decode(&attach.encode(1)[IN_HEADER_BYTES..]), Ok(attach));
            }
        }
        Opcode::Interrupt => drop(parse_interrupt(body)),
        _ => {}
    }
}
