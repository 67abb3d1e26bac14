//! Numbers that are given out once: of inodes, shares and sessions.

use crate::keys;
use crate::records::IdAllocatorRecord;
use tombolo_base::DecodeError;

/// Beyond what a gateway gives out between two recovery points, and so few that they never run out.
const INODES_SKIPPED: u64 = 1 << 40;
const SESSIONS_SKIPPED: u64 = 1 << 40;
const SHARES_SKIPPED: u32 = 1 << 12;

/// The entry that says which numbers come next.
pub fn next_numbers_key() -> Vec<u8> {
    keys::id_allocator()
}

/// What that entry has to be after a recovery from a state that is older than the last one. Clients may hold numbers that
/// were given out since: a handle must not come to mean another file.
///
/// # Errors
/// When the entry is not what was put there.
pub fn skip_numbers(entry: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let next = IdAllocatorRecord::decode(entry)?;
    let skipped = IdAllocatorRecord {
        inode: next.inode.saturating_add(INODES_SKIPPED),
        share: next.share.saturating_add(SHARES_SKIPPED),
        session: next.session.saturating_add(SESSIONS_SKIPPED),
    };
    Ok(skipped.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_far_behind_those_that_were_given_out() {
        let next = IdAllocatorRecord {
            inode: 5,
            share: 6,
            session: 7,
        };
        let skipped = IdAllocatorRecord::decode(&skip_numbers(&next.encode()).unwrap()).unwrap();
        assert_eq!(skipped.inode - 5, INODES_SKIPPED);
        assert_eq!(skipped.share - 6, SHARES_SKIPPED);
        assert_eq!(skipped.session - 7, SESSIONS_SKIPPED);
        assert!(skip_numbers(b"another entry").is_err());
    }
}
