//! Checks that all records agree with each other and with the block maps. Changes nothing.
//!
//! Goes through the entries of each tag in turn, a page at a time under the namespace lock, so requests go on meanwhile.
//! What one page can show is checked at once; what takes everything together (counters, and that every inode has as
//! many names as links) only if nothing changed from start to end. Names and links are compared as sums of a hash of
//! the inode's number, so memory does not grow with the number of inodes.

mod data;
mod inodes;
mod names;
mod others;

use crate::error::FileError;
use crate::keys;
use crate::records::InodeRecord;
use crate::service::{FileService, PAGE};
use crate::storage::{Entry, Storage};
use std::collections::BTreeMap;

/// More than so many findings are counted but not listed.
const FINDINGS_MAX: usize = 1000;

/// A contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The inode, share, or session that it is about.
    pub number: u64,
    /// For people.
    pub what: String,
}

/// What a check of everything found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// None: everything agrees.
    pub findings: Vec<Finding>,
    /// Those that were too many to be listed.
    pub findings_unlisted: u64,
    /// How many were looked at.
    pub inodes: u64,
    /// How many were looked at.
    pub names: u64,
    /// Whether sums over everything were compared: nothing changed while the check ran.
    pub has_totals: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    inodes: i64,
    blocks: i64,
}

struct Check<'a, S> {
    service: &'a FileService<S>,
    report: CheckReport,
    progress: &'a mut dyn FnMut(&'static str, u64),
    shares: BTreeMap<u32, Totals>,
    /// Sums of hashes over names and over links.
    named: u64,
    linked: u64,
}

impl<S: Storage> FileService<S> {
    /// Goes through everything; `progress` is told what is being looked at and how many entries of it were.
    ///
    /// # Errors
    /// Storage that does not answer. Records that cannot be read are findings.
    pub fn check(&self, progress: &mut dyn FnMut(&'static str, u64)) -> Result<CheckReport, FileError> {
        let changes = self.changes();
        let mut check = Check {
            service: self,
            report: CheckReport::default(),
            progress,
            shares: self
                .shares
                .all()
                .iter()
                .map(|share| (share.id, Totals::default()))
                .collect(),
            named: 0,
            linked: 0,
        };
        check.others()?;
        check.names()?;
        check.inodes()?;
        check.data()?;
        if changes.is_some() && self.changes() == changes {
            let listed = check.report.clone();
            check.totals()?;
            if self.changes() != changes {
                return Ok(listed);
            }
        }
        Ok(check.report)
    }
}

impl<S: Storage> Check<'_, S> {
    fn find(&mut self, number: u64, what: impl Into<String>) {
        let what = what.into();
        match self.report.findings.len() < FINDINGS_MAX {
            true => self.report.findings.push(Finding { number, what }),
            false => self.report.findings_unlisted += 1,
        }
    }

    fn expect(&mut self, holds: bool, number: u64, what: &str) {
        if !holds {
            self.find(number, what);
        }
    }

    /// Every entry under a tag, page by page under the namespace lock.
    fn pages(
        &mut self,
        what: &'static str,
        tag: u8,
        mut look: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let service = self.service;
        self.pages_in(what, tag, |check, from, end| {
            let _names = service.reading();
            let page = service.storage.scan(from, end, PAGE)?;
            check.look_at(&page, &mut look)?;
            Ok(page)
        })
    }

    /// The same without the lock, for who takes files' locks, which come before it.
    fn unlocked_pages(
        &mut self,
        what: &'static str,
        tag: u8,
        mut look: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        self.pages_in(what, tag, |check, from, end| {
            let page = check.service.storage.scan(from, end, PAGE)?;
            check.look_at(&page, &mut look)?;
            Ok(page)
        })
    }

    fn pages_in(
        &mut self,
        what: &'static str,
        tag: u8,
        mut page_from: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<Vec<Entry>, FileError>,
    ) -> Result<(), FileError> {
        let (mut from, end) = keys::all(tag);
        let mut count = 0;
        loop {
            let page = page_from(self, &from, &end)?;
            count += page.len() as u64;
            (self.progress)(what, count);
            match page.last() {
                Some((key, _)) if page.len() == PAGE => from = keys::after(key),
                _ => return Ok(()),
            }
        }
    }

    fn look_at(
        &mut self,
        page: &[Entry],
        look: &mut impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        for (key, value) in page {
            match look(self, key, value) {
                Err(FileError::Damaged(error)) => {
                    let number = keys::split(key).map_or(0, |(number, _)| number);
                    self.find(number, format!("an entry of {:?}: {error}", key[0] as char));
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// The inode's record; none, or one that cannot be read, is found elsewhere.
    fn inode(&self, inode: u64) -> Result<Option<InodeRecord>, FileError> {
        match self.service.inode_record(inode) {
            Err(FileError::Damaged(_)) => Ok(None),
            other => other,
        }
    }

    fn has(&self, key: &[u8]) -> Result<bool, FileError> {
        Ok(self.service.storage.get(key)?.is_some())
    }

    fn totals(&mut self) -> Result<(), FileError> {
        self.report.has_totals = true;
        self.expect(
            self.named == self.linked,
            0,
            "some inode has more or fewer names than links",
        );
        for (id, totals) in self.shares.clone() {
            let storage = &self.service.storage;
            let bytes = storage.counter(&keys::used_bytes(id))?;
            let inodes = storage.counter(&keys::used_inodes(id))?;
            let share = self.service.shares.by_id(id);
            let counted = totals.blocks * tombolo_base::BLOCK_BYTES as i64;
            self.expect(bytes == counted, id.into(), "the share's counter of bytes is wrong");
            self.expect(
                inodes == totals.inodes,
                id.into(),
                "the share's counter of inodes is wrong",
            );
            if let Some(share) = share {
                let agrees = share.used_bytes() == bytes.unsigned_abs() && share.inodes() == inodes.unsigned_abs();
                self.expect(
                    agrees,
                    id.into(),
                    "the share's counters in memory are not those of storage",
                );
            }
        }
        Ok(())
    }
}

/// Spreads inode numbers so that no sum of a few equals that of others by chance.
fn hash(inode: u64) -> u64 {
    let mixed = (inode ^ (inode >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
