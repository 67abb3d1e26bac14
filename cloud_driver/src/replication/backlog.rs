//! What a replica lacks, and what is to be removed from it once its root allows: pure, as a fold over records, which a file keeps
//! ([`super::backlog_file`]). And by which roots the replica is known to be this gateway's.
//!
//! It is bounded. What does not fit is given up as a whole: then only a comparison of both listings tells what is lacking, and
//! until that has come to its end the replica's root stays where it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tombolo_base::{DecodeError, Reader, Writer};

/// What tells a root from all others.
pub type RootSalt = [u8; 32];

/// One change of what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The replica lacks an object, or has it as it was before. Seconds since 1970.
    Bring { key: String, bytes: u64, time_s: u64 },
    /// The replica has an object that the primary has no more.
    Remove { key: String, time_s: u64 },
    /// The replica has, or lacks, the object as the primary does.
    Settled { key: String },
    /// What is lacking is not known any more.
    Compare { time_s: u64 },
    /// Everything that was lacking at the last [`Self::Compare`] is there or noted.
    Compared,
    /// This root is about to be put.
    RootAttempt(RootSalt),
    /// This root was put, or found.
    RootFound(RootSalt),
    /// Whatever root is there is another's, and may be replaced.
    RootForgotten,
    /// Something was put in this round (see [`super::proof`]) that no root has followed yet.
    Unproven { round: u64 },
    /// What was put in earlier rounds is there.
    Proven { below: u64 },
}

/// What is to be done for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// It is brought.
    Bring,
    /// It is removed.
    Remove,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Arc<str>,
    task: Task,
    bytes: u64,
    time_s: u64,
}

/// How far a replica is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Objects that are to be brought.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that are to be removed.
    pub removals: u64,
    /// Since when something has been lacking, in seconds since 1970.
    pub since_s: Option<u64>,
    /// There may be more, which a comparison has to find.
    pub is_incomplete: bool,
}

/// The fold.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    entries: BTreeMap<u64, Entry>,
    by_key: HashMap<Arc<str>, u64>,
    next: u64,
    bring_bytes: u64,
    brings: u64,
    /// Since when.
    to_compare: Option<u64>,
    /// Counts [`Record::Compare`].
    generation: u64,
    /// The newest that is known to have been there.
    root: Option<RootSalt>,
    /// After it.
    root_attempts: Vec<RootSalt>,
    /// The last round in which something was put that may be elsewhere.
    unproven: Option<u64>,
}

