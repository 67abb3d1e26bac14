//! The negotiation over a real socket, above all where clients err.

mod common;

use common::{Fixture, SIZE, go, meta_query};
use std::time::Duration;
use tombolo_nbd::ServerConfig;
use tombolo_nbd::protocol::{option_code, option_reply};

fn fixture() -> Fixture {
    Fixture::memory(SIZE, ServerConfig::default())
}

#[test]
fn unoffered_client_flags_end_the_connection() {
    let fixture = fixture();
    let mut raw = fixture.connect();
    raw.greeting();
    raw.send(&7u32.to_be_bytes());
    raw.assert_closed();
}

#[test]
fn a_wrong_option_magic_ends_the_connection() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.send(b"IHAVEOPX\0\0\0\x03\0\0\0\0");
    raw.assert_closed();
}

#[test]
fn an_option_of_four_gigabytes_ends_the_connection() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
    raw.assert_closed();
}

#[test]
fn without_fixed_newstyle_only_export_name_is_served() {
    let fixture = fixture();
    let mut raw = fixture.connect();
    raw.greeting();
    raw.send(&0u32.to_be_bytes());
    raw.option(option_code::LIST, &[]);
    raw.assert_closed();
}

#[test]
fn export_name_is_answered_with_padding_unless_both_agree() {
    let fixture = fixture();
    for (flags, padding) in [(0u32, 124), (3, 0)] {
        let mut raw = fixture.connect();
        raw.greeting();
        raw.send(&flags.to_be_bytes());
        raw.option(option_code::EXPORT_NAME, b"disk");
        assert_eq!(raw.u64(), SIZE);
        assert_eq!(raw.receive(2), [0x01, 0x6d], "DF needs structured replies");
        assert_eq!(raw.receive(padding), vec![0; padding]);
        raw.request(3, 0, 9, 0, 0);
        assert_eq!(raw.simple_reply(), (0, 9));
    }
}

#[test]
fn export_name_of_an_unknown_export_ends_the_connection() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.option(option_code::EXPORT_NAME, b"nothing");
    raw.assert_closed();
}

#[test]
fn an_unknown_option_is_unsupported_and_the_next_is_served() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    assert_eq!(raw.ask(4711, b"whatever"), option_reply::ERR_UNSUP);
    assert_eq!(raw.ask(option_code::STRUCTURED_REPLY, &[]), option_reply::ACK);
}

#[test]
fn starttls_is_refused_by_policy_with_a_text() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.option(option_code::STARTTLS, &[]);
    let reply = raw.option_reply();
    assert_eq!(reply.kind, option_reply::ERR_POLICY);
    assert!(String::from_utf8(reply.data).unwrap().contains("TLS"));
}

#[test]
fn malformed_options_are_invalid() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    assert_eq!(raw.ask(option_code::LIST, b"x"), option_reply::ERR_INVALID);
    assert_eq!(raw.ask(option_code::STRUCTURED_REPLY, b"x"), option_reply::ERR_INVALID);
    assert_eq!(raw.ask(option_code::GO, &[0, 0, 0]), option_reply::ERR_INVALID);
    assert_eq!(
        raw.ask(option_code::GO, &[go("disk", &[]), vec![1]].concat()),
        option_reply::ERR_INVALID
    );
    assert_eq!(
        raw.ask(option_code::INFO, &[0, 0, 0, 1, 0xff, 0, 0]),
        option_reply::ERR_INVALID,
        "not UTF-8"
    );
}

#[test]
fn a_name_over_4096_bytes_is_too_big() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    assert_eq!(
        raw.ask(option_code::INFO, &go(&"n".repeat(4097), &[])),
        option_reply::ERR_TOO_BIG
    );
    assert_eq!(
        raw.ask(option_code::INFO, &go(&"n".repeat(4096), &[])),
        option_reply::ERR_UNKNOWN
    );
}

#[test]
fn go_to_an_unknown_export_is_unknown_and_another_may_follow() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    assert_eq!(raw.ask(option_code::GO, &go("nothing", &[])), option_reply::ERR_UNKNOWN);
    raw.option(option_code::GO, &go("disk", &[1, 2]));
    let mut items: Vec<u8> = Vec::new();
    loop {
        let reply = raw.option_reply();
        match reply.kind {
            option_reply::ACK => break,
            kind => assert_eq!(kind, option_reply::INFO),
        }
        items.push(reply.data[1]);
        match reply.data[1] {
            0 => assert_eq!(&reply.data[2..], [&SIZE.to_be_bytes()[..], &[0x01, 0x6d]].concat()),
            1 => assert_eq!(&reply.data[2..], b"disk"),
            2 => assert_eq!(&reply.data[2..], b"sparse memory"),
            _ => assert_eq!(&reply.data[2..], [0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0]),
        }
    }
    items.sort_unstable();
    assert_eq!(items, [0, 1, 2, 3]);
}

