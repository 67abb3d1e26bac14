//! What POSIX and Linux say about single requests, and news of changes.

mod support;

use std::io::ErrorKind;
use std::sync::Arc;
use support::{SHARE, World, at, in_root, node};
use tombolo_base::FlushMode;
use tombolo_files::memory::MemoryStorage;
use tombolo_files::storage::Storage;
use tombolo_files::{
    Allocate, Caller, Changed, FileError, FileService, FileType, LINKS_MAX, NewNode, OpenFlags, Place, ROOT,
    RenameMode, SetAttributes, SetTime, Timestamp, XATTR_BYTES_MAX, XattrFlags,
};

fn set(world: &World, inode: u64, set: SetAttributes) -> tombolo_files::Attributes {
    world.service.setattr(&world.caller(), inode, &set).unwrap()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn permissions(world: &World, inode: u64) -> u32 {
    world.getattr(inode).unwrap().mode & 0o7777
}

fn set_xattr(world: &World, inode: u64, name: &str, value: &[u8]) -> Result<(), FileError> {
    world
        .service
        .setxattr(&world.caller(), inode, name.as_bytes(), value, XattrFlags::default())
}

fn get_xattr(world: &World, inode: u64, name: &str) -> Result<Vec<u8>, FileError> {
    world.service.getxattr(&world.caller(), inode, name.as_bytes())
}

/// An ACL with owner, user 7, group, mask, other.
fn acl(permissions: [u16; 5]) -> Vec<u8> {
    let entries = [
        (0x01, u32::MAX),
        (0x02, 7),
        (0x04, u32::MAX),
        (0x10, u32::MAX),
        (0x20, u32::MAX),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for ((tag, id), permissions) in entries.into_iter().zip(permissions) {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn files_are_found_by_their_numbers() {
    let world = World::new();
    let outer = world.mkdir(ROOT, "outer");
    let inner = world.mkdir(outer, "inner");
    let here = world.mknod(ROOT, "here");
    let deep = world.mknod(inner, "deep");
    // More names than are read at once.
    for number in 0..1_100 {
        world.mknod(outer, &format!("{number}"));
    }
    let inodes = [here, deep, 77_777].into();
    let paths = tombolo_files::paths_of(&inodes, |from, end, limit| {
        world.storage.scan(from, end, limit).unwrap()
    });
    let expected = [
        (here, format!("{SHARE}:/here")),
        (deep, format!("{SHARE}:/outer/inner/deep")),
    ];
    assert_eq!(paths, expected.into());
}

#[test]
fn names_that_cannot_be() {
    let world = World::new();
    let make = |name: &str| {
        world
            .service
            .mkdir(&world.caller(), in_root(name), node(0o755))
            .map(drop)
    };
    assert_eq!(make(""), Err(FileError::NotFound));
    assert_eq!(make("."), Err(FileError::Exists));
    assert_eq!(make(".."), Err(FileError::Exists));
    assert!(matches!(make("a/b"), Err(FileError::Invalid(_))));
    assert!(matches!(make("a\0b"), Err(FileError::Invalid(_))));
    assert_eq!(make(&"n".repeat(256)), Err(FileError::NameTooLong));
    assert_eq!(make(&"n".repeat(255)), Ok(()));
    let remove = |name| world.service.rmdir(&world.caller(), in_root(name));
    assert!(matches!(remove("."), Err(FileError::Invalid(_))));
    assert_eq!(remove(".."), Err(FileError::NotEmpty));
    let target = vec![b't'; 4096];
    let link = |bytes| {
        world
            .service
            .symlink(&world.caller(), in_root("link"), &target[..bytes])
            .map(drop)
    };
    assert_eq!(link(4096), Err(FileError::NameTooLong));
    assert_eq!(link(4095), Ok(()));
    assert_eq!(world.lookup(ROOT, "link").unwrap().attributes.size, 4095);
    world.check();
}

#[test]
fn an_inode_of_another_share_is_stale() {
    let world = World::new();
    let other = world
        .service
        .create_share("other", 0, FlushMode::Local, Timestamp::new(1, 0))
        .unwrap();
    assert_eq!(world.getattr(other.root), Err(FileError::Stale));
    assert_eq!(world.lookup(other.root, ".."), Err(FileError::Stale));
    let name = at(other.root, "x");
    assert_eq!(
        world.service.mkdir(&world.caller(), name, node(0o755)),
        Err(FileError::Stale)
    );
    let file = world.mknod(ROOT, "file");
    assert_eq!(world.service.link(&world.caller(), file, name), Err(FileError::Stale));
    for inode in [0, 2, 15, u64::MAX, 1 << 63] {
        assert_eq!(world.getattr(inode), Err(FileError::Stale));
    }
    world.check();
}

#[test]
fn a_file_takes_so_many_links() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    for index in 1..LINKS_MAX {
        world
            .service
            .link(&world.caller(), file, in_root(&format!("link{index}")))
            .unwrap();
    }
    let linked = world.service.link(&world.caller(), file, in_root("one more"));
    assert_eq!(linked, Err(FileError::TooManyLinks));
    assert_eq!(world.getattr(file).unwrap().links, LINKS_MAX);
    world.check();
}

#[test]
fn listing_goes_on_where_it_was_while_names_come_and_go() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    for index in 0..1000 {
        world.mknod(directory, &format!("name{index}"));
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let page = world
            .service
            .readdir(&world.caller(), directory, cookie, 7, false)
            .unwrap();
        let Some(last) = page.last() else { break };
        cookie = last.cookie;
        seen.extend(page.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()));
        // Everything listed goes, as with rm -r, and new names come.
        for entry in page.iter().filter(|entry| entry.file_type == FileType::Regular) {
            world
                .service
                .unlink(
                    &world.caller(),
                    at(directory, std::str::from_utf8(&entry.name).unwrap()),
                )
                .unwrap();
        }
        if seen.len() < 100 {
            world.mknod(directory, &format!("new{}", seen.len()));
        }
    }
    assert_eq!(&seen[..2], [".", ".."]);
    assert_eq!(
        seen[2..1002],
        (0..1000).map(|index| format!("name{index}")).collect::<Vec<_>>()
    );
    assert!(world.names(directory).is_empty());
    assert_eq!(
        world.service.readdir(&world.caller(), directory, u64::MAX, 7, true),
        Ok(vec![])
    );
    world.check();
}

#[test]
fn a_replaced_name_is_listed_once() {
    let world = World::new();
    for name in ["a", "b", "c", "new"] {
        world.mknod(ROOT, name);
    }
    let first = world.service.readdir(&world.caller(), ROOT, 2, 1, false).unwrap();
    world
        .service
        .rename(&world.caller(), in_root("new"), in_root("b"), RenameMode::Replace)
        .unwrap();
    let rest = world
        .service
        .readdir(&world.caller(), ROOT, first[0].cookie, 10, false)
        .unwrap();
    let rest: Vec<_> = rest.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(rest, [b"b", b"c"]);
    world.check();
}

#[test]
fn setuid_and_setgid_go_when_they_must() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    let write = |kill| {
        set(&world, file, mode(0o6755));
        world
            .service
            .write(&world.caller(), Place { inode: file, offset: 0 }, vec![1].into(), kill)
            .unwrap();
        permissions(&world, file)
    };
    assert_eq!((write(false), write(true)), (0o6755, 0o755));
    // Setgid without execution is not a privilege.
    set(&world, file, mode(0o6745));
    world
        .service
        .write(&world.caller(), Place { inode: file, offset: 0 }, vec![1].into(), true)
        .unwrap();
    assert_eq!(permissions(&world, file), 0o2745);
    // But only the file's group leaves it.
    let stranger = Caller {
        gid: 101,
        ..world.caller()
    };
    world
        .service
        .write(&stranger, Place { inode: file, offset: 0 }, vec![1].into(), true)
        .unwrap();
    assert_eq!(permissions(&world, file), 0o745);
    set(&world, file, mode(0o6755));
    let chown = SetAttributes {
        uid: Some(5),
        ..SetAttributes::default()
    };
    assert_eq!(set(&world, file, chown).mode & 0o7777, 0o755);
    set(&world, file, mode(0o4755));
    let flags = OpenFlags {
        truncate: true,
        kill_privileges: true,
        exclusive: false,
    };
    world.service.open_inode(&world.caller(), file, flags).unwrap();
    assert_eq!(permissions(&world, file), 0o755);
    set(&world, file, mode(0o4755));
    let place = Place { inode: file, offset: 0 };
    world
        .service
        .fallocate(&world.caller(), place, 10, Allocate::Extend)
        .unwrap();
    assert_eq!(permissions(&world, file), 0o755);
    let directory = world.mkdir(ROOT, "directory");
    set(&world, directory, mode(0o2755));
    set(&world, directory, chown);
    assert_eq!(permissions(&world, directory), 0o2755);
    world.check();
}

