//! From settings to the parts of a gateway.

use crate::frontends::fuse::ShareOptions;
use crate::measured::{Lanes, Measured};
use crate::runtime::{Options, ReplicaSettings, ReplicaStore, WriterOptions};
use crate::settings::{CompressionAlgorithm, FlushIntervalRule, GroupCommitRule, Settings, SingleWriter};
use std::sync::Arc;
use std::time::Duration;
use tombolo_base::BLOCK_BYTES;
use tombolo_billing::{Prices, UNITS_PER_DOLLAR, UnitPrices};
use tombolo_cloud_driver::object::Compression;
use tombolo_cloud_driver::retry::RetryPolicy;
use tombolo_cloud_driver::{Pace, ReadPrice, StoreError, StoreSettings, StoreUrl, open_store, with_room_for_demand};
use tombolo_core::{Config, FlushInterval};
use tombolo_flow_control::concurrency::Parameters;
use tombolo_flow_control::{deadline, group_commit};
use tombolo_fuse::protocol::TRANSFER_BYTES_MAX;
use tombolo_transport::Budget;

/// # Errors
/// When the URL or the credentials of a store cannot be used.
pub fn options(settings: &Settings) -> Result<Options, StoreError> {
    options_of_known(settings, &[])
}

/// What files say of a store.
#[derive(Clone, Debug)]
pub struct Known {
    pub prices: Prices,
    pub measured: Option<Measured>,
}

/// `known` of the store, then of each replica; without it all cost the same, and it is found out what they are like.
pub fn options_of_known(settings: &Settings, known: &[Known]) -> Result<Options, StoreError> {
    let core = core_config(settings);
    let url: StoreUrl = settings.store.url.parse()?;
    Ok(Options {
        state_directory: settings.directories.state_directory.clone(),
        runtime_directory: settings.directories.runtime_directory.clone(),
        // Who serves sets the prices.
        policies: settings.policies(UnitPrices::default()),
        index: tombolo_dedup::Config {
            memtable_entries_max: settings.memory.fingerprint_memtable_entries as usize,
            filter_bytes_max: settings.memory.fingerprint_filter_bytes.0,
            fence_bytes_max: settings.memory.fingerprint_fence_bytes.0,
            ..tombolo_dedup::Config::default()
        },
        metadata_map_bytes: settings.memory.metadata_map_bytes_max.0,
        store: open_store(&url, &driver_settings(settings))?,
        warm_connections: warm_connections(&url, settings),
        replicas: replicas(settings, known)?,
        accept_foreign_store: settings.store.accept_foreign,
        accept_loss: false,
        retry: retry_policy(settings),
        pace: pace(
            measured_of(known, 0),
            &url,
            settings,
            settings.store.downloads_in_flight_max,
            settings.store.uploads_in_flight_max,
        ),
        compression: match settings.compression.algorithm {
            CompressionAlgorithm::Off => Compression::Off,
            CompressionAlgorithm::Zstd => Compression::Zstd {
                level: settings.compression.level as i32,
            },
        },
        encryption: settings.store.encryption_options(&settings.directories.state_directory),
        writer: WriterOptions {
            lease_ms: settings.store.lease_ms as u32,
            checkpoint_interval: Duration::from_millis(settings.journal.store_checkpoint_interval_ms),
            roots_kept: settings.store.roots_kept as usize,
            kept_root_interval: Duration::from_millis(settings.store.kept_root_interval_ms),
            removal_delay: Duration::from_millis(settings.store.removal_delay_ms),
            is_trusted: settings.store.single_writer == SingleWriter::Trusted,
        },
        read_only: false,
        io_threads: settings.threads.io as usize,
        hash_threads: settings.threads.hash as usize,
        upload_buffer_bytes_max: settings.memory.upload_buffer_bytes_max.0 as usize,
        core,
    })
}

