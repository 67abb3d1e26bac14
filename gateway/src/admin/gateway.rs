//! The running gateway of one store as the admin API sees it. Which store is asked for is the affair of [`stores`].

mod bill;
mod policies;
mod store_check;
mod stores;

pub use stores::GatewayControl;

use crate::admin::endpoints::{
    CreateShare, CreateVolume, DeleteShare, DeleteVolume, PolicyChanges, ResizeVolume, RotateKey, ShareFlush,
    ShareQuota, StartTrace, VolumeFlush,
};
use crate::admin::model::{
    CacheStatus, ConcurrencyStatus, ControlError, DataKeyStatus, DedupStatus, EncryptionStatus, ErrorKind,
    GroupCommitStatus, JournalStatus, LatencyTableStatus, LossStatus, LostRange, MemoryStatus, MetadataStatus,
    PolicyStatus, RecoveryPointStatus, ReplicaInfo, SessionInfo, SessionKind, ShareInfo, Status, StoreState,
    StoreStatus, TraceStatus, UploadIntervalStatus, UploadStatus, VolumeInfo, WriteStatus,
};
use crate::bill::Bill;
use crate::frontends::fuse::{self, Shares};
use crate::measured::Measured;
use crate::metrics::model::Metrics;
use crate::runtime::{DataKeyInfo, DataKeysError, Gateway, MasterKeyError, NewKey, ReplicaLook};
use crate::settings::Settings;
use policies::{PolicyChange, PolicyControl};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use store_check::StoreCheck;
use tombolo_base::BLOCK_BYTES;
use tombolo_cloud_driver::ErrorKind as StoreErrorKind;
use tombolo_core::{Event, LostRun, MetadataError, Refusal, Snapshot, Token, Volume};
use tombolo_files::{self as files, FileError, SessionStatus, ShareStatus};
use tombolo_nbd::Server;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A store that has answered nothing for this long is called unreachable, not just degraded.
const UNREACHABLE_AFTER_MICROS: u64 = 10_000_000;
/// Over how long the rate of uploads is averaged: at least the first; a span longer than the second began in other
/// times and says nothing of now.
const RATE_SPAN_S_MIN: f64 = 1.0;
const RATE_SPAN_S_MAX: f64 = 10.0;

/// What answers of one store.
pub struct StoreControl {
    gateway: Arc<Gateway>,
    shares: Arc<Shares>,
    server: Arc<Mutex<Option<Server>>>,
    state_directory: String,
    store_url: String,
    latency_table: Option<LatencyTableStatus>,
    started: Instant,
    rate: Mutex<Rate>,
    policy: PolicyControl,
    bill: Arc<Bill>,
    store_check: Arc<StoreCheck>,
}

/// Blocks that became clean, and the rate derived from two looks at them.
struct Rate {
    at: Instant,
    blocks: u64,
    bytes_per_s: f64,
}

impl StoreControl {
    pub fn new(
        gateway: Arc<Gateway>,
        shares: Arc<Shares>,
        server: Arc<Mutex<Option<Server>>>,
        bill: Arc<Bill>,
        settings: &Settings,
        measured: Option<&Measured>,
    ) -> Self {
        let now = Instant::now();
        Self {
            policy: PolicyControl::new(gateway.clone(), settings, bill.unit_prices()),
            bill,
            store_check: Arc::new(StoreCheck::new(&settings.directories.state_directory)),
            gateway,
            shares,
            server,
            state_directory: settings.directories.state_directory.display().to_string(),
            store_url: settings.store.url.clone(),
            latency_table: measured.map(latency_table),
            started: now,
            rate: Mutex::new(Rate {
                at: now,
                blocks: 0,
                bytes_per_s: 0.0,
            }),
        }
    }

    fn info(&self, volume: &Volume) -> VolumeInfo {
        VolumeInfo {
            name: volume.name.clone(),
            size_bytes: volume.blocks * BLOCK,
            flush: volume.flush.into(),
            connections: self.gateway.connections(volume.id),
            store: None,
        }
    }

    fn find(&self, name: &str) -> Result<Volume, ControlError> {
        self.gateway
            .volume_named(name)
            .ok_or_else(|| ControlError::volume_not_found(name))
    }