#[test]
fn capabilities_go_with_the_first_write() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    set_xattr(&world, file, "security.capability", b"some").unwrap();
    world.write(file, 0, b"x").unwrap();
    assert_eq!(get_xattr(&world, file, "security.capability"), Err(FileError::NoData));
    set_xattr(&world, file, "security.capability", b"some").unwrap();
    set(
        &world,
        file,
        SetAttributes {
            size: Some(0),
            ..SetAttributes::default()
        },
    );
    assert_eq!(get_xattr(&world, file, "security.capability"), Err(FileError::NoData));
    world.check();
}

#[test]
fn a_setgid_directory_hands_its_group_down() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    let chown = SetAttributes {
        gid: Some(42),
        mode: Some(0o2775),
        ..SetAttributes::default()
    };
    set(&world, directory, chown);
    let below = world
        .service
        .mkdir(&world.caller(), at(directory, "below"), node(0o755))
        .unwrap();
    assert_eq!((below.attributes.gid, below.attributes.mode & 0o7777), (42, 0o2755));
    let file = world.create(directory, "file");
    assert_eq!((file.attributes.gid, file.attributes.mode & 0o7777), (42, 0o644));
    world.check();
}

#[test]
fn acl_and_mode_say_the_same() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    set_xattr(&world, file, "system.posix_acl_access", &acl([6, 7, 5, 7, 0])).unwrap();
    assert_eq!(permissions(&world, file), 0o670);
    set(&world, file, mode(0o640));
    assert_eq!(
        get_xattr(&world, file, "system.posix_acl_access"),
        Ok(acl([6, 7, 5, 4, 0]))
    );
    // A list that says no more than a mode is not kept.
    let mut minimal = acl([7, 0, 5, 0, 1]);
    minimal.drain(28..36);
    minimal.drain(12..20);
    set_xattr(&world, file, "system.posix_acl_access", &minimal).unwrap();
    assert_eq!(permissions(&world, file), 0o751);
    assert_eq!(
        get_xattr(&world, file, "system.posix_acl_access"),
        Err(FileError::NoData)
    );
    assert!(matches!(
        set_xattr(&world, file, "system.posix_acl_access", b"junk"),
        Err(FileError::Invalid(_))
    ));
    assert_eq!(
        set_xattr(&world, file, "system.posix_acl_default", &minimal),
        Err(FileError::AccessDenied)
    );
    world.check();
}