impl Backlog {
    /// One record further.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Bring { key, bytes, time_s } => self.note(key, Task::Bring, *bytes, *time_s),
            Record::Remove { key, time_s } => self.note(key, Task::Remove, 0, *time_s),
            Record::Settled { key } => self.settle(key),
            Record::Compare { time_s } => {
                let oldest = self.oldest_s().into_iter().chain(self.to_compare);
                self.to_compare = oldest.chain([*time_s]).min();
                self.generation += 1;
                self.entries.clear();
                self.by_key.clear();
                (self.bring_bytes, self.brings) = (0, 0);
            }
            Record::Compared => self.to_compare = None,
            Record::RootAttempt(salt) => {
                if !self.root_attempts.contains(salt) {
                    self.root_attempts.push(*salt);
                }
            }
            Record::RootFound(salt) => {
                self.root = Some(*salt);
                self.root_attempts.clear();
            }
            Record::RootForgotten => {
                self.root = None;
                self.root_attempts.clear();
            }
            // In whichever order they come.
            Record::Unproven { round } => self.unproven = self.unproven.max(Some(*round)),
            Record::Proven { below } => {
                self.unproven.take_if(|round| *round < *below);
            }
        }
    }

    /// What has to be known, in the fewest records.
    pub fn records(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.root.map(Record::RootFound).into_iter().collect();
        records.extend(self.root_attempts.iter().map(|salt| Record::RootAttempt(*salt)));
        records.extend(self.unproven.map(|round| Record::Unproven { round }));
        records.extend(self.to_compare.map(|time_s| Record::Compare { time_s }));
        records.extend(self.entries.values().map(|entry| {
            let (key, time_s) = (entry.key.to_string(), entry.time_s);
            match entry.task {
                Task::Bring => Record::Bring {
                    key,
                    bytes: entry.bytes,
                    time_s,
                },
                Task::Remove => Record::Remove { key, time_s },
            }
        }));
        records
    }

    /// Objects that something is to be done for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number that the next note gets; those before are lower.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether everything that was noted below this number has been brought, and nothing is unknown.
    pub fn has_brought(&self, below: u64) -> bool {
        let mut earlier = self.entries.range(..below);
        self.to_compare.is_none() && earlier.all(|(_, entry)| entry.task == Task::Remove)
    }

    /// What is to be done for an object.
    pub fn task(&self, key: &str) -> Option<Task> {
        let number = self.by_key.get(key)?;
        self.entries.get(number).map(|entry| entry.task)
    }

    /// The first of them, in the order in which they were noted.
    pub fn first(&self, task: Task, most: usize) -> Vec<Arc<str>> {
        let wanted = self.entries.values().filter(|entry| entry.task == task);
        wanted.take(most).map(|entry| entry.key.clone()).collect()
    }

    /// Whether a comparison is needed.
    pub fn is_to_compare(&self) -> bool {
        self.to_compare.is_some()
    }

    /// Another one: what was lacking was given up again meanwhile.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The last round in which something was put that no root has followed yet.
    pub fn unproven(&self) -> Option<u64> {
        self.unproven
    }

    /// Whether a root of this gateway's is known to have been there.
    pub fn has_had_root(&self) -> bool {
        self.root.is_some()
    }

    /// Whether it is one of those that may be there: the one that was, or one that was about to be put since.
    pub fn is_own_root(&self, salt: &RootSalt) -> bool {
        self.root.as_ref() == Some(salt) || self.root_attempts.contains(salt)
    }

    /// How far it is behind.
    pub fn behind(&self) -> Behind {
        Behind {
            objects: self.brings,
            bytes: self.bring_bytes,
            removals: self.entries.len() as u64 - self.brings,
            since_s: self.to_compare.into_iter().chain(self.oldest_s()).min(),
            is_incomplete: self.to_compare.is_some(),
        }
    }

    fn oldest_s(&self) -> Option<u64> {
        self.entries.values().next().map(|entry| entry.time_s)
    }

    fn note(&mut self, key: &str, task: Task, bytes: u64, time_s: u64) {
        let known = self.by_key.get(key).and_then(|number| self.entries.get_mut(number));
        if let Some(entry) = known.filter(|entry| entry.task == task) {
            // It keeps its place: a root that waits for it waits rightly.
            if task == Task::Bring {
                self.bring_bytes = self.bring_bytes - entry.bytes + bytes;
                entry.bytes = bytes;
            }
            return;
        }
        self.settle(key);
        let key: Arc<str> = key.into();
        self.by_key.insert(key.clone(), self.next);
        let entry = Entry {
            key,
            task,
            bytes,
            time_s,
        };
        self.entries.insert(self.next, entry);
        self.next += 1;
        if task == Task::Bring {
            self.brings += 1;
            self.bring_bytes += bytes;
        }
    }

    fn settle(&mut self, key: &str) {
        let number = self.by_key.remove(key);
        let Some(entry) = number.and_then(|number| self.entries.remove(&number)) else {
            return;
        };
        if entry.task == Task::Bring {
            self.brings -= 1;
            self.bring_bytes -= entry.bytes;
        }
    }
}