    fn found(&self, name: &str) -> Result<VolumeInfo, ControlError> {
        self.find(name).map(|volume| self.info(&volume))
    }

    fn clean_bytes_per_s(&self, snapshot: &Snapshot) -> f64 {
        let blocks = snapshot.totals.blocks_unique + snapshot.totals.blocks_duplicate;
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = rate.at.elapsed().as_secs_f64();
        if elapsed >= RATE_SPAN_S_MIN {
            let bytes = (blocks.saturating_sub(rate.blocks) * BLOCK) as f64;
            rate.bytes_per_s = if elapsed > RATE_SPAN_S_MAX {
                0.0
            } else {
                bytes / elapsed
            };
            rate.at = Instant::now();
            rate.blocks = blocks;
        }
        rate.bytes_per_s
    }

    fn store_status(&self, snapshot: &Snapshot) -> StoreStatus {
        let now = self.gateway.now();
        let store = &snapshot.store;
        let is_damaged = snapshot.lost_runs.iter().any(|run| run.in_store);
        let state = match (store.error_since, self.gateway.last_store_failure()) {
            (None, _) if is_damaged => StoreState::Damaged,
            (None, _) => StoreState::Ok,
            (_, Some(StoreErrorKind::OutOfSpace)) => StoreState::Full,
            (_, Some(StoreErrorKind::AccessDenied)) => StoreState::Denied,
            (_, Some(StoreErrorKind::BucketMissing)) => StoreState::Missing,
            (Some(since), _) if now.micros_since(since) >= UNREACHABLE_AFTER_MICROS => StoreState::Unreachable,
            (Some(_), _) => StoreState::Degraded,
        };
        let (_, _, pace) = self.gateway.store_load();
        StoreStatus {
            downloads: concurrency(&pace.gets),
            uploads: concurrency(&pace.puts),
            url: self.store_url.clone(),
            latency_table: self.latency_table.clone(),
            state,
            last_error: store.error.clone(),
            last_success_age_s: store.last_success.map(|at| now.micros_since(at) as f64 / 1e6),
        }
    }

    fn encryption_status(&self) -> EncryptionStatus {
        let info = self.gateway.encryption();
        let data_key = |made: &DataKeyInfo| DataKeyStatus {
            id: made.id.to_string(),
            made_s: made.made_s,
        };
        EncryptionStatus {
            is_on: info.is_on,
            master_key: info.master_key.map(|id| id.to_string()),
            wrapped_by: info.wrapped_by,
            data_keys: info.data_keys.iter().map(data_key).collect(),
        }
    }

    fn loss_status(&self, snapshot: &Snapshot) -> LossStatus {
        let range = |run: &LostRun| LostRange {
            volume: self.gateway.name_of(run.volume),
            first_block: run.first,
            blocks: run.count,
            in_store: run.in_store,
        };
        LossStatus {
            blocks: snapshot.lost_blocks,
            ranges: snapshot.lost_runs.iter().map(range).collect(),
        }
    }

    fn metadata_status(&self) -> MetadataStatus {
        let loading = self.gateway.loading();
        MetadataStatus {
            is_complete: loading.is_complete,
            loaded_records: loading.records,
            failure: loading.failure,
        }
    }

