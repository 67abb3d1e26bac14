//! A record that several clients write: what a read of it may see.

/// A write, from its request to the moment from which on it is known to be there.
#[derive(Clone, Debug)]
struct Written {
    stamp: u64,
    begin: u64,
    /// Since it was answered, or seen.
    end: Option<u64>,
    is_answered: bool,
}

impl Written {
    fn is_before(&self, other: &Self) -> bool {
        self.end.is_some_and(|end| end < other.begin)
    }

    fn is_there_at(&self, moment: u64) -> bool {
        self.end.is_some_and(|end| end < moment)
    }

    fn see(&mut self, now: u64) {
        self.end = Some(self.end.map_or(now, |end| end.min(now)));
    }
}

#[derive(Debug)]
pub(super) struct Register(Vec<Written>);

impl Register {
    /// Stamp 0 stands for what was never written.
    pub fn new() -> Self {
        Self(vec![Written {
            stamp: 0,
            begin: 0,
            end: Some(0),
            is_answered: true,
        }])
    }

    pub fn begin(&mut self, stamp: u64, now: u64) {
        self.0.push(Written {
            stamp,
            begin: now,
            end: None,
            is_answered: false,
        });
    }

    pub fn answer(&mut self, stamp: u64, now: u64) {
        if let Some(written) = self.0.iter_mut().find(|written| written.stamp == stamp) {
            written.see(now);
            written.is_answered = true;
        }
    }

    /// What was seen but not answered may not have been kept.
    pub fn crash(&mut self) {
        for written in self.0.iter_mut().filter(|written| !written.is_answered) {
            written.end = None;
        }
    }

    /// A read that began at `begin` has found this. The error says what has replaced it before.
    pub fn see(&mut self, stamp: u64, begin: u64, now: u64) -> Result<(), String> {
        self.check(stamp, begin)?;
        let found = self.0.iter_mut().filter(|written| written.stamp == stamp);
        found.for_each(|written| written.see(now));
        Ok(())
    }

    /// The first read after a power loss, which has kept at least what was there at `synced`.
    pub fn see_after_loss(&mut self, stamp: u64, synced: u64, now: u64) -> Result<(), String> {
        self.check(stamp, synced)?;
        self.0.retain(|written| written.stamp == stamp || !written.is_answered);
        self.see(stamp, now, now)
    }

    fn check(&self, stamp: u64, moment: u64) -> Result<(), String> {
        let found = self.0.iter().find(|written| written.stamp == stamp);
        let found = found.ok_or_else(|| format!("{stamp} was never written, or was lost: {:?}", self.0))?;
        let mut later = self.0.iter().filter(|written| written.is_there_at(moment));
        match later.find(|later| found.is_before(later)) {
            Some(later) => Err(format!("{found:?} was replaced by {later:?} before {moment}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_is_not_seen_again() {
        let mut register = Register::new();
        register.begin(1, 10);
        assert!(register.see(0, 11, 12).is_ok() && register.see(1, 13, 14).is_ok());
        assert!(register.see(0, 15, 16).is_err(), "1 was seen");
        register.begin(2, 20);
        register.answer(2, 22);
        assert!(register.see(1, 21, 23).is_ok(), "the read began before");
        assert!(register.see(1, 24, 25).is_err());
        register.answer(1, 30);
        assert!(register.see(1, 31, 32).is_err(), "answered late, but seen before");
    }

    #[test]
    fn a_power_loss_keeps_what_was_synced() {
        let mut register = Register::new();
        for (stamp, begin) in [(1, 10), (2, 20), (3, 30)] {
            register.begin(stamp, begin);
            register.answer(stamp, begin + 5);
        }
        register.crash();
        assert!(register.see_after_loss(1, 28, 40).is_err());
        assert!(register.see_after_loss(2, 28, 40).is_ok());
        assert!(register.see(3, 50, 51).is_err(), "lost");
    }
}
