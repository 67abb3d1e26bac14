//! The start of the named stores. What keeps one from serving keeps no other: it is told, and its state directory is left alone.

use super::served::Served;
use crate::frontends::AbsentStore;
use crate::settings::Settings;
use std::fs;
use std::io;
use std::thread;

/// In the order of their names; all at once, since each may wait for its store.
pub fn open(settings: &Settings, accept_loss: bool) -> (Vec<(String, Served)>, Vec<AbsentStore>) {
    let mut served = Vec::new();
    let mut absent = Vec::new();
    let opened: Vec<_> = thread::scope(|scope| {
        let names = settings.named_stores.keys();
        let started = names.map(|name| {
            let own = settings.of_named_store(name).unwrap_or_default();
            let open = move || Served::open(&own, accept_loss).map_err(|error| error.to_string());
            (
                name,
                thread::Builder::new()
                    .name("open-store".into())
                    .spawn_scoped(scope, open),
            )
        });
        let started: Vec<_> = started.collect();
        let ended = started.into_iter().map(|(name, thread)| {
            let opened = match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(opened)) => opened,
                // A panic ends the process.
                Ok(Err(_)) => Err("its start has failed".into()),
                Err(error) => Err(format!("cannot start threads: {error}")),
            };
            (name.clone(), opened)
        });
        ended.collect()
    });
    for (name, opened) in opened {
        match opened {
            Ok(opened) => served.push((name, opened)),
            Err(reason) => {
                tracing::error!(store = name, reason, "a named store does not serve; the others do");
                absent.push(AbsentStore {
                    name,
                    reason,
                    is_in_settings: true,
                });
            }
        }
    }
    absent.extend(left_over(settings));
    (served, absent)
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
    left.sort_by(|left, right| left.name.cmp(&right.name));
    left
}
