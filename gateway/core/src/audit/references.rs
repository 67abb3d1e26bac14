//! Reference counts against maps, and maps against objects and slots, for one range of PVBNs after another.

use super::{AuditFinding, MapRuns, number_of, wrong_key};
use crate::format::local_metadata::{
    MetadataFault, MetadataRead, OBJECT_SPAN_MAX, Table, decode, get, load_descriptor,
};
use crate::format::page::{CountPage, PAGE_ENTRIES};
use crate::format::slot_page::{SlotEntry, decode_slot_page};
use crate::state::extent_map::{Extent, Target};
use alloc::vec::Vec;
use tombolo_base::{ObjectDescriptor, Pvbn, VolumeId};

const ENTRIES: usize = PAGE_ENTRIES as usize;

/// What one look at local metadata came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// PVBNs with references that were looked at.
    pub pvbns: u64,
    /// The next one begins here; `None`: that was the last.
    pub next: Option<u64>,
}

/// What is known of the 256 PVBNs of a page.
struct Counted {
    number: u64,
    /// References that are counted, less those that maps have.
    left: [i64; ENTRIES],
    place: [Place; ENTRIES],
}

/// And where the next one begins.
type Pages = (Vec<Counted>, Option<u64>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    DamagedSlot,
    /// In an object, or in a slot that is dirty.
    Known,
}

/// Looks at `pages_max` pages of reference counts, 2.5 KiB each, from PVBN `from` on, and at all that refers to what is
/// counted there. `reader` MUST show what one checkpoint has left, with nothing of the next: then counts equal maps, and each
/// block is in an object or in a slot.
///
/// # Errors
/// When a record cannot be read or decoded.
pub fn audit_window<R: MetadataRead>(
    reader: &R,
    from: u64,
    pages_max: usize,
    find: &mut dyn FnMut(AuditFinding),
) -> Result<Window, MetadataFault<R::Error>> {
    let (pages, next) = counted_pages(reader, from, pages_max)?;
    let mut look = Look {
        reader,
        from,
        end: next.unwrap_or(u64::MAX),
        pages,
    };
    look.place_objects(find)?;
    look.place_slots()?;
    look.subtract_maps(find)?;
    let pvbns = look.compare(find)?;
    Ok(Window { pvbns, next })
}

/// At the most `pages_max`.
fn counted_pages<R: MetadataRead>(reader: &R, from: u64, pages_max: usize) -> Result<Pages, MetadataFault<R::Error>> {
    let (mut pages, mut next) = (Vec::new(), from / PAGE_ENTRIES);
    loop {
        let found = reader.ceiling(Table::References, &next.to_be_bytes());
        let Some((key, bytes)) = found.map_err(MetadataFault::Store)? else {
            return Ok((pages, None));
        };
        let number = number_of(Table::References, &key)?;
        if pages.len() >= pages_max.max(1) {
            return Ok((pages, Some(number * PAGE_ENTRIES)));
        }
        let mut counted = Counted {
            number,
            left: [0; ENTRIES],
            place: [Place::Nowhere; ENTRIES],
        };
        let page = decode(Table::References, &key, CountPage::decode(&bytes))?;
        for (entry, left) in counted.left.iter_mut().enumerate() {
            *left = page.get(entry as u16).0.map_or(0, |count| count.0.cast_signed());
        }
        pages.push(counted);
        next = number + 1;
    }
}

struct Look<'r, R> {
    reader: &'r R,
    from: u64,
    end: u64,
    pages: Vec<Counted>,
}

