use super::*;
use crate::socket::Sink;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Takes a client's name, a byte, says it back, and waits for the client to go. "!" has it panic.
struct Parrot {
    /// Names that have come.
    named: Sender<u8>,
}

impl Protocol for Parrot {
    const NAME: &'static str = "parrot";
    type Connection = UnixStream;
    type Client = u8;

    fn begin(&self, _id: u64, socket: UnixStream) -> UnixStream {
        socket
    }

    fn serve(&self, registration: &Registration<Self>) {
        let mut socket = &*registration.connection;
        let mut name = [0];
        if socket.read_exact(&mut name).is_err() {
            return;
        }
        assert!(name != *b"!", "asked for");
        registration.registry.lock().set_client(registration.id, name[0]);
        socket.write_all(&name).unwrap();
        self.named.send(name[0]).unwrap();
        assert_eq!(socket.read(&mut name).unwrap(), 0);
    }

    fn cut_off(connection: &UnixStream) {
        connection.close();
    }
}

struct Stage {
    server: Option<Server<Parrot>>,
    named: Receiver<u8>,
    path: PathBuf,
    _directory: TempDir,
}

impl Stage {
    fn new(connections_max: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("parrot");
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, named) = channel();
        Self {
            server: Some(Server::start(listener, Parrot { named: sender }, connections_max)),
            named,
            path,
            _directory: directory,
        }
    }

    fn server(&self) -> &Server<Parrot> {
        self.server.as_ref().unwrap()
    }

    fn connect(&self, name: u8) -> UnixStream {
        let mut socket = UnixStream::connect(&self.path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // Whoever is turned away cannot say it.
        let _ = socket.write_all(&[name]);
        socket
    }

    /// Connected, and known by name.
    fn client(&self, name: u8) -> UnixStream {
        let socket = self.connect(name);
        assert_eq!(self.named.recv_timeout(PATIENCE), Ok(name));
        socket
    }

    fn wait_until_empty(&self) {
        assert_eq!(self.server().registry().wait_until_empty(Instant::now() + PATIENCE), 0);
    }
}

/// Nothing more than its name is said to the client.
fn assert_closed(mut socket: &UnixStream, name: &[u8]) {
    let mut said = Vec::new();
    match socket.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert_eq!(said, name);
}

#[test]
fn each_client_is_served_and_known_until_it_goes() {
    let stage = Stage::new(8);
    let clients = [b'a', b'b'].map(|name| stage.client(name));
    let mut names: Vec<u8> = stage
        .server()
        .registry()
        .lock()
        .clients()
        .map(|(_, name, _)| *name)
        .collect();
    names.sort_unstable();
    assert_eq!((names, stage.server().registry().len()), (b"ab".to_vec(), 2));
    drop(clients);
    stage.wait_until_empty();
}

#[test]
fn clients_beyond_the_limit_are_turned_away_until_one_has_gone() {
    let stage = Stage::new(2);
    let first = stage.client(b'a');
    let _second = stage.client(b'b');
    assert_closed(&stage.connect(b'c'), b"");
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    let registry = stage.server().registry();
    assert!(registry.wait_while(deadline, |table| table.clients().count() == 2));
    stage.client(b'd');
}

#[test]
fn a_panic_ends_its_connection_and_no_other() {
    let stage = Stage::new(8);
    let other = stage.client(b'a');
    assert_closed(&stage.connect(b'!'), b"");
    stage.client(b'b');
    drop(other);
    stage.wait_until_empty();
}

#[test]
fn a_server_that_has_stopped_accepting_serves_on_and_cuts_off_when_it_is_dropped() {
    let mut stage = Stage::new(8);
    let client = stage.client(b'a');
    let mut server = stage.server.take().unwrap();
    server.stop_accepting();
    assert!(UnixStream::connect(&stage.path).is_err());
    assert_eq!(
        (server.registry().len(), server.registry().lock().is_stopping()),
        (1, true)
    );
    drop(server);
    assert_closed(&client, b"a");
}
