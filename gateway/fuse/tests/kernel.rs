//! A real mount: the kernel as the client. Needs root and `/dev/fuse`; skipped, visibly, without.

mod common;

use common::{Fixture, ROOT, Toy, ToyService, eventually};
use std::fs;
use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tombolo_fuse::mount::{
    AttachError, Holder, HolderConfig, KernelMount, MountError, MountOptions, is_mounted, unmount,
};
use tombolo_fuse::protocol::flags::init;
use tombolo_fuse::{Notification, Server, ServerConfig};

struct Mounted {
    fixture: Fixture,
    directory: PathBuf,
    servers_found: Arc<AtomicUsize>,
    can_resend: bool,
    stop: Option<PipeWriter>,
    /// Gives the holder back, for it may go on.
    holder: Option<JoinHandle<(Holder, Result<(), AttachError>)>>,
}

impl Mounted {
    /// `None` where nothing can be mounted.
    fn start() -> Option<Self> {
        Self::start_with(ServerConfig::default())
    }

    fn start_with(config: ServerConfig) -> Option<Self> {
        let fixture = Fixture::start(config);
        let directory = fixture.directory.path().join("mount");
        fs::create_dir(&directory).unwrap();
        let options = MountOptions {
            directory: directory.clone(),
            source: "toy".into(),
            subtype: "tombolo-test".into(),
            read_only: false,
            data_bytes_max: 1 << 20,
        };
        let mount = match KernelMount::mount(&options) {
            Ok(mount) => mount,
            Err(error @ (MountError::Device(_) | MountError::Mount(..))) => {
                eprintln!("SKIPPED: nothing can be mounted here: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let holder_config = HolderConfig {
            socket: fixture.socket.clone(),
            client_name: "holder".into(),
            share_name: "toy".into(),
            incarnation: 1,
            stable: false,
            devices: 2,
        };
        let can_resend = mount.negotiated().flags & init::HAS_RESEND != 0;
        let holder = Holder::new(mount, holder_config).unwrap();
        let mut mounted = Self {
            fixture,
            directory,
            servers_found: Arc::default(),
            can_resend,
            stop: None,
            holder: None,
        };
        mounted.hold(holder);
        mounted.wait_for_server(1);
        Some(mounted)
    }

    fn hold(&mut self, holder: Holder) {
        let (stopped, stop) = io::pipe().unwrap();
        let counted = Arc::clone(&self.servers_found);
        self.stop = Some(stop);
        self.holder = Some(thread::spawn(move || hold(holder, &stopped, &counted)));
    }

    fn stop_holder(&mut self) -> Holder {
        drop(self.stop.take());
        let (holder, outcome) = self.holder.take().unwrap().join().unwrap();
        outcome.unwrap();
        holder
    }

    fn wait_for_server(&self, count: usize) {
        eventually("the holder finds a server", || {
            self.servers_found.load(Ordering::SeqCst) == count
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn hold(mut holder: Holder, stopped: &PipeReader, servers_found: &AtomicUsize) -> (Holder, Result<(), AttachError>) {
    let outcome = holder.hold(stopped, |_| {
        servers_found.fetch_add(1, Ordering::SeqCst);
    });
    (holder, outcome)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.directory).unwrap_or(true) {
            // Whatever a failed test has left in use there.
            let _ = unmount(&self.directory, true);
        }
        drop(self.stop.take());
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

#[test]
fn files_are_created_written_read_listed_and_removed() {
    let Some(mounted) = Mounted::start() else { return };
    assert!(is_mounted(&mounted.directory).unwrap());
    let data: Vec<u8> = (0..3 << 20).map(|index: u32| (index ^ (index >> 8)) as u8).collect();
    fs::write(mounted.path("large"), &data).unwrap();
    assert_eq!(fs::read(mounted.path("large")).unwrap(), data);
    fs::write(mounted.path("small"), b"abc").unwrap();
    assert_eq!(fs::metadata(mounted.path("small")).unwrap().len(), 3);
    fs::create_dir(mounted.path("directory")).unwrap();
    for index in 0..500 {
        fs::write(mounted.path("directory").join(format!("{index:0>100}")), b"").unwrap();
    }
    let mut names: Vec<String> = fs::read_dir(mounted.path("directory"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.iter().map(|name| name.parse::<u32>().unwrap()).eq(0..500));
    fs::remove_file(mounted.path("small")).unwrap();
    assert_eq!(
        fs::metadata(mounted.path("small")).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}

#[test]
fn many_processes_are_served_at_once() {
    let Some(mounted) = Mounted::start() else { return };
    thread::scope(|scope| {
        for worker in 0..8u8 {
            let path = mounted.path(&format!("file{worker}"));
            scope.spawn(move || {
                let file = fs::File::create_new(&path).unwrap();
                for round in 0..200u64 {
                    file.write_all_at(&[worker; 4096], round * 4096).unwrap();
                }
                assert_eq!(fs::read(&path).unwrap(), vec![worker; 200 * 4096]);
            });
        }
    });
}

#[test]
fn a_request_that_waits_does_not_hold_up_the_others() {
    let Some(mounted) = Mounted::start() else { return };
    let toy = &mounted.fixture.toy;
    let held = toy.add(ROOT, "held", libc::S_IFREG | 0o644, b"1");
    toy.add(ROOT, "free", libc::S_IFREG | 0o644, b"2");
    toy.hold_up(held);
    let path = mounted.path("held");
    let reader = thread::spawn(move || fs::read(path).unwrap());
    eventually("the handler waits", || toy.waiting.load(Ordering::SeqCst) > 0);
    assert_eq!(fs::read(mounted.path("free")).unwrap(), b"2");
    assert!(!reader.is_finished());
    toy.let_go(held);
    assert_eq!(reader.join().unwrap(), b"1");
}

/// One write is being carried out when the server goes, another is begun while there is none.
#[test]
fn a_mount_survives_its_server_and_no_request_is_lost() {
    let Some(mut mounted) = Mounted::start() else { return };
    if !mounted.can_resend {
        eprintln!("SKIPPED: this kernel cannot send requests again");
        return;
    }
    let toy = Arc::clone(&mounted.fixture.toy);
    let node = toy.add(ROOT, "a", libc::S_IFREG | 0o644, b"");
    let open = |path: &Path| fs::OpenOptions::new().write(true).open(path).unwrap();
    let file = open(&mounted.path("a"));
    toy.hold_up(node);
    let writer = thread::spawn(move || file.write_at(b"before", 0).unwrap());
    eventually("the handler waits", || toy.waiting.load(Ordering::SeqCst) == 1);

    drop(mounted.fixture.server.take());
    assert!(!writer.is_finished());
    let path = mounted.path("b");
    let late = thread::spawn(move || fs::write(path, b"while nobody was there").unwrap());
    thread::sleep(Duration::from_millis(50));
    assert!(!late.is_finished());

    mounted.fixture.restart(ServerConfig::default());
    mounted.wait_for_server(2);
    late.join().unwrap();
    eventually("the write was sent again", || toy.waiting.load(Ordering::SeqCst) == 2);
    assert_eq!(toy.resent.lock().unwrap().len(), 1);
    assert!(!writer.is_finished());
    toy.let_go(node);
    assert_eq!(writer.join().unwrap(), 6);
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"before");
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"while nobody was there");
}

#[test]
fn a_process_that_waits_for_a_lock_can_be_stopped() {
    let Some(mounted) = Mounted::start() else { return };
    let toy = &mounted.fixture.toy;
    toy.add(ROOT, "a", libc::S_IFREG | 0o644, b"");
    let mut child = match Command::new("flock")
        .arg("-x")
        .arg(mounted.path("a"))
        .arg("true")
        .spawn()
    {
        Ok(child) => child,
        Err(error) => {
            eprintln!("SKIPPED: flock(1): {error}");
            return;
        }
    };
    eventually("it waits", || toy.lock_waiters.load(Ordering::SeqCst) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(toy.interrupted.load(Ordering::SeqCst), 1);
}

const SERVER_SOCKET: &str = "TEST_SERVER_SOCKET";
const SERVER_HOLDS_UP: &str = "TEST_SERVER_HOLDS_UP";

/// Not a test: the process that the next one starts and kills. Its root is held up if asked for, and it notifies without
/// an end.
#[test]
#[ignore = "a part of another test"]
fn serve_in_a_process_of_its_own() {
    let Some(socket) = std::env::var_os(SERVER_SOCKET) else {
        return;
    };
    let toy = Toy::new();
    if std::env::var_os(SERVER_HOLDS_UP).is_some() {
        toy.hold_up(ROOT);
    }
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let service = Arc::new(ToyService(Arc::clone(&toy)));
    let _server = Server::serve_unix(listener, service, ServerConfig::default());
    loop {
        for notifier in toy.notifiers.lock().unwrap().iter() {
            notifier.notify(Notification::InvalidateEntry {
                parent: ROOT,
                name: b"made".to_vec(),
                expire_only: false,
            });
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A server process, killed at the latest when the test ends.
struct ServerProcess(Child);

impl ServerProcess {
    fn start(socket: &Path, holds_up: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "serve_in_a_process_of_its_own"]);
        command.env(SERVER_SOCKET, socket).stdout(Stdio::null());
        if holds_up {
            command.env(SERVER_HOLDS_UP, "1");
        }
        Self(command.spawn().unwrap())
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        eventually("the process is dead", || self.0.try_wait().unwrap().is_some());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// While a directory is being made the kernel has its parent locked, and notifications about that parent wait for the
/// lock. None of this may keep the dead process from going, or its successor from taking over.
#[test]
fn a_killed_server_is_replaced_while_a_directory_is_locked() {
    let Some(mut mounted) = Mounted::start() else { return };
    if !mounted.can_resend {
        eprintln!("SKIPPED: this kernel cannot send requests again");
        return;
    }
    drop(mounted.fixture.server.take());
    let mut first = ServerProcess::start(&mounted.fixture.socket, true);
    mounted.wait_for_server(2);
    let path = mounted.path("made");
    let maker = thread::spawn(move || fs::create_dir(path));
    thread::sleep(Duration::from_millis(300));
    assert!(!maker.is_finished());
    first.kill();
    let _second = ServerProcess::start(&mounted.fixture.socket, false);
    mounted.wait_for_server(3);
    maker.join().unwrap().unwrap();
    assert!(fs::metadata(mounted.path("made")).unwrap().is_dir());
}

/// The names may be believed for 100 seconds; the notification is faster.
#[test]
fn notifications_reach_the_kernel() {
    let Some(mounted) = Mounted::start() else { return };
    let toy = &mounted.fixture.toy;
    toy.add(ROOT, "old", libc::S_IFREG | 0o644, b"");
    let (old, new) = (mounted.path("old"), mounted.path("old"));
    fs::metadata(&old).unwrap();
    let replacement = toy.add(ROOT, "old", libc::S_IFREG | 0o600, b"longer");
    assert_eq!(fs::metadata(&old).unwrap().len(), 0, "as remembered");
    let notifier = toy.notifiers.lock().unwrap()[0].clone();
    assert!(!notifier.is_silent());
    notifier.notify(Notification::InvalidateEntry {
        parent: ROOT,
        name: b"old".to_vec(),
        expire_only: false,
    });
    eventually("the kernel looks the name up again", || {
        fs::metadata(&new).unwrap().len() == 6
    });
    assert!(replacement > ROOT);
}

#[test]
fn the_end_of_a_mount_is_the_end_of_holder_and_connection() {
    let Some(mut mounted) = Mounted::start() else { return };
    unmount(&mounted.directory, false).unwrap();
    let (_, outcome) = mounted.holder.take().unwrap().join().unwrap();
    outcome.unwrap();
    assert!(!is_mounted(&mounted.directory).unwrap());
    eventually("the connection is gone", || mounted.fixture.server().connections() == 0);
    assert_eq!(mounted.fixture.toy.detached.load(Ordering::SeqCst), 1);
}

/// The holder stops; the mount is still there and can be unmounted.
#[test]
fn a_holder_can_be_told_to_stop() {
    let Some(mut mounted) = Mounted::start() else { return };
    drop(mounted.stop_holder());
    eventually("the connection is gone", || mounted.fixture.server().connections() == 0);
    eventually("nobody holds the device any more", || {
        let error = fs::metadata(mounted.path("a")).unwrap_err();
        error.raw_os_error() == Some(libc::ENOTCONN)
    });
    assert!(is_mounted(&mounted.directory).unwrap());
}

#[test]
fn a_holder_that_was_stopped_can_go_on() {
    let Some(mut mounted) = Mounted::start() else { return };
    let toy = Arc::clone(&mounted.fixture.toy);
    let node = toy.add(ROOT, "a", libc::S_IFREG | 0o644, b"1");
    toy.hold_up(node);
    let path = mounted.path("a");
    let reader = thread::spawn(move || fs::read(path).unwrap());
    eventually("the handler waits", || toy.waiting.load(Ordering::SeqCst) > 0);
    let holder = mounted.stop_holder();
    toy.let_go(node);
    assert_eq!(reader.join().unwrap(), b"1", "the server serves on");
    mounted.hold(holder);
    toy.add(ROOT, "b", libc::S_IFREG | 0o644, b"2");
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"2");
    assert_eq!(mounted.servers_found.load(Ordering::SeqCst), 1, "it is the same server");
    assert!(toy.resent.lock().unwrap().is_empty());
}

#[test]
fn a_shutdown_answers_what_is_under_way() {
    let Some(mut mounted) = Mounted::start() else { return };
    let toy = Arc::clone(&mounted.fixture.toy);
    let node = toy.add(ROOT, "a", libc::S_IFREG | 0o644, b"1");
    toy.hold_up(node);
    let path = mounted.path("a");
    let reader = thread::spawn(move || fs::read(path).unwrap());
    eventually("the handler waits", || toy.waiting.load(Ordering::SeqCst) > 0);
    let server = mounted.fixture.server.take().unwrap();
    let shutdown = thread::spawn(move || server.shutdown());
    thread::sleep(Duration::from_millis(50));
    toy.let_go(node);
    shutdown.join().unwrap();
    mounted.fixture.restart(ServerConfig::default());
    assert_eq!(reader.join().unwrap(), b"1");
    assert_eq!(
        toy.resent.lock().unwrap().len(),
        0,
        "everything was answered by the first server"
    );
}
