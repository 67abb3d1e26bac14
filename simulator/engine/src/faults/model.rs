//! The reference: what the volumes, the files' maps and the entries must hold.
//!
//! The order in which the core hands out journal batches is the serial order of all changes. Each batch is decoded
//! with the product's own code as it is handed out, and applied here. Then
//!
//! * a change may be acknowledged only if a batch since its request holds exactly its effect, blocks, holes, links and
//!   entries together; one that is refused must not be there;
//! * a read may return, per block, any value that the block had between request and answer, and so may a lookup of
//!   entries;
//! * a crash must leave the state after some batch, at or beyond the last one that was acknowledged (process kill) or
//!   flushed (power loss): a prefix, the same for blocks, entries and counters.

use crate::faults::change::Change;
use crate::faults::contents::{Value, ZERO};
use crate::faults::state::{Effect, State, VolumeModel};
use crate::faults::watch::{EntryWatch, Watch};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tombolo_base::{EntryChange, FlushMode, Pvbn, VolumeId};
use tombolo_core::record::{Batch, Record};
use tombolo_core::{LinkRun, PartialWrite, ResolvedRun, Source, Span, Token};

#[derive(Clone, Debug)]
struct Step {
    lsn: u64,
    end: u64,
    effects: Vec<Effect>,
}

/// A change that no acknowledgement has named yet.
#[derive(Clone, Debug)]
struct Claim {
    number: u64,
    end: u64,
    effects: Vec<Effect>,
}

/// A partial write's view: nobody may change these blocks before its write.
#[derive(Clone, Debug)]
struct Expectation {
    write: PartialWrite,
    values: Vec<Value>,
    before: Vec<(u64, Value)>,
}

impl Expectation {
    fn change(&self) -> Change<'_> {
        Change::Partial {
            write: self.write,
            values: &self.values,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    base: State,
    base_lsn: u64,
    steps: VecDeque<Step>,
    current: State,
    end: u64,
    acknowledged: u64,
    flushed: u64,
    /// Up to where everything was promised to survive a loss of the disk.
    flushed_to_bucket: u64,
    claims: Vec<Claim>,
    /// Those that an acknowledgement has named, in this life.
    told: Vec<Claim>,
    number: u64,
    watches: BTreeMap<Token, Watch>,
    entry_watches: BTreeMap<u64, EntryWatch>,
    expectations: BTreeMap<Token, Expectation>,
    /// When each volume was last created, resized or deleted.
    volume_changes: BTreeMap<VolumeId, u64>,
    sums: HashMap<u64, Value>,
    values: BTreeMap<u64, Value>,
    /// As the bucket has it, and what came after that: each step with the time at which it was made.
    published: State,
    published_lsn: u64,
    unpublished: VecDeque<(u64, Step)>,
    /// What roots hold that were put before the journal was lost, and may arrive yet.
    of_late_roots: BTreeMap<u64, State>,
    /// As the bucket has it since one of them has.
    before_the_loss: Option<State>,
}

impl Model {
    pub fn state(&self) -> &State {
        &self.current
    }

    pub fn volumes(&self) -> &BTreeMap<VolumeId, VolumeModel> {
        &self.current.volumes
    }

    pub fn know_sum(&mut self, sum: u64, value: Value) {
        self.sums.insert(sum, value);
    }

    pub fn value_of_pvbn(&self, pvbn: Pvbn) -> Option<Value> {
        self.values.get(&pvbn.0).copied()
    }

    /// Marks the moment for [`Self::acknowledge`]: only later batches count.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A batch was handed out.
    pub fn on_batch(&mut self, now: u64, batch: &Batch, end: u64) {
        assert_eq!(batch.lsn.0, self.end, "batches follow each other");
        let mut effects = Vec::new();
        for record in &batch.records {
            self.on_record(record, &mut effects);
        }
        self.number += 1;
        self.end = end;
        if !effects.is_empty() {
            self.check_expectations(&effects);
        }
        for effect in &effects {
            if let Effect::Create { volume, .. } | Effect::Resize { volume, .. } | Effect::Delete { volume } = effect {
                self.volume_changes.insert(*volume, self.number);
                // A partial write that a change of the volume's size passes by may bring its old blocks back.
                self.expectations
                    .retain(|_, expected| expected.write.span.volume != *volume);
            }
            self.current.apply(effect);
            self.watches.values_mut().for_each(|watch| watch.see(effect));
            for watch in self.entry_watches.values_mut() {
                watch.see(effect, &self.current);
            }
        }
        self.claims.push(Claim {
            number: self.number,
            end,
            effects: effects.clone(),
        });
        let step = Step {
            lsn: batch.lsn.0,
            end,
            effects,
        };
        if !step.effects.is_empty() {
            self.unpublished.push_back((now, step.clone()));
        }
        self.steps.push_back(step);
    }

