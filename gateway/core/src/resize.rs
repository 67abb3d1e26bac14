//! Another number of cache slots: which blocks move, and what local metadata says then. Pure over [`MetadataTransaction`];
//! worlds copy the blocks.

use crate::format::local_metadata::{MetadataFault, MetadataTransaction, Table, decode, get, put};
use crate::format::slot_page::{SLOTS_PER_PAGE, SlotEntry, decode_slot_page, encode_slot_page};
use crate::recovery::load_superblock;
use alloc::vec::Vec;
use tombolo_base::Lcbn;

/// The contents of one slot belong into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMove {
    /// Where they are.
    pub from: Lcbn,
    /// Where they have to be.
    pub to: Lcbn,
}

/// What a resize takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// Slots before.
    pub slots_before: u32,
    /// To be copied and made durable before the transaction is committed. What they overwrite is nowhere needed.
    pub moves: Vec<SlotMove>,
    /// Blocks that the store has too, which the cache does not hold any more.
    pub clean_dropped: u64,
}

/// Why a cache cannot have so many slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError<E> {
    /// Local metadata cannot be read, or not be written.
    #[error("local metadata: {0}")]
    Metadata(MetadataFault<E>),
    /// There is none.
    #[error("local metadata holds no superblock")]
    SuperblockMissing,
    /// Blocks that the store does not have would have no room.
    #[error(
        "{blocks} blocks of 4 KiB are not in the store yet, and {slot_count} slots cannot hold them: run `tombolo drain --wait` first"
    )]
    TooSmall {
        /// Which have to be kept.
        blocks: u64,
        /// That were asked for.
        slot_count: u32,
    },
}

impl<E> From<MetadataFault<E>> for ResizeError<E> {
    fn from(fault: MetadataFault<E>) -> Self {
        Self::Metadata(fault)
    }
}

/// Brings another number of slots into a transaction of local metadata, behind which the journal MUST hold no record. The
/// transaction MUST be committed after the moves, or given up.
///
/// # Errors
/// When the transaction fails, or holds what cannot be; and when the slots are too few.
pub fn resize<T: MetadataTransaction>(transaction: &mut T, slot_count: u32) -> Result<Resize, ResizeError<T::Error>> {
    let superblock = load_superblock(transaction)?.ok_or(ResizeError::SuperblockMissing)?;
    let mut resize = Resize {
        slots_before: superblock.slot_count,
        ..Resize::default()
    };
    if slot_count < superblock.slot_count {
        let beyond = take_beyond(transaction, slot_count, &mut resize)?;
        settle(transaction, slot_count, beyond, &mut resize)?;
    }
    let mut superblock = superblock;
    superblock.slot_count = slot_count;
    put(transaction, Table::Super, &[], &superblock.encode())?;
    Ok(resize)
}

/// Removes the slots behind the new end. Returns those of which the blocks are needed.
fn take_beyond<T: MetadataTransaction>(
    transaction: &mut T,
    slot_count: u32,
    resize: &mut Resize,
) -> Result<Vec<(Lcbn, SlotEntry)>, ResizeError<T::Error>> {
    let mut beyond = Vec::new();
    let mut page = slot_count / SLOTS_PER_PAGE;
    while let Some((key, bytes)) = transaction
        .ceiling(Table::Slots, &page.to_be_bytes())
        .map_err(MetadataFault::Store)?
    {
        page = number_of(&key)?;
        let entries = decode(Table::Slots, &key, decode_slot_page(&bytes))?;
        let stays = slot_count.saturating_sub(page * SLOTS_PER_PAGE) as usize;
        for (index, entry) in entries.iter().enumerate().skip(stays) {
            match entry {
                SlotEntry::Free => {}
                SlotEntry::Clean { .. } => resize.clean_dropped += 1,
                SlotEntry::Dirty { .. } | SlotEntry::Corrupt { .. } => {
                    beyond.push((Lcbn(page * SLOTS_PER_PAGE + index as u32), *entry));
                }
            }
        }
        if stays == 0 {
            transaction.delete(Table::Slots, &key).map_err(MetadataFault::Store)?;
        } else {
            let staying = entries.into_iter().take(stays);
            put(transaction, Table::Slots, &key, &encode_slot_page(staying))?;
        }
        page += 1;
    }
    Ok(beyond)
}

fn number_of<E>(key: &[u8]) -> Result<u32, MetadataFault<E>> {
    let number = <[u8; 4]>::try_from(key).map(u32::from_be_bytes);
    number.map_err(|_| MetadataFault::Corrupt {
        table: Table::Slots,
        key: key.to_vec(),
        error: tombolo_base::DecodeError::Invalid {
            what: "slot page key",
            value: key.len() as u64,
        },
    })
}

/// Gives each of the blocks a slot below the end: a free one, or one of which the store has the block too.
fn settle<T: MetadataTransaction>(
    transaction: &mut T,
    slot_count: u32,
    beyond: Vec<(Lcbn, SlotEntry)>,
    resize: &mut Resize,
) -> Result<(), ResizeError<T::Error>> {
    let wanted = beyond.len();
    let mut beyond = beyond.into_iter().peekable();
    for takes_clean in [false, true] {
        for page in 0..slot_count.div_ceil(SLOTS_PER_PAGE) {
            if beyond.peek().is_none() {
                return Ok(());
            }
            let key = page.to_be_bytes();
            let bytes = get(transaction, Table::Slots, &key)?;
            let found = bytes.map(|bytes| decode(Table::Slots, &key, decode_slot_page(&bytes)));
            let mut entries = found.transpose()?.unwrap_or_default();
            let length = (slot_count - page * SLOTS_PER_PAGE).min(SLOTS_PER_PAGE);
            entries.resize(length as usize, SlotEntry::Free);
            let mut has_changed = false;
            for (index, entry) in entries.iter_mut().enumerate() {
                let is_target = match entry {
                    SlotEntry::Free => true,
                    SlotEntry::Clean { .. } => takes_clean,
                    SlotEntry::Dirty { .. } | SlotEntry::Corrupt { .. } => false,
                };
                if !is_target {
                    continue;
                }
                let Some((from, moved)) = beyond.next() else { break };
                resize.clean_dropped += u64::from(matches!(entry, SlotEntry::Clean { .. }));
                *entry = moved;
                has_changed = true;
                let to = Lcbn(page * SLOTS_PER_PAGE + index as u32);
                resize.moves.push(SlotMove { from, to });
            }
            if has_changed {
                put(transaction, Table::Slots, &key, &encode_slot_page(entries.into_iter()))?;
            }
        }
    }
    match beyond.peek() {
        None => Ok(()),
        Some(_) => Err(ResizeError::TooSmall {
            blocks: u64::from(slot_count) + (wanted - resize.moves.len()) as u64,
            slot_count,
        }),
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
