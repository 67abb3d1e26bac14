//! The GDS family against a vector of groups searched for its least H; and GDS with uniform costs against LRU.

use crate::driver::{Model, agree, traces};
use crate::queue_policies::LruModel;
use proptest::prelude::*;
use tombolo_cache::{
    Advice, Capacity, CostClass, Gds, GdsConfig, Goal, Grouping, KeyedCache, Object, Policy, Region, Replacement,
};

const OBJECT_KEYS: u64 = 8;
const BLOCK: u64 = 4096;

fn classes() -> [CostClass; 2] {
    let near = CostClass {
        round_trip_us: 300,
        download_us: 4_000,
        download_ns_per_kib: 20_000,
        upload_us: 9_000,
        upload_ns_per_kib: 30_000,
        get_nanodollars: 400,
        egress_nanodollars_per_mib: 0,
        put_nanodollars: 5_000,
    };
    let far = CostClass {
        round_trip_us: 70_000,
        download_us: 90_000,
        egress_nanodollars_per_mib: 87_890,
        ..near
    };
    [near, far]
}

#[derive(Clone, Debug)]
struct Group {
    object: u64,
    /// Key, bytes, dirty; least recently used first.
    members: Vec<(u64, u64, bool)>,
    base: u64,
    rank: u64,
    stamp: u64,
    class: u8,
    latency_us: u32,
    visits: u64,
    region: usize,
}

impl Group {
    fn bytes(&self) -> u64 {
        self.members.iter().map(|member| member.1).sum()
    }
}

struct GdsModel {
    config: GdsConfig,
    capacity: Capacity,
    groups: Vec<Group>,
    inflation: [u64; 2],
    clock: u64,
    last_visited: Option<u64>,
}

impl GdsModel {
    fn new(config: GdsConfig, capacity: Capacity) -> Self {
        Self {
            config,
            capacity,
            groups: Vec::new(),
            inflation: [0; 2],
            clock: 0,
            last_visited: None,
        }
    }

    fn region_max(&self, region: usize) -> u64 {
        let upper = match self.config.lower {
            None => return u64::MAX,
            Some(lower) => {
                let shares = u64::from(self.config.upper.share + lower.share);
                self.capacity.bytes * u64::from(self.config.upper.share) / shares
            }
        };
        [upper, self.capacity.bytes - upper][region]
    }

    fn region_bytes(&self, region: usize) -> u64 {
        let inside = self.groups.iter().filter(|group| group.region == region);
        inside.map(Group::bytes).sum()
    }

    fn value(&self, group: &Group) -> u64 {
        let region: Region = if group.region == 1 {
            self.config.lower.unwrap()
        } else {
            self.config.upper
        };
        let costs = classes()[usize::from(group.class)];
        let is_slots = self.config.grouping == Grouping::Slots;
        let bytes = if is_slots {
            group.bytes()
        } else {
            group.bytes().max(16 * BLOCK)
        };
        let dirty = group.members.iter().filter(|member| member.2).count() as u64;
        let upload = |whole: u64| match (self.config.counts_uploads, is_slots) {
            (false, _) => 0,
            (true, true) => whole * dirty,
            (true, false) => whole * dirty / 64,
        };
        let latency = match group.latency_us {
            measured if measured > 0 && is_slots => u64::from(measured),
            _ => costs.download_us(bytes),
        };
        // The shortest round trip is 300 us, within a data centre: ten times that.
        let normal = |us: u64| ((us + 1_500) / 3_000).max(1);
        let cost = match region.goal {
            Goal::Latency => latency + upload(costs.upload_us(bytes)),
            Goal::NormalisedLatency => normal(latency) + upload(normal(costs.upload_us(bytes))),
            Goal::Price => costs.download_nanodollars(bytes) + upload(u64::from(costs.put_nanodollars)),
        };
        let frequency = group.visits.clamp(1, u64::from(region.frequency_max));
        (cost << 28) / bytes * frequency
    }

    fn place(&mut self, mut group: Group, region: usize) {
        group.region = region;
        group.base = self.inflation[region];
        group.rank = group.base + self.value(&group);
        self.groups.push(group);
    }

    fn least(&self, region: usize) -> Option<usize> {
        let inside = (0..self.groups.len()).filter(|at| self.groups[*at].region == region);
        inside.min_by_key(|at| (self.groups[*at].rank, self.groups[*at].stamp))
    }

