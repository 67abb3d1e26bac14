//! A look at LMDB's file before it is mapped: what LMDB would follow blindly, or crash on, is refused here.
//!
//! ```text
//! each of the first two pages:   16 page header (flags u16 at 10: 8 for a meta page)
//!   16 magic u32 | 20 version u32 | 24 address u64 | 32 map bytes u64
//!   40 free list: page bytes u32, ..., root u64 at 80
//!   88 main tree: ..., root u64 at 128
//!  136 last page u64 | 144 transaction u64
//! ```

use super::cache_file::drop_pages;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const DATA_FILE: &str = "data.mdb";
const META_BYTES: usize = 152;
const META_FLAG: u16 = 8;
const MAGIC: u32 = 0xBEEF_C0DE;
/// Of a tree without entries.
const NO_ROOT: u64 = u64::MAX;

/// Why LMDB must not open its file. None of it is left by a power cut, at the first start or later.
#[derive(Debug, thiserror::Error)]
pub enum MetadataFileError {
    #[error("{path} is missing; it says where all data lies: restore the state directory from a copy")]
    Missing { path: PathBuf },
    #[error("{path}: {error}")]
    Disk { path: PathBuf, error: io::Error },
    #[error(
        "{path} was cut: it has {found} bytes and had {noted} at least, says the cache file; put it back as it was (or the \
         cache file, if that is another gateway's), or restore the state \
         directory from a copy"
    )]
    Cut { path: PathBuf, found: u64, noted: u64 },
    #[error("{path} was cut: it has {found} bytes, and its last page ends at {end}; put it back as it was")]
    CutShort { path: PathBuf, found: u64, end: u64 },
    #[error(
        "{path}: meta page {page} is damaged ({what} is {value:#x}); do not remove the file, it says where all data \
         lies: put it back as it was, or restore the state directory from a copy"
    )]
    Damaged {
        path: PathBuf,
        page: u64,
        what: &'static str,
        value: u64,
    },
}

/// `noted_bytes`: as long as it was known to be. It never shrinks. `None`: that is not known; then it has to be as long as LMDB
/// has used it, though LMDB may have left out the end.
pub fn check(directory: &Path, noted_bytes: Option<u64>) -> Result<(), MetadataFileError> {
    let path = directory.join(DATA_FILE);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MetadataFileError::Missing { path: path.clone() },
        _ => MetadataFileError::Disk {
            path: path.clone(),
            error,
        },
    };
    let file = File::open(&path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    let noted = noted_bytes.unwrap_or_default();
    if found < noted.max(2 * META_BYTES as u64) {
        return Err(MetadataFileError::Cut { path, found, noted });
    }
    // What the kernel could not write must not be taken for what is there.
    file.sync_data().and_then(|()| drop_pages(&file)).map_err(failed)?;
    let (mut page_bytes, mut end, mut newest) = (0, 0, 0);
    for page in 0..2 {
        let mut bytes = [0; META_BYTES];
        let read = file.read_exact_at(&mut bytes, page * page_bytes);
        read.map_err(failed)?;
        let meta = check_page(&bytes, page_bytes).map_err(|(what, value)| MetadataFileError::Damaged {
            path: path.clone(),
            page,
            what,
            value,
        })?;
        page_bytes = meta.page_bytes;
        if meta.transaction >= newest {
            (newest, end) = (meta.transaction, (meta.last + 1) * page_bytes);
        }
    }
    if noted_bytes.is_none() && found < end {
        return Err(MetadataFileError::CutShort { path, found, end });
    }
    Ok(())
}

struct Meta {
    page_bytes: u64,
    /// The last page that is used.
    last: u64,
    transaction: u64,
}

/// The size of pages must equal that of the other meta page, if that is known.
fn check_page(bytes: &[u8; META_BYTES], page_bytes: u64) -> Result<Meta, (&'static str, u64)> {
    let number = |offset: usize, length: usize| {
        let raw = bytes[offset..offset + length].iter().rev();
        raw.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let is = |what, offset, length, right: &dyn Fn(u64) -> bool| {
        let found = number(offset, length);
        if right(found) { Ok(found) } else { Err((what, found)) }
    };
    is("the page's kind", 10, 2, &|flags| flags & u64::from(META_FLAG) != 0)?;
    is("the magic number", 16, 4, &|magic| magic == u64::from(MAGIC))?;
    let found = is("the size of pages", 40, 4, &|bytes| {
        bytes.is_power_of_two() && (512..=65_536).contains(&bytes) && (page_bytes == 0 || bytes == page_bytes)
    })?;
    let last = is("the last page", 136, 8, &|last| {
        last >= 1 && last < number(32, 8) / found.max(1)
    })?;
    for (what, offset) in [("the root of the free list", 80), ("the root of the tables", 128)] {
        is(what, offset, 8, &|root| root == NO_ROOT || (2..=last).contains(&root))?;
    }
    Ok(Meta {
        page_bytes: found,
        last,
        transaction: number(144, 8),
    })
}
