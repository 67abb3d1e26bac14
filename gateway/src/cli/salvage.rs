//! `tombolo salvage`: what a state directory has and its store lacks.

use super::Daemon;
use super::arguments::{Connection, SalvageOptions};
use super::error::CliError;
use super::{local, output};
use crate::logging;
use crate::salvage::{ChangedRange, Salvage};
use crate::settings::Settings;
use indicatif::HumanBytes;

pub(super) fn run(connection: &Connection, options: &SalvageOptions, daemon: &impl Daemon) -> Result<(), CliError> {
    let config = connection.config.as_deref();
    let settings = config.map(Settings::load).transpose()?.unwrap_or_default();
    let settings = local::of_store(settings, options.store.as_deref())?;
    logging::start(&settings.log);
    let tell = |what: &str| {
        if !options.json {
            eprintln!("copying {}", printable(what));
        }
    };
    let found = daemon.salvage(&settings, options.copy_to.as_deref(), &tell);
    let found = found.map_err(CliError::Salvage)?;
    match options.json {
        true => output::json(&found)?,
        false => output::text(&shown(&found))?,
    }
    match found.unreadable.len() {
        0 => Ok(()),
        ranges => Err(CliError::Unreadable { ranges }),
    }
}

fn shown(found: &Salvage) -> String {
    if found.is_empty() {
        return "the store lacks nothing that this state directory has".into();
    }
    let mut lines = Vec::new();
    if found.is_all {
        lines.push("what the store has is not known, so this is everything".to_owned());
    }
    if let Some(age_s) = found.oldest_age_s {
        lines.push(format!("the oldest change is {age_s} s old"));
    }
    for volume in &found.volumes {
        lines.push(format!("volume {}: {}", volume.name, ranges_shown(&volume.changed)));
    }
    for file in &found.files {
        let changed = ranges_shown(&file.changed);
        lines.push(format!(
            "{} {}:{}: {changed}",
            file.kind,
            file.share,
            printable(&file.path)
        ));
    }
    for removed in &found.removed {
        lines.push(format!("removed {}:{}", removed.share, printable(&removed.path)));
    }
    for range in &found.unreadable {
        let (copy, bytes) = (printable(&range.copy.to_string_lossy()), HumanBytes(range.bytes));
        lines.push(format!(
            "NOT READ {copy}: {bytes} at {}: {}",
            range.offset, range.reason
        ));
    }
    lines.join("\n")
}

/// Names are whatever a client has made them: what would move the cursor, or stand on another line, is escaped.
fn printable(name: &str) -> String {
    let escaped = |letter: char| match letter {
        '\'' | '"' => letter.to_string(),
        _ => letter.escape_debug().to_string(),
    };
    name.chars().map(escaped).collect()
}

fn ranges_shown(ranges: &[ChangedRange]) -> String {
    let bytes = |is_hole: bool| {
        let of_kind = ranges.iter().filter(|range| range.is_hole == is_hole);
        of_kind.map(|range| range.bytes).sum::<u64>()
    };
    match (bytes(false), bytes(true)) {
        (0, 0) => "name or attributes".into(),
        (data, 0) => format!("{} in {} ranges", HumanBytes(data), ranges.len()),
        (data, holes) => format!(
            "{} and {} of holes in {} ranges",
            HumanBytes(data),
            HumanBytes(holes),
            ranges.len()
        ),
    }
}
