//! After a crash the storage holds a prefix of the changes. Whichever prefix that is, nothing contradicts anything, a
//! request that is sent again is answered as before, and the service goes on.

mod support;

use proptest::prelude::*;
use std::sync::Arc;
use support::{World, at, check, node, open};
use tombolo_files::locks::{Lock, LockFamily, LockKind, LockOwner, LockRange};
use tombolo_files::memory::MemoryStorage;
use tombolo_files::{
    Allocate, Caller, FileError, FileService, OpenFlags, Place, RenameMode, Request, SetAttributes, XattrFlags,
    XattrMode,
};

type Service = FileService<MemoryStorage>;

/// A request as numbers, which stand for inodes made so far, names and sizes.
type Operation = (u8, usize, usize, usize, usize);

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The inode that the request made or named, if any.
fn carry_out(service: &Service, caller: &Caller, inodes: &[u64], operation: Operation) -> Result<u64, FileError> {
    let (what, first, name, second, other) = operation;
    // The root half of the time, else the latest.
    let pick = |index: usize| match index % 2 {
        0 => inodes[0],
        _ => inodes[inodes.len() - 1 - (index / 2) % inodes.len().min(5)],
    };
    let (inode, to) = (pick(first), pick(second));
    let place = at(inode, NAMES[name % 4]);
    let other_place = at(to, NAMES[other % 4]);
    let offset = (name * 1777) as u64;
    match what {
        0 | 1 => service.mkdir(caller, place, node(0o755)).map(|entry| entry.inode),
        2 => service.mknod(caller, place, node(0o100_644)).map(|entry| entry.inode),
        3 => service.symlink(caller, place, b"else").map(|entry| entry.inode),
        4 | 5 => service
            .create(caller, place, node(0o644), OpenFlags::default())
            .map(|(entry, _)| entry.inode),
        6 => service.tmpfile(caller, inode, node(0o600)).map(|entry| entry.inode),
        7 => service.link(caller, inode, other_place).map(|entry| entry.inode),
        8 | 9 => service.unlink(caller, place).map(|()| 0),
        10 => service.rmdir(caller, place).map(|()| 0),
        11 | 12 => service
            .rename(caller, place, other_place, RenameMode::Replace)
            .map(|()| 0),
        13 => service
            .rename(caller, place, other_place, RenameMode::Exchange)
            .map(|()| 0),
        14 | 15 => {
            let data = vec![other as u8; 1 + first * 3000];
            service
                .write(caller, Place { inode, offset }, data.into(), true)
                .map(|_| 0)
        }
        16 => {
            let set = SetAttributes {
                size: Some(offset),
                mode: Some(0o644),
                ..SetAttributes::default()
            };
            service.setattr(caller, inode, &set).map(|_| 0)
        }
        17 => {
            let mode = [Allocate::PunchHole, Allocate::ZeroRange, Allocate::Extend][other % 3];
            service
                .fallocate(caller, Place { inode, offset }, 5000, mode)
                .map(|()| 0)
        }
        18 | 19 => {
            let from = Place { inode, offset: 0 };
            let to = Place {
                inode: to,
                offset: (other % 4 * 4096) as u64,
            };
            service.copy_range(caller, from, to, 20_000).map(|_| 0)
        }
        20 => {
            let flags = XattrFlags {
                mode: [XattrMode::Create, XattrMode::Any][other % 2],
                ..XattrFlags::default()
            };
            service.setxattr(caller, inode, b"user.x", &[1; 20], flags).map(|()| 0)
        }
        21 => service.removexattr(caller, inode, b"user.x").map(|()| 0),
        22 => service.release(caller, inode).map(|()| 0),
        _ => {
            let wanted = Lock {
                owner: LockOwner {
                    session: 0,
                    owner: other as u64,
                },
                range: LockRange::WHOLE,
                kind: LockKind::Read,
                pid: 1,
                handle: 0,
            };
            service.set_lock(caller, inode, LockFamily::Posix, wanted).map(|()| 0)
        }
    }
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec((0u8..24, 0usize..8, 0usize..8, 0usize..8, 0usize..8), 1..50)
}

/// Whether carrying it out twice is told apart by its number. Opens and locks are not changes of anything that others
/// could have changed again.
fn is_numbered(what: u8) -> bool {
    matches!(what, 0..=21)
}

struct Done {
    operation: Operation,
    caller: Caller,
    inodes: Vec<u64>,
    answer: Result<u64, FileError>,
    /// Steps of storage before and after.
    steps: (usize, usize),
}

fn run(operations: Vec<Operation>) -> (Arc<MemoryStorage>, Vec<Done>) {
    let storage = Arc::new(MemoryStorage::recording());
    let world = World::over(storage.clone(), 0);
    let mut inodes = vec![world.service.shares()[0].root];
    let mut done = Vec::new();
    for (index, operation) in operations.into_iter().enumerate() {
        let caller = Caller {
            request: Request::Number(2 * index as u64),
            ..world.caller()
        };
        let before = storage.steps().len();
        let answer = carry_out(&world.service, &caller, &inodes, operation);
        done.push(Done {
            operation,
            caller,
            inodes: inodes.clone(),
            answer: answer.clone(),
            steps: (before, storage.steps().len()),
        });
        inodes.extend(answer.ok().filter(|inode| *inode != 0));
    }
    world.check();
    (storage, done)
}

