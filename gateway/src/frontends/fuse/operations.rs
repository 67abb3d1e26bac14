//! As what a file request is counted.

use crate::metrics::requests::{FileOperation, Started};
use tombolo_fuse::Request;

pub fn begin(request: &Request) -> Started<FileOperation> {
    let (operation, bytes) = match request {
        Request::Lookup { .. } => (FileOperation::Lookup, 0),
        Request::Getattr { .. } | Request::Statx { .. } => (FileOperation::Getattr, 0),
        Request::Setattr(_) => (FileOperation::Setattr, 0),
        Request::Create { .. }
        | Request::Tmpfile { .. }
        | Request::Mknod { .. }
        | Request::Mkdir { .. }
        | Request::Symlink { .. }
        | Request::Link { .. } => (FileOperation::Create, 0),
        Request::Unlink { .. } | Request::Rmdir { .. } => (FileOperation::Remove, 0),
        Request::Rename { .. } => (FileOperation::Rename, 0),
        Request::Open { .. } | Request::Opendir { .. } => (FileOperation::Open, 0),
        Request::Read(read) => (FileOperation::Read, u64::from(read.size)),
        Request::Write(write) => (FileOperation::Write, write.data.len() as u64),
        Request::Fsync { .. } | Request::Fsyncdir { .. } | Request::Syncfs => (FileOperation::Sync, 0),
        Request::Readdir(_) | Request::Readdirplus(_) => (FileOperation::Readdir, 0),
        _ => (FileOperation::Other, 0),
    };
    Started::now(operation, bytes)
}