    /// The bucket holds everything before this position.
    pub fn on_published(&mut self, lsn: u64) {
        if let Some(state) = self.of_late_roots.remove(&lsn) {
            self.before_the_loss = Some(state);
            return;
        }
        self.before_the_loss = None;
        assert!(
            self.published_lsn <= lsn && lsn <= self.end,
            "the bucket is at LSN {lsn}, after {}, and the journal ends at {}",
            self.published_lsn,
            self.end
        );
        while let Some((_, step)) = self.unpublished.front()
            && step.end <= lsn
        {
            step.effects.iter().for_each(|effect| self.published.apply(effect));
            self.unpublished.pop_front();
        }
        self.published_lsn = lsn;
    }

    pub fn published_state(&self) -> &State {
        self.before_the_loss.as_ref().unwrap_or(&self.published)
    }

    /// When the first change was made that the bucket lacks.
    pub fn oldest_unpublished(&self) -> Option<u64> {
        self.unpublished.front().map(|(at, _)| *at)
    }

    /// Everything is as the bucket has it, and the journal begins anew.
    pub fn on_disk_lost(&mut self) {
        self.check_flushed_to_bucket();
        let published = self.published_state().clone();
        *self = Self {
            base: published.clone(),
            current: published.clone(),
            published,
            number: self.number,
            sums: std::mem::take(&mut self.sums),
            values: std::mem::take(&mut self.values),
            ..Self::default()
        };
    }

    /// The journal is as it was at one of its positions, and goes on at a later one. The bucket does not hold more than that, but
    /// roots may arrive there that were put before, at the positions `late`: it is as it was then until the next one.
    pub fn on_journal_lost(&mut self, reached: u64, end: u64, late: &BTreeSet<u64>) {
        for lsn in late.range(reached + 1..) {
            let mut state = self.published.clone();
            let steps = self.unpublished.iter().filter(|(_, step)| step.end <= *lsn);
            steps.for_each(|(_, step)| step.effects.iter().for_each(|effect| state.apply(effect)));
            self.of_late_roots.entry(*lsn).or_insert(state);
        }
        assert!(
            self.published_lsn <= reached,
            "the bucket holds more than what is gone on from"
        );
        self.unpublished.retain(|(_, step)| step.end <= reached);
        self.check_flushed_to_bucket();
        self.base = self.published.clone();
        for (_, step) in &self.unpublished {
            step.effects.iter().for_each(|effect| self.base.apply(effect));
        }
        self.base_lsn = end;
        self.steps.clear();
        self.end = end;
        self.forget_promises(end);
    }

    /// Everything that is in force is durable, and nobody waits for an answer.
    fn forget_promises(&mut self, end: u64) {
        self.current = self.base.clone();
        for step in &self.steps {
            step.effects.iter().for_each(|effect| self.current.apply(effect));
        }
        self.acknowledged = end;
        self.flushed = end;
        self.claims.clear();
        self.told.clear();
        self.watches.clear();
        self.entry_watches.clear();
        self.expectations.clear();
        self.advance_base();
    }

    /// Those that stand for the value.
    pub fn pvbns_of(&self, value: Value) -> impl Iterator<Item = Pvbn> {
        let named = self.values.iter().filter(move |(_, found)| **found == value);
        named.map(|(pvbn, _)| Pvbn(*pvbn))
    }

