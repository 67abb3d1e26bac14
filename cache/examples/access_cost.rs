//! Time per access and metadata per cached block of every policy, as a table in Markdown: `access_cost BLOCKS [POLICY...]`.
//!
//! Keys are drawn with a skew (the cube of a uniform draw, scattered over twice as many keys as blocks), so that hits
//! and misses alternate as they do in use. Key and slot find each other through plain arrays; the row `none` evicts
//! slots in turn and shows what that and the drawing cost without any policy. The cache is warmed up first.

use std::hint::black_box;
use tombolo_base::{Lcbn, Prng, Pvbn};
use tombolo_cache::{
    Access, Advice, Alternatives, Arrival, Capacity, Cause, CostClass, Grouping, Incoming, Min, MissHint, Policy,
    Replacement, Residents, Verdict,
};

const NOWHERE: u32 = u32::MAX;
/// Accesses that are timed.
const MEASURED: usize = 2_000_000;

struct Cache {
    slot_of_key: Vec<u32>,
    key_of_slot: Vec<u32>,
    blocks: u32,
    used: u32,
}

struct Names<'a>(&'a [u32]);

impl Residents for Names<'_> {
    fn block(&self, slot: Lcbn) -> Pvbn {
        Pvbn(u64::from(self.0[slot.0 as usize]))
    }

    fn judge(&mut self, _slot: Lcbn) -> Verdict {
        Verdict::Evict
    }
}

impl Cache {
    fn new(blocks: u32) -> Self {
        Self {
            slot_of_key: vec![NOWHERE; blocks as usize * 2],
            key_of_slot: vec![NOWHERE; blocks as usize],
            blocks,
            used: 0,
        }
    }

    fn access(&mut self, policy: &mut dyn Replacement, key: u32) -> bool {
        let access = Access::to(Pvbn(u64::from(key)));
        let slot = self.slot_of_key[key as usize];
        if slot != NOWHERE {
            policy.touch(Lcbn(slot), &access);
            return true;
        }
        let miss_hint = policy.miss(&access);
        let incoming = Incoming {
            miss_hint,
            ..Incoming::BLOCK
        };
        let slot = if self.used < self.blocks {
            self.used += 1;
            Lcbn(self.used - 1)
        } else {
            let victim = policy.victim(incoming, &mut Names(&self.key_of_slot));
            let victim = victim.expect("nothing is held");
            self.slot_of_key[self.key_of_slot[victim.0 as usize] as usize] = NOWHERE;
            victim
        };
        self.slot_of_key[key as usize] = slot.0;
        self.key_of_slot[slot.0 as usize] = key;
        let arrival = Arrival {
            object: u64::from(key / 64),
            cost_class: (key / 64 % 2) as u8,
            ..Arrival::of_block(access, Cause::Demand, miss_hint)
        };
        policy.insert(slot, &arrival);
        false
    }
}

/// Evicts slots in turn.
struct NoPolicy {
    next: u32,
    blocks: u32,
}

impl Replacement for NoPolicy {
    fn name(&self) -> &'static str {
        "none"
    }
    fn miss(&mut self, _access: &Access) -> MissHint {
        MissHint::default()
    }
    fn insert(&mut self, _slot: Lcbn, _arrival: &Arrival) {}
    fn touch(&mut self, _slot: Lcbn, _access: &Access) {}
    fn remove(&mut self, _slot: Lcbn) {}
    fn victim(&mut self, _incoming: Incoming, _residents: &mut dyn Residents) -> Option<Lcbn> {
        self.next = (self.next + 1) % self.blocks;
        Some(Lcbn(self.next))
    }
    fn resize(&mut self, _capacity: Capacity) {}
    fn len(&self) -> usize {
        self.blocks as usize
    }
    fn metadata_bytes(&self) -> usize {
        0
    }
    fn check_invariants(&self) {}
}

fn draw(prng: &mut Prng, keys: u64) -> u32 {
    let uniform = prng.below(1 << 20);
    let cubed = (((uniform * uniform) >> 20) * uniform) >> 20;
    let rank = ((cubed * keys) >> 20) + prng.below(keys / 1024);
    // Runs of 16 stay together, as blocks of one file do; runs are scattered.
    ((rank / 16 * 16).wrapping_mul(0x9e37_79b1) % keys / 16 * 16 + rank % 16) as u32
}