pub fn share_options(settings: &Settings) -> ShareOptions {
    ShareOptions {
        session_grace: Duration::from_millis(settings.files.session_grace_ms),
        attribute_timeout: Duration::from_millis(settings.files.attribute_timeout_ms),
        write_bytes_max: write_bytes_max(settings, TRANSFER_BYTES_MAX),
    }
}

/// The longest write to tell clients of, no more than `most`. All blocks that it touches must find room under the cap of
/// dirty data at once, and one that is ragged at both ends touches one more than it is long. A power of two, as NBD asks
/// for.
fn write_bytes_max(settings: &Settings, most: u32) -> u32 {
    let room_bytes = u64::from(blocks(settings.dirty_bytes_max().0)).saturating_sub(1) * BLOCK_BYTES as u64;
    let power = 1_u64 << room_bytes.max(BLOCK_BYTES as u64).ilog2();
    u32::try_from(power).map_or(most, |power: u32| power.min(most))
}

/// What one client may hold: a quarter, so that no single one holds all.
fn bytes_in_flight_max(settings: &Settings, default: usize) -> usize {
    default.min(settings.memory.payload_bytes_max.0 as usize / 4)
}

pub fn block_server_config(
    settings: &Settings,
    budget: &Arc<Budget>,
    shutdown_timeout: Duration,
) -> tombolo_nbd::ServerConfig {
    let default = tombolo_nbd::ServerConfig::default();
    tombolo_nbd::ServerConfig {
        connections_max: settings.nbd.connections_max as usize,
        requests_in_flight_max: settings.nbd.requests_in_flight_max as usize,
        bytes_in_flight_max: bytes_in_flight_max(settings, default.bytes_in_flight_max),
        write_bytes_max: write_bytes_max(settings, default.payload_bytes_max),
        budget: budget.clone(),
        client_timeout: Duration::from_millis(settings.memory.client_timeout_ms),
        shutdown_timeout,
        ..default
    }
}

pub fn files_server_config(
    settings: &Settings,
    budget: &Arc<Budget>,
    shutdown_timeout: Duration,
) -> tombolo_fuse::ServerConfig {
    let default = tombolo_fuse::ServerConfig::default();
    tombolo_fuse::ServerConfig {
        requests_in_flight_max: settings.files.requests_in_flight_max as usize,
        threads_max: settings.files.threads as usize,
        connections_max: settings.files.connections_max as usize,
        bytes_in_flight_max: bytes_in_flight_max(settings, default.bytes_in_flight_max),
        budget: budget.clone(),
        client_timeout: Duration::from_millis(settings.memory.client_timeout_ms),
        shutdown_timeout,
        ..default
    }
}

/// Requests to the store at once in each direction, at the most: beyond that bandwidth grows nowhere (docs/results/hou.md).
const LANES_MAX: u32 = 64;
/// Before anything is known of the store. On a wide-area path all of them pay, and a store beside the gateway is found out in a
/// moment; what they hold is bounded by bytes.
const LANES_INITIAL: u32 = 32;

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX)
}

