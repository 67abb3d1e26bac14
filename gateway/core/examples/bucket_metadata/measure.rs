//! What is measured, and how it is printed.

use crate::codec::RecordCodec;
use crate::references::References;
use crate::store::{Store, Traffic};
use crate::structure::{Read, Structure};
use crate::workload::{Changes, Workload};
use crate::{Candidate, ChangesArguments, Failure, SegmentShape, SnapshotsArguments};
use serde_json::Value;
use std::time::Instant;
use tombolo_base::Prng;
use tombolo_billing::Prices;

const S3: Prices = tombolo_billing::Table::AwsS3Standard.prices();
const PUT_DOLLARS: f64 = S3.put_usd_per_1000 / 1000.0;
const GET_DOLLARS: f64 = S3.get_usd_per_1000 / 1000.0;
const GIGABYTE_MONTH_DOLLARS: f64 = S3.storage_usd_per_gib_month;
const MILLION: f64 = 1e6;
const COLD_READS: u64 = 200;

/// Rows under a head that is printed when it changes.
pub struct Table {
    json: bool,
    head: Vec<String>,
}

/// Cells by their heads, in the order of the columns.
#[derive(Default)]
struct Row(Vec<(String, Value)>);

impl Row {
    fn insert(&mut self, head: impl Into<String>, cell: Value) {
        self.0.push((head.into(), cell));
    }
}

impl Table {
    pub fn new(json: bool) -> Self {
        Self { json, head: Vec::new() }
    }

