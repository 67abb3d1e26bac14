//! Reads under way, and how far each of their blocks has come.

use crate::event::Token;
use alloc::{collections::VecDeque, vec::Vec};
use core::ops::Range;
use hashbrown::HashMap;
use tombolo_base::{Instant, Lcbn, Span};
use tombolo_prefetch::{ClientId, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    Unresolved,
    Zero,
    Held(Lcbn),
    Coming,
    /// In the client's buffer.
    Done,
}

#[derive(Debug)]
pub struct Read {
    pub client: ClientId,
    pub span: Span,
    pub began: Instant,
    pub blocks: Vec<Block>,
    /// What of them is looked for at present.
    pub window: Range<u32>,
    /// Counted in [`Reads::reserved`].
    pub reserved: u32,
    /// In [`Reads::queue`].
    pub is_queued: bool,
    /// The window's blocks are being read from their slots; whatever else arrives for it is of no more use.
    pub is_reading: bool,
    /// When it last came nearer to its end.
    pub progress_at: Instant,
    /// In the window, as is `coming`.
    pub unresolved: u32,
    pub coming: u32,
    /// Slots that were asked for and did not hold what they should: their blocks are looked for again.
    pub slots_dropped: u32,
    /// No block before this is unresolved.
    pub cursor: u32,
    /// By the worst block seen so far.
    pub outcome: Outcome,
    /// Blocks that a prefetch was bringing when this read was the first to want them.
    pub prefetched_coming: u32,
    /// The prefetcher has seen it, and blocks held are counted as touched.
    pub is_consulted: bool,
    /// Whether it continues a stream, if the prefetcher knows.
    pub sequential: Option<bool>,
}

#[derive(Debug, Default)]
pub struct Reads {
    pub reads: HashMap<Token, Read>,
    /// Blocks of windows that may wait for slots.
    pub reserved: u32,
    /// Reads whose window has to wait for others'.
    pub queue: VecDeque<Token>,
    /// When to look for reads that wait too long.
    pub check_at: Option<Instant>,
}

/// A reader's interest in one block: the request and the block's place in it.
pub type Interest = (Token, u32);

impl Reads {
    /// Checks what must always hold; for tests.
    pub fn check_invariants(&self) {
        #[expect(clippy::disallowed_methods, reason = "all of them are looked at, in any order")]
        for read in self.reads.values() {
            let window = &read.blocks[read.window.start as usize..read.window.end as usize];
            let count = |state: Block| window.iter().filter(|block| **block == state).count() as u32;
            assert_eq!(count(Block::Unresolved), read.unresolved, "{read:?}");
            assert_eq!(count(Block::Coming), read.coming, "{read:?}");
            assert!(
                read.blocks[..read.window.start as usize]
                    .iter()
                    .all(|block| *block == Block::Done)
            );
            assert!(!read.is_reading || read.unresolved + read.coming == 0);
        }
        // One that was refused leaves the queue when its turn comes.
        let mut queued = self.queue.iter().filter_map(|token| self.reads.get(token));
        assert!(queued.all(|read| read.is_queued));
    }
}
