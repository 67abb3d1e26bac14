//! Dirty objects, and the daemon that uploads them: every period it takes what has been dirty for long enough and
//! uploads it, oldest first, few at a time (as the paper's prototype, section 5.1.1, after Linux).
//!
//! An object that is written while its upload is under way is dirty anew when the upload ends.

use std::collections::{BTreeMap, VecDeque};

/// Counts the times that objects became dirty; zero: clean.
type Epoch = u64;

#[derive(Debug)]
pub(super) struct WriteBack {
    age_us: u64,
    period_us: u64,
    uploads_max: usize,
    epoch: Epoch,
    /// By object.
    dirty: Vec<Epoch>,
    /// In the order in which they became dirty, with the time; stale entries among them.
    waiting: VecDeque<(u64, u32, Epoch)>,
    /// Old enough, and seen by the daemon.
    ready: VecDeque<(u32, Epoch)>,
    uploading: BTreeMap<u32, Upload>,
    next_look_us: u64,
    now_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Upload {
    end_us: u64,
    epoch: Epoch,
}

/// What is done on the daemon's behalf.
pub(super) trait Uploader {
    /// An upload begins at a moment; says how long it takes.
    fn begin(&mut self, object: u32, at_us: u64) -> u64;
    /// The object has not been written since its upload began: it is clean.
    fn clean(&mut self, object: u32);
}

/// What an eviction has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// An upload that nobody has begun.
    Upload,
    /// The rest of the daemon's upload.
    WaitUs(u64),
}

impl WriteBack {
    pub fn new(age_ms: u64, period_ms: u64, uploads_max: u32, objects: usize) -> Self {
        Self {
            age_us: age_ms * 1000,
            period_us: period_ms * 1000,
            uploads_max: uploads_max as usize,
            epoch: 0,
            dirty: vec![0; objects],
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            uploading: BTreeMap::new(),
            next_look_us: period_ms * 1000,
            now_us: 0,
        }
    }

    pub fn is_dirty(&self, object: u32) -> bool {
        self.dirty[object as usize] != 0
    }

    /// The object was written at this moment.
    pub fn wrote(&mut self, object: u32) {
        let epoch = self.dirty[object as usize];
        let is_uploading = self.uploading.get(&object).is_some_and(|upload| upload.epoch == epoch);
        if epoch != 0 && !is_uploading {
            return;
        }
        self.epoch += 1;
        self.dirty[object as usize] = self.epoch;
        self.waiting.push_back((self.now_us, object, self.epoch));
    }

    /// The dirty object leaves the cache.
    pub fn evict(&mut self, object: u32) -> Eviction {
        let epoch = std::mem::take(&mut self.dirty[object as usize]);
        match self.uploading.get(&object) {
            Some(upload) if upload.epoch == epoch => Eviction::WaitUs(upload.end_us.saturating_sub(self.now_us)),
            _ => Eviction::Upload,
        }
    }

    /// All that the daemon does up to a moment.
    pub fn advance(&mut self, until_us: u64, uploader: &mut dyn Uploader) {
        loop {
            let ended = self
                .uploading
                .iter()
                .min_by_key(|(object, upload)| (upload.end_us, **object));
            let ended = ended.map(|(object, upload)| (*object, *upload));
            match ended {
                Some((object, upload)) if upload.end_us <= self.next_look_us && upload.end_us <= until_us => {
                    self.now_us = upload.end_us;
                    self.end(object, upload, uploader);
                }
                _ if self.next_look_us <= until_us => self.look(),
                _ => break,
            }
            self.begin(uploader);
        }
        self.now_us = self.now_us.max(until_us);
    }

    /// Uploads all that is dirty, however young; the order is that of becoming dirty.
    pub fn finish(&mut self, uploader: &mut dyn Uploader) {
        let uploading = std::mem::take(&mut self.uploading);
        for (object, upload) in uploading {
            self.end(object, upload, uploader);
        }
        let waiting = self.waiting.drain(..).map(|(_, object, epoch)| (object, epoch));
        let left: Vec<(u32, Epoch)> = self.ready.drain(..).chain(waiting).collect();
        for (object, epoch) in left {
            if self.dirty[object as usize] == epoch {
                uploader.begin(object, self.now_us);
                self.dirty[object as usize] = 0;
                uploader.clean(object);
            }
        }
    }

    fn end(&mut self, object: u32, upload: Upload, uploader: &mut dyn Uploader) {
        self.uploading.remove(&object);
        if self.dirty[object as usize] == upload.epoch {
            self.dirty[object as usize] = 0;
            uploader.clean(object);
        }
    }

