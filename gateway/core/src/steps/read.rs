//! Reads and map queries: from a client's range to the slots that hold it.
//!
//! Each block of a read goes from `Unresolved` to `Zero` or `Held` (its slot is pinned from that moment), by way of
//! `Coming` when it has to be fetched. Pages of the map and object descriptors that are not in memory are loaded
//! first; whoever waits for one is run again when it arrives.
//!
//! A read goes on in windows, each a share of the slots that dirty blocks leave, and all windows together have a share: so
//! however large and many the reads are, slots can be found for what they wait for. A window that finds the shares used
//! up waits without holding anything, unless all of its blocks are at hand.

use crate::core_state::{Core, Lookup};
use crate::event::{
    Answer, Command, DiskError, MetadataError, ReadPiece, Refusal, ResolvedRun, Source, StatusRun, StoreFailure, Token,
};
use crate::format::page::{MapPage, PAGE_ENTRIES};
use crate::state::candidate::Candidate;
use crate::state::extent_map::Target;
use crate::state::fetches::Purpose;
use crate::state::lost_blocks::ALTERED;
use crate::state::lost_blocks::Place;
use crate::state::metadata_loads::{Query, Waiter};
use crate::state::reads::{Block, Interest, Read};
use crate::state::slots::SlotState;
use alloc::{collections::BTreeMap, format, string::ToString, sync::Arc, vec, vec::Vec};
use core::ops::Range;
use tombolo_base::{Instant, Lcbn, ObjectDescriptor, Pvbn, Span, VolumeId};
use tombolo_cache as cache;
use tombolo_prefetch::{Access, Addressing, ClientId, Outcome, PVBN_SPACE, Pattern};

