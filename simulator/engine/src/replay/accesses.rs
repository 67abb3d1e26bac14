//! How often each prefetched block is read before it is evicted (Tombolo, MSST'16, figure 12). The core keeps a sum; who
//! wants the distribution counts by slot.

use tombolo_base::Lcbn;

/// Blocks by how often they were read: the last for that many reads or more.
pub const CLASSES: usize = 6;

#[derive(Debug)]
pub struct AccessCounts {
    /// For each slot: zero when no prefetch filled it, else one more than the reads since.
    slots: Vec<u8>,
    gone: [u64; CLASSES],
}

impl AccessCounts {
    pub fn new(slot_count: u32) -> Self {
        Self {
            slots: vec![0; slot_count as usize],
            gone: [0; CLASSES],
        }
    }

    /// A prefetch has filled the slot.
    pub fn enter(&mut self, slot: Lcbn) {
        self.slots[slot.0 as usize] = 1;
    }

    pub fn read(&mut self, slot: Lcbn) {
        let reads = &mut self.slots[slot.0 as usize];
        if *reads > 0 {
            *reads = reads.saturating_add(1);
        }
    }

    /// The slot is given to another block.
    pub fn leave(&mut self, slot: Lcbn) {
        let reads = std::mem::take(&mut self.slots[slot.0 as usize]);
        count(&mut self.gone, reads);
    }

    /// Forgets the blocks that have gone.
    pub fn clear(&mut self) {
        self.gone = [0; CLASSES];
    }

    /// Blocks that have gone, and those that are there.
    pub fn report(&self) -> [u64; CLASSES] {
        let mut all = self.gone;
        self.slots.iter().for_each(|&reads| count(&mut all, reads));
        all
    }
}

fn count(classes: &mut [u64; CLASSES], reads: u8) {
    if let Some(reads) = reads.checked_sub(1) {
        classes[usize::from(reads).min(CLASSES - 1)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_when_they_go_and_at_the_end() {
        let mut counts = AccessCounts::new(3);
        let slot = Lcbn;
        counts.enter(slot(0));
        counts.enter(slot(1));
        counts.read(slot(2));
        for _ in 0..300 {
            counts.read(slot(0));
        }
        assert_eq!(counts.report(), [1, 0, 0, 0, 0, 1]);
        counts.leave(slot(0));
        counts.enter(slot(0));
        counts.read(slot(0));
        assert_eq!(counts.report(), [1, 1, 0, 0, 0, 1]);
        counts.leave(slot(2));
        counts.clear();
        assert_eq!(counts.report(), [1, 1, 0, 0, 0, 0]);
    }
}
