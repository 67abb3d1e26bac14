//! `tombolo drain`: a bar for people, plain lines for logs, JSON lines for programs.

use super::arguments::DrainOptions;
use super::error::{CliError, DrainError};
use super::output;
use super::status::duration;
use super::volume::store_remark;
use crate::admin::client::Client;
use crate::admin::endpoints::{self, OfStore};
use crate::admin::model::{ControlError, ErrorKind, Status, StoreState};
use crate::settings::FIRST;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Short enough for a smooth bar; a status costs microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// For rounding: between two answers of one daemon its uptime grows by no less than the time between them.
const UPTIME_SLACK_S: f64 = 0.01;

pub(super) fn run(client: &Client, options: &DrainOptions) -> Result<(), CliError> {
    let of = OfStore {
        store: options.store.clone(),
    };
    let before = client.ask(&endpoints::STATUS, &())?;
    client.ask(&endpoints::DRAIN, &of)?;
    let status = client.ask(&endpoints::STATUS, &())?;
    let stores = served(&of, &status);
    if options.wait {
        let begun = Instant::now();
        // Of the others another look is due when their turn comes.
        let mut seen = Some(status);
        for store in stores.iter().map(Option::as_deref) {
            let status = match seen.take().as_ref().and_then(|status| of_store(status, store)) {
                Some(status) => status.clone(),
                None => status_of(client, store)?,
            };
            let lost_before = of_store(&before, store).map_or(0, |status| status.lost.blocks);
            wait(client, options, (store, begun), lost_before, status)?;
        }
        return match absent(&of, &client.ask(&endpoints::STATUS, &())?)[..] {
            [] => Ok(()),
            ref stores => Err(DrainError::Absent(stores.join(", ")).into()),
        };
    }
    for store in stores.iter().map(Option::as_deref) {
        let Some(status) = of_store(&status, store) else {
            continue;
        };
        match options.json {
            true => output::json_line(&progress(status))?,
            false => output::text(&format!(
                "draining {}{}; `tombolo drain --wait` shows the progress",
                HumanBytes(status.dirty_bytes),
                store_remark(store)
            ))?,
        }
    }
    Ok(())
}

/// All that serve, the first one first, or the one that is named.
pub(super) fn served(of: &OfStore, status: &Status) -> Vec<Option<String>> {
    if of.store.is_some() {
        return vec![of.store.clone().filter(|name| name != FIRST)];
    }
    let serving = status.stores.iter().filter(|store| store.status.is_some());
    let named = serving.map(|store| Some(store.name.clone()));
    std::iter::once(None).chain(named).collect()
}

/// Named stores that nothing can be said of, unless one is named.
pub(super) fn absent(of: &OfStore, status: &Status) -> Vec<String> {
    if of.store.is_some() {
        return Vec::new();
    }
    let absent = status.stores.iter().filter(|store| store.status.is_none());
    absent.map(|store| store.name.clone()).collect()
}

fn of_store<'s>(status: &'s Status, store: Option<&str>) -> Option<&'s Status> {
    match store {
        None => Some(status),
        Some(name) => status.stores.iter().find(|store| store.name == name)?.status.as_ref(),
    }
}

fn status_of(client: &Client, store: Option<&str>) -> Result<Status, CliError> {
    let status = client.ask(&endpoints::STATUS, &())?;
    let gone = || {
        let name = store.unwrap_or(FIRST);
        ControlError::new(
            ErrorKind::Unavailable,
            format!("store {name:?} does not serve any more"),
        )
    };
    of_store(&status, store).cloned().ok_or_else(|| gone().into())
}

