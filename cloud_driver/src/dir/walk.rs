//! Lists the files below a root in the order of their keys' bytes, without reading directories that cannot matter.

use crate::ListedObject;
use crate::key::RESERVED_PREFIX;
use std::fs;
use std::io;
use std::path::Path;

pub(super) struct Walk<'a> {
    pub root: &'a Path,
    pub prefix: &'a str,
    pub start_after: &'a str,
    pub limit: usize,
    pub found: Vec<ListedObject>,
}

/// A directory's name ends in '/' here, so that sorting names sorts keys: `a.b` comes before `a/b`.
struct Entry {
    name: String,
    is_directory: bool,
}

impl Walk<'_> {
    /// `directory` is a key prefix: empty, or ending in '/'.
    pub(super) fn visit(&mut self, directory: &str) -> io::Result<()> {
        for entry in self.read(directory)? {
            if self.found.len() >= self.limit {
                return Ok(());
            }
            let key = format!("{directory}{}", entry.name);
            if entry.is_directory {
                if self.may_hold(&key) {
                    self.visit(&key)?;
                }
            } else if key.starts_with(self.prefix) && key.as_str() > self.start_after {
                self.take(key)?;
            }
        }
        Ok(())
    }

    fn may_hold(&self, directory: &str) -> bool {
        let prefix_fits = directory.starts_with(self.prefix) || self.prefix.starts_with(directory);
        let all_before = directory < self.start_after && !self.start_after.starts_with(directory);
        prefix_fits && !all_before
    }

    fn take(&mut self, key: String) -> io::Result<()> {
        match fs::metadata(self.root.join(&key)) {
            Ok(metadata) => self.found.push(ListedObject {
                key,
                size_bytes: metadata.len(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn read(&self, directory: &str) -> io::Result<Vec<Entry>> {
        let listing = match fs::read_dir(self.root.join(directory)) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.is_empty() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut entries = Vec::new();
        for entry in listing {
            let entry = entry?;
            // Neither a name that no key has nor a symbolic link was put here by us.
            let Ok(mut name) = entry.file_name().into_string() else {
                continue;
            };
            let kind = entry.file_type()?;
            if name.starts_with(RESERVED_PREFIX) || !(kind.is_dir() || kind.is_file()) {
                continue;
            }
            if kind.is_dir() {
                name.push('/');
            }
            entries.push(Entry {
                name,
                is_directory: kind.is_dir(),
            });
        }
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(entries)
    }
}
