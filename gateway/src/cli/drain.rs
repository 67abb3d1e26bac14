//! `tombolo drain`: a bar for people, plain lines for logs, JSON lines for programs.

use super::arguments::DrainOptions;
use super::error::{CliError, DrainError};
use super::output;
use super::status::duration;
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{Status, StoreState};
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
    let before = client.ask(&endpoints::STATUS, &())?;
    client.ask(&endpoints::DRAIN, &())?;
    let status = client.ask(&endpoints::STATUS, &())?;
    if options.wait {
        return wait(client, options, before.lost.blocks, status);
    }
    if options.json {
        return output::json_line(&progress(&status));
    }
    output::text(&format!(
        "draining {}; `tombolo drain --wait` shows the progress",
        HumanBytes(status.dirty_bytes)
    ))
}

fn wait(client: &Client, options: &DrainOptions, lost_before: u64, mut status: Status) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut display = Display::new(options.json, status.dirty_bytes);
    loop {
        let (seen_at, uptime_s) = (Instant::now(), status.uptime_s);
        display.show(&status)?;
        if let Some(reason) = status.failure {
            return Err(DrainError::DiskFailed(reason).into());
        }
        if !status.upload.draining {
            display.finish(&status)?;
            return told(&status, lost_before, options.json);
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
        status = client.ask(&endpoints::STATUS, &())?;
        // A gateway that was started again meanwhile knows of no drain.
        if status.uptime_s + UPTIME_SLACK_S < uptime_s + waited.as_secs_f64() {
            client.ask(&endpoints::DRAIN, &())?;
            status = client.ask(&endpoints::STATUS, &())?;
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
fn told(status: &Status, lost_before: u64, is_json: bool) -> Result<(), CliError> {
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
    output::text(&match status.dirty_bytes {
        0 => format!("the store has everything{but}"),
        bytes => format!(
            "the store has everything that was there when this began{but}; {} have been written since",
            HumanBytes(bytes)
        ),
    })
}
