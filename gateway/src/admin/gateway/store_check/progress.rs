//! How far a check of the store is, in a file: a client or a gateway that goes away takes nothing of it along.

use crate::admin::model::StoreCheckStatus;
use crate::runtime::durable_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "store-check.json";
const VERSION: u32 = 1;
/// At the most so much is done again.
pub(super) const KEEP_INTERVAL: Duration = Duration::from_secs(2);

/// Where a check goes on, and what it has found until there.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    version: u32,
    /// Of the state directory that was checked.
    identity: u64,
    /// In the stage that the status names.
    pub next: u64,
    pub status: StoreCheckStatus,
}

impl Progress {
    pub fn of(identity: u64, next: u64, status: &StoreCheckStatus) -> Self {
        Self {
            version: VERSION,
            identity,
            next,
            status: status.clone(),
        }
    }
}

pub(super) struct ProgressFile(PathBuf);

impl ProgressFile {
    pub fn of(state_directory: &Path) -> Self {
        Self(state_directory.join(NAME))
    }

    pub fn keep(&self, progress: &Progress) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.0.display());
        let bytes = serde_json::to_vec(progress).map_err(|error| failed(error.into()))?;
        durable_file::replace(&self.0, |mut file| file.write_all(&bytes)).map_err(failed)
    }

    /// What cannot be read, or is of another state directory, was none.
    pub fn read(&self, identity: u64) -> Option<Progress> {
        let bytes = fs::read(&self.0).ok()?;
        let read: Result<Progress, _> = serde_json::from_slice(&bytes);
        match read {
            Ok(progress) if (progress.version, progress.identity) == (VERSION, identity) => Some(progress),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(path = %self.0.display(), %error, "a check of the store begins anew");
                None
            }
        }
    }

    pub fn remove(&self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "the note of a check that has ended is still there");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_kept_by_its_state_directory_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = ProgressFile::of(directory.path());
        assert_eq!(file.read(7), None);
        let status = StoreCheckStatus {
            objects_checked: 5,
            ..StoreCheckStatus::default()
        };
        let progress = Progress::of(7, 99, &status);
        file.keep(&progress).unwrap();
        assert_eq!((file.read(8), file.read(7)), (None, Some(progress)));
        fs::write(&file.0, b"{").unwrap();
        assert_eq!(file.read(7), None);
        file.remove();
        assert!(!file.0.exists());
    }
}
