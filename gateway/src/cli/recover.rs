//! `tombolo recover`: a state directory from the store alone.

use super::Daemon;
use super::arguments::{self, Connection};
use super::error::CliError;
use super::{local, output};
use crate::logging;
use crate::runtime::{KeptRootInfo, RecoverAt, RecoverOptions, RecoverProgress};
use crate::settings::Settings;
use serde_json::json;

pub(super) fn run(
    connection: &Connection,
    options: arguments::RecoverOptions,
    daemon: &impl Daemon,
) -> Result<(), CliError> {
    let config = connection.config.as_deref();
    let mut settings = config.map(Settings::load).transpose()?.unwrap_or_default();
    match options.store {
        // No url is without one.
        Some(name) if !name.contains(':') => settings = local::of_store(settings, Some(&name))?,
        Some(url) => settings.use_store(url),
        None => {}
    }
    if let Some(state) = options.state {
        settings.directories.state_directory = state;
    }
    if let Some(key) = options.key {
        settings.store.master_key_file = Some(key);
        settings.store.master_key_environment = None;
        settings.store.master_key_command = None;
        settings.store.master_key_kms = None;
    }
    logging::start(&settings.log);
    let as_json = options.json;
    if options.list {
        return list(&daemon.roots(&settings).map_err(CliError::Recover)?, as_json);
    }
    let how = RecoverOptions {
        take_over: options.take_over,
        at: options.at.as_deref().map(parse_at).transpose()?,
    };
    let tell = |progress: RecoverProgress| match as_json {
        true => {
            let _ = output::json_line(&progress_json(&progress));
        }
        false => eprintln!("{}", progress_text(&progress)),
    };
    let recovered = daemon.recover(&settings, how, &tell).map_err(CliError::Recover)?;
    match as_json {
        true => output::json_line(&json!({
            "recovered": {
                "writer": recovered.writer,
                "time_s": recovered.time_s,
                "volumes": recovered.volumes,
                "objects": recovered.objects,
                "journal_objects": recovered.journal_objects,
                "journal_bytes": recovered.journal_bytes,
            }
        })),
        false => output::text(&format!(
            "recovered {} and {}, as {} had them at {} (everything acknowledged before then); the cache is empty.\nStart the \
             gateway with `tombolo serve`.",
            counted(recovered.volumes, "volume"),
            counted(recovered.objects, "object"),
            recovered.writer,
            time_text(recovered.time_s),
        )),
    }
}

fn parse_at(text: &str) -> Result<RecoverAt, CliError> {
    if let Ok(sequence) = text.parse() {
        return Ok(RecoverAt::Sequence(sequence));
    }
    let time = humantime::parse_rfc3339_weak(text);
    let since = time
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let since = since.ok_or_else(|| {
        CliError::Usage(format!(
            "--at {text}: neither a root's number nor a time such as 2026-11-23T05:00:00Z"
        ))
    })?;
    Ok(RecoverAt::Time(since.as_secs()))
}

fn list(roots: &[KeptRootInfo], as_json: bool) -> Result<(), CliError> {
    if as_json {
        let roots = roots.iter().map(|root| {
            json!({
                "root": root.sequence,
                "time_s": root.time_s,
                "epoch": root.epoch,
                "writer": root.writer,
            })
        });
        return output::json(&roots.collect::<Vec<_>>());
    }
    let rows: Vec<_> = roots
        .iter()
        .map(|root| [root.sequence.to_string(), time_text(root.time_s), root.writer.clone()])
        .collect();
    output::text(&output::table(["ROOT", "TIME", "WRITER"], &rows))
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn time_text(seconds: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

fn progress_text(progress: &RecoverProgress) -> String {
    match progress {
        RecoverProgress::Watching { writer, lease_ms } => {
            format!("watching for {} s whether {writer} is alive", lease_ms.div_ceil(1000))
        }
        RecoverProgress::TakenOver { writer } => format!("the store is taken over from {writer}"),
        RecoverProgress::Fetched { objects, of } => format!("journal: {objects} of {of} objects fetched"),
        RecoverProgress::ReadTree { pieces } => format!("local metadata: {pieces} pieces of the tree"),
        RecoverProgress::Rebuilt { objects, of } => format!("local metadata: {objects} of {of} journal objects"),
        RecoverProgress::Indexed { objects } => format!("fingerprint index: {objects} objects"),
    }
}

fn progress_json(progress: &RecoverProgress) -> serde_json::Value {
    match progress {
        RecoverProgress::Watching { writer, lease_ms } => json!({"watching": writer, "lease_ms": lease_ms}),
        RecoverProgress::TakenOver { writer } => json!({"taken_over": writer}),
        RecoverProgress::Fetched { objects, of } => json!({"fetched": objects, "of": of}),
        RecoverProgress::ReadTree { pieces } => json!({"tree_pieces": pieces}),
        RecoverProgress::Rebuilt { objects, of } => json!({"rebuilt": objects, "of": of}),
        RecoverProgress::Indexed { objects } => json!({"indexed": objects}),
    }
}
