//! Requests that come again after a restart, because their answers were lost. What was carried out is not done once more:
//! another client may have changed the same since, and was answered.

mod support;

use bytes::Bytes;
use support::{World, in_root, node};
use tombolo_files::{
    Allocate, Caller, FileError, OpenFlags, Place, ROOT, Request, SessionKind, SetAttributes, SetTime, Timestamp,
};

const BLOCK: u64 = 4096;
const NUMBER: u64 = 42;

/// Before the restart and after it: the same request of the same session.
fn first(world: &World) -> Caller {
    Caller {
        request: Request::Number(NUMBER),
        ..world.caller()
    }
}

fn again(world: &World) -> Caller {
    Caller {
        request: Request::Again(NUMBER),
        ..world.caller()
    }
}

fn at(inode: u64, offset: u64) -> Place {
    Place { inode, offset }
}

/// `request` is carried out, others write over what it did, the service restarts, and it comes again. Its result of both
/// times; what the others wrote is as they left it.
fn sent_twice<T>(world: World, file: u64, request: impl Fn(&World, &Caller) -> T) -> [T; 2] {
    let other = world.attach(b"other", SessionKind::Client);
    let before = request(&world, &first(&world));
    let by_other = world.caller_of(other);
    let data = Bytes::from(vec![b'o'; 3 * BLOCK as usize]);
    world
        .service
        .write(&by_other, at(file, 0), data.clone(), false)
        .unwrap();
    let set = SetAttributes {
        mode: Some(0o640),
        mtime: Some(SetTime::To(Timestamp::new(5, 0))),
        ..SetAttributes::default()
    };
    let attributes = world.service.setattr(&by_other, file, &set).unwrap();
    let world = World::again(world.storage.clone());
    let after = request(&world, &again(&world));
    // Not printed: it is long.
    assert!(world.read(file, 0, 4 * BLOCK as usize).unwrap() == data);
    assert_eq!(world.getattr(file).unwrap(), attributes);
    world.check();
    [before, after]
}

fn world_with_file() -> (World, u64) {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    world.write(file, 0, &[b'f'; 2 * BLOCK as usize]).unwrap();
    (world, file)
}

#[test]
fn a_write_is_not_done_twice() {
    for (offset, bytes) in [(0, BLOCK), (100, 50), (BLOCK - 1, BLOCK + 2), (3 * BLOCK - 10, 5)] {
        for byte in [b'w', 0] {
            let (world, file) = world_with_file();
            let data = Bytes::from(vec![byte; bytes as usize]);
            let [before, after] = sent_twice(world, file, |world, caller| {
                world.service.write(caller, at(file, offset), data.clone(), false)
            });
            assert_eq!((before, after), (Ok(bytes as usize), Ok(bytes as usize)));
        }
    }
}

#[test]
fn a_write_that_was_lost_is_done() {
    let (world, file) = world_with_file();
    let written = world
        .service
        .write(&again(&world), at(file, 0), Bytes::from_static(b"new"), false);
    assert_eq!(written, Ok(3));
    assert_eq!(world.read(file, 0, 3), Ok(b"new".to_vec()));
}

#[test]
fn attributes_are_not_set_twice() {
    let sets = [
        SetAttributes {
            size: Some(10),
            ..SetAttributes::default()
        },
        SetAttributes {
            size: Some(9 * BLOCK),
            ..SetAttributes::default()
        },
        SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        },
        SetAttributes {
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        },
    ];
    for set in sets {
        let (world, file) = world_with_file();
        let grown = set.size.is_some_and(|size| size > 3 * BLOCK);
        let other = world.attach(b"other", SessionKind::Client);
        world.service.setattr(&first(&world), file, &set).unwrap();
        let cut = SetAttributes {
            size: Some(3),
            mode: Some(0o640),
            ..SetAttributes::default()
        };
        let attributes = world.service.setattr(&world.caller_of(other), file, &cut).unwrap();
        let world = World::again(world.storage.clone());
        assert_eq!(
            world.service.setattr(&again(&world), file, &set),
            Ok(attributes),
            "{grown}"
        );
        world.check();
    }
}

#[test]
fn a_file_is_not_truncated_twice_by_its_opening() {
    let truncate = OpenFlags {
        truncate: true,
        ..OpenFlags::default()
    };
    let (world, file) = world_with_file();
    let opened = sent_twice(world, file, |world, caller| {
        world.service.open_inode(caller, file, truncate)
    });
    assert_eq!(opened, [Ok(()), Ok(())]);
    let (world, file) = world_with_file();
    let created = sent_twice(world, file, |world, caller| {
        let (entry, is_new) = world
            .service
            .create(caller, in_root("file"), node(0o644), truncate)
            .unwrap();
        (entry.inode, is_new)
    });
    assert_eq!(created, [(file, false), (file, false)]);
}

#[test]
fn an_allocation_is_not_made_twice() {
    let modes = [
        (Allocate::PunchHole, 0, 2 * BLOCK),
        (Allocate::PunchHole, 10, BLOCK),
        (Allocate::PunchHole, 10, 20),
        (Allocate::ZeroRange, 10, 2 * BLOCK + 5),
        (Allocate::ZeroRange, BLOCK, 10),
        (Allocate::ZeroRangeKeepSize, 10, 9 * BLOCK),
    ];
    for (mode, offset, bytes) in modes {
        let (world, file) = world_with_file();
        let made = sent_twice(world, file, |world, caller| {
            world.service.fallocate(caller, at(file, offset), bytes, mode)
        });
        assert_eq!(made, [Ok(()), Ok(())]);
    }
}

#[test]
fn a_file_that_was_cut_is_not_extended_again() {
    let (world, file) = world_with_file();
    let extend = |world: &World, caller: &Caller| {
        world
            .service
            .fallocate(caller, at(file, 0), 9 * BLOCK, Allocate::Extend)
    };
    extend(&world, &first(&world)).unwrap();
    let cut = SetAttributes {
        size: Some(3),
        ..SetAttributes::default()
    };
    world.service.setattr(&world.caller(), file, &cut).unwrap();
    let world = World::again(world.storage.clone());
    extend(&world, &again(&world)).unwrap();
    assert_eq!(world.getattr(file).unwrap().size, 3);
}

#[test]
fn a_copy_is_not_made_twice() {
    for (from, to, bytes) in [(0, 0, 2 * BLOCK), (0, 0, BLOCK + 100), (10, 30, 100), (100, 100, BLOCK)] {
        let (world, file) = world_with_file();
        let source = world.mknod(ROOT, "source");
        world.write(source, 0, &[b's'; 3 * BLOCK as usize]).unwrap();
        let copied = sent_twice(world, file, |world, caller| {
            world.service.copy_range(caller, at(source, from), at(file, to), bytes)
        });
        assert_eq!(copied, [Ok(bytes), Ok(bytes)]);
    }
}

#[test]
fn a_number_is_that_of_one_kind_of_request() {
    let (world, file) = world_with_file();
    world
        .service
        .mknod(&first(&world), in_root("new"), node(0o100_644))
        .unwrap();
    let written = world
        .service
        .write(&again(&world), at(file, 0), Bytes::from_static(b"new"), false);
    assert!(matches!(written, Err(FileError::Invalid(_))), "{written:?}");
}
