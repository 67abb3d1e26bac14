//! Snapshots: earlier roots of a tree that are kept, and what only one of them has.
//!
//! A *state* of a tree is a root that is kept: that of a snapshot, or the newest one, which is live. Taking a snapshot
//! is to keep a copy of the live root, with its [`Moment`]; nothing is read or written for it. What a state that is
//! deleted has alone follows from it and its neighbours, the states before and after it that are left:
//!
//! * A node is in the tree from the checkpoint that wrote it until it dies, and never comes back. So a state has all
//!   nodes that a later state has and that are not younger than itself. An interior node is never older than what is
//!   below it, since it was written with the pointers in it. So whoever looks for what the state before has not, need
//!   not enter nodes that are not younger than that.
//! * A *life* is the time in which a block has a target. It too has one beginning and one end: a target that comes back
//!   comes with a birth of its own ([`Moment::lacks`]). The reference count of a PVBN is the number of lives that some
//!   state has: of pairs of a block and a target with this PVBN. So the counts follow from the states alone, and taking a
//!   snapshot changes none.
//!
//! | what happens                      | nodes that no state needs any more     | lives that end                     |
//! |-----------------------------------|----------------------------------------|------------------------------------|
//! | a checkpoint                      | those that died, unless the newest     | those whose blocks are mapped      |
//! |                                   | snapshot has them ([`Moment`])         | anew, unless that has them         |
//! | a snapshot is deleted             | [`exclusive_nodes`]                    | [`ExclusiveRuns`]                  |
//! | the live tree is deleted          | the same of it, with nothing after it  | the same                           |
//! | all is counted from the beginning | the same of each state, with nothing after it: each node and each life once |

use crate::codec::Codec;
use crate::load::{Bounds, Nodes, TreeError};
use crate::node::Root;
use crate::pointer::Pointer;
use crate::read::{Portion, Walk, visit};
use crate::runs::{MapKey, Run, Runs};
use alloc::collections::BTreeSet;
use alloc::vec::{self, Vec};
use tombolo_base::Pvbn;

/// When a state was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The last checkpoint that it has.
    pub checkpoint: u32,
    /// No PVBN from this one on was mapped until then. What was mapped later has a birth if its PVBN is lower.
    pub next_pvbn: Pvbn,
}

impl Moment {
    /// Whether a node that is in a later state is in this one too.
    pub fn has_node(&self, pointer: &Pointer) -> bool {
        pointer.birth <= self.checkpoint
    }

    /// Of a run of a later state, the blocks that have another target in this one, or none. A run may continue one that
    /// is older, and PVBNs ascend in it, so it is the run's end.
    pub fn lacks(&self, run: Run) -> Option<Run> {
        let target = run.target?;
        let known = match target.birth {
            Some(birth) if birth <= self.checkpoint => run.length,
            Some(_) => 0,
            None => self.next_pvbn.0.saturating_sub(target.pvbn.0),
        };
        (known < run.length).then(|| run.without_first(known))
    }
}

/// The nodes that a state has, and neither of its neighbours: of none, `before` is `None` and `after` is
/// [`Root::default`]. Reads the interior nodes of `root` that are younger than `before` and not in `after`, and those of
/// `after` that are younger than `root`.
///
/// # Errors
/// When a node cannot be read or decoded.
pub fn exclusive_nodes<C: Codec, N: Nodes>(
    nodes: &mut N,
    before: Option<Moment>,
    root: &Root,
    at: Moment,
    after: &Root,
) -> Result<Vec<Pointer>, TreeError<N::Error>> {
    let is_new = |pointer: &Pointer| before.is_none_or(|before| !before.has_node(pointer));
    // What `after` has of `root`, without what is below: that is the same in both.
    let mut shared = BTreeSet::new();
    visit::<C, N>(nodes, after, &mut |pointer| {
        let is_shared = at.has_node(pointer);
        if is_shared && is_new(pointer) {
            shared.insert(*pointer);
        }
        !is_shared
    })?;
    let mut exclusive = Vec::new();
    visit::<C, N>(nodes, root, &mut |pointer| {
        let is_exclusive = is_new(pointer) && !shared.contains(pointer);
        if is_exclusive {
            exclusive.push(*pointer);
        }
        is_exclusive
    })?;
    Ok(exclusive)
}

