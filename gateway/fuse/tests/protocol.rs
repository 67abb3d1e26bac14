//! Requests survive the way through bytes; what is no request is refused with the right errno.

use proptest::prelude::*;
use std::time::Duration;
use tombolo_fuse::protocol::abi::{IN_HEADER_BYTES, InHeader};
use tombolo_fuse::protocol::encode::{encode, encode_interrupt, opcode_of};
use tombolo_fuse::protocol::malformed::Malformed;
use tombolo_fuse::protocol::opcode::Opcode;
use tombolo_fuse::protocol::parse::{parse, parse_interrupt, split};
use tombolo_fuse::protocol::reply::{self, Expected};
use tombolo_fuse::protocol::request::*;
use tombolo_fuse::protocol::wire::Wire;
use tombolo_fuse::{
    Attach, AttachReply, Attributes, DirectoryBuffer, DirectoryEntry, Entry, Errno, Notification, Opened, Reply,
    Request, RequestHeader,
};
use tombolo_transport::Message;

fn names() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("NUL and slash end a name", |byte| *byte != 0 && *byte != b'/');
    prop::collection::vec(byte, 1..=255)
}

fn targets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8.., 1..=4095)
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..3000)
}

fn times() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

fn set_times() -> impl Strategy<Value = Option<SetTime>> {
    prop::option::of(prop_oneof![Just(SetTime::Now), times().prop_map(SetTime::To)])
}

prop_compose! {
    fn set_attributes()(
        (fh, mode, uid, gid, size) in any::<(Option<u64>, Option<u32>, Option<u32>, Option<u32>, Option<u64>)>(),
        (atime, mtime, ctime) in (set_times(), set_times(), prop::option::of(times())),
        (lock_owner, kill_privileges) in any::<(Option<u64>, bool)>(),
    ) -> SetAttributes {
        SetAttributes { fh, mode, uid, gid, size, atime, mtime, ctime, lock_owner, kill_privileges }
    }
}

prop_compose! {
    fn locks()(
        (fh, owner, one, other) in any::<(u64, u64, u64, u64)>(),
        kind in prop_oneof![Just(LockType::Read), Just(LockType::Write), Just(LockType::Unlock)],
        (pid, flock) in any::<(u32, bool)>(),
    ) -> LockRequest {
        let lock = FileLock { start: one.min(other), end: one.max(other), kind, pid };
        LockRequest { fh, owner, lock, flock }
    }
}

fn creation_attributes() -> impl Strategy<Value = Option<Box<SetAttributes>>> {
    proptest::option::of(set_attributes().prop_map(Box::new))
}

fn named_requests() -> BoxedStrategy<Request> {
    let number = any::<u32>;
    prop_oneof![
        names().prop_map(|name| Request::Lookup { name }),
        names().prop_map(|name| Request::Unlink { name }),
        names().prop_map(|name| Request::Rmdir { name }),
        names().prop_map(|name| Request::Removexattr { name }),
        (names(), targets()).prop_map(|(name, target)| Request::Symlink { name, target }),
        (names(), number(), number(), number(), creation_attributes()).prop_map(
            |(name, mode, device, umask, attributes)| Request::Mknod {
                name,
                mode,
                device,
                umask,
                attributes
            }
        ),
        (names(), number(), number()).prop_map(|(name, mode, umask)| Request::Mkdir { name, mode, umask }),
        (names(), any::<u64>(), names(), number()).prop_map(|(name, new_parent, new_name, flags)| Request::Rename {
            name,
            new_parent,
            new_name,
            flags
        }),
        (any::<u64>(), names()).prop_map(|(node, name)| Request::Link { node, name }),
        (names(), data(), number(), any::<bool>()).prop_map(|(name, value, flags, clear_setgid)| Request::Setxattr {
            name,
            value,
            flags,
            clear_setgid
        }),
        (names(), number()).prop_map(|(name, size)| Request::Getxattr { name, size }),
        (
            names(),
            number(),
            number(),
            number(),
            any::<bool>(),
            creation_attributes()
        )
            .prop_map(
                |(name, flags, mode, umask, kill_privileges, attributes)| Request::Create {
                    name,
                    flags,
                    mode,
                    umask,
                    kill_privileges,
                    attributes
                }
            ),
    ]
    .boxed()
}

