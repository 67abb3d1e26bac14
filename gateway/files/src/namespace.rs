//! Names: finding, making, removing, moving and listing them.

pub(crate) mod create;
mod link;
mod lookup;
mod readdir;
mod remove;
mod rename;

use crate::error::FileError;
use crate::types::NAME_BYTES_MAX;

/// A name that an entry can have.
fn check_name(name: &[u8]) -> Result<(), FileError> {
    match name {
        [] => Err(FileError::NotFound),
        _ if name.len() > NAME_BYTES_MAX => Err(FileError::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(FileError::Invalid("a name with a slash or a NUL")),
        _ => Ok(()),
    }
}

/// A name for a new entry: `.` and `..` are taken in every directory.
fn check_new_name(name: &[u8]) -> Result<(), FileError> {
    check_name(name)?;
    match name {
        b"." | b".." => Err(FileError::Exists),
        _ => Ok(()),
    }
}