/// The lives that a state of a map has, and neither of its neighbours, in ascending order of the blocks: the references
/// that end with it. Read a node at a time, as they are asked for.
///
/// Only what both sides changed is read: nodes of `after` that are younger than the state, and where these have
/// something, nodes of the state that are younger than `before`. In memory is what two [`crate::Scan`]s have.
pub struct ExclusiveRuns {
    before: Option<Moment>,
    state: Walk<Runs>,
    after: Walk<Runs>,
    /// What the next portion of the state is compared with.
    changed: Option<Portion<Runs>>,
    /// Of the state, not yet compared with all that overlaps it.
    rest: Option<Portion<Runs>>,
    ready: vec::IntoIter<Run>,
}

impl ExclusiveRuns {
    /// Of the state `root`; reads nothing yet. Without neighbours, `before` is `None` and `after` is [`Root::default`].
    pub fn new(before: Option<Moment>, root: &Root, at: Moment, after: &Root) -> Self {
        Self {
            before,
            state: Walk::new(root, before.map(|before| before.checkpoint)),
            after: Walk::new(after, Some(at.checkpoint)),
            changed: None,
            rest: None,
            ready: Vec::new().into_iter(),
        }
    }

    /// The next run, which is not a hole; none at the end.
    ///
    /// # Errors
    /// When a node cannot be read or decoded. The rest is not to be relied on then.
    pub fn next<N: Nodes>(&mut self, nodes: &mut N) -> Result<Option<Run>, TreeError<N::Error>> {
        loop {
            if let Some(run) = self.ready.next() {
                return Ok(Some(run));
            }
            let Some(changed) = &self.changed else {
                if self.after.bounds().is_none() {
                    return Ok(None);
                }
                self.changed = self.after.enter(nodes)?;
                continue;
            };
            let Some(portion) = self.rest.take() else {
                match next_step(&mut self.state, changed) {
                    Step::Skip => self.state.skip(),
                    Step::Enter => self.rest = self.state.enter(nodes)?,
                    Step::Leave => self.changed = None,
                }
                continue;
            };
            self.ready = self.ended(&portion, changed).into_iter();
            if ends_behind(&portion.bounds, &changed.bounds) {
                self.rest = Some(portion);
                self.changed = None;
            }
        }
    }

    /// What ends of a portion of the state where `changed` says what comes after.
    fn ended(&self, portion: &Portion<Runs>, changed: &Portion<Runs>) -> Vec<Run> {
        let cut = |runs: &[Run], bounds: &Bounds<MapKey>| Runs::cut(runs, &bounds.low, bounds.high.as_ref());
        let runs = cut(&portion.records, &changed.bounds).into_iter();
        let runs: Vec<Run> = match self.before {
            Some(before) => runs.filter_map(|run| before.lacks(run)).collect(),
            None => runs.filter(|run| run.target.is_some()).collect(),
        };
        let mut after = cut(&changed.records, &portion.bounds);
        let is_in_both = |node: &Pointer| portion.node.as_ref() == Some(node) || self.state.has_entered(node);
        if changed.is_whole || !changed.node.as_ref().is_some_and(is_in_both) {
            let holes = runs.iter().map(|run| Run { target: None, ..*run });
            after = Runs::lay_over(holes.collect(), after);
        }
        let mut ended = Vec::new();
        for run in runs {
            for part in Runs::cut(&after, &run.start, Some(&run.end())) {
                let target = Runs::value(&run, &part.start);
                if part.target != target {
                    ended.push(Run { target, ..part });
                }
            }
        }
        ended
    }
}

enum Step {
    Skip,
    Enter,
    /// The next subtree is for what changed later.
    Leave,
}

/// What is to be done with the next subtree of the state.
fn next_step(state: &mut Walk<Runs>, changed: &Portion<Runs>) -> Step {
    let Some(bounds) = state.bounds().cloned() else {
        return Step::Leave;
    };
    let is_in_both = |node: &Pointer| state.is_within(node);
    let is_changed = changed.is_whole
        || !changed.node.as_ref().is_some_and(is_in_both)
        || !Runs::cut(&changed.records, &bounds.low, bounds.high.as_ref()).is_empty();
    if is_changed && bounds.overlap(&changed.bounds) {
        Step::Enter
    } else if ends_behind(&bounds, &changed.bounds) {
        Step::Leave
    } else {
        Step::Skip
    }
}

fn ends_behind(bounds: &Bounds<MapKey>, other: &Bounds<MapKey>) -> bool {
    match (bounds.high, other.high) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(high), Some(other)) => high > other,
    }
}
