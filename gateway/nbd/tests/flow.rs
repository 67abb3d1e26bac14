//! Answers from other threads, the limits on what is in flight, and the ways a connection ends.

mod common;

use common::{Fixture, Raw, SIZE};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tombolo_nbd::memory::MemoryDisk;
use tombolo_nbd::{
    Answer, Completion, Export, ExportInfo, Exports, NbdError, OpenError, Request, Server, ServerConfig,
};
use tombolo_transport::Budget;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a server that does what it must not to be caught at it, as a rule; never decides a pass wrongly
/// the other way.
const A_WHILE: Duration = Duration::from_millis(100);

/// Hands each request to the test, which answers when it likes.
struct Held {
    requests: Sender<(Request, Completion)>,
    disk: MemoryDisk,
    /// Tells when the export is dropped.
    _alive: Arc<()>,
}

impl Export for Held {
    fn info(&self) -> ExportInfo {
        self.disk.info()
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.requests.send((request, completion)).unwrap();
    }
}

struct HeldExports {
    requests: Mutex<Sender<(Request, Completion)>>,
    disk: MemoryDisk,
    alive: Arc<()>,
}

impl Exports for HeldExports {
    fn list(&self) -> Vec<String> {
        vec!["held".into()]
    }

    fn describe(&self, _name: &str) -> Result<ExportInfo, OpenError> {
        Ok(self.disk.info())
    }

    fn open(&self, _name: &str) -> Result<Box<dyn Export>, OpenError> {
        Ok(Box::new(Held {
            requests: self.requests.lock().unwrap().clone(),
            disk: self.disk.clone(),
            _alive: Arc::clone(&self.alive),
        }))
    }
}

struct Stage {
    fixture: Fixture,
    requests: Receiver<(Request, Completion)>,
    alive: Arc<()>,
}

impl Stage {
    fn new(config: ServerConfig) -> Self {
        let (sender, requests) = channel();
        let disk = MemoryDisk::new(SIZE, false);
        let alive = Arc::new(());
        let exports = HeldExports {
            requests: Mutex::new(sender),
            disk: disk.clone(),
            alive: Arc::clone(&alive),
        };
        Self {
            fixture: Fixture::start(Arc::new(exports), disk, config),
            requests,
            alive,
        }
    }

    fn next(&self) -> (Request, Completion) {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }

    fn assert_nothing_submitted(&self) {
        assert!(self.requests.recv_timeout(A_WHILE).is_err());
    }

    fn wait_for_no_connections(&self) {
        let mut waited = Duration::ZERO;
        while self.fixture.server().connections() > 0 {
            assert!(waited < PATIENCE, "the connection does not end");
            thread::sleep(Duration::from_millis(5));
            waited += Duration::from_millis(5);
        }
    }
}

fn assert_silent(raw: &mut Raw) {
    raw.stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    let error = std::io::Read::read(&mut raw.stream, &mut byte).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    raw.stream.set_nonblocking(false).unwrap();
}

#[test]
fn answers_come_in_any_order_and_a_dropped_request_is_eio() {
    let stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    for cookie in 0..3 {
        raw.request(FLUSH, 0, cookie, 0, 0);
    }
    let mut held: Vec<_> = (0..3).map(|_| stage.next().1).collect();
    held.pop().unwrap().complete(Ok(Answer::Done));
    assert_eq!(raw.simple_reply(), (0, 2));
    drop(held.pop());
    assert_eq!(raw.error_chunk().0, 5);
    held.pop().unwrap().complete(Ok(Answer::Done));
    assert_eq!(raw.simple_reply(), (0, 0));
}

/// Four clients that hold all there is for all, each a read or a write of 16 MiB, and how they are to go on.
struct Hoarders {
    fixture: Fixture,
    budget: Arc<Budget>,
    clients: Vec<Raw>,
}

const HOARD_BYTES: usize = 16 << 20;

impl Hoarders {
    fn new(command: u16) -> Self {
        let budget = Budget::new(4 * HOARD_BYTES);
        let config = ServerConfig {
            budget: budget.clone(),
            bytes_in_flight_max: HOARD_BYTES,
            client_timeout: 20 * A_WHILE,
            ..ServerConfig::default()
        };
        let fixture = Fixture::memory(HOARD_BYTES as u64, config);
        let clients = (0..4).map(|cookie| {
            let mut raw = fixture.transmitting("disk", true, &[]);
            raw.request(command, 0, cookie, 0, HOARD_BYTES as u32);
            raw
        });
        let clients: Vec<Raw> = clients.collect();
        let mut waited = Duration::ZERO;
        while budget.held_bytes() < 4 * HOARD_BYTES {
            assert!(waited < PATIENCE, "the pool is not used up");
            thread::sleep(Duration::from_millis(1));
            waited += Duration::from_millis(1);
        }
        Self {
            fixture,
            budget,
            clients,
        }
    }