    fn demote_least(&mut self) {
        let group = self.groups.remove(self.least(0).unwrap());
        self.inflation[0] = self.inflation[0].max(group.rank);
        self.place(group, 1);
    }

    fn admit(&mut self, group: Group) {
        let upper_max = self.region_max(0);
        if group.bytes() > upper_max {
            return self.place(group, 1);
        }
        while self.region_bytes(0).saturating_add(group.bytes()) > upper_max && self.least(0).is_some() {
            self.demote_least();
        }
        self.place(group, 0);
    }

    fn evict(&mut self, incoming: u64) {
        if self.config.lower.is_some() {
            while self.region_bytes(0) + incoming > self.region_max(0) {
                let Some(least) = self.least(0) else { break };
                if self.region_bytes(1) + self.groups[least].bytes() > self.region_max(1) {
                    break;
                }
                self.demote_least();
            }
        }
        let at = self.least(1).or(self.least(0)).unwrap();
        let region = self.groups[at].region;
        self.inflation[region] = self.inflation[region].max(self.groups[at].rank);
        self.groups[at].members.remove(0);
        self.after_loss(at, |left, config| match config.grouping {
            Grouping::Slots => true,
            Grouping::Objects { evict_blocks } => left.is_multiple_of(evict_blocks as usize),
        });
    }

    fn after_loss(&mut self, at: usize, revalues: impl Fn(usize, &GdsConfig) -> bool) {
        let left = self.groups[at].members.len();
        if left == 0 {
            let gone = self.groups.remove(at);
            if self.last_visited == Some(gone.object) {
                self.last_visited = None;
            }
        } else if revalues(left, &self.config) {
            self.groups[at].rank = self.groups[at].base + self.value(&self.groups[at]);
        }
    }

    fn use_group(&mut self, group: &mut Group) {
        if self.config.grouping == Grouping::Slots || self.last_visited != Some(group.object) {
            group.visits += 1;
        }
        self.last_visited = Some(group.object);
        self.clock += 1;
        group.stamp = self.clock;
    }

    fn request(&mut self, object: &Object) -> bool {
        let holds = |group: &Group| group.members.iter().position(|member| member.0 == object.key);
        if let Some(at) = self.groups.iter().position(|group| holds(group).is_some()) {
            let member = holds(&self.groups[at]).unwrap();
            if self.groups[at].members[member].1 == u64::from(object.bytes) {
                let mut group = self.groups.remove(at);
                let moved = group.members.remove(member);
                group.members.push(moved);
                self.use_group(&mut group);
                if group.region == 0 {
                    self.place(group, 0);
                } else {
                    self.admit(group);
                }
                if object.is_write {
                    let at = self.groups.iter().position(|group| holds(group).is_some()).unwrap();
                    self.groups[at].members.last_mut().unwrap().2 = true;
                    self.groups[at].rank = self.groups[at].base + self.value(&self.groups[at]);
                }
                return true;
            }
            self.groups[at].members.remove(member);
            self.after_loss(at, |_, _| true);
        }
        let bytes = u64::from(object.bytes);
        if bytes > self.capacity.bytes {
            return false;
        }
        while self.region_bytes(0) + self.region_bytes(1) + bytes > self.capacity.bytes
            || self.groups.iter().map(|group| group.members.len()).sum::<usize>() >= self.capacity.blocks as usize
        {
            self.evict(bytes);
        }
        let same = self.groups.iter().position(|group| group.object == object.object);
        let mut group = match same {
            Some(at) => self.groups.remove(at),
            None => Group {
                object: object.object,
                members: Vec::new(),
                base: 0,
                rank: 0,
                stamp: 0,
                class: 0,
                latency_us: 0,
                visits: 0,
                region: 0,
            },
        };
        group.members.push((object.key, bytes, object.is_write));
        group.class = object.cost_class;
        if object.latency_us > 0 {
            group.latency_us = object.latency_us;
        }
        self.use_group(&mut group);
        self.admit(group);
        false
    }
}

const CONFIGS: [GdsConfig; 8] = [
    GdsConfig::LATENCY,
    GdsConfig::PRICE,
    GdsConfig::F_LATENCY,
    GdsConfig::F_PRICE,
    GdsConfig::L,
    GdsConfig::LF,
    GdsConfig::LC,
    GdsConfig::LCF,
];

