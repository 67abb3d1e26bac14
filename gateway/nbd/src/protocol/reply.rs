//! Replies of the transmission phase. A [`Reply`] is a short head and a body that is sent as it is, so that data
//! read from an export is never copied.

use super::{
    CONTEXT_ALLOCATION, CONTEXT_RESIZE, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::{Extent, NbdError};
use tombolo_transport::Message;

const HEAD_BYTES_MAX: usize = 28;
const CHUNK_HEAD_BYTES: usize = 20;
/// What a block status describes at the most; clients ask again for the rest.
pub const EXTENTS_MAX: usize = 8 * 1024;

/// One reply, or one chunk of one.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    body: Vec<u8>,
}

impl Message for Reply {
    fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    fn body(&self) -> &[u8] {
        &self.body
    }
}

impl Reply {
    fn push(&mut self, field: &[u8]) {
        self.head[self.head_bytes..self.head_bytes + field.len()].copy_from_slice(field);
        self.head_bytes += field.len();
    }

    /// `error` zero is success; `data` is what a read answers.
    fn simple(cookie: u64, error: u32, data: Vec<u8>) -> Self {
        let mut reply = Self {
            body: data,
            ..Self::default()
        };
        reply.push(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        reply.push(&error.to_be_bytes());
        reply.push(&cookie.to_be_bytes());
        reply
    }

    /// Success without data.
    pub fn simple_done(cookie: u64) -> Self {
        Self::simple(cookie, 0, Vec::new())
    }

    /// The number alone.
    pub fn simple_error(cookie: u64, error: NbdError) -> Self {
        Self::simple(cookie, error_code(error), Vec::new())
    }

    /// What was read, all of it.
    pub fn simple_data(cookie: u64, data: Vec<u8>) -> Self {
        Self::simple(cookie, 0, data)
    }

    fn chunk(flags: u16, kind: u16, cookie: u64, payload_bytes: usize) -> Self {
        let mut reply = Self::default();
        reply.push(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        reply.push(&flags.to_be_bytes());
        reply.push(&kind.to_be_bytes());
        reply.push(&cookie.to_be_bytes());
        reply.push(&(payload_bytes as u32).to_be_bytes());
        reply
    }

    /// Success without data.
    pub fn structured_done(cookie: u64) -> Self {
        Self::chunk(chunk::FLAG_DONE, chunk::NONE, cookie, 0)
    }

    /// One content chunk, which satisfies the DF flag as well. `data` must not be empty.
    pub fn structured_data(cookie: u64, offset: u64, data: Vec<u8>) -> Self {
        let mut reply = Self::chunk(chunk::FLAG_DONE, chunk::OFFSET_DATA, cookie, 8 + data.len());
        reply.push(&offset.to_be_bytes());
        reply.body = data;
        reply
    }

    /// With a message for people.
    pub fn structured_error(cookie: u64, error: NbdError, message: &str) -> Self {
        let mut reply = Self::chunk(chunk::FLAG_DONE, chunk::ERROR, cookie, 6 + message.len());
        reply.push(&error_code(error).to_be_bytes());
        reply.push(&(message.len() as u16).to_be_bytes());
        reply.body = message.as_bytes().to_vec();
        reply
    }

    /// One chunk per negotiated context. `extents` come from [`fit_extents`].
    pub fn block_status(cookie: u64, extents: &[Extent], contexts: ContextSet) -> Self {
        let mut body = Vec::with_capacity(8 * extents.len() + 64);
        if contexts.allocation {
            let flags = if contexts.resize { 0 } else { chunk::FLAG_DONE };
            let descriptors = extents.iter().map(|extent| (extent.length, extent_flags(*extent)));
            push_status(&mut body, flags, cookie, CONTEXT_ALLOCATION.id, descriptors);
        }
        if contexts.resize {
            let length = extents.iter().map(|extent| extent.length).sum();
            let descriptors = [(length, 0)].into_iter();
            push_status(&mut body, chunk::FLAG_DONE, cookie, CONTEXT_RESIZE.id, descriptors);
        }
        Self {
            body,
            ..Self::default()
        }
    }
}

/// Which metadata contexts a client has negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSet {
    /// [`CONTEXT_ALLOCATION`](super::CONTEXT_ALLOCATION).
    pub allocation: bool,
    /// [`CONTEXT_RESIZE`](super::CONTEXT_RESIZE).
    pub resize: bool,
}

impl ContextSet {
    /// At least one.
    pub fn any(self) -> bool {
        self.allocation || self.resize
    }
}

fn push_status(
    body: &mut Vec<u8>,
    flags: u16,
    cookie: u64,
    context_id: u32,
    descriptors: impl ExactSizeIterator<Item = (u32, u32)>,
) {
    let head = Reply::chunk(flags, chunk::BLOCK_STATUS, cookie, 4 + 8 * descriptors.len());
    debug_assert_eq!(head.head_bytes, CHUNK_HEAD_BYTES);
    body.extend_from_slice(head.head());
    body.extend_from_slice(&context_id.to_be_bytes());
    for (length, status) in descriptors {
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&status.to_be_bytes());
    }
}

