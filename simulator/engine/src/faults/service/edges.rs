//! What the canary of stale edges gives for the blocks at the edges of a write.

use crate::faults::contents::{Value, ZERO};
use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::VolumeId;
use tombolo_core::{Span, Token};

#[derive(Default)]
pub(super) struct Edges {
    /// What each block was before it was last written, and since.
    values: BTreeMap<(VolumeId, u64), [Value; 2]>,
    stale: BTreeSet<Token>,
}

impl Edges {
    pub fn write(&mut self, span: Span, values: &[Value]) {
        for (block, value) in (span.first..).zip(values) {
            let known = self.values.entry((span.volume, block)).or_insert([ZERO; 2]);
            *known = [known[1], *value];
        }
    }

    /// This read is to be answered with what was there before.
    pub fn watch(&mut self, token: Token) {
        self.stale.insert(token);
    }

    pub fn perhaps_stale(&mut self, token: Token, span: Span, values: &[Value]) -> Vec<Value> {
        let is_stale = self.stale.remove(&token);
        let value = |(block, value): (u64, &Value)| match self.values.get(&(span.volume, block)) {
            Some([before, since]) if is_stale && since == value => *before,
            _ => *value,
        };
        (span.first..).zip(values).map(value).collect()
    }
}
