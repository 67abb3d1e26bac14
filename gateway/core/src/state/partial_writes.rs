//! Writes that keep some bytes of their edges, from their lock until all is merged.

use crate::event::{Answer, PartialWrite, Refusal, Token};
use alloc::{collections::BTreeMap, vec::Vec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Locking,
    /// So many edges are still being read.
    Reading(u8),
    Merging,
}

#[derive(Debug)]
pub struct Partial {
    pub write: PartialWrite,
    pub stage: Stage,
    /// Why one of the edges could not be read.
    pub refusal: Option<Refusal>,
    pub is_cancelled: bool,
}

#[derive(Debug, Default)]
pub struct PartialWrites {
    /// Until all is merged.
    pub writes: BTreeMap<Token, Partial>,
    /// The writes that edges being read belong to.
    pub edges: BTreeMap<Token, Token>,
    /// Edges that were read, or could not be.
    pub answers: Vec<(Token, Result<Answer, Refusal>)>,
}

impl PartialWrites {
    /// Takes what is the answer to the read of an edge; gives back what is not.
    pub fn take_answer(
        &mut self,
        token: Token,
        result: Result<Answer, Refusal>,
    ) -> Result<(), Result<Answer, Refusal>> {
        match self.edges.remove(&token) {
            Some(write) => {
                self.answers.push((write, result));
                Ok(())
            }
            None => Err(result),
        }
    }

    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The write is refused before it has its lock.
    pub fn forget(&mut self, token: Token) {
        self.writes.remove(&token);
    }

    /// Whether the write goes on holding its lock although its client is gone.
    pub fn cancel(&mut self, token: Token) -> bool {
        match self.writes.get_mut(&token) {
            Some(partial) if partial.stage != Stage::Locking => {
                partial.is_cancelled = true;
                true
            }
            _ => {
                self.writes.remove(&token);
                false
            }
        }
    }

    pub fn check_invariants(&self, is_locked: impl Fn(Token) -> bool) {
        for (token, partial) in &self.writes {
            let reading = self.edges.values().filter(|write| *write == token).count();
            let answered = self.answers.iter().filter(|(write, _)| write == token).count();
            let expected = match partial.stage {
                Stage::Reading(left) => usize::from(left),
                Stage::Locking | Stage::Merging => 0,
            };
            assert_eq!(reading + answered, expected, "{token:?} waits for its edges");
            assert!(
                partial.stage == Stage::Locking || is_locked(*token),
                "{token:?} is exclusive"
            );
        }
        assert!(self.edges.values().all(|write| self.writes.contains_key(write)));
    }
}
