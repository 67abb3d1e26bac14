//! The reference: what the volumes must hold.
//!
//! The order in which the core hands out journal batches is the serial order of all changes. Each batch is decoded
//! with the product's own code as it is handed out, and applied here. Then
//!
//! * a change may be acknowledged only if a batch since its request holds exactly its effect;
//! * a read may return, per block, any value that the block had between request and answer;
//! * a crash must leave the state after some batch, at or beyond the last one that was acknowledged (process kill) or
//!   flushed (power loss): a prefix.

use crate::contents::{Value, ZERO};
use std::collections::{BTreeMap, HashMap, VecDeque};
use tombolo_base::{Pvbn, VolumeId};
use tombolo_core::record::{Batch, Record};
use tombolo_core::{Span, Token};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeModel {
    pub name: String,
    pub values: Vec<Value>,
    /// The PVBN that each block was written as; zero for a hole.
    pub origins: Vec<u64>,
}

type State = BTreeMap<VolumeId, VolumeModel>;

#[derive(Clone, Debug)]
enum Effect {
    Write {
        volume: VolumeId,
        first: u64,
        pvbn: u64,
        values: Vec<Value>,
    },
    Hole {
        volume: VolumeId,
        first: u64,
        count: u64,
    },
    Create {
        volume: VolumeId,
        name: String,
        blocks: u64,
    },
    Resize {
        volume: VolumeId,
        blocks: u64,
    },
    Delete {
        volume: VolumeId,
    },
}

#[derive(Clone, Debug)]
struct Step {
    lsn: u64,
    end: u64,
    effects: Vec<Effect>,
}

/// A change that no acknowledgement has named yet.
#[derive(Debug)]
struct Claim {
    number: u64,
    end: u64,
    effects: Vec<Effect>,
}

/// The values that a read under way may return.
#[derive(Debug)]
struct Watch {
    span: Span,
    allowed: Vec<Vec<Value>>,
    /// The volume was changed as a whole meanwhile.
    volume_changed: bool,
}

/// A partial write's view: nobody may change the blocks before its write.
#[derive(Debug)]
struct Expectation {
    span: Span,
    values: Vec<Value>,
    before: Vec<Value>,
}

#[derive(Debug, Default)]
pub struct Model {
    base: State,
    base_lsn: u64,
    steps: VecDeque<Step>,
    current: State,
    end: u64,
    acknowledged: u64,
    flushed: u64,
    claims: Vec<Claim>,
    number: u64,
    watches: BTreeMap<Token, Watch>,
    expectations: BTreeMap<Token, Expectation>,
    /// When each volume was last created, resized or deleted.
    volume_changes: BTreeMap<VolumeId, u64>,
    sums: HashMap<u64, Value>,
    values: HashMap<u64, Value>,
}

