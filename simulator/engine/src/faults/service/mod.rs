//! The file service in the simulated world: the product's own code over the core, several clients of it, requests that
//! are sent again after a crash, and what must come of all that.
//!
//! | module    | holds                                                                |
//! |-----------|----------------------------------------------------------------------|
//! | `threads` | threads of which one runs at a time                                  |
//! | `turns`   | which of them goes on when, and what a crash does to them            |
//! | `storage` | storage as those threads see it                                      |
//! | `calls`   | what the world does for a call of theirs                             |
//! | `jobs`    | what a thread is given to do                                         |
//! | `lives`   | the service opens, finds what was kept, and is looked at as a whole  |
//! | `own`     | clients in directories of their own, against a model of a POSIX tree |
//! | `edges`   | what a canary gives for the edges of a write                        |
//! | `history` | the states that such a directory may be in                           |
//! | `common`  | clients that meet: names, records and locks that are common to all   |

mod calls;
mod common;
mod edges;
mod history;
mod jobs;
mod lives;
mod own;
mod storage;
mod threads;
mod turns;

use crate::faults::scenario::Scenario;
use common::Common;
use edges::Edges;
use jobs::{Files, Places};
use own::Own;
use std::sync::Arc;
use tombolo_base::Prng;
use tombolo_files::{Caller, Request, Timestamp};
use turns::Turn;

/// Requests of the file service's threads are those of clients with numbers from this one on.
const FIRST_CLIENT: usize = 1 << 20;
/// The thread that opens and checks; each client has one for its own directory, and one for what is common.
const HOUSE: usize = 0;

/// The thread whose request it is.
pub(crate) fn thread_of(client: usize) -> Option<usize> {
    (client != usize::MAX)
        .then(|| client.checked_sub(FIRST_CLIENT))
        .flatten()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    /// Open, and being looked at as a whole; clients go on when that is done.
    Checked,
    Open,
}

pub(crate) struct Service {
    prng: Prng,
    threads: threads::Threads,
    turns: Vec<Turn>,
    phase: Phase,
    files: Option<Arc<Files>>,
    /// Once they are on stable storage.
    places: Option<Places>,
    own: Vec<Own>,
    common: Common,
    edges: Edges,
    pub requests_left: u64,
}

impl Service {
    pub fn new(prng: Prng, scenario: &Scenario) -> Self {
        let clients = scenario.share_clients;
        let threads = if clients == 0 { 0 } else { 1 + 2 * clients };
        Self {
            prng,
            threads: threads::Threads::new(threads),
            turns: (0..threads).map(|_| Turn::Idle).collect(),
            phase: Phase::Closed,
            files: None,
            places: None,
            own: Vec::new(),
            common: Common::new(clients),
            edges: Edges::default(),
            requests_left: if clients == 0 { 0 } else { scenario.share_requests },
        }
    }

    pub fn has_clients(&self) -> bool {
        !self.turns.is_empty()
    }

    fn clients(&self) -> usize {
        self.turns.len() / 2
    }

    fn files(&self) -> Arc<Files> {
        self.files.clone().expect("clients ask a service that is open")
    }

    fn places(&self) -> &Places {
        self.places.as_ref().expect("clients have places")
    }

    /// A request that has to be sent again is one of those that the clients send: what refuses it may last until the
    /// faults are over.
    fn count_refusal(&mut self) {
        self.requests_left = self.requests_left.saturating_sub(1);
    }

    /// Whoever has asked was answered, and all is known to be as it must.
    pub fn is_at_rest(&self) -> bool {
        let is_idle = self.turns.iter().all(|turn| matches!(turn, Turn::Idle));
        let is_known = self.own.iter().all(Own::is_at_rest) && self.common.is_at_rest();
        !self.has_clients() || (is_idle && is_known && self.phase == Phase::Open)
    }

    fn caller(&self, session: u64, now: u64, request: Request) -> Caller {
        Caller {
            session,
            share: self.places().share,
            uid: 1000,
            gid: 100,
            now: Timestamp::new((now / 1_000_000) as i64, (now % 1_000_000) as u32 * 1_000),
            request,
        }
    }
}