    fn status_of(&self, snapshot: &Snapshot) -> Status {
        let now = self.gateway.now();
        let local = self.gateway.local_use();
        let dirty_bytes = u64::from(snapshot.slots_dirty) * BLOCK;
        let clean_bytes_per_s = self.clean_bytes_per_s(snapshot);
        let (counters, totals) = (&snapshot.counters, &snapshot.totals);
        let reading = snapshot.policies.total();
        let age_s = |at| now.micros_since(at) as f64 / 1e6;
        let mut volumes: Vec<VolumeInfo> = snapshot.volumes.iter().map(|volume| self.info(volume)).collect();
        volumes.sort_by(|left, right| left.name.cmp(&right.name));
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            state_directory: self.state_directory.clone(),
            failure: snapshot.failed.as_ref().map(ToString::to_string),
            pause: pause_of(snapshot),
            store: self.store_status(snapshot),
            replicas: replica_infos(&self.gateway),
            encryption: self.encryption_status(),
            lost: self.loss_status(snapshot),
            dirty_bytes,
            dirty_bytes_max: u64::from(snapshot.dirty_blocks_max) * BLOCK,
            oldest_dirty_age_s: snapshot.oldest_dirty.map_or(0.0, age_s),
            recovery_point: RecoveryPointStatus {
                age_s: snapshot.oldest_unpublished.map_or(0.0, age_s),
                time_s: snapshot.published_time.map(|time| time.0.into()),
                count: counters.recovery_points,
                failures: counters.recovery_point_failures,
            },
            metadata: self.metadata_status(),
            upload: UploadStatus {
                clean_bytes_per_s,
                objects_in_flight: snapshot.uploads_in_flight,
                draining: snapshot.draining,
                drain_eta_s: UploadStatus::eta_s(dirty_bytes, clean_bytes_per_s),
                absorbed_share: snapshot.absorbed_share,
                interval: snapshot.flush_interval.as_ref().map(upload_interval),
            },
            dedup: DedupStatus::new(totals.blocks_zero, totals.blocks_duplicate, totals.blocks_unique),
            cache: CacheStatus {
                size_bytes: u64::from(snapshot.slot_count) * BLOCK,
                used_bytes: u64::from(snapshot.slots_clean + snapshot.slots_dirty) * BLOCK,
                hits: reading.hits,
                partial_misses: reading.partial_misses,
                complete_misses: reading.complete_misses,
                hit_ratio: 0.0,
                blocks_prefetched: reading.prefetched,
                slots_corrupt: counters.slots_corrupt,
                blocks_unreadable: snapshot.unreadable_blocks,
                blocks_lost: counters.blocks_lost,
            }
            .with_hit_ratio(),
            policy: self.policy.status(&snapshot.policies),
            stored_bytes: totals.object_bytes,
            objects: totals.objects,
            bill: bill::status(&self.bill.now(), &self.gateway.cause_counts()),
            journal: JournalStatus {
                bytes: snapshot.journal_bytes,
                last_checkpoint_age_s: age_s(snapshot.last_checkpoint),
                replay_records: snapshot.replay_records,
                replay_s: snapshot.replay_ms as f64 / 1e3,
                replay_records_max: snapshot.replay_records_max,
                is_behind: snapshot.waits_for_checkpoint,
                group_commit: group_commit(&snapshot.group_commit),
            },
            writes: WriteStatus {
                throttled: counters.writes_throttled,
                stalled: counters.writes_stalled,
                refused: counters.writes_refused_busy,
                waiting: snapshot.writes_waiting,
            },
            memory: MemoryStatus {
                slots_bytes: snapshot.slot_memory_bytes,
                dirty_bytes: snapshot.dirty_memory_bytes,
                map_cache_bytes: snapshot.map_cache_bytes,
                descriptor_cache_bytes: snapshot.descriptor_cache_bytes,
                fingerprint_index_bytes: local.index_memory_bytes,
                prefetcher_bytes: snapshot.policies.prefetcher.bytes as u64,
                resident_bytes: resident_bytes(),
            },
            connections: volumes.iter().map(|volume| volume.connections).sum(),
            volumes,
            shares: self.share_infos(),
            stores: Vec::new(),
        }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn concurrency(state: &tombolo_flow_control::concurrency::State) -> ConcurrencyStatus {
    ConcurrencyStatus {
        limit: state.limit.into(),
        bytes_per_s: state.bytes_per_s,
        halvings: state.halvings,
    }
}

fn latency_table(measured: &Measured) -> LatencyTableStatus {
    LatencyTableStatus {
        file: measured.file.display().to_string(),
        measured_at: measured.table.measured.at.clone(),
        measured_store: measured.table.measured.store.clone(),
    }
}

fn group_commit(state: &tombolo_flow_control::group_commit::State) -> GroupCommitStatus {
    GroupCommitStatus {
        rule: state.rule.name().to_owned(),
        sync_s: seconds(state.sync_us),
        interval_s: seconds(state.interval_us),
        returning: state.returning,
        held_back: state.held_back,
        accelerations: state.accelerations,
        back_offs: state.back_offs,
    }
}

fn upload_interval(state: &tombolo_flow_control::stout::State) -> UploadIntervalStatus {
    UploadIntervalStatus {
        interval_s: seconds(state.interval_us),
        latency_s: seconds(state.latency_us),
        accelerations: state.accelerations,
        back_offs: state.back_offs,
    }
}

impl StoreControl {
    fn share_infos(&self) -> Vec<ShareInfo> {
        let sessions = self.shares.service.sessions();
        let mut infos: Vec<ShareInfo> = self
            .shares
            .service
            .shares()
            .into_iter()
            .map(|share| share_info(share, &sessions))
            .collect();
        infos.sort_by(|left, right| left.name.cmp(&right.name));
        infos
    }

