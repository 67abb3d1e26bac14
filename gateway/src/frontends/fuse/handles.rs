//! Which open files of a mount are of the present generation ([`crate::runtime::Generation`]).
//!
//! An open file goes by the number of the request that opened it, and the generation that it was opened in. A mount
//! outlives the gateway; what it has open from a generation that lost something gets an error from then on, so that
//! nobody takes a sync for the sync of what is lost. Nothing is kept for that, so nothing can be forgotten.
//!
//! Ganesha needs no such thing: its clients learn of a restart by the write verifier and send again what they had not
//! committed.

use crate::runtime::TAG_BITS;
use tombolo_files::{FileError, SessionKind};
use tombolo_fuse::Request;

/// The kernel numbers requests from zero on: at a million in a second these last for nine years.
const NUMBER_BITS: u32 = u64::BITS - TAG_BITS;

/// How one session's open files are called.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// `None`: no generations are told apart.
    generation: Option<u64>,
}

impl Handles {
    pub fn new(kind: SessionKind, generation: u64) -> Self {
        Self {
            generation: (kind == SessionKind::Kernel).then_some(generation),
        }
    }

    /// A restart changes nothing in it, and a request that is sent again opens the same.
    pub fn of_request(self, number: u64) -> u64 {
        match self.generation {
            Some(generation) => generation << NUMBER_BITS | number & (u64::MAX >> TAG_BITS),
            None => number,
        }
    }

    /// Whether the request is about something that was open before something was lost.
    pub fn are_lost(self, request: &Request) -> bool {
        let Some(generation) = self.generation else {
            return false;
        };
        let is_lost = |handle: u64| handle >> NUMBER_BITS != generation << NUMBER_BITS >> NUMBER_BITS;
        named(request).into_iter().flatten().any(is_lost)
    }
}

/// What a request about a lost open file is answered: nothing but giving it back succeeds. close(2) fails too, by FLUSH.
pub fn answer_of_lost<T>(request: &Request, closed: T) -> Result<T, FileError> {
    match request {
        Request::Release(_) | Request::Releasedir { .. } => Ok(closed),
        _ => Err(FileError::Lost),
    }
}

/// The open files that a request names.
fn named(request: &Request) -> [Option<u64>; 2] {
    let one = match request {
        Request::Getattr { fh } | Request::Statx { fh, .. } => *fh,
        Request::Setattr(set) => set.fh,
        Request::Read(read) => Some(read.fh),
        Request::Write(write) => Some(write.fh),
        Request::Release(release) => Some(release.fh),
        Request::Fsync { fh, .. }
        | Request::Flush { fh, .. }
        | Request::Releasedir { fh, .. }
        | Request::Fsyncdir { fh, .. }
        | Request::Fallocate { fh, .. }
        | Request::Lseek { fh, .. } => Some(*fh),
        Request::Readdir(readdir) | Request::Readdirplus(readdir) => Some(readdir.fh),
        Request::Getlk(lock) | Request::Setlk { lock, .. } => Some(lock.fh),
        Request::CopyFileRange(copy) => return [Some(copy.fh_in), Some(copy.fh_out)],
        Request::Lookup { .. }
        | Request::Forget { .. }
        | Request::BatchForget(_)
        | Request::Readlink
        | Request::Symlink { .. }
        | Request::Mknod { .. }
        | Request::Mkdir { .. }
        | Request::Unlink { .. }
        | Request::Rmdir { .. }
        | Request::Rename { .. }
        | Request::Link { .. }
        | Request::Open { .. }
        | Request::Statfs
        | Request::Setxattr { .. }
        | Request::Getxattr { .. }
        | Request::Listxattr { .. }
        | Request::Removexattr { .. }
        | Request::Opendir { .. }
        | Request::Access { .. }
        | Request::Create { .. }
        | Request::Tmpfile { .. }
        | Request::Syncfs => None,
    };
    [one, None]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_fuse::protocol::request::CopyRange;

    const FIRST: u64 = 0xaaaa_bbbb_cccc_0001;
    const SECOND: u64 = 0xaaaa_bbbb_cccc_0002;

    fn sync(fh: u64) -> Request {
        Request::Fsync { fh, data_only: false }
    }

    #[test]
    fn those_of_another_generation_are_lost() {
        let (first, second) = (
            Handles::new(SessionKind::Kernel, FIRST),
            Handles::new(SessionKind::Kernel, SECOND),
        );
        for number in [0, 6, u64::MAX >> TAG_BITS, u64::MAX] {
            let handle = first.of_request(number);
            assert_eq!(handle, first.of_request(number));
            assert!(!first.are_lost(&sync(handle)));
            assert!(second.are_lost(&sync(handle)));
        }
        assert_ne!(first.of_request(6), first.of_request(8));
        assert!(!second.are_lost(&Request::Getattr { fh: None }));
        assert!(second.are_lost(&Request::Getattr {
            fh: Some(first.of_request(6))
        }));
    }

    #[test]
    fn either_side_of_a_copy_counts() {
        let (first, second) = (
            Handles::new(SessionKind::Kernel, FIRST),
            Handles::new(SessionKind::Kernel, SECOND),
        );
        let copy = |fh_in, fh_out| {
            Request::CopyFileRange(CopyRange {
                fh_in,
                offset_in: 0,
                node_out: 2,
                fh_out,
                offset_out: 0,
                length: 1,
                flags: 0,
            })
        };
        let (old, new) = (first.of_request(2), second.of_request(4));
        assert!(second.are_lost(&copy(old, new)) && second.are_lost(&copy(new, old)));
        assert!(!second.are_lost(&copy(new, new)));
    }

    #[test]
    fn a_lost_one_can_be_closed_and_nothing_else() {
        let closed = Request::Releasedir { fh: 1, flags: 0 };
        assert_eq!(answer_of_lost(&closed, ()), Ok(()));
        assert_eq!(answer_of_lost(&sync(1), ()), Err(FileError::Lost));
    }

    #[test]
    fn those_of_ganesha_are_never_lost() {
        let handles = Handles::new(SessionKind::Client, FIRST);
        assert_eq!(handles.of_request(u64::MAX), u64::MAX);
        assert!(!handles.are_lost(&sync(0)));
    }
}