    /// A client that needs more than its own part is served all the same, and nothing stays held.
    fn assert_others_are_served(&self) {
        let mut raw = self.fixture.transmitting("disk", true, &[]);
        raw.request(READ, 0, 9, 0, 1 << 20);
        assert_eq!(raw.chunk().payload.len(), 8 + (1 << 20));
        let mut waited = Duration::ZERO;
        while self.budget.held_bytes() > 0 {
            assert!(waited < PATIENCE, "something is held still");
            thread::sleep(Duration::from_millis(1));
            waited += Duration::from_millis(1);
        }
    }
}

#[test]
fn clients_that_take_no_answers_lose_what_they_hold() {
    Hoarders::new(READ).assert_others_are_served();
}

#[test]
fn clients_that_do_not_send_what_they_announced_lose_what_they_hold() {
    let hoarders = Hoarders::new(WRITE);
    hoarders.assert_others_are_served();
    for mut raw in hoarders.clients {
        assert_eq!(raw.error_chunk().0, 5);
        raw.assert_closed();
    }
}

#[test]
fn a_client_that_takes_its_answers_slowly_or_has_no_wish_stays() {
    let config = ServerConfig {
        client_timeout: 10 * A_WHILE,
        ..ServerConfig::default()
    };
    let fixture = Fixture::memory(HOARD_BYTES as u64, config);
    let mut raw = fixture.transmitting("disk", true, &[]);
    raw.request(READ, 0, 1, 0, HOARD_BYTES as u32);
    let mut answer = vec![0; 20 + 8 + HOARD_BYTES];
    for part in answer.chunks_mut(1 << 20) {
        thread::sleep(A_WHILE);
        std::io::Read::read_exact(&mut raw.stream, part).unwrap();
    }
    thread::sleep(12 * A_WHILE);
    raw.request(READ, 0, 2, 0, 512);
    assert_eq!(raw.chunk().cookie, 2);
}

#[test]
fn requests_beyond_the_limit_wait_in_the_socket() {
    let stage = Stage::new(ServerConfig {
        requests_in_flight_max: 2,
        ..ServerConfig::default()
    });
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    for cookie in 0..3 {
        raw.request(FLUSH, 0, cookie, 0, 0);
    }
    let (_, first) = stage.next();
    let (_, second) = stage.next();
    stage.assert_nothing_submitted();
    first.complete(Ok(Answer::Done));
    let (_, third) = stage.next();
    second.complete(Ok(Answer::Done));
    third.complete(Ok(Answer::Done));
    assert_eq!(
        [0, 1, 2],
        [raw.simple_reply().1, raw.simple_reply().1, raw.simple_reply().1]
    );
}

#[test]
fn bytes_beyond_the_limit_wait_and_a_larger_request_runs_alone() {
    let stage = Stage::new(ServerConfig {
        bytes_in_flight_max: 1000,
        ..ServerConfig::default()
    });
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    raw.request(READ, 0, 0, 0, 600);
    raw.request(WRITE, 0, 1, 0, 600);
    raw.send(&[7; 600]);
    raw.request(READ, 0, 2, 0, 5000);
    for (cookie, length) in [(0, Some(600)), (1, None), (2, Some(5000))] {
        let (request, completion) = stage.next();
        stage.assert_nothing_submitted();
        match (request, length) {
            (Request::Read { length, .. }, Some(expected)) => {
                assert_eq!(length, expected);
                completion.complete(Ok(Answer::Data(vec![0; length as usize])));
                assert_eq!(raw.chunk().cookie, cookie);
            }
            (Request::Write { data, .. }, None) => {
                assert_eq!(data, [7; 600]);
                completion.complete(Ok(Answer::Done));
                assert_eq!(raw.simple_reply(), (0, cookie));
            }
            (request, _) => panic!("{request:?}"),
        }
    }
}

#[test]
fn an_answer_that_does_not_fit_is_eio() {
    let stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &["base:allocation"]);
    for (command, length, answer) in [
        (READ, 512, Answer::Done),
        (READ, 512, Answer::Data(vec![0; 511])),
        (FLUSH, 0, Answer::Data(vec![])),
        (7, 512, Answer::Extents(vec![])),
    ] {
        raw.request(command, 0, 1, 0, length);
        stage.next().1.complete(Ok(answer));
        assert_eq!(raw.error_chunk().0, 5);
    }
}

