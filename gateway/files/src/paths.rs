//! Where files lie, for people: from an inode's number to "share:path".

use crate::keys::{self, tag};
use crate::records::{InodeRecord, Kind, NameRecord, ShareRecord};
use crate::storage::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Entries read at once.
const SCANNED_AT_ONCE: usize = 1000;
/// Deeper than any path: a circle, which there must not be, ends here.
const DEPTH_MAX: usize = 4096;

/// One path of each of these files, those left out that have none or whose entries cannot be read. It reads all names of all
/// shares once. `scan` finds entries as [`crate::storage::Storage::scan`] does.
pub fn paths_of(
    inodes: &BTreeSet<u64>,
    mut scan: impl FnMut(&[u8], &[u8], usize) -> Vec<Entry>,
) -> BTreeMap<u64, String> {
    let shares = shares(&mut scan);
    let places = places(inodes, &mut scan);
    let mut directories = BTreeMap::new();
    let mut paths = BTreeMap::new();
    for (inode, (directory, name)) in places {
        if let Some(parent) = path_of(directory, &shares, &mut directories, &mut scan, 0) {
            paths.insert(inode, parent + &String::from_utf8_lossy(&name));
        }
    }
    paths
}

fn each(
    from: &[u8],
    end: &[u8],
    scan: &mut impl FnMut(&[u8], &[u8], usize) -> Vec<Entry>,
    mut take: impl FnMut(&Entry),
) {
    let mut from = from.to_vec();
    loop {
        let found = scan(&from, end, SCANNED_AT_ONCE);
        found.iter().for_each(&mut take);
        match found.last() {
            Some((last, _)) if found.len() == SCANNED_AT_ONCE => from = keys::after(last),
            _ => return,
        }
    }
}

/// Names of shares by their roots.
fn shares(scan: &mut impl FnMut(&[u8], &[u8], usize) -> Vec<Entry>) -> BTreeMap<u64, String> {
    let (from, end) = keys::all(tag::SHARE);
    let mut shares = BTreeMap::new();
    each(&from, &end, scan, |(key, value)| {
        if let Ok(share) = ShareRecord::decode(value) {
            shares.insert(share.root, String::from_utf8_lossy(&key[1..]).into_owned());
        }
    });
    shares
}

/// A directory of each inode, and its name there.
fn places(
    inodes: &BTreeSet<u64>,
    scan: &mut impl FnMut(&[u8], &[u8], usize) -> Vec<Entry>,
) -> BTreeMap<u64, (u64, Vec<u8>)> {
    let mut places = BTreeMap::new();
    if inodes.is_empty() {
        return places;
    }
    let (from, end) = keys::all(tag::NAME);
    each(&from, &end, scan, |(key, value)| {
        if let (Ok((directory, name)), Ok(record)) = (keys::split(key), NameRecord::decode(value))
            && inodes.contains(&record.inode)
        {
            places.entry(record.inode).or_insert_with(|| (directory, name.to_vec()));
        }
    });
    places
}

/// With a slash at its end.
fn path_of(
    directory: u64,
    shares: &BTreeMap<u64, String>,
    known: &mut BTreeMap<u64, String>,
    scan: &mut impl FnMut(&[u8], &[u8], usize) -> Vec<Entry>,
    depth: usize,
) -> Option<String> {
    if let Some(share) = shares.get(&directory) {
        return Some(format!("{share}:/"));
    }
    if let Some(path) = known.get(&directory) {
        return Some(path.clone());
    }
    let key = keys::inode(directory);
    let (_, value) = scan(&key, &keys::after(&key), 1).into_iter().next()?;
    let Ok(Kind::Directory(record)) = InodeRecord::decode(&value).map(|inode| inode.kind) else {
        return None;
    };
    if record.parent == directory || depth == DEPTH_MAX {
        return None;
    }
    let mut own = None;
    let (from, end) = keys::all_of(tag::NAME, record.parent);
    each(&from, &end, scan, |(key, value)| {
        if let (Ok((_, name)), Ok(record)) = (keys::split(key), NameRecord::decode(value))
            && record.inode == directory
        {
            own = Some(String::from_utf8_lossy(name).into_owned());
        }
    });
    let path = path_of(record.parent, shares, known, scan, depth + 1)? + &own? + "/";
    known.insert(directory, path.clone());
    Some(path)
}