    fn print(&mut self, row: Row) {
        if self.json {
            println!("{}", Value::Object(row.0.into_iter().collect()));
            return;
        }
        let head: Vec<String> = row.0.iter().map(|(head, _)| head.clone()).collect();
        if head != self.head {
            println!("\n| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
            self.head = head;
        }
        let cells = row.0.iter().map(|(_, value)| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn rounded(number: f64) -> Value {
    let digits = if number.abs() < 0.01 {
        1e6
    } else if number.abs() < 10.0 {
        100.0
    } else {
        1.0
    };
    let number = (number * digits).round() / digits;
    if digits == 1.0 {
        (number as u64).into()
    } else {
        number.into()
    }
}

/// Processor time of this thread, which does everything here.
fn processor_seconds() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split_whitespace().next().ok_or("no processor time")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Checkpoints of one structure, with what they cost.
struct Run {
    store: Store,
    structure: Box<dyn Structure>,
    changes: Changes,
    epoch: u32,
    processor_seconds: f64,
    wall_seconds: f64,
}

impl Run {
    fn new(
        candidate: Candidate,
        workload: Workload,
        blocks: u64,
        codec: RecordCodec,
        shape: SegmentShape,
        seed: u64,
    ) -> Result<Self, Failure> {
        let mut store = Store::new(candidate.cleans())?;
        let structure = candidate.load(&mut store, codec, shape, workload.initial(blocks, seed))?;
        store.checkpoint(0);
        Ok(Self {
            store,
            structure,
            changes: Changes::new(workload, blocks, seed),
            epoch: 0,
            processor_seconds: 0.0,
            wall_seconds: 0.0,
        })
    }

    fn checkpoint(&mut self, changed: u64) -> Result<(), Failure> {
        let records = self.changes.next(changed);
        self.epoch += 1;
        let (processor, wall) = (processor_seconds()?, Instant::now());
        self.structure.checkpoint(&mut self.store, self.epoch, records)?;
        self.processor_seconds += processor_seconds()? - processor;
        self.wall_seconds += wall.elapsed().as_secs_f64();
        Ok(())
    }

    fn forget_costs(&mut self) {
        self.store.traffic = Traffic::default();
        self.processor_seconds = 0.0;
        self.wall_seconds = 0.0;
    }

    /// The mean of many cold reads.
    fn cold_read(&self, snapshot: Option<u32>, blocks: u64, seed: u64) -> Result<[f64; 3], Failure> {
        let mut prng = Prng::new(seed);
        let mut sum = Read::default();
        for _ in 0..COLD_READS {
            let read = self.structure.read(&self.store, snapshot, prng.below(blocks))?;
            read.value.ok_or("a mapped block is not found")?;
            sum.round_trips += read.round_trips;
            sum.gets += read.gets;
            sum.bytes += read.bytes;
        }
        Ok([sum.round_trips, sum.gets, sum.bytes].map(|number| number as f64 / COLD_READS as f64))
    }
}

pub fn changes(
    candidates: &[Candidate],
    arguments: &ChangesArguments,
    seed: u64,
    table: &mut Table,
) -> Result<(), Failure> {
    for &workload in &arguments.workload {
        for &blocks in &arguments.blocks {
            for &interval in &arguments.interval {
                for &candidate in candidates {
                    table.print(changes_row(candidate, workload, blocks, interval, arguments, seed)?);
                }
            }
        }
    }
    Ok(())
}

fn changes_row(
    candidate: Candidate,
    workload: Workload,
    blocks: u64,
    interval: u64,
    arguments: &ChangesArguments,
    seed: u64,
) -> Result<Row, Failure> {
    let mut run = Run::new(
        candidate,
        workload,
        blocks,
        RecordCodec::default(),
        arguments.shape,
        seed,
    )?;
    let fresh_bytes = run.store.live_bytes();
    let a_checkpoint = arguments.rate.unwrap_or(workload.rate()) * interval;
    let cycle = if candidate.postpones() {
        blocks.min(arguments.cycle_max)
    } else {
        0
    };
    let mut warmed = 0;
    while warmed < cycle.max(2 * a_checkpoint) && run.store.traffic.put_bytes < 2 * arguments.put_bytes_max {
        run.checkpoint(a_checkpoint)?;
        warmed += a_checkpoint;
    }
    run.forget_costs();
    let mut changed = 0;
    let mut checkpoints = 0;
    while changed < cycle.max(MILLION as u64) && run.store.traffic.put_bytes < arguments.put_bytes_max {
        run.checkpoint(a_checkpoint)?;
        changed += a_checkpoint;
        checkpoints += 1;
    }
    let per_million = |number: f64| number * MILLION / changed as f64;
    let traffic = run.store.traffic;
    let [round_trips, gets, bytes] = run.cold_read(None, blocks, seed)?;
    let mut row = Row::default();
    row.insert("workload", workload.name().into());
    row.insert("blocks", blocks.into());
    row.insert("interval s", interval.into());
    row.insert("candidate", candidate.name().into());
    row.insert("MB put", rounded(per_million(traffic.put_bytes as f64) / 1e6));
    row.insert(
        "amplification",
        rounded(traffic.put_bytes as f64 / workload.raw_bytes(changed) as f64),
    );
    row.insert(
        "of it cleaning %",
        rounded(100.0 * traffic.cleaning_bytes as f64 / traffic.put_bytes as f64),
    );
    row.insert("PUTs", rounded(per_million(traffic.puts as f64)));
    row.insert("$", rounded(per_million(traffic.puts as f64 * PUT_DOLLARS)));
    row.insert("cpu s", rounded(per_million(run.processor_seconds)));
    row.insert("wall s", rounded(per_million(run.wall_seconds)));
    let per_million_blocks = |bytes: u64| rounded(bytes as f64 / blocks as f64);
    row.insert("MB/10^6 fresh", per_million_blocks(fresh_bytes));
    row.insert("MB/10^6 live", per_million_blocks(run.store.live_bytes()));
    row.insert("MB/10^6 stored", per_million_blocks(run.store.stored_bytes()));
    row.insert("shape", run.structure.shape().into());
    row.insert("read round trips", rounded(round_trips));
    row.insert("read GETs", rounded(gets));
    row.insert("read KB", rounded(bytes / 1e3));
    row.insert("$/10^6 cold reads", rounded(gets * MILLION * GET_DOLLARS));
    row.insert(
        "$/month",
        rounded(run.store.stored_bytes() as f64 / 1e9 * GIGABYTE_MONTH_DOLLARS),
    );
    row.insert("checkpoints", Value::from(checkpoints));
    Ok(row)
}

pub fn snapshots(
    candidates: &[Candidate],
    arguments: &SnapshotsArguments,
    seed: u64,
    table: &mut Table,
) -> Result<(), Failure> {
    for &candidate in candidates {
        let row = snapshots_row(candidate, arguments, seed)?;
        table.print(row);
    }
    Ok(())
}

fn snapshots_row(candidate: Candidate, arguments: &SnapshotsArguments, seed: u64) -> Result<Row, Failure> {
    let codec = RecordCodec {
        payload_bytes: 0,
        has_versions: candidate.has_versions(),
    };
    let mut run = Run::new(
        candidate,
        Workload::Random,
        arguments.blocks,
        codec,
        arguments.shape,
        seed,
    )?;
    let mut references = References::new(arguments.blocks);
    let before = run.store.live_bytes();
    let mut listed_bytes = 0;
    for epoch in 1..=arguments.snapshots {
        let records = run.changes.next(arguments.changes);
        for record in &records {
            references.map(record.start, record.value, None);
        }
        run.epoch = epoch;
        let processor = processor_seconds()?;
        run.structure.checkpoint(&mut run.store, epoch, records)?;
        run.processor_seconds += processor_seconds()? - processor;
        run.structure.snapshot(epoch);
        listed_bytes += references.take_listed_bytes();
        references.snapshot(epoch, run.changes.next_pvbn());
    }
    let changed = arguments.changes * u64::from(arguments.snapshots);
    let newest = run.cold_read(Some(arguments.snapshots), arguments.blocks, seed)?;
    let oldest = run.cold_read(Some(1), arguments.blocks, seed)?;
    let mut row = Row::default();
    row.insert("candidate", candidate.name().into());
    row.insert("MB before", rounded(before as f64 / 1e6));
    row.insert("MB with all", rounded(run.store.live_bytes() as f64 / 1e6));
    row.insert("MB stored", rounded(run.store.stored_bytes() as f64 / 1e6));
    row.insert(
        "B/change",
        rounded((run.store.live_bytes() - before) as f64 / changed as f64),
    );
    row.insert(
        "B/change of PVBNs' dead lists",
        rounded(listed_bytes as f64 / changed as f64),
    );
    row.insert(
        "$/month",
        rounded(run.store.stored_bytes() as f64 / 1e9 * GIGABYTE_MONTH_DOLLARS),
    );
    row.insert(
        "cpu s per 10^6",
        rounded(run.processor_seconds * MILLION / changed as f64),
    );
    for (name, [round_trips, gets, bytes]) in [("newest", newest), ("oldest", oldest)] {
        let text = format!("{round_trips:.1} / {gets:.1} / {:.0}", bytes / 1e3);
        row.insert(format!("{name}: trips / GETs / KB"), text.into());
    }
    references.take_freed();
    delete_middle(&mut run, &mut references, arguments.snapshots / 2, &mut row)?;
    let put = run.store.traffic.put_bytes;
    // As a schedule thins them out: an hour's last is kept; then none.
    let (kept, mut gone): (Vec<u32>, Vec<u32>) = (1..=arguments.snapshots).partition(|epoch| epoch % 60 == 0);
    gone.retain(|&epoch| epoch != arguments.snapshots / 2);
    for (name, victims) in [("each 60th kept", &gone), ("none kept", &kept)] {
        let started = Instant::now();
        for &epoch in victims {
            run.structure.delete_snapshot(&mut run.store, epoch)?;
            references.delete_snapshot(epoch);
        }
        let seconds = started.elapsed().as_secs_f64();
        run.structure.merge_everything(&mut run.store)?;
        run.store.checkpoint(0);
        row.insert(format!("{name}: MB"), rounded(run.store.live_bytes() as f64 / 1e6));
        row.insert(format!("{name}: s"), rounded(seconds));
    }
    row.insert(
        "MB put by merges for it",
        rounded((run.store.traffic.put_bytes - put) as f64 / 1e6),
    );
    let reachable = run.structure.reachable(&run.store)?;
    row.insert("exact", (reachable == run.store.live_nodes()).into());
    Ok(row)
}

fn delete_middle(run: &mut Run, references: &mut References, victim: u32, row: &mut Row) -> Result<(), Failure> {
    let (nodes, live) = (run.store.live_nodes(), run.store.live_bytes());
    let started = Instant::now();
    let deleted = run.structure.delete_snapshot(&mut run.store, victim)?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let (lives, lists) = references.delete_snapshot(victim);
    let kilobytes = (live - run.store.live_bytes()) as f64 / 1e3;
    let text = format!(
        "{} of {nodes}, {kilobytes:.0} KB, {} lists, {milliseconds:.2} ms",
        deleted.nodes, deleted.steps
    );
    row.insert("middle: nodes freed", text.into());
    row.insert("middle: PVBNs freed", format!("{lives} from {lists} lists").into());
    Ok(())
}

/// What else is in the structure: what it is, bytes of a value, and how its keys change.
const PAYLOADS: [(&str, usize, bool); 3] = [
    ("entries, 100 B, random updates", 100, true),
    ("descriptors, 3,100 B, appended", 3_100, false),
    ("object records, 200 B, appended", 200, false),
];

pub fn payloads(candidates: &[Candidate], keys: u64, seed: u64, table: &mut Table) -> Result<(), Failure> {
    for (name, payload_bytes, is_random) in PAYLOADS {
        for &candidate in candidates {
            for interval in [5, 60, 600] {
                table.print(payloads_row(
                    candidate,
                    name,
                    payload_bytes,
                    is_random,
                    keys,
                    interval,
                    seed,
                )?);
            }
        }
    }
    Ok(())
}

fn payloads_row(
    candidate: Candidate,
    name: &str,
    payload_bytes: usize,
    is_random: bool,
    keys: u64,
    interval: u64,
    seed: u64,
) -> Result<Row, Failure> {
    /// Entries changed a second.
    const ENTRY_RATE: u64 = 1_000;
    /// Objects of 64 blocks a second, of 10,000 changed blocks.
    const OBJECT_RATE: u64 = 10_000 / 64;
    let codec = RecordCodec {
        payload_bytes,
        has_versions: false,
    };
    // As many descriptors as a million blocks need.
    let keys = if is_random { keys } else { keys / 64 };
    let mut run = Run::new(candidate, Workload::Random, keys, codec, SegmentShape::default(), seed)?;
    let rate = if is_random { ENTRY_RATE } else { OBJECT_RATE };
    let a_checkpoint = rate * interval;
    let mut next_key = keys;
    let mut changed = 0;
    let mut warmed = false;
    while changed < keys || !warmed {
        if changed >= keys || (!is_random && !warmed) {
            warmed = true;
            changed = 0;
            run.forget_costs();
        }
        if is_random {
            run.checkpoint(a_checkpoint)?;
        } else {
            run.append(&mut next_key, a_checkpoint)?;
        }
        changed += a_checkpoint;
    }
    let traffic = run.store.traffic;
    let per_million = |number: f64| number * MILLION / changed as f64;
    let mut row = Row::default();
    row.insert("records", name.into());
    row.insert("candidate", candidate.name().into());
    row.insert("interval s", interval.into());
    row.insert(
        "MB put per 10^6 records",
        rounded(per_million(traffic.put_bytes as f64) / 1e6),
    );
    let raw = changed * (8 + payload_bytes as u64);
    row.insert("amplification", rounded(traffic.put_bytes as f64 / raw as f64));
    row.insert("PUTs", rounded(per_million(traffic.puts as f64)));
    row.insert("cpu s", rounded(per_million(run.processor_seconds)));
    Ok(row)
}

impl Run {
    /// Records behind all that there are, as descriptors come.
    fn append(&mut self, next_key: &mut u64, count: u64) -> Result<(), Failure> {
        let records = (*next_key..*next_key + count).map(|key| crate::codec::Record {
            start: 64 * key,
            value: key,
            length: 1,
            version: 0,
        });
        let records: Vec<_> = records.collect();
        *next_key += count;
        self.epoch += 1;
        let processor = processor_seconds()?;
        self.structure.checkpoint(&mut self.store, self.epoch, records)?;
        self.processor_seconds += processor_seconds()? - processor;
        Ok(())
    }
}
