//! The states that a directory may be in, as far as its only client can tell: those after each request that is not known
//! to be on stable storage. A kill leaves the last of them, a power loss any; of the request that was under way nobody
//! knows whether it was carried out before.

use std::collections::VecDeque;
use tombolo_files::model::{Answer, Given, Model, Operation, Tree};

/// One way in which it may have come about.
#[derive(Clone, Debug, PartialEq)]
struct Path {
    /// Beginning with the one that is on stable storage.
    states: VecDeque<Model>,
    /// The request under way was carried out before the crash, on the last of the states.
    is_done: bool,
}

impl Path {
    fn last(&self) -> &Model {
        self.states.back().expect("there is a state")
    }
}

#[derive(Clone, Debug)]
pub(super) struct History(Vec<Path>);

impl History {
    pub fn new(root: u64) -> Self {
        let states = VecDeque::from([Model::new(root)]);
        Self(vec![Path { states, is_done: false }])
    }

    /// The state, once it was looked at: what is left then looks alike, and differs in what is on stable storage.
    pub fn state(&self) -> &Model {
        self.0.first().expect("there is a way in which it came about").last()
    }

    /// Every inode that there may ever have been.
    pub fn inodes(&self) -> Vec<u64> {
        let mut inodes: Vec<u64> = self.0.iter().flat_map(|path| path.last().inodes()).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    pub fn crash(&mut self, may_lose_unflushed: bool, under_way: bool) {
        let mut paths: Vec<Path> = Vec::new();
        let mut add = |model: Model, is_done| {
            let path = Path {
                states: VecDeque::from([model]),
                is_done,
            };
            if !paths.contains(&path) {
                paths.push(path);
            }
        };
        for path in std::mem::take(&mut self.0) {
            if path.is_done {
                add(path.last().clone(), true);
                continue;
            }
            if under_way {
                add(path.last().clone(), true);
            }
            let kept = if may_lose_unflushed { path.states.len() } else { 1 };
            for state in path.states.into_iter().rev().take(kept) {
                let mut state = state;
                state.restart();
                add(state, false);
            }
        }
        self.0 = paths;
    }

    /// The request that was under way is answered. The error says what the answer should have been.
    pub fn answer(&mut self, operation: &Operation, answer: &Answer) -> Result<(), Vec<Answer>> {
        let made = answer.as_ref().ok().copied().and_then(Given::made);
        let mut expected = Vec::new();
        self.0.retain_mut(|path| {
            let mut state = path.last().clone();
            let wanted = state.carry_out(operation, made);
            let is_so = wanted == *answer;
            expected.push(wanted);
            if path.is_done {
                state.restart();
                state.open_again(operation, answer);
                path.states.clear();
                path.is_done = false;
            }
            path.states.push_back(state);
            is_so
        });
        match self.0.is_empty() {
            true => Err(expected),
            false => Ok(()),
        }
    }

    /// Everything was looked at. The error says what should have been seen; that what was looked at need not be the same.
    pub fn see(&mut self, tree: &Tree) -> Result<(), Vec<Tree>> {
        let shown: Vec<Tree> = self.0.iter().map(|path| path.last().shown()).collect();
        let is_seen = |shown: &Tree| {
            tree.iter()
                .all(|(inode, seen)| shown.get(inode).unwrap_or(&None) == seen)
        };
        let mut fits = shown.iter().map(is_seen);
        self.0.retain(|_| fits.next() == Some(true));
        match self.0.is_empty() {
            true => Err(shown),
            false => Ok(()),
        }
    }

    /// What there is now is on stable storage.
    pub fn synced(&mut self) {
        for path in &mut self.0 {
            path.states.drain(..path.states.len() - 1);
        }
        self.0.dedup();
    }
}
