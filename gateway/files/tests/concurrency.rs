//! Many threads at once: no deadlock, no contradiction, and checks that run meanwhile find nothing.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use support::{World, at, node};
use tombolo_base::Prng;
use tombolo_files::locks::{Lock, LockFamily, LockKind, LockOwner, LockRange};
use tombolo_files::{Allocate, FileError, OpenFlags, Place, ROOT, RenameMode, SessionKind, SetAttributes, XattrFlags};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const THREADS: u64 = 4;
const REQUESTS: usize = 6000;

struct Thread<'a> {
    world: &'a World,
    session: u64,
    random: Prng,
    inodes: Vec<u64>,
}

impl Thread<'_> {
    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn inode(&mut self) -> u64 {
        let latest = self.inodes.len().min(8);
        let index = self.below(latest + 1);
        if index == latest {
            ROOT
        } else {
            self.inodes[self.inodes.len() - 1 - index]
        }
    }

    fn request(&mut self) -> Result<(), FileError> {
        let service = &self.world.service;
        let caller = &self.world.caller_of(self.session);
        let (inode, other) = (self.inode(), self.inode());
        let name = at(inode, NAMES[self.below(NAMES.len())]);
        let new = at(other, NAMES[self.below(NAMES.len())]);
        let place = Place {
            inode,
            offset: self.below(20_000) as u64,
        };
        match self.below(18) {
            0 | 1 => self.inodes.push(service.mkdir(caller, name, node(0o755))?.inode),
            2 | 3 => self
                .inodes
                .push(service.create(caller, name, node(0o644), OpenFlags::default())?.0.inode),
            4 => drop(service.link(caller, inode, new)?),
            5 => service.unlink(caller, name)?,
            6 => service.rmdir(caller, name)?,
            7 | 8 => service.rename(caller, name, new, RenameMode::Replace)?,
            9 => service.rename(caller, name, new, RenameMode::Exchange)?,
            10 | 11 => drop(service.write(caller, place, vec![7; 6000].into(), true)?),
            12 => {
                let to = Place {
                    inode: other,
                    offset: 0,
                };
                service.copy_range(caller, Place { inode, offset: 0 }, to, 9000)?;
            }
            13 => service.fallocate(caller, place, 5000, Allocate::PunchHole)?,
            14 => service.release(caller, inode)?,
            15 => {
                let size = Some(place.offset);
                let set = SetAttributes {
                    size,
                    mode: Some(0o640),
                    ..SetAttributes::default()
                };
                service.setattr(caller, inode, &set)?;
            }
            16 => service.setxattr(caller, inode, b"user.x", b"x", XattrFlags::default())?,
            _ => {
                let owner = LockOwner { session: 0, owner: 1 };
                let lock = Lock {
                    owner,
                    range: LockRange::WHOLE,
                    kind: LockKind::Write,
                    pid: 1,
                    handle: 0,
                };
                let replied = Box::new(|_| ());
                let waits = service.set_lock_wait(caller, inode, LockFamily::Posix, lock, replied)?;
                if waits.is_some_and(|waiter| !service.cancel_lock(waiter)) || self.below(2) == 0 {
                    service.unlock(caller, inode, LockFamily::Posix, 1, LockRange::WHOLE)?;
                }
            }
        }
        Ok(())
    }

    fn run(&mut self) -> usize {
        let mut done = 0;
        for _ in 0..REQUESTS {
            match self.request() {
                Ok(()) => done += 1,
                Err(error @ (FileError::Damaged(_) | FileError::Inconsistent(_) | FileError::Failed(_))) => {
                    panic!("{error}")
                }
                Err(_) => (),
            }
        }
        done
    }
}

#[test]
fn threads_do_not_disturb_each_other() {
    let world = World::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let report = world.service.check(&mut |_, _| ()).unwrap();
                assert_eq!(report.findings, []);
            }
        });
        let spawn = |seed| {
            let session = world.attach(format!("thread{seed}").as_bytes(), SessionKind::Client);
            let world = &world;
            scope.spawn(move || {
                let random = Prng::new(seed);
                let mut thread = Thread {
                    world,
                    session,
                    random,
                    inodes: Vec::new(),
                };
                thread.run()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        let done: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).collect();
        is_over.store(true, Ordering::Relaxed);
        println!("requests that succeeded, by seed: {done:?}");
        assert!(done.iter().all(|done| *done > REQUESTS / 10), "{done:?}");
    });
    world.check();
    for session in world.service.sessions() {
        world.service.end_session(session.session).unwrap();
    }
    world.check();
    world.service.delete_share(support::SHARE, &mut |_| ()).unwrap();
    assert_eq!(world.storage.mapped_blocks(), 0);
}
