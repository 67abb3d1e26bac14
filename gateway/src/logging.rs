//! Messages on standard error, as text or as one JSON object per line. What is said again and again from one place of
//! the program is left out beyond a rate; how often is said before the next line from there.

use crate::settings::{Log, LogFormat, LogLevel};
use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

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
        LogFormat::Text => subscriber.event_format(Limited::text()).try_init(),
        LogFormat::Json => subscriber
            .fmt_fields(JsonFields::new())
            .event_format(Limited::json())
            .try_init(),
    };
}

/// Lines from one place within [`WINDOW`]; the others are left out. Errors tell of single losses, so more are let through.
const WARNINGS_MAX: u64 = 5;
const ERRORS_MAX: u64 = 200;
const WINDOW: Duration = Duration::from_secs(60);

/// A format that leaves out repetition.
struct Limited<F> {
    format: F,
    left_out: fn(u64) -> String,
    places: Places,
}

impl Limited<Format> {
    fn text() -> Self {
        Self {
            format: Format::default().with_target(false),
            left_out: |count| format!("({count} lines like the next were left out)\n"),
            places: Places::default(),
        }
    }
}

impl Limited<Format<Json>> {
    fn json() -> Self {
        Self {
            format: Format::default().json().flatten_event(true),
            left_out: |count| format!("{{\"lines_like_the_next_left_out\":{count}}}\n"),
            places: Places::default(),
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some(left_out) = self.places.admit(event.metadata(), Instant::now()) else {
            return Ok(());
        };
        if left_out > 0 {
            out.write_str(&(self.left_out)(left_out))?;
        }
        self.format.format_event(context, out, event)
    }
}

/// How much each place of the program has said lately.
#[derive(Default)]
struct Places(Mutex<HashMap<Identifier, Window>>);

struct Window {
    began: Instant,
    lines: u64,
}

impl Places {
    /// Whether a line may be written, and how many were left out since the last.
    fn admit(&self, metadata: &Metadata<'static>, now: Instant) -> Option<u64> {
        let lines_max = match *metadata.level() {
            Level::ERROR => ERRORS_MAX,
            Level::WARN | Level::INFO => WARNINGS_MAX,
            _ => return Some(0),
        };
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = places
            .entry(metadata.callsite())
            .or_insert(Window { began: now, lines: 0 });
        if now.duration_since(window.began) >= WINDOW {
            let left_out = window.lines.saturating_sub(lines_max);
            *window = Window { began: now, lines: 1 };
            return Some(left_out);
        }
        window.lines += 1;
        (window.lines <= lines_max).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn repeat(count: u64) {
        for number in 0..count {
            tracing::warn!(number, "upload failed");
        }
    }

    #[test]
    fn one_place_says_a_few_lines_and_another_place_is_heard_meanwhile() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .event_format(Limited::text())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            repeat(1_000);
            tracing::warn!("the disk is slow");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("upload failed").count() as u64, WARNINGS_MAX, "{text}");
        assert_eq!(text.matches("the disk is slow").count(), 1, "{text}");
    }

    #[test]
    fn what_was_left_out_is_counted_when_the_place_is_heard_again() {
        static CALLSITE: tracing::callsite::DefaultCallsite = tracing::callsite::DefaultCallsite::new(&METADATA);
        static METADATA: Metadata<'static> = tracing::metadata! {
            name: "event",
            target: "test",
            level: Level::WARN,
            fields: &[],
            callsite: &CALLSITE,
            kind: tracing::metadata::Kind::EVENT
        };
        let places = Places::default();
        let now = Instant::now();
        let admitted = (0..40).filter(|_| places.admit(&METADATA, now).is_some()).count();
        assert_eq!(admitted as u64, WARNINGS_MAX);
        assert_eq!(places.admit(&METADATA, now + WINDOW), Some(40 - WARNINGS_MAX));
        assert_eq!(places.admit(&METADATA, now + WINDOW), Some(0));
    }
}
