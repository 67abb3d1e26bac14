//! Configuration files of protocol servers: replaced in one step, so that a server never reads a half.

use super::super::error::CliError;
use crate::runtime::durable_file;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// No secrets, and for administrators to read.
pub(super) const CONFIGURATION_MODE: u32 = 0o644;

/// Whether a file that is the administrator's own must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is as wanted, or it is there and nothing in particular is wanted of it.
    AsItIs,
    /// It is not there, or it is to be replaced.
    Write,
}

/// `asked` says that options were given that only this file could hold. Then a file that says something else is an error,
/// because the options would be ignored without a word.
pub(super) fn keep_or_write(path: &Path, wanted: &str, asked: bool, rewrite: bool) -> Result<Kept, CliError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::Write),
        Err(error) => Err(fault("cannot read", path)(error)),
        Ok(text) if text == wanted => Ok(Kept::AsItIs),
        Ok(_) if rewrite => Ok(Kept::Write),
        Ok(_) if asked => Err(CliError::ExportConflict(format!(
            "{} is there and says something else: change it there, or have it written anew with --rewrite",
            path.display()
        ))),
        Ok(_) => Ok(Kept::AsItIs),
    }
}

/// Writes a file in place of what is there.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = PathBuf::from(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&fresh)
        .map_err(fault("cannot write", path))?;
    // The mode above counts only for a new file; one that was left behind may have any.
    file.set_permissions(Permissions::from_mode(mode))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| durable_file::rename(&fresh, path))
        .map_err(fault("cannot write", path))
}

/// What is not there need not be removed.
pub(super) fn remove(path: &Path) -> Result<bool, CliError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(fault("cannot remove", path)(error)),
    }
}

pub(super) fn make_directory(path: &Path, mode: u32) -> Result<(), CliError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(fault("cannot make", path))
}

/// The names of the shares that have a configuration in a directory, in order. None when there is no directory.
pub(super) fn shares_in(directory: &Path) -> Result<Vec<String>, CliError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fault("cannot list", directory))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(fault("cannot list", directory))?.file_name();
        let share = name.to_str().and_then(|name| name.strip_suffix(".conf"));
        names.extend(share.map(String::from));
    }
    names.sort();
    Ok(names)
}

pub(super) fn fault<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CliError + 'a {
    move |error| CliError::File {
        action,
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrators_file_is_kept_unless_it_contradicts() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("main.conf");
        assert_eq!(keep_or_write(&path, "a", false, false).unwrap(), Kept::Write);
        replace(&path, "a", CONFIGURATION_MODE).unwrap();
        for (wanted, asked, rewrite, kept) in [
            ("a", true, true, Kept::AsItIs),
            ("b", false, false, Kept::AsItIs),
            ("b", true, true, Kept::Write),
            ("b", false, true, Kept::Write),
        ] {
            assert_eq!(keep_or_write(&path, wanted, asked, rewrite).unwrap(), kept);
        }
        let refused = keep_or_write(&path, "b", true, false).unwrap_err();
        assert!(refused.to_string().contains("--rewrite"), "{refused}");
    }

    #[test]
    fn files_are_replaced_listed_and_removed() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("b.conf");
        replace(&path, "long text", 0o600).unwrap();
        replace(&path, "text", CONFIGURATION_MODE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        replace(&directory.path().join("a.conf"), "", 0o600).unwrap();
        fs::write(directory.path().join("note"), "").unwrap();
        assert_eq!(shares_in(directory.path()).unwrap(), ["a", "b"]);
        assert!(remove(&path).unwrap() && !remove(&path).unwrap());
        assert_eq!(shares_in(&directory.path().join("none")).unwrap(), [""; 0]);
    }
}