fn handle_requests() -> BoxedStrategy<Request> {
    let (word, number) = (any::<u64>, any::<u32>);
    prop_oneof![
        (word(), word(), number(), number(), any::<Option<u64>>()).prop_map(|(fh, offset, size, flags, lock_owner)| {
            Request::Read(Read {
                fh,
                offset,
                size,
                flags,
                lock_owner,
            })
        }),
        (
            word(),
            word(),
            number(),
            any::<Option<u64>>(),
            any::<(bool, bool, bool)>(),
            data()
        )
            .prop_map(
                |(fh, offset, flags, lock_owner, (from_cache, kill_privileges, wants_attributes), data)| {
                    Request::Write(Write {
                        fh,
                        offset,
                        flags,
                        lock_owner,
                        from_cache,
                        kill_privileges,
                        wants_attributes,
                        data,
                    })
                }
            ),
        (word(), number(), any::<(bool, bool)>(), word()).prop_map(|(fh, flags, (flush, unlock_flock), lock_owner)| {
            Request::Release(Release {
                fh,
                flags,
                flush,
                unlock_flock,
                lock_owner,
            })
        }),
        (word(), any::<bool>()).prop_map(|(fh, data_only)| Request::Fsync { fh, data_only }),
        (word(), any::<bool>()).prop_map(|(fh, data_only)| Request::Fsyncdir { fh, data_only }),
        (word(), word()).prop_map(|(fh, lock_owner)| Request::Flush { fh, lock_owner }),
        (word(), word(), number()).prop_map(|(fh, offset, size)| Request::Readdir(Readdir { fh, offset, size })),
        (word(), word(), number()).prop_map(|(fh, offset, size)| Request::Readdirplus(Readdir { fh, offset, size })),
        (word(), number()).prop_map(|(fh, flags)| Request::Releasedir { fh, flags }),
        locks().prop_map(Request::Getlk),
        (locks(), any::<bool>()).prop_map(|(lock, wait)| Request::Setlk { lock, wait }),
        (word(), word(), word(), number()).prop_map(|(fh, offset, length, mode)| Request::Fallocate {
            fh,
            offset,
            length,
            mode
        }),
        (word(), word(), number()).prop_map(|(fh, offset, whence)| Request::Lseek { fh, offset, whence }),
        any::<[u64; 7]>().prop_map(|[fh_in, offset_in, node_out, fh_out, offset_out, length, flags]| {
            Request::CopyFileRange(CopyRange {
                fh_in,
                offset_in,
                node_out,
                fh_out,
                offset_out,
                length,
                flags,
            })
        }),
    ]
    .boxed()
}

fn other_requests() -> BoxedStrategy<Request> {
    let number = any::<u32>;
    let forgotten = any::<(u64, u64)>().prop_map(|(node, lookups)| Forgotten { node, lookups });
    prop_oneof![
        any::<u64>().prop_map(|lookups| Request::Forget { lookups }),
        prop::collection::vec(forgotten, 0..20).prop_map(Request::BatchForget),
        any::<Option<u64>>().prop_map(|fh| Request::Getattr { fh }),
        set_attributes().prop_map(Request::Setattr),
        Just(Request::Readlink),
        Just(Request::Statfs),
        Just(Request::Syncfs),
        (number(), any::<bool>()).prop_map(|(flags, kill_privileges)| Request::Open { flags, kill_privileges }),
        number().prop_map(|flags| Request::Opendir { flags }),
        number().prop_map(|size| Request::Listxattr { size }),
        number().prop_map(|mask| Request::Access { mask }),
        (number(), number(), number()).prop_map(|(flags, mode, umask)| Request::Tmpfile { flags, mode, umask }),
        (any::<Option<u64>>(), number(), number()).prop_map(|(fh, flags, mask)| Request::Statx { fh, flags, mask }),
    ]
    .boxed()
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![named_requests(), handle_requests(), other_requests()]
}

