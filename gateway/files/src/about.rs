//! What an entry of the service is about, for those who look at entries from outside.

use crate::keys::{self, tag};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryAbout {
    /// An inode: its attributes, size or extended attributes.
    Inode(u64),
    /// A name in a directory.
    Name {
        /// The directory's inode.
        directory: u64,
        /// In it.
        name: Vec<u8>,
    },
    /// The service itself: shares, sessions, locks, numbers.
    Service,
}

/// What the entry with this key is about.
pub fn about_entry(key: &[u8]) -> EntryAbout {
    let number = || keys::split(key).ok();
    let about = match key.first() {
        Some(&(tag::INODE | tag::FILE | tag::XATTR)) => number().map(|(inode, _)| EntryAbout::Inode(inode)),
        Some(&tag::NAME) => number().map(|(directory, name)| {
            let name = name.to_vec();
            EntryAbout::Name { directory, name }
        }),
        _ => None,
    };
    about.unwrap_or(EntryAbout::Service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_about_inodes_and_names() {
        let inode = EntryAbout::Inode(7);
        for key in [keys::inode(7), keys::file(7), keys::xattr(7, b"user.x")] {
            assert_eq!(about_entry(&key), inode);
        }
        let name = b"name".to_vec();
        let expected = EntryAbout::Name { directory: 9, name };
        assert_eq!(about_entry(&keys::name(9, b"name")), expected);
        for key in [keys::session(7), keys::share("share"), vec![], vec![tag::INODE]] {
            assert_eq!(about_entry(&key), EntryAbout::Service);
        }
    }
}