#[test]
fn a_default_acl_takes_the_place_of_the_umask() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    set_xattr(&world, directory, "system.posix_acl_default", &acl([7, 7, 5, 7, 5])).unwrap();
    let new = NewNode {
        mode: 0o100_666,
        umask: 0o077,
        device: 0,
        attributes: SetAttributes::default(),
    };
    let file = world
        .service
        .mknod(&world.caller(), at(directory, "file"), new)
        .unwrap();
    assert_eq!(file.attributes.mode & 0o7777, 0o664);
    assert_eq!(
        get_xattr(&world, file.inode, "system.posix_acl_access"),
        Ok(acl([6, 7, 5, 6, 4]))
    );
    let below = world.mkdir(directory, "below");
    assert_eq!(
        get_xattr(&world, below, "system.posix_acl_default"),
        Ok(acl([7, 7, 5, 7, 5]))
    );
    let link = world
        .service
        .symlink(&world.caller(), at(directory, "link"), b"x")
        .unwrap();
    assert_eq!(world.service.listxattr(&world.caller(), link.inode), Ok(vec![]));
    world.check();
}

#[test]
fn extended_attributes_have_their_limits() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    assert_eq!(set_xattr(&world, file, "user.big", &vec![1; XATTR_BYTES_MAX]), Ok(()));
    assert_eq!(
        set_xattr(&world, file, "user.big", &vec![1; XATTR_BYTES_MAX + 1]),
        Err(FileError::TooBig)
    );
    assert_eq!(
        set_xattr(&world, file, &format!("user.{}", "n".repeat(251)), b""),
        Err(FileError::Range)
    );
    assert!(matches!(
        set_xattr(&world, file, "other.x", b""),
        Err(FileError::NotSupported(_))
    ));
    assert!(matches!(
        set_xattr(&world, file, "user.", b""),
        Err(FileError::NotSupported(_))
    ));
    let name = |index: usize| format!("user.{index:0250}");
    let mut count = 0;
    while set_xattr(&world, file, &name(count), b"").is_ok() {
        count += 1;
    }
    assert_eq!(count, (XATTR_BYTES_MAX - 9) / 256);
    assert!(matches!(
        set_xattr(&world, file, &name(count), b""),
        Err(FileError::NoSpace(_))
    ));
    assert_eq!(set_xattr(&world, file, &name(0), b"again"), Ok(()));
    world.check();
    world.unlink(ROOT, "file").unwrap();
    world.check();
}

