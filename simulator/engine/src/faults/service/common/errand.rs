//! What a client sets out to do where all of them meet.

use super::super::jobs::{self, Files, Job, Outcome, Places};
use std::sync::{Arc, mpsc};
use tombolo_base::Prng;
use tombolo_files::locks::{Lock, LockFamily, LockKind, LockOwner, LockRange};
use tombolo_files::model::{Operation, ask};
use tombolo_files::{Caller, FileError, NameIn, NewNode, OpenFlags, Place, RenameMode, SetAttributes};

/// Eight to a block, so that writers of different records meet in one.
pub(super) const RECORD_BYTES: usize = 512;
/// Records that are read at once; all of them.
const RECORDS_MAX: usize = 16;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// What each client makes for itself alone, in the first directory.
const NAME: &[u8] = b"taken";
/// Requests are for one of so many of the latest inodes, and the two directories.
const LATEST_INODES: u64 = 6;
/// Files are no longer than about this.
const FILE_BYTES_MAX: u64 = 20_000;

#[derive(Clone, Debug)]
pub(super) enum Errand {
    Write {
        record: usize,
        stamp: u64,
    },
    Read {
        began: u64,
    },
    TakeName,
    DropName,
    Lock {
        range: LockRange,
        waits: bool,
    },
    Unlock,
    Sync {
        began: u64,
    },
    /// Anything, anywhere below the two directories.
    Free(Operation),
    Copy {
        from: Place,
        to: Place,
        bytes: u64,
    },
    /// Before anybody goes on: at what there is.
    Look,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    Done,
    Made(u64),
    Read(Vec<u8>),
    Looked(Vec<u8>),
    Waits,
}

impl Errand {
    pub fn draw_lock(prng: &mut Prng) -> Self {
        let start = prng.below(30);
        let end = start + prng.below(20);
        Self::Lock {
            range: LockRange { start, end },
            waits: prng.chance(500),
        }
    }

    pub fn draw(prng: &mut Prng, places: &Places, inodes: &[u64]) -> Self {
        use Operation::*;
        let inode = |prng: &mut Prng| {
            let latest = inodes.len().saturating_sub(1 + prng.below(LATEST_INODES) as usize);
            let other = inodes.get(latest).copied();
            let directory = places.common[prng.below(2) as usize];
            other.filter(|_| prng.chance(500)).unwrap_or(directory)
        };
        let at = |prng: &mut Prng| (inode(prng), NAMES[prng.below(4) as usize]);
        Self::Free(match prng.below(40) {
            0..5 => Mkdir(at(prng)),
            5..9 => Mknod(at(prng)),
            9 => Symlink(at(prng)),
            10..14 => Link(inode(prng), at(prng)),
            14..18 => Unlink(at(prng)),
            18..21 => Rmdir(at(prng)),
            21..31 => {
                let modes = [RenameMode::Replace, RenameMode::Exchange];
                Rename(at(prng), at(prng), modes[prng.below(4).saturating_sub(2) as usize])
            }
            31..33 => Create {
                at: at(prng),
                session: 0,
                exclusive: false,
            },
            33 => Release(inode(prng), 0),
            34..37 => Write {
                inode: inode(prng),
                offset: prng.below(FILE_BYTES_MAX),
                bytes: 1 + prng.below(5_000) as usize,
                byte: 7,
            },
            37 => Resize(inode(prng), prng.below(FILE_BYTES_MAX)),
            _ => {
                let place = |prng: &mut Prng| Place {
                    inode: inode(prng),
                    offset: prng.below(4) * 4096,
                };
                return Self::Copy {
                    from: place(prng),
                    to: place(prng),
                    bytes: prng.below(FILE_BYTES_MAX),
                };
            }
        })
    }

