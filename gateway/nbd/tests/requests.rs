//! The transmission phase over a real socket: every error by its number, and the stream stays in step after it.

mod common;

use common::{Fixture, Raw, SIZE};
use tombolo_nbd::ServerConfig;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

fn fixture() -> Fixture {
    let config = ServerConfig {
        payload_bytes_max: 1 << 16,
        ..ServerConfig::default()
    };
    Fixture::memory(SIZE, config)
}

/// Sends one request with its data, takes the error of its reply, in both forms of reply, and checks that the
/// connection still serves.
fn error_of(fixture: &Fixture, export: &str, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
    let send = |raw: &mut Raw| {
        raw.request(command, flags, 77, offset, length);
        if command == WRITE {
            raw.send(&vec![0x55; length as usize]);
        }
        raw.request(FLUSH, 0, 78, 0, 0);
    };
    let mut simple = fixture.transmitting(export, false, &[]);
    send(&mut simple);
    let (error, cookie) = simple.simple_reply();
    assert_eq!(cookie, 77);
    assert_eq!(simple.simple_reply(), (0, 78));

    let mut structured = fixture.transmitting(export, true, &["base:allocation"]);
    send(&mut structured);
    let (same, _) = structured.error_chunk();
    assert_eq!(structured.simple_reply(), (0, 78));
    if command != READ || flags == 0 {
        assert_eq!(error, same);
    }
    same
}

#[test]
fn read_beyond_the_end_is_einval() {
    let fixture = fixture();
    assert_eq!(error_of(&fixture, "disk", READ, 0, SIZE - 1, 2), EINVAL);
    assert_eq!(error_of(&fixture, "disk", READ, 0, u64::MAX, 2), EINVAL);
}

#[test]
fn trim_beyond_the_end_is_einval() {
    assert_eq!(error_of(&fixture(), "disk", TRIM, 0, SIZE, 1), EINVAL);
}

#[test]
fn write_beyond_the_end_is_enospc_and_its_data_is_skipped() {
    let fixture = fixture();
    assert_eq!(error_of(&fixture, "disk", WRITE, 0, SIZE - 100, 101), ENOSPC);
    assert_eq!(error_of(&fixture, "disk", WRITE, 0, u64::MAX - 1, 60_000), ENOSPC);
    assert_eq!(fixture.disk.read(SIZE - 100, 100), [0; 100]);
}

#[test]
fn write_zeroes_beyond_the_end_is_enospc() {
    assert_eq!(error_of(&fixture(), "disk", WRITE_ZEROES, 0, 1, u32::MAX), ENOSPC);
}

#[test]
fn block_status_beyond_the_end_is_einval() {
    assert_eq!(error_of(&fixture(), "disk", BLOCK_STATUS, 0, SIZE, 1), EINVAL);
}

#[test]
fn block_status_of_nothing_is_einval() {
    assert_eq!(error_of(&fixture(), "disk", BLOCK_STATUS, 0, 0, 0), EINVAL);
}

#[test]
fn an_unknown_command_is_einval() {
    let fixture = fixture();
    assert_eq!(error_of(&fixture, "disk", 5, 0, 0, 0), EINVAL);
    assert_eq!(error_of(&fixture, "disk", 99, 0, 0, 4096), EINVAL);
}

#[test]
fn an_unknown_flag_is_einval() {
    let fixture = fixture();
    assert_eq!(error_of(&fixture, "disk", WRITE, 1 << 9, 0, 512), EINVAL);
    assert_eq!(
        error_of(&fixture, "disk", WRITE_ZEROES, 1 << 4, 0, 512),
        EINVAL,
        "FAST_ZERO"
    );
    assert_eq!(error_of(&fixture, "disk", TRIM, 1 << 1, 0, 512), EINVAL, "NO_HOLE");
}

#[test]
fn changes_to_a_read_only_export_are_eperm() {
    let fixture = fixture();
    for command in [WRITE, TRIM, WRITE_ZEROES] {
        assert_eq!(
            error_of(&fixture, "frozen", command, 0, 0, 512),
            EPERM,
            "command {command}"
        );
    }
}

#[test]
fn a_flush_with_a_range_is_einval() {
    assert_eq!(error_of(&fixture(), "disk", FLUSH, 0, 0, 1), EINVAL);
}

#[test]
fn payloads_over_the_maximum_are_einval_and_skipped() {
    let fixture = fixture();
    assert_eq!(error_of(&fixture, "disk", WRITE, 0, 0, (1 << 16) + 1), EINVAL);
    assert_eq!(error_of(&fixture, "disk", READ, 0, 0, (1 << 16) + 1), EINVAL);
}

#[test]
fn an_unfragmented_read_over_the_maximum_is_eoverflow() {
    assert_eq!(error_of(&fixture(), "disk", READ, 1 << 2, 0, (1 << 16) + 1), EOVERFLOW);
}

