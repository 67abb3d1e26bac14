//! The request header of the transmission phase.

use super::{DecodeError, REQUEST_HEADER_BYTES, REQUEST_MAGIC, fields::Fields};

/// What precedes every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bits of [`command_flag`](super::command_flag).
    pub flags: u16,
    /// One of [`command`](super::command), or unknown.
    pub command: u16,
    /// Chosen by the client; its replies carry it back.
    pub cookie: u64,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u32,
}

impl RequestHeader {
    /// As a client sends it.
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// # Errors
/// When the magic number is wrong.
pub fn decode_request_header(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<RequestHeader, DecodeError> {
    let mut fields = Fields(bytes);
    let magic = fields.u32("request magic")?;
    if magic != REQUEST_MAGIC {
        return Err(DecodeError::Magic {
            what: "request",
            found: u64::from(magic),
            expected: u64::from(REQUEST_MAGIC),
        });
    }
    Ok(RequestHeader {
        flags: fields.u16("request flags")?,
        command: fields.u16("request command")?,
        cookie: fields.u64("request cookie")?,
        offset: fields.u64("request offset")?,
        length: fields.u32("request length")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_of_a_read_request() {
        let header = RequestHeader {
            flags: 0x0004,
            command: 0,
            cookie: 0x1122_3344_5566_7788,
            offset: 0x1000,
            length: 0x200,
        };
        let expected = [
            0x25, 0x60, 0x95, 0x13, 0, 4, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 0, 0, 0, 0x10,
            0, 0, 0, 2, 0,
        ];
        assert_eq!(header.encode(), expected);
        assert_eq!(decode_request_header(&expected), Ok(header));
    }

    #[test]
    fn a_wrong_magic_is_named() {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[3] = 7;
        assert_eq!(
            decode_request_header(&bytes),
            Err(DecodeError::Magic {
                what: "request",
                found: 7,
                expected: u64::from(REQUEST_MAGIC)
            })
        );
    }

    proptest! {
        #[test]
        fn round_trip(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
            let header = RequestHeader { flags, command, cookie, offset, length };
            prop_assert_eq!(decode_request_header(&header.encode()), Ok(header));
        }
    }
}
