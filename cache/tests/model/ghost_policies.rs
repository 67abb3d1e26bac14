//! ARC, 2Q, S3-FIFO, LIRS: policies that remember what they evicted. All lists are vectors, oldest first.

use crate::driver::{Model, agree, traces};
use proptest::prelude::*;
use tombolo_cache::{Arc, Capacity, Lirs, S3Fifo, TwoQ};

fn take(list: &mut Vec<u64>, key: u64) -> bool {
    match list.iter().position(|held| *held == key) {
        Some(at) => {
            list.remove(at);
            true
        }
        None => false,
    }
}

/// FAST'03, figure 4, line by line.
#[derive(Default)]
struct ArcModel {
    c: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl ArcModel {
    fn replace(&mut self, from_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || (from_b2 && t1 == self.p)) || self.t2.is_empty() {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }
}

impl Model for ArcModel {
    fn access(&mut self, key: u64) -> bool {
        if take(&mut self.t1, key) || take(&mut self.t2, key) {
            self.t2.push(key);
            return true;
        }
        let (b1, b2, c) = (self.b1.len() as f64, self.b2.len() as f64, self.c as f64);
        if self.b1.contains(&key) {
            self.p = c.min(self.p + (b2 / b1).max(1.0));
            self.replace(false);
            take(&mut self.b1, key);
            self.t2.push(key);
            return false;
        }
        if self.b2.contains(&key) {
            self.p = 0f64.max(self.p - (b1 / b2).max(1.0));
            self.replace(true);
            take(&mut self.b2, key);
            self.t2.push(key);
            return false;
        }
        let l1 = self.t1.len() + self.b1.len();
        let total = l1 + self.t2.len() + self.b2.len();
        if l1 == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                self.replace(false);
            } else {
                self.t1.remove(0);
            }
        } else if total >= self.c {
            if total == 2 * self.c {
                self.b2.remove(0);
            }
            self.replace(false);
        }
        self.t1.push(key);
        false
    }
}

#[derive(Default)]
struct TwoQModel {
    capacity: usize,
    a1_in: Vec<u64>,
    a1_out: Vec<u64>,
    am: Vec<u64>,
}

impl Model for TwoQModel {
    fn access(&mut self, key: u64) -> bool {
        if take(&mut self.am, key) {
            self.am.push(key);
            return true;
        }
        if self.a1_in.contains(&key) {
            return true;
        }
        let was_ghost = take(&mut self.a1_out, key);
        if self.a1_in.len() + self.am.len() == self.capacity {
            if self.a1_in.len() > self.capacity / 4 || self.am.is_empty() {
                if self.a1_out.len() == (self.capacity / 2).max(1) {
                    self.a1_out.remove(0);
                }
                self.a1_out.push(self.a1_in.remove(0));
            } else {
                self.am.remove(0);
            }
        }
        if was_ghost { &mut self.am } else { &mut self.a1_in }.push(key);
        false
    }
}

#[derive(Default)]
struct S3FifoModel {
    capacity: usize,
    promotion_reads: u8,
    has_evicted: bool,
    small: Vec<(u64, u8)>,
    main: Vec<(u64, u8)>,
    ghosts: Vec<u64>,
}

impl S3FifoModel {
    fn evict(&mut self) {
        self.has_evicted = true;
        let before = self.small.len() + self.main.len();
        let small_max = self.capacity / 10;
        if self.main.len() <= self.capacity - small_max {
            while self.small.len() + self.main.len() == before && !self.small.is_empty() {
                let (key, reads) = self.small.remove(0);
                if reads >= self.promotion_reads {
                    self.main.push((key, 0));
                } else {
                    if self.ghosts.len() == (self.capacity * 9 / 10).max(1) {
                        self.ghosts.remove(0);
                    }
                    self.ghosts.push(key);
                }
            }
        }
        while self.small.len() + self.main.len() == before {
            let (key, reads) = self.main.remove(0);
            if reads > 0 {
                self.main.push((key, reads.min(3) - 1));
            }
        }
    }
}