fn end_all(service: &Service) {
    for session in service.sessions() {
        service.end_session(session.session).unwrap();
    }
    check(service);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn any_prefix_is_consistent_and_can_be_gone_on_from(operations in operations()) {
        let (storage, done) = run(operations);
        let steps = storage.steps();
        for count in 0..=steps.len() {
            let (service, _) = open(&Arc::new(MemoryStorage::replayed(&steps[..count])));
            check(&service);
            // Whoever writes next puts right what a cut short copy left.
            for inode in done.iter().filter_map(|done| done.answer.clone().ok()).filter(|inode| *inode != 0) {
                let caller = Caller { request: Request::Unnumbered, ..done[0].caller };
                let _gone_or_not_a_file = service.write(&caller, Place { inode, offset: 9000 }, vec![1].into(), false);
            }
            check(&service);
            end_all(&service);
            if let Some(share) = service.shares().first() {
                service.delete_share(&share.name, &mut |_| ()).unwrap();
                check(&service);
                prop_assert_eq!(service.storage().mapped_blocks(), 0);
            }
        }
    }

    #[test]
    fn a_request_that_is_sent_again_is_answered_as_before(operations in operations()) {
        let (storage, done) = run(operations);
        let steps = storage.steps();
        for done in done.iter().filter(|done| is_numbered(done.operation.0)) {
            let again = Caller {
                request: match done.caller.request {
                    Request::Number(number) => Request::Again(number),
                    other => other,
                },
                ..done.caller
            };
            // Carried out, or not, before the crash.
            for count in [done.steps.1, done.steps.0] {
                let (service, _) = open(&Arc::new(MemoryStorage::replayed(&steps[..count])));
                let changes = service.storage().calls().commits;
                let answer = carry_out(&service, &again, &done.inodes, done.operation);
                let changes = service.storage().calls().commits - changes;
                // Without its opens a removed file goes at once, so what refers to it later fails otherwise.
                let is_fresh = count == done.steps.0;
                if !is_fresh || done.answer.is_err() {
                    prop_assert_eq!(answer.is_ok(), done.answer.is_ok(), "{:?}", done.operation);
                }
                if !is_fresh && done.answer.is_ok() {
                    prop_assert_eq!(changes, 0, "{:?}", done.operation);
                }
                if !is_fresh {
                    prop_assert_eq!(&answer, &done.answer, "{:?}", done.operation);
                }
                check(&service);
            }
        }
    }
}

/// Storage makes a copy by reference in more than one step.
#[test]
fn a_copy_that_was_cut_short_is_put_right_by_the_next_write() {
    let storage = Arc::new(MemoryStorage::recording());
    let world = World::over(storage.clone(), 0);
    let source = world.mknod(1, "source");
    world.write(source, 0, &[7; 8 * 4096]).unwrap();
    let target = world.mknod(1, "target");
    world.write(target, 0, &[9; 2 * 4096]).unwrap();
    let before = storage.steps().len();
    let from = Place {
        inode: source,
        offset: 0,
    };
    let to = Place {
        inode: target,
        offset: 4096,
    };
    assert_eq!(
        world.service.copy_range(&world.caller(), from, to, 8 * 4096),
        Ok(8 * 4096)
    );
    let steps = storage.steps();
    let mut mapped = Vec::new();
    for count in before..=steps.len() {
        let storage = Arc::new(MemoryStorage::replayed(&steps[..count]));
        mapped.push(storage.mapped_blocks());
        let world = World::again(storage);
        world.check();
        let size = world.getattr(target).unwrap().size as usize;
        // Within the file there is the old or the new, behind its end nothing.
        assert!(
            world
                .read(target, 0, usize::MAX)
                .unwrap()
                .iter()
                .all(|byte| [7, 9].contains(byte))
        );
        let set = SetAttributes {
            size: Some(100_000),
            ..SetAttributes::default()
        };
        world.service.setattr(&world.caller(), target, &set).unwrap();
        assert!(
            world
                .read(target, size as u64, 100_000)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0)
        );
        let attributes = world.getattr(target).unwrap();
        assert_eq!(attributes.allocated_blocks, size as u64 / 4096);
        world.check();
    }
    assert_eq!(mapped, [10, 10, 13, 17]);
}

/// IdAllocator are taken from storage many at a time, here for the second time too.
#[test]
fn no_inode_number_is_given_out_twice() {
    let world = World::new();
    for index in 0..66_000 {
        let last = world.mknod(1, &format!("{index}"));
        if index % 6_000 == 0 {
            let killed = World::again(Arc::new(world.storage.copy()));
            assert!(killed.mknod(1, "another") > last);
        }
    }
}

/// A client may know the number of a file that a power loss took, and must not find another's under it.
#[test]
fn no_inode_number_is_given_out_again_after_a_power_loss() {
    let storage = Arc::new(MemoryStorage::recording());
    let world = World::over(storage.clone(), 0);
    let last = (0..40_000)
        .map(|index| world.mknod(1, &format!("{index}")))
        .last()
        .unwrap();
    let lost = World::again(Arc::new(MemoryStorage::replayed(&storage.synced_steps())));
    assert!(lost.mknod(1, "another") > last);
}
