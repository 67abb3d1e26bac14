//! Clients over the Unix socket.

mod common;

use common::client::plain_attach;
use common::{Fixture, PATIENCE, ROOT, eventually};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tombolo_fuse::mount::AttachError;
use tombolo_fuse::protocol::abi::{IN_HEADER_BYTES, InHeader};
use tombolo_fuse::protocol::opcode::Opcode;
use tombolo_fuse::protocol::request::{FileLock, LockRequest, LockType, Read as ReadRequest, Write as WriteRequest};
use tombolo_fuse::protocol::wire::Wire;
use tombolo_fuse::{Attach, Errno, Notification, Notifier, Request, ServerConfig};
use tombolo_transport::Budget;

fn lookup(name: &str) -> Request {
    Request::Lookup {
        name: name.as_bytes().to_vec(),
    }
}

fn read(offset: u64, size: u32) -> Request {
    Request::Read(ReadRequest {
        fh: 0,
        offset,
        size,
        flags: 0,
        lock_owner: None,
    })
}

fn write(offset: u64, data: Vec<u8>) -> Request {
    Request::Write(WriteRequest {
        fh: 0,
        offset,
        flags: 0,
        lock_owner: None,
        from_cache: false,
        kill_privileges: false,
        wants_attributes: false,
        data,
    })
}

fn wait_for_lock() -> Request {
    let lock = FileLock {
        start: 0,
        end: 9,
        kind: LockType::Write,
        pid: 1,
    };
    Request::Setlk {
        lock: LockRequest {
            fh: 0,
            owner: 1,
            lock,
            flock: false,
        },
        wait: true,
    }
}

fn file(fixture: &Fixture, name: &str, data: &[u8]) -> u64 {
    fixture.toy.add(ROOT, name, libc::S_IFREG | 0o644, data)
}

#[test]
fn requests_are_answered() {
    let fixture = Fixture::start(ServerConfig::default());
    let node = file(&fixture, "a", b"hello");
    let (mut client, reply) = fixture.attach(&plain_attach()).unwrap();
    assert_eq!(
        (reply.session, reply.boot, reply.root, reply.resumed),
        (11, 12, ROOT, false)
    );
    let found = client.call(ROOT, &lookup("a"));
    assert_eq!((found.error, &found.body[..8]), (0, &node.to_ne_bytes()[..]));
    assert_eq!(client.call(ROOT, &lookup("b")).error, -libc::ENOENT);
    assert_eq!(client.call(node, &read(1, 3)).body, b"ell");
    // Larger than the buffer, so it arrives by the other way.
    let data: Vec<u8> = (0..1 << 20).map(|index: u32| (index ^ (index >> 8)) as u8).collect();
    assert_eq!(
        client.call(node, &write(0, data.clone())).body[..4],
        (1u32 << 20).to_ne_bytes()
    );
    assert_eq!(fixture.toy.data(node), data);
    assert_eq!(client.call(node, &read(0, 1 << 20)).body, data);
}

#[test]
fn pipelined_requests_are_all_answered() {
    let fixture = Fixture::start(ServerConfig::default());
    let node = file(&fixture, "a", b"");
    let mut client = fixture.client();
    let mut messages = Vec::new();
    let mut expected = Vec::new();
    for index in 0..2000u64 {
        let request = match index % 3 {
            0 => lookup("a"),
            1 => write(index * 8, index.to_ne_bytes().to_vec()),
            _ => Request::Getattr { fh: None },
        };
        let on = if index % 3 == 0 { ROOT } else { node };
        let (unique, message) = client.message(on, &request);
        expected.push(unique);
        messages.extend(message);
    }
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&messages).unwrap());
    let mut answered: Vec<u64> = (0..expected.len())
        .map(|_| {
            let answer = client.receive();
            assert_eq!(answer.error, 0);
            answer.unique
        })
        .collect();
    sender.join().unwrap();
    answered.sort_unstable();
    assert_eq!(answered, expected);
    let data = fixture.toy.data(node);
    assert!((0..2000u64).filter(|index| index % 3 == 1).all(|index| {
        let at = index as usize * 8;
        data[at..at + 8] == index.to_ne_bytes()
    }));
}

