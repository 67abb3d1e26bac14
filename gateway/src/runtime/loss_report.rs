//! What is lost with a part of the local disk, for people and for programs.

use super::durable_file;
use serde_json::{Value, json};
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tombolo_base::WallTime;
use tombolo_core::Lsn;

/// Ranges that are told one by one.
const RANGES_TOLD_MAX: usize = 20;
/// The file in the state directory that has them all.
const LIST_NAME: &str = "lost.jsonl";

/// What is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossReport {
    /// By volume or file, and place.
    pub blocks: Vec<LostBytes>,
    /// With the journal.
    pub changes: Option<LostChanges>,
    /// The local copy of the root was lost, and is the store's from now on.
    pub root_adopted: Option<AdoptedRoot>,
    /// Local metadata is made again of what the store holds, which is of this time.
    pub metadata_made_again: Option<WallTime>,
    /// The file that has all of it.
    pub list: PathBuf,
}

/// The store's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptedRoot {
    pub sequence: u64,
    /// Everything that was acknowledged before is in the store.
    pub time: WallTime,
}

/// Bytes whose only copy is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBytes {
    /// Of the volume or the file.
    pub name: String,
    pub offset: u64,
    pub bytes: u64,
    /// The first of them was written then or later.
    pub since: WallTime,
}

/// Changes of all volumes and shares, of which nobody can say what they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostChanges {
    /// Everything before is there.
    pub from: Lsn,
    /// So far at least changes had been flushed.
    pub to: Lsn,
    /// All that had been flushed lies before: only what was answered and not flushed can be lost.
    pub flushed_is_here: bool,
    /// A checkpoint was being made, and nothing else is left: of the changes up to here some are there.
    pub mixed_to: Option<Lsn>,
    /// Everything that was acknowledged before is there.
    pub after: Option<WallTime>,
    /// When the last of them can have been flushed, as far as is known.
    pub until: Option<WallTime>,
}

impl LossReport {
    pub fn path(state: &Path) -> PathBuf {
        state.join(LIST_NAME)
    }

    pub fn is_loss(&self) -> bool {
        !self.blocks.is_empty() || self.changes.is_some()
    }

    /// Bytes of all ranges.
    fn bytes(&self) -> u64 {
        self.blocks.iter().map(|lost| lost.bytes).sum()
    }

    /// Into the log and the file.
    pub fn tell(&self) {
        for line in self.lines() {
            match self.is_loss() {
                true => tracing::warn!("{line}"),
                false => tracing::info!("{line}"),
            }
        }
        if self.is_loss() {
            self.write();
        }
    }

    /// Where the ranges are too many to be told one by one.
    pub fn write_if_long(&self) {
        if self.blocks.len() > RANGES_TOLD_MAX {
            self.write();
        }
    }

    /// The file has one JSON object a line.
    fn write(&self) {
        let lines: String = self.values().map(|value| format!("{value}\n")).collect();
        let written = durable_file::replace(&self.list, |mut file| file.write_all(lines.as_bytes()));
        if let Err(error) = written {
            tracing::warn!(path = %self.list.display(), %error, "the list of what is lost could not be written");
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(root) = self.root_adopted {
            lines.push(format!(
                "the local copy of the root is made again of the store's, root {} of {}: whether the store was set back to it, or \
                 a later root is still on its way there, is not known any more; should one arrive, the gateway stops putting roots \
                 and says so",
                root.sequence,
                Time(Some(root.time))
            ));
        }
        if let Some(time) = self.metadata_made_again {
            lines.push(format!(
                "local metadata is made again of what the store holds as of {}, and what is left of the journal is replayed over it",
                Time(Some(time))
            ));
        }
        if let Some(changes) = self.changes.filter(|changes| changes.flushed_is_here) {
            lines.push(format!(
                "nothing is lost with the journal that was flushed; changes that were acknowledged after {} and not flushed (from LSN {} \
                 on) may be",
                Time(changes.after),
                changes.from.0,
            ));
        } else if let Some(changes) = &self.changes {
            lines.push(format!(
                "lost: changes of all volumes and shares that were acknowledged after {}, until {} (LSN {} to {} at least); which \
                 they were is not known",
                Time(changes.after),
                Time(changes.until),
                changes.from.0,
                changes.to.0
            ));
        }
        if let Some(end) = self.changes.and_then(|changes| changes.mixed_to) {
            lines.push(format!(
                "of the changes up to LSN {} some are there and some are not: a checkpoint was being made, which the journal would \
                 have completed; let `tombolo check` look at the shares, and the owners of volumes at their file systems",
                end.0
            ));
        }
        if !self.blocks.is_empty() {
            lines.push(format!(
                "lost: {} bytes in {} ranges, written since {}, which the store does not have; they read as errors until they are \
                 overwritten",
                self.bytes(),
                self.blocks.len(),
                Time(self.blocks.iter().map(|lost| lost.since).min())
            ));
        }
        lines.extend(self.blocks.iter().take(RANGES_TOLD_MAX).map(|lost| {
            let since = Time(Some(lost.since));
            format!(
                "lost: {}, {} bytes at {}, written since {since}",
                lost.name, lost.bytes, lost.offset
            )
        }));
        if self.blocks.len() > RANGES_TOLD_MAX {
            let more = self.blocks.len() - RANGES_TOLD_MAX;
            lines.push(format!(
                "lost: {more} ranges more; {} has them all",
                self.list.display()
            ));
        }
        if !self.is_loss() {
            lines.push("nothing is lost that was flushed".into());
        }
        lines
    }

    fn values(&self) -> impl Iterator<Item = Value> {
        let blocks = self.blocks.iter().map(|lost| {
            json!({
                "lost": "bytes",
                "name": lost.name,
                "offset": lost.offset,
                "bytes": lost.bytes,
                "since_s": lost.since.0,
            })
        });
        let changes = self.changes.iter().map(|changes| {
            json!({
                "lost": "changes",
                "from_lsn": changes.from.0,
                "to_lsn": changes.to.0,
                "flushed_is_here": changes.flushed_is_here,
                "mixed_to_lsn": changes.mixed_to.map(|lsn| lsn.0),
                "after_s": changes.after.map(|time| time.0),
                "until_s": changes.until.map(|time| time.0),
            })
        });
        blocks.chain(changes)
    }
}

/// One line for each thing.
impl fmt::Display for LossReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.lines().join("\n"))
    }
}

struct Time(Option<WallTime>);

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(WallTime(seconds)) => {
                let time = UNIX_EPOCH + Duration::from_secs(seconds.into());
                humantime::format_rfc3339_seconds(time).fmt(out)
            }
            None => out.write_str("a time that is not known"),
        }
    }
}
