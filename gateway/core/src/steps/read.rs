//! Reads: from a client's range to the slots that hold it.
//!
//! Each block of a read goes from `Unresolved` to `Zero` or `Held` (its slot is pinned from that moment), by way of
//! `Coming` when it has to be fetched. Pages of the map and object descriptors that are not in memory are loaded
//! first; whoever waits for one is run again when it arrives.
//!
//! A read goes on in windows, each a share of the slots that dirty blocks leave, and all windows together have a share: so
//! however large and many the reads are, slots can be found for what they wait for. A window that finds the shares used
//! up waits without holding anything, unless all of its blocks are at hand.

use crate::core_state::{Core, Lookup};
use crate::event::{Answer, Command, DiskError, ReadPiece, Refusal, StoreFailure, Token};
use crate::format::page::PAGE_ENTRIES;
use crate::state::extent_map::Target;
use crate::state::fetches::Purpose;
use crate::state::lost_blocks::{ALTERED, Place};
use crate::state::metadata_loads::Waiter;
use crate::state::reads::{Block, Interest, Read};
use crate::state::slots::SlotState;
use alloc::{collections::BTreeMap, format, string::ToString, sync::Arc, vec, vec::Vec};
use core::ops::Range;
use tombolo_base::{Instant, Lcbn, ObjectDescriptor, Pvbn, Span};
use tombolo_cache as cache;
use tombolo_prefetch::{ClientId, Outcome};

/// Pages and descriptors that one read asks for at a time: each that arrives runs the read again, so more would only
/// be looked at more often.
const UNRESOLVED_MAX: u32 = 64;
/// Slots that a read may find not to hold what they should, for each of its blocks. A cache file that gives nothing back would
/// have it fetch for ever.
const SLOTS_DROPPED_MAX_PER_BLOCK: u32 = 4;

impl Core {
    pub(crate) fn on_read(&mut self, token: Token, client: ClientId, span: Span) {
        if let Err(refusal) = self.check_span(span) {
            return self.answer(token, Err(refusal));
        }
        let count = span.count as usize;
        let read = Read {
            client,
            span,
            began: self.now,
            blocks: vec![Block::Unresolved; count],
            window: 0..0,
            reserved: 0,
            is_queued: false,
            is_reading: false,
            progress_at: self.now,
            unresolved: 0,
            coming: 0,
            cursor: 0,
            outcome: Outcome::Hit,
            prefetched_coming: 0,
            is_consulted: false,
            sequential: None,
            slots_dropped: 0,
        };
        self.open_window(token, read);
        if self.may_go_on(token) {
            self.advance_read(token);
        } else {
            self.wait_for_window(token);
        }
    }

    /// The next blocks of the read.
    fn open_window(&mut self, token: Token, mut read: Read) {
        let (start, count) = (read.window.end, read.blocks.len() as u32);
        read.window = start..count.min(start + self.config.read_window_blocks());
        read.unresolved = read.window.len() as u32;
        read.cursor = start;
        read.progress_at = self.now;
        self.reads.reads.insert(token, read);
    }

    fn wait_for_window(&mut self, token: Token) {
        if let Some(read) = self.reads.reads.get_mut(&token) {
            read.is_queued = true;
        }
        self.reads.queue.push_back(token);
        self.watch_reads();
    }

    /// Whether its window has its share, or needs none.
    fn may_go_on(&mut self, token: Token) -> bool {
        let Some(read) = self.reads.reads.get(&token) else {
            return true;
        };
        let (span, window) = (read.span, read.window.clone());
        self.reserve(token) || self.is_all_at_hand(span, window)
    }

    /// Takes the window's share; there always is one for a first.
    fn reserve(&mut self, token: Token) -> bool {
        let reads = &mut self.reads;
        let Some(read) = reads.reads.get_mut(&token) else {
            return false;
        };
        assert_eq!(read.reserved, 0, "a window takes its share once");
        let count = read.window.len() as u32;
        if reads.reserved > 0 && reads.reserved + count > self.config.read_blocks_max() {
            return false;
        }
        reads.reserved += count;
        read.reserved = count;
        true
    }

