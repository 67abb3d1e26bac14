//! The cache manager in virtual time: takes the requests one after another to the cache, moves what has to be moved, and
//! counts.

use super::cloud::{Direction, DriftCourse, Location, Traffic, Transfer};
use super::job::{Arrivals, Error, Job, Local, WriteMode};
use super::report::{self, Holding, Report, RequestCounts, SizeCounts, Transfers, Uploads};
use super::workload::{Operation, Request, Workload};
use super::write_back::{Eviction, Uploader, WriteBack};
use crate::replay::Progress;
use tombolo_cache::{Capacity, KeyedCache, Object};

pub(super) struct Driver<'a> {
    workload: &'a Workload,
    arrivals: Arrivals,
    local: Local,
    passes_large_objects: bool,
    capacity: Capacity,
    policy: String,
    /// None: writes go through.
    write_back: Option<WriteBack>,
    world: World<'a>,
    gets: RequestCounts,
    puts: RequestCounts,
    gets_us: Vec<u64>,
    puts_us: Vec<u64>,
    passed_by: u64,
    now_us: u64,
}

/// The clouds, and what the client knows of each object.
struct World<'a> {
    seed: u64,
    locations: &'a [Location],
    /// Of each location.
    drifts: Vec<DriftCourse>,
    cache: KeyedCache,
    traffic: Vec<Traffic>,
    objects: Vec<Known>,
    uploads: Uploads,
    downloads: Transfers,
    sizes: SizeCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Requests up to now; they number the transfers.
    requests: u32,
    bytes: u32,
    /// The last measured download; zero: none.
    latency_us: u32,
}

enum Why {
    OnDemand,
    Background,
    Through,
}

impl World<'_> {
    fn class(&self, object: u32) -> usize {
        object as usize % self.locations.len()
    }

    fn draw(&mut self, direction: Direction, object: u32, at_us: u64) -> u64 {
        let known = self.objects[object as usize];
        let transfer = Transfer {
            direction,
            object,
            number: known.requests,
            bytes: known.bytes,
        };
        let class = self.class(object);
        self.locations[class].draw_us(self.seed, transfer, self.drifts[class].factor(at_us))
    }

    fn download(&mut self, object: u32, at_us: u64) -> u64 {
        let us = self.draw(Direction::Download, object, at_us);
        let class = self.class(object);
        let known = &mut self.objects[object as usize];
        known.latency_us = us.min(u64::from(u32::MAX)) as u32;
        self.traffic[class].gets += 1;
        self.traffic[class].bytes_down += u64::from(known.bytes);
        self.downloads.objects += 1;
        self.downloads.bytes += u64::from(known.bytes);
        self.sizes.count(known.bytes);
        us
    }

    fn upload(&mut self, object: u32, why: Why, at_us: u64) -> u64 {
        let us = self.draw(Direction::Upload, object, at_us);
        let class = self.class(object);
        let bytes = u64::from(self.objects[object as usize].bytes);
        self.traffic[class].puts += 1;
        self.traffic[class].bytes_up += bytes;
        let count = match why {
            Why::OnDemand => &mut self.uploads.on_demand,
            Why::Background => &mut self.uploads.background,
            Why::Through => &mut self.uploads.through,
        };
        count.objects += 1;
        count.bytes += bytes;
        us
    }
}

impl Uploader for World<'_> {
    fn begin(&mut self, object: u32, at_us: u64) -> u64 {
        self.upload(object, Why::Background, at_us)
    }

    fn clean(&mut self, object: u32) {
        self.cache.clean(u64::from(object));
    }
}

