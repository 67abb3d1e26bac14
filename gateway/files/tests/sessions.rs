//! Sessions over restarts: what they have open, their locks, and how they end.

mod support;

use std::sync::mpsc;
use std::time::Duration;
use support::{World, at, client, in_root, node, open};
use tombolo_base::FlushMode;
use tombolo_files::locks::{Lock, LockFamily, LockKind, LockOwner, LockRange};
use tombolo_files::memory::MemoryStorage;
use tombolo_files::{
    Caller, FileError, FileService, FileType, OpenFlags, Place, ROOT, Reply, Request, SessionKind, SessionRequest,
    Timestamp,
};

fn lock(owner: u64, kind: LockKind) -> Lock {
    Lock {
        owner: LockOwner { session: 0, owner },
        range: LockRange::WHOLE,
        kind,
        pid: owner as u32,
        handle: 0,
    }
}

fn restarted(world: &World) -> World {
    World::again(world.storage.clone())
}

fn reply() -> (Reply, mpsc::Receiver<Result<(), FileError>>) {
    let (answer, answers) = mpsc::channel();
    (Box::new(move |result| answer.send(result).unwrap()), answers)
}

#[test]
fn an_open_file_outlives_its_name() {
    let world = World::new();
    let file = world.create(ROOT, "file").inode;
    world.write(file, 0, b"data").unwrap();
    world.unlink(ROOT, "file").unwrap();
    assert_eq!(world.lookup(ROOT, "file"), Err(FileError::NotFound));
    assert_eq!(world.read(file, 0, 10), Ok(b"data".to_vec()));
    world.check();
    world.service.release(&world.caller(), file).unwrap();
    assert_eq!(world.read(file, 0, 10), Err(FileError::Stale));
    assert_eq!(world.storage.mapped_blocks(), 0);
    world.check();
}

#[test]
fn the_last_of_two_sessions_takes_it_away() {
    let world = World::new();
    let second = world.attach(b"second", SessionKind::Client);
    let file = world.create(ROOT, "file").inode;
    world
        .service
        .open_inode(&world.caller_of(second), file, OpenFlags::default())
        .unwrap();
    world.unlink(ROOT, "file").unwrap();
    world.service.release(&world.caller(), file).unwrap();
    world.getattr(file).unwrap();
    // Over a restart, the one that is left still holds it, until it ends.
    let world = restarted(&world);
    world.check();
    world.getattr(file).unwrap();
    world.service.end_session(second).unwrap();
    assert_eq!(world.getattr(file), Err(FileError::Stale));
    world.check();
}

#[test]
fn a_mount_keeps_what_it_had_open_over_a_restart() {
    let world = World::new();
    let mount = world.attach(b"mount", SessionKind::Kernel);
    let file = world.mknod(ROOT, "file");
    world
        .service
        .open_inode(&world.caller_of(mount), file, OpenFlags::default())
        .unwrap();
    let world = restarted(&world);
    let start = world.service.attach(&client(b"mount", SessionKind::Kernel)).unwrap();
    assert_eq!((start.session, start.resumed), (mount, true));
    // The service does not know that it is open, yet it stays.
    world.unlink(ROOT, "file").unwrap();
    world.getattr(file).unwrap();
    world.service.release(&world.caller_of(mount), file).unwrap();
    world.getattr(file).unwrap();
    world.service.forget(mount, file).unwrap();
    assert_eq!(world.getattr(file), Err(FileError::Stale));
    world.check();
}

#[test]
fn what_is_open_again_is_not_let_go_of() {
    let world = World::new();
    let mount = world.attach(b"mount", SessionKind::Kernel);
    let file = world.mknod(ROOT, "file");
    world
        .service
        .open_inode(&world.caller_of(mount), file, OpenFlags::default())
        .unwrap();
    world.unlink(ROOT, "file").unwrap();
    world.service.forget(mount, file).unwrap();
    world.getattr(file).unwrap();
    world.service.release(&world.caller_of(mount), file).unwrap();
    world.service.forget(mount, file).unwrap();
    assert_eq!(world.getattr(file), Err(FileError::Stale));
    world.check();
}

#[test]
fn a_file_without_a_name_is_a_regular_one() {
    let world = World::new();
    for mode in [0o640, 0o100_640, 0o040_640, 0o020_640] {
        let file = world.service.tmpfile(&world.caller(), ROOT, node(mode)).unwrap();
        let found = file.attributes;
        assert_eq!(
            (found.file_type, found.mode & 0o7777),
            (FileType::Regular, 0o640),
            "{mode:o}"
        );
    }
    world.check();
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let world = World::new();
    let file = world.service.tmpfile(&world.caller(), ROOT, node(0o600)).unwrap().inode;
    assert_eq!(world.getattr(file).unwrap().links, 0);
    world.service.link(&world.caller(), file, in_root("name")).unwrap();
    world.service.release(&world.caller(), file).unwrap();
    assert_eq!(world.lookup(ROOT, "name").unwrap().inode, file);
    let other = world.service.tmpfile(&world.caller(), ROOT, node(0o600)).unwrap().inode;
    world.service.release(&world.caller(), other).unwrap();
    assert_eq!(world.getattr(other), Err(FileError::Stale));
    world.check();
}

