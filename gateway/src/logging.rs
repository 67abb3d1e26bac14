//! Messages on standard error, as text or as one JSON object per line.

use crate::settings::{Log, LogFormat, LogLevel};
use std::io::IsTerminal;
use tracing::Level;

/// Installs the global subscriber. A second call in one process changes nothing.
pub fn start(settings: &Log) {
    let level = match settings.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // An error here means that a subscriber is there already, and messages go to that one.
    let _ = match settings.format {
        LogFormat::Text => subscriber.with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
}
