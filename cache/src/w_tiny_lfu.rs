//! W-TinyLFU. About 14 bytes a slot, of which 4 are the frequency sketch; no ghosts.
//!
//! Source: Einziger, Friedman and Manes, ACM TOS 2017: an LRU window (1 %) before a segmented LRU (20 % probation, 80 %
//! protected). Room is made by a contest: the window's oldest enters the main part only if it was used more often
//! lately than the oldest on probation, which then goes; else it goes itself. Use on probation protects a block; what
//! the protected part has too many of returns to probation. The window's share is fixed (no hill climbing).
//!
//! Deviations: the shares shrink in proportion when dirty blocks take part of the cache; a prefetch counts no use, and
//! a prefetched block's first read does not promote it.

use crate::list::{Links, List, Looks};
use crate::sketch::Sketch;
use crate::{Access, Arrival, Capacity, Cause, Incoming, MissHint, Replacement, Residents, share};
use alloc::vec::Vec;
use tombolo_base::Lcbn;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    #[default]
    Window,
    Probation,
    Protected,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    place: Place,
    is_unread: bool,
}

/// W-TinyLFU (Einziger and others, ACM ToS 2017): a window, and a main part into which a sketch of frequencies admits.
#[derive(Debug)]
pub struct WTinyLfu {
    capacity: u32,
    states: Vec<State>,
    links: Links,
    window: List,
    probation: List,
    protected: List,
    sketch: Sketch,
}

impl WTinyLfu {
    /// Empty; takes memory for `capacity.blocks` at once.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity: capacity.blocks,
            states: Vec::with_capacity(capacity.blocks as usize),
            links: Links::with_capacity(capacity.blocks as usize),
            window: List::EMPTY,
            probation: List::EMPTY,
            protected: List::EMPTY,
            sketch: Sketch::new(capacity.blocks),
        }
    }

    fn window_max(&self) -> u32 {
        share((self.capacity / 100).max(1), self.len() as u32, self.capacity).max(1)
    }

    fn protected_max(&self) -> u32 {
        let main = self.capacity - (self.capacity / 100).max(1).min(self.capacity);
        share((u64::from(main) * 4 / 5) as u32, self.len() as u32, self.capacity)
    }

    fn list(&mut self, place: Place) -> (&mut List, &mut Links) {
        let list = match place {
            Place::Window => &mut self.window,
            Place::Probation => &mut self.probation,
            Place::Protected => &mut self.protected,
        };
        (list, &mut self.links)
    }

    fn move_to(&mut self, slot: u32, place: Place) {
        let (list, links) = self.list(self.states[slot as usize].place);
        list.remove(links, slot);
        self.states[slot as usize].place = place;
        let (list, links) = self.list(place);
        list.push_newest(links, slot);
    }

    /// The oldest of the main part that may go: on probation if possible.
    fn main_victim(&mut self, residents: &mut dyn Residents, looks: &mut Looks) -> Option<u32> {
        self.probation
            .find_victim(&mut self.links, residents, looks)
            .or_else(|| self.protected.find_victim(&mut self.links, residents, looks))
    }
}

impl Replacement for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tinylfu"
    }

    fn miss(&mut self, access: &Access) -> MissHint {
        self.sketch.count(access.block);
        MissHint::default()
    }

    fn reach(&mut self, slot: Lcbn) {
        self.links.reach(slot.0);
        if slot.0 as usize >= self.states.len() {
            self.states.resize(slot.0 as usize + 1, State::default());
        }
    }

    fn insert(&mut self, slot: Lcbn, arrival: &Arrival) {
        if arrival.cause == Cause::Write {
            self.sketch.count(arrival.access.block);
        }
        self.reach(slot);
        let state = State {
            place: Place::Window,
            is_unread: arrival.cause == Cause::Prefetch,
        };
        self.states[slot.0 as usize] = state;
        self.window.push_newest(&mut self.links, slot.0);
        while self.window.len() > self.window_max() {
            self.move_to(self.window.oldest(), Place::Probation);
        }
    }

    fn touch(&mut self, slot: Lcbn, access: &Access) {
        self.sketch.count(access.block);
        let state = &mut self.states[slot.0 as usize];
        let is_first_use = core::mem::take(&mut state.is_unread);
        if state.place == Place::Probation && !is_first_use {
            self.move_to(slot.0, Place::Protected);
            while self.protected.len() > self.protected_max().max(1) {
                self.move_to(self.protected.oldest(), Place::Probation);
            }
        } else {
            let (list, links) = self.list(self.states[slot.0 as usize].place);
            list.move_to_newest(links, slot.0);
        }
    }

    fn remove(&mut self, slot: Lcbn) {
        let (list, links) = self.list(self.states[slot.0 as usize].place);
        list.remove(links, slot.0);
    }

    fn victim(&mut self, _incoming: Incoming, residents: &mut dyn Residents) -> Option<Lcbn> {
        let mut looks = Looks::new();
        // With the window below its share, the block to come takes no other's place in it and the main part gives.
        let is_contest = self.window.len() >= self.window_max();
        let main = self.main_victim(residents, &mut looks);
        if main.is_some() && !is_contest {
            self.remove(Lcbn(main?));
            return main.map(Lcbn);
        }
        let candidate = self.window.find_victim(&mut self.links, residents, &mut looks);
        let slot = match (candidate, main) {
            (Some(candidate), Some(main)) => {
                let frequency = |slot: u32| self.sketch.estimate(residents.block(Lcbn(slot)));
                if frequency(candidate) > frequency(main) {
                    self.move_to(candidate, Place::Probation);
                    main
                } else {
                    candidate
                }
            }
            (one, other) => one.or(other)?,
        };
        self.remove(Lcbn(slot));
        Some(Lcbn(slot))
    }

    fn resize(&mut self, capacity: Capacity) {
        self.capacity = capacity.blocks;
        self.sketch = Sketch::new(capacity.blocks);
    }

    fn len(&self) -> usize {
        (self.window.len() + self.probation.len() + self.protected.len()) as usize
    }

    fn metadata_bytes(&self) -> usize {
        self.links.bytes() + self.states.capacity() * size_of::<State>() + self.sketch.bytes()
    }

    fn check_invariants(&self) {
        let lists = [
            (Place::Window, &self.window),
            (Place::Probation, &self.probation),
            (Place::Protected, &self.protected),
        ];
        for (place, list) in lists {
            list.check(&self.links);
            assert!(
                list.iter(&self.links)
                    .all(|slot| self.states[slot as usize].place == place)
            );
        }
    }
}
