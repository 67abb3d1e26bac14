//! The disk and the cloud as queues with latencies.

use super::error::Error;
use super::job;
use super::latency::{RequestLatency, Stream, Table, unit};
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A GET as a store sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetRequest {
    /// The object's name: its first PVBN.
    pub object: u64,
    /// Where in the object.
    pub offset_bytes: u64,
    /// How much of it.
    pub bytes: u64,
    /// A client waits for it.
    pub demand: bool,
}

/// A PUT as a store sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRequest {
    /// The object's name: its first PVBN.
    pub object: u64,
    /// Its size.
    pub bytes: u64,
}

/// A store behind the latencies: it does the work and says how many milliseconds it took, or nothing, and then the
/// latency comes from the tables.
pub trait Store {
    /// # Errors
    /// A text for people; the replay ends.
    fn get(&mut self, request: &GetRequest) -> Result<Option<f64>, String>;
    /// # Errors
    /// A text for people; the replay ends.
    fn put(&mut self, request: &PutRequest) -> Result<Option<f64>, String>;
}

/// A number of servers that take operations in order of arrival.
#[derive(Debug)]
pub struct DiskQueue {
    read: Table,
    write: Table,
    seed: u64,
    /// When each server is free.
    servers: BinaryHeap<Reverse<u64>>,
    is_instant: bool,
}

impl DiskQueue {
    pub fn new(disk: &job::Disk, seed: u64) -> Result<Self, Error> {
        let read = Table::of(&disk.read_ms, "disk.read_ms")?;
        let write = Table::of(&disk.write_ms, "disk.write_ms")?;
        if !(1..=4096).contains(&disk.queue_depth) {
            let reason = "1 to 4096 operations".into();
            let field = "disk.queue_depth";
            return Err(Error::Job { field, reason });
        }
        Ok(Self {
            is_instant: read.is_zero() && write.is_zero(),
            read,
            write,
            seed,
            servers: (0..disk.queue_depth).map(|_| Reverse(0)).collect(),
        })
    }

    /// When an operation that is asked for now is done. `what` and `part` name it for the draw.
    pub fn done_at(&mut self, now: u64, stream: Stream, what: u64, part: u64) -> u64 {
        if self.is_instant {
            return now;
        }
        let table = match stream {
            Stream::DiskRead => &self.read,
            _ => &self.write,
        };
        let micros = table.at(unit(self.seed, stream, what, part)) as u64;
        let free = self.servers.pop().map_or(0, |Reverse(free)| free);
        let done = now.max(free) + micros;
        self.servers.push(Reverse(done));
        done
    }
}

/// The cloud's latencies. How many requests are under way is the core's affair: its lanes are the cloud's.
#[derive(Debug)]
pub struct CloudLatency {
    get: RequestLatency,
    put: RequestLatency,
    micros_fixed: f64,
    seed: u64,
    gets_under_way: u32,
    puts_under_way: u32,
    /// GETs so far, by object.
    attempts: HashMap<u64, u32>,
}

impl CloudLatency {
    pub fn new(cloud: &job::Cloud, seed: u64) -> Result<Self, Error> {
        for (field, value) in [("cloud.ms_per_mib", cloud.ms_per_mib), ("cloud.rtt_ms", cloud.rtt_ms)] {
            if !(0.0..=3_600_000.0).contains(&value) {
                let reason = "0 to 3600000 ms".into();
                return Err(Error::Job { field, reason });
            }
        }
        if !(1..=65_536).contains(&cloud.parallel_requests) {
            let field = "cloud.parallel_requests";
            let reason = "1 to 65536 requests".into();
            return Err(Error::Job { field, reason });
        }
        let micros_per_byte = cloud.ms_per_mib * 1_000.0 / f64::from(1 << 20);
        Ok(Self {
            get: RequestLatency::of(&cloud.get_ms, micros_per_byte, "cloud.get_ms")?,
            put: RequestLatency::of(&cloud.put_ms, micros_per_byte, "cloud.put_ms")?,
            micros_fixed: cloud.rtt_ms * 1_000.0,
            seed,
            gets_under_way: 0,
            puts_under_way: 0,
            attempts: HashMap::new(),
        })
    }

    /// How long a GET takes that begins now; [`CloudLatency::got`] ends it.
    pub fn get_micros(&mut self, request: &GetRequest, store: Option<&mut dyn Store>) -> Result<u64, Error> {
        let told = store.map(|store| told(store.get(request))).transpose()?.flatten();
        self.gets_under_way += 1;
        let attempt = self.attempts.entry(request.object).or_insert(0);
        *attempt += 1;
        let drawn = unit(self.seed, Stream::Get, request.object, u64::from(*attempt));
        let micros = self.micros_fixed + self.get.at(drawn, request.bytes, self.gets_under_way);
        Ok(told.unwrap_or(micros as u64))
    }

    /// How long a PUT takes that begins now; [`CloudLatency::has_put`] ends it.
    pub fn put_micros(&mut self, request: &PutRequest, store: Option<&mut dyn Store>) -> Result<u64, Error> {
        let told = store.map(|store| told(store.put(request))).transpose()?.flatten();
        self.puts_under_way += 1;
        let drawn = unit(self.seed, Stream::Put, request.object, 0);
        let micros = self.micros_fixed + self.put.at(drawn, request.bytes, self.puts_under_way);
        Ok(told.unwrap_or(micros as u64))
    }

    /// A GET is over.
    pub fn got(&mut self) {
        self.gets_under_way -= 1;
    }

    /// A PUT is over.
    pub fn has_put(&mut self) {
        self.puts_under_way -= 1;
    }
}

fn told(result: Result<Option<f64>, String>) -> Result<Option<u64>, Error> {
    match result {
        Ok(None) => Ok(None),
        Ok(Some(ms)) if (0.0..=86_400_000.0).contains(&ms) => Ok(Some((ms * 1_000.0) as u64)),
        Ok(Some(ms)) => Err(Error::Store(format!("it says that a request took {ms} ms"))),
        Err(reason) => Err(Error::Store(reason)),
    }
}
