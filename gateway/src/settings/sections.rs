//! Every setting there is, but for those of the store. Comments are the text of docs/CONFIGURATION.md, together with the
//! reasons beside the defaults.

use super::ByteSize;
use super::policies::{DEFAULT_PREFETCH, DEFAULT_REPLACEMENT};
use super::section::{Field, Permitted, Section, section};
use super::value::{Usd, Value, choice};
use std::path::PathBuf;
use tombolo_base::Named;
use tombolo_billing::Table;
use tombolo_cache::Policy;
use tombolo_prefetch::{Combination, PolicyName};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const HOUR_MS: u64 = 3_600_000;

section! {
    /// Where this gateway lives on its machine.
    Directories "" {
        /// Cache file, journal, local metadata and fingerprint index, and what the NFS server must remember.
        /// One directory serves one gateway.
        state_directory: PathBuf = "/var/lib/tombolo".into(), Permitted::Words("an absolute path"),
            "The place for persistent state of a service (Filesystem Hierarchy Standard).";
        /// The sockets `nbd.sock`, `files.sock` and `admin.sock`, and what clients on this machine were answered
        /// (`generation-*`), which must outlive a stop. Made with mode 0700 if it does not exist.
        runtime_directory: PathBuf = "/run/tombolo".into(),
            Permitted::Words("an absolute path of at most 96 bytes"),
            "Emptied at boot, as sockets should be; the address of a socket holds 107 bytes at the most.";
    }
}

section! {
    /// The local cache: the working set, and what is not in the store yet.
    Cache "cache" {
        /// The cache file, taken in full at the first start.
        size: ByteSize = ByteSize(10 * GIB), Permitted::bytes(16 * MIB, 15 * TIB),
            "Fits a small machine's disk. Four of the largest objects must fit; slots are counted in 32 bits.";
        /// Which clean block makes room for another. `tombolo policy set` changes it while the gateway runs.
        replacement: Policy = DEFAULT_REPLACEMENT, Permitted::Names(Policy::WORDS),
            "2Q keeps apart what was read once; over eight traces reads with it and `graph` are 8 % shorter than with `lru`.";
        /// Whether `sarc` and `sarc-streams` keep room for what `amp` and `graph` prefetch for the streams that are read now,
        /// up to an eighth of the cache.
        sequential_floor: bool = false, Permitted::Words("`true` or `false`"),
            "SARC as published shares the cache by what hits are worth alone, and may evict a stream's blocks before they are read.";
    }
}

choice! {
    /// When a round of uploads begins.
    FlushIntervalRule {
        Fixed = "fixed",
        Stout = "stout",
    }
}

choice! {
    /// When a sync of journal and cache file begins.
    GroupCommitRule {
        Immediate = "immediate",
        Gather = "gather",
        Stout = "stout",
    }
}

