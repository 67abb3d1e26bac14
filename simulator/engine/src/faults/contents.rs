//! Contents of blocks. A block is named by a value; its bytes follow from it, so a checker needs to remember only the
//! value, and any byte that is wrong is found.

use std::collections::HashMap;
use std::rc::Rc;
use tombolo_base::{BLOCK_BYTES, BlockSum, Prng, is_zero};

/// Names the contents of one block; [`ZERO`] is the block of zeroes.
pub type Value = u64;

pub const ZERO: Value = 0;

pub type Block = Rc<[u8]>;

/// Values from this one on stand for bytes that came from elsewhere: those of files.
const FIRST_KNOWN: Value = 1 << 48;

/// Contents that no value was drawn for, with the values that they were given.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    known: Vec<Block>,
    values: HashMap<u64, Value>,
}

impl Contents {
    pub fn bytes_of(&self, value: Value) -> Block {
        match value.checked_sub(FIRST_KNOWN) {
            Some(index) => self.known[index as usize].clone(),
            None => bytes_of(value),
        }
    }

    /// The value whose bytes these are; `None` for bytes that no client ever wrote.
    pub fn value_of(&self, bytes: &[u8]) -> Option<Value> {
        let known = self.values.get(&BlockSum::of(bytes).0).copied();
        let known = known.filter(|value| self.bytes_of(*value)[..] == *bytes);
        known.or_else(|| value_of(bytes))
    }

    /// The same for bytes that a client writes now.
    pub fn know(&mut self, bytes: &[u8]) -> Value {
        if let Some(value) = self.value_of(bytes) {
            return value;
        }
        let value = FIRST_KNOWN + self.known.len() as Value;
        self.known.push(Rc::from(bytes));
        let other = self.values.insert(BlockSum::of(bytes).0, value);
        assert!(other.is_none(), "two blocks have one sum");
        value
    }
}

/// The bytes that `value` stands for. One value in three compresses well.
fn bytes_of(value: Value) -> Block {
    let mut bytes = [0; BLOCK_BYTES];
    if value != ZERO {
        let mut prng = Prng::new(value);
        if value.is_multiple_of(3) {
            prng.fill(&mut bytes[..BLOCK_BYTES / 8]);
            for copy in 1..8 {
                bytes.copy_within(..BLOCK_BYTES / 8, copy * BLOCK_BYTES / 8);
            }
        } else {
            prng.fill(&mut bytes);
        }
        bytes[..8].copy_from_slice(&value.to_le_bytes());
    }
    Rc::from(&bytes[..])
}

fn value_of(bytes: &[u8]) -> Option<Value> {
    if is_zero(bytes) {
        return Some(ZERO);
    }
    let mut head = [0; 8];
    head.copy_from_slice(&bytes[..8]);
    let value = u64::from_le_bytes(head);
    (value != ZERO && bytes_of(value)[..] == *bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_name_their_value_and_damage_names_none() {
        for value in 0..50 {
            let mut bytes = bytes_of(value).to_vec();
            assert_eq!(value_of(&bytes), Some(value));
            bytes[4000] ^= 1;
            assert_eq!(value_of(&bytes), None);
        }
    }

    #[test]
    fn bytes_from_elsewhere_get_a_value() {
        let mut contents = Contents::default();
        let block = [7; BLOCK_BYTES];
        assert_eq!(contents.value_of(&block), None);
        let value = contents.know(&block);
        assert_eq!(contents.know(&block), value);
        assert_eq!(contents.value_of(&contents.bytes_of(value)), Some(value));
        assert_eq!(contents.know(&bytes_of(5)), 5);
        assert_eq!(contents.know(&[0; BLOCK_BYTES]), ZERO);
    }
}
