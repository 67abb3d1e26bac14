//! POSIX access control lists as Linux keeps them in the extended attributes `system.posix_acl_access` and
//! `system.posix_acl_default`, and what they have to do with the mode.
//!
//! Format: version 2 (u32), then entries of tag (u16), permissions (u16) and id (u32), in the order of [`rank`].

use crate::error::FileError;
use tombolo_base::{DecodeError, Reader, Writer};

const VERSION: u32 = 2;
const ID_NONE: u32 = u32::MAX;
const USER_OBJECT: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJECT: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// Permissions that an entry has; an entry holds no others.
const ALL: u16 = 0o7;
const MODE_BITS: u32 = 0o777;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A valid list: the three of the owner, the group and others once each, a mask if it names anybody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

/// Where entries with the tag stand in a list.
fn rank(tag: u16) -> Option<u8> {
    Some(match tag {
        USER_OBJECT => 0,
        USER => 1,
        GROUP_OBJECT => 2,
        GROUP => 3,
        MASK => 4,
        OTHER => 5,
        _ => return None,
    })
}

impl Acl {
    /// `None` for a list without entries, which means that there shall be none.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, FileError> {
        let entries = read_entries(bytes).map_err(|_| FileError::Invalid("not an access control list"))?;
        match entries.as_deref() {
            None | Some([]) => Ok(None),
            Some(entries) if is_valid(entries) => Ok(Some(Self(entries.to_vec()))),
            Some(_) => Err(FileError::Invalid("not a valid access control list")),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(4 + 8 * self.0.len());
        writer.u32(VERSION);
        for entry in &self.0 {
            writer.u16(entry.tag).u16(entry.permissions).u32(entry.id);
        }
        writer.0
    }

    /// True when it says no more than a mode does.
    pub fn is_minimal(&self) -> bool {
        self.0
            .iter()
            .all(|entry| matches!(entry.tag, USER_OBJECT | GROUP_OBJECT | OTHER))
    }

    /// The nine bits that the mode shows: the mask in place of the group's, if there is one.
    pub fn mode_bits(&self) -> u32 {
        let of = |tag| self.permissions(tag).map(u32::from);
        let group = of(MASK).or(of(GROUP_OBJECT)).unwrap_or(0);
        of(USER_OBJECT).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    fn permissions(&self, tag: u16) -> Option<u16> {
        self.0
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.permissions)
    }

    /// The same list after chmod.
    pub fn with_mode(mut self, mode: u32) -> Self {
        let group = self.group_tag();
        for entry in &mut self.0 {
            if let Some(bits) = bits_of(entry.tag, group, mode) {
                entry.permissions = bits;
            }
        }
        self
    }

    /// The access list of a new inode in a directory with this default list, and its mode: both grant only what the
    /// other grants too.
    pub fn for_new(mut self, mode: u32) -> (Self, u32) {
        let group = self.group_tag();
        for entry in &mut self.0 {
            if let Some(bits) = bits_of(entry.tag, group, mode) {
                entry.permissions &= bits;
            }
        }
        let mode = mode & !MODE_BITS | self.mode_bits();
        (self, mode)
    }

    /// Whose permissions the mode's group bits are.
    fn group_tag(&self) -> u16 {
        match self.permissions(MASK) {
            Some(_) => MASK,
            None => GROUP_OBJECT,
        }
    }
}

/// The bits of the mode that belong to an entry.
fn bits_of(tag: u16, group_tag: u16, mode: u32) -> Option<u16> {
    let shift = match tag {
        USER_OBJECT => 6,
        tag if tag == group_tag => 3,
        OTHER => 0,
        _ => return None,
    };
    Some((mode >> shift) as u16 & ALL)
}

fn read_entries(bytes: &[u8]) -> Result<Option<Vec<AclEntry>>, DecodeError> {
    let what = "access control list";
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes);
    let version = reader.u32(what)?;
    if version != VERSION {
        let value = version.into();
        return Err(DecodeError::Invalid { what, value });
    }
    let mut entries = Vec::with_capacity(reader.remaining() / 8);
    while reader.remaining() > 0 {
        entries.push(read_entry(&mut reader)?);
    }
    Ok(Some(entries))
}