fn cache(config: GdsConfig, capacity: Capacity) -> KeyedCache {
    let mut policy = Gds::new(capacity, config);
    for (class, costs) in classes().into_iter().enumerate() {
        policy.advise(Advice::Costs {
            class: class as u8,
            costs,
        });
    }
    KeyedCache::new(capacity, Box::new(policy))
}

fn compare(config: GdsConfig, capacity: Capacity, requests: &[Object]) -> Result<(), TestCaseError> {
    let mut cache = cache(config, capacity);
    let mut model = GdsModel::new(config, capacity);
    for (step, object) in requests.iter().enumerate() {
        let hit = cache.request(object).is_hit;
        prop_assert_eq!(
            hit,
            model.request(object),
            "{} request {}: {:?}",
            config.name,
            step,
            object
        );
        cache.policy().check_invariants();
        let bytes = model.region_bytes(0) + model.region_bytes(1);
        prop_assert_eq!(cache.used_bytes(), bytes);
    }
    Ok(())
}

/// The key decides the size, mostly, and the backend; latency is drawn per request.
fn objects() -> impl Strategy<Value = Vec<Object>> {
    let request =
        (0u64..40, 0u32..40, any::<bool>(), 0u32..200_000).prop_map(|(key, resized, is_write, latency_us)| {
            let size = 500 + (key as u32 * 7919) % 20_000;
            Object {
                bytes: if resized == 0 { size + 3 } else { size },
                is_write,
                cost_class: (key % 2) as u8,
                latency_us,
                ..Object::block(key)
            }
        });
    prop::collection::vec(request, 1..250)
}

struct Uniform(LruModel);

impl Model for Uniform {
    fn access(&mut self, key: u64) -> bool {
        self.0.access(key)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn objects_of_many_sizes(bytes in 10_000u64..200_000, which in 0usize..8, requests in objects()) {
        let capacity = Capacity { blocks: 1000, bytes };
        compare(CONFIGS[which], capacity, &requests)?;
    }

    #[test]
    fn groups_of_blocks(blocks in 8u32..80, which in 0usize..8, evict_blocks in 1u32..6, trace in traces()) {
        let config = CONFIGS[which].with_grouping(Grouping::Objects { evict_blocks });
        let requests: Vec<Object> = trace
            .iter()
            .map(|key| Object {
                object: key / OBJECT_KEYS,
                cost_class: (key / OBJECT_KEYS % 2) as u8,
                is_write: key.is_multiple_of(5),
                ..Object::block(*key)
            })
            .collect();
        compare(config, Capacity::of_blocks(blocks), &requests)?;
    }

    /// With uniform cost and size every member without frequencies and with one region is LRU, access by access.
    #[test]
    fn uniform_costs_give_lru(capacity in 1u32..40, trace in traces(), costly in 0u32..1_000_000) {
        for config in [GdsConfig::LATENCY, GdsConfig::PRICE, GdsConfig::L] {
            let mut policy = Gds::new(Capacity::of_blocks(capacity), config);
            let costs = CostClass { download_us: costly, get_nanodollars: costly, ..classes()[1] };
            policy.advise(Advice::Costs { class: 0, costs });
            let model = LruModel { capacity: capacity as usize, keys: Vec::new() };
            agree(capacity, &trace, Box::new(policy), Uniform(model))?;
        }
    }
}

/// Bytes of one and costs at the cap drive the inflation through its limit every few evictions.
#[test]
fn inflation_starts_over_without_a_change_of_order() {
    let capacity = Capacity { blocks: 4, bytes: 4 };
    let mut policy = Gds::new(capacity, GdsConfig::LATENCY);
    let costs = CostClass {
        download_us: u32::MAX,
        ..CostClass::default()
    };
    policy.advise(Advice::Costs { class: 0, costs });
    let mut cache = KeyedCache::new(capacity, Box::new(policy));
    let mut lru = LruModel {
        capacity: 4,
        keys: Vec::new(),
    };
    let mut prng = tombolo_base::Prng::new(11);
    for _ in 0..2_000 {
        let key = prng.below(9);
        let object = Object {
            bytes: 1,
            ..Object::block(key)
        };
        assert_eq!(cache.request(&object).is_hit, lru.access(key));
        cache.policy().check_invariants();
    }
}

#[test]
fn members_that_count_no_uploads_can_be_built_by_name() {
    for config in CONFIGS {
        let is_named = Policy::ALL.iter().any(|policy| policy.name() == config.name);
        assert_eq!(is_named, !config.counts_uploads, "{}", config.name);
    }
}
