//! How many bytes of uploads, or of downloads, may be under way: as many as the path carries in a second, and in two of its least
//! latencies.
//!
//! [`crate::Concurrency`] counts requests, and learns slowly where each takes long. Requests that share a thin link all end at its end: 32
//! objects of a mebibyte over 10 Mbit/s are 27 seconds in which nothing is confirmed, or nothing comes, and whoever writes or reads waits.
//! Over a thinner one they all take longer than a request may, and begin again. More
//! than what fills the link only makes that silence longer, so a path that is slow gets few bytes at a time; one that is fast is not held
//! back, since what it carries in that time is more than anybody has memory for.
//!
//! The rate is the highest of late of the delivery rates of single requests (as in BBR): what all of them brought between one's
//! beginning and its end, over that time. The bytes of a request are known to have come only when its last one has, so one that took longer
//! than that time has brought only a part of them in it. Those that began while the window was hardly used tell nothing of what the path can
//! do, nor do small ones beside large ones; they count only where they show more than the window allows. One that was given up after a
//! longer time halves all rates, or what is assumed before any is known: where nothing comes to its end, nothing else
//! tells that the path has become slow. The least latency is that of any request, however small, so that a path on which each takes
//! seconds is still filled.

use tombolo_base::Instant;

/// What is assumed before anything is known is not halved below this.
const INITIAL_BYTES_MIN: u64 = 256 << 10;
/// What a path carries in this time may be under way. It stands for a fall of the rate, too: at a tenth of it, 10 seconds.
const HORIZON_US: u64 = 1_000_000;
/// Rates that the highest is sought in.
const RATES: usize = 8;
/// Requests that are remembered: all that end while a large one is under way.
const ENDED: usize = 128;
/// Requests after which an older least latency is forgotten, once to twice so many.
const LATENCIES: u32 = 256;
/// Above this a latency is one of a queue.
const LATENCY_US_MAX: u64 = 3_000_000;

/// One request under way, from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    at: Instant,
    bytes: u64,
    /// The window was used.
    is_limited: bool,
}

/// One request whose bytes have all come.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    at: Instant,
    took_us: u64,
    bytes: u64,
}

/// Of one direction of one store.
#[derive(Clone, Debug)]
pub struct ByteWindow {
    initial_bytes: u64,
    in_flight: u64,
    /// The newest overwriting the oldest.
    ended: [Ended; ENDED],
    next_ended: usize,
    /// Bytes per second, the newest overwriting the oldest.
    rates: [u64; RATES],
    next_rate: usize,
    /// Microseconds: of the requests before, and of the newest.
    least_us: [Option<u64>; 2],
    latencies: u32,
}

impl ByteWindow {
    /// `initial_bytes` may be under way before anything is known.
    pub fn new(initial_bytes: u64) -> Self {
        Self {
            initial_bytes,
            in_flight: 0,
            ended: [Ended::default(); ENDED],
            next_ended: 0,
            rates: [0; RATES],
            next_rate: 0,
            least_us: [None; 2],
            latencies: 0,
        }
    }

