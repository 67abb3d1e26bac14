//! What a request asked for, and whether one batch of the journal holds exactly that: nothing missing, nothing besides.

use crate::faults::contents::{Value, ZERO};
use crate::faults::state::Effect;
use tombolo_base::{FlushMode, VolumeId};
use tombolo_core::{LinkRun, MetadataChange, PartialWrite, Span};

#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Write {
        span: Span,
        values: &'a [Value],
        change: &'a MetadataChange,
    },
    Commit {
        change: &'a MetadataChange,
        links: &'a [LinkRun],
    },
    Partial {
        write: PartialWrite,
        /// Of the blocks that do not become holes.
        values: &'a [Value],
    },
    Zero(Span),
    Create(&'a str, u64, FlushMode),
    Resize(VolumeId, u64),
    SetFlushMode(VolumeId, FlushMode),
    Delete(VolumeId),
}

impl Change<'_> {
    /// Whether these are its effects, all of them in one batch.
    pub fn is_made_by(&self, effects: &[Effect]) -> bool {
        match self {
            Change::Write { span, values, change } => {
                without_metadata(effects, change).is_some_and(|rest| is_write(rest, *span, values))
            }
            Change::Commit { change, links } => {
                without_metadata(effects, change).is_some_and(|rest| are_links(rest, links))
            }
            Change::Partial { write, values } => {
                let change = MetadataChange {
                    holes: write.zeroes.into_iter().collect(),
                    ..MetadataChange::default()
                };
                let [before, behind] = write.written();
                let (first, last) = values.split_at(before.count as usize);
                without_metadata(effects, &change).is_some_and(|rest| {
                    (0..=rest.len())
                        .any(|count| is_write(&rest[..count], before, first) && is_write(&rest[count..], behind, last))
                })
            }
            Change::Zero(span) => {
                (span.count == 0 && effects.is_empty()) || matches!(effects, [hole] if is_hole(hole, span))
            }
            Change::Create(wanted, wanted_blocks, wanted_mode) => {
                matches!(effects, [Effect::Create { name, blocks, flush, .. }]
                    if (&name[..], *blocks, *flush) == (*wanted, *wanted_blocks, *wanted_mode))
            }
            Change::Resize(wanted, wanted_blocks) => {
                matches!(effects.last(), Some(Effect::Resize { volume, blocks, .. })
                if (*volume, *blocks) == (*wanted, *wanted_blocks))
            }
            Change::SetFlushMode(wanted, wanted_mode) => matches!(effects, [Effect::Resize { volume, flush, .. }]
                if (volume, flush) == (wanted, wanted_mode)),
            Change::Delete(wanted) => matches!(effects, [Effect::Delete { volume }] if volume == wanted),
        }
    }
}

/// What is left of the effects beside the change's holes, which come first, and its entries, which come last.
fn without_metadata<'e>(effects: &'e [Effect], change: &MetadataChange) -> Option<&'e [Effect]> {
    let mut rest = effects;
    for hole in change.holes.iter().filter(|hole| hole.count > 0) {
        let (first, behind) = rest.split_first()?;
        if !is_hole(first, hole) {
            return None;
        }
        rest = behind;
    }
    if change.entries.is_empty() {
        return Some(rest);
    }
    let (last, before) = rest.split_last()?;
    matches!(last, Effect::Entries(found) if *found == change.entries).then_some(before)
}

fn is_hole(effect: &Effect, span: &Span) -> bool {
    matches!(effect, Effect::Hole { volume, first, count }
        if (*volume, *first, *count) == (span.volume, span.first, span.count))
}

fn are_links(effects: &[Effect], links: &[LinkRun]) -> bool {
    let is_link = |(effect, link): (&Effect, &LinkRun)| {
        matches!(effect, Effect::Link { volume, first, pvbn, values }
            if (*volume, *first, *pvbn, values.len() as u64) == (link.volume, link.first, link.pvbn.0, link.count))
    };
    effects.len() == links.len() && effects.iter().zip(links).all(is_link)
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
