//! Writes that change the first or the last of their blocks only in part.
//!
//! Such a write excludes other writers from its blocks, has what its edges hold read into buffers of their own, has the
//! world lay the client's bytes over that, and then goes on as any other write, in one journal batch. WRITE ZEROES with
//! ragged ends is one too: the whole blocks in its middle become holes in the same batch.
//!
//! | stage     | waits for                        | a cancellation                                  |
//! |-----------|----------------------------------|-------------------------------------------------|
//! | `Locking` | other writers                    | ends it at once                                 |
//! | `Reading` | [`Event::SlotsRead`] of its edges | ends it when they have been read               |
//! | `Merging` | [`Event::Merged`]                | ends it then                                    |
//! | writing   | see `write`                      | comes too late, unless the write has not begun  |
//!
//! [`Event::SlotsRead`]: crate::Event::SlotsRead
//! [`Event::Merged`]: crate::Event::Merged

use crate::core_state::Core;
use crate::event::{Command, PartialWrite, Token};
use crate::state::partial_writes::{Partial, Stage};
use alloc::vec::Vec;
use tombolo_base::{BlockSum, Span};
use tombolo_prefetch::ClientId;

impl Core {
    pub(crate) fn on_write_partly(&mut self, token: Token, write: PartialWrite) {
        let span = write.span;
        let partial = Partial {
            write,
            stage: Stage::Locking,
            refusal: None,
            is_cancelled: false,
        };
        self.partial_writes.writes.insert(token, partial);
        self.lock(token, span);
    }

    /// The write excludes others now: reads what it leaves as it is.
    pub(crate) fn read_edges(&mut self, token: Token) {
        let Some(partial) = self.partial_writes.writes.get_mut(&token) else {
            return;
        };
        let span = partial.write.span;
        let edges = [(partial.write.head, span.first), (partial.write.tail, span.end() - 1)];
        let reads = edges.into_iter().filter_map(|(edge, block)| Some((edge?, block)));
        let count = reads.clone().count() as u8;
        assert_eq!(partial.stage, Stage::Locking);
        assert!(count > 0, "a write that keeps no bytes is a whole one");
        partial.stage = Stage::Reading(count);
        for (edge, _) in reads.clone() {
            self.partial_writes.edges.insert(edge, token);
        }
        for (edge, first) in reads {
            let block = Span {
                first,
                count: 1,
                ..span
            };
            self.on_read(edge, ClientId::default(), block);
        }
    }

    /// Goes on with those whose edges have been read.
    pub(crate) fn pump_partial_writes(&mut self) {
        for (token, result) in core::mem::take(&mut self.partial_writes.answers) {
            let Some(partial) = self.partial_writes.writes.get_mut(&token) else {
                continue;
            };
            if let Err(refusal) = result {
                partial.refusal = Some(refusal);
            }
            let Stage::Reading(left) = partial.stage else { continue };
            if left > 1 {
                partial.stage = Stage::Reading(left - 1);
                continue;
            }
            partial.stage = Stage::Merging;
            if !partial.is_cancelled && partial.refusal.is_none() {
                self.out.push(Command::Merge { token });
            } else {
                self.give_up(token);
            }
        }
    }

    /// Tells the client, if it is still there, why.
    fn give_up(&mut self, token: Token) {
        let Some(partial) = self.partial_writes.writes.remove(&token) else {
            return;
        };
        if let Some(refusal) = partial.refusal.filter(|_| !partial.is_cancelled) {
            self.answer(token, Err(refusal));
        }
        self.unlock(token);
    }

    pub(crate) fn on_merged(&mut self, token: Token, sums: Vec<Option<BlockSum>>) {
        match self.partial_writes.writes.get(&token) {
            Some(partial) if partial.is_cancelled => self.give_up(token),
            Some(partial) => {
                assert_eq!(partial.stage, Stage::Merging, "its bytes were asked for");
                assert!(self.writes.is_locked(token));
                if let Some(partial) = self.partial_writes.writes.remove(&token) {
                    self.write_merged(token, partial.write, sums);
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
#[path = "partial_write_tests.rs"]
mod tests;
