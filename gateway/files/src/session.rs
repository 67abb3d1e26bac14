//! Sessions: one client's use of one share, over connections that come and go and over restarts of the service.
//!
//! A session owns locks, opens and the notes of its requests. It lives until it is ended: by its client's next
//! incarnation, by the front end when it does not come back in time, or with its share.

use crate::error::FileError;
use crate::exclusion::locked;
use crate::keys::{self, tag};
use crate::records::{Outcome, SessionRecord};
use crate::service::{FileService, IdAllocator, PAGE, service_caller};
use crate::storage::Storage;
use crate::transaction::Transaction;
use crate::types::{NAME_BYTES_MAX, SessionKind, SessionRequest, SessionStart, SessionStatus};
use crate::usage::Share;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tombolo_base::{EntryChange, MetadataChange};

#[derive(Clone, Debug)]
pub struct Session {
    record: SessionRecord,
    /// Connections.
    attached: usize,
    /// It had files open before the service started, and nobody knows which.
    may_hold_anything: bool,
    /// It is being ended, and takes nothing new.
    is_ending: bool,
}

impl<S: Storage> FileService<S> {
    pub(crate) fn load_sessions(&self) -> Result<(), FileError> {
        self.each(tag::SESSION, |key, value| {
            let (number, _) = keys::split(key)?;
            let record = SessionRecord::decode(value)?;
            let session = Session {
                may_hold_anything: record.kind == SessionKind::Kernel,
                record,
                attached: 0,
                is_ending: false,
            };
            locked(&self.sessions).insert(number, session);
            Ok(())
        })
    }

    /// Attaches one connection: begins a session, or goes on with the one that the client has.
    ///
    /// # Errors
    /// [`FileError::NotFound`] when there is no such share, [`FileError::InUse`] when it is being deleted.
    pub fn attach(&self, request: &SessionRequest<'_>) -> Result<SessionStart, FileError> {
        if request.client.is_empty() || request.client.len() > NAME_BYTES_MAX {
            return Err(FileError::Invalid("a client's name has 1 to 255 bytes"));
        }
        loop {
            let mut numbers = self.changing();
            let share = self.shares.by_name(request.share).ok_or(FileError::NotFound)?;
            if share.being_deleted.load(Ordering::Relaxed) {
                return Err(FileError::InUse("the share is being deleted"));
            }
            match self.session_of(request, share.id) {
                None => return self.begin_session(&mut numbers, request, &share),
                Some((session, true)) => return self.resume_session(session, &share),
                Some((session, false)) => {
                    drop(numbers);
                    self.end_session(session)?;
                }
            }
        }
    }

    /// The client's session on the share, and whether it can go on.
    fn session_of(&self, request: &SessionRequest<'_>, share: u32) -> Option<(u64, bool)> {
        let sessions = locked(&self.sessions);
        let mut of_share = sessions.iter().filter(|(_, session)| session.record.share == share);
        let (number, session) = of_share.find(|(_, session)| session.record.client == request.client)?;
        let goes_on = session.record.incarnation == request.incarnation && !session.is_ending;
        Some((*number, goes_on))
    }

    fn begin_session(
        &self,
        numbers: &mut IdAllocator,
        request: &SessionRequest<'_>,
        share: &Arc<Share>,
    ) -> Result<SessionStart, FileError> {
        let number = numbers.next.session;
        let mut next = numbers.next;
        next.session += 1;
        let record = SessionRecord {
            share: share.id,
            incarnation: request.incarnation,
            kind: request.kind,
            client: request.client.to_vec(),
        };
        let mut transaction = Transaction::default();
        numbers.put_next(&mut transaction, next);
        transaction.put(keys::session(number), record.encode());
        let invalidations = self.commit(&service_caller(share.id), transaction, Outcome::Done)?;
        self.notify(invalidations);
        numbers.next = next;
        let session = Session {
            record,
            attached: 1,
            may_hold_anything: false,
            is_ending: false,
        };
        locked(&self.sessions).insert(number, session);
        Ok(start(number, share, false))
    }

