//! Contents of blocks. A block is named by a value; its bytes follow from it, so a checker needs to remember only the
//! value, and any byte that is wrong is found.

use std::rc::Rc;
use tombolo_base::{BLOCK_BYTES, Prng, is_zero};

/// Names the contents of one block; [`ZERO`] is the block of zeroes.
pub type Value = u64;

pub const ZERO: Value = 0;

pub type Block = Rc<[u8]>;

/// The bytes that `value` stands for. One value in three compresses well.
pub fn bytes_of(value: Value) -> Block {
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

/// The value whose bytes these are; `None` for bytes that no client ever wrote.
pub fn value_of(bytes: &[u8]) -> Option<Value> {
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
}