#[test]
fn times_are_set_and_the_change_attribute_only_grows() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    let old = Timestamp::new(-5, 999_999_999);
    let times = SetAttributes {
        atime: Some(SetTime::To(old)),
        mtime: Some(SetTime::To(old)),
        ..SetAttributes::default()
    };
    let attributes = set(&world, file, times);
    assert_eq!((attributes.atime, attributes.mtime), (old, old));
    let never = SetAttributes {
        atime: Some(SetTime::To(Timestamp::new(0, 1_000_000_000))),
        ..SetAttributes::default()
    };
    assert!(matches!(
        world.service.setattr(&world.caller(), file, &never),
        Err(FileError::Invalid(_))
    ));
    // The clock stands still, or goes back.
    let caller = tombolo_files::Caller {
        now: Timestamp::new(10, 0),
        ..world.caller()
    };
    let mut change = attributes.change;
    for index in 0..6 {
        let before = change;
        match index % 3 {
            0 => drop(
                world
                    .service
                    .write(&caller, Place { inode: file, offset: 0 }, vec![1].into(), false)
                    .unwrap(),
            ),
            1 => drop(world.service.setattr(&caller, file, &mode(0o600)).unwrap()),
            _ => drop(world.service.link(&caller, file, in_root(&format!("{index}"))).unwrap()),
        }
        let attributes = world.getattr(file).unwrap();
        change = attributes.change;
        assert!(change > before);
    }
    world.check();
}

#[test]
fn others_hear_of_changes() {
    let world = World::new();
    let file = world.create(ROOT, "file").inode;
    let heard = |request: &dyn Fn()| {
        world.invalidations.lock().unwrap().clear();
        request();
        let invalidations = world.invalidations.lock().unwrap().clone();
        assert!(
            invalidations
                .iter()
                .all(|invalidations| invalidations.origin == world.session && invalidations.share == 1)
        );
        invalidations
            .into_iter()
            .map(|invalidations| invalidations.what)
            .collect::<Vec<_>>()
    };
    let root = world.getattr(ROOT).unwrap().inode;
    let wrote = heard(&|| assert_eq!(world.write(file, 5, b"abc"), Ok(3)));
    let data = Changed::Data {
        inode: file,
        offset: 5,
        length: 3,
    };
    assert_eq!(wrote, [data]);
    let renamed = heard(&|| {
        world
            .service
            .rename(&world.caller(), in_root("file"), in_root("new"), RenameMode::Replace)
            .unwrap();
    });
    let name = |name: &[u8], inode| Changed::Name {
        parent: root,
        name: name.to_vec(),
        inode,
    };
    assert!(renamed.contains(&name(b"file", file)) && renamed.contains(&name(b"new", 0)));
    let unlinked = heard(&|| world.unlink(ROOT, "new").unwrap());
    assert!(unlinked.contains(&name(b"new", file)) && unlinked.contains(&Changed::Attributes { inode: root }));
    assert_eq!(heard(&|| drop(world.unlink(ROOT, "new").unwrap_err())), []);
}