fn core_config(settings: &Settings) -> Config {
    let (flush, journal, store) = (&settings.flush, &settings.journal, &settings.store);
    Config {
        slot_count: blocks(settings.cache.size.0),
        dirty_blocks_max: blocks(settings.dirty_bytes_max().0),
        throttle_start_permille: flush.throttle_start_permille as u32,
        throttle_delay_ms_max: flush.throttle_delay_ms_max,
        flush_delay_ms: flush.flush_delay_ms,
        early_flush_blocks: Some(blocks(flush.early_flush_bytes.0).into()),
        flush_interval: match flush.interval {
            FlushIntervalRule::Fixed => FlushInterval::Fixed,
            FlushIntervalRule::Stout => FlushInterval::Stout,
        },
        recovery_point_ms: Some(flush.recovery_point_ms),
        unpublished_journal_bytes_max: journal.unpublished_bytes_max.0,
        stall_timeout_ms: flush.stall_timeout_ms,
        checkpoint_interval_ms: journal.checkpoint_interval_ms,
        checkpoint_journal_bytes: journal.checkpoint_journal_bytes.0,
        replay_records_max: journal.replay_records_max,
        replay_ms_max: journal.replay_ms_max,
        group_commit: match journal.group_commit {
            GroupCommitRule::Immediate => group_commit::Rule::Immediate,
            GroupCommitRule::Gather => group_commit::Rule::Gather,
            GroupCommitRule::Stout => group_commit::Rule::Stout,
        },
        sync_interval_ms: journal.sync_interval_ms,
        segment_bytes: journal.segment_bytes.0,
        map_cache_bytes: settings.memory.map_cache_bytes.0 as usize,
        descriptor_cache_bytes: settings.memory.descriptor_cache_bytes.0 as usize,
        hash_jobs_max: settings.threads.hash as usize,
        read_timeout_ms: 3 * flush.stall_timeout_ms,
        fingerprints_max: settings.memory.fingerprint_memtable_entries as usize,
        uploads_max: store.uploads_in_flight_max.unwrap_or(LANES_MAX.into()) as usize,
        upload_blocks_max: blocks(settings.memory.transfer_bytes_max.0) as usize,
        object_blocks_max: blocks(store.object_bytes_max.0) as usize,
        fetches_max: fetches_max(store.downloads_in_flight_max),
        fetch_blocks_max: blocks(settings.memory.transfer_bytes_max.0) as usize,
        sequential_floor: settings.cache.sequential_floor,
        compares_policies: true,
        ..Config::default()
    }
}

/// Demand reads must come to an answer before a client gives up, so the driver's own patience is the stall timeout;
/// uploads that fail are begun again by the core.
fn retry_policy(settings: &Settings) -> RetryPolicy {
    let delay_max = Duration::from_millis(settings.store.retry_delay_ms_max);
    let default = RetryPolicy::default();
    RetryPolicy {
        attempts_max: settings.store.attempts_max as u32,
        backoff_max: delay_max.min(default.backoff_max),
        throttled_max: delay_max,
        deadline: Duration::from_millis(settings.flush.stall_timeout_ms),
        ..default
    }
}

fn driver_settings(settings: &Settings) -> StoreSettings {
    let mut driver = settings.store.driver_settings();
    driver.s3.kept_buffer_bytes_max = settings.memory.transfer_bytes_max.0 as usize;
    driver
}

fn measured_of(known: &[Known], place: usize) -> Option<&Measured> {
    known.get(place)?.measured.as_ref()
}

/// In the order of their names.
fn replicas(settings: &Settings, known: &[Known]) -> Result<ReplicaSettings, StoreError> {
    let read_price = |place: usize| {
        let units = known.get(place).map(|known| known.prices.units()).unwrap_or_default();
        ReadPrice {
            request: units.get_request,
            block: units.egress_per_block,
        }
    };
    let mut stores = Vec::new();
    for (place, (name, replica)) in (1..).zip(&settings.replicas) {
        let away_after = Duration::from_millis(replica.away_after_ms);
        let url: StoreUrl = replica.url.parse()?;
        stores.push(ReplicaStore {
            name: name.clone(),
            url: replica.url.clone(),
            store: open_store(&url, &replica.driver_settings(&settings.store))?,
            warm_connections: warm_connections(&url, settings),
            retry: RetryPolicy {
                deadline: away_after,
                ..retry_policy(settings)
            },
            pace: pace(
                measured_of(known, place),
                &url,
                settings,
                replica.downloads_in_flight_max,
                replica.uploads_in_flight_max,
            ),
            read_price: read_price(place),
            accepted_root: replica.accepted_root(),
            away_after,
        });
    }
    Ok(ReplicaSettings {
        stores,
        read_price: read_price(0),
        measured_reads: (0..=settings.replicas.len())
            .map(|place| measured_of(known, place).map(|measured| measured.table.get.clone()))
            .collect(),
        read_second: (settings.store.read_hour_usd.dollars() * UNITS_PER_DOLLAR / 3600.0) as u64,
    })
}

