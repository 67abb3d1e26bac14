//! Lock requests: tests, takes, waits.
//!
//! A request that waits is kept here until it is granted, interrupted by its client, or its connection goes. Then it is
//! taken back; a client that attaches again sends it again.

use super::session::{Inner, Pending};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tombolo_files::locks::{Lock, LockFamily, LockKind, LockOwner, LockRange, WaiterId};
use tombolo_files::{Caller, FileError, Request};
use tombolo_fuse::Reply;
use tombolo_fuse::protocol::request::{FileLock, LockRequest, LockType, Release};

/// What Linux calls the end of a lock without an end.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Requests of one connection that wait for a lock, by their numbers.
#[derive(Default)]
pub struct Waiting(Mutex<HashMap<u64, WaiterId>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, WaiterId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take_all_back(&self, session: &Inner) {
        let waiters: Vec<WaiterId> = self.lock().drain().map(|(_, waiter)| waiter).collect();
        for waiter in waiters {
            session.shares.service.cancel_lock(waiter);
        }
    }
}

/// A waiting request and its result, whichever comes first.
#[derive(Default)]
struct Wait(Mutex<WaitState>);

#[derive(Default)]
struct WaitState {
    pending: Option<Pending>,
    result: Option<Result<(), FileError>>,
}

impl Wait {
    fn lock(&self) -> MutexGuard<'_, WaitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_result(&self, result: Result<(), FileError>) {
        let mut state = self.lock();
        match state.pending.take() {
            Some(pending) => {
                drop(state);
                pending.answer(result.map(|()| Reply::Done));
            }
            None => state.result = Some(result),
        }
    }

    /// `waiting` runs when the result is not there yet, before it can come.
    fn keep(&self, pending: Pending, waiting: impl FnOnce()) {
        let mut state = self.lock();
        match state.result.take() {
            Some(result) => {
                drop(state);
                pending.answer(result.map(|()| Reply::Done));
            }
            None => {
                waiting();
                state.pending = Some(pending);
            }
        }
    }
}

pub fn test(session: &Inner, caller: &Caller, node: u64, request: &LockRequest) -> Result<Reply, FileError> {
    let free = FileLock {
        kind: LockType::Unlock,
        ..request.lock
    };
    let Some(wanted) = wanted(caller, request) else {
        return Ok(Reply::Lock(free));
    };
    let found = session
        .shares
        .service
        .get_lock(caller, node, family(request.flock), &wanted)?;
    Ok(Reply::Lock(found.map_or(free, |lock| told(caller, &lock))))
}

pub fn set(session: &Arc<Inner>, caller: &Caller, node: u64, request: &LockRequest, wait: bool, pending: Pending) {
    let service = &session.shares.service;
    let family = family(request.flock);
    let result = match wanted(caller, request) {
        None => pending.attempt(|| service.unlock(caller, node, family, request.owner, range(request))),
        Some(wanted) if wait => return set_waiting(session, caller, node, family, wanted, pending),
        Some(wanted) => pending.attempt(|| service.set_lock(caller, node, family, wanted)),
    };
    pending.answer(result.map(|()| Reply::Done));
}

fn set_waiting(session: &Arc<Inner>, caller: &Caller, node: u64, family: LockFamily, wanted: Lock, pending: Pending) {
    let (Request::Number(number) | Request::Again(number)) = caller.request else {
        return pending.answer(Err(FileError::Invalid("a waiting request without a number")));
    };
    let wait = Arc::new(Wait::default());
    let (told, owner) = (wait.clone(), session.clone());
    let reply = move |result| {
        owner.waiting.lock().remove(&number);
        told.on_result(result);
    };
    let service = session.shares.service.clone();
    match service.set_lock_wait(caller, node, family, wanted, Box::new(reply)) {
        Ok(None) => pending.answer(Ok(Reply::Done)),
        Err(error) => pending.answer(Err(error)),
        Ok(Some(waiter)) => {
            pending.completion().on_interrupt(move || {
                service.cancel_lock(waiter);
            });
            wait.keep(pending, || {
                session.waiting.lock().insert(number, waiter);
            });
        }
    }
}

/// A descriptor was closed: its owner's POSIX locks go, whichever of its descriptors took them.
pub fn close(session: &Inner, caller: &Caller, node: u64, owner: u64) -> Result<(), FileError> {
    session
        .shares
        .service
        .close_owner(caller, node, LockFamily::Posix, owner)
}

/// The last descriptor of an open file was closed.
pub fn release(session: &Inner, caller: &Caller, node: u64, release: &Release) -> Result<(), FileError> {
    let service = &session.shares.service;
    if release.flush {
        service.close_owner(caller, node, LockFamily::Posix, release.lock_owner)?;
    }
    if release.unlock_flock {
        service.close_owner(caller, node, LockFamily::Flock, release.lock_owner)?;
    }
    // Of locks of the open file itself (F_OFD_SETLK) the kernel says nothing here, not even their owner.
    service.close_handle(caller, node, release.fh)
}

fn family(flock: bool) -> LockFamily {
    match flock {
        true => LockFamily::Flock,
        false => LockFamily::Posix,
    }
}

/// `None` for an unlock.
fn wanted(caller: &Caller, request: &LockRequest) -> Option<Lock> {
    let kind = match request.lock.kind {
        LockType::Read => LockKind::Read,
        LockType::Write => LockKind::Write,
        LockType::Unlock => return None,
    };
    Some(Lock {
        owner: LockOwner {
            session: caller.session,
            owner: request.owner,
        },
        range: range(request),
        kind,
        pid: request.lock.pid,
        handle: request.fh,
    })
}

fn range(request: &LockRequest) -> LockRange {
    match request.flock {
        true => LockRange::WHOLE,
        false => LockRange {
            start: request.lock.start,
            end: match request.lock.end {
                OFFSET_MAX.. => u64::MAX,
                end => end,
            },
        },
    }
}

/// A process number says nothing outside the client that it is of.
fn told(caller: &Caller, lock: &Lock) -> FileLock {
    FileLock {
        start: lock.range.start,
        end: lock.range.end.min(OFFSET_MAX),
        kind: match lock.kind {
            LockKind::Read => LockType::Read,
            LockKind::Write => LockType::Write,
        },
        pid: if lock.owner.session == caller.session {
            lock.pid
        } else {
            0
        },
    }
}
