//! Trees of which earlier roots are kept: what is read of each, which nodes are kept, and how many lives each PVBN has,
//! compared with sorted maps of all states that are kept.

use crate::behaviour::SMALL;
use crate::history::{History, any_shape};
use crate::reference::{compare_all, compare_parts, reachable};
use crate::store::{Name, Store, name};
use crate::subject::{Model, Subject};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use tombolo_base::{Prng, Pvbn};
use tombolo_metadata_tree::{
    Applied, Entries, ExclusiveRuns, MapKey, Moment, Pointer, Root, Run, Runs, Shape, Target, apply, exclusive_nodes,
    get, visit,
};

#[derive(Clone, Debug)]
enum Step<R> {
    Checkpoint(Vec<R>),
    Take,
    /// The live tree is not among those that may be meant.
    Delete(Index),
}

/// At its end the live tree is deleted, then the snapshots that are left, in this order.
#[derive(Clone, Debug)]
struct Story<R> {
    shape: Shape,
    steps: Vec<Step<R>>,
    order: Vec<Index>,
}

/// What the check must find, to show that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A node that died is removed though a snapshot has it.
    EarlyFree,
    /// A node that only a deleted snapshot had stays.
    LeakedNode,
    /// A snapshot is deleted as if there were none before it.
    ForgottenNeighbour,
    /// A life is over when its block is mapped anew, though a snapshot has it.
    EarlyEnd,
    /// A life that only a deleted snapshot had goes on.
    LeakedLife,
    /// A target that comes back has no birth.
    ForgottenBirth,
}

#[derive(Clone)]
struct State<C: Kept> {
    moment: Moment,
    root: Root,
    model: Model<C>,
}

/// Lives of each PVBN.
type Counts = BTreeMap<u64, i64>;

/// What snapshots are to the two kinds of trees.
trait Kept: Subject + Clone {
    /// The changes of a checkpoint as a gateway would have them, which gives out PVBNs in order.
    fn settle(changes: &mut [Self::Record], moment: &mut Moment, fault: Option<Fault>);
    /// The lives that a state has and its neighbours have not.
    fn lives(
        _store: &mut Store,
        _before: Option<Moment>,
        _root: &Root,
        _at: Moment,
        _after: &Root,
    ) -> Result<Vec<Run>, String> {
        Ok(Vec::new())
    }
    fn target(_key: &Self::Key, _value: &Self::Value) -> Option<Run> {
        None
    }
}

impl Kept for Entries {
    fn settle(_: &mut [Self::Record], moment: &mut Moment, _: Option<Fault>) {
        moment.checkpoint += 1;
    }
}

impl Kept for Runs {
    fn settle(runs: &mut [Run], moment: &mut Moment, fault: Option<Fault>) {
        let first_new = moment.next_pvbn;
        moment.checkpoint += 1;
        for run in runs {
            let Some(target) = &mut run.target else { continue };
            // Duplicates of a few old blocks, so that targets come back.
            let old = target.pvbn.0 % 40;
            *target = if target.birth.is_some() && old + run.length <= moment.next_pvbn.0 {
                let birth = moment.checkpoint;
                let has_birth = old < first_new.0 && fault != Some(Fault::ForgottenBirth);
                Target {
                    pvbn: Pvbn(old),
                    birth: has_birth.then_some(birth),
                }
            } else {
                let pvbn = moment.next_pvbn;
                moment.next_pvbn = pvbn.plus(run.length);
                Target { pvbn, birth: None }
            };
        }
    }

    fn lives(
        store: &mut Store,
        before: Option<Moment>,
        root: &Root,
        at: Moment,
        after: &Root,
    ) -> Result<Vec<Run>, String> {
        let mut exclusive = ExclusiveRuns::new(before, root, at, after);
        let mut runs: Vec<Run> = Vec::new();
        while let Some(run) = exclusive.next(store).map_err(|error| error.to_string())? {
            if runs.last().is_some_and(|last| last.end() > run.start) || run.target.is_none() {
                return Err(format!("{run:?} after {runs:?}"));
            }
            runs.push(run);
        }
        Ok(runs)
    }

    fn target(key: &MapKey, target: &Target) -> Option<Run> {
        Some(Run {
            start: *key,
            length: 1,
            target: Some(*target),
        })
    }
}

fn add(counts: &mut Counts, run: &Run, by: i64) {
    let Some(target) = run.target else { return };
    for offset in 0..run.length {
        let pvbn = target.pvbn.0 + offset;
        let count = counts.entry(pvbn).or_default();
        *count += by;
        if *count == 0 {
            counts.remove(&pvbn);
        }
    }
}