/// Requests at once in each direction: what is set, else what is found out, from what was measured on.
fn pace(
    measured: Option<&Measured>,
    url: &StoreUrl,
    settings: &Settings,
    downloads: Option<u64>,
    uploads: Option<u64>,
) -> Arc<Pace> {
    let first = measured.map_or(
        Lanes {
            downloads: LANES_INITIAL,
            uploads: LANES_INITIAL,
        },
        |measured| measured.lanes(settings.store.object_bytes_max.0),
    );
    let parameters = |first: u32, pinned: Option<u64>| Parameters {
        limit_max: LANES_MAX,
        limit_initial: first,
        pinned: pinned.map(|lanes| lanes as u32),
        ..Parameters::default()
    };
    let pace = Pace::new(
        parameters(first.downloads, downloads),
        parameters(first.uploads, uploads),
        upload_deadlines(url, settings),
    );
    if let Some(measured) = measured {
        pace.expect_uploads(&measured.table.put);
    }
    pace
}

/// What hangs is a connection, which a directory has not.
fn upload_deadlines(url: &StoreUrl, settings: &Settings) -> Option<deadline::Parameters> {
    let answer = Duration::from_millis(settings.store.request_timeout_ms);
    match url {
        StoreUrl::Dir { .. } => None,
        StoreUrl::S3 { .. } => Some(deadline::Parameters::answered_within(answer)),
    }
}

/// Of which a directory has none.
fn warm_connections(url: &StoreUrl, settings: &Settings) -> usize {
    match url {
        StoreUrl::Dir { .. } => 0,
        StoreUrl::S3 { .. } => settings.store.warm_connections as usize,
    }
}

fn fetches_max(pinned: Option<u64>) -> usize {
    pinned.map_or(with_room_for_demand(LANES_MAX as usize), |lanes| lanes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dirty: &str) -> Settings {
        Settings::parse(&format!("[flush]\ndirty_bytes_max = \"{dirty}\"")).unwrap()
    }

    /// The longest write that NBD clients, and clients of shares, are told.
    fn told(settings: &Settings) -> (u32, u32) {
        let block = block_server_config(settings, &Budget::new(1 << 26), Duration::ZERO);
        (
            block.payload_bytes_max.min(block.write_bytes_max),
            share_options(settings).write_bytes_max,
        )
    }

    #[test]
    fn requests_at_once_begin_with_what_was_measured_and_pins_hold() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("table.json");
        std::fs::write(&file, crate::measured::tests::table(16, 4)).unwrap();
        let measured = Measured::load(Some(&file)).unwrap();
        let limits = |measured: Option<&Measured>, uploads| {
            let url = "s3://bucket".parse().unwrap();
            let state = pace(measured, &url, &Settings::default(), None, uploads).state();
            (state.gets.limit, state.puts.limit)
        };
        assert_eq!(limits(measured.as_ref(), None), (16, 4));
        assert_eq!(limits(measured.as_ref(), Some(7)), (16, 7));
        assert_eq!(limits(None, None), (LANES_INITIAL, LANES_INITIAL));
    }

    #[test]
    fn clients_are_told_of_the_longest_write_that_is_taken() {
        const KIB: u32 = 1 << 10;
        for (dirty, expected) in [
            ("1MiB", (512 * KIB, 512 * KIB)),
            ("2MiB", (1024 * KIB, 1024 * KIB)),
            ("3MiB", (2048 * KIB, 1024 * KIB)),
            ("8MiB", (4096 * KIB, 1024 * KIB)),
            ("33MiB", (32768 * KIB, 1024 * KIB)),
            ("5GiB", (32768 * KIB, 1024 * KIB)),
        ] {
            let settings = settings(dirty);
            let (block, share) = told(&settings);
            assert_eq!((block, share), expected, "{dirty}");
            // Ragged at both ends it touches one block more.
            let touched = block.max(share) / BLOCK_BYTES as u32 + 1;
            assert!(touched <= core_config(&settings).dirty_blocks_max, "{dirty}");
        }
    }
}