/// What a request asked for, to be found in the journal.
pub enum Change<'a> {
    Write(Span, &'a [Value]),
    Zero(Span),
    Create(&'a str, u64),
    Resize(VolumeId, u64),
    Delete(VolumeId),
}

impl Model {
    pub fn volumes(&self) -> &BTreeMap<VolumeId, VolumeModel> {
        &self.current
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
    pub fn on_batch(&mut self, batch: &Batch, end: u64) {
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
            self.watch(effect);
            if let Effect::Create { volume, .. } | Effect::Resize { volume, .. } | Effect::Delete { volume } = effect {
                self.volume_changes.insert(*volume, self.number);
                // A partial write that a change of the volume's size passes by may bring its old blocks back.
                self.expectations.retain(|_, expected| expected.span.volume != *volume);
            }
            apply(&mut self.current, effect);
        }
        self.claims.push(Claim {
            number: self.number,
            end,
            effects: effects.clone(),
        });
        self.steps.push_back(Step {
            lsn: batch.lsn.0,
            end,
            effects,
        });
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
            Record::Create { volume, blocks, name } => effects.push(Effect::Create {
                volume: *volume,
                name: name.clone(),
                blocks: *blocks,
            }),
            Record::Resize { volume, blocks } => effects.push(Effect::Resize {
                volume: *volume,
                blocks: *blocks,
            }),
            Record::Delete { volume } => effects.push(Effect::Delete { volume: *volume }),
        }
    }

    fn watch(&mut self, effect: &Effect) {
        for watch in self.watches.values_mut() {
            match effect {
                Effect::Write {
                    volume, first, values, ..
                } if *volume == watch.span.volume => {
                    for (offset, value) in values.iter().enumerate() {
                        watch.allow(first + offset as u64, *value);
                    }
                }
                Effect::Hole { volume, first, count } if *volume == watch.span.volume => {
                    for block in *first..first + count {
                        watch.allow(block, ZERO);
                    }
                }
                Effect::Resize { volume, .. } | Effect::Delete { volume } if *volume == watch.span.volume => {
                    watch.volume_changed = true;
                    for block in watch.span.first..watch.span.end() {
                        watch.allow(block, ZERO);
                    }
                }
                _ => {}
            }
        }
    }

    pub fn volume_changed_since(&self, volume: VolumeId, since: u64) -> bool {
        self.volume_changes.get(&volume).is_some_and(|number| *number > since)
    }

    pub fn begin_read(&mut self, token: Token, span: Span) {
        let allowed = match self.current.get(&span.volume) {
            Some(volume) => (span.first..span.end())
                .map(|block| vec![volume.values.get(block as usize).copied().unwrap_or(ZERO)])
                .collect(),
            None => vec![vec![ZERO]; span.count as usize],
        };
        let watch = Watch {
            span,
            allowed,
            volume_changed: false,
        };
        self.watches.insert(token, watch);
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

    /// The write that follows was computed from `before`.
    pub fn expect(&mut self, token: Token, span: Span, values: Vec<Value>, before: Vec<Value>) {
        self.expectations.insert(token, Expectation { span, values, before });
    }

    pub fn end_expectation(&mut self, token: Token) {
        self.expectations.remove(&token);
    }

    fn check_expectations(&mut self, effects: &[Effect]) {
        let found = self
            .expectations
            .iter()
            .find(|(_, expected)| is_change(effects, &Change::Write(expected.span, &expected.values)))
            .map(|(token, _)| *token);
        let Some(expected) = found.and_then(|token| self.expectations.remove(&token)) else {
            return;
        };
        let first = expected.span.first as usize;
        let now = &self.current[&expected.span.volume].values[first..first + expected.before.len()];
        assert_eq!(
            now,
            &expected.before[..],
            "a partial write is atomic: {:?}",
            expected.span
        );
    }

    /// A change is acknowledged; `flushed` says that it was promised to be on stable storage.
    pub fn acknowledge(&mut self, since: u64, change: &Change<'_>, flushed: bool) {
        let position = self
            .claims
            .iter()
            .position(|claim| claim.number > since && is_change(&claim.effects, change));
        let position = position.expect("an acknowledged change is in the journal");
        let claim = self.claims.remove(position);
        self.acknowledged = self.acknowledged.max(claim.end);
        if flushed {
            self.flushed = self.flushed.max(claim.end);
            self.advance_base();
        }
    }

    /// What a flush that is asked for now covers.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub fn on_flushed(&mut self, covered: u64) {
        self.flushed = self.flushed.max(covered);
        self.advance_base();
    }

    fn advance_base(&mut self) {
        while self.steps.front().is_some_and(|step| step.end <= self.flushed) {
            let step = self.steps.pop_front().expect("just seen");
            for effect in &step.effects {
                apply(&mut self.base, effect);
            }
            self.base_lsn = step.end;
        }
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
        self.current = self.base.clone();
        for step in &self.steps {
            for effect in &step.effects {
                apply(&mut self.current, effect);
            }
        }
        self.end = recovered;
        self.acknowledged = recovered;
        self.flushed = recovered;
        self.claims.clear();
        self.watches.clear();
        self.expectations.clear();
        self.advance_base();
    }
}

