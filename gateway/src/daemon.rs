//! `tombolo serve`: a gateway from its settings, its NBD socket, and an orderly end.

mod control;
mod options;

pub use control::GatewayControl;

use crate::admin::{self, AdminError};
use crate::settings::Settings;
use crate::world::{Gateway, OpenError, VolumeExports};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tombolo_cloud_driver::StoreError;
use tombolo_nbd::{Server, ServerConfig};

/// Why the daemon does not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("[store] url: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{path}: {action}: {error}")]
    Socket {
        path: PathBuf,
        action: &'static str,
        error: io::Error,
    },
    #[error("{path}: another gateway answers on this socket")]
    SocketInUse { path: PathBuf },
    #[error("admin API: {0}")]
    Admin(#[from] AdminError),
    #[error("signals cannot be waited for: {0}")]
    Signals(io::Error),
}

/// How long the last requests and the last checkpoint may take before the process ends without them. Nothing is lost
/// then: the journal is replayed at the next start.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: Settings) -> Result<(), ServeError> {
    end_on_panic();
    let runtime_directory = &settings.directories.runtime_directory;
    let make = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(runtime_directory);
    make.map_err(socket_error(runtime_directory, "cannot make the runtime directory"))?;
    let gateway = Gateway::open(options::options(&settings)?)?;
    let listener = listen(&settings.nbd_socket())?;
    let config = ServerConfig {
        connections_max: settings.nbd.connections_max as usize,
        requests_in_flight_max: settings.nbd.requests_in_flight_max as usize,
        shutdown_timeout: STOP_PATIENCE,
        ..ServerConfig::default()
    };
    let server = Server::serve_unix(listener, Arc::new(VolumeExports(gateway.clone())), config);
    let server = Arc::new(Mutex::new(Some(server)));
    let control = Arc::new(GatewayControl::new(gateway.clone(), server.clone(), &settings));
    let admin = admin::Server::start(&settings.admin_socket(), settings.metrics_address(), control)?;
    tracing::info!(
        nbd = %settings.nbd_socket().display(),
        admin = %settings.admin_socket().display(),
        store = settings.store.url,
        "serving"
    );
    let waited = wait_for_signal().map_err(ServeError::Signals);
    tracing::info!("stopping");
    admin.shutdown();
    let server = server.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    if let Some(server) = server {
        server.shutdown();
    }
    gateway.stop(STOP_PATIENCE);
    let _ = fs::remove_file(settings.nbd_socket());
    waited
}

/// A panic is a defect that leaves the core in no known state. The process ends at once instead of hanging or serving
/// from it; the supervisor starts it again, recovery brings back everything acknowledged, and clients reconnect.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Returns on SIGTERM or SIGINT.
fn wait_for_signal() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            Ok(())
        })
}

/// Listens on a Unix socket, in place of a stale one.
fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    if UnixStream::connect(path).is_ok() {
        return Err(ServeError::SocketInUse { path: path.to_owned() });
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(socket_error(path, "cannot replace the socket")(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(socket_error(path, "cannot listen"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(socket_error(path, "cannot protect"))?;
    Ok(listener)
}

fn socket_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    let path = path.to_owned();
    move |error| ServeError::Socket { path, action, error }
}