section! {
    /// How written data reaches the store.
    Flush "flush" {
        /// Acknowledged data that is not in the store yet never exceeds this.
        dirty_bytes_max: Option<ByteSize> = None, Permitted::bytes(MIB, 15 * TIB),
            "Unset: half of the cache, so that the other half stays for reading. This much is lost with the local disk.";
        /// A dirty block waits at most this long for others before its upload begins.
        flush_delay_ms: u64 = 5_000, Permitted::numbers(0, HOUR_MS),
            "Long enough to fill objects and to absorb overwrites; it is the age of the bucket's copy when idle.";
        /// When so much waits, its upload begins at once, unless more than an eighth of what is written is replaced within
        /// `flush_delay_ms`.
        early_flush_bytes: ByteSize = ByteSize(16 * MIB), Permitted::bytes(MIB, 15 * TIB),
            "Four objects of the largest size: what is copied here is on its way while it is still being written, for no request more.";
        /// `fixed`: a round of uploads begins when a dirty block is `flush_delay_ms` old. `stout`: by intervals that follow the
        /// store's latencies (Stout, USENIX ATC'10), at most `flush_delay_ms`.
        interval: FlushIntervalRule = FlushIntervalRule::Fixed, Permitted::Words("`fixed` or `stout`"),
            "Stout shortens latencies, for which nobody waits, at the price of more puts (docs/decisions/0020-flow-control.md).";
        /// When the oldest change that the store does not know of is this old, the store is brought up to all that was acknowledged
        /// by then: data, names, everything. What is younger than that, and than its upload takes, is lost with the local disk.
        recovery_point_ms: u64 = 10_000, Permitted::numbers(100, HOUR_MS),
            "Two small puts each time, 2.6 $ a month if there are changes all the time; `status` says the age at any moment.";
        /// From this share of `dirty_bytes_max` on, in thousandths, writers are slowed.
        throttle_start_permille: u64 = 800, Permitted::numbers(0, 1_000),
            "The last fifth slows writers smoothly to the speed of the uploads instead of stopping them at the cap.";
        /// The delay of a write at the cap; it grows linearly from nothing.
        throttle_delay_ms_max: u64 = 50, Permitted::numbers(0, 1_000),
            "At 32 writes in flight still 640 per second; far below the timeouts of any client.";
        /// A write that waits at the cap longer than this, or a flush for a store that takes nothing meanwhile, is refused with
        /// "try again".
        stall_timeout_ms: u64 = 20_000, Permitted::numbers(1_000, 600_000),
            "Below the 30 s after which Linux and Windows initiators abort a command.";
    }
}

section! {
    /// The journal of acknowledged writes.
    Journal "journal" {
        /// Size of one journal file.
        segment_bytes: ByteSize = ByteSize(64 * MIB), Permitted::bytes(MIB, GIB),
            "Space comes back in these steps; small enough to allocate at once, large enough to be rare.";
        /// The metadata are brought up to the journal at least this often, while there are changes.
        checkpoint_interval_ms: u64 = 30_000, Permitted::numbers(1_000, HOUR_MS),
            "Bounds what a restart must replay.";
        /// ... and whenever this much journal has come together.
        checkpoint_journal_bytes: ByteSize = ByteSize(256 * MIB), Permitted::bytes(4 * MIB, 64 * GIB),
            "Some seconds of replay, and a bound for the memory that holds changes since the last checkpoint.";
        /// A restart never has to replay more records than this: a checkpoint begins at half of it, and changes wait when the
        /// other half is reached before it has ended.
        replay_records_max: u64 = 400_000, Permitted::numbers(1_000, 1 << 32),
            "A request is one record or a few; while they fit, nothing waits. Fewer mean more checkpoints under random writes.";
        /// ... and no longer than this, as the last replay of 10,000 records or more lets expect (45 us each before the first).
        replay_ms_max: u64 = 10_000, Permitted::numbers(100, HOUR_MS),
            "Clients and protocol servers ride out a restart of some seconds; `status` says what it would take now.";
        /// Journal of changes that the store does not know of yet. Changes wait when there is more, as when the store is away for
        /// long.
        unpublished_bytes_max: ByteSize = ByteSize(2 * GIB), Permitted::bytes(16 * MIB, TIB),
            "Twenty million writes of a block each, in the outage of a store; a restart reads it in some seconds.";
        /// The journal in the store is folded into the store's metadata tree after this long, or when it has 16 MiB.
        store_checkpoint_interval_ms: u64 = 60_000, Permitted::numbers(100, HOUR_MS),
            "A recovery reads a minute of journal at the most; two more puts a minute while there are changes, 0.43 $ a month.";
        /// When a sync begins that clients wait for. `immediate`: at once. `gather`: when those are back who were answered last, as
        /// many as usually come; no later than a sync takes, 4 ms at the most, and at once where one takes less than a millisecond.
        /// `stout`: by intervals that follow the disk's latencies (Stout, USENIX ATC'10).
        group_commit: GroupCommitRule = GroupCommitRule::Gather, Permitted::Words("`immediate`, `gather` or `stout`"),
            "Sixteen clients before syncs of 3 ms: 1.7 times as many as `immediate`; one alone never waits (docs/results/bench-group-commit.md).";
        /// Writes that no client asked to flush reach stable storage at least this often.
        sync_interval_ms: u64 = 1_000, Permitted::numbers(10, 60_000),
            "Loses at most a second of unflushed writes to a power failure, at one sync per second.";
    }
}