/// Time that this thread has spent on a processor; a busy machine inflates it less than the time of day.
fn cpu_nanoseconds() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells of its threads");
    let first = schedstat.split(' ').next().expect("three numbers");
    first.parse().expect("nanoseconds")
}

/// Two backends, one dearer than the other.
fn costs(class: u8) -> Advice {
    let costs = CostClass {
        round_trip_us: 1_000,
        download_us: 30_000 * (1 + u32::from(class)),
        download_ns_per_kib: 10_000,
        get_nanodollars: 400,
        egress_nanodollars_per_mib: 20_000 * (1 + u32::from(class)),
        ..CostClass::default()
    };
    Advice::Costs { class, costs }
}

fn measure(policy: &mut dyn Replacement, label: &str, trace: &[u32], blocks: u32) {
    policy.advise(costs(0));
    policy.advise(costs(1));
    let mut cache = Cache::new(blocks);
    let (warm_up, measured) = trace.split_at(trace.len() - MEASURED);
    warm_up.iter().for_each(|key| {
        black_box(cache.access(policy, *key));
    });
    let begin = cpu_nanoseconds();
    let hits = measured.iter().filter(|key| cache.access(policy, **key)).count();
    let nanoseconds = (cpu_nanoseconds() - begin) as f64 / MEASURED as f64;
    println!(
        "| {label} | {nanoseconds:.0} | {:.0} | {:.1} |",
        policy.metadata_bytes() as f64 / policy.len() as f64,
        hits as f64 * 100.0 / MEASURED as f64,
    );
}

/// All alternatives together, over their sample; no metadata but their own.
fn compare(trace: &[u32], blocks: u32) {
    let mut alternatives = Alternatives::new(blocks);
    let (warm_up, measured) = trace.split_at(trace.len() - MEASURED);
    warm_up.iter().for_each(|key| alternatives.read((*key).into()));
    let begin = cpu_nanoseconds();
    measured.iter().for_each(|key| alternatives.read((*key).into()));
    let nanoseconds = (cpu_nanoseconds() - begin) as f64 / MEASURED as f64;
    println!("| alternatives | {nanoseconds:.0} | - | - |");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let blocks: u32 = arguments
        .next()
        .and_then(|size| size.parse().ok())
        .expect("usage: access_cost BLOCKS [POLICY...]");
    let wanted: Vec<String> = arguments.collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let mut prng = Prng::new(1);
    let keys = u64::from(blocks) * 2;
    // Every second run of keys fills the cache; then comes the skewed draw.
    let fill = (0..u64::from(blocks)).map(|block| (block / 16 * 32 + block % 16) as u32);
    let mut trace: Vec<u32> = fill.filter(|key| u64::from(*key) < keys).collect();
    trace.extend((0..blocks as usize / 2 + MEASURED).map(|_| draw(&mut prng, keys)));
    let capacity = Capacity::of_blocks(blocks);
    println!("{blocks} blocks of metadata, {MEASURED} accesses, one thread, CPU time\n");
    println!("| policy | ns an access | bytes a block | hits % |\n|---|---|---|---|");
    measure(&mut NoPolicy { next: 0, blocks }, "none", &trace, blocks);
    for policy in Policy::ALL.into_iter().filter(|policy| is_wanted(policy.name())) {
        measure(
            &mut *policy.build(capacity, Grouping::Slots),
            policy.name(),
            &trace,
            blocks,
        );
        if policy.name().starts_with("gds") {
            let label = format!("{}/objects", policy.name());
            let grouping = Grouping::Objects { evict_blocks: 16 };
            measure(&mut *policy.build(capacity, grouping), &label, &trace, blocks);
        }
    }
    if is_wanted("alternatives") {
        compare(&trace, blocks);
    }
    if is_wanted("min") {
        let whole: Vec<u64> = trace.iter().map(|key| u64::from(*key)).collect();
        measure(&mut Min::new(&whole), "min", &trace, blocks);
    }
}
