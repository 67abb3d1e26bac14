//! No prefetch at all: the baseline.

use crate::{Access, Pattern, Prefetcher, Statistics, Suggestion};
use alloc::vec::Vec;
use tombolo_base::Instant;

/// Never prefetches.
#[derive(Debug, Default)]
pub struct NoPrefetch;

impl Prefetcher for NoPrefetch {
    fn name(&self) -> &'static str {
        "none"
    }

    fn on_read(&mut self, _now: Instant, _access: Access, _suggestions: &mut Vec<Suggestion>) -> Pattern {
        Pattern::Random
    }

    fn knows_streams(&self) -> bool {
        false
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}
