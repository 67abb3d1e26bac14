use super::{DecodeError, NAME_BYTES_MAX};

/// A cursor over bytes from a client.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, what: &'static str, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(DecodeError::Truncated {
            what,
            needed: count,
            available: self.0.len(),
        })?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(what, N)?);
        Ok(array)
    }

    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// A string whose length has been read already.
    pub fn text(&mut self, what: &'static str, length: usize) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes(what, length)?;
        if length > NAME_BYTES_MAX {
            return Err(DecodeError::TooLong {
                what,
                length,
                length_max: NAME_BYTES_MAX,
            });
        }
        str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8 { what })
    }

    pub fn sized_text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.u32(what)? as usize;
        self.text(what, length)
    }

    pub fn finish(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { what, count }),
        }
    }
}