#[test]
fn a_removed_directory_that_is_open_is_empty() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    world
        .service
        .open_inode(&world.caller(), directory, OpenFlags::default())
        .unwrap();
    world.service.rmdir(&world.caller(), in_root("directory")).unwrap();
    assert_eq!(
        world.service.readdir(&world.caller(), directory, 0, 10, true),
        Ok(vec![])
    );
    let made = world
        .service
        .mkdir(&world.caller(), at(directory, "below"), node(0o755));
    assert_eq!(made, Err(FileError::NotFound));
    world.service.release(&world.caller(), directory).unwrap();
    assert_eq!(world.getattr(directory), Err(FileError::Stale));
    world.check();
}

#[test]
fn a_new_incarnation_ends_the_old_session() {
    let world = World::new();
    let file = world.create(ROOT, "file").inode;
    world
        .service
        .set_lock(&world.caller(), file, LockFamily::Flock, lock(1, LockKind::Write))
        .unwrap();
    world.unlink(ROOT, "file").unwrap();
    let request = SessionRequest {
        incarnation: 2,
        ..client(b"first", SessionKind::Client)
    };
    let start = world.service.attach(&request).unwrap();
    assert!(!start.resumed && start.session != world.session);
    assert_eq!(world.getattr(file), Err(FileError::Stale));
    let opened = world.service.open_inode(&world.caller(), ROOT, OpenFlags::default());
    assert_eq!(opened, Err(FileError::NoSession));
    world.check();
}

#[test]
fn connections_are_counted() {
    let world = World::new();
    let again = world.service.attach(&client(b"first", SessionKind::Client)).unwrap();
    assert_eq!((again.session, again.resumed), (world.session, true));
    assert_eq!(world.service.detach(world.session), 1);
    let deleted = world.service.delete_share(support::SHARE, &mut |_| ());
    assert!(matches!(deleted, Err(FileError::InUse(_))));
    assert_eq!(world.service.detach(world.session), 0);
    world.mknod(ROOT, "file");
    world.service.delete_share(support::SHARE, &mut |_| ()).unwrap();
    assert_eq!(world.service.shares(), []);
    let attached = world.service.attach(&client(b"first", SessionKind::Client));
    assert_eq!(attached, Err(FileError::NotFound));
    world.check();
}

#[test]
fn a_share_comes_back_empty_under_another_number() {
    let world = World::new();
    world.service.detach(world.session);
    let before = world.service.share_named(support::SHARE).unwrap();
    assert_eq!(
        world
            .service
            .create_share(support::SHARE, 0, FlushMode::Local, Timestamp::default()),
        Err(FileError::Exists)
    );
    world.service.delete_share(support::SHARE, &mut |_| ()).unwrap();
    let after = world
        .service
        .create_share(support::SHARE, 7, FlushMode::Local, Timestamp::default())
        .unwrap();
    assert!(after.id > before.id && after.root > before.root);
    let (service, _) = open(&world.storage);
    assert_eq!(service.share_named(support::SHARE), Some(after));
    support::check(&service);
}

#[test]
fn locks_conflict_between_sessions_and_survive_a_restart() {
    let world = World::new();
    let second = world.attach(b"second", SessionKind::Client);
    let file = world.mknod(ROOT, "file");
    let family = LockFamily::Posix;
    world
        .service
        .set_lock(&world.caller(), file, family, lock(1, LockKind::Write))
        .unwrap();
    let refused = world
        .service
        .set_lock(&world.caller_of(second), file, family, lock(1, LockKind::Read));
    assert_eq!(refused, Err(FileError::Locked));
    let world = restarted(&world);
    let held = world
        .service
        .get_lock(&world.caller_of(second), file, family, &lock(1, LockKind::Read));
    // The asking session counts, whatever the request says.
    assert_eq!(held.unwrap().unwrap().owner.session, world.session);
    world.check();
    world.service.end_session(world.session).unwrap();
    let caller = world.caller_of(second);
    assert_eq!(
        world
            .service
            .attach(&client(b"second", SessionKind::Client))
            .unwrap()
            .session,
        second
    );
    world
        .service
        .set_lock(&caller, file, family, lock(1, LockKind::Read))
        .unwrap();
    world.check();
}