#[test]
fn each_error_of_an_export_reaches_the_client_by_its_number() {
    let stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    for (error, number) in [
        (NbdError::Perm, 1),
        (NbdError::Io, 5),
        (NbdError::NoMem, 12),
        (NbdError::Invalid, 22),
        (NbdError::NoSpace, 28),
        (NbdError::Overflow, 75),
        (NbdError::NotSupported, 95),
        (NbdError::Shutdown, 108),
    ] {
        raw.request(FLUSH, 0, 1, 0, 0);
        stage.next().1.complete(Err(error));
        assert_eq!(raw.error_chunk(), (number, error.to_string()));
    }
}

#[test]
fn the_export_outlives_its_last_answer_and_no_longer() {
    let stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    raw.request(FLUSH, 0, 1, 0, 0);
    let (_, completion) = stage.next();
    raw.request(2, 0, 2, 0, 0);
    thread::sleep(A_WHILE);
    // One here, one in the exports, one in the open export.
    assert_eq!(Arc::strong_count(&stage.alive), 3);
    completion.complete(Ok(Answer::Done));
    assert_eq!(raw.simple_reply(), (0, 1));
    raw.assert_closed();
    stage.wait_for_no_connections();
    assert_eq!(Arc::strong_count(&stage.alive), 2);
}

#[test]
fn an_answer_after_the_client_has_gone_is_dropped() {
    let stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    raw.request(READ, 0, 1, 0, 512);
    let (_, completion) = stage.next();
    drop(raw);
    completion.complete(Ok(Answer::Data(vec![0; 512])));
    stage.wait_for_no_connections();
}

#[test]
fn a_resize_closes_only_connections_that_asked_for_it_and_answers_them_first() {
    let stage = Stage::new(ServerConfig::default());
    let mut following = stage.fixture.transmitting("held", true, &["x-tombolo:resize"]);
    let mut idle = stage.fixture.transmitting("held", true, &["x-tombolo:resize"]);
    let mut other = stage.fixture.transmitting("held", true, &["base:allocation"]);
    following.request(FLUSH, 0, 1, 0, 0);
    let (_, completion) = stage.next();
    stage.fixture.disk.resize(2 * SIZE);
    stage.fixture.server().disconnect_resized("another");
    stage.fixture.server().disconnect_resized("held");
    idle.assert_closed();
    assert_silent(&mut following);
    completion.complete(Ok(Answer::Done));
    assert_eq!(following.simple_reply(), (0, 1));
    following.assert_closed();
    other.request(FLUSH, 0, 2, 0, 0);
    stage.next().1.complete(Ok(Answer::Done));
    assert_eq!(other.simple_reply(), (0, 2));
    let mut again = stage.fixture.transmitting("held", true, &["x-tombolo:resize"]);
    again.request(READ, 0, 3, SIZE, 1);
    stage.next().1.complete(Ok(Answer::Data(vec![9])));
    assert_eq!(again.chunk().payload[8..], [9]);
}

#[test]
fn a_request_after_a_resize_stays_unanswered() {
    let stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &["x-tombolo:resize"]);
    raw.request(FLUSH, 0, 1, 0, 0);
    let (_, completion) = stage.next();
    stage.fixture.server().disconnect_resized("held");
    raw.request(FLUSH, 0, 2, 0, 0);
    stage.assert_nothing_submitted();
    completion.complete(Ok(Answer::Done));
    assert_eq!(raw.simple_reply(), (0, 1));
    raw.assert_closed();
}

fn shut_down_while(stage: &mut Stage, during: impl FnOnce(&Stage)) {
    let server: Server = stage.fixture.server.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.shutdown());
        during(stage);
    });
}

#[test]
fn shutdown_lets_requests_in_flight_finish() {
    let mut stage = Stage::new(ServerConfig::default());
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    let mut negotiating = stage.fixture.negotiating();
    raw.request(FLUSH, 0, 1, 0, 0);
    let (_, completion) = stage.next();
    shut_down_while(&mut stage, |stage| {
        negotiating.assert_closed();
        completion.complete(Ok(Answer::Done));
        assert_eq!(raw.simple_reply(), (0, 1));
        raw.assert_closed();
        assert_eq!(stage.requests.try_iter().count(), 0);
    });
    assert!(std::os::unix::net::UnixStream::connect(&stage.fixture.socket).is_err());
}

#[test]
fn shutdown_does_not_wait_for_ever() {
    let mut stage = Stage::new(ServerConfig {
        shutdown_timeout: Duration::from_millis(50),
        ..ServerConfig::default()
    });
    let mut raw = stage.fixture.transmitting("held", true, &[]);
    raw.request(FLUSH, 0, 1, 0, 0);
    let (_, completion) = stage.next();
    shut_down_while(&mut stage, |_| raw.assert_closed());
    completion.complete(Ok(Answer::Done));
}