fn extent_flags(extent: Extent) -> u32 {
    let hole = if extent.hole { STATE_HOLE } else { 0 };
    hole | if extent.zero { STATE_ZERO } else { 0 }
}

/// Makes an export's extents fit for the wire: none empty, neighbours differ, not beyond `length_max` in all, at
/// most [`EXTENTS_MAX`], or one when so requested.
pub fn fit_extents(extents: &[Extent], length_max: u32, request_one: bool) -> Vec<Extent> {
    let count_max = if request_one { 1 } else { EXTENTS_MAX };
    let mut fitted: Vec<Extent> = Vec::new();
    let mut left = length_max;
    for extent in extents {
        let length = extent.length.min(left);
        if length == 0 {
            continue;
        }
        let full = fitted.len() == count_max;
        match fitted.last_mut() {
            Some(last) if (last.hole, last.zero) == (extent.hole, extent.zero) => last.length += length,
            _ if full => break,
            _ => fitted.push(Extent { length, ..*extent }),
        }
        left -= length;
    }
    fitted
}

/// The protocol's numbers, which resemble Linux errno values but are fixed.
pub fn error_code(error: NbdError) -> u32 {
    match error {
        NbdError::Perm => 1,
        NbdError::Io => 5,
        NbdError::NoMem => 12,
        NbdError::Invalid => 22,
        NbdError::NoSpace => 28,
        NbdError::Overflow => 75,
        NbdError::NotSupported => 95,
        NbdError::Shutdown => 108,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(reply: &Reply) -> Vec<u8> {
        [reply.head(), reply.body()].concat()
    }

    #[test]
    fn golden_bytes_of_each_reply() {
        assert_eq!(
            wire(&Reply::simple_error(7, NbdError::NoSpace)),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        assert_eq!(
            wire(&Reply::simple_data(1, vec![0xaa])),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xaa]
        );
        assert_eq!(
            wire(&Reply::structured_done(7)),
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0]
        );
        assert_eq!(
            wire(&Reply::structured_data(7, 0x100, vec![0xaa])),
            [
                0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 0, 0xaa
            ]
        );
        assert_eq!(
            wire(&Reply::structured_error(7, NbdError::Io, "no")),
            [
                0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 5, 0, 2, b'n', b'o'
            ]
        );
    }

    #[test]
    fn each_context_gets_one_chunk_and_the_last_says_done() {
        let extents = [Extent {
            length: 16,
            hole: true,
            zero: true,
        }];
        let both = ContextSet {
            allocation: true,
            resize: true,
        };
        let bytes = wire(&Reply::block_status(7, &extents, both));
        assert_eq!(bytes.len(), 2 * 32);
        assert_eq!(&bytes[4..8], [0, 0, 0, 5]);
        assert_eq!(&bytes[20..32], [0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 3]);
        assert_eq!(&bytes[36..40], [0, 1, 0, 5]);
        assert_eq!(&bytes[52..], [0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0]);
    }

    #[test]
    fn error_codes_are_the_protocols() {
        let codes = [
            NbdError::Perm,
            NbdError::Io,
            NbdError::NoMem,
            NbdError::Invalid,
            NbdError::NoSpace,
            NbdError::Overflow,
            NbdError::NotSupported,
            NbdError::Shutdown,
        ]
        .map(error_code);
        assert_eq!(codes, [1, 5, 12, 22, 28, 75, 95, 108]);
    }

    prop_compose! {
        fn extent()(length in 0u32..50, hole: bool, zero: bool) -> Extent {
            Extent { length, hole, zero }
        }
    }

    /// One byte's status at each place, the plainest form of extents.
    fn expand(extents: &[Extent]) -> Vec<(bool, bool)> {
        extents
            .iter()
            .flat_map(|extent| (0..extent.length).map(|_| (extent.hole, extent.zero)))
            .collect()
    }

    proptest! {
        #[test]
        fn fitted_extents_say_the_same_byte_by_byte(
            extents in prop::collection::vec(extent(), 0..20),
            length_max in 0u32..600,
            request_one: bool,
        ) {
            let fitted = fit_extents(&extents, length_max, request_one);
            let (mut wanted, found) = (expand(&extents), expand(&fitted));
            wanted.truncate(length_max as usize);
            if request_one {
                prop_assert!(fitted.len() <= 1);
                wanted.truncate(wanted.iter().take_while(|status| **status == wanted[0]).count());
            }
            prop_assert_eq!(found, wanted);
            prop_assert!(fitted.iter().all(|extent| extent.length > 0));
            prop_assert!(fitted.windows(2).all(|pair| (pair[0].hole, pair[0].zero) != (pair[1].hole, pair[1].zero)));
        }
    }
}