impl<R: MetadataRead> Look<'_, R> {
    fn page(&mut self, pvbn: u64) -> Option<&mut Counted> {
        let number = pvbn / PAGE_ENTRIES;
        let index = self.pages.binary_search_by_key(&number, |page| page.number).ok()?;
        self.pages.get_mut(index)
    }

    fn set_place(&mut self, pvbn: Pvbn, place: Place) {
        if let Some(page) = self.page(pvbn.0) {
            page.place[(pvbn.0 % PAGE_ENTRIES) as usize] = place;
        }
    }

    fn place_objects(&mut self, find: &mut dyn FnMut(AuditFinding)) -> Result<(), MetadataFault<R::Error>> {
        // One that begins before may hold blocks of this range.
        let mut first = self.from.saturating_sub(OBJECT_SPAN_MAX);
        while first < self.end {
            let found = self.reader.ceiling(Table::Objects, &first.to_be_bytes());
            let Some((key, bytes)) = found.map_err(MetadataFault::Store)? else {
                break;
            };
            let number = number_of(Table::Objects, &key)?;
            if number >= self.end {
                break;
            }
            let descriptor = decode(Table::Objects, &key, ObjectDescriptor::decode(&bytes))?;
            if descriptor.first_pvbn().0 != number && number >= self.from {
                let first = descriptor.first_pvbn();
                find(AuditFinding::MisplacedObject { key, first });
            }
            for block in descriptor.blocks() {
                self.set_place(block.pvbn, Place::Known);
            }
            let Some(next) = number.checked_add(1) else { break };
            first = next;
        }
        Ok(())
    }

    fn place_slots(&mut self) -> Result<(), MetadataFault<R::Error>> {
        let mut number = 0;
        loop {
            let found = self.reader.ceiling(Table::Slots, &u32::to_be_bytes(number));
            let Some((key, bytes)) = found.map_err(MetadataFault::Store)? else {
                return Ok(());
            };
            for slot in decode(Table::Slots, &key, decode_slot_page(&bytes))? {
                match slot {
                    SlotEntry::Dirty { pvbn, .. } => self.set_place(pvbn, Place::Known),
                    SlotEntry::Corrupt { pvbn, .. } => self.set_place(pvbn, Place::DamagedSlot),
                    SlotEntry::Free | SlotEntry::Clean { .. } => {}
                }
            }
            let found = <[u8; 4]>::try_from(&key[..]).map_err(|_| wrong_key(Table::Slots, &key))?;
            let Some(next) = u32::from_be_bytes(found).checked_add(1) else {
                return Ok(());
            };
            number = next;
        }
    }

    fn subtract_maps(&mut self, find: &mut dyn FnMut(AuditFinding)) -> Result<(), MetadataFault<R::Error>> {
        let mut runs = MapRuns::new(self.reader, VolumeId(0), 0);
        while let Some(run) = runs.next()? {
            let Target::At(first) = run.target else { continue };
            let end = first.0.saturating_add(run.count).min(self.end);
            let mut pvbn = first.0.max(self.from);
            while pvbn < end {
                let count = (PAGE_ENTRIES - pvbn % PAGE_ENTRIES).min(end - pvbn);
                let part = Extent {
                    first: run.first + (pvbn - first.0),
                    count,
                    target: Target::At(Pvbn(pvbn)),
                    ..run
                };
                self.subtract_run(part, find)?;
                pvbn += count;
            }
        }
        Ok(())
    }

    /// Of a run that lies in one page.
    fn subtract_run(&mut self, run: Extent, find: &mut dyn FnMut(AuditFinding)) -> Result<(), MetadataFault<R::Error>> {
        let Target::At(pvbn) = run.target else { return Ok(()) };
        let mut open: Option<(Extent, Place)> = None;
        let mut uncounted = match self.page(pvbn.0) {
            Some(page) => {
                for index in 0..run.count {
                    let entry = (pvbn.plus(index).0 % PAGE_ENTRIES) as usize;
                    page.left[entry] -= 1;
                    let place = page.place[entry];
                    match &mut open {
                        Some((found, before)) if *before == place => found.count += 1,
                        _ => {
                            let started = Extent {
                                first: run.first + index,
                                count: 1,
                                target: run.target.plus(index),
                                ..run
                            };
                            tell_place(open.replace((started, place)), find);
                        }
                    }
                }
                0..0
            }
            None => {
                find(AuditFinding::References {
                    pvbn,
                    blocks: run.count,
                    counted: 0,
                    named: 1,
                });
                0..run.count
            }
        };
        tell_place(open, find);
        // Rare, so that each may be looked for on its own.
        uncounted.try_for_each(|index| {
            let one = Extent {
                first: run.first + index,
                count: 1,
                target: run.target.plus(index),
                ..run
            };
            if load_descriptor(self.reader, pvbn.plus(index))?.is_none() {
                tell_place(Some((one, Place::Nowhere)), find);
            }
            Ok(())
        })
    }

    fn compare(&self, find: &mut dyn FnMut(AuditFinding)) -> Result<u64, MetadataFault<R::Error>> {
        let mut pvbns = 0;
        for page in &self.pages {
            let key = page.number.to_be_bytes();
            let stored = get(self.reader, Table::References, &key)?;
            let counts = decode(Table::References, &key, CountPage::decode(&stored.unwrap_or_default()))?;
            let mut open: Option<(u64, u64, u64, u64)> = None;
            for (entry, left) in page.left.iter().enumerate() {
                let pvbn = page.number * PAGE_ENTRIES + entry as u64;
                let counted = counts.get(entry as u16).0.map_or(0, |count| count.0);
                pvbns += u64::from(counted > 0);
                if *left == 0 {
                    continue;
                }
                let named = counted.wrapping_sub(left.cast_unsigned());
                match &mut open {
                    Some((first, blocks, same_counted, same_named))
                        if (*first + *blocks, *same_counted, *same_named) == (pvbn, counted, named) =>
                    {
                        *blocks += 1;
                    }
                    _ => tell_count(open.replace((pvbn, 1, counted, named)), find),
                }
            }
            tell_count(open, find);
        }
        Ok(pvbns)
    }
}

fn tell_place(found: Option<(Extent, Place)>, find: &mut dyn FnMut(AuditFinding)) {
    match found {
        Some((run, place @ (Place::Nowhere | Place::DamagedSlot))) => find(AuditFinding::NoObject {
            run,
            is_damaged_slot: place == Place::DamagedSlot,
        }),
        Some((_, Place::Known)) | None => {}
    }
}

fn tell_count(found: Option<(u64, u64, u64, u64)>, find: &mut dyn FnMut(AuditFinding)) {
    if let Some((first, blocks, counted, named)) = found {
        find(AuditFinding::References {
            pvbn: Pvbn(first),
            blocks,
            counted,
            named,
        });
    }
}
