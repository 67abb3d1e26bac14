//! Telling the bucket of recovery points: which root comes next, and whether the bucket is still this gateway's. Pure: worlds
//! put and get, and bring what they found.
//!
//! A point is journal objects ([`crate::bucket_journal`]) and then a root ([`crate::root`]) that takes the place of the one
//! before, if that is still there. Before a root is put it is kept locally as an *attempt*. Nobody need know what became of a
//! put whose answer was lost: if the bucket's root is an attempt, it arrived, now or later; if it is the current one, none has
//! yet; if it is neither, another gateway has become the bucket's writer. An attempt that comes late finds the root that it
//! would replace gone.

use crate::bucket_tree::Folded;
use crate::format::bucket_journal::{Salt, expect_magic};
use crate::format::record::Lsn;
use crate::format::root::Root;
use crate::recovery::PublishedPoint;
use crate::state::unpublished::RecoveryPoint;
use alloc::{collections::VecDeque, string::String, vec::Vec};
use tombolo_base::{DecodeError, Reader, Writer};
use tombolo_metadata_tree::Pointer;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"TMBROOTS";

/// Who puts roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootWriter {
    /// Of the state directory.
    pub identity: u64,
    /// For people: the machine and the state directory.
    pub name: String,
    /// A root is put before so much has passed.
    pub lease_ms: u32,
    /// Earlier roots that are kept, at the most.
    pub roots_kept: usize,
}

/// A root, and the salt of the object that holds it, which tells it from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRoot {
    /// What it says.
    pub root: Root,
    /// Of its object.
    pub salt: Salt,
}

/// The journal objects of a point, when they have been put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journaled {
    /// Sequence of the first of them.
    pub first: u64,
    /// Sequence of the last.
    pub last: u64,
    /// Of the last.
    pub salt: Salt,
    /// All of them together.
    pub bytes: u64,
}

/// The bucket is not this gateway's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTheWriter {
    /// Another one has put a root.
    #[error("another gateway is the writer of the store")]
    Other,
    /// There was a root, and it is gone.
    #[error("the store has lost its root, the object `root`")]
    RootMissing,
}

/// What a gateway knows of the bucket's root. It MUST be durable before a root is put, and again before anything is done
/// that relies on the root having arrived.
#[derive(Clone, Debug)]
pub struct Publisher {
    writer: RootWriter,
    current: Option<KnownRoot>,
    attempts: Vec<KnownRoot>,
    /// Sequence of a root of which there is a copy since a moment ago: the next root names it.
    copied: Option<u64>,
}

impl Publisher {
    /// From what was kept; nothing before the first root.
    pub fn new(writer: RootWriter, current: Option<KnownRoot>, attempts: Vec<KnownRoot>) -> Self {
        Self {
            writer,
            current,
            attempts,
            copied: None,
        }
    }

