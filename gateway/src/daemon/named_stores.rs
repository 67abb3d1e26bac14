//! The stores of the daemon, and the start of the named ones. What keeps one from serving keeps no other: it is told, its state
//! directory is left alone, and it is tried again, so that a store that was away serves when it is back.

use super::lock;
use super::served::Served;
use crate::admin::gateway::GatewayControl;
use crate::frontends::{AbsentStore, Stores};
use crate::settings::Settings;
use std::fs;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tombolo_nbd::Server;

/// So long the start of the daemon waits for named stores: what replay takes, as a rule. Clients of one that comes later are told to
/// try again until then.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// Between two attempts to start one: the first time, and at the most.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(5);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// What serves, and who asks for it.
pub struct AllServed {
    pub stores: Arc<Stores>,
    pub control: Arc<GatewayControl>,
    first: Arc<Served>,
    server: Arc<Mutex<Option<Server>>>,
    /// All that were opened; none once the end has begun.
    served: Mutex<Option<Vec<Arc<Served>>>>,
}

impl AllServed {
    /// With the first store; the named ones do not serve yet.
    pub fn new(settings: &Settings, first: Arc<Served>, server: &Arc<Mutex<Option<Server>>>) -> Arc<Self> {
        let opening = settings.named_stores.keys().map(|name| AbsentStore {
            name: name.clone(),
            reason: "it is being opened".into(),
            is_in_settings: true,
        });
        let absent = opening.chain(left_over(settings)).collect();
        let stores = Arc::new(Stores::new(first.as_open(None), absent));
        Arc::new(Self {
            control: Arc::new(GatewayControl::new(stores.clone(), first.control(server))),
            stores,
            server: server.clone(),
            served: Mutex::new(Some(vec![first.clone()])),
            first,
        })
    }

    /// All at once, since each may wait for its store. Returns when each has been tried, or the patience has an end.
    pub fn open_named(self: &Arc<Self>, settings: &Settings, accept_loss: bool) {
        let (tried, attempts) = channel();
        let until = Instant::now() + START_PATIENCE;
        for name in settings.named_stores.keys() {
            let (all, tried, name) = (self.clone(), tried.clone(), name.clone());
            let own = settings.of_named_store(&name).unwrap_or_default();
            let told = name.clone();
            let open = move || all.keep_opening(&name, &own, accept_loss, &tried);
            if let Err(error) = thread::Builder::new().name("open-store".into()).spawn(open) {
                self.stores.note_absent(&told, format!("cannot start threads: {error}"));
            }
        }
        drop(tried);
        for _ in settings.named_stores.keys() {
            if attempts
                .recv_timeout(until.saturating_duration_since(Instant::now()))
                .is_err()
            {
                return;
            }
        }
    }

    fn keep_opening(&self, name: &str, own: &Settings, accept_loss: bool, tried: &Sender<()>) {
        let mut delay = RETRY_DELAY_MIN;
        let mut last_reason = String::new();
        while lock(&self.served).is_some() {
            let opened = Served::open(own, accept_loss);
            match opened {
                Ok(served) => {
                    self.add(name, Arc::new(served));
                    let _ = tried.send(());
                    return;
                }
                Err(error) => {
                    let reason = error.to_string();
                    if reason != last_reason {
                        tracing::error!(store = name, reason, "a named store does not serve; the others do");
                    }
                    last_reason.clone_from(&reason);
                    self.stores.note_absent(name, format!("{reason} (it is tried again)"));
                }
            }
            // Nobody waits for it any more after the first time.
            let _ = tried.send(());
            thread::sleep(delay);
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    fn add(&self, name: &str, served: Arc<Served>) {
        let mut all = lock(&self.served);
        let Some(all) = all.as_mut() else {
            // Too late: what it has is found again by the next start.
            return;
        };
        self.first.bill.share_budget_with(served.bill.clone());
        self.control.add(name.to_owned(), served.control(&self.server));
        self.stores.add(served.as_open(Some(name.to_owned())));
        tracing::info!(store = name, url = served.settings.store.url, "a named store serves");
        all.push(served);
    }

    /// None is added any more. All that are to be stopped.
    pub fn end(&self) -> Vec<Arc<Served>> {
        lock(&self.served).take().unwrap_or_default()
    }
}

/// State directories of stores that the settings do not name any more: what they hold is kept, and nobody can reach it.
fn left_over(settings: &Settings) -> Vec<AbsentStore> {
    let directory = settings.stores_directory();
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(%error, directory = %directory.display(), "cannot look for stores that are not in the settings");
            return Vec::new();
        }
    };
    let mut left: Vec<AbsentStore> = Vec::new();
    for entry in entries.flatten() {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        // Only what a gateway has made: a store of the first one may lie here.
        if settings.named_stores.contains_key(&name) || !entry.path().join("lock").is_file() {
            continue;
        }
        let path = entry.path().display().to_string();
        let reason = format!(
            "the settings have no [store.named.{name}] any more: its volumes and shares are not served; its state is kept in {path}, \
             and what the store lacks is there alone. Put the table back, or remove the directory"
        );
        tracing::warn!(store = name, reason, "a named store does not serve; the others do");
        left.push(AbsentStore {
            name,
            reason,
            is_in_settings: false,
        });
    }
    left
}