impl<'a> Driver<'a> {
    pub fn new(job: &'a Job, workload: &'a Workload) -> Result<Self, Error> {
        if job.arrivals == Arrivals::Trace && !workload.has_times {
            return Err(Error::NoTimes);
        }
        let objects = workload.object_bytes.len();
        let all_bytes: u64 = workload.object_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
        let share = job.cache_share.map(|share| (share * all_bytes as f64) as u64);
        let capacity = Capacity {
            blocks: objects as u32,
            bytes: job.cache_bytes.or(share).unwrap_or(0).max(1),
        };
        let write_back = match job.write_mode {
            WriteMode::Through => None,
            WriteMode::Back {
                age_ms,
                period_ms,
                uploads_max,
            } => Some(WriteBack::new(age_ms, period_ms, uploads_max, objects)),
        };
        let world = World {
            seed: job.seed,
            locations: &job.locations,
            drifts: (0..)
                .zip(&job.locations)
                .map(|(number, location)| DriftCourse::new(location.drift, job.seed, number))
                .collect(),
            cache: KeyedCache::new(capacity, super::policy::build(job, capacity)?),
            traffic: vec![Traffic::default(); job.locations.len()],
            objects: vec![Known::default(); objects],
            uploads: Uploads::default(),
            downloads: Transfers::default(),
            sizes: SizeCounts::default(),
        };
        Ok(Self {
            workload,
            arrivals: job.arrivals,
            local: job.local,
            passes_large_objects: job.passes_large_objects,
            capacity,
            policy: job.policy.clone(),
            write_back,
            world,
            gets: RequestCounts::default(),
            puts: RequestCounts::default(),
            gets_us: Vec::new(),
            puts_us: Vec::new(),
            passed_by: 0,
            now_us: 0,
        })
    }

    pub fn run(mut self, progress: Progress<'_>) -> Result<Report, Error> {
        let total = self.workload.requests.len() as u64;
        let step = (total / 100).max(1);
        for (done, request) in self.workload.requests.iter().enumerate() {
            if (done as u64).is_multiple_of(step) {
                progress(done as u64, total)?;
            }
            self.request(request)?;
        }
        if let Some(write_back) = &mut self.write_back {
            write_back.finish(&mut self.world);
        }
        progress(total, total)?;
        Ok(self.report())
    }

    fn request(&mut self, request: &Request) -> Result<(), Error> {
        if self.arrivals == Arrivals::Trace {
            self.now_us = request.time_us;
        }
        if let Some(write_back) = &mut self.write_back {
            write_back.advance(self.now_us, &mut self.world);
        }
        let is_large = self.learn(request)?;
        let (is_hit, latency_us) = match (request.operation, is_large) {
            (_, true) => (false, self.pass_by(request)),
            (Operation::Get, false) => self.get(request.object),
            (Operation::Put, false) => self.put(request.object),
        };
        self.count(request, is_hit, latency_us);
        if self.arrivals == Arrivals::ClosedLoop {
            self.now_us += latency_us;
        }
        Ok(())
    }

    /// Takes in the object's size; says whether it exceeds the cache. The client's own changes that are not uploaded
    /// outweigh what a trace says of the original.
    fn learn(&mut self, request: &Request) -> Result<bool, Error> {
        let is_dirty = |write_back: &WriteBack| write_back.is_dirty(request.object);
        let is_dirty = self.write_back.as_ref().is_some_and(is_dirty);
        let known = &mut self.world.objects[request.object as usize];
        known.requests += 1;
        if request.operation == Operation::Put || !is_dirty {
            known.bytes = request.bytes;
        }
        let (bytes, cache_bytes) = (u64::from(known.bytes), self.capacity.bytes);
        if bytes > cache_bytes && !self.passes_large_objects {
            return Err(Error::ObjectExceedsCache {
                object: u64::from(request.object),
                bytes,
                cache_bytes,
            });
        }
        Ok(bytes > cache_bytes)
    }

    /// An object larger than the cache: what is there of it is outdated.
    fn pass_by(&mut self, request: &Request) -> u64 {
        self.passed_by += 1;
        self.world.cache.remove(u64::from(request.object));
        if let Some(write_back) = &mut self.write_back
            && write_back.is_dirty(request.object)
        {
            // The newer version goes up at once, and the older one need not.
            write_back.evict(request.object);
        }
        match request.operation {
            Operation::Get => self.world.download(request.object, self.now_us),
            Operation::Put => self.world.upload(request.object, Why::Through, self.now_us),
        }
    }

    fn get(&mut self, object: u32) -> (bool, u64) {
        let known = self.world.objects[object as usize];
        // What the download would take has to be known when the policy weighs the object.
        let latency_us = self.world.draw(Direction::Download, object, self.now_us);
        let arriving = Object {
            bytes: known.bytes,
            latency_us: latency_us.min(u64::from(u32::MAX)) as u32,
            ..self.described(object)
        };
        if self.world.cache.request(&arriving).is_hit {
            return (true, self.local_us(known.bytes));
        }
        let waited_us = self.make_way();
        (false, waited_us + self.world.download(object, self.now_us))
    }