    /// An attempt begins.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) -> Sent {
        self.in_flight = self.in_flight.saturating_add(bytes);
        Sent {
            at: now,
            bytes,
            is_limited: self.in_flight >= self.bytes() / 2,
        }
    }

    /// It has ended. `brought`: all of its bytes have come, so many; `None`: it has failed.
    pub fn on_ended(&mut self, now: Instant, sent: &Sent, brought: Option<u64>) {
        self.in_flight = self.in_flight.saturating_sub(sent.bytes);
        let took_us = now.micros_since(sent.at).max(1);
        let Some(bytes) = brought else {
            if took_us > HORIZON_US {
                self.halve();
            }
            return;
        };
        self.note_latency(took_us);
        let together = u128::from(bytes) + self.brought_beside(sent.at, took_us);
        let rate = u64::try_from(together * 1_000_000 / u128::from(took_us)).unwrap_or(u64::MAX);
        self.ended[self.next_ended] = Ended {
            at: now,
            took_us,
            bytes,
        };
        self.next_ended = (self.next_ended + 1) % ENDED;
        let is_telling = sent.is_limited && !self.is_small(bytes);
        if is_telling || self.window_of(rate) > self.bytes() {
            self.rates[self.next_rate] = rate;
            self.next_rate = (self.next_rate + 1) % RATES;
        }
    }

    fn halve(&mut self) {
        if self.bytes_per_s() == 0 {
            self.initial_bytes = (self.initial_bytes / 2).max(INITIAL_BYTES_MIN);
        }
        self.rates.iter_mut().for_each(|rate| *rate = rate.div_ceil(2));
    }

    /// Bytes of those that have ended since `from`, which is so long ago: of each what it brought in so much time.
    fn brought_beside(&self, from: Instant, took_us: u64) -> u128 {
        let since = self.ended.iter().filter(|ended| ended.at > from);
        let parts = since.map(|ended| {
            let within_us = took_us.min(ended.took_us);
            u128::from(ended.bytes) * u128::from(within_us) / u128::from(ended.took_us.max(1))
        });
        parts.sum()
    }

    /// Beside those that have ended of late.
    fn is_small(&self, bytes: u64) -> bool {
        let all = self.ended.iter().filter(|ended| ended.took_us > 0);
        let (count, together) = all.fold((0_u128, 0_u128), |(count, together), ended| {
            (count + 1, together + u128::from(ended.bytes))
        });
        2 * u128::from(bytes) * count < together
    }

    fn note_latency(&mut self, took_us: u64) {
        let least = &mut self.least_us[1];
        *least = Some(least.map_or(took_us, |least| least.min(took_us)));
        self.latencies += 1;
        if self.latencies >= LATENCIES {
            self.least_us = [self.least_us[1], None];
            self.latencies = 0;
        }
    }

    /// The highest delivery rate of late; zero before anything is known.
    pub fn bytes_per_s(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// What may be under way. One request always may, however large.
    pub fn bytes(&self) -> u64 {
        match self.bytes_per_s() {
            0 => self.initial_bytes,
            rate => self.window_of(rate),
        }
    }

    fn window_of(&self, rate: u64) -> u64 {
        let least_us = self.least_us.iter().flatten().min().copied().unwrap_or(0);
        let horizon_us = HORIZON_US + 2 * least_us.min(LATENCY_US_MAX);
        u64::try_from(u128::from(rate) * u128::from(horizon_us) / 1_000_000).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A link that uploads share evenly, behind a fixed latency. Each round all of them end together, which is the worst for who waits.
    struct Link {
        window: ByteWindow,
        now: u64,
        latency_us: u64,
        bytes_per_s: u64,
        memory: u64,
    }

    impl Link {
        fn new(latency_us: u64, bytes_per_s: u64) -> Self {
            Self {
                window: ByteWindow::new(16 * MIB),
                now: 1_000_000,
                latency_us,
                bytes_per_s,
                memory: 64 * MIB,
            }
        }

        fn rounds(&mut self, count: usize, size: u64) {
            for _ in 0..count {
                self.round(size);
            }
        }

        /// As many uploads of this size as may be under way, from the first one's beginning to the last one's end.
        fn round(&mut self, size: u64) -> u64 {
            let count = (self.window.bytes().min(self.memory) / size).max(1);
            let sent: Vec<Sent> = (0..count)
                .map(|_| self.window.on_sent(Instant(self.now), size))
                .collect();
            let took_us = self.latency_us + count * size * 1_000_000 / self.bytes_per_s;
            self.now += took_us;
            for sent in &sent {
                self.window.on_ended(Instant(self.now), sent, Some(size));
            }
            took_us
        }
    }

    #[test]
    fn a_thin_link_is_never_silent_for_long() {
        let mut link = Link::new(20_000, 10_000_000 / 8);
        assert!(link.round(MIB) < 14_000_000);
        let silences: Vec<u64> = (0..20).map(|_| link.round(MIB)).collect();
        assert!(silences[1..].iter().all(|us| *us < 9_000_000), "{silences:?}");
    }

    #[test]
    fn small_uploads_tell_what_a_path_takes_at_the_least() {
        let mut link = Link::new(20_000, 10_000_000 / 8);
        for _ in 0..40 {
            let sent = link.window.on_sent(Instant(link.now), 300);
            link.now += link.latency_us;
            link.window.on_ended(Instant(link.now), &sent, Some(300));
            link.round(MIB);
        }
        assert!(link.round(MIB) < 3_000_000);
    }

    /// What ended while a small upload was under way was on its way for far longer.
    #[test]
    fn a_small_upload_beside_large_ones_tells_nothing_of_the_rate() {
        for count in [8, 32] {
            let mut link = Link::new(20_000, 10_000_000 / 8);
            for _ in 0..20 {
                let large: Vec<Sent> = (0..count)
                    .map(|_| link.window.on_sent(Instant(link.now), MIB))
                    .collect();
                link.now += count * MIB * 1_000_000 / link.bytes_per_s;
                let small = link.window.on_sent(Instant(link.now - 10_000), 300);
                for sent in &large {
                    link.window.on_ended(Instant(link.now), sent, Some(MIB));
                }
                link.window.on_ended(Instant(link.now + 10_000), &small, Some(300));
                let rate = link.window.bytes_per_s();
                assert!(
                    (link.bytes_per_s / 2..2 * link.bytes_per_s).contains(&rate),
                    "{count} at once: {rate} bytes a second"
                );
            }
        }
    }

    /// One after the other begins and ends, as they do where each takes its own time.
    #[test]
    fn the_rate_is_that_of_all_together() {
        let (count, took_us) = (16, 1_600_000);
        let mut window = ByteWindow::new(16 * MIB);
        let mut under_way: VecDeque<(Sent, u64)> = VecDeque::new();
        for step in 0..400 {
            let now = 1_000_000 + step * took_us / count;
            if under_way.len() as u64 == count {
                let (sent, _) = under_way.pop_front().unwrap();
                window.on_ended(Instant(now), &sent, Some(MIB));
            }
            under_way.push_back((window.on_sent(Instant(now), MIB), now));
        }
        let rate = window.bytes_per_s();
        assert!((9 * MIB..=11 * MIB).contains(&rate), "{rate} bytes a second");
    }

    #[test]
    fn a_fast_path_is_not_held_back() {
        for latency_us in [200, 20_000, 100_000] {
            let mut link = Link::new(latency_us, 300 * MIB);
            link.rounds(3, 4 * MIB);
            assert!(link.window.bytes() > link.memory, "{latency_us} us");
        }
    }

    #[test]
    fn a_store_that_takes_seconds_for_each_is_filled() {
        let mut link = Link::new(4_000_000, 1_000 * MIB);
        link.rounds(20, 4 * MIB);
        assert!(link.window.bytes() > link.memory);
    }

    #[test]
    fn a_fall_of_the_rate_is_felt_once() {
        let mut link = Link::new(20_000, 12 * MIB);
        let small = |link: &mut Link| {
            let sent = link.window.on_sent(Instant(link.now), 300);
            link.now += link.latency_us;
            link.window.on_ended(Instant(link.now), &sent, Some(300));
        };
        for _ in 0..20 {
            small(&mut link);
            link.round(MIB);
        }
        link.bytes_per_s /= 10;
        let silences: Vec<u64> = (0..3).map(|_| link.round(MIB)).collect();
        assert!(silences[0] < 20_000_000, "{silences:?}");
        assert!(silences[2] < 3_000_000, "{silences:?}");
        link.bytes_per_s *= 10;
        link.rounds(40, MIB);
        assert!(link.window.bytes() > 10 * MIB, "and it comes back");
    }

    #[test]
    fn where_everything_is_given_up_less_and_less_is_tried() {
        let mut link = Link::new(20_000, 100 * MIB);
        link.rounds(20, MIB);
        for _ in 0..16 {
            let sent = link.window.on_sent(Instant(link.now), MIB);
            link.now += 5_000_000;
            link.window.on_ended(Instant(link.now), &sent, None);
        }
        assert!(link.window.bytes() < MIB);
        link.rounds(20, MIB);
        assert!(link.window.bytes() > link.memory, "and it comes back");
        let before = link.window.bytes();
        let sent = link.window.on_sent(Instant(link.now), MIB);
        link.window.on_ended(Instant(link.now + 1_000), &sent, None);
        assert_eq!(link.window.bytes(), before, "what is refused at once tells nothing");
    }

    /// A guess that was far too high: whatever is sent is given up, until little enough is tried.
    #[test]
    fn a_guess_that_is_too_high_is_halved() {
        let mut window = ByteWindow::new(4 * MIB);
        for _ in 0..20 {
            let sent = window.on_sent(Instant(0), MIB);
            window.on_ended(Instant(30_000_000), &sent, None);
        }
        assert_eq!(window.bytes(), INITIAL_BYTES_MIN);
    }

    /// Small requests one by one show no rate; what follows them is not held to theirs.
    #[test]
    fn who_asks_for_little_first_is_not_held_to_that() {
        let mut link = Link::new(100_000, 100 * MIB);
        for _ in 0..100 {
            let sent = link.window.on_sent(Instant(link.now), 4_096);
            link.now += link.latency_us;
            link.window.on_ended(Instant(link.now), &sent, Some(4_096));
        }
        assert_eq!(link.window.bytes(), 16 * MIB);
        link.rounds(4, 4 * MIB);
        assert!(link.window.bytes() > link.memory);
    }

    #[test]
    fn a_trickle_tells_nothing_of_what_the_path_can_do() {
        let mut link = Link::new(20_000, 12 * MIB);
        link.rounds(20, MIB);
        let before = link.window.bytes_per_s();
        for _ in 0..1_000 {
            let sent = link.window.on_sent(Instant(link.now), 4_096);
            link.now += link.latency_us;
            link.window.on_ended(Instant(link.now), &sent, Some(4_096));
            link.now += 1_000_000;
        }
        assert_eq!(link.window.bytes_per_s(), before);
    }

    proptest! {
        #[test]
        fn withstands_anything(steps in prop::collection::vec((0u8..3, any::<u64>(), any::<u64>()), 1..200)) {
            let (mut window, mut under_way) = (ByteWindow::new(16 * MIB), VecDeque::new());
            for (kind, bytes, at) in steps {
                match kind {
                    0 => under_way.push_back(window.on_sent(Instant(at), bytes)),
                    kind => {
                        if let Some(sent) = under_way.pop_front() {
                            window.on_ended(Instant(at), &sent, (kind == 1).then_some(bytes));
                        }
                    }
                }
                prop_assert!(window.bytes_per_s() == 0 || window.bytes() >= window.bytes_per_s());
            }
        }
    }
}
