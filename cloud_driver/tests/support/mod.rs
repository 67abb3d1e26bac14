//! A real S3 server for the tests: versitygw over a temporary directory, on a free port of the loopback.

#![allow(dead_code, reason = "each test uses a part")]

pub mod proxy;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tombolo_cloud_driver::{Environment, S3Settings, Secret, StaticCredentials};

pub const BUCKET: &str = "tombolo-test";
/// A bucket that makes a loopback address of the endpoint `0.0.1`, so that a virtual host needs no name server.
pub const NUMERIC_BUCKET: &str = "127";
pub const ACCESS_KEY: &str = "test";
pub const SECRET_KEY: &str = "testtest";
const START_SECONDS_MAX: u64 = 30;

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With the certificate of `tests/data`, which names `localhost` and `127.0.0.1`.
    pub fn start_tls() -> Self {
        let (certificate, key) = (data_file("loopback-cert.pem"), data_file("loopback-key.pem"));
        Self::start_with(&["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let program = program();
        // A port that was free may be taken by the time the server binds it; then it ends, and the next one is tried.
        for _ in 0..5 {
            let directory = tempfile::tempdir().unwrap();
            // Each directory below the root is a bucket.
            for bucket in [BUCKET, NUMERIC_BUCKET] {
                std::fs::create_dir(directory.path().join(bucket)).unwrap();
            }
            let address = free_address();
            let child = Command::new(&program)
                .env("ROOT_ACCESS_KEY", ACCESS_KEY)
                .env("ROOT_SECRET_KEY", SECRET_KEY)
                .args(["--port", &address.to_string(), "--quiet", "--keep-alive"])
                .args(options)
                .arg("posix")
                .arg(directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
            let mut server = Self {
                child,
                address,
                directory,
            };
            if server.answers() {
                return server;
            }
        }
        panic!("{} did not start on any of five ports", program.display());
    }

    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(START_SECONDS_MAX) {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    pub fn has_file(&self, path: &str) -> bool {
        self.directory.path().join(path).is_file()
    }

    pub fn settings(&self) -> S3Settings {
        settings_for(&format!("http://{}", self.address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn settings_for(endpoint: &str) -> S3Settings {
    S3Settings {
        endpoint: Some(endpoint.into()),
        allow_http: true,
        credentials: Some(credentials(SECRET_KEY)),
        environment: Environment::fixed([]),
        ..S3Settings::default()
    }
}

pub fn credentials(secret: &str) -> StaticCredentials {
    StaticCredentials {
        access_key_id: ACCESS_KEY.into(),
        secret_access_key: Secret::new(secret),
        session_token: None,
    }
}

pub fn data_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Cargo's configuration says where `scripts/setup.sh` has put it.
fn program() -> PathBuf {
    let folder = std::env::var_os("TOMBOLO_TOOLS").expect("TOMBOLO_TOOLS is not set: run this test with cargo");
    let program = Path::new(&folder).join("versitygw");
    assert!(
        program.is_file(),
        "{} is missing: run scripts/setup.sh test",
        program.display()
    );
    program
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// An address that accepts connections and never says a word.
pub fn black_hole() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    free_address()
}

/// Reads a request head and body, answers `reply`, closes: a server for one fixed answer.
pub fn fixed_reply(reply: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 65_536];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    address
}
