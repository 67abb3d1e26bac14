//! Who the holder of a mount is: nobody that lives beside it, and the same again after its restart.
//!
//! Mechanism: a small file with a random number, which its holder keeps locked. There is a row of them for each share
//! and directory; a holder takes the first that nobody has locked. So one that follows a killed one has its number, and
//! its client's session makes way at once; one that comes while another lives (out of sight after a lazy unmount, or in
//! a mount namespace of its own) has another number, and neither harms the other.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tombolo_base::BlockSum;
use tombolo_fuse::protocol::attach::ATTACH_NAME_BYTES_MAX;

/// Holders of one share at one directory that may live side by side.
const PLACES: u32 = 1024;
/// A number as text.
const NUMBER_BYTES: usize = 16;

/// As long as it lives, no other holder has its number.
#[derive(Debug)]
pub struct Identity {
    number: u64,
    /// Locked. `None` when no file could be had.
    _file: Option<File>,
}

impl Identity {
    /// Without a folder that can be written the identity is fresh: still nobody else's, but not known again.
    pub fn take(folder: &Path, share: &str, directory: &Path) -> Self {
        Self::take_known(folder, share, directory).unwrap_or_else(|error| {
            tracing::warn!(
                folder = %folder.display(),
                %error,
                "nothing can be kept here: should this process be killed, its locks stay for session_grace_ms"
            );
            Self {
                number: fresh_number(),
                _file: None,
            }
        })
    }

    fn take_known(folder: &Path, share: &str, directory: &Path) -> io::Result<Self> {
        for place in 0..PLACES {
            let file = open(&path(folder, share, directory, place))?;
            if lock(&file)? {
                return Self::of(file);
            }
        }
        Err(io::Error::other(format!(
            "{PLACES} mounts of one share at one directory"
        )))
    }

    fn of(mut file: File) -> io::Result<Self> {
        let mut text = String::new();
        (&file).take(2 * NUMBER_BYTES as u64).read_to_string(&mut text)?;
        let known = (text.len() == NUMBER_BYTES).then(|| u64::from_str_radix(&text, 16));
        let number = match known {
            Some(Ok(number)) => number,
            _ => write_fresh(&mut file)?,
        };
        Ok(Self {
            number,
            _file: Some(file),
        })
    }

    /// The name to attach by. A directory that is too long for it is cut: the number tells clients apart.
    pub fn client_name(&self, directory: &Path) -> String {
        let number = format!(" {:016x}", self.number);
        let mut name = format!("mount:{}", directory.display());
        while name.len() + number.len() > ATTACH_NAME_BYTES_MAX {
            name.pop();
        }
        name + &number
    }
}

fn path(folder: &Path, share: &str, directory: &Path, place: u32) -> PathBuf {
    let mount = [share.as_bytes(), directory.as_os_str().as_encoded_bytes()].join(&0);
    folder.join(format!("mount-{:016x}-{place}", BlockSum::of(&mount).0))
}

/// Never through a link: the folder may belong to another user.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

/// False when another holder lives.
fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: plain system call on a descriptor that we own.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// A crash in between leaves text that is no number, so that the next holder writes anew.
fn write_fresh(file: &mut File) -> io::Result<u64> {
    let number = fresh_number();
    file.rewind()?;
    file.set_len(0)?;
    write!(file, "{number:016x}")?;
    Ok(number)
}

fn fresh_number() -> u64 {
    crate::runtime::fresh_identity()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: &str = "/srv/tombolo/docs";

    fn take(folder: &Path, share: &str, directory: &str) -> Identity {
        Identity::take(folder, share, Path::new(directory))
    }

    #[test]
    fn one_that_follows_a_dead_one_is_known_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path(), "docs", DIRECTORY).number;
        assert_eq!(take(folder.path(), "docs", DIRECTORY).number, first);
    }

    #[test]
    fn those_that_live_side_by_side_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path(), "docs", DIRECTORY);
        let second = take(folder.path(), "docs", DIRECTORY);
        let others = [
            take(folder.path(), "docs", "/mnt"),
            take(folder.path(), "other", DIRECTORY),
        ];
        let mut numbers: Vec<u64> = [&first, &second]
            .into_iter()
            .chain(&others)
            .map(|it| it.number)
            .collect();
        let (first_number, second_number) = (numbers[0], numbers[1]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 4);
        drop(first);
        assert_eq!(take(folder.path(), "docs", DIRECTORY).number, first_number);
        drop(second);
        let _first = take(folder.path(), "docs", DIRECTORY);
        assert_eq!(take(folder.path(), "docs", DIRECTORY).number, second_number);
    }

    #[test]
    fn a_file_that_was_not_written_whole_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), "docs", Path::new(DIRECTORY), 0);
        for text in ["", "12ab", "no number at all", "0123456789abcdef0"] {
            std::fs::write(&path, text).unwrap();
            let number = take(folder.path(), "docs", DIRECTORY).number;
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{number:016x}"));
            assert_eq!(take(folder.path(), "docs", DIRECTORY).number, number);
        }
    }

    #[test]
    fn without_a_folder_it_is_still_nobody_elses() {
        let nowhere = Path::new("/proc/no such folder");
        let (first, second) = (take(nowhere, "docs", DIRECTORY), take(nowhere, "docs", DIRECTORY));
        assert_ne!(first.number, second.number);
    }

    #[test]
    fn names_fit_into_an_attach() {
        let folder = tempfile::tempdir().unwrap();
        let identity = take(folder.path(), "docs", DIRECTORY);
        let name = identity.client_name(Path::new(DIRECTORY));
        assert_eq!(name, format!("mount:{DIRECTORY} {:016x}", identity.number));
        let long = identity.client_name(Path::new(&"/ä".repeat(200)));
        assert!((ATTACH_NAME_BYTES_MAX - 2..=ATTACH_NAME_BYTES_MAX).contains(&long.len()));
        assert!(long.ends_with(&format!("{:016x}", identity.number)));
    }
}