    /// `granted` is told of a lock that had to be waited for.
    pub fn job(
        self,
        files: Arc<Files>,
        places: Places,
        caller: Caller,
        clears_name: bool,
        granted: impl FnOnce(Result<(), FileError>) + Send + 'static,
    ) -> Job {
        let visit = Visit { files, places, caller };
        Box::new(move || {
            Outcome::Met(match self {
                Self::Look => visit.look(clears_name),
                Self::Lock { range, waits: true } => visit.wait_for_lock(range, Box::new(granted)),
                errand => visit.run(errand),
            })
        })
    }
}

/// A client at the service.
struct Visit {
    files: Arc<Files>,
    places: Places,
    caller: Caller,
}

type Met = Result<Meeting, FileError>;

impl Visit {
    fn run(&self, errand: Errand) -> Met {
        let (files, caller) = (&self.files, &self.caller);
        match errand {
            Errand::Write { record, stamp } => {
                let data = stamp.to_le_bytes().repeat(RECORD_BYTES / 8);
                let to = Place {
                    inode: self.places.file,
                    offset: (record * RECORD_BYTES) as u64,
                };
                files.write(caller, to, data.into(), false)?;
            }
            Errand::Read { .. } => return self.read().map(Meeting::Read),
            Errand::TakeName => {
                let flags = OpenFlags {
                    exclusive: true,
                    ..OpenFlags::default()
                };
                files.create(caller, self.name(), plain(), flags)?;
            }
            Errand::DropName => files.unlink(caller, self.name())?,
            Errand::Lock { range, .. } => {
                files.set_lock(caller, self.places.file, LockFamily::Posix, exclusive(range))?;
            }
            Errand::Unlock => files.unlock(caller, self.places.file, LockFamily::Posix, 0, LockRange::WHOLE)?,
            Errand::Sync { .. } => jobs::synced(files, self.places.share)?,
            Errand::Free(operation) => {
                let given = ask(files, &[*caller, *caller], &operation)?;
                return Ok(given.made().map_or(Meeting::Done, Meeting::Made));
            }
            Errand::Copy { from, to, bytes } => drop(files.copy_range(caller, from, to, bytes)?),
            Errand::Look => unreachable!("a look is no such errand"),
        }
        Ok(Meeting::Done)
    }

    fn name(&self) -> NameIn<'static> {
        NameIn {
            parent: self.places.common[0],
            name: NAME,
        }
    }

    fn read(&self) -> Result<Vec<u8>, FileError> {
        let (reply, answer) = mpsc::channel();
        let from = Place {
            inode: self.places.file,
            offset: 0,
        };
        let reply = Box::new(move |read| drop(reply.send(read)));
        self.files.read(&self.caller, from, RECORDS_MAX * RECORD_BYTES, reply);
        answer
            .recv()
            .unwrap_or(Err(FileError::Failed("storage gave no answer".into())))
    }

    /// After a power loss the name may be there, and whoever had made it has given up.
    fn look(&self, clears_name: bool) -> Met {
        let unnumbered = Caller {
            request: tombolo_files::Request::Unnumbered,
            ..self.caller
        };
        if clears_name {
            match self.files.unlink(&unnumbered, self.name()) {
                Ok(()) | Err(FileError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        self.read().map(Meeting::Looked)
    }

    fn wait_for_lock(&self, range: LockRange, granted: tombolo_files::Reply) -> Met {
        let (files, caller) = (&self.files, &self.caller);
        let lock = exclusive(range);
        let waiter = files.set_lock_wait(caller, self.places.file, LockFamily::Posix, lock, granted)?;
        Ok(waiter.map_or(Meeting::Done, |_| Meeting::Waits))
    }
}

fn exclusive(range: LockRange) -> Lock {
    Lock {
        owner: LockOwner { session: 0, owner: 0 },
        range,
        kind: LockKind::Write,
        pid: 1,
        handle: 0,
    }
}

fn plain() -> NewNode {
    NewNode {
        mode: 0o644,
        umask: 0,
        device: 0,
        attributes: SetAttributes::default(),
    }
}
