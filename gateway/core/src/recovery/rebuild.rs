//! Local metadata from the bucket alone: the parts of its journal, one after another, each as a state that
//! [`Merge`](crate::Merge) lays over what came before. Pure; the world brings the parts.

use crate::bucket_tree::TreeContents;
use crate::format::bucket_journal::{Item, Part, PartHeader, Salt};
use crate::format::record::Lsn;
use crate::format::root::Root;
use crate::format::superblock::{Superblock, Totals, Volume};
use crate::state::overlay::Frozen;
use alloc::{collections::BTreeMap, sync::Arc};
use tombolo_base::VolumeId;

/// PVBNs of an epoch begin here at the least, so none is given out that the writer before gave to a block which the bucket has
/// not heard of.
const EPOCH_PVBN_BITS: u32 = 40;
/// Volumes that the writer before may have made meanwhile.
pub(super) const VOLUMES_SKIPPED: u64 = 1 << 16;

/// The parts are not those that the root speaks of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each holds")]
pub enum RebuildError {
    #[error("journal object {found} is there in place of {expected}")]
    Sequence { expected: u64, found: u64 },
    #[error("journal object {sequence} does not continue the one before it")]
    Chain { sequence: u64 },
    #[error("journal object {sequence} is not the one that the root names as the last")]
    NotTheLast { sequence: u64 },
    #[error("the root names journal object {expected} as the last, and there is none behind {found}")]
    Short { expected: u64, found: u64 },
}

/// A state directory in the making.
#[derive(Debug)]
pub struct Rebuild {
    root: Root,
    beginning: Superblock,
    volumes: BTreeMap<VolumeId, Volume>,
    totals: Totals,
    /// Of the part that was laid last.
    header: Option<PartHeader>,
    salt: Salt,
}

impl Rebuild {
    /// Of what `root` names, for another state directory, of this identity and with a cache of so many slots.
    pub fn new(root: Root, identity: u64, slot_count: u32) -> Self {
        Self::beginning_with(root, Superblock::first(identity, slot_count))
    }

    /// Of what `root` names, for the state directory that has put it: its journal goes on at the root's position, which lies in
    /// `segment`.
    pub fn again(root: Root, slot_count: u32, segment: u64) -> Self {
        let beginning = Superblock {
            lsn: Lsn(root.lsn),
            segment,
            ..Superblock::first(root.identity, slot_count)
        };
        Self::beginning_with(root, beginning)
    }

    fn beginning_with(root: Root, beginning: Superblock) -> Self {
        Self {
            root,
            beginning,
            volumes: BTreeMap::new(),
            totals: Totals::default(),
            header: None,
            salt: Salt::NONE,
        }
    }

    /// Sequence of the part that comes next; `None`: all are laid.
    pub fn next_part(&self) -> Option<u64> {
        let next = self
            .header
            .map_or(self.root.journal_first, |header| header.sequence + 1);
        (next != 0 && next <= self.root.journal_last).then_some(next)
    }

    /// What the tree has besides the states that it was read as, which are laid before any part.
    #[must_use = "it is to be laid too"]
    pub fn lay_tree(&mut self, contents: TreeContents) -> Frozen {
        self.volumes = contents.volumes;
        self.totals = contents.totals;
        Frozen {
            superblock: self.superblock(),
            ..Frozen::default()
        }
    }

    /// What the next part changes. `salt` is that of the object that held it.
    ///
    /// # Errors
    /// When it is not the one that comes next.
    pub fn lay(&mut self, part: Part, salt: Salt) -> Result<Frozen, RebuildError> {
        let Part { header, items } = part;
        let sequence = header.sequence;
        let expected = self.next_part().unwrap_or(self.root.journal_last + 1);
        if sequence != expected {
            return Err(RebuildError::Sequence {
                expected,
                found: sequence,
            });
        }
        if self.header.is_some() && header.before != self.salt {
            return Err(RebuildError::Chain { sequence });
        }
        if sequence == self.root.journal_last && (salt != self.root.journal_salt || !header.is_last) {
            return Err(RebuildError::NotTheLast { sequence });
        }
        let mut frozen = Frozen::default();
        for item in items {
            match item {
                Item::Volume(volume) => {
                    self.volumes.insert(volume.id, volume);
                }
                Item::NoVolume(volume) => {
                    self.volumes.remove(&volume);
                }
                Item::Run(extent) => frozen.map.insert(extent),
                Item::Object(descriptor) => {
                    frozen.objects.insert(descriptor.first_pvbn().0, Arc::new(descriptor));
                }
                Item::Entry(key, value) => frozen.entries.set(&key, Some(value.into())),
                Item::NoEntry(key) => frozen.entries.set(&key, None),
                Item::Counter(key, value) => frozen.entries.set_counter(&key, value),
            }
        }
        self.totals = header.totals;
        (self.header, self.salt) = (Some(header), salt);
        frozen.superblock = self.superblock();
        Ok(frozen)
    }

    /// The last change, when all parts are laid: numbers go on behind those that the writer before may have given out.
    /// `entry` is one more entry to be set.
    ///
    /// # Errors
    /// When parts are missing.
    pub fn finish(&self, epoch: u64, entry: Option<(&[u8], &[u8])>) -> Result<Frozen, RebuildError> {
        if let Some(missing) = self.next_part() {
            return Err(RebuildError::Short {
                expected: self.root.journal_last,
                found: missing - 1,
            });
        }
        let mut frozen = Frozen::default();
        if let Some((key, value)) = entry {
            frozen.entries.set(key, Some(value.into()));
        }
        let superblock = self.superblock();
        frozen.superblock = Superblock {
            next_pvbn: superblock.next_pvbn.max(epoch << EPOCH_PVBN_BITS),
            next_volume: superblock.next_volume + VOLUMES_SKIPPED,
            ..superblock
        };
        Ok(frozen)
    }

    /// As it is with what has been laid so far.
    pub fn superblock(&self) -> Superblock {
        let beginning = &self.beginning;
        Superblock {
            next_pvbn: self.root.next_pvbn.max(beginning.next_pvbn),
            next_volume: self.root.next_volume.max(beginning.next_volume),
            volumes: self.volumes.values().cloned().collect(),
            totals: self.totals,
            ..beginning.clone()
        }
    }
}
