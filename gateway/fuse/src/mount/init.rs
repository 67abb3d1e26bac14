//! INIT, the kernel's first request to a mount: which version is spoken, and what both sides can do.

use crate::protocol::abi::{IN_HEADER_BYTES, INIT_OUT_BYTES, InHeader, InitIn, InitOut, OUT_HEADER_BYTES, OutHeader};
use crate::protocol::flags::{bits, init};
use crate::protocol::opcode::Opcode;
use crate::protocol::wire::Wire;
use std::fs::File;
use std::io::{self, Read, Write};

/// The protocol's version that this crate speaks.
const MINOR: u32 = 39;
/// Of Linux 5.12: extended SETXATTR, and privileges cleared by the server.
const MINOR_MIN: u32 = 33;
/// Asked for when the kernel has them. Not `ATOMIC_O_TRUNC`: an OPEN would then truncate before the kernel has looked
/// whether it may (a program that is being executed: ETXTBSY).
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::POSIX_LOCKS
    | init::FLOCK_LOCKS
    | init::DONT_MASK
    | init::PARALLEL_DIROPS
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPORT_SUPPORT
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::HAS_RESEND;
/// Without these, requests would have another form or meaning.
const NEEDED: u64 = init::BIG_WRITES
    | init::POSIX_LOCKS
    | init::FLOCK_LOCKS
    | init::DONT_MASK
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT;
/// Reads ahead and asynchronous direct requests that the kernel has under way at once.
const BACKGROUND_MAX: u16 = 64;
const CONGESTION_THRESHOLD: u16 = 48;
const PAGE_BYTES: u32 = 4096;
const TIME_GRANULARITY_NS: u32 = 1;

/// Why a mount cannot begin.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what happened")]
pub enum InitError {
    #[error("reading or writing the device")]
    Io(#[from] io::Error),
    #[error("it is not an INIT")]
    NotInit,
    #[error("the kernel speaks FUSE {major}.{minor}; 7.{MINOR_MIN} is needed (Linux 5.12)")]
    TooOld { major: u32, minor: u32 },
    #[error("the kernel lacks the features {missing:#x} of FUSE")]
    Missing { missing: u64 },
}

/// What the kernel and its servers have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The version that is spoken: 7 and this.
    pub minor: u32,
    /// Of [`init`].
    pub flags: u64,
    /// The longest read or write.
    pub data_bytes_max: u32,
}

/// Waits for INIT and answers it. What comes next is a server's.
pub fn answer(device: &File, data_bytes_max: u32) -> Result<Negotiated, InitError> {
    let mut buffer = vec![0; crate::protocol::flags::READ_BUFFER_BYTES_MIN];
    let bytes = loop {
        match (&*device).read(&mut buffer) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
            outcome => break outcome?,
        }
    };
    let (unique, given) = decode(&buffer[..bytes])?;
    match negotiate(&given, data_bytes_max) {
        Ok((negotiated, out)) => {
            (&*device).write_all(&encode(unique, &out))?;
            Ok(negotiated)
        }
        Err(error) => {
            let refusal = OutHeader {
                len: OUT_HEADER_BYTES as u32,
                error: -libc::EPROTO,
                unique,
            };
            (&*device).write_all(&refusal.to_bytes())?;
            Err(error)
        }
    }
}

fn decode(message: &[u8]) -> Result<(u64, InitIn), InitError> {
    let (header, body) = message.split_at_checked(IN_HEADER_BYTES).ok_or(InitError::NotInit)?;
    let header = InHeader::get(header);
    if header.opcode != Opcode::Init.number() {
        return Err(InitError::NotInit);
    }
    // Older kernels send less, newer ones perhaps more.
    let mut whole = vec![0; InitIn::BYTES];
    let known = body.len().min(InitIn::BYTES);
    whole[..known].copy_from_slice(&body[..known]);
    Ok((header.unique, InitIn::get(&whole)))
}

