//! What one field alone cannot tell: texts with a form, and settings that contradict each other.

use super::policies::{DEFAULT_PREFETCH, DEFAULT_REPLACEMENT};
use super::section::qualified;
use super::{ByteSize, Fault, Settings, named_store, replica, store};
use std::net::SocketAddr;
use std::path::{Component, Path};
use tombolo_base::BLOCK_BYTES;

/// Leaves room for "/admin.sock" or "/files.sock" and the final zero in the 108 bytes of a socket's address.
const RUNTIME_PATH_BYTES_MAX: usize = 96;
/// What the gateway keeps in its state directory, and the servers that `tombolo export` configures.
pub(super) const STATE_ENTRIES: [&str; 12] = [
    "cache",
    "journal",
    "metadata",
    "index",
    "history",
    "bill",
    "generation",
    "lock",
    "ganesha",
    "keys",
    "master.key",
    "replicas",
];

pub(super) fn check(settings: &Settings, faults: &mut Vec<Fault>) {
    check_directories(settings, faults);
    store::check(settings, faults);
    replica::check(settings, faults);
    named_store::check(settings, faults);
    check_sizes(settings, faults);
    check_policies(settings, faults);
    check_metrics(settings, faults);
    check_prices(settings, faults);
}

pub(super) fn fault(
    section: &str,
    key: &str,
    value: impl ToString,
    permitted: impl ToString,
    reason: impl ToString,
) -> Fault {
    Fault {
        key: qualified(section, key),
        value: value.to_string(),
        permitted: permitted.to_string(),
        reason: reason.to_string(),
    }
}

pub(super) fn is_plain_absolute(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|component| component != Component::ParentDir)
}

fn check_policies(settings: &Settings, faults: &mut Vec<Fault>) {
    let (cache, prefetch) = (&settings.cache, &settings.prefetch);
    if let Some(combination) = prefetch.combination {
        let named = (cache.replacement, prefetch.policy);
        let pair = settings.unpriced_policies();
        if named != (DEFAULT_REPLACEMENT, DEFAULT_PREFETCH) && named != (pair.replacement, pair.prefetch.name()) {
            let reason = format!(
                "it contradicts [cache] replacement = {} or [prefetch] policy = {}",
                cache.replacement.name(),
                prefetch.policy
            );
            faults.push(fault("prefetch", "combination", combination, "alone", reason));
        }
    }
    let track = prefetch.graph_track_bytes;
    if !track.0.is_power_of_two() {
        let reason = "tracks must not cross objects";
        faults.push(fault("prefetch", "graph_track_bytes", track, "a power of two", reason));
    }
    let degree_max = (settings.cache.size.0 / 4).max(BLOCK_BYTES as u64);
    if prefetch.degree_bytes.0 > degree_max {
        let permitted = format!("at most {}, a quarter of the cache", ByteSize(degree_max));
        let reason = "what is fetched ahead must not push out what is read";
        faults.push(fault(
            "prefetch",
            "degree_bytes",
            prefetch.degree_bytes,
            permitted,
            reason,
        ));
    }
}

fn check_directories(settings: &Settings, faults: &mut Vec<Fault>) {
    let (state, runtime) = (
        &settings.directories.state_directory,
        &settings.directories.runtime_directory,
    );
    for (key, path) in [("state_directory", state), ("runtime_directory", runtime)] {
        if !is_plain_absolute(path) {
            let reason = "the working directory of a service is nothing to rely on";
            faults.push(fault("", key, path.display(), "an absolute path without ..", reason));
        }
    }
    if runtime.as_os_str().len() > RUNTIME_PATH_BYTES_MAX {
        let permitted = format!("at most {RUNTIME_PATH_BYTES_MAX} bytes");
        let reason = "the address of a socket in it holds 107 bytes";
        faults.push(fault("", "runtime_directory", runtime.display(), permitted, reason));
    }
    if settings
        .state_entries()
        .any(|entry| runtime.starts_with(state.join(entry)))
    {
        let reason = format!("{} holds the gateway's own files", state.display());
        faults.push(fault(
            "",
            "runtime_directory",
            runtime.display(),
            "a directory of its own",
            reason,
        ));
    }
}

fn check_sizes(settings: &Settings, faults: &mut Vec<Fault>) {
    check_cache(settings, faults);
    check_journal(settings, faults);
}

/// What a store's cache may be, and what has to fit into it.
pub(super) fn check_cache(settings: &Settings, faults: &mut Vec<Fault>) {
    let cache = settings.cache.size;
    if !cache.0.is_multiple_of(BLOCK_BYTES as u64) {
        let reason = "the cache file consists of blocks";
        faults.push(fault("cache", "size", cache, "a multiple of 4KiB", reason));
    }
    if settings.dirty_bytes_max() > cache {
        let reason = format!("dirty data is held in the cache, and [cache] size = {cache}");
        let permitted = format!("at most {cache}");
        faults.push(fault(
            "flush",
            "dirty_bytes_max",
            settings.dirty_bytes_max(),
            permitted,
            reason,
        ));
    }
    let window_max = ByteSize(cache.0 / 4);
    if let Some(window) = settings.prefetch.window_bytes_max.filter(|window| *window > window_max) {
        let reason = format!("one reader's window must not crowd out the cache, and [cache] size = {cache}");
        let permitted = format!("at most a quarter of the cache, {window_max}");
        faults.push(fault("prefetch", "window_bytes_max", window, permitted, reason));
    }
}

fn check_journal(settings: &Settings, faults: &mut Vec<Fault>) {
    let (segment, checkpoint) = (
        settings.journal.segment_bytes,
        settings.journal.checkpoint_journal_bytes,
    );
    if segment > checkpoint {
        let reason = "a checkpoint frees whole segments, and [journal] checkpoint_journal_bytes is smaller than one";
        faults.push(fault(
            "journal",
            "segment_bytes",
            segment,
            format!("at most {checkpoint}"),
            reason,
        ));
    }
}

fn check_prices(settings: &Settings, faults: &mut Vec<Fault>) {
    let file = settings.prices.file.as_deref();
    if let Some(file) = file.filter(|file| !is_plain_absolute(file)) {
        let reason = "the working directory of a service is nothing to rely on";
        faults.push(fault(
            "prices",
            "file",
            file.display(),
            "an absolute path without ..",
            reason,
        ));
    }
}

fn check_metrics(settings: &Settings, faults: &mut Vec<Fault>) {
    let listen = settings.metrics.listen.as_str();
    if listen.is_empty() {
        return;
    }
    match listen.parse::<SocketAddr>() {
        Err(_) => {
            let reason = "it must be a numeric address and a port, because what a name means may change";
            faults.push(fault(
                "metrics",
                "listen",
                listen,
                "ADDRESS:PORT, such as 127.0.0.1:9464, or empty",
                reason,
            ));
        }
        Ok(address) if !address.ip().is_loopback() && !settings.metrics.allow_remote => {
            let reason = "other machines could read it; set [metrics] allow_remote = true to accept that";
            faults.push(fault("metrics", "listen", listen, "a loopback address", reason));
        }
        Ok(_) => {}
    }
}
