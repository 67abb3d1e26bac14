//! Little-endian byte codec. `Reader` never panics: every read is bounds-checked and says what was being read.

use alloc::vec::Vec;

/// What a decoder found wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the messages say what each holds; `what` names the field that was read"
)]
pub enum DecodeError {
    #[error("{what}: needs {needed} bytes at offset {offset}, {available} left")]
    Truncated {
        what: &'static str,
        offset: usize,
        needed: usize,
        available: usize,
    },
    #[error("{what}: value {value:#x} is not allowed")]
    Invalid { what: &'static str, value: u64 },
    #[error("{what}: checksum is {found:#018x}, the bytes sum to {computed:#018x}")]
    Checksum {
        what: &'static str,
        found: u64,
        computed: u64,
    },
    #[error("{what}: {count} bytes follow the end")]
    Trailing { what: &'static str, count: usize },
}

/// A cursor over bytes from outside.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The next `count` bytes; `what` names them in the error.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer are left; nothing is read then. The same holds for all that follow.
    pub fn bytes(&mut self, what: &'static str, count: usize) -> Result<&'a [u8], DecodeError> {
        if self.remaining() < count {
            return Err(DecodeError::Truncated {
                what,
                offset: self.offset,
                needed: count,
                available: self.remaining(),
            });
        }
        let slice = &self.bytes[self.offset..self.offset + count];
        self.offset += count;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(what, N)?);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Two bytes, the least significant first.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    /// Four bytes, the least significant first.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Eight bytes, the least significant first.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// 32 bytes as they stand, such as a SHA-256.
    pub fn digest(&mut self, what: &'static str) -> Result<[u8; 32], DecodeError> {
        self.array(what)
    }

    /// Fails unless every byte has been read.
    pub fn finish(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { what, count }),
        }
    }
}

/// Appends little-endian fields to a vector.
#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Empty, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends them as they stand.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends two bytes, the least significant first.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes, the least significant first.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes, the least significant first.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
}
