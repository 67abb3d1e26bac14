//! Clients' file requests, counted by operation.

use crate::metrics::histogram::{Meters, OperationMeter, Started};
use tombolo_fuse::Request;

const OPERATIONS: [&str; 12] = [
    "lookup", "getattr", "setattr", "create", "remove", "rename", "open", "read", "write", "sync", "readdir", "other",
];

pub struct FileMeters(Meters);

impl Default for FileMeters {
    fn default() -> Self {
        Self(Meters::new(&OPERATIONS))
    }
}

impl FileMeters {
    pub fn begin(&self, request: &Request) -> Started {
        let (operation, bytes) = match request {
            Request::Lookup { .. } => (0, 0),
            Request::Getattr { .. } | Request::Statx { .. } => (1, 0),
            Request::Setattr(_) => (2, 0),
            Request::Create { .. }
            | Request::Tmpfile { .. }
            | Request::Mknod { .. }
            | Request::Mkdir { .. }
            | Request::Symlink { .. }
            | Request::Link { .. } => (3, 0),
            Request::Unlink { .. } | Request::Rmdir { .. } => (4, 0),
            Request::Rename { .. } => (5, 0),
            Request::Open { .. } | Request::Opendir { .. } => (6, 0),
            Request::Read(read) => (7, u64::from(read.size)),
            Request::Write(write) => (8, write.data.len() as u64),
            Request::Fsync { .. } | Request::Fsyncdir { .. } | Request::Syncfs => (9, 0),
            Request::Readdir(_) | Request::Readdirplus(_) => (10, 0),
            _ => (11, 0),
        };
        Started::now(operation, bytes)
    }

    pub fn observe(&self, started: &Started, ok: bool) {
        self.0.observe(started, ok);
    }

    pub fn snapshot(&self) -> Vec<OperationMeter> {
        self.0.snapshot()
    }
}