struct Check<C: Kept> {
    shape: Shape,
    store: Store,
    snapshots: Vec<State<C>>,
    live: Option<State<C>>,
    counts: Counts,
    fault: Option<Fault>,
}

impl<C: Kept> Check<C> {
    fn new(shape: Shape, fault: Option<Fault>) -> Self {
        let moment = Moment {
            checkpoint: 0,
            next_pvbn: Pvbn(0),
        };
        Self {
            shape,
            store: Store::default(),
            snapshots: Vec::new(),
            live: Some(State {
                moment,
                root: Root::default(),
                model: Model::<C>::new(),
            }),
            counts: Counts::new(),
            fault,
        }
    }

    fn step(&mut self, step: &Step<C::Record>) -> Result<(), String> {
        match step {
            Step::Checkpoint(changes) => self.checkpoint(changes.clone()),
            Step::Take => {
                let (reads, names) = (self.store.reads, self.store.names());
                self.take();
                if (reads, names) != (self.store.reads, self.store.names()) {
                    return Err("a snapshot read or wrote nodes".to_owned());
                }
                Ok(())
            }
            Step::Delete(index) if !self.snapshots.is_empty() => self.delete(index.index(self.snapshots.len())),
            Step::Delete(_) => Ok(()),
        }
    }

    fn take(&mut self) {
        let is_new = |state: &&State<C>| self.snapshots.last().is_none_or(|last| last.moment != state.moment);
        let taken = self.live.as_ref().filter(is_new).cloned();
        self.snapshots.extend(taken);
    }

    fn checkpoint(&mut self, mut changes: Vec<C::Record>) -> Result<(), String> {
        let live = self.live.as_mut().ok_or("no live tree")?;
        let newest = self.snapshots.last().map(|snapshot| snapshot.moment);
        C::settle(&mut changes, &mut live.moment, self.fault);
        let before = live.model.clone();
        changes.iter().for_each(|change| C::lay(&mut live.model, change));
        let sorted = History::<C>::sorted(&changes);
        let birth = live.moment.checkpoint;
        let applied = apply::<C, _>(&mut self.store, &live.root, sorted, birth, &self.shape);
        let Applied { root, died } = applied.map_err(|error| error.to_string())?;
        self.store.take_written();
        live.root = root;
        for pointer in died {
            let is_kept = newest.is_some_and(|newest| newest.has_node(&pointer));
            if !is_kept || self.fault == Some(Fault::EarlyFree) {
                self.store.remove(name(&pointer));
            }
        }
        for (key, value) in &before {
            let ended = C::target(key, value).filter(|_| live.model.get(key) != Some(value));
            let is_early = self.fault == Some(Fault::EarlyEnd);
            let ended = ended.and_then(|run| match newest {
                Some(newest) if !is_early => newest.lacks(run),
                _ => Some(run),
            });
            ended.iter().for_each(|run| add(&mut self.counts, run, -1));
        }
        for (key, value) in &live.model {
            let begun = C::target(key, value).filter(|_| before.get(key) != Some(value));
            begun.iter().for_each(|run| add(&mut self.counts, run, 1));
        }
        Ok(())
    }

    /// Of a state that is kept no more, with its neighbours.
    fn end(&mut self, before: Option<Moment>, state: &State<C>, after: &Root) -> Result<(), String> {
        let before = before.filter(|_| self.fault != Some(Fault::ForgottenNeighbour));
        let nodes = exclusive_nodes::<C, _>(&mut self.store, before, &state.root, state.moment, after);
        let mut nodes = nodes.map_err(|error| error.to_string())?;
        let mut runs = C::lives(&mut self.store, before, &state.root, state.moment, after)?;
        match self.fault {
            Some(Fault::LeakedNode) => drop(nodes.pop()),
            Some(Fault::LeakedLife) => drop(runs.pop()),
            _ => {}
        }
        nodes.iter().for_each(|pointer| self.store.remove(name(pointer)));
        runs.iter().for_each(|run| add(&mut self.counts, run, -1));
        Ok(())
    }

    fn delete(&mut self, index: usize) -> Result<(), String> {
        let state = self.snapshots.remove(index);
        let before = index.checked_sub(1).map(|before| self.snapshots[before].moment);
        let after = self.snapshots.get(index).or(self.live.as_ref());
        let after = after.map(|after| after.root.clone()).unwrap_or_default();
        self.end(before, &state, &after)
    }