#[test]
fn contexts_need_structured_replies() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    let query = meta_query("disk", &["base:allocation"]);
    assert_eq!(
        raw.ask(option_code::SET_META_CONTEXT, &query),
        option_reply::ERR_INVALID
    );
    assert_eq!(
        raw.ask(option_code::LIST_META_CONTEXT, &query),
        option_reply::ERR_INVALID
    );
}

#[test]
fn contexts_are_listed_by_namespace_and_set_by_name() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.ask(option_code::STRUCTURED_REPLY, &[]);
    let mut names = |code: u32, queries: &[&str]| {
        raw.option(code, &meta_query("disk", queries));
        let mut names = Vec::new();
        loop {
            let reply = raw.option_reply();
            if reply.kind == option_reply::ACK {
                return names;
            }
            assert_eq!(reply.kind, option_reply::META_CONTEXT);
            names.push(String::from_utf8(reply.data[4..].to_vec()).unwrap());
        }
    };
    let both = ["base:allocation", "x-tombolo:resize"];
    assert_eq!(names(option_code::LIST_META_CONTEXT, &[]), both);
    assert_eq!(names(option_code::LIST_META_CONTEXT, &["base:"]), both[..1]);
    assert_eq!(
        names(option_code::LIST_META_CONTEXT, &["x-tombolo:resize", "x-other:"]),
        both[1..]
    );
    assert_eq!(names(option_code::SET_META_CONTEXT, &["base:"]), [""; 0]);
    assert_eq!(names(option_code::SET_META_CONTEXT, &[]), [""; 0]);
    assert_eq!(
        names(option_code::SET_META_CONTEXT, &["x-other:y", both[1], both[0], both[0]]),
        both
    );
}

#[test]
fn contexts_set_for_another_export_do_not_count() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.ask(option_code::STRUCTURED_REPLY, &[]);
    raw.option(
        option_code::SET_META_CONTEXT,
        &meta_query("frozen", &["base:allocation"]),
    );
    while raw.option_reply().kind != option_reply::ACK {}
    raw.option(option_code::GO, &go("disk", &[]));
    while raw.option_reply().kind != option_reply::ACK {}
    raw.request(7, 0, 1, 0, 512);
    assert_eq!(raw.error_chunk().0, 22);
}

#[test]
fn contexts_of_an_unknown_export_are_unknown() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    raw.ask(option_code::STRUCTURED_REPLY, &[]);
    let query = meta_query("nothing", &["base:allocation"]);
    assert_eq!(
        raw.ask(option_code::SET_META_CONTEXT, &query),
        option_reply::ERR_UNKNOWN
    );
}

#[test]
fn abort_is_acknowledged_and_the_connection_closed() {
    let fixture = fixture();
    let mut raw = fixture.negotiating();
    assert_eq!(raw.ask(option_code::ABORT, &[]), option_reply::ACK);
    raw.assert_closed();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let config = ServerConfig {
        handshake_timeout: Duration::from_millis(100),
        ..ServerConfig::default()
    };
    let fixture = Fixture::memory(SIZE, config);
    let mut silent = fixture.negotiating();
    silent.assert_closed();
    // The limit is for the negotiation alone.
    let mut slow = fixture.transmitting("disk", true, &[]);
    std::thread::sleep(Duration::from_millis(300));
    slow.request(3, 0, 1, 0, 0);
    assert_eq!(slow.simple_reply(), (0, 1));
}

#[test]
fn connections_beyond_the_limit_are_turned_away() {
    let config = ServerConfig {
        connections_max: 1,
        ..ServerConfig::default()
    };
    let fixture = Fixture::memory(SIZE, config);
    let mut first = fixture.transmitting("disk", false, &[]);
    fixture.connect().assert_closed();
    first.request(3, 0, 1, 0, 0);
    assert_eq!(first.simple_reply(), (0, 1));
    assert_eq!(fixture.server().connections(), 1);
}