impl Model for S3FifoModel {
    fn access(&mut self, key: u64) -> bool {
        for list in [&mut self.small, &mut self.main] {
            if let Some(entry) = list.iter_mut().find(|entry| entry.0 == key) {
                entry.1 = (entry.1 + 1).min(3);
                return true;
            }
        }
        let was_ghost = take(&mut self.ghosts, key);
        if self.small.len() + self.main.len() == self.capacity {
            self.evict();
        }
        let is_early = !self.has_evicted && self.small.len() >= self.capacity / 10;
        if was_ghost || is_early {
            self.main.push((key, 0));
        } else {
            self.small.push((key, 0));
        }
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lir,
    Hir,
    Ghost,
}

#[derive(Default)]
struct LirsModel {
    capacity: usize,
    stack: Vec<(u64, Kind)>,
    queue: Vec<u64>,
    /// Ghosts by time of eviction.
    ghosts: Vec<u64>,
}

impl LirsModel {
    fn lir_max(&self) -> usize {
        self.capacity - (self.capacity / 100).max(1)
    }

    fn lir_count(&self) -> usize {
        self.stack.iter().filter(|entry| entry.1 == Kind::Lir).count()
    }

    fn prune(&mut self) {
        while self.stack.first().is_some_and(|entry| entry.1 != Kind::Lir) {
            let (key, _) = self.stack.remove(0);
            take(&mut self.ghosts, key);
        }
    }

    fn push_lir(&mut self, key: u64) {
        self.stack.push((key, Kind::Lir));
        while self.lir_count() > self.lir_max().max(1) {
            let (demoted, _) = self.stack.remove(0);
            self.queue.push(demoted);
            self.prune();
        }
        self.prune();
    }

    fn push_hir(&mut self, key: u64) {
        self.stack.push((key, Kind::Hir));
        self.queue.push(key);
        self.prune();
    }

    fn limit(&mut self) {
        let ghosts_max = self.capacity + (self.capacity / 100).max(1);
        while !self.ghosts.is_empty() && (self.stack.len() > 2 * self.capacity || self.ghosts.len() > ghosts_max) {
            let key = self.ghosts.remove(0);
            self.stack.retain(|entry| entry.0 != key);
        }
    }

    fn evict(&mut self) {
        while self.queue.is_empty() {
            let (demoted, _) = self.stack.remove(0);
            self.queue.push(demoted);
            self.prune();
        }
        let key = self.queue.remove(0);
        if let Some(entry) = self.stack.iter_mut().find(|entry| entry.0 == key) {
            entry.1 = Kind::Ghost;
            self.ghosts.push(key);
        }
        self.limit();
    }
}

impl Model for LirsModel {
    fn access(&mut self, key: u64) -> bool {
        let found = self.stack.iter().position(|entry| entry.0 == key);
        let kind = found.map(|at| self.stack.remove(at).1);
        match kind {
            Some(Kind::Lir) => self.push_lir(key),
            Some(Kind::Hir) => {
                take(&mut self.queue, key);
                self.push_lir(key);
            }
            None if take(&mut self.queue, key) => self.push_hir(key),
            Some(Kind::Ghost) | None => {
                let was_ghost = take(&mut self.ghosts, key);
                if self.lir_count() + self.queue.len() == self.capacity {
                    self.evict();
                }
                if was_ghost || self.lir_count() < self.lir_max() {
                    self.push_lir(key);
                } else {
                    self.push_hir(key);
                }
                self.limit();
                return false;
            }
        }
        self.limit();
        true
    }
}

proptest! {
    #[test]
    fn arc(capacity in 1u32..40, trace in traces()) {
        let model = ArcModel { c: capacity as usize, ..ArcModel::default() };
        agree(capacity, &trace, Box::new(Arc::new(Capacity::of_blocks(capacity))), model)?;
    }

    #[test]
    fn two_q(capacity in 1u32..40, trace in traces()) {
        let model = TwoQModel { capacity: capacity as usize, ..TwoQModel::default() };
        agree(capacity, &trace, Box::new(TwoQ::new(Capacity::of_blocks(capacity))), model)?;
    }

    #[test]
    fn s3_fifo(capacity in 1u32..60, promotion_reads in 1u8..=3, trace in traces()) {
        let model = S3FifoModel { capacity: capacity as usize, promotion_reads, ..S3FifoModel::default() };
        let policy = S3Fifo::with_promotion_reads(Capacity::of_blocks(capacity), promotion_reads);
        agree(capacity, &trace, Box::new(policy), model)?;
    }

    #[test]
    fn lirs(capacity in 2u32..250, trace in traces()) {
        let model = LirsModel { capacity: capacity as usize, ..LirsModel::default() };
        agree(capacity, &trace, Box::new(Lirs::new(Capacity::of_blocks(capacity))), model)?;
    }
}
