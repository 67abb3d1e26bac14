//! Reads and map queries: from a client's range to the slots that hold it.
//!
//! Each block of a read goes from `Unresolved` to `Zero` or `Held` (its slot is pinned from that moment), by way of
//! `Coming` when it has to be fetched. Pages of the map and object descriptors that are not in memory are loaded
//! first; whoever waits for one is run again when it arrives.

use crate::checkpoint::least_first;
use crate::core_state::{Core, Lookup};
use crate::event::{
    Answer, Command, DiskError, MetadataError, ReadPiece, Refusal, ResolvedRun, Source, Span, StatusRun, StoreFailure,
    Token,
};
use crate::extent_map::Target;
use crate::fetch::Interest;
use crate::page::{MapPage, PAGE_ENTRIES};
use crate::slots::SlotState;
use alloc::{collections::BTreeMap, format, string::ToString, sync::Arc, vec, vec::Vec};
use hashbrown::HashMap;
use tombolo_base::{Lcbn, ObjectDescriptor, Pvbn, VolumeId};
use tombolo_prefetch::{Access, ClientId, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Unresolved,
    Zero,
    Held(Lcbn),
    Coming,
}

#[derive(Debug)]
struct Read {
    span: Span,
    blocks: Vec<Block>,
    unresolved: u32,
    coming: u32,
    /// No block before this is unresolved.
    cursor: u32,
}

/// What is asked of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Status,
    Resolve,
}

/// Who waits for a page or a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    Read(Token),
    Query(Token, Span, Query),
    Prefetch(Span),
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    reads: HashMap<Token, Read>,
    page_waiters: BTreeMap<(VolumeId, u64), Vec<Waiter>>,
    descriptor_waiters: BTreeMap<Pvbn, Vec<Waiter>>,
}

/// Pages and descriptors that one read asks for at a time: each that arrives runs the read again, so more would only
/// be looked at more often.
const UNRESOLVED_MAX: u32 = 64;
/// One answer to a map query looks at no more than this many blocks; the client asks again for the rest.
const STATUS_BLOCKS_MAX: u64 = 1 << 16;

impl Core {
    pub(crate) fn on_read(&mut self, token: Token, span: Span) {
        if let Err(refusal) = self.check_span(span) {
            return self.answer(token, Err(refusal));
        }
        let count = span.count as usize;
        let read = Read {
            span,
            blocks: vec![Block::Unresolved; count],
            unresolved: count as u32,
            coming: 0,
            cursor: 0,
        };
        self.reads.reads.insert(token, read);
        self.advance_read(token);
        self.prefetch_for(token, span);
    }

    /// Passes the read to the prefetcher and fetches what it suggests.
    fn prefetch_for(&mut self, token: Token, span: Span) {
        // Clients are not told apart, and neither partial misses nor prefetched blocks are marked: only policies that
        // need no feedback are offered.
        let missed = self
            .reads
            .reads
            .get(&token)
            .is_some_and(|read| read.unresolved > 0 || read.coming > 0);
        let access = Access {
            client: ClientId::default(),
            volume: span.volume,
            first: span.first,
            count: span.count,
            outcome: if missed { Outcome::Miss } else { Outcome::Hit },
            prefetched: 0,
        };
        let mut suggestions = core::mem::take(&mut self.suggestions);
        self.prefetcher.on_read(self.now, access, &mut suggestions);
        for suggestion in suggestions.drain(..) {
            self.prefetch(Span {
                volume: suggestion.volume,
                first: suggestion.first,
                count: suggestion.count,
            });
        }
        self.suggestions = suggestions;
    }

