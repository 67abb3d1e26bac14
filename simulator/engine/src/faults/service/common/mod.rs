//! Clients that meet: in two directories, in one file, and at its locks. What one is answered follows from what others do,
//! so it is not predicted; but
//!
//! * a record reads as one of the writes that nobody has replaced before, whoever wrote beside it in the same block, and
//!   a write that is sent again undoes no later one;
//! * one client at a time has the name that each makes for itself alone, and one at a time a part of the file locked,
//!   over restarts of the gateway too;
//! * whatever is made, moved and removed in the two directories, nothing contradicts anything (`lives`).

mod errand;
mod register;

use super::Phase;
use super::jobs;
use crate::faults::world::World;
use errand::{Errand, RECORD_BYTES};
use register::Register;
use std::sync::{Arc, Mutex};
use tombolo_files::locks::LockRange;
use tombolo_files::{FileError, Request};

pub(super) use errand::Meeting;

/// What a request is told that finds another's note under its number.
const NUMBER_USED: &str = "the request's number was used for another";

/// Records that all clients write, before those that each has for itself.
const COMMON_RECORDS: usize = 2;

/// Waiting requests for locks that were answered.
type Granted = Arc<Mutex<Vec<(usize, Result<(), FileError>)>>>;

#[derive(Clone, Copy, Debug)]
struct Held {
    range: LockRange,
    since: u64,
    is_synced: bool,
}

/// A client as the others meet it.
#[derive(Default)]
struct Party {
    errand: Option<Errand>,
    number: u64,
    again: bool,
    has_name: bool,
    held: Option<Held>,
    /// A lock that it waits for.
    wants: Option<LockRange>,
    /// It may hold locks that it does not know of.
    must_unlock: bool,
}

impl Party {
    fn is_at_rest(&self) -> bool {
        self.errand.is_none() && self.wants.is_none() && !self.holds_something()
    }

    fn holds_something(&self) -> bool {
        self.has_name || self.held.is_some() || self.must_unlock
    }
}

/// What is to be looked at before anybody goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    AfterKill,
    AfterLoss,
}

pub(super) struct Common {
    /// Counts what happens, to tell before from after.
    clock: u64,
    records: Vec<Register>,
    stamp: u64,
    parties: Vec<Party>,
    must_look: Option<Look>,
    /// When the last sync began that was answered.
    synced: u64,
    /// Inodes that were made in the two directories.
    inodes: Vec<u64>,
    granted: Granted,
}

impl Common {
    pub fn new(clients: usize) -> Self {
        let party = |_| Party {
            // The slots of its session that the requests in its own directory do not use.
            number: 4096,
            ..Party::default()
        };
        Self {
            clock: 0,
            records: (0..COMMON_RECORDS + clients).map(|_| Register::new()).collect(),
            stamp: 0,
            parties: (0..clients).map(party).collect(),
            must_look: None,
            synced: 0,
            inodes: Vec::new(),
            granted: Granted::default(),
        }
    }

    pub fn is_at_rest(&self) -> bool {
        self.must_look.is_none() && self.parties.iter().all(Party::is_at_rest)
    }

    pub fn want_look(&mut self) {
        self.must_look.get_or_insert(Look::AfterKill);
    }