#[test]
fn requests_that_wait_do_not_hold_up_the_others() {
    let config = ServerConfig {
        threads_max: 4,
        ..ServerConfig::default()
    };
    let fixture = Fixture::start(config);
    let (held, free) = (file(&fixture, "held", b"1"), file(&fixture, "free", b"2"));
    fixture.toy.hold_up(held);
    let mut client = fixture.client();
    let waiting: Vec<u64> = (0..3).map(|_| client.send(held, &read(0, 1))).collect();
    eventually("the handlers wait", || fixture.toy.waiting.load(Ordering::SeqCst) == 3);
    assert_eq!(client.call(free, &read(0, 1)).body, b"2");
    assert_eq!(client.call(ROOT, &lookup("free")).error, 0);
    // The fourth thread is the last: now nobody reads.
    client.send(held, &read(0, 1));
    eventually("the last handler waits", || {
        fixture.toy.waiting.load(Ordering::SeqCst) == 4
    });
    client.send(free, &read(0, 1));
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(client.stream.read(&mut [0; 1]).is_err(), "there is no thread to answer");
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    fixture.toy.let_go(held);
    let answered: Vec<u64> = (0..5).map(|_| client.receive().unique).collect();
    assert!(waiting.iter().all(|unique| answered.contains(unique)));
}

/// Requests that wait for milliseconds, requests that wait for nothing, and large ones, beside which the next is read.
#[test]
fn every_request_is_answered_whichever_thread_reads() {
    const ROUNDS: usize = 1500;
    let config = ServerConfig {
        threads_max: 3,
        ..ServerConfig::default()
    };
    let fixture = Fixture::start(config);
    let (held, free) = (file(&fixture, "held", b"1"), file(&fixture, "free", b"2"));
    let mut client = fixture.client();
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let toy = &fixture.toy;
        scope.spawn(move || {
            let mut random = seed;
            while !over.load(Ordering::SeqCst) {
                toy.hold_up(held);
                std::thread::sleep(Duration::from_micros(next_random(&mut random) % 6000));
                toy.let_go(held);
                std::thread::sleep(Duration::from_micros(next_random(&mut random) % 3000));
            }
        });
        let mut random = !seed;
        for _ in 0..ROUNDS {
            let mut sent: Vec<u64> = (0..=next_random(&mut random) % 5)
                .map(|_| match next_random(&mut random) % 8 {
                    0 => client.send(held, &read(0, 1)),
                    1 => client.send(ROOT, &lookup("free")),
                    2 => client.send(free, &write(0, vec![7; 100_000])),
                    _ => client.send(free, &write(0, vec![7; 10])),
                })
                .collect();
            let mut answered: Vec<u64> = sent.iter().map(|_| client.receive().unique).collect();
            answered.sort_unstable();
            sent.sort_unstable();
            assert_eq!(answered, sent);
        }
        over.store(true, Ordering::SeqCst);
    });
}

/// xorshift64.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn what_is_malformed_gets_its_error_and_the_connection_goes_on() {
    let fixture = Fixture::start(ServerConfig::default());
    let mut client = fixture.client();
    for (opcode, errno) in [
        (Opcode::Ioctl.number(), libc::ENOTTY),
        (999, libc::ENOSYS),
        (1, libc::EINVAL),
    ] {
        let header = InHeader {
            len: IN_HEADER_BYTES as u32 + 8,
            opcode,
            unique: 77,
            ..InHeader::default()
        };
        let mut message = header.to_bytes();
        message.extend([b'x'; 8]);
        client.stream.write_all(&message).unwrap();
        let answer = client.receive();
        assert_eq!((answer.unique, answer.error), (77, -errno), "opcode {opcode}");
    }
    assert_eq!(client.call(ROOT, &Request::Statfs).error, 0);
}