fn read_entry(reader: &mut Reader<'_>) -> Result<AclEntry, DecodeError> {
    let what = "access control list entry";
    let tag = reader.u16(what)?;
    let permissions = reader.u16(what)?;
    let id = reader.u32(what)?;
    Ok(AclEntry {
        tag,
        permissions,
        // Only named entries have one; what others bring means nothing.
        id: if matches!(tag, USER | GROUP) { id } else { ID_NONE },
    })
}

fn is_valid(entries: &[AclEntry]) -> bool {
    let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
    let has_names = count(USER) + count(GROUP) > 0;
    let ranks: Option<Vec<u8>> = entries.iter().map(|entry| rank(entry.tag)).collect();
    ranks.is_some_and(|ranks| ranks.is_sorted())
        && entries.iter().all(|entry| entry.permissions & !ALL == 0)
        && entries
            .iter()
            .all(|entry| !matches!(entry.tag, USER | GROUP) || entry.id != ID_NONE)
        && [USER_OBJECT, GROUP_OBJECT, OTHER].iter().all(|tag| count(*tag) == 1)
        && count(MASK) <= 1
        && (count(MASK) == 1 || !has_names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entries = entries.iter().map(|(tag, permissions, id)| AclEntry {
            tag: *tag,
            permissions: *permissions,
            id: *id,
        });
        Acl(entries.collect()).encode()
    }

    const NAMED: [(u16, u16, u32); 5] = [
        (USER_OBJECT, 7, ID_NONE),
        (USER, 6, 1000),
        (GROUP_OBJECT, 5, ID_NONE),
        (MASK, 7, ID_NONE),
        (OTHER, 4, ID_NONE),
    ];

    fn named() -> Acl {
        Acl::parse(&list(&NAMED)).unwrap().unwrap()
    }

    #[test]
    fn a_valid_list_is_read_as_it_was_written() {
        assert_eq!(named().encode(), list(&NAMED));
        assert!(!named().is_minimal());
        assert_eq!(named().mode_bits(), 0o774);
    }

    #[test]
    fn an_empty_list_is_none() {
        assert_eq!(Acl::parse(&[]), Ok(None));
        assert_eq!(Acl::parse(&2u32.to_le_bytes()), Ok(None));
    }

    #[test]
    fn each_fault_is_refused() {
        let without = |index| {
            let mut entries = NAMED.to_vec();
            entries.remove(index);
            list(&entries)
        };
        for missing in [0, 2, 3, 4] {
            assert!(Acl::parse(&without(missing)).is_err(), "without {missing}");
        }
        let changed = |index, entry| {
            let mut entries = NAMED.to_vec();
            entries[index] = entry;
            list(&entries)
        };
        assert!(Acl::parse(&changed(1, (USER, 8, 1000))).is_err(), "permission");
        assert!(Acl::parse(&changed(1, (USER, 6, ID_NONE))).is_err(), "id");
        assert!(Acl::parse(&changed(1, (3, 6, 1000))).is_err(), "tag");
        assert!(Acl::parse(&changed(1, (GROUP, 6, 1000))).is_err(), "order");
        assert!(Acl::parse(&changed(1, (MASK, 6, ID_NONE))).is_err(), "two masks");
        assert!(Acl::parse(&list(&NAMED)[..11]).is_err(), "cut");
        assert!(Acl::parse(&[1, 0, 0, 0]).is_err(), "version");
    }

    #[test]
    fn chmod_changes_the_mask_and_not_the_group() {
        let changed = named().with_mode(0o640);
        assert_eq!(changed.permissions(MASK), Some(4));
        assert_eq!(changed.permissions(GROUP_OBJECT), Some(5));
        assert_eq!(changed.mode_bits(), 0o640);
    }

    #[test]
    fn a_new_file_gets_what_both_grant() {
        let (acl, mode) = named().for_new(0o100_666);
        assert_eq!(mode, 0o100_664);
        assert_eq!(acl.permissions(USER), Some(6));
        assert_eq!(acl.mode_bits(), 0o664);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_come_back(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(Some(acl)) = Acl::parse(&bytes) {
                prop_assert_eq!(Acl::parse(&acl.encode()), Ok(Some(acl)));
            }
        }

        #[test]
        fn chmod_is_what_the_mode_shows(mode in 0u32..0o1000) {
            prop_assert_eq!(named().with_mode(mode).mode_bits(), mode);
            prop_assert_eq!(named().for_new(mode).1 & !mode, 0);
        }
    }
}