fn negotiate(given: &InitIn, data_bytes_max: u32) -> Result<(Negotiated, InitOut), InitError> {
    let (major, minor) = (given.major, given.minor);
    if major != bits::KERNEL_VERSION || minor < MINOR_MIN {
        return Err(InitError::TooOld { major, minor });
    }
    let mut offered = u64::from(given.flags);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(given.flags2) << 32;
    }
    let missing = NEEDED & !offered;
    if missing != 0 {
        return Err(InitError::Missing { missing });
    }
    let flags = WANTED & offered;
    let out = InitOut {
        major: bits::KERNEL_VERSION,
        minor: MINOR.min(minor),
        max_readahead: given.max_readahead,
        flags: flags as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: CONGESTION_THRESHOLD,
        max_write: data_bytes_max,
        time_gran: TIME_GRANULARITY_NS,
        max_pages: data_bytes_max.div_ceil(PAGE_BYTES).min(u16::MAX.into()) as u16,
        map_alignment: 0,
        flags2: (flags >> 32) as u32,
    };
    let negotiated = Negotiated {
        minor: out.minor,
        flags,
        data_bytes_max,
    };
    Ok((negotiated, out))
}

fn encode(unique: u64, out: &InitOut) -> Vec<u8> {
    let bytes = OUT_HEADER_BYTES + INIT_OUT_BYTES;
    let header = OutHeader {
        len: bytes as u32,
        error: 0,
        unique,
    };
    let mut message = header.to_bytes();
    out.put(&mut message);
    message.resize(bytes, 0);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(flags: u64) -> InitIn {
        InitIn {
            major: 7,
            minor: 45,
            max_readahead: 1 << 17,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            ..InitIn::default()
        }
    }

    #[test]
    fn what_the_kernel_lacks_is_not_asked_for() {
        let (all, out) = negotiate(&offer(u64::MAX), 1 << 20).unwrap();
        assert_eq!(all.flags, WANTED);
        assert_eq!(
            (out.minor, out.max_pages, out.flags2),
            (MINOR, 256, (WANTED >> 32) as u32)
        );
        let (some, out) = negotiate(&offer(!init::HAS_RESEND), 1 << 20).unwrap();
        assert_eq!(some.flags, WANTED & !init::HAS_RESEND);
        assert_eq!(out.flags2, 0);
    }

    #[test]
    fn without_the_long_form_the_upper_half_means_nothing() {
        let (negotiated, _) = negotiate(&offer(!init::INIT_EXT), 1 << 20).unwrap();
        assert_eq!(negotiated.flags & init::HAS_RESEND, 0);
    }

    #[test]
    fn a_kernel_that_cannot_do_what_is_needed_is_refused() {
        let missing = negotiate(&offer(!init::POSIX_ACL), 1 << 20);
        assert!(matches!(missing, Err(InitError::Missing { missing }) if missing == init::POSIX_ACL));
        let old = InitIn {
            minor: 32,
            ..offer(u64::MAX)
        };
        assert!(matches!(
            negotiate(&old, 1 << 20),
            Err(InitError::TooOld { major: 7, minor: 32 })
        ));
    }

    #[test]
    fn an_init_of_any_length_is_read() {
        let header = InHeader {
            opcode: Opcode::Init.number(),
            unique: 5,
            ..InHeader::default()
        };
        for bytes in [16, InitIn::BYTES, InitIn::BYTES + 40] {
            let mut message = header.to_bytes();
            message.resize(IN_HEADER_BYTES + bytes, 0);
            message[IN_HEADER_BYTES] = 7;
            let (unique, given) = decode(&message).unwrap();
            assert_eq!((unique, given.major), (5, 7));
        }
        assert!(matches!(decode(&[0; 39]), Err(InitError::NotInit)));
        assert!(matches!(decode(&[0; 60]), Err(InitError::NotInit)));
    }
}