fn findings(storage: MemoryStorage) -> usize {
    let silent = Box::new(|_| ());
    // A service that does not come up has found it too.
    match FileService::open(Arc::new(storage), silent) {
        Ok(service) => service.check(&mut |_, _| ()).unwrap().findings.len(),
        Err(_) => 1,
    }
}

#[test]
fn each_entry_that_is_missing_or_damaged_is_found() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    let file = world.create(directory, "file").inode;
    world.write(file, 0, &[1; 9000]).unwrap();
    set_xattr(&world, file, "user.x", b"value").unwrap();
    world.service.symlink(&world.caller(), in_root("link"), b"x").unwrap();
    world.service.tmpfile(&world.caller(), ROOT, node(0o600)).unwrap();
    world.mkdir(directory, "empty");
    world.check();
    for key in world.storage.keys().iter().filter(|key| key[0] != b'G') {
        let storage = world.storage.copy();
        storage.tamper(key, None);
        assert!(findings(storage) > 0, "without {key:?}");
        if key[0] != b'X' {
            let storage = world.storage.copy();
            storage.tamper(key, Some(b"junk"));
            assert!(findings(storage) > 0, "junk in {key:?}");
        }
    }
}

/// Of whatever kind it is, if anything that should agree with it can tell.
#[test]
fn each_entry_that_stands_in_for_another_is_found() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    let file = world.create(directory, "file").inode;
    world.write(file, 0, &[1; 9000]).unwrap();
    set_xattr(&world, file, "user.x", b"value").unwrap();
    world.service.symlink(&world.caller(), in_root("link"), b"x").unwrap();
    world.service.tmpfile(&world.caller(), ROOT, node(0o600)).unwrap();
    let twice = world.create(ROOT, "once").inode;
    world
        .service
        .link(&world.caller(), twice, at(directory, "twice"))
        .unwrap();
    // No two directories have as many entries, and no two files as many blocks.
    world.write(twice, 0, &[1; 5000]).unwrap();
    world.mkdir(ROOT, "another");
    world.mkdir(directory, "empty");
    world.check();
    let (mut swapped, mut unfound) = (0, Vec::new());
    for key in world.storage.keys() {
        for other in world.storage.keys() {
            let value = world.storage.get(&other).unwrap().unwrap();
            let is_another = world.storage.get(&key).unwrap().unwrap() != value;
            if key[0] == other[0] && is_another {
                let storage = world.storage.copy();
                storage.tamper(&key, Some(&value));
                swapped += 1;
                if findings(storage) == 0 {
                    unfound.push((key.clone(), other));
                }
            }
        }
    }
    assert_eq!(unfound, [], "of {swapped}");
    assert!(swapped > 50, "{swapped}");
}