    fn delete_live(&mut self) -> Result<(), String> {
        let before = self.snapshots.last().map(|snapshot| snapshot.moment);
        match self.live.take() {
            Some(live) => self.end(before, &live, &Root::default()),
            None => Ok(()),
        }
    }

    fn states(&self) -> Vec<State<C>> {
        self.snapshots.iter().chain(&self.live).cloned().collect()
    }

    /// All that is kept is what follows from the states.
    fn compare(&mut self, index: usize) -> Result<(), String> {
        let states = self.states();
        for state in &states {
            compare_all::<C>(&mut self.store, &state.root, &state.model)?;
        }
        if let Some(state) = states.get(index % states.len().max(1)) {
            compare_parts::<C>(&mut self.store, &state.root, &state.model, index)?;
        }
        self.compare_nodes(&states)?;
        let expected = counts_of(&states);
        if self.counts != expected {
            let differs = |pvbn: &&u64| self.counts.get(pvbn) != expected.get(pvbn);
            let wrong: BTreeSet<&u64> = self.counts.keys().chain(expected.keys()).filter(differs).collect();
            return Err(format!(
                "the lives of PVBNs {wrong:?}: {:?}, not {expected:?}",
                self.counts
            ));
        }
        self.compare_recount(&states)
    }

    fn compare_nodes(&mut self, states: &[State<C>]) -> Result<(), String> {
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut earlier: Vec<(Moment, BTreeSet<Pointer>)> = Vec::new();
        for state in states {
            let all = reachable::<C>(&mut self.store, &state.root)?;
            needed.extend(all.iter().map(name));
            for (moment, of_earlier) in &earlier {
                if !all
                    .iter()
                    .all(|pointer| of_earlier.contains(pointer) || !moment.has_node(pointer))
                {
                    return Err(format!("old nodes of {:?} are not all in {moment:?}", state.moment));
                }
                // No node is younger than the one above it.
                let mut seen = BTreeSet::new();
                let visited = visit::<C, _>(&mut self.store, &state.root, &mut |pointer| {
                    seen.insert(*pointer);
                    !moment.has_node(pointer)
                });
                visited.map_err(|error| error.to_string())?;
                if !all
                    .iter()
                    .all(|pointer| seen.contains(pointer) || moment.has_node(pointer))
                {
                    return Err(format!("younger than {moment:?}, below an older node"));
                }
            }
            earlier.push((state.moment, all));
        }
        let names = self.store.names();
        if names != needed {
            return Err(format!("{names:?} are kept, not {needed:?}"));
        }
        Ok(())
    }

    /// What one scan of all states finds: each node and each life once.
    fn compare_recount(&mut self, states: &[State<C>]) -> Result<(), String> {
        let (mut names, mut counts) = (BTreeSet::new(), Counts::new());
        let mut before = None;
        for state in states {
            let (root, at, after) = (&state.root, state.moment, Root::default());
            let nodes = exclusive_nodes::<C, _>(&mut self.store, before, root, at, &after);
            for pointer in nodes.map_err(|error| error.to_string())? {
                if !names.insert(name(&pointer)) {
                    return Err(format!("{pointer:?} is counted twice"));
                }
            }
            let runs = C::lives(&mut self.store, before, root, at, &after)?;
            runs.iter().for_each(|run| add(&mut counts, run, 1));
            before = Some(at);
        }
        if (&names, &counts) != (&self.store.names(), &self.counts) {
            return Err(format!("counted anew: {names:?}, {counts:?}"));
        }
        Ok(())
    }
}

/// For each block, the states one after another that have the same target are one life.
fn counts_of<C: Kept>(states: &[State<C>]) -> Counts {
    let mut counts = Counts::new();
    let none = Model::<C>::new();
    let earlier = std::iter::once(&none).chain(states.iter().map(|state| &state.model));
    for (before, state) in earlier.zip(states) {
        for (key, value) in &state.model {
            let begun = C::target(key, value).filter(|_| before.get(key) != Some(value));
            begun.iter().for_each(|run| add(&mut counts, run, 1));
        }
    }
    counts
}

