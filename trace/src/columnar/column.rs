//! Columns of numbers: variable-length integers, differences in zigzag order, zstd around them.

use crate::error::Fault;

/// Appends seven bits a byte, the lowest first; the top bit says that more follow.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small differences of either sign become small numbers.
pub fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

pub fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// A decompressed column, read from front to back.
#[derive(Debug, Default)]
pub struct Column {
    bytes: Vec<u8>,
    position: usize,
}

const CUT: Fault = Fault::Truncated("a column");

impl Column {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, position: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    pub fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.position).ok_or(CUT)?;
        self.position += 1;
        Ok(byte)
    }

    pub fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::OutOfRange {
            field: "a number",
            value,
            permitted: "a number of 64 bits",
        })
    }

    pub fn difference(&mut self) -> Result<u64, Fault> {
        Ok(unzigzag(self.varint()?))
    }

    pub fn word(&mut self) -> Result<u64, Fault> {
        let end = self.position + 8;
        let bytes = self.bytes.get(self.position..end).ok_or(CUT)?;
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        self.position = end;
        Ok(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(values in prop::collection::vec(any::<u64>(), 0..40)) {
            let mut out = Vec::new();
            for value in &values {
                put_varint(&mut out, zigzag(*value));
            }
            let mut column = Column::new(out);
            for value in &values {
                prop_assert_eq!(column.difference().unwrap(), *value);
            }
            prop_assert!(column.is_empty() && column.byte().is_err());
        }

        #[test]
        fn any_bytes_are_a_number_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut column = Column::new(bytes);
            while column.varint().is_ok() {}
        }
    }
}
