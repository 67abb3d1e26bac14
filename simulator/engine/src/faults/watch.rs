//! What a look at blocks or entries may find: what they held at its beginning, or came to hold before its end.

use crate::faults::contents::{Value, ZERO};
use crate::faults::state::{Effect, State};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tombolo_base::VolumeId;
use tombolo_core::Span;

/// The values that a read under way may return.
#[derive(Clone, Debug)]
pub struct Watch {
    pub span: Span,
    pub allowed: Vec<Vec<Value>>,
    /// The volume was changed as a whole meanwhile.
    pub volume_changed: bool,
}

impl Watch {
    pub fn new(span: Span, state: &State) -> Self {
        Self {
            span,
            allowed: state.values(span).into_iter().map(|value| vec![value]).collect(),
            volume_changed: false,
        }
    }

    pub fn see(&mut self, effect: &Effect) {
        match effect {
            Effect::Write {
                volume, first, values, ..
            }
            | Effect::Link {
                volume, first, values, ..
            } if *volume == self.span.volume => {
                for (block, value) in (*first..).zip(values) {
                    self.allow(block, *value);
                }
            }
            Effect::Hole { volume, first, count } => self.allow_zeroes(*volume, *first, first + count),
            Effect::Resize { volume, .. } | Effect::Delete { volume } if *volume == self.span.volume => {
                self.volume_changed = true;
                self.allow_zeroes(*volume, self.span.first, self.span.end());
            }
            _ => {}
        }
    }

    fn allow_zeroes(&mut self, volume: VolumeId, first: u64, end: u64) {
        if volume == self.span.volume {
            // A hole may be as long as a file's map.
            for block in first.max(self.span.first)..end.min(self.span.end()) {
                self.allow(block, ZERO);
            }
        }
    }

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

/// An entry's value; `None`: there is none.
type Held = Option<Rc<[u8]>>;

/// The entries that a scan under way may find in `from..end`.
#[derive(Clone, Debug)]
pub struct EntryWatch {
    from: Vec<u8>,
    end: Vec<u8>,
    /// Keys that are not mentioned were absent all the time.
    allowed: BTreeMap<Vec<u8>, Vec<Held>>,
}

impl EntryWatch {
    pub fn new(from: &[u8], end: &[u8], state: &State) -> Self {
        let present = state.entries.range(from.to_vec()..end.to_vec());
        Self {
            from: from.to_vec(),
            end: end.to_vec(),
            allowed: present
                .map(|(key, value)| (key.clone(), vec![Some(value.clone())]))
                .collect(),
        }
    }

    pub fn see(&mut self, effect: &Effect, after: &State) {
        let Effect::Entries(changes) = effect else { return };
        let keys = changes.iter().map(tombolo_base::EntryChange::key);
        for key in keys.filter(|key| self.from.as_slice() <= *key && *key < self.end.as_slice()) {
            let allowed = self.allowed.entry(key.to_vec()).or_insert_with(|| vec![None]);
            allowed.push(after.entries.get(key).cloned());
        }
    }

    /// A scan that was to find at most `limit` entries has found these.
    pub fn check(&self, found: &[(Vec<u8>, Arc<[u8]>)], limit: usize) {
        assert!(found.len() <= limit, "a scan finds more than {limit} entries");
        assert!(found.is_sorted_by(|left, right| left.0 < right.0), "a scan ascends");
        let found_keys: BTreeMap<&Vec<u8>, &Arc<[u8]>> = found.iter().map(|(key, value)| (key, value)).collect();
        for (key, value) in found {
            let is_allowed = |held: &Held| held.as_deref() == Some(&**value);
            let allowed = self.allowed.get(key);
            assert!(
                allowed.is_some_and(|allowed| allowed.iter().any(is_allowed)),
                "wrong entry: {key:02x?} is {:02x?}, allowed are {allowed:02x?}",
                &value[..value.len().min(16)]
            );
        }
        // Behind the last entry of a scan that was cut short nothing was looked at.
        let last = found.last().filter(|_| found.len() == limit).map(|(key, _)| key);
        for (key, allowed) in &self.allowed {
            let is_within = last.is_none_or(|last| key <= last);
            assert!(
                !is_within || found_keys.contains_key(key) || allowed.contains(&None),
                "missing entry: {key:02x?} is not found, allowed are {allowed:02x?}"
            );
        }
    }
}
