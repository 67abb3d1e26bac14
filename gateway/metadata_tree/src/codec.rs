//! What differs between the two kinds of trees: keys, records, and what it means that one lies over another.

use alloc::vec::Vec;
use core::fmt::Debug;
use tombolo_base::{DecodeError, Reader, Writer};

/// A kind of tree: [`crate::Runs`] or [`crate::Entries`]. A *record* is what a leaf holds and what a change is: a
/// value, or a deletion, which leaves do not hold.
///
/// Slices of records are in ascending order of their keys and do not overlap; [`Self::check`] tells.
pub trait Codec {
    /// Where a record stands, and where nodes are divided.
    type Key: Clone + Ord + Debug;
    /// A value or a deletion, with its key or keys.
    type Record: Clone + PartialEq + Debug;
    /// What is found at one key.
    type Value;
    /// What the next record is written relative to.
    type Position: Default;
    /// The kind of a leaf in a node's header; those of interior nodes and of segments follow it.
    const LEAF_KIND: u8;

    /// The key that no other is below.
    fn lowest_key() -> Self::Key;
    /// Appends a key, relative to the one before it in the same node, if there is one.
    fn put_key(out: &mut Writer, before: Option<&Self::Key>, key: &Self::Key);
    /// Reads what [`Self::put_key`] wrote, and nothing else; whether keys ascend is checked by the caller.
    fn get_key(reader: &mut Reader<'_>, before: Option<&Self::Key>) -> Result<Self::Key, DecodeError>;
    /// Appends a record.
    fn put_record(out: &mut Writer, position: &mut Self::Position, record: &Self::Record);
    /// Reads what [`Self::put_record`] wrote, and nothing else. Refuses a record that does not come after the one
    /// before.
    fn get_record(reader: &mut Reader<'_>, position: &mut Self::Position) -> Result<Self::Record, DecodeError>;

    /// The record's first key.
    fn start(record: &Self::Record) -> Self::Key;
    /// Whether it takes away what lies below.
    fn is_deletion(record: &Self::Record) -> bool;
    /// About how many bytes a deletion makes superfluous below it; nothing for a value, which takes as much itself. A
    /// guess, as nobody has looked: leaves whose contents are deleted have to be rewritten at some time.
    fn hidden_bytes(record: &Self::Record) -> u32;
    /// Whether the records are what can be encoded: within the bounds of each field, ascending, not overlapping.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] with the index of the first record that is wrong.
    fn check(records: &[Self::Record]) -> Result<(), DecodeError>;
    /// The record that has this key, be it a deletion.
    fn find<'a>(records: &'a [Self::Record], key: &Self::Key) -> Option<&'a Self::Record>;
    /// What a record that [`Self::find`] gave says of the key; none if it is a deletion.
    fn value(record: &Self::Record, key: &Self::Key) -> Option<Self::Value>;

    /// Newer records over older ones: where both have a key, the newer one counts.
    fn lay_over(older: Vec<Self::Record>, newer: Vec<Self::Record>) -> Vec<Self::Record>;
    /// The part from `low` to below `high`, none if this is not above; records across a border are cut.
    fn cut(records: &[Self::Record], low: &Self::Key, high: Option<&Self::Key>) -> Vec<Self::Record>;
    /// Whether all of the records are from `low` to below `high`.
    fn is_within(records: &[Self::Record], low: &Self::Key, high: Option<&Self::Key>) -> bool;
    /// Whether nothing between `low` and `high` shows through the records, which are all within.
    fn covers(records: &[Self::Record], low: &Self::Key, high: Option<&Self::Key>) -> bool;
}

/// What a leaf keeps.
pub fn without_deletions<C: Codec>(mut records: Vec<C::Record>) -> Vec<C::Record> {
    records.retain(|record| !C::is_deletion(record));
    records
}

/// How many bytes each record takes, if all are encoded one behind the other.
pub fn record_bytes<C: Codec>(records: &[C::Record]) -> impl Iterator<Item = usize> {
    let mut position = C::Position::default();
    let mut out = Writer::default();
    records.iter().map(move |record| {
        out.0.clear();
        C::put_record(&mut out, &mut position, record);
        out.0.len()
    })
}