fn check<C: Kept>(story: &Story<C::Record>, fault: Option<Fault>) -> Result<usize, String> {
    let mut check = Check::<C>::new(story.shape, fault);
    let mut snapshots_max = 0;
    for (index, step) in story.steps.iter().enumerate() {
        check.step(step)?;
        check.compare(index)?;
        snapshots_max = snapshots_max.max(check.snapshots.len());
    }
    check.delete_live()?;
    check.compare(0)?;
    for index in story.order.iter().cycle() {
        if check.snapshots.is_empty() {
            break;
        }
        check.step(&Step::Delete(*index))?;
        check.compare(1)?;
    }
    match (check.store.names().len(), check.counts.len()) {
        (0, 0) => Ok(snapshots_max),
        left => Err(format!("{left:?} nodes and PVBNs are left")),
    }
}

fn any_story<C: Kept>() -> impl Strategy<Value = Story<C::Record>> {
    let changes = |deletions, count| prop::collection::vec(C::any_record(deletions), 0..count);
    let step = prop_oneof![
        3 => changes(5, 60).prop_map(Step::Checkpoint),
        3 => changes(20, 6).prop_map(Step::Checkpoint),
        1 => changes(95, 40).prop_map(Step::Checkpoint),
        5 => Just(Step::Take),
        3 => any::<Index>().prop_map(Step::Delete),
    ];
    let plain = any_shape().prop_map(|shape| Shape {
        segments_max: 0,
        ..shape
    });
    let shape = prop_oneof![4 => any_shape(), 1 => plain];
    let order = prop::collection::vec(any::<Index>(), 1..8);
    (shape, prop::collection::vec(step, 1..40), order).prop_map(|(shape, steps, order)| Story { shape, steps, order })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn snapshots_of_maps_equal_the_reference(story in any_story::<Runs>()) {
        let seen = check::<Runs>(&story, None);
        prop_assert!(seen.is_ok(), "{}", seen.unwrap_err());
    }

    #[test]
    fn snapshots_of_entries_equal_the_reference(story in any_story::<Entries>()) {
        let seen = check::<Entries>(&story, None);
        prop_assert!(seen.is_ok(), "{}", seen.unwrap_err());
    }

    #[test]
    fn damaged_snapshots_never_panic(story in any_story::<Runs>(), at in any::<u64>()) {
        let mut check = Check::<Runs>::new(story.shape, None);
        for step in story.steps.iter().filter(|step| !matches!(step, Step::Delete(_))) {
            check.step(step).unwrap();
        }
        check.take();
        for pair in check.snapshots.windows(2) {
            let (state, after) = (&pair[0], &pair[1].root);
            check.store.damage = Some((check.store.reads + at % 16, at / 16));
            let _ = exclusive_nodes::<Runs, _>(&mut check.store.clone(), None, &state.root, state.moment, after);
            let _ = Runs::lives(&mut check.store.clone(), None, &state.root, state.moment, after);
        }
    }
}

/// The same ones each time, all with many snapshots.
fn some_stories<C: Kept>() -> Vec<Story<C::Record>> {
    let mut runner = TestRunner::deterministic();
    let any = any_story::<C>();
    let stories = std::iter::repeat_with(|| any.new_tree(&mut runner).unwrap().current());
    stories
        .filter(|story| check::<C>(story, None).unwrap() >= 4)
        .take(12)
        .collect()
}

fn faults_are_found<C: Kept>(faults: &[Fault]) {
    let stories = some_stories::<C>();
    for fault in faults {
        let found = stories.iter().filter(|story| check::<C>(story, Some(*fault)).is_err());
        assert_eq!(found.count(), stories.len(), "{fault:?}");
    }
}

#[test]
fn faults_with_nodes_are_found() {
    let faults = [Fault::EarlyFree, Fault::LeakedNode, Fault::ForgottenNeighbour];
    faults_are_found::<Runs>(&faults);
    faults_are_found::<Entries>(&faults);
}

#[test]
fn faults_with_lives_are_found() {
    faults_are_found::<Runs>(&[Fault::EarlyEnd, Fault::LeakedLife, Fault::ForgottenBirth]);
}

fn random_runs(prng: &mut Prng, blocks: u64, count: usize) -> Vec<Run> {
    (0..count).map(|_| run_at(prng.below(blocks), NEW)).collect()
}

const PLAIN: Shape = Shape {
    segments_max: 0,
    ..SMALL
};

fn run_at(block: u64, target: Option<Target>) -> Run {
    Run {
        start: MapKey { file: 1, block },
        length: 1,
        target,
    }
}

const NEW: Option<Target> = Some(Target {
    pvbn: Pvbn(0),
    birth: None,
});