impl Record {
    /// As the file has it, without length and sum.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(64);
        match self {
            Self::Bring { key, bytes, time_s } => {
                writer.u8(1).u64(*time_s).u64(*bytes).bytes(key.as_bytes());
            }
            Self::Remove { key, time_s } => {
                writer.u8(2).u64(*time_s).bytes(key.as_bytes());
            }
            Self::Settled { key } => {
                writer.u8(3).bytes(key.as_bytes());
            }
            Self::Compare { time_s } => {
                writer.u8(4).u64(*time_s);
            }
            Self::Compared => {
                writer.u8(5);
            }
            Self::RootAttempt(salt) => {
                writer.u8(6).bytes(salt);
            }
            Self::RootFound(salt) => {
                writer.u8(7).bytes(salt);
            }
            Self::RootForgotten => {
                writer.u8(8);
            }
            Self::Unproven { round } => {
                writer.u8(9).u64(*round);
            }
            Self::Proven { below } => {
                writer.u8(10).u64(*below);
            }
        }
        writer.0
    }

    /// What [`Self::encode`] has made.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(bytes);
        let record = match reader.u8("kind")? {
            1 => {
                let (time_s, bytes) = (reader.u64("time")?, reader.u64("bytes")?);
                let key = key(reader)?;
                Self::Bring { key, bytes, time_s }
            }
            2 => {
                let time_s = reader.u64("time")?;
                let key = key(reader)?;
                Self::Remove { key, time_s }
            }
            3 => Self::Settled { key: key(reader)? },
            4 => Self::Compare {
                time_s: reader.u64("time")?,
            },
            5 => Self::Compared,
            6 => Self::RootAttempt(reader.digest("salt")?),
            7 => Self::RootFound(reader.digest("salt")?),
            8 => Self::RootForgotten,
            9 => Self::Unproven {
                round: reader.u64("round")?,
            },
            10 => Self::Proven {
                below: reader.u64("round")?,
            },
            kind => {
                return Err(DecodeError::Invalid {
                    what: "kind of a record",
                    value: kind.into(),
                });
            }
        };
        reader.finish("record")?;
        Ok(record)
    }
}

