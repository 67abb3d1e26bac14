//! Pages of the persistent cache index: what each slot of the cache file holds.

use alloc::vec::Vec;
use tombolo_base::{BlockSum, DecodeError, Pvbn, Reader, VolumeId, Writer};

/// What one slot holds, as the persistent cache index says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEntry {
    /// Nothing that is needed.
    Free,
    /// A block that the store has too.
    Clean {
        /// Which block.
        pvbn: Pvbn,
        /// What the slot's bytes have to sum up to.
        sum: BlockSum,
    },
    /// The only copy of a block.
    Dirty {
        /// Which block.
        pvbn: Pvbn,
        /// What the slot's bytes have to sum up to.
        sum: BlockSum,
        /// Whose block.
        volume: VolumeId,
        /// Which of its blocks; from these recovery has the dirty queue.
        block: u64,
    },
    /// The only copy of a block, and damaged: the block reads as an error until it is overwritten.
    Corrupt {
        /// Which block.
        pvbn: Pvbn,
        /// What the slot's bytes should sum up to, and do not.
        sum: BlockSum,
        /// Whose block.
        volume: VolumeId,
        /// Which of its blocks.
        block: u64,
    },
}

/// A slot page is its entries one after another: kind u8 (0 free, 1 clean, 2 dirty, 3 corrupt), then PVBN u64 and sum
/// u64 unless free, then volume u64 and block u64 if dirty or corrupt.
pub fn encode_slot_page(entries: impl Iterator<Item = SlotEntry>) -> Vec<u8> {
    let mut out = Writer::default();
    for entry in entries {
        match entry {
            SlotEntry::Free => out.u8(0),
            SlotEntry::Clean { pvbn, sum } => out.u8(1).u64(pvbn.0).u64(sum.0),
            SlotEntry::Dirty {
                pvbn,
                sum,
                volume,
                block,
            } => out.u8(2).u64(pvbn.0).u64(sum.0).u64(volume.0).u64(block),
            SlotEntry::Corrupt {
                pvbn,
                sum,
                volume,
                block,
            } => out.u8(3).u64(pvbn.0).u64(sum.0).u64(volume.0).u64(block),
        };
    }
    out.0
}

/// The slots of a page in order; the last page may have fewer.
///
/// # Errors
/// When an entry is cut short, or is of no known kind.
pub fn decode_slot_page(bytes: &[u8]) -> Result<Vec<SlotEntry>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::with_capacity(SLOTS_PER_PAGE as usize);
    while reader.remaining() > 0 {
        let kind = reader.u8("slot kind")?;
        if kind == 0 {
            entries.push(SlotEntry::Free);
            continue;
        }
        let (pvbn, sum) = (Pvbn(reader.u64("slot PVBN")?), BlockSum(reader.u64("slot sum")?));
        entries.push(match kind {
            1 => SlotEntry::Clean { pvbn, sum },
            2 => {
                let volume = VolumeId(reader.u64("slot volume")?);
                SlotEntry::Dirty {
                    pvbn,
                    sum,
                    volume,
                    block: reader.u64("slot block")?,
                }
            }
            3 => SlotEntry::Corrupt {
                pvbn,
                sum,
                volume: VolumeId(reader.u64("slot volume")?),
                block: reader.u64("slot block")?,
            },
            other => {
                return Err(DecodeError::Invalid {
                    what: "slot kind",
                    value: u64::from(other),
                });
            }
        });
    }
    Ok(entries)
}

/// Slots per page of the persistent cache index.
pub(crate) const SLOTS_PER_PAGE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_page_is_read_as_it_was_written() {
        let (pvbn, sum) = (Pvbn(1), BlockSum(2));
        let (volume, block) = (VolumeId(3), 4);
        let entries = [
            SlotEntry::Dirty {
                pvbn,
                sum,
                volume,
                block,
            },
            SlotEntry::Free,
            SlotEntry::Corrupt {
                pvbn,
                sum,
                volume,
                block,
            },
            SlotEntry::Clean { pvbn, sum },
        ];
        let bytes = encode_slot_page(entries.into_iter());
        assert_eq!(decode_slot_page(&bytes), Ok(entries.to_vec()));
        assert!(decode_slot_page(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode_slot_page(&[4; 40]).is_err());
    }
}