    fn share_info(&self, name: &str) -> Result<ShareInfo, ControlError> {
        let share = self.shares.service.share_named(name);
        share
            .map(|share| share_info(share, &self.shares.service.sessions()))
            .ok_or_else(|| ControlError::share_not_found(name))
    }

    /// A change to a share, on stable storage when this returns.
    fn kept<T>(&self, name: &str, result: Result<T, FileError>) -> Result<T, ControlError> {
        let changed = result.map_err(|error| share_error(name, &error))?;
        self.shares.sync().map_err(|error| share_error(name, &error))?;
        Ok(changed)
    }
}

impl StoreControl {
    fn status(&self) -> Status {
        self.status_of(&self.gateway.snapshot())
    }

    /// Taken together with one status.
    fn metrics(&self) -> Metrics {
        let snapshot = self.gateway.snapshot();
        let (store_retries, store_gate, store_pace) = self.gateway.store_load();
        Metrics {
            status: self.status_of(&snapshot),
            local: self.gateway.local_use(),
            requests: self.gateway.operations(),
            file_requests: self.shares.meters.snapshot(),
            check_findings: self.shares.checking.findings(),
            store: self.gateway.store_counts(),
            store_causes: self.gateway.cause_counts(),
            replicas: self.gateway.replicas(),
            reads: self.gateway.read_counts(),
            store_retries,
            store_gate,
            store_pace,
            core: snapshot,
            named: Vec::new(),
        }
    }

    fn drain(&self) -> Result<(), ControlError> {
        self.refuse_after_failure()?;
        self.gateway.drain();
        Ok(())
    }

    /// What the journal was like before.
    fn checkpoint(&self) -> Result<JournalStatus, ControlError> {
        self.refuse_after_failure()?;
        let before = self.status();
        self.gateway.submit(Event::CheckpointNow);
        match before.pause {
            Some(reason) => Err(ControlError::new(ErrorKind::Unavailable, reason)),
            None => Ok(before.journal),
        }
    }

    fn key_rotate(&self, request: RotateKey) -> Result<EncryptionStatus, ControlError> {
        let new = match (&request.master_key_file, &request.master_key_kms) {
            (Some(file), _) => NewKey::MasterFile(file),
            (None, Some(key)) => NewKey::MasterKms(key),
            (None, None) => NewKey::Data,
        };
        let rotated = self.gateway.rotate_key(new);
        rotated.map_err(|error| ControlError::new(kind_of(&error), error.to_string()))?;
        Ok(self.encryption_status())
    }

    /// Nothing is written any more once the local disk has failed, neither to it nor to the store.
    fn refuse_after_failure(&self) -> Result<(), ControlError> {
        match self.gateway.snapshot().failed {
            Some(reason) => Err(control_error("", &Refusal::Failed(reason))),
            None => Ok(()),
        }
    }

    /// A change to the volume of this name, durable when this returns.
    fn change_volume(&self, name: &str, event: impl FnOnce(Token) -> Event) -> Result<(), ControlError> {
        let changed = self.gateway.ask(event);
        changed.map(drop).map_err(|refusal| control_error(name, &refusal))
    }

    fn volume_create(&self, request: CreateVolume) -> Result<VolumeInfo, ControlError> {
        let CreateVolume {
            name,
            size_bytes,
            flush,
            store: _,
        } = request;
        self.change_volume(&name, |token| Event::VolumeCreate {
            token,
            name: name.clone(),
            blocks: size_bytes / BLOCK,
            flush: flush.into(),
        })?;
        self.found(&name)
    }