#[test]
fn a_length_that_cannot_be_ends_the_connection() {
    for (opcode, bytes) in [
        (Opcode::Lookup, 39),
        (Opcode::Lookup, 200_000),
        (Opcode::Write, 80 + (1 << 20) + 1),
    ] {
        let fixture = Fixture::start(ServerConfig::default());
        let mut client = fixture.client();
        let header = InHeader {
            len: bytes,
            opcode: opcode.number(),
            ..InHeader::default()
        };
        client.stream.write_all(&header.to_bytes()).unwrap();
        assert!(client.try_receive().is_none(), "{opcode:?} of {bytes} bytes");
        eventually("the connection is gone", || fixture.server().connections() == 0);
        assert_eq!(fixture.toy.detached.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn panics_dropped_requests_and_wrong_answers_are_eio() {
    let fixture = Fixture::start(ServerConfig::default());
    let mut client = fixture.client();
    for name in ["panic", "drop", "misfit"] {
        assert_eq!(client.call(ROOT, &lookup(name)).error, -libc::EIO, "{name}");
    }
    assert_eq!(client.call(ROOT, &Request::Statfs).error, 0);
}

#[test]
fn forgets_are_passed_on_and_not_answered() {
    let fixture = Fixture::start(ServerConfig::default());
    let mut client = fixture.client();
    client.send(5, &Request::Forget { lookups: 1 });
    assert_eq!(
        client.call(ROOT, &Request::Statfs).error,
        0,
        "the first answer is that to the second request"
    );
    assert_eq!(fixture.toy.forgotten.load(Ordering::SeqCst), 1);
}

#[test]
fn a_request_that_waits_for_a_lock_can_be_interrupted() {
    let fixture = Fixture::start(ServerConfig::default());
    let mut client = fixture.client();
    let unique = client.send(ROOT, &wait_for_lock());
    eventually("it waits", || fixture.toy.lock_waiters.load(Ordering::SeqCst) == 1);
    client.interrupt(unique);
    let answer = client.receive();
    assert_eq!((answer.unique, answer.error), (unique, -libc::EINTR));
    // One that comes before its request.
    let (unique, message) = client.message(ROOT, &wait_for_lock());
    client.interrupt(unique);
    client.stream.write_all(&message).unwrap();
    assert_eq!(client.receive().error, -libc::EINTR);
    // One that comes too late.
    let answered = client.call(ROOT, &Request::Statfs).unique;
    client.interrupt(answered);
    assert_eq!(client.call(ROOT, &Request::Statfs).error, 0);
}

#[test]
fn lock_waiters_take_no_room_and_have_a_limit_of_their_own() {
    let config = ServerConfig {
        requests_in_flight_max: 2,
        lock_waiters_max: 5,
        threads_max: 2,
        ..ServerConfig::default()
    };
    let fixture = Fixture::start(config);
    let mut client = fixture.client();
    for _ in 0..5 {
        client.send(ROOT, &wait_for_lock());
    }
    assert_eq!(client.call(ROOT, &wait_for_lock()).error, -libc::ENOLCK);
    assert_eq!(client.call(ROOT, &Request::Statfs).error, 0);
    eventually("all others wait", || {
        fixture.toy.lock_waiters.load(Ordering::SeqCst) == 5
    });
}

#[test]
fn attach_is_refused_with_the_services_error() {
    let fixture = Fixture::start(ServerConfig::default());
    let unknown = Attach {
        share_name: "nothing".into(),
        ..plain_attach()
    };
    let refused = fixture.attach(&unknown).err().unwrap();
    assert!(matches!(refused, AttachError::Refused(errno) if errno == Errno::NOENT));
    let device = Attach {
        device: true,
        ..plain_attach()
    };
    let refused = fixture.attach(&device).err().unwrap();
    assert!(
        matches!(refused, AttachError::Refused(errno) if errno == Errno::INVAL),
        "no descriptors came"
    );
    let mut stream = fixture.connect();
    let request = InHeader {
        len: 40,
        opcode: Opcode::Statfs.number(),
        ..InHeader::default()
    };
    stream.write_all(&request.to_bytes()).unwrap();
    assert_eq!(
        stream.read(&mut [0; 1]).unwrap(),
        0,
        "anything but ATTACH ends the connection"
    );
    eventually("all connections are gone", || fixture.server().connections() == 0);
    assert_eq!(fixture.toy.attached.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_that_comes_back_waits_for_its_old_requests() {
    let config = ServerConfig {
        replace_timeout: Duration::from_millis(200),
        ..ServerConfig::default()
    };
    let fixture = Fixture::start(config);
    let node = file(&fixture, "a", b"1");
    fixture.toy.hold_up(node);
    let mut client = fixture.client();
    client.send(node, &write(0, b"2".to_vec()));
    client.send(ROOT, &wait_for_lock());
    eventually("the handler waits", || fixture.toy.waiting.load(Ordering::SeqCst) == 1);
    eventually("the lock is waited for", || {
        fixture.toy.lock_waiters.load(Ordering::SeqCst) == 1
    });
    drop(client);
    let resume = Attach {
        resume: true,
        ..plain_attach()
    };
    let refused = fixture.attach(&resume).err().unwrap();
    assert!(matches!(refused, AttachError::Refused(errno) if errno == Errno::BUSY));
    assert_eq!(
        fixture.toy.interrupted.load(Ordering::SeqCst),
        1,
        "nobody waits for that lock any more"
    );
    let another = Attach {
        client_name: "another".into(),
        resume: true,
        ..plain_attach()
    };
    fixture.attach(&another).unwrap();
    fixture.toy.let_go(node);
    eventually("the old connection is gone", || fixture.server().connections() <= 1);
    let (mut client, reply) = fixture.attach(&resume).unwrap();
    assert!(reply.resumed);
    assert_eq!(
        client.call(node, &read(0, 1)).body,
        b"2",
        "what was under way came to its end first"
    );
}

/// Two under one name would end each other's locks for ever.
#[test]
fn connections_of_one_client_stand_side_by_side_and_keep_another_of_its_name_away_until_they_are_closed() {
    let fixture = Fixture::start(ServerConfig::default());
    let (mut first, mut second) = (fixture.client(), fixture.client());
    let resume = Attach {
        resume: true,
        ..plain_attach()
    };
    let (mut third, _) = fixture.attach(&resume).unwrap();
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.call(ROOT, &Request::Statfs).error, 0);
    }
    let anew = Attach {
        incarnation: 2,
        ..plain_attach()
    };
    drop((first, second));
    let refused = fixture.attach(&anew).err();
    assert!(matches!(refused, Some(AttachError::Refused(errno)) if errno == Errno::BUSY));
    assert_eq!(
        third.call(ROOT, &Request::Statfs).error,
        0,
        "who was there first goes on"
    );
    drop(third);
    let (mut fourth, _) = fixture.attach(&anew).unwrap();
    assert_eq!(fixture.toy.detached.load(Ordering::SeqCst), 3);
    assert_eq!(fourth.call(ROOT, &Request::Statfs).error, 0);
}

#[test]
fn a_shutdown_lets_requests_finish_but_not_those_that_wait_for_locks() {
    let mut fixture = Fixture::start(ServerConfig::default());
    let node = file(&fixture, "a", b"1");
    fixture.toy.hold_up(node);
    let mut client = fixture.client();
    let unique = client.send(node, &write(0, b"2".to_vec()));
    client.send(ROOT, &wait_for_lock());
    eventually("the handler waits", || fixture.toy.waiting.load(Ordering::SeqCst) == 1);
    eventually("the lock is waited for", || {
        fixture.toy.lock_waiters.load(Ordering::SeqCst) == 1
    });
    let server = fixture.server.take().unwrap();
    let shutdown = std::thread::spawn(move || server.shutdown());
    std::thread::sleep(Duration::from_millis(50));
    fixture.toy.let_go(node);
    let answer = client.receive();
    assert_eq!((answer.unique, answer.error), (unique, 0));
    assert!(client.try_receive().is_none(), "the lock's request is left unanswered");
    shutdown.join().unwrap();
    assert_eq!(fixture.toy.detached.load(Ordering::SeqCst), 1);
    assert_eq!(fixture.toy.interrupted.load(Ordering::SeqCst), 1);
}

#[test]
fn clients_that_take_no_answers_lose_what_they_hold() {
    let budget = Budget::new(64 << 20);
    let config = ServerConfig {
        budget: budget.clone(),
        bytes_in_flight_max: 16 << 20,
        client_timeout: Duration::from_secs(2),
        ..ServerConfig::default()
    };
    let fixture = Fixture::start(config);
    let node = file(&fixture, "a", &vec![7; 1 << 20]);
    let hoarders: Vec<_> = (0..4)
        .map(|_| {
            let mut client = fixture.client();
            // More than the socket takes besides.
            for _ in 0..24 {
                client.send(node, &read(0, 1 << 20));
            }
            client
        })
        .collect();
    eventually("the pool to be used up", || budget.held_bytes() > 48 << 20);
    let mut other = fixture.client();
    assert_eq!(other.call(node, &read(0, 1 << 20)).body.len(), 1 << 20);
    eventually("everything to be given back", || budget.held_bytes() == 0);
    drop(hoarders);
}

#[test]
fn notifications_reach_those_who_want_them() {
    let fixture = Fixture::start(ServerConfig::default());
    let wants = Attach {
        notify: true,
        ..plain_attach()
    };
    let (mut listening, _) = fixture.attach(&wants).unwrap();
    let mut deaf = fixture.client();
    let notifiers = fixture.toy.notifiers.lock().unwrap().clone();
    // The answer to ATTACH may be on its way when the service already notifies: then it is dropped.
    assert_eq!(listening.call(ROOT, &Request::Statfs).error, 0);
    for notifier in &notifiers {
        notifier.notify(Notification::InvalidateNode {
            node: 5,
            offset: 0,
            length: 0,
        });
    }
    let notification = listening.receive();
    assert_eq!(
        (notification.unique, notification.error, notification.body.len()),
        (0, 2, 24)
    );
    assert_eq!(deaf.call(ROOT, &Request::Statfs).error, 0);
    assert_eq!(
        notifiers.iter().map(Notifier::is_silent).collect::<Vec<_>>(),
        [false, true]
    );
    drop(listening);
    eventually("the connection is gone", || fixture.server().connections() == 1);
    notifiers[0].notify(Notification::Resend);
}

#[test]
fn clients_that_vanish_at_any_moment_leave_nothing_behind() {
    let fixture = Fixture::start(ServerConfig::default());
    let node = file(&fixture, "a", &vec![7; 1 << 20]);
    for round in 0..150u64 {
        let mut client = fixture.client();
        for index in 0..round % 12 {
            let request = match index % 4 {
                0 => wait_for_lock(),
                1 => write(index, vec![7; 100_000]),
                _ => read(0, 1 << 20),
            };
            client.send(node, &request);
        }
        // The last request stays unfinished.
        let (_, message) = client.message(node, &write(0, vec![7; 5000]));
        client.stream.write_all(&message[..=round as usize * 20]).unwrap();
        if round % 3 == 0 {
            std::thread::sleep(Duration::from_micros(round * 20));
        }
    }
    eventually("all connections are gone", || fixture.server().connections() == 0);
    let toy = &fixture.toy;
    assert_eq!(toy.attached.load(Ordering::SeqCst), toy.detached.load(Ordering::SeqCst));
    assert_eq!(
        toy.interrupted.load(Ordering::SeqCst),
        toy.lock_waiters.load(Ordering::SeqCst)
    );
}

#[test]
fn a_client_that_takes_no_notifications_is_cut_off() {
    let fixture = Fixture::start(ServerConfig::default());
    let wants = Attach {
        notify: true,
        ..plain_attach()
    };
    let (mut client, _) = fixture.attach(&wants).unwrap();
    assert_eq!(client.call(ROOT, &Request::Statfs).error, 0);
    let notifier = fixture.toy.notifiers.lock().unwrap()[0].clone();
    eventually("it is cut off", || {
        for child in 0..10_000 {
            notifier.notify(Notification::Delete {
                parent: ROOT,
                child,
                name: vec![b'a'; 255],
            });
        }
        fixture.server().connections() == 0
    });
    assert_eq!(fixture.toy.detached.load(Ordering::SeqCst), 1);
}