impl Watch {
    fn allow(&mut self, block: u64, value: Value) {
        let Some(offset) = block.checked_sub(self.span.first) else {
            return;
        };
        if let Some(allowed) = self.allowed.get_mut(offset as usize)
            && !allowed.contains(&value)
        {
            allowed.push(value);
        }
    }
}

fn apply(state: &mut State, effect: &Effect) {
    match effect {
        Effect::Write {
            volume,
            first,
            pvbn,
            values,
        } => {
            let found = state.get_mut(volume).expect("a write goes to a volume that exists");
            let end = *first as usize + values.len();
            assert!(end <= found.values.len(), "a write stays within its volume");
            found.values[*first as usize..end].copy_from_slice(values);
            for (origin, pvbn) in found.origins[*first as usize..end].iter_mut().zip(*pvbn..) {
                *origin = pvbn;
            }
        }
        Effect::Hole { volume, first, count } => {
            let found = state.get_mut(volume).expect("a hole goes to a volume that exists");
            let end = (first + count) as usize;
            assert!(end <= found.values.len(), "a hole stays within its volume");
            found.values[*first as usize..end].fill(ZERO);
            found.origins[*first as usize..end].fill(0);
        }
        Effect::Create { volume, name, blocks } => {
            let fresh = VolumeModel {
                name: name.clone(),
                values: vec![ZERO; *blocks as usize],
                origins: vec![0; *blocks as usize],
            };
            assert!(state.insert(*volume, fresh).is_none(), "volume ids are not reused");
        }
        Effect::Resize { volume, blocks } => {
            let found = state.get_mut(volume).expect("a resized volume exists");
            found.values.resize(*blocks as usize, ZERO);
            found.origins.resize(*blocks as usize, 0);
        }
        Effect::Delete { volume } => {
            assert!(state.remove(volume).is_some(), "a deleted volume exists");
        }
    }
}

fn is_change(effects: &[Effect], change: &Change<'_>) -> bool {
    match change {
        Change::Write(span, values) => is_write(effects, *span, values),
        Change::Zero(span) => {
            (span.count == 0 && effects.is_empty())
                || matches!(effects, [Effect::Hole { volume, first, count }]
                    if (*volume, *first, *count) == (span.volume, span.first, span.count))
        }
        Change::Create(wanted, wanted_blocks) => matches!(effects, [Effect::Create { name, blocks, .. }]
            if (&name[..], *blocks) == (*wanted, *wanted_blocks)),
        Change::Resize(wanted, wanted_blocks) => matches!(effects.last(), Some(Effect::Resize { volume, blocks })
            if (*volume, *blocks) == (*wanted, *wanted_blocks)),
        Change::Delete(wanted) => matches!(effects, [Effect::Delete { volume }] if volume == wanted),
    }
}

fn is_write(effects: &[Effect], span: Span, values: &[Value]) -> bool {
    let mut next = span.first;
    for effect in effects {
        let part = |block: u64, count: u64| {
            let offset = block.checked_sub(span.first)? as usize;
            values.get(offset..offset + count as usize)
        };
        let fits = match effect {
            Effect::Write {
                volume, first, values, ..
            } => *volume == span.volume && *first == next && part(*first, values.len() as u64) == Some(&values[..]),
            Effect::Hole { volume, first, count } => {
                *volume == span.volume
                    && *first == next
                    && part(*first, *count).is_some_and(|part| part.iter().all(|value| *value == ZERO))
            }
            _ => false,
        };
        if !fits {
            return false;
        }
        next += match effect {
            Effect::Write { values, .. } => values.len() as u64,
            Effect::Hole { count, .. } => *count,
            _ => 0,
        };
    }
    next == span.end()
}