section! {
    /// Bounds on memory.
    Memory "memory" {
        /// Pages of the volume maps.
        map_cache_bytes: ByteSize = ByteSize(64 * MIB), Permitted::bytes(MIB, TIB),
            "Holds the maps of tens of GiB that are read at random; sequential reading needs far less.";
        /// Descriptors of objects, which say where a block lies in its object.
        descriptor_cache_bytes: ByteSize = ByteSize(64 * MIB), Permitted::bytes(MIB, TIB),
            "48 bytes a block: 5 GiB of data that are read from the store again and again.";
        /// Filters that spare the index a disk read for data never seen before.
        fingerprint_filter_bytes: ByteSize = ByteSize(128 * MIB), Permitted::bytes(0, TIB),
            "12 bits each for 89 million blocks (366 GB of unique data); beyond that precision is given up.";
        /// Page boundaries of the fingerprint index.
        fingerprint_fence_bytes: ByteSize = ByteSize(32 * MIB), Permitted::bytes(0, TIB),
            "Eight bytes per page of 102 entries: 428 million blocks (1.7 TB of unique data) at one read per lookup.";
        /// Fingerprints held in memory before they are written to the index.
        fingerprint_memtable_entries: u64 = (1 << 19) / 8 * 7, Permitted::numbers(1_024, 1 << 28),
            "Fills a hash table of 21 MiB exactly; more means fewer merges. Uploads wait for a checkpoint when they are used up.";
        /// Blocks that were hashed are kept in memory for their upload, up to so much; others are read again.
        upload_buffer_bytes_max: ByteSize = ByteSize(32 * MIB), Permitted::bytes(0, 64 * GIB),
            "What is hashed ahead of the uploads, a few of the largest objects.";
        /// Data of objects on their way to the store, and as much on its way from there.
        transfer_bytes_max: ByteSize = ByteSize(64 * MIB), Permitted::bytes(8 * MIB, 64 * GIB),
            "What fills five gigabits at 100 ms. What comes is in memory twice for a moment: as it came, and decoded.";
        /// Data of the requests of all clients together, NBD and files: of writes until answered, of reads until sent. One
        /// client holds at most a quarter of it; 128 KiB of each are its own and not counted. Who finds no room waits.
        payload_bytes_max: ByteSize = ByteSize(256 * MIB), Permitted::bytes(64 * MIB, TIB),
            "Eight requests of the greatest length, 32 MiB, or two thousand of 128 KiB.";
        /// A client that takes nothing of its answers for this long, or sends nothing of the data of a write, is
        /// disconnected: others may be waiting for the memory that it holds.
        client_timeout_ms: u64 = 30_000, Permitted::numbers(1_000, 3_600_000),
            "Local protocol servers take their answers at once; a client that was stopped for so long connects anew.";
        /// The most that local metadata may grow to. Address space and a sparse file, neither memory nor disk.
        metadata_map_bytes_max: ByteSize = ByteSize(TIB), Permitted::bytes(64 * MIB, 64 * TIB),
            "Larger than any metadata that fits this version's limits, and small in an address space of 128 TiB.";
    }
}

choice! {
    /// How blocks are compressed.
    CompressionAlgorithm {
        Zstd = "zstd",
        Off = "off",
    }
}

section! {
    /// Compression of blocks on their way to the store.
    Compression "compression" {
        /// A block that does not shrink is stored as it is.
        algorithm: CompressionAlgorithm = CompressionAlgorithm::Zstd, Permitted::Words("`zstd` or `off`"),
            "Pays in money and upload time for most data; `off` when all data is compressed or encrypted already.";
        /// Effort of the algorithm.
        level: u64 = 1, Permitted::numbers(1, 19),
            "The fastest; blocks of 4 KiB gain little from more.";
    }
}

