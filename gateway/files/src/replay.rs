//! Requests that are sent again after a crash. The change that a request makes notes its number and outcome, so they
//! are kept or lost together; a request that is found there is answered from it. So are those that would come to the same
//! if they were carried out twice: meanwhile another client may have changed it again, and was answered.
//!
//! A session has one slot for each of 4096 numbers in a row, far more than it may have under way at once.

use crate::error::FileError;
use crate::keys::{self, tag};
use crate::records::{Outcome, ReplayRecord};
use crate::service::FileService;
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{Caller, Entry, Request};

const SLOTS: u64 = 4096;

/// IdAllocator of one session grow by 2: the lowest bit says nothing.
pub fn key(session: u64, number: u64) -> Vec<u8> {
    let slot = (number >> 1) % SLOTS;
    keys::replay(session, slot as u16)
}

impl<S: Storage> FileService<S> {
    /// What the request came to when it was carried out before.
    pub(crate) fn outcome_before(&self, caller: &Caller) -> Result<Option<Outcome>, FileError> {
        let Request::Again(number) = caller.request else {
            return Ok(None);
        };
        let Some(value) = self.storage.get(&key(caller.session, number))? else {
            return Ok(None);
        };
        let record = ReplayRecord::decode(&value)?;
        Ok((record.number == number).then_some(record.outcome))
    }

    /// Whether a request that makes no inode was carried out before.
    pub(crate) fn is_done_before(&self, caller: &Caller) -> Result<bool, FileError> {
        match self.outcome_before(caller)? {
            Some(Outcome::Done) => Ok(true),
            Some(Outcome::Entry(_) | Outcome::Bytes(_)) => Err(used_for_another()),
            None => Ok(false),
        }
    }

    /// How many bytes the request copied when it was carried out before.
    pub(crate) fn bytes_before(&self, caller: &Caller) -> Result<Option<u64>, FileError> {
        match self.outcome_before(caller)? {
            Some(Outcome::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Outcome::Entry(_) | Outcome::Done) => Err(used_for_another()),
            None => Ok(None),
        }
    }

    /// To be called after a change of data that notes its request: unlike others it is made without the namespace lock, so
    /// the session may have ended meanwhile, and its notes gone before this one came.
    pub(crate) fn drop_late_note(&self, caller: &Caller) -> Result<(), FileError> {
        let (Request::Number(number) | Request::Again(number)) = caller.request else {
            return Ok(());
        };
        if self.has_session(caller.session) {
            return Ok(());
        }
        let mut transaction = Transaction::default();
        transaction.delete(key(caller.session, number));
        let _names = self.changing();
        Ok(self.storage.commit(transaction.change)?)
    }

    /// Those that a crash kept from going.
    pub(crate) fn drop_notes_without_sessions(&self) -> Result<(), FileError> {
        let mut transaction = Transaction::default();
        self.each(tag::REPLAY, |key, _| {
            let (session, _) = keys::split(key)?;
            if !self.has_session(session) {
                transaction.delete(key.to_vec());
            }
            Ok(())
        })?;
        match transaction.change.entries.is_empty() {
            true => Ok(()),
            false => Ok(self.storage.commit(transaction.change)?),
        }
    }

    /// The entry that the request made or linked when it was carried out before, as it is now.
    /// Takes the namespace lock.
    pub(crate) fn entry_before(&self, caller: &Caller) -> Result<Option<Entry>, FileError> {
        match self.outcome_before(caller)? {
            Some(Outcome::Entry(inode)) => {
                let _names = self.reading();
                Ok(Some(self.entry(caller, inode)?))
            }
            Some(Outcome::Done | Outcome::Bytes(_)) => Err(used_for_another()),
            None => Ok(None),
        }
    }
}

fn used_for_another() -> FileError {
    FileError::Invalid("the request's number was used for another")
}