    fn resume_session(&self, number: u64, share: &Arc<Share>) -> Result<SessionStart, FileError> {
        let mut sessions = locked(&self.sessions);
        let session = sessions.get_mut(&number).ok_or(FileError::NoSession)?;
        session.attached += 1;
        Ok(start(number, share, true))
    }

    /// One connection less; how many remain. The session stays until it is ended.
    pub fn detach(&self, session: u64) -> usize {
        let mut sessions = locked(&self.sessions);
        let Some(session) = sessions.get_mut(&session) else {
            return 0;
        };
        session.attached = session.attached.saturating_sub(1);
        session.attached
    }

    /// Frees its locks and what it had open. After an error it has ended only in part, takes nothing new, and can be
    /// ended again; one that does not exist is no error.
    pub fn end_session(&self, session: u64) -> Result<(), FileError> {
        let Some(share) = self.stop_session(session) else {
            return Ok(());
        };
        self.end_locks(session)?;
        // Under the namespace lock, so that whoever removes a last name has either seen the session or sees it gone.
        let orphans = {
            let _names = self.changing();
            let mut open_files = locked(&self.open_files);
            open_files.end_session(session);
            open_files.orphans_of(session)
        };
        for inode in orphans {
            self.let_go(inode, session)?;
        }
        self.remove_session(session, share)
    }

    fn stop_session(&self, session: u64) -> Option<u32> {
        let _names = self.changing();
        let mut sessions = locked(&self.sessions);
        let session = sessions.get_mut(&session)?;
        session.is_ending = true;
        session.may_hold_anything = false;
        Some(session.record.share)
    }

    /// The notes of its requests go first, so that none is left without its session.
    fn remove_session(&self, session: u64, share: u32) -> Result<(), FileError> {
        let (from, end) = keys::all_of(tag::REPLAY, session);
        let _names = self.changing();
        loop {
            let page = self.storage.scan(&from, &end, PAGE)?;
            if page.is_empty() {
                break;
            }
            let entries = page.into_iter().map(|(key, _)| EntryChange::Delete { key }).collect();
            self.storage.commit(MetadataChange {
                entries,
                holes: Vec::new(),
            })?;
        }
        let mut transaction = Transaction::default();
        transaction.delete(keys::session(session));
        let invalidations = self.commit(&service_caller(share), transaction, Outcome::Done)?;
        self.notify(invalidations);
        locked(&self.sessions).remove(&session);
        Ok(())
    }

    /// All sessions, in the order in which they began.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let sessions = locked(&self.sessions);
        let status = |(number, session): (&u64, &Session)| SessionStatus {
            session: *number,
            client: session.record.client.clone(),
            share: session.record.share,
            kind: session.record.kind,
            attached: session.attached,
        };
        sessions.iter().map(status).collect()
    }

    pub(crate) fn has_session(&self, session: u64) -> bool {
        locked(&self.sessions)
            .get(&session)
            .is_some_and(|session| !session.is_ending)
    }

    pub(crate) fn must_have_session(&self, session: u64) -> Result<(), FileError> {
        match self.has_session(session) {
            true => Ok(()),
            false => Err(FileError::NoSession),
        }
    }

    pub(crate) fn may_hold_anything(&self, session: u64) -> bool {
        locked(&self.sessions)
            .get(&session)
            .is_some_and(|session| session.may_hold_anything)
    }

    pub(crate) fn sessions_that_may_hold_anything(&self, share: u32) -> Vec<u64> {
        let sessions = locked(&self.sessions);
        let of_share = sessions.iter().filter(|(_, session)| session.record.share == share);
        of_share
            .filter(|(_, session)| session.may_hold_anything)
            .map(|(number, _)| *number)
            .collect()
    }
}

fn start(session: u64, share: &Arc<Share>, resumed: bool) -> SessionStart {
    SessionStart {
        session,
        share: share.id,
        root: share.root,
        resumed,
    }
}