/// The leaf before it has these keys to itself then, though it is the same.
#[test]
fn a_hole_where_a_leaf_began_ends_a_life() {
    let shape = Shape {
        leaf_bytes: 32,
        ..PLAIN
    };
    let mut check = Check::<Runs>::new(shape, None);
    check
        .checkpoint((0..60).map(|number| run_at(number * 2, NEW)).collect())
        .unwrap();
    assert!(check.store.names().len() > 6);
    for number in 0..60 {
        for target in [None, NEW] {
            check.take();
            check.checkpoint(vec![run_at(number * 2, target)]).unwrap();
        }
        check.delete(0).unwrap();
        check.compare(0).unwrap();
    }
}

/// PVBNs are given out in order, so blocks that are written one after another become one run.
#[test]
fn a_run_may_be_older_at_its_beginning() {
    let mut check = Check::<Runs>::new(SMALL, None);
    for block in 0..50 {
        check.checkpoint(vec![run_at(block, NEW)]).unwrap();
        check.take();
    }
    check.checkpoint(vec![run_at(0, None), run_at(49, None)]).unwrap();
    while !check.snapshots.is_empty() {
        check.delete(check.snapshots.len() - 1).unwrap();
        check.compare(0).unwrap();
    }
}

/// What a read costs depends on the height, not on how many snapshots there are.
#[test]
fn a_thousand_snapshots_are_read_as_one() {
    const BLOCKS: u64 = 500;
    let mut prng = Prng::new(5);
    for shape in [SMALL, PLAIN] {
        let mut check = Check::<Runs>::new(shape, None);
        for _ in 0..1000 {
            check.checkpoint(random_runs(&mut prng, BLOCKS, 20)).unwrap();
            check.take();
        }
        for state in &check.snapshots {
            for _ in 0..20 {
                let key = MapKey {
                    file: 1,
                    block: prng.below(BLOCKS),
                };
                let reads = check.store.reads;
                let found = get::<Runs, _>(&mut check.store, &state.root, &key).unwrap();
                assert_eq!(found.as_ref(), state.model.get(&key));
                let reads_max = (u64::from(state.root.height) + 1) * (u64::from(shape.segments_max) + 1);
                assert!(check.store.reads - reads <= reads_max, "{:?}", state.root);
            }
        }
        let states = check.states();
        assert_eq!(check.counts, counts_of(&states));
        check
            .compare_nodes(&states[990..])
            .expect_err("the others have nodes too");
        while check.snapshots.len() > 8 {
            check.delete(prng.below(check.snapshots.len() as u64) as usize).unwrap();
        }
        check.compare(0).unwrap();
    }
}

/// Of eight segments before one node, a state and the one after it have one each that its neighbour before has not.
#[test]
fn what_all_have_is_not_read() {
    let mut check = Check::<Runs>::new(Shape::default(), None);
    let many = random_runs(&mut Prng::new(7), 50_000, 5_000);
    check.checkpoint(many).unwrap();
    assert!(check.live.as_ref().unwrap().root.node.is_some());
    for block in 0..8 {
        check.checkpoint(vec![run_at(block, NEW)]).unwrap();
        check.take();
    }
    let reads = check.store.reads;
    check.delete(6).unwrap();
    assert_eq!(check.store.reads - reads, 2);
    check.compare(0).unwrap();
}

/// What a deletion reads depends on what changed, not on the size of the tree.
#[test]
fn a_deletion_reads_what_differs() {
    const BLOCKS: u64 = 20_000;
    let mut prng = Prng::new(6);
    let mut check = Check::<Runs>::new(SMALL, None);
    check
        .checkpoint(random_runs(&mut prng, BLOCKS, BLOCKS as usize))
        .unwrap();
    let leaves = check.store.names().len() as u64;
    assert!(leaves > 200, "{leaves}");
    for _ in 0..200 {
        check.checkpoint(random_runs(&mut prng, BLOCKS, 4)).unwrap();
        check.take();
    }
    // One between two, a few together, and the oldest, of which all targets are to be looked up.
    for (index, deletions) in [(100, 1), (50, 20), (0, 20)] {
        for _ in 0..deletions {
            let reads = check.store.reads;
            check.delete(index).unwrap();
            let reads = check.store.reads - reads;
            let height = u64::from(check.snapshots[0].root.height);
            let path = (height + 1) * (u64::from(SMALL.segments_max) + 1);
            // Nodes of both sides, and the paths to eight changes.
            assert!(reads <= 8 * path + 8 * height, "{reads} reads at {index}");
            assert!(reads < leaves / 2, "{reads} reads of {leaves}");
        }
    }
    check.compare(0).unwrap();
}