    fn put(&mut self, object: u32) -> (bool, u64) {
        let bytes = self.world.objects[object as usize].bytes;
        let writes_back = self.write_back.is_some();
        let written = Object {
            is_write: writes_back,
            ..self.described(object)
        };
        let is_hit = self.world.cache.rewrite(&written).is_hit;
        let waited_us = self.make_way();
        let stored_us = match &mut self.write_back {
            Some(write_back) => {
                write_back.wrote(object);
                self.local_us(bytes)
            }
            None => self.world.upload(object, Why::Through, self.now_us),
        };
        (is_hit, waited_us + stored_us)
    }

    fn described(&self, object: u32) -> Object {
        let known = self.world.objects[object as usize];
        Object {
            bytes: known.bytes,
            cost_class: self.world.class(object) as u8,
            latency_us: known.latency_us,
            ..Object::block(u64::from(object))
        }
    }

    /// Uploads what was evicted dirty, one after another.
    fn make_way(&mut self) -> u64 {
        let evicted = self.world.cache.last_evicted().iter();
        let dirty: Vec<u32> = evicted
            .filter(|evicted| evicted.is_dirty)
            .map(|evicted| evicted.key as u32)
            .collect();
        let mut waited_us = 0;
        for object in dirty {
            let eviction = self.write_back.as_mut().map(|write_back| write_back.evict(object));
            waited_us += match eviction {
                Some(Eviction::WaitUs(us)) => {
                    self.world.uploads.waited_for += 1;
                    us
                }
                _ => self.world.upload(object, Why::OnDemand, self.now_us),
            };
        }
        waited_us
    }

    fn local_us(&self, bytes: u32) -> u64 {
        let transfer_ms = f64::from(bytes) / (1024.0 * 1024.0) / self.local.mib_per_s * 1e3;
        ((self.local.access_ms + transfer_ms) * 1e3) as u64
    }

    fn count(&mut self, request: &Request, is_hit: bool, latency_us: u64) {
        let (counts, latencies) = match request.operation {
            Operation::Get => (&mut self.gets, &mut self.gets_us),
            Operation::Put => (&mut self.puts, &mut self.puts_us),
        };
        latencies.push(latency_us);
        let bytes = u64::from(self.world.objects[request.object as usize].bytes);
        counts.requests += 1;
        counts.bytes += bytes;
        if is_hit {
            counts.hits += 1;
            counts.bytes_hit += bytes;
        } else {
            counts.misses += 1;
        }
    }

    fn report(self) -> Report {
        let seconds = self.now_us as f64 / 1e6;
        let mut holdings = vec![Holding::default(); self.world.locations.len()];
        for (object, bytes) in self.workload.object_bytes.iter().enumerate() {
            let holding = &mut holdings[self.world.class(object as u32)];
            holding.objects += 1;
            holding.bytes += u64::from(*bytes);
        }
        let places = self.world.locations.iter().zip(&self.world.traffic).zip(&holdings);
        let locations: Vec<_> = places
            .map(|((place, traffic), holding)| report::location(place, traffic, *holding, seconds))
            .collect();
        let all = |of: fn(&RequestCounts) -> u64| (of(&self.gets) + of(&self.puts)) as f64;
        Report {
            policy: self.policy,
            cache_bytes: self.capacity.bytes,
            objects: self.workload.object_bytes.len() as u64,
            object_bytes: holdings.iter().map(|holding| holding.bytes).sum(),
            gets: self.gets,
            puts: self.puts,
            hit_ratio: all(|counts| counts.hits) / all(|counts| counts.requests),
            byte_hit_ratio: all(|counts| counts.bytes_hit) / all(|counts| counts.bytes),
            passed_by: self.passed_by,
            latency_ms: report::latency(self.gets_us, self.puts_us),
            downloads: self.world.downloads,
            uploads: self.world.uploads,
            downloads_by_size: self.world.sizes.buckets(),
            dollars: report::total_dollars(&locations),
            locations,
            virtual_seconds: seconds,
            metadata_bytes: self.world.cache.policy().metadata_bytes() as u64,
        }
    }
}
