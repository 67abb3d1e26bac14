//! What names a node, and its bytes.

use crate::varint;
use tombolo_base::{DecodeError, Reader, TAG_BYTES, Writer};

/// Where a node lies, when it was written, and the tag that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    /// The number of the object that the node is packed into.
    pub object: u64,
    /// The number of the node's message in that object.
    pub message: u32,
    /// Where its encrypted bytes begin, from the object's first byte.
    pub offset: u32,
    /// How many they are, the tag included.
    pub bytes: u32,
    /// The checkpoint that wrote it.
    pub birth: u32,
    /// Its authentication tag, so that no other node can pose as this one.
    pub tag: [u8; TAG_BYTES],
}

/// Pointers one after another: each is written relative to the one before, since neighbours often lie in one object.
///
/// ```text
/// object:  zigzag varint of the difference to the pointer before
/// message: varint | offset: varint | bytes: varint
/// birth:   zigzag varint of the difference to the pointer before
/// tag:     16 bytes
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PointerSequence {
    object: u64,
    birth: u32,
}

impl PointerSequence {
    /// Appends the next pointer.
    pub fn put(&mut self, out: &mut Writer, pointer: &Pointer) {
        varint::put_difference(out, self.object, pointer.object);
        for number in [pointer.message, pointer.offset, pointer.bytes] {
            varint::put(out, number.into());
        }
        varint::put_difference(out, self.birth.into(), pointer.birth.into());
        out.bytes(&pointer.tag);
        self.object = pointer.object;
        self.birth = pointer.birth;
    }

    /// The next pointer.
    ///
    /// # Errors
    /// When the bytes are not what [`Self::put`] writes.
    pub fn get(&mut self, reader: &mut Reader<'_>) -> Result<Pointer, DecodeError> {
        let object = varint::get_difference(reader, "pointer's object", self.object)?;
        let message = varint::get_u32(reader, "pointer's message")?;
        let offset = varint::get_u32(reader, "pointer's offset")?;
        let bytes = varint::get_u32(reader, "pointer's bytes")?;
        let birth = varint::get_difference(reader, "pointer's birth", self.birth.into())?;
        let birth = u32::try_from(birth).map_err(|_| DecodeError::Invalid {
            what: "pointer's birth",
            value: birth,
        })?;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(reader.bytes("pointer's tag", TAG_BYTES)?);
        self.object = object;
        self.birth = birth;
        Ok(Pointer {
            object,
            message,
            offset,
            bytes,
            birth,
            tag,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pointer() -> impl Strategy<Value = Pointer> {
        let numbers = (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
        (numbers, any::<[u8; TAG_BYTES]>()).prop_map(|((object, message, offset, bytes, birth), tag)| Pointer {
            object,
            message,
            offset,
            bytes,
            birth,
            tag,
        })
    }

    #[test]
    fn bytes_are_pinned() {
        let first = Pointer {
            object: 3,
            message: 1,
            offset: 300,
            bytes: 128,
            birth: 5,
            tag: [7; TAG_BYTES],
        };
        let second = Pointer {
            object: 2,
            birth: 4,
            ..first
        };
        let mut out = Writer::default();
        let mut sequence = PointerSequence::default();
        sequence.put(&mut out, &first);
        sequence.put(&mut out, &second);
        let tag = [7; TAG_BYTES];
        let expected = [
            &[6, 1, 0xac, 2, 0x80, 1, 10][..],
            &tag,
            &[1, 1, 0xac, 2, 0x80, 1, 1],
            &tag,
        ]
        .concat();
        assert_eq!(out.0, expected);
    }

    proptest! {
        #[test]
        fn pointers_come_back(pointers in prop::collection::vec(any_pointer(), 0..5)) {
            let mut out = Writer::default();
            let mut sequence = PointerSequence::default();
            for pointer in &pointers {
                sequence.put(&mut out, pointer);
            }
            let mut reader = Reader::new(&out.0);
            let mut sequence = PointerSequence::default();
            for pointer in pointers {
                prop_assert_eq!(sequence.get(&mut reader), Ok(pointer));
            }
            prop_assert_eq!(reader.remaining(), 0);
        }
    }
}
