//! What every candidate can do.

use crate::Failure;
use crate::codec::Record;
use crate::store::Store;

/// A cold read of one key, with nothing known but the root.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    pub value: Option<u64>,
    /// One after the other; those that need not wait for each other are one.
    pub round_trips: u64,
    pub gets: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Deleted {
    pub nodes: u64,
    pub bytes: u64,
    /// Lists or runs that were looked at.
    pub steps: u64,
}

pub trait Structure {
    /// Takes sorted changes that do not overlap, and puts what follows from them, root included.
    fn checkpoint(&mut self, store: &mut Store, epoch: u32, changes: Vec<Record>) -> Result<(), Failure>;
    /// Keeps what the last checkpoint, `epoch`, left.
    fn snapshot(&mut self, epoch: u32);
    fn delete_snapshot(&mut self, store: &mut Store, epoch: u32) -> Result<Deleted, Failure>;
    fn read(&self, store: &Store, snapshot: Option<u32>, key: u64) -> Result<Read, Failure>;
    /// Nodes that some root reaches.
    fn reachable(&self, store: &Store) -> Result<u64, Failure>;
    /// Does at once what later merges would.
    fn merge_everything(&mut self, _: &mut Store) -> Result<(), Failure> {
        Ok(())
    }
    /// Its height, or how many parts it has.
    fn shape(&self) -> String;
}