    /// From what [`Self::encode`] has made.
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub fn decode(bytes: &[u8], writer: RootWriter) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        expect_magic(&mut reader, "kept roots magic", MAGIC)?;
        let has_current = reader.u32("kept roots flags")? != 0;
        let count = reader.u32("kept roots count")?;
        let mut roots = VecDeque::new();
        for _ in 0..count {
            let salt = Salt(reader.digest("kept root salt")?);
            let length = reader.u32("kept root length")? as usize;
            let root = Root::decode(reader.bytes("kept root", length)?)?;
            roots.push_back(KnownRoot { root, salt });
        }
        let computed = xxh3_64(&bytes[..reader.offset()]);
        let found = reader.u64("kept roots checksum")?;
        if found != computed {
            return Err(DecodeError::Checksum {
                what: "kept roots",
                found,
                computed,
            });
        }
        reader.finish("kept roots")?;
        let current = if has_current { roots.pop_front() } else { None };
        Ok(Self::new(writer, current, roots.into()))
    }

    /// As the state directory keeps it: magic "TMBROOTS", whether there is a current root u32, count u32, per root salt,
    /// length u32 and the root, the current one first; then XXH3-64 of all before.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let roots = self.current.iter().chain(&self.attempts);
        out.bytes(MAGIC)
            .u32(u32::from(self.current.is_some()))
            .u32(roots.clone().count() as u32);
        for known in roots {
            let root = known.root.encode();
            out.bytes(&known.salt.0).u32(root.len() as u32).bytes(&root);
        }
        let sum = xxh3_64(&out.0);
        out.u64(sum);
        out.0
    }

    /// The root that the bucket held when it was last known.
    pub fn current(&self) -> Option<&KnownRoot> {
        self.current.as_ref()
    }

    /// Roots that were put in its place, of which it is not known whether they arrived.
    pub fn attempts(&self) -> &[KnownRoot] {
        &self.attempts
    }

    /// Takes in which root the bucket holds now.
    ///
    /// # Errors
    /// When it is none of this gateway's: nothing may be put any more.
    pub fn found(&mut self, found: Option<Salt>) -> Result<(), NotTheWriter> {
        let current = self.current.as_ref().map(|known| known.salt);
        let Some(salt) = found else {
            return current.map_or(Ok(()), |_| Err(NotTheWriter::RootMissing));
        };
        if current == found {
            return Ok(());
        }
        let arrived = self.attempts.drain(..).find(|attempt| attempt.salt == salt);
        self.current = Some(arrived.ok_or(NotTheWriter::Other)?);
        Ok(())
    }

    /// The recovery point that the current root names, if this state directory put it.
    pub fn published(&self) -> Option<PublishedPoint> {
        let root = &self.current.as_ref()?.root;
        (root.identity == self.writer.identity).then_some(PublishedPoint {
            lsn: Lsn(root.lsn),
            time: root.time,
        })
    }

    /// Sequence and predecessor of the next journal object.
    pub fn next_journal(&self) -> (u64, Salt) {
        let last = self.current.as_ref().map(|known| &known.root);
        last.map_or((1, Salt::NONE), |root| (root.journal_last + 1, root.journal_salt))
    }

    /// Of the roots and journal objects that this gateway puts.
    pub fn epoch(&self) -> u64 {
        self.current.as_ref().map_or(1, |known| known.root.epoch)
    }

    /// The root that says that the point is in the bucket.
    pub fn root_of(&self, point: &RecoveryPoint, journaled: &Journaled, random: u64) -> Root {
        let before = self.renewed(random, false);
        let (next, _) = self.next_journal();
        assert_eq!(journaled.first, next, "journal objects follow each other");
        assert!(
            self.current.is_none()
                || point.is_whole
                || before.lsn <= point.lsn.0
                || before.identity != self.writer.identity,
            "points follow each other"
        );
        let begins = point.is_whole || before.journal_first == 0;
        Root {
            lsn: point.lsn.0,
            time: point.time,
            next_pvbn: point.next_pvbn.0,
            next_volume: point.next_volume,
            journal_first: if begins { journaled.first } else { before.journal_first },
            journal_last: journaled.last,
            journal_salt: journaled.salt,
            journal_bytes: journaled.bytes + if begins { 0 } else { before.journal_bytes },
            // The point has all that the tree has.
            tree: if point.is_whole { Vec::new() } else { before.tree },
            ..before
        }
    }

    /// There is a copy of the current root, which is kept as long as there are not too many.
    pub fn copied(&mut self) {
        self.copied = self.current.as_ref().map(|known| known.root.sequence);
    }

    /// Roots of which copies are to be there: those that the current root names, and the one that the next will name too.
    pub fn kept(&self) -> Vec<u64> {
        let current = self.current.as_ref();
        let mut kept = current.map(|known| known.root.kept.clone()).unwrap_or_default();
        kept.extend(self.copied.filter(|copied| !kept.contains(copied)));
        kept
    }

    /// The root that says again what the current one says, and who the writer is.
    pub fn renewed(&self, random: u64, is_released: bool) -> Root {
        let before = self.current.as_ref();
        let root = before.map(|known| known.root.clone()).unwrap_or_default();
        let kept = self.kept();
        let surplus = kept.len().saturating_sub(self.writer.roots_kept);
        Root {
            kept: kept[surplus..].to_vec(),
            epoch: self.epoch(),
            sequence: root.sequence + 1,
            random,
            identity: self.writer.identity,
            lease_ms: self.writer.lease_ms,
            before: before.map_or(Salt::NONE, |known| known.salt),
            is_released,
            writer: self.writer.name.clone(),
            ..root
        }
    }

    /// The root that has the whole journal in its tree.
    pub fn folded(&self, folded: &Folded, random: u64) -> Root {
        Root {
            tree: folded.tree.encode(),
            usage: Some(folded.usage_at),
            journal_first: 0,
            journal_bytes: 0,
            ..self.renewed(random, false)
        }
    }

    /// The root by which this gateway takes the bucket over from another writer, or from a state directory that is lost.
    pub fn taking_over(&self, random: u64, lsn: u64) -> Root {
        let root = self.renewed(random, false);
        Root {
            epoch: root.epoch + 1,
            lsn,
            ..root
        }
    }

    /// The same, with what an earlier root held: what came after it is left behind. `earlier` MUST name no journal, and MUST be
    /// one that the current root keeps; the table at `usage` says which objects of nodes are needed then.
    pub fn taking_over_at(&self, earlier: &Root, usage: Option<Pointer>, random: u64, lsn: u64) -> Root {
        assert_eq!(earlier.journal_first, 0, "the tree has all that it held");
        assert!(self.is_kept(earlier), "nothing of it is deleted");
        Root {
            time: earlier.time,
            tree: earlier.tree.clone(),
            usage,
            journal_first: 0,
            journal_bytes: 0,
            ..self.taking_over(random, lsn)
        }
    }

    /// Whether nothing that this root names is deleted as long as the current root is.
    pub fn is_kept(&self, root: &Root) -> bool {
        let is_kept_by = |current: &Root| current.sequence == root.sequence || current.kept.contains(&root.sequence);
        self.current.as_ref().is_some_and(|known| is_kept_by(&known.root))
    }

    /// A root is about to be put in place of the current one.
    pub fn attempt(&mut self, known: KnownRoot) {
        let before = self.current.as_ref().map_or(Salt::NONE, |known| known.salt);
        assert_eq!(known.root.before, before, "it takes the place of the current one");
        if !self.attempts.contains(&known) {
            self.attempts.push(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::Lsn;
    use crate::format::superblock::Totals;
    use crate::state::entry_overlay::Entries;
    use crate::state::extent_map::ExtentMap;
    use alloc::collections::BTreeMap;
    use tombolo_base::{Pvbn, WallTime};

    fn publisher(identity: u64, current: Option<KnownRoot>) -> Publisher {
        let writer = RootWriter {
            identity,
            name: alloc::format!("gateway {identity}"),
            lease_ms: 1000,
            roots_kept: 2,
        };
        Publisher::new(writer, current, Vec::new())
    }

    fn point(lsn: u64, is_whole: bool) -> RecoveryPoint {
        RecoveryPoint {
            lsn: Lsn(lsn),
            time: WallTime(lsn as u32),
            next_pvbn: Pvbn(lsn * 10),
            next_volume: 1,
            totals: Totals::default(),
            is_whole,
            map: ExtentMap::default(),
            entries: Entries::default(),
            volumes: BTreeMap::new(),
            objects: BTreeMap::new(),
        }
    }

    fn known(root: Root) -> KnownRoot {
        let mut salt = [0; 32];
        salt[..8].copy_from_slice(&root.random.to_le_bytes());
        salt[8..16].copy_from_slice(&root.sequence.to_le_bytes());
        KnownRoot { root, salt: Salt(salt) }
    }

    fn tried(publisher: &mut Publisher, lsn: u64, is_whole: bool, random: u64) -> KnownRoot {
        let (first, _) = publisher.next_journal();
        let (last, bytes) = (first + 1, 100);
        let salt = Salt([random as u8; 32]);
        let journaled = Journaled {
            first,
            last,
            salt,
            bytes,
        };
        let root = known(publisher.root_of(&point(lsn, is_whole), &journaled, random));
        publisher.attempt(root.clone());
        root
    }

    #[test]
    fn roots_follow_each_other() {
        let mut publisher = publisher(7, None);
        assert_eq!(publisher.found(None), Ok(()));
        let first = tried(&mut publisher, 10, true, 1);
        assert_eq!(
            (first.root.epoch, first.root.sequence, first.root.before),
            (1, 1, Salt::NONE)
        );
        assert_eq!((first.root.journal_first, first.root.journal_last), (1, 2));
        publisher.found(Some(first.salt)).unwrap();
        let second = tried(&mut publisher, 20, false, 2);
        assert_eq!((second.root.sequence, second.root.before), (2, first.salt));
        assert_eq!((second.root.journal_first, second.root.journal_last), (1, 4));
        assert_eq!((second.root.lsn, second.root.journal_bytes), (20, 200));
        publisher.found(Some(second.salt)).unwrap();
        let whole = tried(&mut publisher, 30, true, 3);
        assert_eq!((whole.root.journal_first, whole.root.journal_bytes), (5, 100));
        let renewed = publisher.renewed(9, true);
        assert_eq!((renewed.lsn, renewed.sequence, renewed.is_released), (20, 3, true));
    }

    #[test]
    fn an_attempt_without_an_answer_may_arrive_or_not() {
        let mut publisher = publisher(7, None);
        let first = tried(&mut publisher, 10, true, 1);
        publisher.found(None).unwrap();
        let again = tried(&mut publisher, 12, true, 2);
        // The first one came late, and so the second one never will.
        publisher.found(Some(first.salt)).unwrap();
        assert_eq!((publisher.current(), publisher.attempts().len()), (Some(&first), 0));
        assert_eq!(
            publisher.found(Some(again.salt)),
            Err(NotTheWriter::Other),
            "a copy of this state directory"
        );
        assert_eq!(publisher.found(None), Err(NotTheWriter::RootMissing));
    }

    #[test]
    fn what_is_kept_comes_back() {
        let mut publisher = publisher(7, None);
        let first = tried(&mut publisher, 10, true, 1);
        for found in [None, Some(first.salt)] {
            publisher.found(found).unwrap();
            tried(&mut publisher, 20, true, 2);
            let bytes = publisher.encode();
            let kept = Publisher::decode(&bytes, publisher.writer.clone()).unwrap();
            assert_eq!(
                (&kept.current, &kept.attempts),
                (&publisher.current, &publisher.attempts)
            );
            assert_eq!(kept.published().is_some(), found.is_some());
            for index in 0..bytes.len() {
                let mut altered = bytes.clone();
                altered[index] ^= 4;
                assert!(
                    Publisher::decode(&altered, publisher.writer.clone()).is_err(),
                    "byte {index}"
                );
                assert!(Publisher::decode(&bytes[..index], publisher.writer.clone()).is_err());
            }
        }
    }

    #[test]
    fn who_is_taken_over_from_knows_it_by_the_root() {
        let mut old = publisher(7, None);
        let first = tried(&mut old, 10, true, 1);
        old.found(Some(first.salt)).unwrap();
        let mut new = publisher(8, Some(first.clone()));
        let taken = known(new.taking_over(5, 0));
        assert_eq!((taken.root.epoch, taken.root.identity, taken.root.lsn), (2, 8, 0));
        assert_eq!((taken.root.journal_last, taken.root.next_pvbn), (2, 100));
        new.attempt(taken.clone());
        new.found(Some(taken.salt)).unwrap();
        assert_eq!(new.epoch(), 2);
        let late = tried(&mut old, 20, false, 3);
        assert_eq!(old.found(Some(taken.salt)), Err(NotTheWriter::Other));
        assert_ne!(
            late.root.before, taken.salt,
            "it does not take the place of the new one"
        );
    }
}
