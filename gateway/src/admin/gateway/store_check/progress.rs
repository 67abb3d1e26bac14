//! How far a check of the store is, in a file: a client or a gateway that goes away takes nothing of it along.

use crate::admin::model::StoreCheckStatus;
use crate::runtime::durable_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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

pub(super) struct ProgressFile {
    path: PathBuf,
    /// That it cannot be kept.
    is_told: AtomicBool,
}

impl ProgressFile {
    pub fn of(state_directory: &Path) -> Self {
        Self {
            path: state_directory.join(NAME),
            is_told: AtomicBool::new(false),
        }
    }

    /// A check whose progress cannot be kept goes on: it is begun anew if it is interrupted, and nothing else is lost.
    pub fn keep(&self, progress: &Progress) {
        let bytes = serde_json::to_vec(progress).map_err(io::Error::from);
        let kept = bytes.and_then(|bytes| durable_file::replace(&self.path, |mut file| file.write_all(&bytes)));
        let Err(error) = kept else {
            return self.is_told.store(false, Ordering::Relaxed);
        };
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = %self.path.display(),
                %error,
                "the progress of the check of the store cannot be kept there, so a check that is interrupted begins anew; \
                 if something else has that name, move it away"
            );
        }
    }

    /// What cannot be read, or is of another state directory, was none.
    pub fn read(&self, identity: u64) -> Option<Progress> {
        let read = fs::read(&self.path).and_then(|bytes| Ok(serde_json::from_slice::<Progress>(&bytes)?));
        match read {
            Ok(progress) if (progress.version, progress.identity) == (VERSION, identity) => Some(progress),
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(
                    path = %self.path.display(),
                    %error,
                    "what is noted there of an earlier check of the store cannot be read; the check begins anew"
                );
                None
            }
        }
    }

    pub fn remove(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "the note of a check that has ended is still there");
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
        file.keep(&progress);
        let again = Progress::of(7, 99, &status);
        assert_eq!((file.read(8), file.read(7)), (None, Some(again)));
        fs::write(&file.path, b"{").unwrap();
        assert_eq!(file.read(7), None);
        file.remove();
        assert!(!file.path.exists());
        // What cannot be kept is none, and no harm.
        fs::create_dir(&file.path).unwrap();
        file.keep(&progress);
        assert_eq!(file.read(7), None);
        file.remove();
        assert!(file.path.is_dir());
    }
}
