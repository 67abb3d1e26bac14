//! Where the listings of open directories end: at what was the directory's end when each began, so that none goes on for
//! ever while names are made. One that is rewound begins anew.
//!
//! Kept in memory, by open directory. Of those that nothing is known of (NFS has none; a restart forgets them) the end is
//! the directory's own.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tombolo_files::Positions;
use tombolo_fuse::protocol::request::Readdir;

#[derive(Default)]
pub struct Listings(Mutex<HashMap<u64, u64>>);

impl Listings {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of the directory is to be listed. `end` is asked for when a listing begins.
    pub fn positions<E>(&self, readdir: &Readdir, end: impl FnOnce() -> Result<u64, E>) -> Result<Positions, E> {
        let after = readdir.offset;
        if readdir.fh == 0 {
            return Ok(after.into());
        }
        if after == 0 {
            let end = end()?;
            self.lock().insert(readdir.fh, end);
            return Ok(Positions { after, end });
        }
        let end = self.lock().get(&readdir.fh).copied();
        Ok(end.map_or(after.into(), |end| Positions { after, end }))
    }

    pub fn close(&self, fh: u64) {
        self.lock().remove(&fh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_listing_ends_where_the_directory_did_when_it_began() {
        let listings = Listings::default();
        let positions = |fh, offset, end| {
            let readdir = Readdir { fh, offset, size: 4096 };
            let Ok(found) = listings.positions(&readdir, || Ok::<_, Infallible>(end));
            (found.after, found.end)
        };
        assert_eq!(positions(8, 0, 10), (0, 10));
        assert_eq!(positions(8, 5, 20), (5, 10));
        assert_eq!(positions(12, 5, 20), (5, u64::MAX), "nothing is known of its beginning");
        assert_eq!(positions(8, 0, 30), (0, 30), "rewound");
        assert_eq!(positions(8, 7, 40), (7, 30));
        assert_eq!(positions(0, 0, 40), (0, u64::MAX));
        listings.close(8);
        assert_eq!(positions(8, 7, 40), (7, u64::MAX));
    }
}
