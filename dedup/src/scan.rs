//! All entries of the runs, one run after another, with its own view as a [`crate::Probe`] has: for who checks them.

use crate::merge::Cursor;
use crate::run::Run;
use crate::{IndexError, RunStorage};
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{Fingerprint, Pvbn};

/// A scan under way. Entries that a newer run hides are told too. Runs that it reads are not reported as obsolete while it
/// exists.
pub struct Scan {
    runs: Arc<Vec<Run>>,
    next: usize,
    open: Option<Cursor>,
    buffer_bytes: usize,
}

impl Scan {
    pub(crate) fn new(runs: &Arc<Vec<Run>>, buffer_bytes: usize) -> Self {
        Self {
            runs: runs.clone(),
            next: 0,
            open: None,
            buffer_bytes,
        }
    }

    /// The next entry that is not a removal. After an error it goes on with the next run.
    ///
    /// # Errors
    /// When a page cannot be read, or is damaged.
    pub fn next<S: RunStorage>(&mut self, storage: &S) -> Result<Option<(Fingerprint, Pvbn)>, IndexError<S::Error>> {
        loop {
            let Some(cursor) = &mut self.open else {
                let Some(run) = self.runs.get(self.next) else {
                    return Ok(None);
                };
                self.next += 1;
                self.open = Some(Cursor::new(run.clone(), self.buffer_bytes));
                continue;
            };
            match cursor.next(storage) {
                Ok(Some(entry)) => {
                    if let Some(pvbn) = entry.target.pvbn() {
                        return Ok(Some((entry.key, pvbn)));
                    }
                }
                Ok(None) => self.open = None,
                Err(error) => {
                    self.open = None;
                    return Err(error);
                }
            }
        }
    }
}