choice! {
    /// What the prefetcher sees of a read.
    PrefetchAddressing {
        Logical = "logical",
        Pvbn = "pvbn",
        Both = "both",
    }
}

section! {
    /// Fetching ahead of readers. `tombolo policy set` changes all of it while the gateway runs.
    Prefetch "prefetch" {
        /// What is fetched before anybody asks.
        policy: PolicyName = DEFAULT_PREFETCH, Permitted::Names(PolicyName::WORDS),
            "With `lru` the shortest reads for the money on the traces measured (docs/decisions/0008-prefetch.md). `ramp` knows only streams, `amp` fetches least in vain.";
        /// One of the six pairs of the Tombolo paper, in place of `[cache] replacement` and `policy`.
        combination: Option<Combination> = None, Permitted::Names(Combination::WORDS),
            "Unset: the two keys decide.";
        /// Whether patterns are looked for among places in volumes and files, or among blocks as they were written; `both`: streams in
        /// the order of writing for reads that follow none by place, forwards and backwards, and strides.
        addressing: Option<PrefetchAddressing> = None, Permitted::Words("`logical`, `pvbn` or `both`"),
            "Unset: `both` with the policy `graph`, so that small files written one after the other are a stream; `logical` with others and with `combination`. A place keeps its history when it is overwritten; with `pvbn` clones and duplicates share theirs.";
        /// How far ahead of one reader, at the most (`ramp`, `amp`, `graph`, `linux`).
        window_bytes_max: Option<ByteSize> = None, Permitted::bytes(256 * KIB, GIB),
            "Unset: 64 MiB, at most an eighth of the cache. A window grows while its reader waits; at 100 ms this lets one take 640 MB/s.";
        /// How much at once (`seq`).
        degree_bytes: ByteSize = ByteSize(256 * KIB), Permitted::bytes(4 * KIB, GIB),
            "One object: more is another request.";
        /// What a reader who jumps is expected to want next must be this likely when it had to wait (`graph`).
        graph_threshold_miss_permille: u64 = 700, Permitted::numbers(1, 1_000),
            "At 100 reads were 9 % shorter and the bill twice as high.";
        /// ... and this likely when it did not (`graph`).
        graph_threshold_hit_permille: u64 = 850, Permitted::numbers(1, 1_000),
            "There is no hurry then, so only what is quite likely is fetched.";
        /// Fetches of `graph` are rounded to this: a power of two.
        graph_track_bytes: ByteSize = ByteSize(64 * KIB), Permitted::bytes(4 * KIB, 256 * KIB),
            "The latency of a request hardly depends on its size below this; an object has at most the upper bound.";
        /// Memory for the history (`graph`).
        graph_memory_bytes_max: ByteSize = ByteSize(256 * MIB), Permitted::bytes(16 * MIB, TIB),
            "What is oldest is forgotten beyond it.";
        /// What was not seen again for this long up to twice as long is forgotten (`graph`).
        graph_forget_hours: u64 = 84, Permitted::numbers(1, 8_760),
            "Half a week to a week: patterns of working days come back within it.";
        /// What a second that a reader waits is worth, in millionths of a dollar: a prefetch must save more than it costs.
        wait_microdollars_per_second: Option<u64> = None, Permitted::numbers(0, 1_000_000_000),
            "Unset: prefetch whatever the price. 100 means that 100 ms saved for certain are worth 10 blocks' egress from S3. Prices: `[prices]`.";
    }
}

