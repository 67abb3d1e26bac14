//! What happens to disk and store from outside: outages and flipped bits, until the faults are over.

use crate::faults::operation::Operation;
use crate::faults::world::World;
use tombolo_base::{BlockSum, Lcbn};
use tombolo_core::Event;

/// Between two looks whether a full disk has room again.
const LOOK_MICROS: u64 = 20_000;

impl World {
    pub(crate) fn schedule_disasters(&mut self) {
        let faults = self.scenario.faults.clone();
        self.schedule_disaster(faults.outage_interval_ms, Operation::Outage);
        self.schedule_disaster(faults.checkpoint_outage_interval_ms, Operation::CheckpointOutage);
        self.schedule_disaster(faults.slot_rot_interval_ms, Operation::SlotRots);
        self.schedule_disaster(faults.object_rot_interval_ms, Operation::ObjectRots);
        self.schedule_disaster(faults.sector_failure_interval_ms, Operation::SectorFails);
        self.schedule_disaster(faults.full_interval_ms, Operation::DiskFills);
        self.schedule_policy_change();
    }

    fn schedule_disaster(&mut self, interval_ms: u64, operation: Operation) {
        if interval_ms > 0 && !self.is_calm {
            let micros = self.prng.below(2 * interval_ms * 1_000);
            self.schedule(micros, operation);
        }
    }

    pub(crate) fn begin_outage(&mut self) {
        if self.is_calm {
            return;
        }
        let micros = 1_000 * (1 + self.prng.below(self.scenario.faults.outage_ms_max));
        self.say(|| format!("outage of {micros} microseconds"));
        self.store.outage_until = self.now + micros;
        self.life.store_faults += 1;
        self.schedule_disaster(self.scenario.faults.outage_interval_ms, Operation::Outage);
    }

    pub(crate) fn begin_checkpoint_outage(&mut self) {
        if self.is_calm {
            return;
        }
        let micros = 1_000 * (1 + self.prng.below(self.scenario.faults.checkpoint_outage_ms_max));
        self.say(|| format!("no checkpoint for {micros} microseconds"));
        self.checkpoint_outage_until = self.now + micros;
        self.schedule_disaster(
            self.scenario.faults.checkpoint_outage_interval_ms,
            Operation::CheckpointOutage,
        );
    }

    pub(crate) fn rot_slot(&mut self) {
        // A cache that consists of lost blocks has no room for others: so many bad slots are another disk's story.
        if self.is_calm || self.rotten.len() as u64 > u64::from(self.scenario.config.slot_count) / 8 {
            return;
        }
        let slot = Lcbn(self.prng.below(u64::from(self.scenario.config.slot_count)) as u32);
        // A slot whose bytes are no longer those of its last block is about to be overwritten: nothing to damage.
        if let Some(pvbn) = self.slot_pvbns.get(&slot.0).copied()
            && let Some(value) = self.model.value_of_pvbn(pvbn)
            && BlockSum::of(&self.disk.read_slot(slot)) == BlockSum::of(&self.contents.bytes_of(value))
        {
            self.say(|| format!("slot {} rots, PVBN {}", slot.0, pvbn.0));
            let other = Lcbn(self.prng.below(u64::from(self.scenario.config.slot_count)) as u32);
            self.disk.rot_slot(slot, other, &mut self.prng);
            self.rotten.insert(pvbn);
        }
        self.schedule_disaster(self.scenario.faults.slot_rot_interval_ms, Operation::SlotRots);
    }

    pub(crate) fn fail_sector(&mut self) {
        if self.is_calm || self.disk.failed_sectors() as u64 > u64::from(self.scenario.config.slot_count) / 16 {
            return;
        }
        let slot = Lcbn(self.prng.below(u64::from(self.scenario.config.slot_count)) as u32);
        let for_ever = self.prng.chance(500);
        self.say(|| format!("the sectors of slot {} fail, for ever: {for_ever}", slot.0));
        self.disk.fail_sector(slot, for_ever);
        if let Some(pvbn) = self.slot_pvbns.get(&slot.0) {
            self.rotten.insert(*pvbn);
        }
        self.schedule_disaster(self.scenario.faults.sector_failure_interval_ms, Operation::SectorFails);
    }

    /// Until it has room again there is no new segment but the one made ahead, and no checkpoint.
    pub(crate) fn fill_disk(&mut self) {
        if self.is_calm {
            return;
        }
        let micros = 1_000 * (1 + self.prng.below(self.scenario.faults.full_ms_max));
        self.say(|| format!("the disk is full for {micros} microseconds"));
        self.full_until = self.now + micros;
        let pause = self.prng.below(2_000 * self.scenario.faults.full_interval_ms);
        self.schedule(micros + pause, Operation::DiskFills);
    }

    /// For a new segment; otherwise how long to wait for it.
    pub(crate) fn micros_to_room(&mut self) -> Option<u64> {
        let left = self.full_until.saturating_sub(self.now);
        if left > 0 && !std::mem::take(&mut self.has_spare_segment) {
            return Some(left);
        }
        self.has_spare_segment |= left == 0;
        None
    }

    /// The next segment is made ahead of its use, as soon as there is room; the core hears when there is none.
    pub(crate) fn make_segment(&mut self, segment: u64, is_awaited: bool) {
        let left = self.full_until.saturating_sub(self.now);
        self.has_spare_segment |= left == 0;
        if !self.has_spare_segment {
            if !is_awaited {
                self.step(Event::JournalFull { segment });
            }
            self.schedule(left.min(LOOK_MICROS), Operation::MakeSegment(segment));
        } else if is_awaited {
            self.step(Event::JournalHasRoom);
        }
    }

    pub(crate) fn rot_object(&mut self) {
        if self.is_calm {
            return;
        }
        match self.prng.below(3) {
            0 => self.store.rot_object(&mut self.prng),
            1 => self.store.lose_object(&mut self.prng),
            _ => self.store.truncate_object(&mut self.prng),
        }
        self.schedule_disaster(self.scenario.faults.object_rot_interval_ms, Operation::ObjectRots);
    }
}
