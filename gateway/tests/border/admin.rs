//! The admin API over its real sockets.

use crate::fake::{Fake, Gateway, MIB, exchange};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tombolo::admin::model::ErrorKind;
use tombolo::admin::server::{AdminError, Server};
use tombolo::unix_socket::SocketError;

fn parsed((code, body): (u16, String)) -> (u16, Value) {
    (
        code,
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")),
    )
}

#[test]
fn a_volume_lives_and_dies() {
    let gateway = Gateway::start();
    let body = json!({ "name": "vol", "size_bytes": 16 * MIB }).to_string();
    let created = json!({ "name": "vol", "size_bytes": 16 * MIB, "flush": "local", "connections": 0 });
    assert_eq!(
        parsed(gateway.request("POST", "/v1/volumes", &body)),
        (201, created.clone())
    );
    assert_eq!(
        parsed(gateway.request("GET", "/v1/volumes", "")),
        (200, json!([created]))
    );
    let body = json!({ "size_bytes": 32 * MIB }).to_string();
    assert_eq!(gateway.request("PATCH", "/v1/volumes/vol", &body).0, 200);
    let body = json!({ "size_bytes": MIB }).to_string();
    assert_eq!(gateway.request("PATCH", "/v1/volumes/vol", &body).0, 400);
    let body = json!({ "size_bytes": MIB, "allow_shrink": true }).to_string();
    let (code, resized) = parsed(gateway.request("PATCH", "/v1/volumes/vol", &body));
    assert_eq!((code, &resized["size_bytes"]), (200, &json!(MIB)));
    let (code, changed) = parsed(gateway.request("PATCH", "/v1/volumes/vol/flush", r#"{"flush": "bucket"}"#));
    assert_eq!((code, &changed["flush"]), (200, &json!("bucket")));
    assert_eq!(
        gateway
            .request("PATCH", "/v1/volumes/vol/flush", r#"{"flush": "never"}"#)
            .0,
        400
    );
    assert_eq!(gateway.request("PATCH", "/v1/volumes/vol/flush", "{}").0, 400);
    assert_eq!(gateway.request("DELETE", "/v1/volumes/vol", ""), (204, String::new()));
    assert_eq!(parsed(gateway.request("GET", "/v1/volumes", "")), (200, json!([])));
}

#[test]
fn policies_are_shown_and_changed() {
    let gateway = Gateway::start();
    let body = json!({ "replacement": "sarc" }).to_string();
    let (code, changed) = parsed(gateway.request("PATCH", "/v1/policy", &body));
    assert_eq!((code, &changed["replacement"]), (200, &json!("sarc")));
    let (code, shown) = parsed(gateway.request("GET", "/v1/policy", ""));
    assert_eq!((code, shown), (200, changed));
    for body in ["", "[]", "{\"replacement\": null}", "{\"other\": 1}"] {
        let (code, error) = parsed(gateway.request("PATCH", "/v1/policy", body));
        assert_eq!((code, &error["kind"]), (400, &json!("invalid")), "{body}");
    }
}

#[test]
fn every_error_is_json_with_its_kind() {
    let gateway = Gateway::start();
    let valid = json!({ "name": "vol", "size_bytes": 4096 }).to_string();
    assert_eq!(gateway.request("POST", "/v1/volumes", &valid).0, 201);
    let long = format!("/v1/volumes/{}", "n".repeat(300));
    // Above the limit, and small enough for the socket to take it all before the answer.
    let large = " ".repeat((64 << 10) + 1);
    for (method, path, body, code, kind) in [
        ("POST", "/v1/volumes", valid.as_str(), 409, "already_exists"),
        ("POST", "/v1/volumes", "", 400, "invalid"),
        ("POST", "/v1/volumes", "[]", 400, "invalid"),
        (
            "POST",
            "/v1/volumes",
            r#"{"name": "a/b", "size_bytes": 4096}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/volumes",
            r#"{"name": "x", "size_bytes": 4097}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/volumes",
            r#"{"name": "x", "size_bytes": -1}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/volumes",
            r#"{"name": "x", "size_bytes": 4096, "colour": 1}"#,
            400,
            "invalid",
        ),
        ("POST", "/v1/volumes", large.as_str(), 400, "invalid"),
        (
            "PATCH",
            "/v1/volumes/absent",
            r#"{"size_bytes": 4096}"#,
            404,
            "not_found",
        ),
        ("DELETE", "/v1/volumes/absent", "", 404, "not_found"),
        ("DELETE", "/v1/volumes/%2E%2E", "", 400, "invalid"),
        ("DELETE", "/v1/volumes/%FF", "", 400, "invalid"),
        ("DELETE", long.as_str(), "", 400, "invalid"),
        ("GET", "/", "", 404, "not_found"),
        ("PUT", "/v1/status", "", 405, "invalid"),
    ] {
        let (got, answer) = parsed(gateway.request(method, path, body));
        assert_eq!((got, &answer["kind"]), (code, &json!(kind)), "{method} {path} {answer}");
        assert!(!answer["message"].as_str().unwrap().is_empty());
    }
    for (kind, code) in [
        (ErrorKind::Busy, 409),
        (ErrorKind::ReadOnly, 403),
        (ErrorKind::Unavailable, 503),
        (ErrorKind::Internal, 500),
    ] {
        gateway.refuse(kind, "because");
        let (got, answer) = parsed(gateway.request("POST", "/v1/drain", ""));
        assert_eq!((got, &answer["message"]), (code, &json!("because")));
    }
}

#[test]
fn drain_is_passed_on() {
    let gateway = Gateway::start();
    assert_eq!(gateway.request("POST", "/v1/drain", "").0, 202);
    assert_eq!(gateway.fake.0.lock().unwrap().drains, 1);
}

#[test]
fn a_trace_needs_a_whole_path_and_a_size() {
    let gateway = Gateway::start();
    let start = |body: &str| gateway.request("POST", "/v1/trace", body).0;
    assert_eq!(start(r#"{"path": "a", "bytes_max": 1048576}"#), 400);
    assert_eq!(start(r#"{"path": "/a", "bytes_max": 1}"#), 400);
    assert_eq!(start(r#"{"path": "/a"}"#), 400);
    assert_eq!(start(r#"{"path": "/a", "bytes_max": 1048576}"#), 201);
    assert!(gateway.request("GET", "/v1/trace", "").1.contains("recording"));
    assert!(gateway.request("DELETE", "/v1/trace", "").1.contains("finished"));
}

#[test]
fn metrics_are_on_both_sockets_and_nothing_else_over_tcp() {
    let gateway = Gateway::start();
    let over_tcp = |path: &str| exchange(TcpStream::connect(gateway.metrics_address()).unwrap(), "GET", path, "");
    for (code, text) in [gateway.request("GET", "/metrics", ""), over_tcp("/metrics")] {
        assert_eq!(code, 200);
        assert!(text.contains("\ntombolo_dirty_limit_bytes 1073741824\n"), "{text}");
    }
    assert_eq!(over_tcp("/v1/status").0, 404);
}

#[test]
fn only_the_owner_may_open_the_socket() {
    let gateway = Gateway::start();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&gateway.socket()), 0o600);
    assert_eq!(mode(gateway.socket().parent().unwrap()), 0o700);
}

#[test]
fn stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("admin.sock");
    let fake = Arc::new(Fake::default());
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a socket outlives its listener");
    let first = Server::start(&path, None, &fake.handlers(), RECEIVE_TIMEOUT).unwrap();
    assert!(matches!(
        Server::start(&path, None, &fake.handlers(), RECEIVE_TIMEOUT),
        Err(AdminError::Socket(SocketError::Answered(_)))
    ));
    UnixStream::connect(&path).expect("the first server must be unharmed");
    first.shutdown();
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("admin.sock");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        Server::start(&path, None, &Arc::new(Fake::default()).handlers(), RECEIVE_TIMEOUT),
        Err(AdminError::Socket(SocketError::NoSocket(_)))
    ));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn taken_metrics_address_is_named() {
    let gateway = Gateway::start();
    let path = gateway.directory.path().join("other.sock");
    let error = Server::start(
        &path,
        Some(gateway.metrics_address()),
        &Arc::new(Fake::default()).handlers(),
        RECEIVE_TIMEOUT,
    )
    .err()
    .unwrap();
    assert!(
        error.to_string().contains(&gateway.metrics_address().to_string()),
        "{error}"
    );
    assert!(!path.exists());
}

#[test]
fn more_clients_than_places_are_served_in_the_end() {
    let gateway = Gateway::start();
    let mut idle: Vec<UnixStream> = (0..64)
        .map(|_| UnixStream::connect(gateway.socket()).unwrap())
        .collect();
    let waiting = UnixStream::connect(gateway.socket()).unwrap();
    idle.pop();
    assert_eq!(exchange(waiting, "GET", "/v1/status", "").0, 200);
}

#[test]
fn idle_clients_do_not_hold_up_a_shutdown() {
    let mut gateway = Gateway::start();
    let _idle = UnixStream::connect(gateway.socket()).unwrap();
    assert_eq!(gateway.request("GET", "/v1/status", "").0, 200);
    let begun = Instant::now();
    gateway.stop();
    assert!(begun.elapsed() < Duration::from_secs(30), "it must end by itself");
    assert!(!gateway.socket().exists());
}

/// Far above what an exchange on one machine takes, even beside other tests.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the other side says until it closes.
fn until_closed(mut stream: impl Read) -> String {
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn half_sent_requests_give_their_places_back() {
    let gateway = Gateway::with_receive_timeout(RECEIVE_TIMEOUT);
    let half = |mut stream: UnixStream| {
        stream.write_all(b"GET /metr").unwrap();
        stream
    };
    let half_tcp = |mut stream: TcpStream| {
        stream.write_all(b"GET /metr").unwrap();
        stream
    };
    let _unix: Vec<_> = (0..70)
        .map(|_| half(UnixStream::connect(gateway.socket()).unwrap()))
        .collect();
    let _tcp: Vec<_> = (0..70)
        .map(|_| half_tcp(TcpStream::connect(gateway.metrics_address()).unwrap()))
        .collect();
    let tcp = TcpStream::connect(gateway.metrics_address()).unwrap();
    tcp.set_read_timeout(Some(5 * RECEIVE_TIMEOUT)).unwrap();
    assert_eq!(exchange(tcp, "GET", "/metrics", "").0, 200);
    let unix = UnixStream::connect(gateway.socket()).unwrap();
    unix.set_read_timeout(Some(5 * RECEIVE_TIMEOUT)).unwrap();
    assert_eq!(exchange(unix, "GET", "/v1/status", "").0, 200);
}

#[test]
fn a_body_that_does_not_come_is_refused_and_the_connection_closed() {
    let gateway = Gateway::with_receive_timeout(RECEIVE_TIMEOUT);
    let mut stream = UnixStream::connect(gateway.socket()).unwrap();
    stream.set_read_timeout(Some(5 * RECEIVE_TIMEOUT)).unwrap();
    let head = "POST /v1/volumes HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n{\"name\"";
    stream.write_all(head.as_bytes()).unwrap();
    let said = until_closed(&stream);
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    assert!(said.contains("\"kind\":\"invalid\"") && said.contains("2 s"), "{said}");
}

#[test]
fn a_connection_without_a_further_request_is_closed() {
    let gateway = Gateway::with_receive_timeout(RECEIVE_TIMEOUT);
    let mut stream = UnixStream::connect(gateway.socket()).unwrap();
    stream.set_read_timeout(Some(5 * RECEIVE_TIMEOUT)).unwrap();
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(until_closed(&stream).starts_with("HTTP/1.1 200 "));
}

/// More than both kinds of socket take without a reader.
#[test]
fn a_client_that_takes_no_answers_gives_its_place_back() {
    let gateway = Gateway::with_receive_timeout(RECEIVE_TIMEOUT);
    let requests = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2000);
    let deaf: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = UnixStream::connect(gateway.socket()).unwrap();
            stream.set_nonblocking(true).unwrap();
            // What does not fit is not needed.
            let _ = stream.write(requests.as_bytes());
            stream
        })
        .collect();
    let stream = UnixStream::connect(gateway.socket()).unwrap();
    stream.set_read_timeout(Some(10 * RECEIVE_TIMEOUT)).unwrap();
    assert_eq!(exchange(stream, "GET", "/v1/status", "").0, 200);
    drop(deaf);
}

/// The limits are for receiving a request, not for answering it.
#[test]
fn a_slow_answer_is_waited_for() {
    let gateway = Gateway::with_receive_timeout(Duration::from_millis(300));
    gateway.fake.0.lock().unwrap().status_delay = Duration::from_millis(1200);
    assert_eq!(gateway.request("GET", "/v1/status", "").0, 200);
}

/// A clock before 1970 or beyond the year 9999 has no date that HTTP could write.
#[test]
fn answers_carry_no_date() {
    let gateway = Gateway::start();
    let mut stream = UnixStream::connect(gateway.socket()).unwrap();
    let request = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let said = until_closed(&stream).to_lowercase();
    assert!(
        said.starts_with("http/1.1 200 ") && !said.contains("\r\ndate:"),
        "{said}"
    );
}