    fn look(&mut self) {
        self.now_us = self.next_look_us;
        self.next_look_us += self.period_us;
        while let Some((since_us, object, epoch)) = self.waiting.front().copied() {
            if since_us + self.age_us > self.now_us {
                break;
            }
            self.waiting.pop_front();
            if self.dirty[object as usize] == epoch {
                self.ready.push_back((object, epoch));
            }
        }
    }

    fn begin(&mut self, uploader: &mut dyn Uploader) {
        while self.uploading.len() < self.uploads_max {
            let Some((object, epoch)) = self.ready.pop_front() else {
                break;
            };
            if self.dirty[object as usize] != epoch {
                continue;
            }
            if self.uploading.contains_key(&object) {
                // Its older contents are still under way; it waits for another look.
                self.waiting.push_back((self.now_us, object, epoch));
            } else {
                let end_us = self.now_us + uploader.begin(object, self.now_us);
                self.uploading.insert(object, Upload { end_us, epoch });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(Vec<String>);

    impl Uploader for Log {
        fn begin(&mut self, object: u32, _at_us: u64) -> u64 {
            self.0.push(format!("begin {object}"));
            2_000_000
        }

        fn clean(&mut self, object: u32) {
            self.0.push(format!("clean {object}"));
        }
    }

    fn daemon() -> (WriteBack, Log) {
        (WriteBack::new(30_000, 5_000, 1, 10), Log::default())
    }

    #[test]
    fn what_is_old_is_uploaded_one_after_another() {
        let (mut daemon, mut log) = daemon();
        daemon.wrote(1);
        daemon.wrote(2);
        daemon.wrote(1);
        daemon.advance(29_000_000, &mut log);
        assert!(log.0.is_empty());
        daemon.advance(33_000_000, &mut log);
        assert_eq!(log.0, ["begin 1", "clean 1", "begin 2"]);
        assert!(!daemon.is_dirty(1) && daemon.is_dirty(2));
        daemon.advance(60_000_000, &mut log);
        assert_eq!(log.0.last().unwrap(), "clean 2");
    }

    #[test]
    fn what_is_written_during_its_upload_stays_dirty() {
        let (mut daemon, mut log) = daemon();
        daemon.wrote(1);
        daemon.advance(31_000_000, &mut log);
        daemon.wrote(1);
        daemon.advance(34_000_000, &mut log);
        assert!(daemon.is_dirty(1));
        assert_eq!(log.0, ["begin 1"]);
        daemon.advance(100_000_000, &mut log);
        assert_eq!(log.0, ["begin 1", "begin 1", "clean 1"]);
    }

    /// Uploads that take longer than objects may be dirty: two of one object never run at a time, and none is forgotten.
    #[test]
    fn one_object_is_uploaded_once_at_a_time() {
        struct Slow(Vec<&'static str>);
        impl Uploader for Slow {
            fn begin(&mut self, _object: u32, _at_us: u64) -> u64 {
                self.0.push("begin");
                100_000_000
            }
            fn clean(&mut self, _object: u32) {
                self.0.push("clean");
            }
        }
        let (mut daemon, mut slow) = (WriteBack::new(30_000, 5_000, 4, 10), Slow(Vec::new()));
        daemon.wrote(1);
        daemon.advance(31_000_000, &mut slow);
        daemon.wrote(1);
        daemon.advance(129_000_000, &mut slow);
        assert_eq!(slow.0, ["begin"]);
        daemon.advance(400_000_000, &mut slow);
        assert_eq!(slow.0, ["begin", "begin", "clean"]);
    }

    #[test]
    fn an_eviction_waits_for_the_upload_under_way() {
        let (mut daemon, mut log) = daemon();
        daemon.wrote(1);
        daemon.wrote(2);
        daemon.advance(30_500_000, &mut log);
        assert_eq!(daemon.evict(1), Eviction::WaitUs(1_500_000));
        assert_eq!(daemon.evict(2), Eviction::Upload);
        daemon.advance(100_000_000, &mut log);
        assert_eq!(
            log.0,
            ["begin 1"],
            "what was evicted is neither cleaned nor uploaded again"
        );
    }

    #[test]
    fn at_the_end_nothing_is_dirty() {
        let (mut daemon, mut log) = daemon();
        for object in 0..5 {
            daemon.wrote(object);
        }
        daemon.advance(31_000_000, &mut log);
        daemon.wrote(0);
        daemon.finish(&mut log);
        assert!((0..5).all(|object| !daemon.is_dirty(object)));
        let begun = log.0.iter().filter(|line| line.starts_with("begin")).count();
        assert_eq!(begun, 6, "the object that was written during its upload went twice");
    }
}