    fn volume_resize(&self, request: ResizeVolume) -> Result<VolumeInfo, ControlError> {
        let ResizeVolume {
            name,
            size_bytes,
            allow_shrink,
        } = request;
        let volume = self.find(&name)?;
        let old_bytes = volume.blocks * BLOCK;
        if size_bytes < old_bytes && !allow_shrink {
            return Err(ControlError::volume_would_shrink(&name, old_bytes, size_bytes));
        }
        self.change_volume(&name, |token| Event::VolumeResize {
            token,
            volume: volume.id,
            blocks: size_bytes / BLOCK,
        })?;
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = server.as_ref() {
            server.disconnect_resized(&name);
        }
        drop(server);
        self.found(&name)
    }

    fn volume_flush(&self, VolumeFlush { name, flush }: VolumeFlush) -> Result<VolumeInfo, ControlError> {
        let volume = self.find(&name)?.id;
        self.change_volume(&name, |token| Event::VolumeFlushMode {
            token,
            volume,
            flush: flush.into(),
        })?;
        self.found(&name)
    }

    fn volume_delete(&self, DeleteVolume { name }: DeleteVolume) -> Result<(), ControlError> {
        let volume = self.find(&name)?.id;
        let connections = self.gateway.connections(volume);
        if connections > 0 {
            return Err(ControlError::volume_in_use(&name, connections));
        }
        self.change_volume(&name, |token| Event::VolumeDelete { token, volume })
    }

    fn share_create(&self, request: CreateShare) -> Result<ShareInfo, ControlError> {
        let CreateShare {
            name,
            quota_bytes,
            flush,
            store: _,
        } = request;
        let service = &self.shares.service;
        let quota_bytes = quota_bytes.unwrap_or(0);
        self.kept(
            &name,
            service.create_share(&name, quota_bytes, flush.into(), fuse::now()),
        )?;
        self.share_info(&name)
    }

    fn share_quota(&self, ShareQuota { name, quota_bytes }: ShareQuota) -> Result<ShareInfo, ControlError> {
        let service = &self.shares.service;
        self.kept(&name, service.set_quota(&name, quota_bytes.unwrap_or(0)))?;
        self.share_info(&name)
    }

    fn share_flush(&self, ShareFlush { name, flush }: ShareFlush) -> Result<ShareInfo, ControlError> {
        let service = &self.shares.service;
        self.kept(&name, service.set_flush_mode(&name, flush.into()))?;
        self.share_info(&name)
    }

    fn share_delete(&self, DeleteShare { name, force }: DeleteShare) -> Result<(), ControlError> {
        let sessions = self.share_info(&name)?.sessions.len() as u64;
        if !force && sessions > 0 {
            return Err(ControlError::share_in_use(&name, sessions));
        }
        let share = self.shares.service.share_named(&name);
        let share = share.ok_or_else(|| ControlError::share_not_found(&name))?;
        if share.being_deleted {
            return Err(ControlError::share_being_deleted(&name));
        }
        let deleted = self.shares.delete(&share, force);
        deleted.map_err(|error| share_error(&name, &error))
    }

    fn policy_status(&self) -> PolicyStatus {
        self.policy.status(&self.gateway.snapshot().policies)
    }

    fn prepare_policies(&self, PolicyChanges(changes): PolicyChanges) -> Result<PolicyChange<'_>, ControlError> {
        self.policy.prepare(changes)
    }

    fn trace_start(&self, StartTrace { path, bytes_max, .. }: StartTrace) -> Result<TraceStatus, ControlError> {
        self.gateway.recorder().start(&path, bytes_max)
    }
}

fn replica_infos(gateway: &Gateway) -> Vec<ReplicaInfo> {
    let reads = gateway.read_counts();
    let of = |counts: &[u64], place: usize| counts.get(place).copied().unwrap_or_default();
    // The first place is the store's own.
    let looks = gateway.replicas().into_iter().zip(1..);
    let info = |(look, place): (ReplicaLook, usize)| {
        let status = look.status;
        ReplicaInfo {
            name: status.name,
            url: status.url,
            state: status.state.name().into(),
            reason: status.reason,
            behind_objects: status.behind.objects,
            behind_bytes: status.behind.bytes,
            behind_removals: status.behind.removals,
            behind_age_s: status.behind_age_s,
            is_compared: status.behind.is_incomplete,
            brought: status.brought,
            healed: status.healed,
            reads: of(&reads.answered, place),
            reads_failed_over: of(&reads.failed_over, place),
        }
    };
    looks.map(info).collect()
}

