//! Which objects of nodes there are, and until which root each is needed: a usage table, as log-structured file systems
//! keep one of their segments.
//!
//! ```text
//! complete  u8       1: there is no other object with nodes that a root needs; 0: there may be
//! root      varint   sequence of the root that the table was written for
//! count     varint
//! per object, in ascending order:
//!   object    varint   difference to the one before
//!   written   varint   sequence of the first root that has a node of it
//!   live      varint   nodes of it that this root has
//!   died      varint   only if none is live: sequence of the first root that has none
//! ```
//!
//! The table is a node itself and does not count itself: whoever reads it, does ([`UsageTable::read`]).

use crate::load::{Nodes, Written};
use crate::pointer::Pointer;
use crate::varint;
use alloc::{collections::BTreeMap, vec::Vec};
use tombolo_base::{DecodeError, Reader, Writer};

/// Of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    /// The first root that has a node of it.
    written: u64,
    /// Nodes of it that the newest root has.
    live: u32,
    /// The first root that has none; zero as long as there are some.
    died: u64,
}

/// What is known of the objects that hold nodes. Objects that it does not have are never called unused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTable {
    is_complete: bool,
    objects: BTreeMap<u64, Usage>,
}

impl UsageTable {
    /// There are no objects of nodes yet.
    pub fn complete() -> Self {
        Self {
            is_complete: true,
            objects: BTreeMap::new(),
        }
    }

    /// Whether no root needs nodes of an object that the table does not have.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The table that lies at `pointer`.
    ///
    /// # Errors
    /// When the node cannot be read, or is no table.
    pub fn read<N: Nodes>(nodes: &mut N, pointer: &Pointer) -> Result<Self, ReadUsageError<N::Error>> {
        let bytes = nodes.read(pointer).map_err(ReadUsageError::Nodes)?;
        let (root, mut table) = Self::decode(&bytes).map_err(ReadUsageError::Table)?;
        table.add(pointer.object, root);
        Ok(table)
    }

    /// With the sequence of the root that it was written for.
    ///
    /// # Errors
    /// When the bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<(u64, Self), DecodeError> {
        let mut reader = Reader::new(bytes);
        let is_complete = match reader.u8("usage complete")? {
            found @ (0 | 1) => found == 1,
            other => {
                return Err(DecodeError::Invalid {
                    what: "usage complete",
                    value: other.into(),
                });
            }
        };
        let root = varint::get(&mut reader, "usage root")?;
        let count = varint::get(&mut reader, "usage count")?;
        let mut objects = BTreeMap::new();
        let mut before: Option<u64> = None;
        for _ in 0..count {
            let difference = varint::get(&mut reader, "usage object")?;
            let object = match before {
                None => Some(difference),
                Some(before) => before.checked_add(difference).filter(|_| difference > 0),
            };
            let object = object.ok_or(DecodeError::Invalid {
                what: "usage object",
                value: difference,
            })?;
            let written = varint::get(&mut reader, "usage written")?;
            let live = varint::get_u32(&mut reader, "usage live nodes")?;
            let died = match live {
                0 => varint::get(&mut reader, "usage died")?,
                _ => 0,
            };
            objects.insert(object, Usage { written, live, died });
            before = Some(object);
        }
        reader.finish("usage table")?;
        Ok((root, Self { is_complete, objects }))
    }

    /// For the root of this sequence.
    pub fn encode(&self, root: u64) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(self.is_complete.into());
        varint::put(&mut out, root);
        varint::put(&mut out, self.objects.len() as u64);
        let mut before = 0;
        for (object, usage) in &self.objects {
            varint::put(&mut out, object - before);
            varint::put(&mut out, usage.written);
            varint::put(&mut out, usage.live.into());
            if usage.live == 0 {
                varint::put(&mut out, usage.died);
            }
            before = *object;
        }
        out.0
    }

    /// The root of this sequence has one more node in the object.
    pub fn add(&mut self, object: u64, root: u64) {
        let usage = self.objects.entry(object).or_insert(Usage {
            written: root,
            live: 0,
            died: 0,
        });
        usage.live += 1;
        usage.died = 0;
    }

    /// The root of this sequence has one node less in the object.
    pub fn subtract(&mut self, object: u64, root: u64) {
        if let Some(usage) = self.objects.get_mut(&object).filter(|usage| usage.live > 0) {
            usage.live -= 1;
            usage.died = if usage.live == 0 { root } else { 0 };
        }
    }

    /// The root of this sequence has none of the nodes that there are.
    pub fn subtract_all(&mut self, root: u64) {
        for usage in self.objects.values_mut().filter(|usage| usage.live > 0) {
            (usage.live, usage.died) = (0, root);
        }
    }

    /// The root of this sequence has the nodes that an earlier one had, but for its table, which is `to` and was read from
    /// this object.
    pub fn go_back(&mut self, mut to: Self, object: u64, root: u64) {
        to.subtract(object, root);
        self.subtract_all(root);
        self.is_complete &= to.is_complete;
        let live = to.objects.into_iter().filter(|(_, usage)| usage.live > 0);
        self.objects.extend(live);
    }

    /// The object is not there any more.
    pub fn remove(&mut self, object: u64) {
        self.objects.remove(&object);
    }

    /// Objects that neither the newest root needs, nor one of those that are kept, by their sequences; and which root was
    /// the first that has none of it.
    pub fn unused(&self, kept: &[u64]) -> impl Iterator<Item = (u64, u64)> {
        let unused = move |usage: &Usage| {
            let is_needed_by = |root: &u64| (usage.written..usage.died).contains(root);
            usage.live == 0 && !kept.iter().any(is_needed_by)
        };
        let objects = self.objects.iter().filter(move |(_, usage)| unused(usage));
        objects.map(|(object, usage)| (*object, usage.died))
    }

    /// Objects with nodes that the newest root has, and how many.
    pub fn live(&self) -> impl Iterator<Item = (u64, u32)> {
        let live = self.objects.iter().filter(|(_, usage)| usage.live > 0);
        live.map(|(object, usage)| (*object, usage.live))
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = u64> {
        self.objects.keys().copied()
    }
}

