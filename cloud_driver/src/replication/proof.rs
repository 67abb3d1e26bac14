//! Whether what was put into a replica went to where its root lies. A folder that is not mounted, or a prefix that was renamed,
//! takes what is put all the same, and only the next root, whose condition fails there, tells. So what is put is unproven until a root
//! has been put after it, and that something is so is noted before anybody relies on it. When a replica is ours again after it was
//! not, or is so for the first time in a life, and something is unproven, the listings are compared.
//!
//! Rounds tell which root proves what: a root begins a round, and proves what was put in those before. A place that is exchanged and
//! put back between two roots goes unnoticed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of one replica, in this life.
#[derive(Debug)]
pub struct Proof {
    round: AtomicU64,
    refusals: AtomicU64,
    /// It may have been another place since it was ours last.
    is_in_question: AtomicBool,
}

impl Proof {
    /// After a life that left this round unproven.
    pub fn after(unproven: Option<u64>) -> Self {
        Self {
            round: AtomicU64::new(unproven.map_or(0, |round| round + 1)),
            refusals: AtomicU64::new(0),
            is_in_question: AtomicBool::new(true),
        }
    }

    /// What was put belongs to it.
    pub fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// Begins another, and proves those before it if what begins now comes to its end.
    pub fn begin_round(&self) -> u64 {
        self.round.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Another place was found.
    pub fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::SeqCst);
        self.is_in_question.store(true, Ordering::SeqCst);
    }

    /// Since the start: what was put while they changed may be anywhere.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::SeqCst)
    }

    /// Whether it has to be asked what is unproven.
    pub fn is_in_question(&self) -> bool {
        self.is_in_question.load(Ordering::SeqCst)
    }

    /// It is ours, and what is lacking is noted.
    pub fn settled(&self) {
        self.is_in_question.store(false, Ordering::SeqCst);
    }
}