fn control_error(name: &str, refusal: &Refusal) -> ControlError {
    let kind = match refusal {
        Refusal::VolumeExists(_) => return ControlError::volume_exists(name),
        Refusal::UnknownVolume(_) => return ControlError::volume_not_found(name),
        Refusal::OutOfRange { .. } | Refusal::TooLarge(_) | Refusal::NoRecoveryPoints => ErrorKind::Invalid,
        Refusal::Busy => ErrorKind::Busy,
        Refusal::CloudUnavailable(_) => ErrorKind::Unavailable,
        Refusal::Disk(_) | Refusal::Failed(_) => ErrorKind::ReadOnly,
        Refusal::Lost { .. } | Refusal::Metadata(_) => ErrorKind::Internal,
    };
    ControlError::new(kind, refusal.to_string())
}

fn share_info(share: ShareStatus, sessions: &[SessionStatus]) -> ShareInfo {
    let mut sessions: Vec<SessionInfo> = sessions
        .iter()
        .filter(|session| session.share == share.id)
        .map(|session| SessionInfo {
            client: String::from_utf8_lossy(&session.client).into_owned(),
            kind: match session.kind {
                files::SessionKind::Kernel => SessionKind::Mount,
                files::SessionKind::Client => SessionKind::Socket,
            },
            connected: session.attached > 0,
        })
        .collect();
    sessions.sort_by(|left, right| left.client.cmp(&right.client));
    ShareInfo {
        name: share.name,
        id: share.id,
        quota_bytes: (share.quota_bytes > 0).then_some(share.quota_bytes),
        flush: share.flush.into(),
        used_bytes: share.used_bytes,
        inodes: share.inodes,
        deleting: share.being_deleted,
        sessions,
        store: None,
        file_system: None,
    }
}

fn share_error(name: &str, error: &FileError) -> ControlError {
    let kind = match error {
        FileError::Exists => return ControlError::share_exists(name),
        FileError::NotFound => return ControlError::share_not_found(name),
        FileError::InUse(_) | FileError::Busy(_) => ErrorKind::Busy,
        FileError::Invalid(_) => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    };
    ControlError::new(kind, format!("share {name}: {error}"))
}

fn kind_of(error: &DataKeysError) -> ErrorKind {
    match error {
        DataKeysError::Store(error) | DataKeysError::Unconfirmed(error) if error.kind().is_retryable() => {
            ErrorKind::Unavailable
        }
        DataKeysError::MasterKey(MasterKeyError::Kms(error)) if error.is_unreachable() => ErrorKind::Unavailable,
        DataKeysError::ChangedMeanwhile | DataKeysError::Busy => ErrorKind::Busy,
        DataKeysError::Store(_)
        | DataKeysError::Unconfirmed(_)
        | DataKeysError::Disk { .. }
        | DataKeysError::HalfDone { .. }
        | DataKeysError::NewKey(_) => ErrorKind::Internal,
        _ => ErrorKind::Invalid,
    }
}

/// Why changes wait for the local disk, or checkpoints do not succeed.
fn pause_of(snapshot: &Snapshot) -> Option<String> {
    let full = "the local disk has no room for the journal: changes wait, then are refused";
    let no_room = snapshot.waits_for_journal.then(|| full.into());
    let checkpoint = |error: &MetadataError| match error {
        MetadataError::Local(reason) => format!("checkpoints fail and are tried again: {reason}"),
        in_store => format!("checkpoints fail and are tried again: they need local metadata, and {in_store}"),
    };
    let behind = "the store is too far behind: changes wait until it knows of earlier ones, then are refused";
    let behind = snapshot.waits_for_recovery_point.then(|| behind.into());
    no_room
        .or_else(|| snapshot.metadata_error.as_ref().map(checkpoint))
        .or(behind)
}

/// Resident set of this process, zero where the kernel does not tell.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    pages.unwrap_or(0) * 4096
}

#[cfg(test)]
mod tests;