#[test]
fn an_absurd_payload_ends_the_connection() {
    let fixture = fixture();
    let mut raw = fixture.transmitting("disk", true, &[]);
    raw.request(WRITE, 0, 1, 0, u32::MAX);
    assert_eq!(raw.error_chunk().0, EINVAL);
    raw.assert_closed();
}

#[test]
fn a_wrong_request_magic_ends_the_connection() {
    let fixture = fixture();
    let mut raw = fixture.transmitting("disk", true, &[]);
    raw.send(&[0x25; 28]);
    raw.assert_closed();
}

#[test]
fn a_cut_request_ends_the_connection_after_the_answers() {
    let fixture = fixture();
    let mut raw = fixture.transmitting("disk", true, &[]);
    raw.request(FLUSH, 0, 1, 0, 0);
    raw.request(WRITE, 0, 2, 0, 512);
    raw.send(&[0; 100]);
    raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(raw.simple_reply(), (0, 1));
    assert_eq!(raw.error_chunk().0, 5);
    raw.assert_closed();
    assert_eq!(fixture.disk.read(0, 512), [0; 512]);
}

#[test]
fn disconnect_closes_without_a_reply() {
    let fixture = fixture();
    let mut raw = fixture.transmitting("disk", true, &[]);
    raw.request(2, 0, 1, 0, 0);
    raw.assert_closed();
}

#[test]
fn ranges_of_no_bytes_succeed() {
    let fixture = fixture();
    let mut raw = fixture.transmitting("disk", true, &[]);
    for command in [WRITE, TRIM, WRITE_ZEROES] {
        raw.request(command, 1, 5, SIZE, 0);
        assert_eq!(raw.simple_reply(), (0, 5));
    }
    raw.request(READ, 0, 6, 0, 0);
    let chunk = raw.chunk();
    assert_eq!((chunk.flags, chunk.kind, chunk.payload), (1, 0, vec![]));
    let mut simple = fixture.transmitting("disk", false, &[]);
    simple.request(READ, 0, 7, 0, 0);
    assert_eq!(simple.simple_reply(), (0, 7));
}

#[test]
fn what_is_written_is_read_in_both_forms() {
    let fixture = fixture();
    let data: Vec<u8> = (0..5000u32).map(|index| (index % 251) as u8).collect();
    let mut raw = fixture.transmitting("disk", true, &[]);
    raw.request(WRITE, 1, 1, 777, 5000);
    raw.send(&data);
    assert_eq!(raw.simple_reply(), (0, 1));
    raw.request(READ, 1 << 2, 2, 777, 5000);
    let chunk = raw.chunk();
    assert_eq!((chunk.flags, chunk.kind, chunk.cookie), (1, 1, 2));
    assert_eq!(chunk.payload, [&777u64.to_be_bytes()[..], &data].concat());
    let mut simple = fixture.transmitting("disk", false, &[]);
    simple.request(READ, 0, 3, 777, 5000);
    assert_eq!(simple.simple_reply(), (0, 3));
    assert_eq!(simple.receive(5000), data);
}

#[test]
fn block_status_tells_holes_from_data_and_obeys_request_one() {
    let fixture = fixture();
    fixture.disk.write(32 * 1024, b"data");
    let mut raw = fixture.transmitting("disk", true, &["base:allocation"]);
    let descriptors = |raw: &mut Raw, flags: u16| {
        raw.request(BLOCK_STATUS, flags, 1, 0, 128 * 1024);
        let chunk = raw.chunk();
        assert_eq!(
            (chunk.flags, chunk.kind, &chunk.payload[..4]),
            (1, 5, &[0, 0, 0, 1][..])
        );
        let words = chunk.payload[4..].as_chunks::<4>().0.iter();
        words.map(|word| u32::from_be_bytes(*word)).collect::<Vec<_>>()
    };
    assert_eq!(descriptors(&mut raw, 0), [32 << 10, 3, 32 << 10, 0, 64 << 10, 3]);
    assert_eq!(descriptors(&mut raw, 1 << 3), [32 << 10, 3]);
}

#[test]
fn each_negotiated_context_is_answered() {
    let fixture = fixture();
    let mut raw = fixture.transmitting("disk", true, &["base:allocation", "x-tombolo:resize"]);
    raw.request(BLOCK_STATUS, 0, 1, 0, 4096);
    let (first, second) = (raw.chunk(), raw.chunk());
    assert_eq!(
        (first.flags, first.payload),
        (0, vec![0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 3])
    );
    assert_eq!(
        (second.flags, second.payload),
        (1, vec![0, 0, 0, 2, 0, 0, 16, 0, 0, 0, 0, 0])
    );
}
