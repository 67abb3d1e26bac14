//! Pages of the map and object descriptors that are not in memory: each is loaded once, and whoever waits for it is run
//! again when it arrives.

use crate::core_state::Core;
use crate::event::{Command, MetadataError};
use crate::format::page::MapPage;
use crate::state::candidate::Candidate;
use crate::state::metadata_loads::{CANDIDATES_WAITING_MAX, Waiter};
use crate::steps::read::unknown_object;
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{ObjectDescriptor, Pvbn, VolumeId};

impl Core {
    /// False when the waiter waits for it already.
    pub(crate) fn load_page(&mut self, volume: VolumeId, page: u64, waiter: Waiter) -> bool {
        let waiters = self.metadata_loads.page_waiters.entry((volume, page)).or_default();
        let (is_first, is_new) = (waiters.is_empty(), !waiters.contains(&waiter));
        if is_new {
            waiters.push(waiter);
        }
        if is_first {
            self.out.push(Command::LoadPage {
                volume,
                page,
                generation: self.generation,
            });
        }
        is_new
    }

    pub(crate) fn load_descriptor(&mut self, pvbn: Pvbn, waiter: Waiter) -> bool {
        let waiters = self.metadata_loads.descriptor_waiters.entry(pvbn).or_default();
        let (is_first, is_new) = (waiters.is_empty(), !waiters.contains(&waiter));
        if is_new {
            waiters.push(waiter);
        }
        if is_first {
            self.out.push(Command::LoadDescriptor { pvbn });
        }
        is_new
    }

    pub(crate) fn load_page_for_candidate(&mut self, candidate: Candidate, page: u64) {
        if self.metadata_loads.candidates_waiting < CANDIDATES_WAITING_MAX
            && self.load_page(candidate.volume, page, Waiter::Candidate(candidate))
        {
            self.metadata_loads.candidates_waiting += 1;
        }
    }

    pub(crate) fn load_descriptor_for_candidate(&mut self, candidate: Candidate, pvbn: Pvbn) {
        if self.metadata_loads.candidates_waiting < CANDIDATES_WAITING_MAX
            && self.load_descriptor(pvbn, Waiter::Candidate(candidate))
        {
            self.metadata_loads.candidates_waiting += 1;
        }
    }

    pub(crate) fn load_descriptor_to_verify(&mut self, pvbn: Pvbn) {
        self.load_descriptor(pvbn, Waiter::Verification);
    }

    pub(crate) fn on_page_loaded(
        &mut self,
        volume: VolumeId,
        page: u64,
        generation: u64,
        result: Result<MapPage, MetadataError>,
    ) {
        if generation != self.generation && result.is_ok() {
            // A checkpoint came between; what was read may be older than it.
            self.out.push(Command::LoadPage {
                volume,
                page,
                generation: self.generation,
            });
            return;
        }
        let waiters = self
            .metadata_loads
            .page_waiters
            .remove(&(volume, page))
            .unwrap_or_default();
        match result {
            Ok(loaded) => {
                let weight = loaded.weight_bytes();
                self.pages.insert((volume, page), loaded, weight);
                self.wake(waiters, None);
            }
            Err(error) => self.fail_waiters(waiters, &error, None),
        }
    }

    pub(crate) fn on_descriptor_loaded(
        &mut self,
        pvbn: Pvbn,
        result: Result<Option<Arc<ObjectDescriptor>>, MetadataError>,
    ) {
        let waiters = self.metadata_loads.descriptor_waiters.remove(&pvbn).unwrap_or_default();
        match result {
            Ok(Some(descriptor)) if descriptor.find(pvbn).is_some() => {
                let weight = descriptor.encoded_bytes();
                self.descriptors.insert(descriptor.first_pvbn().0, descriptor, weight);
                self.wake(waiters, Some(pvbn));
            }
            // An object may have been confirmed, or a slot filled, while this was under way.
            Ok(_) if self.descriptor_of(pvbn).is_some() || self.slots.find(pvbn).is_some() => {
                self.wake(waiters, Some(pvbn));
            }
            Ok(_) => {
                for waiter in waiters {
                    match waiter {
                        Waiter::Read(token) => {
                            if let Some(read) = self.reads.reads.remove(&token) {
                                self.let_go(&read);
                                let block = self.block_at(read.span, pvbn).unwrap_or(read.span.first);
                                self.answer(token, Err(unknown_object(block, pvbn)));
                            }
                        }
                        Waiter::Candidate(candidate) => {
                            self.metadata_loads.end_wait_of_candidate();
                            self.issue_rest(candidate);
                        }
                        Waiter::Verification => self.on_located(pvbn),
                        Waiter::Query(..) | Waiter::Nobody => {}
                    }
                }
            }
            Err(error) => self.fail_waiters(waiters, &error, Some(pvbn)),
        }
    }

    /// `located` is the block whose descriptor has come.
    fn wake(&mut self, waiters: Vec<Waiter>, located: Option<Pvbn>) {
        for waiter in waiters {
            match waiter {
                Waiter::Read(token) => self.advance_read(token),
                Waiter::Query(token, span, query) => self.on_query(token, span, query),
                Waiter::Candidate(candidate) => {
                    self.metadata_loads.end_wait_of_candidate();
                    self.issue(candidate);
                }
                Waiter::Verification => located.into_iter().for_each(|pvbn| self.on_located(pvbn)),
                Waiter::Nobody => {}
            }
        }
    }

    /// Whoever brings metadata has been as patient with the store as with a fetch, so nobody waits any longer.
    fn fail_waiters(&mut self, waiters: Vec<Waiter>, error: &MetadataError, located: Option<Pvbn>) {
        for waiter in waiters {
            match waiter {
                Waiter::Read(token) => self.refuse_reader((token, 0), error.clone().into()),
                Waiter::Query(token, ..) => self.answer(token, Err(error.clone().into())),
                Waiter::Candidate(_) => self.metadata_loads.end_wait_of_candidate(),
                Waiter::Verification => located.into_iter().for_each(|pvbn| self.on_not_located(pvbn)),
                Waiter::Nobody => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "load_metadata_tests.rs"]
mod tests;
