//! The project's own format: chunks of records, a compressed column for each field, sums over everything. Byte by byte in
//! docs/FORMAT.md. A file that was not finished is readable up to its last whole chunk.

mod column;
mod read;
mod write;

pub(crate) use read::Chunks;
pub use write::{FileHeader, Writer};

pub(crate) const FILE_MAGIC: &[u8] = b"TMBTRAC1";
const FILE_HEADER_BYTES: usize = 64;
const VERSION: u32 = 1;
const CHUNK_MAGIC: &[u8; 4] = b"TBCH";
const END_MAGIC: &[u8; 4] = b"TBEN";
const CHUNK_HEADER_BYTES: usize = 40;
/// Where a chunk header's sum lies; it covers what is before it, and the body.
const CHUNK_SUM_OFFSET: usize = 32;
const COLUMNS: usize = 9;
/// Records of a chunk at the most.
pub const CHUNK_RECORDS_MAX: usize = 1 << 16;
/// A chunk is closed when it names as many contents.
const CHUNK_CONTENTS: usize = 1 << 17;
/// Contents that one record may name: 4 GiB.
const RECORD_CONTENTS_MAX: usize = 1 << 20;
/// What a column may decompress to: the contents of a nearly full chunk and one more record, ten bytes each.
const COLUMN_BYTES_MAX: usize = (CHUNK_CONTENTS + RECORD_CONTENTS_MAX) * 10 + 1;
const BODY_BYTES_MAX: usize = 2 * COLUMN_BYTES_MAX;