section! {
    /// What the store charges: for the bill in `tombolo status`, and for policies that weigh money.
    Prices "prices" {
        /// A shipped table of list prices; `tombolo prices` shows each with its date and source.
        table: Table = Table::AwsS3Standard, Permitted::Names(Table::WORDS),
            "The most common store. It decides nothing about data: only what is shown, and what prefetch and replacement by price weigh. `free` for a store of one's own.";
        /// A file with one's own prices, in place of the table; `tombolo prices TABLE` prints one to begin with.
        file: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: the table. Contracts, other regions and large amounts have other prices.";
        /// What a calendar month may cost, in US dollars. At 50, 80 and 100 % of it the forecast is warned of in the log.
        budget_usd_per_month: Option<Usd> = None, Permitted::Words("an amount from 0 to 1000000000"),
            "Unset: nothing is compared. It is a warning, not a limit: nothing is refused for it.";
    }
}

section! {
    /// The NBD server.
    Nbd "nbd" {
        /// Clients at the same time; further ones are turned away.
        connections_max: u64 = 256, Permitted::numbers(1, 4_096),
            "A connection is one or two threads and its requests in flight.";
        /// Requests in flight of one connection; further ones wait unread.
        requests_in_flight_max: u64 = 256, Permitted::numbers(1, 4_096),
            "Twice what the NBD client of Linux or one iSCSI session keeps in flight.";
    }
}

section! {
    /// The file service, which mounts and the NFS server talk to.
    Files "files" {
        /// How long a client that went away may come back to its locks and open files; then they are given up.
        session_grace_ms: u64 = 90_000, Permitted::numbers(5_000, HOUR_MS),
            "The grace period of NFS servers; others wait this long for locks of a client that never returns.";
        /// How long clients may take names and attributes for granted without asking. Changes are announced besides.
        attribute_timeout_ms: u64 = 1_000, Permitted::numbers(0, 60_000),
            "What FUSE file systems commonly use; it bounds what a lost announcement can hide. 0 asks every time, at a cost.";
        /// Connections at the same time, each descriptor of a mount counting as one; further ones are turned away.
        connections_max: u64 = 256, Permitted::numbers(1, 4_096),
            "A connection is a thread and its requests in flight.";
        /// Requests in flight of one connection; further ones wait unread.
        requests_in_flight_max: u64 = 128, Permitted::numbers(1, 4_096),
            "At a megabyte each this bounds the memory of one connection to 128 MiB.";
        /// Threads for requests that wait: for locks, for room under the cap, for the store.
        threads: u64 = 16, Permitted::numbers(1, 256),
            "As many as downloads at the same time; a request that waits for nothing needs none of them.";
    }
}

section! {
    /// Prometheus over TCP. `/metrics` on the admin socket is always there.
    Metrics "metrics" {
        /// `ADDRESS:PORT` to serve `/metrics` on; empty for none.
        listen: String = "127.0.0.1:9464".into(), Permitted::Words("`ADDRESS:PORT` or empty"),
            "Loopback, because the text is neither encrypted nor authenticated; 9464 is the usual exporter port.";
        /// Permits an address that other machines can reach.
        allow_remote: bool = false, Permitted::Words("`true` or `false`"),
            "Names of volumes and rates of work would be open to the network, so it must be asked for.";
    }
}

section! {
    /// Threads for work that waits or computes.
    Threads "threads" {
        /// Threads that wait for disks.
        io: u64 = 8, Permitted::numbers(1, 256),
            "Keeps a local SSD busy when reads miss the page cache.";
        /// Threads that hash, compress and verify.
        hash: u64 = 2, Permitted::numbers(1, 256),
            "Each does several hundred MB/s, more than most uplinks take; they run at a low priority.";
    }
}

choice! {
    /// The least important messages that are still written.
    LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

choice! {
    /// How messages look.
    LogFormat {
        Text = "text",
        Json = "json",
    }
}

section! {
    /// Messages on standard error.
    Log "log" {
        /// The least important messages that are still written.
        level: LogLevel = LogLevel::Info, Permitted::Words("`error`, `warn`, `info`, `debug` or `trace`"),
            "Starts, stops and whatever an operator may have to act on; nothing per request.";
        /// `text` for people, `json` for collectors, one object per line.
        format: LogFormat = LogFormat::Text, Permitted::Words("`text` or `json`"),
            "The system journal is read by people first.";
    }
}
