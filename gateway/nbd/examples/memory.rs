//! Serves a sparse disk in memory: `memory SOCKET SIZE_BYTES`. The export is named "memory" and is the default one.

use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::Arc;
use tombolo_nbd::memory::{MemoryDisk, MemoryExports};
use tombolo_nbd::{Server, ServerConfig};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, size] = arguments.as_slice() else {
        eprintln!("usage: memory SOCKET SIZE_BYTES");
        return ExitCode::from(2);
    };
    let Ok(size_bytes) = size.parse() else {
        eprintln!("{size:?} is not a number of bytes");
        return ExitCode::from(2);
    };
    let listener = match UnixListener::bind(socket) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("{socket}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let disk = MemoryDisk::new(size_bytes, false);
    let exports = MemoryExports(vec![("memory".into(), disk)]);
    let _server = Server::serve_unix(listener, Arc::new(exports), ServerConfig::default());
    loop {
        std::thread::park();
    }
}
