//! One check of all shares at a time, and what the latest found.

use super::Shares;
use crate::admin::model::{CHECK_FINDINGS_KEPT_MAX, CheckFinding, CheckState, CheckStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tombolo_files::{CheckReport, FileError, Finding};

/// What the file service calls its pass over inodes.
const INODES: &str = "inodes";

#[derive(Default)]
pub struct Checking {
    latest: Mutex<CheckStatus>,
    /// What the latest check that came to its end has found.
    findings: Mutex<Option<u64>>,
}

impl Checking {
    pub fn status(&self) -> CheckStatus {
        self.lock().clone()
    }

    /// What the latest check that came to its end has found.
    pub fn findings(&self) -> Option<u64> {
        *self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, CheckStatus> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when a check begins; one that is under way is joined.
    fn begin(&self, inodes: u64) -> bool {
        let mut status = self.lock();
        if status.state == CheckState::Running {
            return false;
        }
        *status = CheckStatus {
            run: status.run + 1,
            state: CheckState::Running,
            inodes,
            ..CheckStatus::default()
        };
        true
    }

    fn on_progress(&self, what: &'static str, count: u64) {
        // Of the passes over everything the one over inodes is the one that people can make something of.
        if what == INODES {
            self.lock().inodes_checked = count;
        }
    }

    fn end(&self, result: Result<CheckReport, FileError>) {
        let mut status = self.lock();
        match result {
            Ok(report) => {
                status.state = CheckState::Finished;
                status.inodes_checked = report.inodes;
                let count = report.findings.len() as u64 + report.findings_unlisted;
                *self.findings.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
                status.findings_count = count;
                status.findings = report.findings.into_iter().map(told).collect();
                status.findings.truncate(CHECK_FINDINGS_KEPT_MAX);
            }
            Err(error) => {
                status.state = CheckState::Failed;
                status.error = Some(error.to_string());
            }
        }
    }
}

fn told(finding: Finding) -> CheckFinding {
    tracing::warn!(number = finding.number, "check: {}", finding.what);
    CheckFinding {
        share: None,
        inode: Some(finding.number),
        message: finding.what,
    }
}

impl Shares {
    /// Begins to check all shares on a thread of its own, or joins the check that is under way.
    pub fn check(self: &Arc<Self>) -> CheckStatus {
        let inodes = self.service.shares().iter().map(|share| share.inodes).sum();
        if self.checking.begin(inodes) {
            let shares = self.clone();
            let check = move || {
                let mut progress = |what, count| shares.checking.on_progress(what, count);
                shares.checking.end(shares.service.check(&mut progress));
            };
            if let Err(error) = thread::Builder::new().name("check".into()).spawn(check) {
                self.checking.end(Err(FileError::Failed(error.to_string())));
            }
        }
        self.checking.status()
    }
}
