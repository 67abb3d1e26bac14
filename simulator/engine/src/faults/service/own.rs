//! Clients in directories of their own: every answer is that of a model of a POSIX tree, errors included, and so is what
//! is left after a crash. A request whose answer a crash has swallowed is sent again, under its number.

use super::Phase;
use super::history::History;
use super::jobs::{self, Outcome};
use crate::faults::operation::Operation as Event;
use crate::faults::world::World;
use tombolo_base::Prng;
use tombolo_files::model::{Answer, Model, Operation, Tree, ask, look};
use tombolo_files::{FileError, RenameMode, Request, XattrMode};

/// Requests are for one of so many of the latest inodes.
const LATEST_INODES: u64 = 8;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const XATTRS: [&str; 3] = ["user.one", "user.two", "trusted.three"];
/// At least between two attempts at what was refused for now.
const WAIT_MICROS: u64 = 500;
/// Files are no longer than about this.
const FILE_BYTES_MAX: u64 = 20_000;

#[derive(Clone, Debug)]
struct Sent {
    operation: Operation,
    number: u64,
    /// It may have been carried out before.
    again: bool,
}

pub(super) struct Own {
    history: History,
    root: u64,
    under_way: Option<Sent>,
    /// What a crash has left was not looked at yet.
    must_look: bool,
    next_number: u64,
}

impl Own {
    pub fn new(root: u64) -> Self {
        Self {
            history: History::new(root),
            root,
            under_way: None,
            must_look: false,
            next_number: 0,
        }
    }

    pub fn is_at_rest(&self) -> bool {
        self.under_way.is_none() && !self.must_look
    }

    pub fn crash(&mut self, may_lose_unflushed: bool) {
        self.history.crash(may_lose_unflushed, self.under_way.is_some());
        self.must_look = true;
        if let Some(sent) = &mut self.under_way {
            sent.again = true;
        }
    }

    /// Looked at once more before all ends.
    pub fn want_look(&mut self) {
        self.must_look = true;
    }
}

/// What a client does next.
enum Next {
    Send(Sent),
    Look,
    Sync,
    Rest,
}

impl World {
    pub(super) fn own_wakes(&mut self, client: usize) {
        let is_calm = self.is_calm;
        let service = &mut self.service;
        let own = &mut service.own[client];
        let next = match &own.under_way {
            // A core that has stopped shows what it could not keep, until it is started again.
            Some(_) if self.life.has_failed => Next::Rest,
            Some(sent) => Next::Send(sent.clone()),
            None if own.must_look => Next::Look,
            None if is_calm || service.requests_left == 0 => return,
            None => {
                service.requests_left -= 1;
                match service.prng.below(100) {
                    0..6 => Next::Sync,
                    6..9 => Next::Look,
                    _ => Next::Send(own.draw(&mut service.prng)),
                }
            }
        };
        match next {
            Next::Send(sent) => self.send(client, sent),
            Next::Look => self.begin_look(client),
            Next::Sync => {
                let (files, share) = (self.service.files(), self.service.places().share);
                let job = move || Outcome::Synced(jobs::synced(&files, share));
                self.begin_job(1 + client, Box::new(job));
            }
            Next::Rest => self.client_of_share_waits(1 + client),
        }
    }

    fn send(&mut self, client: usize, sent: Sent) {
        let request = match sent.again {
            true => Request::Again(sent.number),
            false => Request::Number(sent.number),
        };
        self.say(|| format!("client {client} of the share: {request:?} {:?}", sent.operation));
        let session = self.service.places().sessions[client];
        let caller = self.service.caller(session, self.now, request);
        let (files, operation) = (self.service.files(), sent.operation.clone());
        self.service.own[client].under_way = Some(sent);
        let job = move || Outcome::Answered(ask(&files, &[caller, caller], &operation));
        self.begin_job(1 + client, Box::new(job));
    }

    fn begin_look(&mut self, client: usize) {
        let session = self.service.places().sessions[client];
        let caller = self.service.caller(session, self.now, Request::Unnumbered);
        let (files, inodes) = (self.service.files(), self.service.own[client].history.inodes());
        let job = move || Outcome::Looked(look(&files, &caller, inodes));
        self.begin_job(1 + client, Box::new(job));
    }