#[test]
fn a_new_inode_has_its_attributes_from_the_first_moment_on() {
    let world = World::new();
    let attributes = SetAttributes {
        uid: Some(7),
        gid: Some(8),
        size: Some(10_000),
        atime: Some(SetTime::To(Timestamp::new(11, 0))),
        mtime: Some(SetTime::To(Timestamp::new(22, 5))),
        ..SetAttributes::default()
    };
    let new = |mode, attributes| NewNode {
        attributes,
        ..node(mode)
    };
    let made = world
        .service
        .mknod(&world.caller(), in_root("file"), new(0o104_640, attributes))
        .unwrap();
    let flags = OpenFlags::default();
    let (opened, is_new) = world
        .service
        .create(&world.caller(), in_root("opened"), new(0o4640, attributes), flags)
        .unwrap();
    assert!(is_new);
    for inode in [made.inode, opened.inode] {
        let found = world.getattr(inode).unwrap();
        assert_eq!((found.uid, found.gid, found.size), (7, 8, 10_000));
        assert_eq!(
            (found.atime, found.mtime),
            (Timestamp::new(11, 0), Timestamp::new(22, 5))
        );
        // Nobody had a right yet that a new owner would have to lose.
        assert_eq!(found.mode & 0o7777, 0o4640);
    }
    let too_large = SetAttributes {
        size: Some((1 << 48) + 1),
        ..attributes
    };
    let no_time = SetAttributes {
        atime: Some(SetTime::To(Timestamp::new(0, 1_000_000_000))),
        ..attributes
    };
    for (mode, attributes) in [(0o100_644, too_large), (0o100_644, no_time), (0o010_644, attributes)] {
        let refused = world
            .service
            .mknod(&world.caller(), in_root("refused"), new(mode, attributes));
        assert!(matches!(refused, Err(FileError::Invalid(_) | FileError::FileTooLarge)));
    }
    assert_eq!(world.lookup(ROOT, "refused"), Err(FileError::NotFound));
    world.check();
}

/// The numbers are those of fallocate(2) in Linux.
#[test]
fn bits_of_fallocate_mean_what_they_mean_to_linux() {
    let known = [
        (0x00, Allocate::Extend),
        (0x01, Allocate::KeepSize),
        (0x03, Allocate::PunchHole),
        (0x10, Allocate::ZeroRange),
        (0x11, Allocate::ZeroRangeKeepSize),
    ];
    for (bits, mode) in known {
        assert_eq!(Allocate::of_flags(bits), Ok(mode), "{bits:#x}");
        assert_eq!(Allocate::of_flags(bits | 0x40), Ok(mode), "{bits:#x}, nothing shared");
    }
    // A hole without "keep size", a collapse, an insertion, and what nobody knows.
    for bits in [0x02, 0x08, 0x20, 0x12, 0x13, 0x80] {
        let refused = Allocate::of_flags(bits);
        assert!(matches!(refused, Err(FileError::NotSupported(_))), "{bits:#x}");
    }
}

#[test]
fn linux_knows_what_is_wrong() {
    let known = [
        (FileError::NotFound, ErrorKind::NotFound),
        (FileError::Exists, ErrorKind::AlreadyExists),
        (FileError::NotDirectory, ErrorKind::NotADirectory),
        (FileError::IsDirectory, ErrorKind::IsADirectory),
        (FileError::NotEmpty, ErrorKind::DirectoryNotEmpty),
        (FileError::Invalid(""), ErrorKind::InvalidInput),
        (FileError::NameTooLong, ErrorKind::InvalidFilename),
        (FileError::TooManyLinks, ErrorKind::TooManyLinks),
        (FileError::CrossShare, ErrorKind::CrossesDevices),
        (FileError::Stale, ErrorKind::StaleNetworkFileHandle),
        (FileError::NoSession, ErrorKind::StaleNetworkFileHandle),
        (FileError::FileTooLarge, ErrorKind::FileTooLarge),
        (FileError::QuotaExceeded, ErrorKind::QuotaExceeded),
        (FileError::NoSpace(String::new()), ErrorKind::StorageFull),
        (FileError::TooBig, ErrorKind::ArgumentListTooLong),
        (FileError::NotPermitted(""), ErrorKind::PermissionDenied),
        (FileError::AccessDenied, ErrorKind::PermissionDenied),
        (FileError::NotSupported(""), ErrorKind::Unsupported),
        (FileError::Busy(String::new()), ErrorKind::WouldBlock),
        (FileError::Locked, ErrorKind::WouldBlock),
        (FileError::InUse(""), ErrorKind::ResourceBusy),
        (FileError::Interrupted, ErrorKind::Interrupted),
        (FileError::Deadlock, ErrorKind::Deadlock),
    ];
    for (error, kind) in known {
        let found = std::io::Error::from_raw_os_error(error.errno()).kind();
        assert_eq!(found, kind, "{error:?}");
    }
}