/// Pages and descriptors that one read asks for at a time: each that arrives runs the read again, so more would only
/// be looked at more often.
const UNRESOLVED_MAX: u32 = 64;
/// One answer to a map query looks at no more than this many blocks; the client asks again for the rest.
pub(crate) const STATUS_BLOCKS_MAX: u64 = 1 << 16;
/// Candidates that wait for local metadata at the same time; more are given up.
const WISHES_WAITING_MAX: usize = 4096;

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

    /// Passes a read whose outcome is known to the prefetcher, and on to the replacement policy what that says.
    fn consult(&mut self, read: &mut Read) {
        read.is_consulted = true;
        let counters = &mut self.prefetch_state.counters;
        match read.outcome {
            Outcome::Hit => counters.reads_hit += 1,
            Outcome::Partial => counters.reads_partial += 1,
            Outcome::Miss => counters.reads_missed += 1,
        }
        let pattern = match self.prefetch_state.addressing {
            Addressing::Logical => {
                let access = self.access(read, read.span.volume, read.span.first, 0..read.blocks.len());
                self.tell_prefetcher(access)
            }
            Addressing::Pvbn => self.tell_by_pvbn(read),
        };
        read.sequential = self
            .prefetch_state
            .knows_streams
            .then_some(pattern == Pattern::Sequential);
        for index in 0..read.blocks.len() {
            if let Block::Held(slot) = read.blocks[index] {
                self.touch(read, index as u64, slot);
            }
        }
    }

    fn tell_prefetcher(&mut self, access: Access) -> Pattern {
        let prefetch_state = &mut self.prefetch_state;
        prefetch_state
            .prefetcher
            .on_read(self.now, access, &mut prefetch_state.suggestions)
    }

    /// What the prefetcher is told of some of the read's blocks.
    fn access(&self, read: &Read, volume: VolumeId, first: u64, part: core::ops::Range<usize>) -> Access {
        let count = part.len() as u64;
        let held = read.blocks[part].iter().filter_map(|block| match block {
            Block::Held(slot) => Some(*slot),
            _ => None,
        });
        let unread = held.filter(|slot| self.slots.is_unread(*slot)).count() as u64;
        Access {
            client: read.client,
            volume,
            first,
            count,
            outcome: read.outcome,
            prefetched: (unread + u64::from(read.prefetched_coming)).min(count),
        }
    }

    /// One access per run of PVBNs; each has the outcome of the whole read. The last run's pattern counts.
    fn tell_by_pvbn(&mut self, read: &Read) -> Pattern {
        let (mut index, mut pattern) = (0, Pattern::Random);
        while index < read.span.count {
            let Lookup::Known(target, run) = self.lookup(read.span.volume, read.span.first + index) else {
                // The page was pushed out meanwhile, which only the tiniest of caches does.
                return pattern;
            };
            let run = run.min(read.span.count - index);
            if let Target::At(pvbn) = target {
                let part = index as usize..(index + run) as usize;
                let access = self.access(read, PVBN_SPACE, pvbn.0, part);
                pattern = self.tell_prefetcher(access);
            }
            index += run;
        }
        pattern
    }

    /// Counts a read of a held block.
    fn touch(&mut self, read: &Read, index: u64, slot: Lcbn) {
        let address = self.own_address(read.span.volume, read.span.first + index, self.slots.pvbn(slot));
        let touched = self.slots.touch(slot, address, read.sequential);
        self.count_touch(touched);
    }

    /// Resolves what can be resolved; asks for the pages, descriptors and objects that are missing.
    fn advance_read(&mut self, token: Token) {
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
            self.follow_suggestions(read.span);
        }
        Ok(())
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

    /// False when the waiter waits for it already.
    fn load_page(&mut self, volume: VolumeId, page: u64, waiter: Waiter) -> bool {
        let waiters = self.metadata_loads.page_waiters.entry((volume, page)).or_default();
        let (is_first, is_new) = (waiters.is_empty(), !waiters.contains(&waiter));
        if is_new {
            waiters.push(waiter);
        }
        if is_first {
            self.out.push(Command::LoadPage {
                volume,
                page,
                generation: self.generation,
            });
        }
        is_new
    }

    fn load_descriptor(&mut self, pvbn: Pvbn, waiter: Waiter) -> bool {
        let waiters = self.metadata_loads.descriptor_waiters.entry(pvbn).or_default();
        let (is_first, is_new) = (waiters.is_empty(), !waiters.contains(&waiter));
        if is_new {
            waiters.push(waiter);
        }
        if is_first {
            self.out.push(Command::LoadDescriptor { pvbn });
        }
        is_new
    }

    pub(crate) fn load_page_for_candidate(&mut self, candidate: Candidate, page: u64) {
        if self.metadata_loads.candidates_waiting < WISHES_WAITING_MAX
            && self.load_page(candidate.volume, page, Waiter::Candidate(candidate))
        {
            self.metadata_loads.candidates_waiting += 1;
        }
    }

    pub(crate) fn load_descriptor_for_candidate(&mut self, candidate: Candidate, pvbn: Pvbn) {
        if self.metadata_loads.candidates_waiting < WISHES_WAITING_MAX
            && self.load_descriptor(pvbn, Waiter::Candidate(candidate))
        {
            self.metadata_loads.candidates_waiting += 1;
        }
    }

    pub(crate) fn load_descriptor_to_verify(&mut self, pvbn: Pvbn) {
        self.load_descriptor(pvbn, Waiter::Verification);
    }

    pub(crate) fn on_page_loaded(
        &mut self,
        volume: VolumeId,
        page: u64,
        generation: u64,
        result: Result<MapPage, MetadataError>,
    ) {
        if generation != self.generation && result.is_ok() {
            // A checkpoint came between; what was read may be older than it.
            self.out.push(Command::LoadPage {
                volume,
                page,
                generation: self.generation,
            });
            return;
        }
        let waiters = self
            .metadata_loads
            .page_waiters
            .remove(&(volume, page))
            .unwrap_or_default();
        match result {
            Ok(loaded) => {
                let weight = loaded.weight_bytes();
                self.pages.insert((volume, page), loaded, weight);
                self.wake(waiters, None);
            }
            Err(error) => self.fail_waiters(waiters, &error, None),
        }
    }

    pub(crate) fn on_descriptor_loaded(
        &mut self,
        pvbn: Pvbn,
        result: Result<Option<Arc<ObjectDescriptor>>, MetadataError>,
    ) {
        let waiters = self.metadata_loads.descriptor_waiters.remove(&pvbn).unwrap_or_default();
        match result {
            Ok(Some(descriptor)) if descriptor.find(pvbn).is_some() => {
                let weight = descriptor.header_bytes();
                self.descriptors.insert(descriptor.first_pvbn().0, descriptor, weight);
                self.wake(waiters, Some(pvbn));
            }
            // An object may have been confirmed, or a slot filled, while this was under way.
            Ok(_) if self.descriptor_of(pvbn).is_some() || self.slots.find(pvbn).is_some() => {
                self.wake(waiters, Some(pvbn));
            }
            Ok(_) => {
                for waiter in waiters {
                    match waiter {
                        Waiter::Read(token) => {
                            if let Some(read) = self.reads.reads.remove(&token) {
                                self.let_go(&read);
                                self.answer(token, Err(unknown_object(read.span.first, pvbn)));
                            }
                        }
                        Waiter::Candidate(candidate) => {
                            self.metadata_loads.candidates_waiting -= 1;
                            self.follow_behind(candidate);
                        }
                        Waiter::Verification => self.on_located(pvbn),
                        Waiter::Query(..) | Waiter::Nobody => {}
                    }
                }
            }
            Err(error) => self.fail_waiters(waiters, &error, Some(pvbn)),
        }
    }

    /// `located` is the block whose descriptor has come.
    fn wake(&mut self, waiters: Vec<Waiter>, located: Option<Pvbn>) {
        for waiter in waiters {
            match waiter {
                Waiter::Read(token) => self.advance_read(token),
                Waiter::Query(token, span, query) => self.on_query(token, span, query),
                Waiter::Candidate(candidate) => {
                    self.metadata_loads.candidates_waiting -= 1;
                    self.follow(candidate);
                }
                Waiter::Verification => located.into_iter().for_each(|pvbn| self.on_located(pvbn)),
                Waiter::Nobody => {}
            }
        }
    }

    fn fail_waiters(&mut self, waiters: Vec<Waiter>, error: &MetadataError, located: Option<Pvbn>) {
        for waiter in waiters {
            let token = match waiter {
                Waiter::Read(token) => {
                    let Some(read) = self.reads.reads.remove(&token) else {
                        continue;
                    };
                    self.let_go(&read);
                    token
                }
                Waiter::Query(token, ..) => token,
                Waiter::Candidate(_) => {
                    self.metadata_loads.candidates_waiting -= 1;
                    continue;
                }
                Waiter::Verification => {
                    located.into_iter().for_each(|pvbn| self.on_not_located(pvbn));
                    continue;
                }
                Waiter::Nobody => continue,
            };
            self.answer(token, Err(Refusal::Metadata(error.clone())));
        }
    }

    pub(crate) fn reader_landed(&mut self, (token, index): Interest, slot: Lcbn) {
        let Some(read) = self.reads.reads.get_mut(&token) else {
            return;
        };
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

    fn let_go(&mut self, read: &Read) {
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

    pub(crate) fn on_query(&mut self, token: Token, span: Span, query: Query) {
        if let Err(refusal) = self.check_span(span) {
            return self.answer(token, Err(refusal));
        }
        let mut runs: Vec<(u64, Target)> = Vec::new();
        let count = span.count.min(STATUS_BLOCKS_MAX);
        let mut done = 0;
        while done < count {
            match self.lookup(span.volume, span.first + done) {
                Lookup::NeedPage(page) if runs.is_empty() => return self.load_query_pages(token, span, query, page),
                // A shorter answer is allowed; the client asks for the rest.
                Lookup::NeedPage(_) => break,
                Lookup::Known(target, run) => {
                    let run = run.min(count - done);
                    runs.push((run, target));
                    done += run;
                }
            }
        }
        let answer = match query {
            Query::Status => Answer::Status(status_runs(&runs)),
            Query::Resolve => Answer::Resolved(self.resolved_runs(&runs)),
        };
        self.answer(token, Ok(answer));
    }

    fn resolved_runs(&self, runs: &[(u64, Target)]) -> Vec<ResolvedRun> {
        let mut resolved: Vec<ResolvedRun> = Vec::new();
        for (count, target) in runs {
            let Target::At(first) = target else {
                resolved.push(ResolvedRun {
                    count: *count,
                    source: Source::Hole,
                });
                continue;
            };
            for pvbn in (0..*count).map(|index| first.plus(index)) {
                let source = self.source_of(pvbn);
                match resolved.last_mut() {
                    Some(last) if continues(last, source) => last.count += 1,
                    _ => resolved.push(ResolvedRun { count: 1, source }),
                }
            }
        }
        resolved
    }

    fn source_of(&self, pvbn: Pvbn) -> Source {
        let is_corrupt = |slot| self.slots.state(slot) == SlotState::Corrupt;
        match self.dirty.find(pvbn).is_some() || self.slots.find(pvbn).is_some_and(is_corrupt) {
            true => Source::Dirty,
            false => Source::Stored(pvbn),
        }
    }

    /// Loads the page that a query begins in, and those behind it for the queries that will follow.
    fn load_query_pages(&mut self, token: Token, span: Span, query: Query, page: u64) {
        let end = span.end().min(span.first + STATUS_BLOCKS_MAX);
        for ahead in page + 1..end.div_ceil(PAGE_ENTRIES) {
            if self.pages.get((span.volume, ahead)).is_none() {
                self.load_page(span.volume, ahead, Waiter::Nobody);
            }
        }
        self.load_page(span.volume, page, Waiter::Query(token, span, query));
    }
}

/// Blocks to fetch, by object: the object's block index to the request's.
type Wanted = BTreeMap<u64, (Arc<ObjectDescriptor>, BTreeMap<u16, Vec<u32>>)>;

fn unknown_object(block: u64, pvbn: Pvbn) -> Refusal {
    let reason = format!("no object is known to hold PVBN {}; local metadata is damaged", pvbn.0);
    Refusal::Lost { block, pvbn, reason }
}

/// Whether the run goes on with a block from `source`.
fn continues(run: &ResolvedRun, source: Source) -> bool {
    match (run.source, source) {
        (Source::Stored(first), Source::Stored(pvbn)) => first.plus(run.count) == pvbn,
        (Source::Dirty, Source::Dirty) => true,
        _ => false,
    }
}

fn status_runs(runs: &[(u64, Target)]) -> Vec<StatusRun> {
    let mut merged: Vec<StatusRun> = Vec::new();
    for (count, target) in runs {
        let mapped = *target != Target::Hole;
        match merged.last_mut() {
            Some(last) if last.mapped == mapped => last.count += count,
            _ => merged.push(StatusRun { count: *count, mapped }),
        }
    }
    merged
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