    fn on_record(&mut self, record: &Record, effects: &mut Vec<Effect>) {
        match record {
            Record::Write {
                volume,
                first,
                pvbn,
                sums,
                ..
            } => {
                let values: Vec<Value> = sums.iter().map(|sum| self.sums[&sum.0]).collect();
                for (offset, value) in values.iter().enumerate() {
                    let before = self.values.insert(pvbn.0 + offset as u64, *value);
                    assert!(before.is_none(), "PVBN {} is given out twice", pvbn.0 + offset as u64);
                }
                effects.push(Effect::Write {
                    volume: *volume,
                    first: *first,
                    pvbn: pvbn.0,
                    values,
                });
            }
            Record::Link(link) => effects.push(self.link_effect(link)),
            Record::Entries(changes) => effects.push(Effect::Entries(changes.clone())),
            Record::Hole { volume, first, count } => effects.push(Effect::Hole {
                volume: *volume,
                first: *first,
                count: *count,
            }),
            Record::Redirect { count, from, to, .. } => {
                for offset in 0..u64::from(*count) {
                    let (from, to) = (from.plus(offset), to.plus(offset));
                    let (left, right) = (self.value_of_pvbn(from), self.value_of_pvbn(to));
                    assert_eq!(left, right, "a redirect joins equal blocks, {from:?} to {to:?}");
                }
            }
            Record::Object(_) => {}
            Record::Create {
                volume,
                blocks,
                flush,
                name,
            } => effects.push(Effect::Create {
                volume: *volume,
                name: name.clone(),
                blocks: *blocks,
                flush: *flush,
            }),
            Record::Resize { volume, blocks, flush } => effects.push(Effect::Resize {
                volume: *volume,
                blocks: *blocks,
                flush: *flush,
            }),
            Record::Delete { volume } => effects.push(Effect::Delete { volume: *volume }),
        }
    }

    fn link_effect(&self, link: &LinkRun) -> Effect {
        let pvbns = link.pvbn.0..link.pvbn.0 + link.count;
        let values = pvbns.map(|pvbn| {
            self.value_of_pvbn(Pvbn(pvbn))
                .expect("a link goes to a block that was written")
        });
        Effect::Link {
            volume: link.volume,
            first: link.first,
            pvbn: link.pvbn.0,
            values: values.collect(),
        }
    }

    pub fn volume_changed_since(&self, volume: VolumeId, since: u64) -> bool {
        self.volume_changes.get(&volume).is_some_and(|number| *number > since)
    }

    pub fn begin_read(&mut self, token: Token, span: Span) {
        self.watches.insert(token, Watch::new(span, &self.current));
    }

    /// Ends a read without looking at what it returned; says whether the volume changed as a whole meanwhile.
    pub fn end_read(&mut self, token: Token) -> bool {
        self.watches.remove(&token).is_some_and(|watch| watch.volume_changed)
    }

    pub fn check_read(&mut self, token: Token, found: &[Value]) {
        let watch = self.watches.remove(&token).expect("reads are watched");
        for (offset, (value, allowed)) in found.iter().zip(&watch.allowed).enumerate() {
            assert!(
                allowed.contains(value),
                "wrong data: block {} of {:?} reads as {value:#x}, allowed are {allowed:#x?}",
                watch.span.first + offset as u64,
                watch.span.volume
            );
        }
    }

    pub fn check_status(&mut self, token: Token, mapped: impl Iterator<Item = bool>) {
        let watch = self.watches.remove(&token).expect("queries are watched");
        for (offset, (mapped, allowed)) in mapped.zip(&watch.allowed).enumerate() {
            assert!(
                allowed.iter().any(|value| (*value != ZERO) == mapped),
                "wrong map: block {} of {:?} is told as mapped={mapped}, allowed are {allowed:#x?}",
                watch.span.first + offset as u64,
                watch.span.volume
            );
        }
    }

    /// Answers a resolution of the head of a span, which is to go on.
    pub fn check_resolved(&mut self, token: Token, runs: &[ResolvedRun]) {
        let watch = self.watches.remove(&token).expect("queries are watched");
        let mut allowed = (watch.span.first..).zip(&watch.allowed);
        for run in runs {
            for offset in 0..run.count {
                let (block, allowed) = allowed.next().expect("a resolution stays within its span");
                let fits = |value: &Value| self.is_source_of(run.source, offset, *value);
                assert!(
                    allowed.iter().any(fits),
                    "wrong map: block {block} of {:?} is told to be {run:?}, allowed are {allowed:#x?}",
                    watch.span.volume
                );
            }
        }
    }

    /// Whether a block with this value may be told to come from the source's block at `offset`.
    pub fn is_source_of(&self, source: Source, offset: u64, value: Value) -> bool {
        match source {
            Source::Hole => value == ZERO,
            Source::Dirty => value != ZERO,
            Source::Stored(first) => self.value_of_pvbn(first.plus(offset)) == Some(value),
        }
    }

    /// Begins a look at the entries in `from..end`, under a number of its own.
    pub fn begin_scan(&mut self, number: u64, from: &[u8], end: &[u8]) {
        let watch = EntryWatch::new(from, end, &self.current);
        self.entry_watches.insert(number, watch);
    }

    pub fn check_scan(&mut self, number: u64, found: &[(Vec<u8>, Arc<[u8]>)], limit: usize) {
        let watch = self.entry_watches.remove(&number).expect("scans are watched");
        watch.check(found, limit);
    }

