//! Files that are there in full or not at all, also after a power failure: each is made under another name and brought
//! to stable storage, then gets its own name, and then that is brought there. What need not outlive a power failure,
//! such as the notes of `generation.rs`, has no business here.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes a file in place of what has its name.
pub fn replace(path: &Path, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    make(path, fill)?;
    publish(path)
}

/// Makes a file that has another name until [`publish`] gives it its own. Of one that failed nothing is left.
pub fn make(path: &Path, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let new = new_path(path);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    let made = fill(&file).and_then(|()| file.sync_all());
    made.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Its name until then.
pub fn new_path(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// For what [`make`] has made.
pub fn publish(path: &Path) -> io::Result<()> {
    rename(&new_path(path), path)
}

/// Of a file that is on stable storage. The directory that it leaves, if it is another, is not synced.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_directory_of(to)
}

/// Makes a directory that is its owner's alone, and those above it, as far as they are not there.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The same, and their names are on stable storage, also one that an interrupted attempt has made. A directory above that
/// was there and may not be read is taken to be.
pub fn make_directory_durably(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing = path.ancestors().take_while(|above| !above.exists()).count();
    make_directory(&path)?;
    for (index, directory) in path.ancestors().enumerate().take(missing.max(1)) {
        match sync_directory_of(directory) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && index >= missing => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Makes the name of a file or directory durable.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes the names in a directory durable, and that others are gone.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_replaces_the_one_before_and_what_an_interrupted_attempt_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(new_path(&path), b"half of a longer one").unwrap();
        for contents in [&b"the first one"[..], b"another"] {
            replace(&path, |mut file| file.write_all(contents)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), contents);
            assert!(!new_path(&path).exists());
        }
    }

    #[test]
    fn only_its_owner_can_open_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace(&path, |_| Ok(())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_that_fails_leaves_the_one_before_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"before").unwrap();
        let failed = replace(&path, |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn it_has_no_name_before_it_is_published() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        make(&path, |mut file| file.write_all(b"whole")).unwrap();
        assert!(!path.exists());
        publish(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(publish(&path).is_err(), "there is nothing more to publish");
    }
}