    pub fn crash(&mut self, may_lose_unflushed: bool) {
        self.clock += 1;
        self.granted = Granted::default();
        self.records.iter_mut().for_each(Register::crash);
        if may_lose_unflushed {
            self.must_look = Some(Look::AfterLoss);
        } else {
            self.want_look();
        }
        for party in &mut self.parties {
            party.again = true;
            // A kernel or server that waits for a lock asks for it again.
            if let Some(range) = party.wants.take() {
                party.errand = Some(Errand::Lock { range, waits: true });
            }
            if may_lose_unflushed {
                party.lose();
            }
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The client is told that it has the lock.
    fn hold(&mut self, client: usize, range: LockRange) {
        for (other, party) in self.parties.iter().enumerate().filter(|(other, _)| *other != client) {
            let held = party.held.filter(|held| held.range.overlaps(range));
            assert!(
                held.is_none(),
                "client {client} gets a lock on {range:?}, and client {other} has {held:?}"
            );
        }
        self.parties[client].held = Some(Held {
            range,
            since: self.clock,
            is_synced: false,
        });
    }

    fn take_name(&mut self, client: usize) {
        let holder = self.parties.iter().position(|party| party.has_name);
        assert_eq!(holder, None, "the name that client {client} has made is another's");
        self.parties[client].has_name = true;
    }

    fn synced(&mut self, began: u64) {
        self.synced = self.synced.max(began);
        for held in self.parties.iter_mut().filter_map(|party| party.held.as_mut()) {
            held.is_synced |= held.since < began;
        }
    }

    fn see(&mut self, bytes: &[u8], began: u64) {
        let now = self.tick();
        let (look, synced) = (self.must_look, self.synced);
        for (index, register) in self.records.iter_mut().enumerate() {
            let place = index * RECORD_BYTES;
            let stamp = stamp_of(bytes.get(place..place + RECORD_BYTES).unwrap_or_default());
            let seen = match look {
                Some(Look::AfterLoss) => register.see_after_loss(stamp, synced, now),
                _ => register.see(stamp, began, now),
            };
            if let Err(why) = seen {
                panic!("record {index} of the file of all: {why}");
            }
        }
    }
}

/// Of a record as it was read; behind the file's end there is none.
fn stamp_of(record: &[u8]) -> u64 {
    let mut words = record.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    let first = words.next().unwrap_or(0);
    assert!(words.all(|word| word == first), "a record is written whole");
    first
}

impl Party {
    /// A power loss: what it had may be gone.
    fn lose(&mut self) {
        self.has_name = false;
        let errand = self.errand.as_ref();
        if errand.is_some_and(|errand| matches!(errand, Errand::TakeName | Errand::DropName | Errand::Lock { .. })) {
            self.errand = None;
        }
        if self.held.is_none_or(|held| !held.is_synced) {
            self.held = None;
            self.must_unlock = true;
        }
    }
}

impl World {
    pub(super) fn common_wakes(&mut self, client: usize) {
        let thread = 1 + self.service.clients() + client;
        let party = &self.service.common.parties[client];
        // A core that has stopped shows what it could not keep, until it is started again.
        let must_wait = self.life.has_failed || (self.service.common.must_look.is_some() && client != 0);
        if must_wait {
            return self.client_of_share_waits(thread);
        }
        if party.wants.is_some() {
            return;
        }
        let errand = match party.errand.clone() {
            _ if self.service.common.must_look.is_some() => Errand::Look,
            Some(errand) => errand,
            None => match self.next_errand(client) {
                Some(errand) => self.set_out(client, errand),
                None => return,
            },
        };
        self.say(|| format!("client {client} where all meet: {errand:?}"));
        let party = &self.service.common.parties[client];
        let request = match party.again {
            true => Request::Again(party.number),
            false => Request::Number(party.number),
        };
        let session = self.service.places().sessions[client];
        let caller = self.service.caller(session, self.now, request);
        let clears_name = self.service.common.must_look == Some(Look::AfterLoss);
        let granted = self.service.common.granted.clone();
        let job = errand.job(
            self.service.files(),
            self.service.places().clone(),
            caller,
            clears_name,
            move |result| {
                granted.lock().expect("nobody panics over it").push((client, result));
            },
        );
        self.begin_job(thread, job);
    }

    fn next_errand(&mut self, client: usize) -> Option<Errand> {
        let is_calm = self.is_calm;
        let service = &mut self.service;
        let party = &service.common.parties[client];
        if party.must_unlock {
            return Some(Errand::Unlock);
        }
        let ends = is_calm || service.requests_left == 0;
        if party.held.is_some() && (ends || service.prng.chance(300)) {
            return Some(Errand::Unlock);
        }
        if party.has_name && (ends || service.prng.chance(300)) {
            return Some(Errand::DropName);
        }
        if ends {
            return None;
        }
        service.requests_left -= 1;
        let inodes = &service.common.inodes;
        let places = service.places.as_ref().expect("clients have places");
        let may_lock = party.held.is_none();
        let errand = match service.prng.below(100) {
            0..30 => Errand::Write {
                record: match service.prng.below(2) {
                    0 => COMMON_RECORDS + client,
                    _ => service.prng.below(COMMON_RECORDS as u64) as usize,
                },
                stamp: service.common.stamp + 1,
            },
            30..42 => Errand::Read {
                began: service.common.clock + 1,
            },
            42..52 if !party.has_name => Errand::TakeName,
            52..64 if may_lock => Errand::draw_lock(&mut service.prng),
            64..70 => Errand::Sync {
                began: service.common.clock + 1,
            },
            _ => Errand::draw(&mut service.prng, places, inodes),
        };
        Some(errand)
    }

    /// The client begins something new.
    fn set_out(&mut self, client: usize, errand: Errand) -> Errand {
        let common = &mut self.service.common;
        let now = common.tick();
        let party = &mut common.parties[client];
        party.number += 2;
        party.again = false;
        match &errand {
            Errand::Write { record, stamp } => {
                common.stamp = *stamp;
                common.records[*record].begin(*stamp, now);
            }
            Errand::Unlock => (party.held, party.must_unlock) = (None, false),
            Errand::DropName => party.has_name = false,
            _ => {}
        }
        common.parties[client].errand = Some(errand.clone());
        errand
    }

    pub(super) fn common_answered(&mut self, client: usize, met: Result<Meeting, FileError>) {
        let thread = 1 + self.service.clients() + client;
        self.say(|| format!("client {client} where all meet is answered: {met:?}"));
        if let Ok(Meeting::Looked(bytes)) = met {
            if !self.life.has_failed {
                let began = self.service.common.clock;
                self.service.common.see(&bytes, began);
                self.service.common.must_look = None;
            }
            return self.client_of_share_rests(thread);
        }
        if let Err(error) = &met
            && jobs::is_for_now(error)
        {
            self.service.common.parties[client].again = true;
            self.service.count_refusal();
            return self.client_of_share_waits(thread);
        }
        let errand = self.service.common.parties[client].errand.take();
        self.conclude(client, errand.expect("an answer is to an errand"), met);
        self.clients.answered += 1;
        self.client_of_share_rests(thread);
    }

    fn conclude(&mut self, client: usize, errand: Errand, met: Result<Meeting, FileError>) {
        let has_failed = self.life.has_failed;
        let common = &mut self.service.common;
        let now = common.tick();
        match (errand, met) {
            (Errand::Write { record, stamp }, Ok(Meeting::Done)) => common.records[record].answer(stamp, now),
            (Errand::Read { began }, Ok(Meeting::Read(bytes))) if !has_failed => common.see(&bytes, began),
            (Errand::Read { .. }, Ok(Meeting::Read(_))) => {}
            (Errand::TakeName, Ok(Meeting::Done)) => common.take_name(client),
            (Errand::TakeName, Err(FileError::Exists | FileError::Stale)) => {}
            (Errand::Lock { range, .. }, Ok(Meeting::Done)) => common.hold(client, range),
            (Errand::Lock { range, .. }, Ok(Meeting::Waits)) => common.parties[client].wants = Some(range),
            (Errand::Lock { .. }, Err(FileError::Locked)) => {}
            (Errand::DropName | Errand::Unlock, Ok(Meeting::Done)) => {}
            (Errand::Sync { began }, Ok(Meeting::Done)) => common.synced(began),
            (Errand::Free(_) | Errand::Copy { .. }, Ok(Meeting::Made(inode))) => common.inodes.push(inode),
            (Errand::Free(_) | Errand::Copy { .. }, Ok(Meeting::Done)) => {}
            (errand @ (Errand::Free(_) | Errand::Copy { .. }), Err(error)) => assert!(
                !matches!(
                    error,
                    FileError::Inconsistent(_)
                        | FileError::Damaged(_)
                        | FileError::NoSession
                        | FileError::Invalid(NUMBER_USED)
                ),
                "{errand:?} is refused: {error}"
            ),
            (errand, met) => panic!("client {client} where all meet: {errand:?} is answered by {met:?}"),
        }
    }

    /// Locks that clients were waiting for.
    pub(super) fn take_granted(&mut self) {
        let clients = self.service.clients();
        let common = &mut self.service.common;
        let mut due = common.granted.lock().expect("nobody panics over it");
        let parties = &common.parties;
        let ready: Vec<_> = due
            .extract_if(.., |(client, _)| parties[*client].wants.is_some())
            .collect();
        drop(due);
        for (client, result) in ready {
            let common = &mut self.service.common;
            common.tick();
            let range = common.parties[client].wants.take().expect("it was looked at");
            assert_eq!(result, Ok(()), "client {client} waits for a lock");
            common.hold(client, range);
            if self.service.phase == Phase::Open {
                self.client_of_share_rests(1 + clients + client);
            }
        }
    }
}