#[test]
fn who_waits_for_a_lock_is_answered_once() {
    let world = World::new();
    let second = world.attach(b"second", SessionKind::Client);
    let file = world.mknod(ROOT, "file");
    let family = LockFamily::Posix;
    let wait = |kind| {
        let (reply, answers) = reply();
        let waiter = world
            .service
            .set_lock_wait(&world.caller_of(second), file, family, lock(2, kind), reply)
            .unwrap();
        (waiter, answers)
    };
    world
        .service
        .set_lock(&world.caller(), file, family, lock(1, LockKind::Write))
        .unwrap();
    let (waiter, answers) = wait(LockKind::Read);
    assert!(answers.try_recv().is_err());
    assert!(world.service.cancel_lock(waiter.unwrap()));
    assert_eq!(answers.try_recv(), Ok(Err(FileError::Interrupted)));
    assert!(!world.service.cancel_lock(waiter.unwrap()));
    let (_, answers) = wait(LockKind::Write);
    world
        .service
        .unlock(&world.caller(), file, family, 1, LockRange::WHOLE)
        .unwrap();
    assert_eq!(answers.try_recv(), Ok(Ok(())));
    // Ending the session answers those who wait for it, and its own.
    let (reply, first) = reply();
    let wanted = lock(1, LockKind::Write);
    world
        .service
        .set_lock_wait(&world.caller(), file, family, wanted, reply)
        .unwrap()
        .unwrap();
    world.service.end_session(second).unwrap();
    assert_eq!(first.try_recv(), Ok(Ok(())));
    world.check();
}

#[test]
fn locks_go_with_the_file() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    let family = LockFamily::Flock;
    world
        .service
        .set_lock(&world.caller(), file, family, lock(1, LockKind::Write))
        .unwrap();
    let (reply, answers) = reply();
    world
        .service
        .set_lock_wait(&world.caller(), file, family, lock(2, LockKind::Write), reply)
        .unwrap();
    world.unlink(ROOT, "file").unwrap();
    assert_eq!(answers.try_recv(), Ok(Err(FileError::Stale)));
    world.check();
}

#[test]
fn a_deletion_that_was_cut_short_goes_on() {
    let storage = std::sync::Arc::new(MemoryStorage::recording());
    let world = World::over(storage.clone(), 0);
    let directory = world.mkdir(ROOT, "directory");
    for index in 0..20 {
        let file = world.mknod(directory, &format!("{index}"));
        world.write(file, 0, b"data").unwrap();
    }
    world.service.detach(world.session);
    let before = storage.steps().len();
    world.service.delete_share(support::SHARE, &mut |_| ()).unwrap();
    let steps = storage.steps();
    for count in before + 1..steps.len() {
        let cut: FileService<_> = FileService::open(
            std::sync::Arc::new(MemoryStorage::replayed(&steps[..count])),
            Box::new(|_| ()),
        )
        .unwrap();
        assert!(cut.shares()[0].being_deleted);
        support::check(&cut);
        let attached = cut.attach(&client(b"first", SessionKind::Client));
        assert!(matches!(attached, Err(FileError::InUse(_))));
        cut.delete_share(support::SHARE, &mut |_| ()).unwrap();
        support::check(&cut);
        assert_eq!(cut.storage().mapped_blocks(), 0);
    }
}

#[test]
fn a_mount_that_does_not_know_an_inode_can_be_asked_which_it_keeps() {
    let world = World::new();
    let mount = world.attach(b"mount", SessionKind::Kernel);
    let file = world.mknod(ROOT, "file");
    let world = restarted(&world);
    world.unlink(ROOT, "file").unwrap();
    assert_eq!(world.service.kept_by(mount), [file]);
    assert_eq!(world.service.kept_by(world.session), []);
    world.service.forget(mount, file).unwrap();
    assert_eq!(world.service.kept_by(mount), []);
    assert_eq!(world.getattr(file), Err(FileError::Stale));
    world.check();
}

/// What a session's requests came to is forgotten with it, also that of a write which ends after it.
#[test]
fn no_note_is_left_of_a_session_that_ended_during_a_write() {
    let world = World::new();
    let file = world.mknod(ROOT, "file");
    world.write(file, 0, &[1; 8192]).unwrap();
    let session = world.attach(b"second", SessionKind::Client);
    world.storage.delay_reads(Duration::from_millis(100));
    let caller = Caller {
        request: Request::Number(8),
        ..world.caller_of(session)
    };
    let place = Place { inode: file, offset: 1 };
    std::thread::scope(|scope| {
        // Of its two blocks it must first read the rest.
        let writing = scope.spawn(|| world.service.write(&caller, place, vec![2; 5000].into(), false));
        std::thread::sleep(Duration::from_millis(30));
        world.service.end_session(session).unwrap();
        assert_eq!(writing.join().unwrap(), Ok(5000));
    });
    world.check();
    let notes = |world: &World| world.storage.keys().iter().filter(|key| key[0] == b'R').count();
    assert_eq!(notes(&world), 0);
    // One that a crash kept from going goes when the service starts.
    let key = [&[b'R'][..], &session.to_be_bytes(), &[0, 4]].concat();
    let mut note = vec![1];
    note.extend(8u64.to_le_bytes());
    note.push(0);
    world.storage.tamper(&key, Some(&note));
    assert_eq!(notes(&world), 1);
    let world = restarted(&world);
    assert_eq!(notes(&world), 0);
    world.check();
}