fn wait(
    client: &Client,
    options: &DrainOptions,
    (store, begun): (Option<&str>, Instant),
    lost_before: u64,
    mut status: Status,
) -> Result<(), CliError> {
    let of = OfStore {
        store: store.map(str::to_owned),
    };
    let mut display = Display::new(options.json, status.dirty_bytes);
    loop {
        let (seen_at, uptime_s) = (Instant::now(), status.uptime_s);
        display.show(&status)?;
        if let Some(reason) = status.failure {
            return Err(DrainError::DiskFailed(reason).into());
        }
        if !status.upload.draining {
            display.finish(&status)?;
            return told(&status, (lost_before, store), options.json);
        }
        if let Some(seconds) = options
            .timeout_s
            .filter(|seconds| begun.elapsed() >= Duration::from_secs(*seconds))
        {
            let reason = status.store.last_error;
            let dirty_bytes = status.dirty_bytes;
            return Err(DrainError::Timeout {
                dirty_bytes,
                seconds,
                reason,
            }
            .into());
        }
        std::thread::sleep(POLL_INTERVAL);
        let waited = seen_at.elapsed();
        status = status_of(client, store)?;
        // A gateway that was started again meanwhile knows of no drain.
        if status.uptime_s + UPTIME_SLACK_S < uptime_s + waited.as_secs_f64() {
            client.ask(&endpoints::DRAIN, &of)?;
            status = status_of(client, store)?;
        }
    }
}

fn progress(status: &Status) -> serde_json::Value {
    json!({
        "dirty_bytes": status.dirty_bytes,
        "clean_bytes_per_s": status.upload.clean_bytes_per_s,
        "drain_eta_s": status.upload.drain_eta_s,
        "store_state": status.store.state,
        "store_last_error": status.store.last_error,
        "blocks_unreadable": status.cache.blocks_unreadable,
        "lost_blocks": status.lost.blocks,
    })
}

/// What a person reads.
fn message(status: &Status) -> String {
    let left = HumanBytes(status.dirty_bytes);
    let rate = HumanBytes(status.upload.clean_bytes_per_s.max(0.0) as u64);
    let eta = status.upload.drain_eta_s.map_or("unknown".into(), duration);
    let trouble = match (&status.store.state, &status.store.last_error) {
        (StoreState::Ok, _) | (_, None) => String::new(),
        (state, Some(error)) => format!("; store {}: {error}", state.as_str()),
    };
    let unreadable = match status.cache.blocks_unreadable {
        0 => String::new(),
        blocks => format!("; {blocks} blocks cannot be read from the local disk for now"),
    };
    format!("{left} left, {rate}/s, ready in {eta}{unreadable}{trouble}")
}

enum Display {
    Bar(ProgressBar),
    Lines { json: bool, last: Option<Instant> },
}

impl Display {
    fn new(json: bool, dirty_bytes: u64) -> Self {
        if json || !std::io::stderr().is_terminal() {
            return Self::Lines { json, last: None };
        }
        let bar = ProgressBar::new(dirty_bytes);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        Self::Bar(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    fn show(&mut self, status: &Status) -> Result<(), CliError> {
        match self {
            Self::Bar(bar) => {
                // Writers may add to the backlog while it drains.
                let length = bar.length().unwrap_or(0).max(status.dirty_bytes);
                bar.set_length(length);
                bar.set_position(length - status.dirty_bytes);
                bar.set_message(message(status));
                Ok(())
            }
            Self::Lines { last: Some(last), .. } if last.elapsed() < LINE_INTERVAL => Ok(()),
            Self::Lines { json, last } => {
                *last = Some(Instant::now());
                match (status.dirty_bytes, *json) {
                    (0, _) => Ok(()),
                    (_, true) => output::json_line(&progress(status)),
                    (_, false) => output::text(&message(status)),
                }
            }
        }
    }

    fn finish(self, status: &Status) -> Result<(), CliError> {
        match self {
            Self::Lines { json: true, .. } => output::json_line(&progress(status)),
            Self::Lines { json: false, .. } => Ok(()),
            Self::Bar(bar) => {
                bar.finish_and_clear();
                Ok(())
            }
        }
    }
}

/// # Errors
/// When blocks were lost since it began: the store will never have them.
fn told(status: &Status, (lost_before, store): (u64, Option<&str>), is_json: bool) -> Result<(), CliError> {
    let lost = status.lost.blocks;
    if lost > lost_before {
        return Err(DrainError::Lost { blocks: lost }.into());
    }
    if is_json {
        return Ok(());
    }
    let but = match lost {
        0 => String::new(),
        blocks => format!(" but {blocks} lost blocks; see `tombolo status`"),
    };
    let which = store.map_or_else(|| "the store".into(), |name| format!("store {name}"));
    output::text(&match status.dirty_bytes {
        0 => format!("{which} has everything{but}"),
        bytes => format!(
            "{which} has everything that was there when this began{but}; {} have been written since",
            HumanBytes(bytes)
        ),
    })
}
