//! Keys of all entries. A tag byte, then numbers in big-endian order, so that what belongs together lies together and a
//! directory's entries lie in the order of their cookies.

use tombolo_base::DecodeError;

/// First byte of every key.
pub mod tag {
    /// Share by name.
    pub const SHARE: u8 = b'S';
    /// Inode: all but what data writes change.
    pub const INODE: u8 = b'I';
    /// Regular file: what data writes change.
    pub const FILE: u8 = b'D';
    /// Name in a directory.
    pub const NAME: u8 = b'N';
    /// Position in a directory.
    pub const COOKIE: u8 = b'C';
    /// Extended attribute.
    pub const XATTR: u8 = b'X';
    /// Inode without a name that is still open.
    pub const ORPHAN: u8 = b'O';
    /// Locks of an inode.
    pub const LOCKS: u8 = b'L';
    /// Session.
    pub const SESSION: u8 = b'T';
    /// Request that was carried out.
    pub const REPLAY: u8 = b'R';
    /// Counters of a share.
    pub const USAGE: u8 = b'U';
    /// The next unused numbers.
    pub const NUMBERS: u8 = b'G';
}

fn of(tag: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.push(tag);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn with(mut key: Vec<u8>, rest: &[u8]) -> Vec<u8> {
    key.extend_from_slice(rest);
    key
}

pub fn share(name: &str) -> Vec<u8> {
    with(vec![tag::SHARE], name.as_bytes())
}

pub fn inode(inode: u64) -> Vec<u8> {
    of(tag::INODE, inode)
}

pub fn file(inode: u64) -> Vec<u8> {
    of(tag::FILE, inode)
}

pub fn name(directory: u64, name: &[u8]) -> Vec<u8> {
    with(of(tag::NAME, directory), name)
}

pub fn cookie(directory: u64, cookie: u64) -> Vec<u8> {
    with(of(tag::COOKIE, directory), &cookie.to_be_bytes())
}

pub fn xattr(inode: u64, name: &[u8]) -> Vec<u8> {
    with(of(tag::XATTR, inode), name)
}

pub fn orphan(inode: u64) -> Vec<u8> {
    of(tag::ORPHAN, inode)
}

pub fn locks(inode: u64) -> Vec<u8> {
    of(tag::LOCKS, inode)
}

pub fn session(session: u64) -> Vec<u8> {
    of(tag::SESSION, session)
}

pub fn replay(session: u64, slot: u16) -> Vec<u8> {
    with(of(tag::REPLAY, session), &slot.to_be_bytes())
}

/// Bytes that the share's files have allocated.
pub fn used_bytes(share: u32) -> Vec<u8> {
    usage(share, b'b')
}

pub fn used_inodes(share: u32) -> Vec<u8> {
    usage(share, b'i')
}

fn usage(share: u32, what: u8) -> Vec<u8> {
    let mut key = vec![tag::USAGE];
    key.extend_from_slice(&share.to_be_bytes());
    key.push(what);
    key
}

pub fn id_allocator() -> Vec<u8> {
    vec![tag::NUMBERS]
}

/// Everything under a tag: the least key and the end.
pub fn all(tag: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![tag], vec![tag + 1])
}

/// Everything under a tag and a number. IdAllocator are below 2^63, so one more is a number too.
pub fn all_of(tag: u8, number: u64) -> (Vec<u8>, Vec<u8>) {
    (of(tag, number), of(tag, number + 1))
}

/// The least key after `key`.
pub fn after(key: &[u8]) -> Vec<u8> {
    with(key.to_vec(), &[0])
}

/// The number behind the tag, and what follows.
pub fn split(key: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
    let what = "key";
    let truncated = DecodeError::Truncated {
        what,
        offset: 0,
        needed: 9,
        available: key.len(),
    };
    let (head, rest) = key.split_at_checked(9).ok_or(truncated)?;
    let mut number = [0; 8];
    number.copy_from_slice(&head[1..]);
    let number = u64::from_be_bytes(number);
    match number >> 63 {
        0 => Ok((number, rest)),
        _ => Err(DecodeError::Invalid { what, value: number }),
    }
}

/// The cookie behind the directory's number.
pub fn split_cookie(key: &[u8]) -> Result<(u64, u64), DecodeError> {
    let (directory, rest) = split(key)?;
    let cookie = rest.try_into().map_err(|_| DecodeError::Invalid {
        what: "cookie's key",
        value: rest.len() as u64,
    })?;
    Ok((directory, u64::from_be_bytes(cookie)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_number_holds_its_keys_and_no_others() {
        let (from, end) = all_of(tag::NAME, 7);
        for inside in [name(7, b""), name(7, b"a"), name(7, &[0xff; 255])] {
            assert!(from <= inside && inside < end);
        }
        for outside in [name(6, &[0xff; 255]), name(8, b""), cookie(7, 3)] {
            assert!(outside < from || end <= outside);
        }
    }

    #[test]
    fn a_key_comes_apart_again() {
        assert_eq!(split(&name(5, b"ab")), Ok((5, &b"ab"[..])));
        assert_eq!(split_cookie(&cookie(5, 9)), Ok((5, 9)));
        assert!(split(b"N123").is_err());
        assert!(split(&[0xff; 9]).is_err());
        assert!(split_cookie(&name(5, b"ab")).is_err());
    }
}