    /// Resolves what can be resolved; asks for the pages, descriptors and objects that are missing.
    fn advance_read(&mut self, token: Token) {
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
                    self.answer(token, Ok(Answer::Read));
                } else {
                    self.reads.reads.insert(token, read);
                    self.out.push(Command::ReadSlots { token, pieces });
                }
            }
            Ok(()) => {
                self.reads.reads.insert(token, read);
            }
        }
    }

    fn resolve(&mut self, token: Token, read: &mut Read) -> Result<(), Refusal> {
        let mut wanted = Wanted::new();
        let count = read.blocks.len() as u32;
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
                    let page_end = (page + 1) * PAGE_ENTRIES;
                    index += (page_end - block).min(left) as u32;
                    left_unresolved += 1;
                }
                Lookup::Known(target, run) => {
                    let run = run.min(left) as u32;
                    for offset in 0..run {
                        let state = &mut read.blocks[(index + offset) as usize];
                        if *state == Block::Unresolved {
                            let target = target.plus(u64::from(offset));
                            *state = self.resolve_block(
                                token,
                                block + u64::from(offset),
                                index + offset,
                                target,
                                &mut wanted,
                            )?;
                            read.unresolved -= u32::from(*state != Block::Unresolved);
                            read.coming += u32::from(*state == Block::Coming);
                            left_unresolved += u32::from(*state == Block::Unresolved);
                        }
                    }
                    index += run;
                }
            }
        }
        for (descriptor, indices) in wanted.into_values() {
            let ascending: Vec<u16> = indices.keys().copied().collect();
            self.queue_fetch(&descriptor, &ascending, true);
            for (object_index, interests) in indices {
                let pvbn = descriptor.blocks()[usize::from(object_index)].pvbn;
                for request_index in interests {
                    self.join_fetch(pvbn, (token, request_index));
                }
            }
        }
        Ok(())
    }

    fn resolve_block(
        &mut self,
        token: Token,
        block: u64,
        index: u32,
        target: Target,
        wanted: &mut Wanted,
    ) -> Result<Block, Refusal> {
        let Target::At(pvbn) = target else {
            return Ok(Block::Zero);
        };
        if let Some(slot) = self.slots.find(pvbn) {
            if self.slots.state(slot) == SlotState::Corrupt {
                let reason = "the local copy is corrupt and was not yet uploaded; overwrite the block".to_string();
                return Err(Refusal::Lost { block, pvbn, reason });
            }
            self.counters.hits += 1;
            self.slots.touch(slot);
            self.slots.pin(slot);
            return Ok(Block::Held(slot));
        }
        if self.join_fetch(pvbn, (token, index)) {
            self.counters.partial_misses += 1;
            return Ok(Block::Coming);
        }
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
        self.counters.complete_misses += 1;
        let (_, indices) = wanted
            .entry(descriptor.first_pvbn().0)
            .or_insert_with(|| (descriptor, BTreeMap::new()));
        indices.entry(object_index as u16).or_default().push(index);
        Ok(Block::Coming)
    }

    /// The object that covers `pvbn`, if it is in memory.
    fn descriptor_of(&mut self, pvbn: Pvbn) -> Option<Arc<ObjectDescriptor>> {
        let candidates = least_first(pvbn)..=pvbn.0;
        let in_overlay = |objects: &BTreeMap<u64, Arc<ObjectDescriptor>>| {
            let mut near = objects.range(candidates.clone()).rev();
            near.find(|(_, descriptor)| descriptor.find(pvbn).is_some())
                .map(|(_, descriptor)| descriptor.clone())
        };
        in_overlay(&self.overlay.objects)
            .or_else(|| in_overlay(&self.frozen.as_ref()?.objects))
            .or_else(|| {
                self.descriptors
                    .last_where(candidates.clone(), |descriptor| descriptor.find(pvbn).is_some())
                    .cloned()
            })
    }

    fn load_page(&mut self, volume: VolumeId, page: u64, waiter: Waiter) {
        let waiters = self.reads.page_waiters.entry((volume, page)).or_default();
        let is_first = waiters.is_empty();
        if !waiters.contains(&waiter) {
            waiters.push(waiter);
        }
        if is_first {
            self.out.push(Command::LoadPage {
                volume,
                page,
                generation: self.generation,
            });
        }
    }

    fn load_descriptor(&mut self, pvbn: Pvbn, waiter: Waiter) {
        let waiters = self.reads.descriptor_waiters.entry(pvbn).or_default();
        let is_first = waiters.is_empty();
        if !waiters.contains(&waiter) {
            waiters.push(waiter);
        }
        if is_first {
            self.out.push(Command::LoadDescriptor { pvbn });
        }
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
        let waiters = self.reads.page_waiters.remove(&(volume, page)).unwrap_or_default();
        match result {
            Ok(loaded) => {
                let weight = loaded.weight_bytes();
                self.pages.insert((volume, page), loaded, weight);
                self.wake(waiters);
            }
            Err(error) => self.fail_waiters(waiters, &error),
        }
    }

    pub(crate) fn on_descriptor_loaded(
        &mut self,
        pvbn: Pvbn,
        result: Result<Option<Arc<ObjectDescriptor>>, MetadataError>,
    ) {
        let waiters = self.reads.descriptor_waiters.remove(&pvbn).unwrap_or_default();
        match result {
            Ok(Some(descriptor)) if descriptor.find(pvbn).is_some() => {
                let weight = descriptor.header_bytes();
                self.descriptors.insert(descriptor.first_pvbn().0, descriptor, weight);
                self.wake(waiters);
            }
            // An object may have been confirmed, or a slot filled, while this was under way.
            Ok(_) if self.descriptor_of(pvbn).is_some() || self.slots.find(pvbn).is_some() => self.wake(waiters),
            Ok(_) => {
                for waiter in waiters {
                    if let Waiter::Read(token) = waiter
                        && let Some(read) = self.reads.reads.remove(&token)
                    {
                        self.let_go(&read);
                        self.answer(token, Err(unknown_object(read.span.first, pvbn)));
                    }
                }
            }
            Err(error) => self.fail_waiters(waiters, &error),
        }
    }

    fn wake(&mut self, waiters: Vec<Waiter>) {
        for waiter in waiters {
            match waiter {
                Waiter::Read(token) => self.advance_read(token),
                Waiter::Query(token, span, query) => self.on_query(token, span, query),
                Waiter::Prefetch(span) => self.prefetch(span),
            }
        }
    }

    fn fail_waiters(&mut self, waiters: Vec<Waiter>, error: &MetadataError) {
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
                Waiter::Prefetch(_) => continue,
            };
            self.answer(token, Err(Refusal::Metadata(error.clone())));
        }
    }

    pub(crate) fn reader_landed(&mut self, (token, index): Interest, slot: Lcbn) {
        let Some(read) = self.reads.reads.get_mut(&token) else {
            return;
        };
        read.blocks[index as usize] = Block::Held(slot);
        read.coming -= 1;
        let complete = read.coming == 0;
        self.slots.pin(slot);
        if complete {
            self.advance_read(token);
        }
    }

    pub(crate) fn reader_failed(&mut self, (token, index): Interest, pvbn: Pvbn, failure: &StoreFailure) {
        let Some(read) = self.reads.reads.remove(&token) else {
            return;
        };
        self.let_go(&read);
        let refusal = if failure.retryable {
            Refusal::CloudUnavailable(failure.reason.clone())
        } else {
            Refusal::Lost {
                block: read.span.first + u64::from(index),
                pvbn,
                reason: failure.reason.clone(),
            }
        };
        self.answer(token, Err(refusal));
    }

    pub(crate) fn on_slots_read(&mut self, token: Token, result: Result<(), DiskError>, corrupt: Vec<Lcbn>) {
        let Some(mut read) = self.reads.reads.remove(&token) else {
            return;
        };
        if let Err(error) = result {
            self.let_go(&read);
            return self.answer(token, Err(Refusal::Disk(error)));
        }
        if corrupt.is_empty() {
            self.let_go(&read);
            return self.answer(token, Ok(Answer::Read));
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
                read.cursor = 0;
            }
        }
        self.reads.reads.insert(token, read);
        self.advance_read(token);
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
            SlotState::Dirty => self.lose_dirty(slot),
            SlotState::Free | SlotState::Taken | SlotState::Corrupt | SlotState::Retiring => {}
        }
    }

    fn let_go(&mut self, read: &Read) {
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
                let nothing = Span {
                    volume: span.volume,
                    first: ahead * PAGE_ENTRIES,
                    count: 0,
                };
                self.load_page(span.volume, ahead, Waiter::Prefetch(nothing));
            }
        }
        self.load_page(span.volume, page, Waiter::Query(token, span, query));
    }

    /// Resident, or on its way.
    fn is_at_hand(&self, pvbn: Pvbn) -> bool {
        self.slots.find(pvbn).is_some() || self.fetches.contains(pvbn)
    }

    /// Fetches what is neither resident nor on its way, as far as the prefetcher's share of the cache allows.
    fn prefetch(&mut self, span: Span) {
        let Ok(blocks) = self.size_of(span.volume) else {
            return;
        };
        let end = span.end().min(blocks);
        let share_max = (self.slots.count() / 8) as usize;
        let mut wanted: BTreeMap<u64, (Arc<ObjectDescriptor>, Vec<u16>)> = BTreeMap::new();
        let mut block = span.first;
        while block < end && self.fetches.block_count() < share_max {
            let (target, run) = match self.lookup(span.volume, block) {
                Lookup::NeedPage(page) => {
                    let rest = Span {
                        first: block,
                        count: end - block,
                        ..span
                    };
                    self.load_page(span.volume, page, Waiter::Prefetch(rest));
                    break;
                }
                Lookup::Known(target, run) => (target, run.min(end - block)),
            };
            // A run whose ends are at hand is taken to be at hand: looking at each block of cached data that is read
            // sequentially would cost more than the rare hole in it.
            if let Target::At(first) = target
                && !(self.is_at_hand(first) && self.is_at_hand(first.plus(run - 1)))
            {
                for pvbn in (first.0..first.0 + run).map(Pvbn) {
                    if self.is_at_hand(pvbn) {
                        continue;
                    }
                    let Some(descriptor) = self.descriptor_of(pvbn) else {
                        let at = block + (pvbn.0 - first.0);
                        let rest = Span {
                            first: at,
                            count: end - at,
                            ..span
                        };
                        self.load_descriptor(pvbn, Waiter::Prefetch(rest));
                        block = end;
                        break;
                    };
                    if let Ok(index) = descriptor.blocks().binary_search_by_key(&pvbn, |packed| packed.pvbn) {
                        let (_, indices) = wanted
                            .entry(descriptor.first_pvbn().0)
                            .or_insert_with(|| (descriptor, Vec::new()));
                        indices.push(index as u16);
                    }
                }
            }
            block = block.saturating_add(run);
        }
        for (descriptor, mut indices) in wanted.into_values() {
            indices.sort_unstable();
            indices.dedup();
            self.counters.blocks_prefetched += indices.len() as u64;
            self.queue_fetch(&descriptor, &indices, false);
        }
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
