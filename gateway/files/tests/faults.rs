//! Storage that fails: the request says so, nothing has changed, and it succeeds when it is made again.

mod support;

use support::{World, at, in_root, node};
use tombolo_files::locks::{Lock, LockFamily, LockKind, LockOwner, LockRange};
use tombolo_files::storage::StorageError;
use tombolo_files::{Allocate, FileError, OpenFlags, Place, ROOT, RenameMode, SetAttributes, XattrFlags};

type Step = Box<dyn Fn(&World) -> Result<(), FileError>>;

/// One of everything that changes something.
fn script() -> Vec<Step> {
    fn inode(world: &World, name: &str) -> u64 {
        world.lookup(ROOT, name).unwrap().inode
    }
    fn place(world: &World, name: &str, offset: u64) -> Place {
        Place {
            inode: inode(world, name),
            offset,
        }
    }
    let write = |name: &'static str, offset: u64, bytes: usize| -> Step {
        Box::new(move |world| world.write(inode(world, name), offset, &vec![7; bytes]).map(drop))
    };
    let resize = |size: u64| -> Step {
        Box::new(move |world| {
            let set = SetAttributes {
                size: Some(size),
                uid: Some(5),
                ..SetAttributes::default()
            };
            world
                .service
                .setattr(&world.caller(), inode(world, "file"), &set)
                .map(drop)
        })
    };
    vec![
        Box::new(|world| {
            let flags = OpenFlags {
                exclusive: true,
                ..OpenFlags::default()
            };
            world
                .service
                .create(&world.caller(), in_root("file"), node(0o644), flags)
                .map(drop)
        }),
        Box::new(|world| {
            world
                .service
                .mkdir(&world.caller(), in_root("directory"), node(0o755))
                .map(drop)
        }),
        Box::new(|world| {
            world
                .service
                .mknod(&world.caller(), in_root("other"), node(0o100_644))
                .map(drop)
        }),
        write("file", 0, 50_000),
        resize(100),
        write("file", 9_000, 3_000),
        resize(30_000),
        Box::new(|world| {
            let mode = Allocate::PunchHole;
            world
                .service
                .fallocate(&world.caller(), place(world, "file", 9_500), 9_000, mode)
        }),
        Box::new(|world| {
            let copied = world.service.copy_range(
                &world.caller(),
                place(world, "file", 0),
                place(world, "other", 4096),
                30_000,
            )?;
            // It may be cut short by a fault; the rest is asked for then.
            match copied {
                30_000 => Ok(()),
                _ => Err(FileError::Busy("in part".into())),
            }
        }),
        Box::new(|world| {
            let inode = inode(world, "file");
            world
                .service
                .setxattr(&world.caller(), inode, b"user.x", b"value", XattrFlags::default())
        }),
        Box::new(|world| {
            let lock = Lock {
                owner: LockOwner { session: 0, owner: 1 },
                range: LockRange::WHOLE,
                kind: LockKind::Write,
                pid: 1,
                handle: 0,
            };
            world
                .service
                .set_lock(&world.caller(), inode(world, "file"), LockFamily::Posix, lock)
        }),
        Box::new(|world| {
            let to = at(inode(world, "directory"), "moved");
            world
                .service
                .rename(&world.caller(), in_root("other"), to, RenameMode::Replace)
        }),
        Box::new(|world| {
            world
                .service
                .link(&world.caller(), inode(world, "file"), in_root("second"))
                .map(drop)
        }),
        Box::new(|world| world.unlink(ROOT, "file")),
        Box::new(|world| world.unlink(ROOT, "second")),
        Box::new(|world| world.service.end_session(world.session)),
        Box::new(|world| world.service.delete_share(support::SHARE, &mut |_| ())),
    ]
}

/// What can be seen of the tree.
fn picture(world: &World) -> Vec<(String, u64, u64)> {
    let Ok(entries) = world.service.readdir(&world.caller(), ROOT, 2, 100, true) else {
        return Vec::new();
    };
    let seen = entries.into_iter().map(|entry| {
        let attributes = entry.attributes.unwrap();
        (
            String::from_utf8(entry.name).unwrap(),
            attributes.size,
            attributes.links.into(),
        )
    });
    seen.collect()
}

/// Runs the script with the change after `after` more failing at each step.
fn run(after: u64) -> (Vec<(String, u64, u64)>, u64) {
    let world = World::new();
    let mut last = Vec::new();
    let mut faults = 0;
    for (index, step) in script().iter().enumerate() {
        if index == 14 {
            last = picture(&world);
        }
        world.storage.fail_change(after, StorageError::Busy("test".into()));
        let mut result = step(&world);
        while result.is_err() {
            assert!(matches!(result, Err(FileError::Busy(_))), "step {index}: {result:?}");
            faults += 1;
            assert!(faults < 100, "step {index} never succeeds");
            world.check();
            result = step(&world);
        }
        world.check();
    }
    assert_eq!(world.storage.mapped_blocks(), 0);
    (last, faults)
}

#[test]
fn whichever_change_fails_nothing_is_half_done() {
    // So many changes can pass at every step that none ever fails.
    let (expected, faults) = run(u64::MAX);
    assert_eq!(faults, 0);
    assert_eq!(expected.len(), 2, "{expected:?}");
    // No step makes more than four changes before it can be told that it succeeded.
    for after in 0..4 {
        let (seen, faults) = run(after);
        assert_eq!(seen, expected, "the change after {after} fails");
        assert!(faults > 0, "after {after}");
    }
}

#[test]
fn an_open_that_was_answered_with_an_error_is_not_counted() {
    let flags = OpenFlags::default();
    let mut failed_late = 0;
    for after in 0..20 {
        let world = World::new();
        let made = world.create(ROOT, "file");
        world.service.release(&world.caller(), made.inode).unwrap();
        world.storage.fail_get(after, StorageError::Busy("test".into()));
        let opened = world
            .service
            .create(&world.caller(), in_root("file"), node(0o644), flags);
        world.storage.fail_get(u64::MAX, StorageError::Busy("test".into()));
        world.unlink(ROOT, "file").unwrap();
        let is_there = world.getattr(made.inode).is_ok();
        assert_eq!(is_there, opened.is_ok(), "the look after {after} fails: {opened:?}");
        failed_late += u64::from(opened.is_err());
    }
    assert!(failed_late > 0);
}
