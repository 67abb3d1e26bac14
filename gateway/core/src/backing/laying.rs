//! A portion of the trees, brought into local metadata below all that has changed there.

use super::tree::parts_of;
use super::{MASK, PROGRESS, Portion, Progress, TREES, load_progress, mask_key};
use crate::format::local_metadata::{MetadataFault, MetadataRead, MetadataTransaction, Table, map_key};
use crate::format::page::MapPage;
use crate::merge::ReferenceChanges;
use crate::state::extent_map::Target;
use tombolo_base::VolumeId;

/// Masks that one transaction deletes.
const MASKS_MAX: usize = 4096;

/// Brings a portion into local metadata, in one transaction of the caller's. What is here, or masked, stays as it is. True:
/// nothing is lacking any more, and nothing tells that it ever was.
///
/// # Errors
/// When the transaction fails.
pub fn lay<T: MetadataTransaction>(local: &mut T, portion: &Portion) -> Result<bool, MetadataFault<T::Error>> {
    if load_progress(local)? != portion.from {
        return Ok(false);
    }
    if portion.from == Progress::Clearing {
        return clear(local).map_err(MetadataFault::Store);
    }
    let contents = &portion.contents;
    let mut references = ReferenceChanges::default();
    let mut open: Option<(VolumeId, u64, MapPage)> = None;
    for extent in contents.map.iter() {
        let Target::At(pvbn) = extent.target else { continue };
        for (number, start, length, pvbn) in parts_of(extent.first, extent.count, pvbn) {
            match &mut open {
                Some((volume, page, contents)) if (*volume, *page) == (extent.volume, number) => {
                    contents.set(start, length, Some(pvbn));
                }
                _ => {
                    lay_page(local, open.take(), &mut references)?;
                    let mut page = MapPage::default();
                    page.set(start, length, Some(pvbn));
                    open = Some((extent.volume, number, page));
                }
            }
        }
    }
    lay_page(local, open, &mut references)?;
    references.apply(local)?;
    for (key, value) in contents.entries.iter_from(&[]) {
        if let Some(value) = value {
            lay_record(local, Table::Entries, key, value).map_err(MetadataFault::Store)?;
        }
    }
    for (first, descriptor) in &contents.objects {
        let key = first.to_be_bytes();
        lay_record(local, Table::Objects, &key, &descriptor.encode()).map_err(MetadataFault::Store)?;
    }
    let next = portion.next.encode();
    local
        .put(Table::Backing, PROGRESS, &next)
        .map_err(MetadataFault::Store)?;
    Ok(false)
}

pub fn is_known<T: MetadataRead>(local: &T, table: Table, key: &[u8]) -> Result<bool, T::Error> {
    Ok(local.get(table, key)?.is_some() || is_masked(local, table, key)?)
}

pub fn is_masked<T: MetadataRead>(local: &T, table: Table, key: &[u8]) -> Result<bool, T::Error> {
    Ok(local.get(Table::Backing, &mask_key(table, key))?.is_some())
}

fn lay_record<T: MetadataTransaction>(local: &mut T, table: Table, key: &[u8], value: &[u8]) -> Result<(), T::Error> {
    match is_known(local, table, key)? {
        true => Ok(()),
        false => local.put(table, key, value),
    }
}

fn lay_page<T: MetadataTransaction>(
    local: &mut T,
    page: Option<(VolumeId, u64, MapPage)>,
    references: &mut ReferenceChanges,
) -> Result<(), MetadataFault<T::Error>> {
    let Some((volume, number, page)) = page else {
        return Ok(());
    };
    let key = map_key(volume, number);
    if is_known(local, Table::Map, &key).map_err(MetadataFault::Store)? {
        return Ok(());
    }
    references.count(&page);
    local
        .put(Table::Map, &key, &page.encode())
        .map_err(MetadataFault::Store)
}

fn clear<T: MetadataTransaction>(local: &mut T) -> Result<bool, T::Error> {
    for _ in 0..MASKS_MAX {
        match local.ceiling(Table::Backing, &[MASK])? {
            Some((key, _)) => local.delete(Table::Backing, &key)?,
            None => {
                local.delete(Table::Backing, TREES)?;
                local.delete(Table::Backing, PROGRESS)?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}
