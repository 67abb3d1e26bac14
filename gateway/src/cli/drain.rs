//! `tombolo drain`: a bar for people, plain lines for logs, JSON lines for programs.

use super::arguments::DrainOptions;
use super::error::CliError;
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

pub(super) fn run(client: &Client, options: &DrainOptions) -> Result<(), CliError> {
    client.ask(&endpoints::DRAIN, &())?;
    let status = client.ask(&endpoints::STATUS, &())?;
    if options.wait {
        return wait(client, options, status);
    }
    if options.json {
        return output::json_line(&progress(&status));
    }
    output::text(&format!(
        "draining {}; `tombolo drain --wait` shows the progress",
        HumanBytes(status.dirty_bytes)
    ))
}

fn wait(client: &Client, options: &DrainOptions, mut status: Status) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut display = Display::new(options.json, status.dirty_bytes);
    loop {
        display.show(&status)?;
        if !status.upload.draining {
            return display.finish(&status);
        }
        if let Some(seconds) = options
            .timeout_s
            .filter(|seconds| begun.elapsed() >= Duration::from_secs(*seconds))
        {
            let reason = status.store.last_error;
            return Err(CliError::DrainTimeout {
                dirty_bytes: status.dirty_bytes,
                seconds,
                reason,
            });
        }
        std::thread::sleep(POLL_INTERVAL);
        status = client.ask(&endpoints::STATUS, &())?;
    }
}

fn progress(status: &Status) -> serde_json::Value {
    json!({
        "dirty_bytes": status.dirty_bytes,
        "clean_bytes_per_s": status.upload.clean_bytes_per_s,
        "drain_eta_s": status.upload.drain_eta_s,
        "store_state": status.store.state,
        "store_last_error": status.store.last_error,
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
    format!("{left} left, {rate}/s, ready in {eta}{trouble}")
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
            Self::Lines { json: true, .. } => return output::json_line(&progress(status)),
            Self::Lines { json: false, .. } => {}
            Self::Bar(bar) => bar.finish_and_clear(),
        }
        let but = match status.lost.blocks {
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
}