/// Why there is no usage table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadUsageError<E> {
    /// Its node cannot be read.
    #[error("usage table: {0}")]
    Nodes(E),
    /// It is none.
    #[error("usage table: {0}")]
    Table(DecodeError),
}

/// Counts what is written.
#[derive(Debug)]
pub struct Counting<'n, N> {
    nodes: &'n mut N,
    written: Vec<u64>,
}

impl<'n, N> Counting<'n, N> {
    /// Of what goes to `nodes` from here on.
    pub fn new(nodes: &'n mut N) -> Self {
        Self {
            nodes,
            written: Vec::new(),
        }
    }

    /// The object of each node that was written.
    pub fn written(self) -> Vec<u64> {
        self.written
    }
}

impl<N: Nodes> Nodes for Counting<'_, N> {
    type Error = N::Error;

    fn read(&mut self, pointer: &Pointer) -> Result<Vec<u8>, N::Error> {
        self.nodes.read(pointer)
    }

    fn announce(&mut self, pointers: &[Pointer]) {
        self.nodes.announce(pointers);
    }

    fn write(&mut self, node: Vec<u8>) -> Result<Written, N::Error> {
        let written = self.nodes.write(node)?;
        self.written.push(written.object);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_pinned() {
        let mut table = UsageTable::default();
        table.add(5, 200);
        table.add(5, 201);
        table.add(7, 201);
        table.subtract(7, 202);
        let bytes = table.encode(202);
        assert_eq!(bytes, [0, 0xca, 1, 2, 5, 0xc8, 1, 2, 2, 0xc9, 1, 0, 0xca, 1]);
        assert_eq!(UsageTable::decode(&bytes), Ok((202, table)));
    }

    #[test]
    fn an_object_is_kept_for_roots_that_have_some_of_it() {
        let mut table = UsageTable::default();
        table.add(1, 10);
        table.add(1, 12);
        table.subtract(1, 15);
        assert_eq!(table.unused(&[]).count(), 0, "one node is left");
        table.subtract(1, 20);
        for (kept, is_unused) in [(9, true), (10, false), (19, false), (20, true)] {
            let expected = if is_unused { vec![(1, 20)] } else { vec![] };
            assert_eq!(table.unused(&[kept]).collect::<Vec<_>>(), expected, "root {kept}");
        }
        table.subtract(1, 30);
        assert_eq!(table.unused(&[]).next(), Some((1, 20)), "none is subtracted twice");
        table.remove(1);
        assert_eq!(table.unused(&[]).count(), 0);
    }

    #[test]
    fn who_goes_back_finds_what_was_there() {
        let mut table = UsageTable::default();
        table.add(1, 10);
        // The table itself, alone in an object.
        table.add(3, 10);
        let earlier = table.clone();
        table.subtract(1, 11);
        table.subtract(3, 11);
        table.add(2, 11);
        table.go_back(earlier, 3, 12);
        assert_eq!(table.live().collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(table.unused(&[10]).collect::<Vec<_>>(), [(2, 12)]);
        assert_eq!(
            table.unused(&[11]).collect::<Vec<_>>(),
            [(3, 11)],
            "that root has the other"
        );
        assert_eq!(table.unused(&[12]).collect::<Vec<_>>(), [(2, 12), (3, 11)]);
    }

    proptest! {
        /// Roots and what they have, as sets, beside the table.
        #[test]
        fn what_is_unused_is_what_no_root_has(
            steps in prop::collection::vec((prop::collection::vec(0u64..6, 0..4), prop::collection::vec(any::<u8>(), 0..4), any::<bool>()), 1..30),
        ) {
            let mut table = UsageTable::default();
            let mut nodes: Vec<u64> = Vec::new();
            let mut kept: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            let mut ever: BTreeSet<u64> = BTreeSet::new();
            for (root, (added, subtracted, is_kept)) in (1u64..).zip(steps) {
                // An object is written once, for one root.
                for object in added.iter().map(|object| root * 10 + object) {
                    table.add(object, root);
                    nodes.push(object);
                    ever.insert(object);
                }
                for index in subtracted {
                    if !nodes.is_empty() {
                        let object = nodes.swap_remove(usize::from(index) % nodes.len());
                        table.subtract(object, root);
                    }
                }
                if is_kept {
                    kept.insert(root, nodes.iter().copied().collect());
                }
                if kept.len() > 3 {
                    kept.pop_first();
                }
                let (_, table) = UsageTable::decode(&table.encode(root)).unwrap();
                let sequences: Vec<u64> = kept.keys().copied().collect();
                let unused: BTreeSet<u64> = table.unused(&sequences).map(|(object, _)| object).collect();
                let needed: BTreeSet<u64> = nodes.iter().chain(kept.values().flatten()).copied().collect();
                let expected: BTreeSet<u64> = ever.difference(&needed).copied().collect();
                prop_assert!(unused.is_subset(&expected), "{unused:?} {expected:?}");
                // What died with the root that first had it is needed by none.
                prop_assert_eq!(unused, expected);
            }
        }

        #[test]
        fn what_is_accepted_is_what_would_be_written(bytes in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..40)) {
            if let Ok((root, table)) = UsageTable::decode(&bytes) {
                prop_assert_eq!(table.encode(root), bytes);
            }
        }
    }
}