    /// The write that follows was computed from what the blocks held before.
    pub fn expect(&mut self, token: Token, write: PartialWrite, values: Vec<Value>, before: Vec<(u64, Value)>) {
        let expectation = Expectation { write, values, before };
        self.expectations.insert(token, expectation);
    }

    pub fn end_expectation(&mut self, token: Token) {
        self.expectations.remove(&token);
    }

    fn check_expectations(&mut self, effects: &[Effect]) {
        let found = self
            .expectations
            .iter()
            .find(|(_, expected)| expected.change().is_made_by(effects))
            .map(|(token, _)| *token);
        let Some(expected) = found.and_then(|token| self.expectations.remove(&token)) else {
            return;
        };
        for (block, before) in expected.before {
            assert_eq!(
                self.current.value(expected.write.span.volume, block),
                before,
                "a partial write is atomic: block {block} of {:?}",
                expected.write.span
            );
        }
    }

    /// A change is acknowledged, and perhaps it was promised to be flushed.
    pub fn acknowledge(&mut self, since: u64, change: &Change<'_>, flushed: Option<FlushMode>) {
        let position = self
            .claims
            .iter()
            .position(|claim| claim.number > since && change.is_made_by(&claim.effects));
        let position = position.expect("an acknowledged change is in the journal");
        let claim = self.claims.remove(position);
        self.acknowledged = self.acknowledged.max(claim.end);
        if let Some(mode) = flushed {
            // Another request may have made the same, and was told of what this one had made.
            let same = self.told.iter();
            let same = same.filter(|told| told.number > since && change.is_made_by(&told.effects));
            let end = same.map(|told| told.end).min();
            self.on_flushed(end.unwrap_or(claim.end).min(claim.end), mode);
        }
        self.told.push(claim);
    }

    /// Whether a batch since then holds these entries, with or without the rest of their change, and nobody was told so.
    pub fn are_made(&self, since: u64, entries: &[EntryChange]) -> bool {
        let later = self.claims.iter().filter(|claim| claim.number > since);
        let mut effects = later.flat_map(|claim| &claim.effects);
        effects.any(|effect| matches!(effect, Effect::Entries(found) if found == entries))
    }

    /// What a flush that is asked for now covers.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub fn on_flushed(&mut self, covered: u64, mode: FlushMode) {
        self.flushed = self.flushed.max(covered);
        self.advance_base();
        if mode == FlushMode::Bucket {
            self.flushed_to_bucket = self.flushed_to_bucket.max(covered);
            self.check_flushed_to_bucket();
        }
    }

    /// What was flushed to the bucket outlives the local disk.
    pub fn check_flushed_to_bucket(&self) {
        if let Some((_, step)) = self.unpublished.front() {
            assert!(
                step.end > self.flushed_to_bucket,
                "flushed to the bucket up to LSN {}, which lacks a change before LSN {}",
                self.flushed_to_bucket,
                step.end
            );
        }
    }

    fn advance_base(&mut self) {
        while self.steps.front().is_some_and(|step| step.end <= self.flushed) {
            let step = self.steps.pop_front().expect("just seen");
            for effect in &step.effects {
                self.base.apply(effect);
            }
            self.base_lsn = step.end;
        }
    }

    /// Up to where everything was promised to survive a power loss.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// A crash left the journal's first `recovered` bytes in force.
    pub fn on_recovered(&mut self, recovered: u64, after_power_loss: bool) {
        let least = if after_power_loss {
            self.flushed
        } else {
            self.acknowledged
        };
        assert!(
            recovered >= least,
            "lost: recovered up to LSN {recovered}, promised up to LSN {least} (power loss: {after_power_loss})"
        );
        let is_boundary = recovered == self.base_lsn
            || self
                .steps
                .iter()
                .any(|step| step.end == recovered || step.lsn == recovered);
        assert!(is_boundary, "recovered up to LSN {recovered}, which no batch ends at");
        for step in self.steps.iter().filter(|step| step.end > recovered) {
            for effect in &step.effects {
                // Nothing durable names these PVBNs, so they may be given out again.
                if let Effect::Write { pvbn, values, .. } = effect {
                    for offset in 0..values.len() as u64 {
                        self.values.remove(&(pvbn + offset));
                    }
                }
            }
        }
        self.steps.retain(|step| step.end <= recovered);
        self.unpublished.retain(|(_, step)| step.end <= recovered);
        self.end = recovered;
        self.forget_promises(recovered);
    }
}