fn header_for(request: &Request) -> RequestHeader {
    RequestHeader {
        opcode: opcode_of(request),
        unique: 0x8000_0000_1234_5678,
        node: 77,
        uid: 1000,
        gid: 1001,
        pid: 4242,
    }
}

fn parse_message(message: &[u8]) -> Result<(RequestHeader, Request), Malformed> {
    let (header, arguments, data) = split(message).unwrap();
    assert_eq!(header.len as usize, message.len());
    parse(&header, arguments, data)
}

/// With the length in the header put right.
fn parse_resized(mut message: Vec<u8>) -> Result<(RequestHeader, Request), Malformed> {
    let bytes = message.len() as u32;
    message[..4].copy_from_slice(&bytes.to_ne_bytes());
    parse_message(&message)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_request_survives_the_way_through_bytes(request in requests()) {
        let header = header_for(&request);
        let parsed = parse_message(&encode(&header, &request)).unwrap();
        prop_assert_eq!(parsed, (header, request));
        prop_assert!(header.is_resent());
        prop_assert_eq!(header.request_id(), 0x1234_5678);
    }

    #[test]
    fn a_request_with_a_byte_more_or_less_is_refused(request in requests(), cut in any::<prop::sample::Index>()) {
        let message = encode(&header_for(&request), &request);
        let mut longer = message.clone();
        longer.push(1);
        prop_assert!(parse_resized(longer).is_err());
        if message.len() > IN_HEADER_BYTES {
            let shorter = message[..IN_HEADER_BYTES + cut.index(message.len() - IN_HEADER_BYTES)].to_vec();
            prop_assert!(parse_resized(shorter).is_err());
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(
        opcode in prop_oneof![0u32..60, any::<u32>()],
        total_extlen in prop_oneof![4 => Just(0u16), 1 => any::<u16>()],
        body in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
    ) {
        let header = InHeader { opcode, total_extlen, ..InHeader::default() };
        let mut message = header.to_bytes();
        message.extend_from_slice(&body);
        if let Ok((header, request)) = parse_resized(message) {
            // What is taken for a request can be sent as one.
            prop_assert_eq!(parse_message(&encode(&header, &request)).unwrap(), (header, request));
        }
    }

    #[test]
    fn an_attach_survives_the_way_through_bytes(
        (client_name, share_name) in ("[a-zA-Z0-9:._-]{1,255}", "[^\0]{1,60}"),
        (incarnation, fuse_minor, init_flags) in any::<(u64, u32, u64)>(),
        (stable, device, resume, notify) in any::<(bool, bool, bool, bool)>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let attach =
            Attach { client_name, share_name, incarnation, stable, device, resume, notify, fuse_minor, init_flags };
        let message = attach.encode(9);
        let body = &message[IN_HEADER_BYTES..];
        prop_assert_eq!(Attach::decode(body), Ok(attach));
        prop_assert_eq!(Attach::decode(&body[..cut.index(body.len())]), Err(Errno::INVAL));
    }

    #[test]
    fn packed_directories_hold_what_was_taken(
        names in prop::collection::vec(names(), 0..12),
        size in 0u32..3000,
        plus in any::<bool>(),
    ) {
        let mut buffer = DirectoryBuffer::new(size);
        let mut taken = 0;
        for (index, name) in names.iter().enumerate() {
            let entry = DirectoryEntry { node: 100 + index as u64, cookie: 3 + index as u64, kind: 8, name };
            let found = Entry { node: entry.node, ..Entry::default() };
            if !(if plus { buffer.push_plus(&found, &entry) } else { buffer.push(&entry) }) {
                break;
            }
            taken += 1;
        }
        let Reply::Data(bytes) = buffer.into_reply() else { panic!("not data") };
        prop_assert!(bytes.len() <= size as usize);
        let fixed = if plus { 128 + 24 } else { 24 };
        let needed = |name: &Vec<u8>| (fixed + name.len()).next_multiple_of(8);
        if let Some(next) = names.get(taken) {
            prop_assert!(bytes.len() + needed(next) > size as usize, "there was room for one more");
        }
        let mut rest = &bytes[..];
        for (index, name) in names[..taken].iter().enumerate() {
            let at = |offset: usize| u64::from_ne_bytes(rest[offset..offset + 8].try_into().unwrap());
            let dirent = fixed - 24;
            prop_assert_eq!((at(dirent), at(dirent + 8)), (100 + index as u64, 3 + index as u64));
            prop_assert_eq!(at(dirent + 16), name.len() as u64 | 8 << 32);
            prop_assert_eq!(&rest[fixed..fixed + name.len()], &name[..]);
            rest = &rest[needed(name)..];
        }
        prop_assert!(rest.is_empty());
    }
}

fn refusal(opcode: Opcode, body: &[u8]) -> Errno {
    let header = InHeader {
        opcode: opcode.number(),
        ..InHeader::default()
    };
    let mut message = header.to_bytes();
    message.extend_from_slice(body);
    Errno::from(&parse_resized(message).unwrap_err())
}

#[test]
fn each_kind_of_bad_message_has_its_errno() {
    let errno = Errno::new;
    let long = |bytes: usize| {
        let mut name = vec![b'a'; bytes];
        name.push(0);
        name
    };
    assert_eq!(refusal(Opcode::Lookup, b"a"), errno(libc::EINVAL), "no NUL");
    assert_eq!(refusal(Opcode::Lookup, b"a\0b\0"), errno(libc::EINVAL), "two names");
    assert_eq!(refusal(Opcode::Lookup, b"a/b\0"), errno(libc::EINVAL), "a slash");
    assert_eq!(refusal(Opcode::Lookup, b"\0"), errno(libc::ENOENT), "empty");
    assert_eq!(refusal(Opcode::Lookup, &long(256)), errno(libc::ENAMETOOLONG));
    let mut symlink = b"a\0".to_vec();
    symlink.extend(long(4096));
    assert_eq!(refusal(Opcode::Symlink, &symlink), errno(libc::ENAMETOOLONG));
    assert_eq!(refusal(Opcode::Removexattr, &long(256)), errno(libc::ERANGE));
    let mut setxattr = 65_537u32.to_ne_bytes().to_vec();
    setxattr.extend([0; 12]);
    setxattr.extend(b"user.a\0");
    assert_eq!(refusal(Opcode::Setxattr, &setxattr), errno(libc::E2BIG));
    assert_eq!(refusal(Opcode::Getattr, &[0; 15]), errno(libc::EINVAL), "too short");
    assert_eq!(refusal(Opcode::Ioctl, &[0; 32]), errno(libc::ENOTTY));
    assert_eq!(refusal(Opcode::Poll, &[0; 24]), errno(libc::ENOSYS));
    assert_eq!(refusal(Opcode::Init, &[0; 64]), errno(libc::EPROTO));
    let unknown = InHeader {
        opcode: 999,
        ..InHeader::default()
    };
    let malformed = parse_resized(unknown.to_bytes()).unwrap_err();
    assert_eq!(malformed, Malformed::UnknownOpcode { number: 999 });
    assert_eq!(Errno::from(&malformed), errno(libc::ENOSYS));
}

#[test]
fn a_lock_that_ends_before_it_starts_is_refused() {
    let lock = FileLock {
        start: 5,
        end: 4,
        kind: LockType::Read,
        pid: 1,
    };
    let request = Request::Getlk(LockRequest {
        fh: 0,
        owner: 1,
        lock,
        flock: false,
    });
    let malformed = parse_message(&encode(&header_for(&request), &request)).unwrap_err();
    assert_eq!(Errno::from(&malformed), Errno::INVAL);
}

#[test]
fn extensions_are_left_out() {
    let request = Request::Mkdir {
        name: b"a".to_vec(),
        mode: 0o755,
        umask: 0,
    };
    let mut message = encode(&header_for(&request), &request);
    message.extend([7; 16]);
    message[36..38].copy_from_slice(&2u16.to_ne_bytes());
    assert_eq!(parse_resized(message.clone()).unwrap().1, request);
    message[36..38].copy_from_slice(&200u16.to_ne_bytes());
    assert!(matches!(
        parse_resized(message),
        Err(Malformed::Extension { bytes: 1600 })
    ));
}

#[test]
fn the_old_rename_and_the_long_copy_are_read() {
    let request = Request::Rename {
        name: b"a".to_vec(),
        new_parent: 3,
        new_name: b"b".to_vec(),
        flags: 0,
    };
    let header = RequestHeader {
        opcode: Opcode::Rename,
        ..header_for(&request)
    };
    assert_eq!(parse_message(&encode(&header, &request)).unwrap().1, request);
    let copy = Expected {
        unique: 1,
        opcode: Opcode::CopyFileRange64,
        size: 1 << 40,
        attributes: false,
    };
    let encoded = reply::encode(copy, Reply::Copied(1 << 33)).unwrap();
    assert_eq!(encoded.head[16..], (1u64 << 33).to_ne_bytes());
    let short = Expected {
        opcode: Opcode::CopyFileRange,
        ..copy
    };
    assert_eq!(reply::encode(short, Reply::Copied(1 << 33)), None);
}

#[test]
fn interrupts_name_their_request() {
    let message = encode_interrupt(5, 4);
    assert_eq!(parse_interrupt(&message[IN_HEADER_BYTES..]), Ok(4));
    assert!(parse_interrupt(&message[IN_HEADER_BYTES + 1..]).is_err());
}

fn expected(opcode: Opcode, size: u64) -> Expected {
    Expected {
        unique: 9,
        opcode,
        size,
        attributes: false,
    }
}

#[test]
fn a_write_is_answered_with_attributes_if_it_asked_for_them_and_only_then() {
    let attributes = Attributes {
        node: 7,
        size: 4096,
        ..Attributes::default()
    };
    let with = Reply::WrittenWith { bytes: 3, attributes };
    let wanting = Expected {
        attributes: true,
        ..expected(Opcode::Write, 3)
    };
    let encoded = reply::encode(wanting, with.clone()).unwrap();
    assert_eq!(encoded.bytes(), 16 + 8 + 88);
    assert_eq!(encoded.head[16..20], 3u32.to_ne_bytes());
    assert_eq!(encoded.head[24..32], 7u64.to_ne_bytes());
    assert_eq!(encoded.head[32..40], 4096u64.to_ne_bytes());
    assert_eq!(reply::encode(wanting, Reply::Written(3)), None);
    assert_eq!(reply::encode(expected(Opcode::Write, 3), with), None);
    let too_much = Reply::WrittenWith { bytes: 4, attributes };
    assert_eq!(reply::encode(wanting, too_much), None);
}

#[test]
fn replies_have_the_length_of_their_structure() {
    let entry = Entry {
        entry_valid: Duration::from_millis(1500),
        ..Entry::default()
    };
    let attributes = Attributes::default();
    let valid = Duration::from_secs(1);
    let opened = Opened { fh: 3, flags: 2 };
    let lock = FileLock {
        start: 0,
        end: 9,
        kind: LockType::Unlock,
        pid: 0,
    };
    let cases = [
        (Opcode::Unlink, Reply::Done, 0),
        (Opcode::Lookup, Reply::Entry(entry), 128),
        (Opcode::Getattr, Reply::Attributes { valid, attributes }, 104),
        (Opcode::Statx, Reply::Statx { valid, attributes }, 288),
        (Opcode::Open, Reply::Opened(opened), 16),
        (Opcode::Create, Reply::Created(entry, opened), 144),
        (Opcode::Lseek, Reply::Position(7), 8),
        (Opcode::Getlk, Reply::Lock(lock), 24),
        (Opcode::Statfs, Reply::Statfs(tombolo_fuse::Statfs::default()), 80),
        (Opcode::Write, Reply::Written(0), 8),
        (Opcode::Getxattr, Reply::XattrSize(5), 8),
    ];
    for (opcode, reply, bytes) in cases {
        let encoded = reply::encode(expected(opcode, 0), reply).unwrap();
        assert_eq!(encoded.bytes(), 16 + bytes, "{opcode:?}");
        assert_eq!(encoded.head[..4], (16 + bytes as u32).to_ne_bytes(), "{opcode:?}");
        assert_eq!(encoded.head[8..16], 9u64.to_ne_bytes());
    }
    let encoded = reply::encode(expected(Opcode::Lookup, 0), Reply::Entry(entry)).unwrap();
    // entry_valid, and entry_valid_nsec behind the two times in seconds.
    assert_eq!(encoded.head[32..40], 1u64.to_ne_bytes());
    assert_eq!(encoded.head[48..52], 500_000_000u32.to_ne_bytes());
}

#[test]
fn a_reply_that_does_not_fit_its_request_is_none() {
    let misfits = [
        (Opcode::Lookup, 0, Reply::Done),
        (Opcode::Read, 3, Reply::Data(vec![0; 4])),
        (Opcode::Write, 3, Reply::Written(4)),
        (Opcode::Getxattr, 0, Reply::Data(vec![])),
        (Opcode::Getxattr, 4, Reply::XattrSize(1)),
        (Opcode::Open, 0, Reply::Done),
        (Opcode::Forget, 0, Reply::Done),
    ];
    for (opcode, size, reply) in misfits {
        assert_eq!(reply::encode(expected(opcode, size), reply), None, "{opcode:?}");
    }
}

#[test]
fn values_that_do_not_fit_are_erange() {
    assert_eq!(Reply::sized(vec![1; 5], 0), Ok(Reply::XattrSize(5)));
    assert_eq!(Reply::sized(vec![1; 5], 5), Ok(Reply::Data(vec![1; 5])));
    assert_eq!(Reply::sized(vec![1; 5], 4), Err(Errno::new(libc::ERANGE)));
    assert_eq!(Reply::sized(vec![], 4), Ok(Reply::Data(vec![])));
}

#[test]
fn error_numbers_that_the_kernel_would_not_take_become_eio() {
    for number in [0, -5, 512, i32::MIN, i32::MAX] {
        assert_eq!(Errno::new(number), Errno::IO);
    }
    assert_eq!(Errno::new(511).number(), 511);
}

#[test]
fn an_attach_with_other_than_what_is_known_is_refused() {
    let attach = Attach {
        client_name: "a".into(),
        share_name: "b".into(),
        incarnation: 1,
        stable: false,
        device: false,
        resume: false,
        notify: false,
        fuse_minor: 39,
        init_flags: 0,
    };
    let with = |offset: usize, value: u32| {
        let mut body = attach.encode(1)[IN_HEADER_BYTES..].to_vec();
        body[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        Attach::decode(&body)
    };
    assert_eq!(with(0, 2), Err(Errno::PROTO), "another version");
    assert_eq!(with(4, 1 << 4), Err(Errno::INVAL), "an unknown flag");
    assert_eq!(with(16, 0), Err(Errno::INVAL), "an empty name");
    assert_eq!(with(16, u32::MAX), Err(Errno::INVAL), "a name longer than the message");
    let reply = AttachReply {
        acl_flags: true,
        write_attributes: false,
        creation_attributes: false,
        session: 5,
        boot: 6,
        root: 7,
        max_write: 1 << 20,
        grace_ms: 90_000,
        resumed: true,
    };
    let message = reply.encode(3);
    assert_eq!(AttachReply::decode(&message[16..]), Some(reply));
    assert_eq!(AttachReply::decode(&message[17..]), None);
}

#[test]
fn notifications_are_laid_out_as_the_kernel_reads_them() {
    let bytes = |notification: Notification| notification.encode();
    let inode = bytes(Notification::InvalidateNode {
        node: 5,
        offset: -1,
        length: 0,
    });
    assert_eq!((inode.len(), &inode[..8]), (40, &[40, 0, 0, 0, 2, 0, 0, 0][..]));
    let entry = bytes(Notification::InvalidateEntry {
        parent: 5,
        name: b"ab".to_vec(),
        expire_only: true,
    });
    assert_eq!((entry.len(), entry[4]), (16 + 16 + 3, 3));
    assert_eq!(&entry[24..], b"\x02\0\0\0\x01\0\0\0ab\0");
    let removed = bytes(Notification::Delete {
        parent: 5,
        child: 6,
        name: b"ab".to_vec(),
    });
    assert_eq!((removed.len(), removed[4], removed[24]), (16 + 24 + 3, 6, 6));
    assert_eq!(
        bytes(Notification::Resend),
        [16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}