    fn is_all_at_hand(&mut self, span: Span, window: Range<u32>) -> bool {
        let (mut block, end) = (span.first + u64::from(window.start), span.first + u64::from(window.end));
        while block < end {
            let Lookup::Known(target, run) = self.lookup(span.volume, block) else {
                return false;
            };
            let run = run.min(end - block);
            if let Target::At(first) = target
                && (0..run).any(|offset| self.slots.find(first.plus(offset)).is_none())
            {
                return false;
            }
            block += run;
        }
        true
    }

    /// Lets windows that waited go on, and refuses reads that wait too long.
    pub(crate) fn pump_reads(&mut self) {
        while let Some(token) = self.reads.queue.front().copied() {
            if !self.may_go_on(token) {
                break;
            }
            self.reads.queue.pop_front();
            if let Some(read) = self.reads.reads.get_mut(&token) {
                read.is_queued = false;
            }
            self.advance_read(token);
        }
        if self.reads.check_at.is_some_and(|at| self.now >= at) {
            self.refuse_overdue();
        }
    }

    fn watch_reads(&mut self) {
        let at = self.now.plus_millis(self.config.read_timeout_ms);
        self.reads.check_at.get_or_insert(at);
    }

    fn refuse_overdue(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "what comes out is sorted, or the least")]
        let waiting = self.reads.reads.iter();
        let waiting = waiting.filter(|(_, read)| read.is_queued || read.unresolved + read.coming > 0);
        let deadline = |read: &Read| read.progress_at.plus_millis(self.config.read_timeout_ms);
        let mut overdue: Vec<Token> = waiting
            .clone()
            .filter(|(_, read)| self.now >= deadline(read))
            .map(|(token, _)| *token)
            .collect();
        overdue.sort_unstable();
        self.reads.check_at = waiting
            .map(|(_, read)| deadline(read))
            .filter(|at| *at > self.now)
            .min();
        for token in overdue {
            let reason = format!("nothing has come for {} ms", self.config.read_timeout_ms);
            self.refuse_reader((token, 0), Refusal::CloudUnavailable(reason));
        }
    }

    pub(crate) fn read_deadline(&self) -> Option<Instant> {
        self.reads.check_at
    }

    /// The client has gone. What was fetched for it stays in the cache.
    pub(crate) fn cancel_read(&mut self, token: Token) {
        if let Some(read) = self.reads.reads.remove(&token) {
            self.let_go(&read);
            self.reads.queue.retain(|queued| *queued != token);
        }
    }

    /// Resolves what can be resolved; asks for the pages, descriptors and objects that are missing.
    pub(crate) fn advance_read(&mut self, token: Token) {
        if self
            .reads
            .reads
            .get(&token)
            .is_none_or(|read| read.is_queued || read.is_reading)
        {
            return;
        }
        let Some(mut read) = self.reads.reads.remove(&token) else {
            return;
        };
        let outcome = self.resolve(token, &mut read);
        match outcome {
            Err(refusal) => {
                self.let_go(&read);
                self.answer(token, Err(refusal));
            }
            Ok(()) if read.unresolved == 0 && read.coming == 0 => {
                let pieces = self.pieces(&read);
                if pieces.is_empty() {
                    self.end_window(token, read);
                } else {
                    read.is_reading = true;
                    self.reads.reads.insert(token, read);
                    self.out.push(Command::ReadSlots { token, pieces });
                }
            }
            Ok(()) => {
                self.reads.reads.insert(token, read);
                self.watch_reads();
            }
        }
    }

    fn resolve(&mut self, token: Token, read: &mut Read) -> Result<(), Refusal> {
        let mut wanted = Wanted::new();
        let mut needs_page = false;
        let count = read.window.end;
        while read.cursor < count && read.blocks[read.cursor as usize] != Block::Unresolved {
            read.cursor += 1;
        }
        let mut index = read.cursor;
        let mut left_unresolved = 0;
        while index < count && read.unresolved > 0 && left_unresolved < UNRESOLVED_MAX {
            if read.blocks[index as usize] != Block::Unresolved {
                index += 1;
                continue;
            }
            let block = read.span.first + u64::from(index);
            let left = u64::from(count - index);
            match self.lookup(read.span.volume, block) {
                Lookup::NeedPage(page) => {
                    self.load_page(read.span.volume, page, Waiter::Read(token));
                    needs_page = true;
                    let page_end = (page + 1) * PAGE_ENTRIES;
                    index += (page_end - block).min(left) as u32;
                    left_unresolved += 1;
                }
                Lookup::Known(target, run) => {
                    let run = run.min(left) as u32;
                    for offset in 0..run {
                        let at = index + offset;
                        if read.blocks[at as usize] == Block::Unresolved {
                            let target = target.plus(u64::from(offset));
                            let state = self.resolve_block(token, read, at, target, &mut wanted)?;
                            read.blocks[at as usize] = state;
                            read.unresolved -= u32::from(state != Block::Unresolved);
                            read.coming += u32::from(state == Block::Coming);
                            left_unresolved += u32::from(state == Block::Unresolved);
                        }
                    }
                    index += run;
                }
            }
        }
        // A block whose page is not known may turn out to be a hit; one whose object is not known cannot.
        let is_first_known = !needs_page && !read.is_consulted;
        if is_first_known {
            self.consult(read);
        }
        self.fetch_wanted(token, read, wanted);
        if is_first_known {
            self.issue_suggestions(read.span);
        }
        Ok(())
    }

    /// The first block of the span that is at the PVBN, as far as is known.
    pub(crate) fn block_at(&mut self, span: Span, pvbn: Pvbn) -> Option<u64> {
        (span.first..span.end()).find(
            |block| matches!(self.lookup(span.volume, *block), Lookup::Known(Target::At(found), _) if found == pvbn),
        )
    }

    fn fetch_wanted(&mut self, token: Token, read: &Read, wanted: Wanted) {
        for (descriptor, indices) in wanted.into_values() {
            let mut blocks = Vec::with_capacity(indices.len());
            for (object_index, interests) in &indices {
                let block = descriptor.blocks()[usize::from(*object_index)].pvbn;
                let at = read.span.first + u64::from(interests[0]);
                let address = self.own_address(read.span.volume, at, block);
                let sequential = read.sequential;
                let miss_hint = self.slots.miss(&cache::Access {
                    block,
                    address,
                    sequential,
                });
                let purpose = Purpose::Demand {
                    miss_hint,
                    address,
                    sequential,
                };
                blocks.push((*object_index, purpose));
            }
            self.queue_fetch(&descriptor, &blocks, true);
            for (object_index, interests) in indices {
                let pvbn = descriptor.blocks()[usize::from(object_index)].pvbn;
                for request_index in interests {
                    self.join_fetch(pvbn, (token, request_index));
                }
            }
        }
    }

    fn resolve_block(
        &mut self,
        token: Token,
        read: &mut Read,
        index: u32,
        target: Target,
        wanted: &mut Wanted,
    ) -> Result<Block, Refusal> {
        let Target::At(pvbn) = target else {
            return Ok(Block::Zero);
        };
        let block = read.span.first + u64::from(index);
        if let Some(slot) = self.slots.find(pvbn) {
            if self.slots.state(slot) == SlotState::Corrupt {
                let reason = "the local copy is corrupt and was not yet uploaded; overwrite the block".to_string();
                return Err(Refusal::Lost { block, pvbn, reason });
            }
            self.prefetch_state.counters.hits += 1;
            self.slots.pin(slot);
            if read.is_consulted {
                self.touch(read, index.into(), slot);
            }
            return Ok(Block::Held(slot));
        }
        if let Some(joined) = self.join_fetch(pvbn, (token, index)) {
            self.prefetch_state.counters.partial_misses += 1;
            read.prefetched_coming += u32::from(joined.is_first_of_prefetch);
            if read.outcome == Outcome::Hit {
                read.outcome = Outcome::Partial;
            }
            return Ok(Block::Coming);
        }
        read.outcome = Outcome::Miss;
        let Some(descriptor) = self.descriptor_of(pvbn) else {
            self.load_descriptor(pvbn, Waiter::Read(token));
            return Ok(Block::Unresolved);
        };
        let Some(object_index) = descriptor
            .blocks()
            .binary_search_by_key(&pvbn, |packed| packed.pvbn)
            .ok()
        else {
            return Err(unknown_object(block, pvbn));
        };
        self.prefetch_state.counters.complete_misses += 1;
        let (_, indices) = wanted
            .entry(descriptor.first_pvbn().0)
            .or_insert_with(|| (descriptor, BTreeMap::new()));
        indices.entry(object_index as u16).or_default().push(index);
        Ok(Block::Coming)
    }

    pub(crate) fn serve_reader(&mut self, (token, index): Interest, slot: Lcbn) {
        let Some(read) = self.reads.reads.get_mut(&token) else {
            return;
        };
        assert_eq!(read.blocks[index as usize], Block::Coming);
        assert!(read.coming > 0 && !read.is_reading);
        read.blocks[index as usize] = Block::Held(slot);
        read.progress_at = self.now;
        read.coming -= 1;
        let complete = read.coming == 0;
        self.slots.pin(slot);
        if complete {
            self.advance_read(token);
        }
    }

    /// The volume and block that a reader waits for, while it does.
    pub(crate) fn place_of(&self, (token, index): Interest) -> Option<Place> {
        let span = self.reads.reads.get(&token)?.span;
        Some((span.volume, span.first + u64::from(index)))
    }

    /// The block that was coming has another name now, or is another block.
    pub(crate) fn read_again(&mut self, (token, index): Interest) {
        let Some(read) = self.reads.reads.get_mut(&token) else {
            return;
        };
        assert_eq!(read.blocks[index as usize], Block::Coming);
        assert!(read.coming > 0 && !read.is_reading);
        read.blocks[index as usize] = Block::Unresolved;
        read.coming -= 1;
        read.unresolved += 1;
        read.cursor = read.window.start;
        self.advance_read(token);
    }

    pub(crate) fn reader_failed(&mut self, (token, index): Interest, pvbn: Pvbn, failure: &StoreFailure) {
        let Some((_, block)) = self.place_of((token, index)) else {
            return;
        };
        let reason = failure.reason.clone();
        let refusal = if failure.retryable {
            Refusal::CloudUnavailable(reason)
        } else {
            Refusal::Lost { block, pvbn, reason }
        };
        self.refuse_reader((token, index), refusal);
    }

    pub(crate) fn refuse_reader(&mut self, (token, _): Interest, refusal: Refusal) {
        if let Some(read) = self.reads.reads.remove(&token) {
            self.let_go(&read);
            self.counters.reads_refused += u64::from(matches!(refusal, Refusal::CloudUnavailable(_)));
            self.answer(token, Err(refusal));
        }
    }

    pub(crate) fn on_slots_read(
        &mut self,
        token: Token,
        result: Result<(), DiskError>,
        corrupt: Vec<Lcbn>,
        unreadable: Vec<Lcbn>,
    ) {
        let Some(mut read) = self.reads.reads.remove(&token) else {
            return;
        };
        assert!(read.is_reading, "its slots were asked for");
        assert_eq!(read.unresolved + read.coming, 0);
        read.is_reading = false;
        if let Err(error) = result {
            let is_copy = |slot: &Lcbn| self.slots.state(*slot) != SlotState::Dirty;
            if unreadable.is_empty() || !unreadable.iter().all(is_copy) {
                self.let_go(&read);
                return self.answer(token, Err(Refusal::Disk(error)));
            }
        }
        unreadable
            .iter()
            .for_each(|slot| self.slots.set_unusable(*slot, self.now));
        let corrupt = [corrupt, unreadable].concat();
        if corrupt.is_empty() {
            if read.outcome == Outcome::Hit {
                let micros = self.now.micros_since(read.began);
                self.prefetch_state.admission.on_hit(micros);
            }
            return self.end_window(token, read);
        }
        read.slots_dropped += corrupt.len() as u32;
        if read.slots_dropped > SLOTS_DROPPED_MAX_PER_BLOCK * read.blocks.len() as u32 {
            self.let_go(&read);
            let error = DiskError {
                operation: "cache file read",
                reason: "blocks cannot be read back although they were fetched again".into(),
            };
            return self.answer(token, Err(Refusal::Disk(error)));
        }
        for index in 0..read.blocks.len() {
            let Block::Held(slot) = read.blocks[index] else {
                continue;
            };
            if corrupt.contains(&slot) {
                self.drop_corrupt(slot);
                self.slots.unpin(slot);
                read.blocks[index] = Block::Unresolved;
                read.unresolved += 1;
                read.cursor = read.window.start;
            }
        }
        self.reads.reads.insert(token, read);
        self.advance_read(token);
    }

    /// The window's blocks are in the client's buffer.
    fn end_window(&mut self, token: Token, mut read: Read) {
        assert_eq!(read.unresolved + read.coming, 0, "the window's blocks are all at hand");
        self.let_go(&read);
        if read.window.end as usize == read.blocks.len() {
            return self.answer(token, Ok(Answer::Read));
        }
        let window = read.window.start as usize..read.window.end as usize;
        read.blocks[window].fill(Block::Done);
        read.reserved = 0;
        self.open_window(token, read);
        // Not here and now: a read of holes would go deeper with each window.
        self.wait_for_window(token);
    }

    /// A slot does not hold what its sum says. A clean copy is forgotten and fetched again; a dirty one is lost.
    fn drop_corrupt(&mut self, slot: Lcbn) {
        match self.slots.state(slot) {
            SlotState::Clean => {
                if self.slots.is_unproven(slot) {
                    self.counters.slots_stale += 1;
                } else {
                    self.counters.slots_corrupt += 1;
                }
                self.slots.drop_clean(slot);
            }
            SlotState::Dirty => self.lose_dirty(slot, ALTERED),
            SlotState::Free | SlotState::Taken | SlotState::Corrupt | SlotState::Retiring | SlotState::Withdrawn => {}
        }
    }

    pub(crate) fn let_go(&mut self, read: &Read) {
        assert!(read.reserved <= self.reads.reserved);
        self.reads.reserved -= read.reserved;
        for block in &read.blocks {
            if let Block::Held(slot) = block {
                self.slots.unpin(*slot);
            }
        }
    }

    fn pieces(&self, read: &Read) -> Vec<ReadPiece> {
        let mut pieces: Vec<ReadPiece> = Vec::new();
        for (index, block) in read.blocks.iter().enumerate() {
            let Block::Held(slot) = block else { continue };
            let sum = self.slots.sum(*slot);
            match pieces.last_mut() {
                Some(last)
                    if last.index as usize + last.sums.len() == index
                        && last.slot.0 as usize + last.sums.len() == slot.0 as usize =>
                {
                    last.sums.push(sum);
                }
                _ => pieces.push(ReadPiece {
                    index: index as u32,
                    slot: *slot,
                    sums: vec![sum],
                }),
            }
        }
        pieces
    }
}

/// Blocks to fetch, by object: the object's block index to the request's.
type Wanted = BTreeMap<u64, (Arc<ObjectDescriptor>, BTreeMap<u16, Vec<u32>>)>;

pub(crate) fn unknown_object(block: u64, pvbn: Pvbn) -> Refusal {
    let reason = format!(
        "no object is known to hold PVBN {}: it was lost before it was uploaded, or local metadata is damaged",
        pvbn.0
    );
    Refusal::Lost { block, pvbn, reason }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
