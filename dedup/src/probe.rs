//! A lookup that has left the index: it carries its own view of the runs, so it reads without a lock and is not
//! disturbed by flushes and merges. It answers for the moment at which it was made.

use crate::entry::Target;
use crate::run::Run;
use crate::{IndexError, RunStorage};
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{Fingerprint, Pvbn};

/// What is left to do for one lookup. Runs that it may read are not reported as obsolete while it exists.
pub struct Probe(State);

enum State {
    /// Memory knew: the entry was inserted or removed lately.
    Decided(Target),
    Runs {
        key: Fingerprint,
        runs: Arc<Vec<Run>>,
    },
}

impl Probe {
    pub(crate) fn new(key: Fingerprint, decided: Option<Target>, runs: &Arc<Vec<Run>>) -> Self {
        Self(match decided {
            Some(target) => State::Decided(target),
            None => State::Runs {
                key,
                runs: runs.clone(),
            },
        })
    }

    /// Asks the runs from the newest to the oldest: usually no read for an absent fingerprint, one page for a
    /// present one. A corrupt page is an error even if an older run has an answer, since that answer may have been
    /// replaced or removed.
    pub fn resolve<S: RunStorage>(&self, storage: &S) -> Result<Option<Pvbn>, IndexError<S::Error>> {
        match &self.0 {
            State::Decided(target) => Ok(target.pvbn()),
            State::Runs { key, runs } => {
                for run in runs.iter() {
                    if let Some(target) = run.lookup(storage, key)? {
                        return Ok(target.pvbn());
                    }
                }
                Ok(None)
            }
        }
    }
}
