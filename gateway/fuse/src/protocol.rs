//! The wire format of FUSE as `<linux/fuse.h>` has it (up to minor 39, and from later ones RESEND and the 64-bit
//! COPY_FILE_RANGE), and this project's ATTACH. Pure: bytes in, bytes out.

pub mod abi;
pub mod arguments;
pub mod attach;
pub mod directory;
#[cfg(feature = "testing")]
pub mod encode;
#[expect(missing_docs, reason = "the names are those of <linux/fuse.h>")]
pub mod flags;
pub mod malformed;
pub mod notify;
#[expect(missing_docs, reason = "the names are those of <linux/fuse.h>")]
pub mod opcode;
pub mod parse;
#[expect(missing_docs, reason = "the names are those of <linux/fuse.h>")]
pub mod reply;
#[expect(missing_docs, reason = "the names are those of <linux/fuse.h>")]
pub mod request;
pub mod wire;

/// The largest READ and WRITE.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
