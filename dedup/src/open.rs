//! Opening an index from its manifest, and what to do about runs that cannot be opened.

use crate::index::Retired;
use crate::run::Run;
use crate::{Config, Index, IndexError, Manifest, RunId, RunStorage};
use alloc::{sync::Arc, vec::Vec};

/// What becomes of the runs older than one that is dropped.
///
/// A dropped run takes its removals and replacements with it, so an older entry for the same fingerprint may answer
/// again. PVBNs are never reused, so such an answer names a PVBN that is gone or lost, never other data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OlderRuns {
    /// For callers that check, on every answer, that the PVBN is still stored.
    Keep,
    /// No outdated answer can return; far more duplicates are forgotten.
    Drop,
}

/// What opening does about a run that is damaged or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadRun {
    /// Opening fails.
    Refuse,
    /// Opening goes on without the run, and reports it.
    Drop(OlderRuns),
}

/// A run that was dropped, and why.
#[derive(Debug)]
pub struct BadRun<E> {
    /// The one that was left out.
    pub run: RunId,
    /// What was found.
    pub error: IndexError<E>,
}

/// An index and the runs that it had to leave out.
pub type Opened<E> = (Index, Vec<BadRun<E>>);

impl Index {
    /// Opens the runs that the manifest names: footer, filter and fence of each, sequentially. Entries inserted or
    /// removed since the freeze before that manifest are for the caller to repeat, in order.
    ///
    /// `Manifest::default()` opens an empty index.
    pub fn open<S: RunStorage>(
        storage: &S,
        manifest: &Manifest,
        config: Config,
        on_bad_run: OnBadRun,
    ) -> Result<Opened<S::Error>, IndexError<S::Error>> {
        config.validate().map_err(IndexError::Config)?;
        let (mut runs, mut bad_runs, mut retired) = (Vec::<Run>::new(), Vec::new(), Vec::new());
        for (index, named) in manifest.runs.iter().enumerate() {
            let filter_bytes: u64 = runs.iter().map(|run| run.filter_bytes).sum();
            let fence_bytes: u64 = runs.iter().map(|run| run.fence.bytes()).sum();
            let opened = Run::open(
                storage,
                *named,
                config.filter_bytes_max.saturating_sub(filter_bytes),
                config.fence_bytes_max.saturating_sub(fence_bytes),
            );
            match (opened, on_bad_run) {
                (Ok(run), _) => runs.push(run),
                (Err(error), OnBadRun::Refuse) => return Err(error),
                (Err(error), OnBadRun::Drop(older)) => {
                    bad_runs.push(BadRun { run: named.run, error });
                    let end = match older {
                        OlderRuns::Keep => index + 1,
                        OlderRuns::Drop => manifest.runs.len(),
                    };
                    // The durable manifest names them until the next one replaces it.
                    let dropped = &manifest.runs[index..end];
                    retired.extend(dropped.iter().map(|named| Retired {
                        run: named.run,
                        meta: None,
                        generation: manifest.generation,
                    }));
                    if older == OlderRuns::Drop {
                        break;
                    }
                }
            }
        }
        Ok((Self::with_runs(config, manifest, Arc::new(runs), retired), bad_runs))
    }
}
