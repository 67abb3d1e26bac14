//! `tombolo serve`: a gateway for each store from the settings, the sockets before them, and an orderly end.

mod named_stores;
mod options;
mod served;

#[cfg(test)]
pub(crate) use options::{options, share_options};

use crate::admin::server::{self, AdminError};
use crate::allocator;
use crate::bill::{self, PriceFileError};
use crate::frontends::VolumeExports;
use crate::frontends::fuse::ShareService;
use crate::measured::MeasuredError;
use crate::runtime::{
    KeptRootInfo, OpenError, Options, RecoverOptions, RecoverProgress, Recovered, ResizedCache, list_roots,
    recover_from_store, resize_cache,
};
use crate::salvage::{Salvage, salvage};
use crate::settings::Settings;
use crate::signals;
use crate::unix_socket::{self, SocketError};
use named_stores::AllServed;
use served::Served;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tombolo_cloud_driver::{Cause, Counting, StoreError};
use tombolo_files::FileError;
use tombolo_nbd::Server;
use tombolo_transport::Budget;

/// Why the daemon does not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The url cannot be used as it is; nothing was opened yet.
    #[error("[store] url: {0}")]
    Store(#[from] StoreError),
    /// Nothing was opened yet.
    #[error("[prices] file: {0}")]
    Prices(#[from] PriceFileError),
    /// Of the replica of this name; nothing was opened yet.
    #[error("[store.replica.{0}] prices_file: {1}")]
    ReplicaPrices(String, PriceFileError),
    /// Of the table of settings of this name; nothing was opened yet.
    #[error("[{0}] latency_table: {1}")]
    Measured(String, MeasuredError),
    /// The state directory or the store cannot be served from; the message says what to do.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// As [`SocketError`] says, of `nbd.sock` or `files.sock`.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// What the shares have in local metadata cannot be read.
    #[error("the entries of the file service: {0}")]
    Files(FileError),
    /// The admin API cannot be served, and without it nobody could ask what goes on.
    #[error("admin API: {0}")]
    Admin(#[from] AdminError),
    /// The system gives no more of them.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// Found only when all serves already: it stops in order, as it would at a signal.
    #[error("signals cannot be waited for: {0}")]
    Signals(io::Error),
}

/// How long the last requests and the last checkpoint may take before the process ends without them. Nothing is lost
/// then: the journal is replayed at the next start.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: Settings, accept_loss: bool) -> Result<(), ServeError> {
    allocator::limit();
    end_on_panic();
    let first = Arc::new(Served::open(&settings.of_first_store(), accept_loss)?);
    let server = Arc::default();
    let all = AllServed::new(&settings, first, &server);
    all.open_named(&settings, accept_loss);
    let listener = unix_socket::listen(&settings.nbd_socket())?;
    let budget = Budget::new(settings.memory.payload_bytes_max.0 as usize);
    let config = options::block_server_config(&smallest(&settings), &budget, STOP_PATIENCE);
    let exports = Arc::new(VolumeExports(all.stores.clone()));
    *lock(&server) = Some(Server::serve_unix(listener, exports, config));
    let files_listener = unix_socket::listen(&settings.files_socket())?;
    let files_config = options::files_server_config(&settings, &budget, STOP_PATIENCE);
    let service = Arc::new(ShareService(all.stores.clone()));
    let files_server = tombolo_fuse::Server::serve_unix(files_listener, service, files_config);
    let admin = server::Server::start(
        &settings.admin_socket(),
        settings.metrics_address(),
        &all.control.handlers(),
        server::RECEIVE_TIMEOUT,
    )?;
    tracing::info!(
        nbd = %settings.nbd_socket().display(),
        files = %settings.files_socket().display(),
        admin = %settings.admin_socket().display(),
        store = settings.store.url,
        "serving"
    );
    let waited = signals::wait_for_signal().map_err(ServeError::Signals);
    tracing::info!("stopping");
    let served = all.end();
    for served in &served {
        served.gateway.begin_stop();
    }
    admin.shutdown();
    let server = lock(&server).take();
    if let Some(server) = server {
        server.shutdown();
    }
    files_server.shutdown();
    // Side by side, so that none takes from the patience with another.
    thread::scope(|scope| {
        for served in &served {
            scope.spawn(|| served.stop());
        }
    });
    let _ = fs::remove_file(settings.nbd_socket());
    let _ = fs::remove_file(settings.files_socket());
    waited
}

/// Of the store with the smallest cap on dirty data: a write has to fit into each, since clients are told one length.
fn smallest(settings: &Settings) -> Settings {
    let named = settings.named_stores.keys();
    let all = named.filter_map(|name| settings.of_named_store(name));
    let all = all.chain([settings.of_first_store()]);
    all.min_by_key(Settings::dirty_bytes_max).unwrap_or_default()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The daemon as the command line runs it.
pub struct Daemon;

impl crate::cli::Daemon for Daemon {
    fn serve(&self, settings: Settings, accept_loss: bool) -> Result<(), String> {
        run(settings, accept_loss).map_err(|error| error.to_string())
    }

    fn recover(
        &self,
        settings: &Settings,
        how: RecoverOptions,
        tell: &dyn Fn(RecoverProgress),
    ) -> Result<Recovered, String> {
        allocator::limit();
        let options = options::options(settings).map_err(|error| error.to_string())?;
        let counting = Counting::with_default(options.store.clone(), Cause::Recovery);
        let (counts, state) = (counting.counts(), options.state_directory.clone());
        let store = Arc::new(counting);
        let recovered = recover_from_store(Options { store, ..options }, how, tell);
        let recovered = recovered.map_err(|error| error.to_string())?;
        if let Err(error) = bill::note(&state, &counts.by_cause()) {
            tracing::warn!(%error, "what the recovery has asked of the store cannot be noted; it is left out of the bill");
        }
        Ok(recovered)
    }

    fn salvage(&self, settings: &Settings, target: Option<&Path>, tell: &dyn Fn(&str)) -> Result<Salvage, String> {
        allocator::limit();
        let store = settings.store.url.strip_prefix("dir:").map(Path::new);
        for of_ours in store.into_iter().chain([&*settings.directories.state_directory]) {
            if let Some(target) = target.filter(|target| is_below(target, of_ours)) {
                let (target, of_ours) = (target.display(), of_ours.display());
                return Err(format!(
                    "{target} is in {of_ours}, which is the gateway's: name another place"
                ));
            }
        }
        let options = options::options(settings).map_err(|error| error.to_string())?;
        salvage(options, target, tell).map_err(|error| error.to_string())
    }

    fn resize_cache(&self, settings: &Settings) -> Result<ResizedCache, String> {
        let options = options::options(settings).map_err(|error| error.to_string())?;
        resize_cache(options).map_err(|error| error.to_string())
    }

    fn roots(&self, settings: &Settings) -> Result<Vec<KeptRootInfo>, String> {
        let options = options::options(settings).map_err(|error| error.to_string())?;
        list_roots(options).map_err(|error| error.to_string())
    }
}

/// Of a path that is not there yet, as far as it is.
fn is_below(path: &Path, directory: &Path) -> bool {
    let there = path
        .ancestors()
        .find_map(|ancestor| match ancestor.as_os_str().is_empty() {
            true => fs::canonicalize(".").ok(),
            false => fs::canonicalize(ancestor).ok(),
        });
    let directory = fs::canonicalize(directory).ok();
    there
        .zip(directory)
        .is_some_and(|(there, directory)| there.starts_with(directory))
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