fn key(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.bytes("key", reader.remaining())?;
    let text = String::from_utf8(bytes.to_vec());
    text.map_err(|error| DecodeError::Invalid {
        what: "key, which has to be UTF-8",
        value: error.utf8_error().valid_up_to() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let key = || (0..6_u8).prop_map(|key| format!("objects/{key}"));
        prop_oneof![
            4 => (key(), 0..100_u64, 0..50_u64).prop_map(|(key, bytes, time_s)| Record::Bring { key, bytes, time_s }),
            2 => (key(), 0..50_u64).prop_map(|(key, time_s)| Record::Remove { key, time_s }),
            4 => key().prop_map(|key| Record::Settled { key }),
            1 => (0..50_u64).prop_map(|time_s| Record::Compare { time_s }),
            1 => Just(Record::Compared),
            1 => any::<u8>().prop_map(|byte| Record::RootAttempt([byte; 32])),
            1 => any::<u8>().prop_map(|byte| Record::RootFound([byte; 32])),
            1 => Just(Record::RootForgotten),
            1 => (0..4_u64).prop_map(|round| Record::Unproven { round }),
            1 => (0..4_u64).prop_map(|below| Record::Proven { below }),
        ]
    }

    fn fold(records: &[Record]) -> Backlog {
        let mut backlog = Backlog::default();
        records.iter().for_each(|record| backlog.apply(record));
        backlog
    }

    fn seen(backlog: &Backlog) -> (Vec<Record>, Behind, bool) {
        (backlog.records(), backlog.behind(), backlog.has_had_root())
    }

    #[test]
    fn a_root_waits_for_what_was_noted_before_it_and_for_no_removal() {
        let bring = |key: &str| Record::Bring {
            key: key.into(),
            bytes: 7,
            time_s: 3,
        };
        let mut backlog = fold(&[bring("a")]);
        let below = backlog.next();
        backlog.apply(&Record::Remove {
            key: "r".into(),
            time_s: 4,
        });
        backlog.apply(&bring("b"));
        assert!(!backlog.has_brought(below));
        backlog.apply(&Record::Settled { key: "a".into() });
        assert!(backlog.has_brought(below));
        assert!(!backlog.has_brought(backlog.next()));
        // Brought back in its old place, as it was not settled.
        backlog.apply(&bring("b"));
        let numbers = backlog.next();
        backlog.apply(&bring("b"));
        assert_eq!(backlog.next(), numbers);
        backlog.apply(&Record::Compare { time_s: 9 });
        assert!(!backlog.has_brought(0));
        let behind = backlog.behind();
        assert_eq!(
            (behind.objects, behind.since_s, behind.is_incomplete),
            (0, Some(4), true)
        );
        backlog.apply(&Record::Compared);
        assert!(backlog.has_brought(backlog.next()));
        assert_eq!(backlog.behind(), Behind::default());
    }

    #[test]
    fn a_root_is_known_from_the_attempt_on() {
        let (first, second, third) = ([1; 32], [2; 32], [3; 32]);
        let mut backlog = fold(&[Record::RootAttempt(first)]);
        assert!(!backlog.has_had_root() && backlog.is_own_root(&first) && !backlog.is_own_root(&second));
        backlog.apply(&Record::RootFound(first));
        backlog.apply(&Record::RootAttempt(second));
        backlog.apply(&Record::RootAttempt(third));
        assert!([first, second, third].iter().all(|salt| backlog.is_own_root(salt)));
        backlog.apply(&Record::RootFound(second));
        assert!(backlog.is_own_root(&second) && !backlog.is_own_root(&first) && !backlog.is_own_root(&third));
        backlog.apply(&Record::RootForgotten);
        assert!(!backlog.has_had_root() && !backlog.is_own_root(&second));
    }

    #[test]
    fn a_root_proves_the_rounds_before_it_in_whichever_order_that_is_noted() {
        let (put, proven) = (|round| Record::Unproven { round }, |below| Record::Proven { below });
        assert_eq!(fold(&[put(0), proven(1)]).unproven(), None);
        assert_eq!(fold(&[put(0), put(1), proven(1)]).unproven(), Some(1));
        assert_eq!(fold(&[put(1), put(0), proven(1)]).unproven(), Some(1));
        assert_eq!(fold(&[put(0), proven(1), put(1)]).unproven(), Some(1));
    }

    proptest! {
        #[test]
        fn what_is_written_anew_means_the_same(records in prop::collection::vec(record(), 0..40)) {
            let backlog = fold(&records);
            let again = fold(&backlog.records());
            prop_assert_eq!(seen(&again), seen(&backlog));
            for record in &records {
                prop_assert_eq!(&Record::decode(&record.encode()).unwrap(), record);
            }
        }

        /// Against the plain reading of the records.
        #[test]
        fn what_is_to_be_done_is_the_last_word_on_each_key(records in prop::collection::vec(record(), 0..40)) {
            let backlog = fold(&records);
            let mut model: BTreeMap<String, (Task, u64)> = BTreeMap::new();
            for record in &records {
                match record {
                    Record::Bring { key, bytes, .. } => { model.insert(key.clone(), (Task::Bring, *bytes)); }
                    Record::Remove { key, .. } => { model.insert(key.clone(), (Task::Remove, 0)); }
                    Record::Settled { key } => { model.remove(key); }
                    Record::Compare { .. } => model.clear(),
                    _ => {}
                }
            }
            prop_assert_eq!(backlog.len(), model.len());
            for (key, (task, _)) in &model {
                prop_assert_eq!(backlog.task(key), Some(*task));
            }
            let brings = model.values().filter(|(task, _)| *task == Task::Bring);
            let behind = backlog.behind();
            prop_assert_eq!(behind.bytes, brings.clone().map(|(_, bytes)| bytes).sum::<u64>());
            prop_assert_eq!(behind.objects, brings.count() as u64);
        }
    }
}