    pub(super) fn own_answered(&mut self, client: usize, answer: &Answer) {
        self.say(|| format!("client {client} of the share is answered: {answer:?}"));
        let own = &mut self.service.own[client];
        match answer {
            Err(error) if jobs::is_for_now(error) => {
                if let Some(sent) = &mut own.under_way {
                    sent.again = true;
                }
                self.service.count_refusal();
                return self.client_of_share_waits(1 + client);
            }
            answer => {
                let sent = own.under_way.take().expect("an answer is to a request");
                if let Err(expected) = own.history.answer(&sent.operation, answer) {
                    panic!("client {client} of the share: {sent:?} is answered by {answer:?}, not by {expected:?}");
                }
                self.clients.answered += 1;
            }
        }
        self.client_of_share_rests(1 + client);
    }

    pub(super) fn own_looked(&mut self, client: usize, looked: Result<Tree, FileError>) {
        match looked {
            Err(error) if jobs::is_for_now(&error) => return self.client_of_share_waits(1 + client),
            Err(error) => panic!("client {client} of the share cannot look at its directory: {error}"),
            Ok(tree) => {
                let own = &mut self.service.own[client];
                if let Err(expected) = own.history.see(&tree) {
                    panic!(
                        "client {client} of the share sees {tree:?}\n after {}: {expected:?}",
                        if own.must_look { "a crash" } else { "what was answered" }
                    );
                }
                own.must_look = false;
            }
        }
        self.client_of_share_rests(1 + client);
    }

    pub(super) fn own_synced(&mut self, client: usize, synced: &Result<(), FileError>) {
        if synced.is_ok() {
            self.service.own[client].history.synced();
        }
        self.client_of_share_rests(1 + client);
    }

    pub(super) fn client_of_share_rests(&mut self, thread: usize) {
        self.client_of_share_wakes_after(thread, 0);
    }

    /// For what only time brings. A client that thinks for no time would ask for it for ever.
    pub(super) fn client_of_share_waits(&mut self, thread: usize) {
        self.client_of_share_wakes_after(thread, WAIT_MICROS);
    }

    fn client_of_share_wakes_after(&mut self, thread: usize, micros: u64) {
        if self.service.phase == Phase::Open {
            let think = self.scenario.delays.client_think;
            let micros = micros + self.scenario.delays.of(think, &mut self.service.prng);
            self.schedule(micros, Event::ShareClientWakes(thread));
        }
    }
}

impl Own {
    fn draw(&mut self, prng: &mut Prng) -> Sent {
        self.next_number += 2;
        Sent {
            operation: draw_operation(prng, self.history.state(), self.root),
            number: self.next_number,
            again: false,
        }
    }
}

fn draw_operation(prng: &mut Prng, model: &Model, root: u64) -> Operation {
    use Operation::*;
    // The latest inodes are the interesting ones, and the root.
    let inode = |prng: &mut Prng| match prng.below(100) {
        0..45 => root,
        _ => model
            .inodes()
            .nth_back(prng.below(LATEST_INODES) as usize)
            .unwrap_or(root),
    };
    let name = |prng: &mut Prng| NAMES[prng.below(4) as usize];
    let at = |prng: &mut Prng| (inode(prng), name(prng));
    let xattr = |prng: &mut Prng| XATTRS[prng.below(3) as usize];
    match prng.below(66) {
        0..6 => Mkdir(at(prng)),
        6..10 => Mknod(at(prng)),
        10 => Symlink(at(prng)),
        11..16 => Link(inode(prng), at(prng)),
        16..22 => Unlink(at(prng)),
        22..26 => Rmdir(at(prng)),
        26..36 => {
            let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            let mode = mode[prng.below(6).saturating_sub(3) as usize];
            Rename(at(prng), at(prng), mode)
        }
        36..42 => Create {
            at: at(prng),
            session: 0,
            exclusive: prng.chance(500),
        },
        42 => Tmpfile {
            parent: inode(prng),
            session: 0,
        },
        43..45 => Open(inode(prng), 0),
        45..48 => Release(inode(prng), 0),
        48..50 => Lookup(at(prng)),
        50 => match inode(prng) {
            other if other != root && model.has_parent(other) => LookupParent(other),
            _ => Lookup(at(prng)),
        },
        51..53 => Chmod(inode(prng), prng.below(0o1000) as u32),
        53..56 => Resize(inode(prng), prng.below(FILE_BYTES_MAX)),
        56..63 => Write {
            inode: inode(prng),
            offset: prng.below(FILE_BYTES_MAX),
            bytes: 1 + prng.below(6_000) as usize,
            byte: prng.below(256) as u8,
        },
        63..65 => {
            let mode = [XattrMode::Any, XattrMode::Create, XattrMode::Replace];
            SetXattr(
                inode(prng),
                xattr(prng),
                prng.below(256) as u8,
                mode[prng.below(3) as usize],
            )
        }
        _ => RemoveXattr(inode(prng), xattr(prng)),
    }
}
