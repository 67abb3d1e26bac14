//! `tombolo status`: what an operator looks for first stands first.

mod bill;

use super::error::CliError;
use super::output;
use super::volume::store_remark;
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{
    ConcurrencyStatus, GroupCommitStatus, NamedStoreStatus, ReplicaInfo, Status, StoreState, StoreStatus,
    UploadIntervalStatus,
};
use crate::settings::ByteSize;
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use std::time::Duration;

pub(super) fn run(client: &Client, as_json: bool) -> Result<(), CliError> {
    let status = client.ask(&endpoints::STATUS, &())?;
    if as_json {
        output::json(&status)
    } else {
        output::text(&shown(&status))
    }
}

fn shown(status: &Status) -> String {
    let mut lines = Vec::new();
    if let Some(failure) = &status.failure {
        // Nothing is to be mended when the store has another writer.
        let what_helps = match failure.starts_with("local disk") {
            true => "; changes are refused until it is mended and the gateway restarted",
            false => "; changes are refused",
        };
        lines.push(("FAILED", format!("{failure}{what_helps}")));
    }
    if let Some(pause) = &status.pause {
        lines.push(("PAUSED", format!("{pause}; it goes on by itself")));
    }
    if status.lost.blocks > 0 {
        lines.push(("LOST", lost(status)));
    }
    lines.push(("dirty", dirty(status)));
    lines.push(("recovery point", recovery_point(status)));
    if !status.metadata.is_complete {
        lines.push(("metadata", metadata(status)));
    }
    lines.push(("store", store(status)));
    lines.push(("requests", requests(&status.store)));
    for replica in &status.replicas {
        lines.push(("replica", replica_shown(replica)));
    }
    let named: Vec<String> = status.stores.iter().map(named_store).collect();
    lines.extend(named.into_iter().map(|text| ("named store", text)));
    lines.push(("encryption", encryption(status)));
    lines.push(("deduplication", dedup(status)));
    lines.push(("cache hits", hits(status)));
    lines.push(("policies", policies(status)));
    lines.push(("upload", upload(status)));
    lines.push((
        "stored",
        format!(
            "{} in {} objects",
            HumanBytes(status.stored_bytes),
            HumanCount(status.objects)
        ),
    ));
    lines.push(("bill", bill::month(&status.bill)));
    lines.push(("bill a day", bill::day(&status.bill)));
    for replica in &status.bill.replicas {
        lines.push(("bill of replica", bill::of_replica(replica)));
    }
    lines.push(("cache", cache(status)));
    lines.push(("writes", writes(status)));
    if let Some(damage) = damage(status) {
        lines.push(("damage", damage));
    }
    let journal = &status.journal;
    let checkpoint = duration(journal.last_checkpoint_age_s);
    lines.push((
        "journal",
        format!(
            "{}, last checkpoint {checkpoint} ago, {} records to replay ({}){}",
            HumanBytes(journal.bytes),
            HumanCount(journal.replay_records),
            duration(journal.replay_s),
            if journal.is_behind {
                "; changes wait for a checkpoint"
            } else {
                ""
            }
        ),
    ));
    lines.push(("group commit", group_commit(&journal.group_commit)));
    if let Some(interval) = &status.upload.interval {
        lines.push(("upload interval", upload_interval(interval)));
    }
    lines.push(("memory", HumanBytes(status.memory.resident_bytes).to_string()));
    lines.push(("clients", status.connections.to_string()));
    lines.push(("volumes", volumes(status)));
    lines.push(("shares", shares(status)));
    lines.push(("gateway", gateway(status)));
    lines
        .into_iter()
        .map(|(label, text)| format!("{label:<15} {text}\n"))
        .collect()
}

/// To the store.
fn requests(store: &StoreStatus) -> String {
    let shown = |state: &ConcurrencyStatus, name: &str| {
        let rate = match state.bytes_per_s {
            rate if rate >= 1.0 => format!(" ({}/s)", HumanBytes(rate as u64)),
            _ => String::new(),
        };
        let halved = match state.halvings {
            0 => String::new(),
            times => format!(" halved {times} times"),
        };
        format!("{} {name}{rate}{halved}", state.limit)
    };
    let (downloads, uploads) = (shown(&store.downloads, "downloads"), shown(&store.uploads, "uploads"));
    let begun = store.latency_table.as_ref().map_or_else(String::new, |table| {
        format!("; begun with {}, measured {}", table.file, table.measured_at)
    });
    format!("up to {downloads} and {uploads} at once{begun}")
}

fn group_commit(state: &GroupCommitStatus) -> String {
    let (sync_ms, interval_ms) = (state.sync_s * 1e3, state.interval_s * 1e3);
    let how = match state.rule.as_str() {
        "gather" => format!(
            "held back up to {interval_ms:.2} ms, {:.0} % return",
            state.returning * 100.0
        ),
        "stout" => format!(
            "every {interval_ms:.2} ms at the most often ({} shorter, {} longer)",
            state.accelerations, state.back_offs
        ),
        _ => "at once".to_owned(),
    };
    format!("{how}; a sync takes {sync_ms:.2} ms")
}

fn upload_interval(interval: &UploadIntervalStatus) -> String {
    format!(
        "{:.3} s ({} shorter, {} longer), objects take {:.3} s",
        interval.interval_s, interval.accelerations, interval.back_offs, interval.latency_s
    )
}

fn dirty(status: &Status) -> String {
    let share = percent(status.dirty_bytes as f64 / status.dirty_bytes_max.max(1) as f64);
    format!(
        "{} of at most {} ({share})",
        HumanBytes(status.dirty_bytes),
        HumanBytes(status.dirty_bytes_max)
    )
}

/// What reads as an error; the first ranges of it.
fn lost(status: &Status) -> String {
    const RANGES_SHOWN: usize = 4;
    let ranges = &status.lost.ranges;
    let shown = ranges.iter().take(RANGES_SHOWN).map(|range| {
        let end = range.first_block + range.blocks;
        let place = if range.in_store { "store" } else { "cache file" };
        format!("{} {}..{end} ({place})", range.volume, range.first_block)
    });
    let more = if ranges.len() > RANGES_SHOWN { ", ..." } else { "" };
    format!(
        "{} blocks read as errors until they are overwritten: {}{more}",
        HumanCount(status.lost.blocks),
        shown.collect::<Vec<_>>().join(", ")
    )
}

fn recovery_point(status: &Status) -> String {
    let point = &status.recovery_point;
    match (point.age_s > 0.0, point.time_s, status.lost.blocks) {
        (true, None, _) => "none: the store was told nothing yet".into(),
        (true, Some(_), _) => format!("{} ago", duration(point.age_s)),
        (false, _, 0) => "now: the store has everything".into(),
        (false, _, blocks) => format!("now: the store has everything but {} lost blocks", HumanCount(blocks)),
    }
}

fn metadata(status: &Status) -> String {
    let metadata = &status.metadata;
    let failure = metadata
        .failure
        .as_ref()
        .map(|failure| format!("; {failure}; it is tried again"));
    format!(
        "not complete: read in the store where it is needed, {} records brought here{}",
        HumanCount(metadata.loaded_records),
        failure.unwrap_or_default()
    )
}

fn store(status: &Status) -> String {
    let store = &status.store;
    let age = store
        .last_success_age_s
        .map(|age| format!("last success {} ago", duration(age)));
    let trouble = match store.state {
        StoreState::Ok | StoreState::Damaged => None,
        _ => Some(age.unwrap_or("no success yet".into())),
    };
    let details = trouble.into_iter().chain(store.last_error.clone());
    let details: String = details.map(|detail| format!("; {detail}")).collect();
    format!("{}: {}{details}", store.state.as_str(), store.url)
}

/// What is told first of a gateway, of one with another store.
fn named_store(named: &NamedStoreStatus) -> String {
    let Some(status) = &named.status else {
        let reason = named.reason.as_deref().unwrap_or("no reason was given");
        return format!("{}: DOES NOT SERVE: {reason}", named.name);
    };
    let trouble = [("FAILED", &status.failure), ("PAUSED", &status.pause)];
    let trouble = trouble
        .into_iter()
        .filter_map(|(word, reason)| Some(format!("{word}: {}; ", reason.as_ref()?)));
    let lost = match status.lost.blocks {
        0 => String::new(),
        _ => format!("LOST: {}; ", lost(status)),
    };
    format!(
        "{}: {}{lost}{}; dirty {}; recovery point {}; stored {}; {}",
        named.name,
        trouble.collect::<String>(),
        store(status),
        dirty(status),
        recovery_point(status),
        HumanBytes(status.stored_bytes),
        bill::month(&status.bill),
    )
}

fn replica_shown(replica: &ReplicaInfo) -> String {
    let ReplicaInfo { name, url, state, .. } = replica;
    let mut text = format!("{name}: {state}: {url}");
    if replica.behind_objects > 0 {
        let (objects, bytes) = (HumanCount(replica.behind_objects), HumanBytes(replica.behind_bytes));
        text += &format!("; lacks {objects} objects, {bytes}");
    }
    if replica.is_compared {
        text += "; what it lacks has to be found out by a comparison";
    }
    if replica.behind_age_s > 0 {
        text += &format!("; for {}", duration(replica.behind_age_s as f64));
    }
    if let Some(reason) = &replica.reason {
        text += &format!("; {reason}");
    }
    text
}

fn encryption(status: &Status) -> String {
    let encryption = &status.encryption;
    match (encryption.is_on, encryption.data_keys.last(), &encryption.master_key) {
        (true, Some(data_key), Some(master_key)) => {
            format!("aes-256-gcm, data key {}, master key {master_key}", data_key.id)
        }
        _ => "none: whoever can read the store can read the data".into(),
    }
}

fn dedup(status: &Status) -> String {
    let dedup = &status.dedup;
    if dedup.blocks_written == 0 {
        return "nothing written yet".into();
    }
    let share = |blocks: u64| percent(blocks as f64 / dedup.blocks_written as f64);
    let (duplicate, zero) = (share(dedup.blocks_duplicate), share(dedup.blocks_zero));
    format!("{:.2} : 1 ({duplicate} duplicate, {zero} zero)", dedup.ratio)
}

fn hits(status: &Status) -> String {
    let cache = &status.cache;
    if cache.reads() == 0 {
        return "nothing read yet".into();
    }
    let misses = HumanCount(cache.complete_misses);
    let partial = HumanCount(cache.partial_misses);
    let ratio = percent(cache.hit_ratio);
    format!(
        "{ratio} of {} blocks ({misses} misses, {partial} partial)",
        HumanCount(cache.reads())
    )
}

fn policies(status: &Status) -> String {
    let policy = &status.policy;
    let mut text = format!("{} + {}", policy.replacement, policy.prefetch);
    if let Some(tally) = policy.tallies.last().filter(|tally| tally.counters.prefetched > 0) {
        let (used, blocks) = (percent(tally.efficiency), HumanCount(tally.counters.prefetched));
        text += &format!(", {used} of {blocks} prefetched blocks used");
    }
    text
}

fn upload(status: &Status) -> String {
    let upload = &status.upload;
    let rate = HumanBytes(upload.clean_bytes_per_s.max(0.0) as u64);
    let left = match upload.drain_eta_s {
        _ if status.dirty_bytes == 0 => "nothing left".into(),
        Some(eta_s) => format!("{} left", duration(eta_s)),
        None => "nothing moves".into(),
    };
    let draining = if upload.draining { ", draining" } else { "" };
    format!(
        "{rate}/s, {} objects in flight, {left}{draining}",
        upload.objects_in_flight
    )
}

fn cache(status: &Status) -> String {
    let cache = &status.cache;
    format!(
        "{} of {} used",
        HumanBytes(cache.used_bytes),
        HumanBytes(cache.size_bytes)
    )
}

fn writes(status: &Status) -> String {
    let writes = &status.writes;
    let waiting = if writes.waiting > 0 {
        format!("{} waiting now, ", writes.waiting)
    } else {
        String::new()
    };
    format!(
        "{waiting}{} slowed, {} stalled, {} refused",
        writes.throttled, writes.stalled, writes.refused
    )
}

fn damage(status: &Status) -> Option<String> {
    let cache = &status.cache;
    (cache.slots_corrupt + cache.blocks_unreadable + cache.blocks_lost > 0).then(|| {
        format!(
            "{} corrupt cache slots found, {} blocks unreadable for now, {} blocks lost",
            cache.slots_corrupt, cache.blocks_unreadable, cache.blocks_lost
        )
    })
}

fn volumes(status: &Status) -> String {
    if status.volumes.is_empty() {
        return "none".into();
    }
    let one = |volume: &crate::admin::model::VolumeInfo| {
        let (size, flush) = (ByteSize(volume.size_bytes), volume.flush.remark());
        format!(
            "{} ({size}{flush}{})",
            volume.name,
            store_remark(volume.store.as_deref())
        )
    };
    status.volumes.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn shares(status: &Status) -> String {
    if status.shares.is_empty() {
        return "none".into();
    }
    let one = |share: &crate::admin::model::ShareInfo| {
        let quota = share
            .quota_bytes
            .map(|bytes| format!(" of {}", ByteSize(bytes)))
            .unwrap_or_default();
        let (used, flush) = (HumanBytes(share.used_bytes), share.flush.remark());
        format!(
            "{} ({used}{quota}{flush}{})",
            share.name,
            store_remark(share.store.as_deref())
        )
    };
    status.shares.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn gateway(status: &Status) -> String {
    let uptime = duration(status.uptime_s);
    format!(
        "version {}, up {uptime}, state in {}",
        status.version, status.state_directory
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Durations that come over a wire may be anything.
pub(super) fn duration(seconds: f64) -> String {
    let known = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if known < Duration::from_secs(60) {
        format!("{:.1} s", known.as_secs_f64())
    } else {
        HumanDuration(known).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::model::{
        CacheStatus, DataKeyStatus, DedupStatus, EncryptionStatus, LatencyTableStatus, LossStatus, LostRange,
        PolicyStatus, PolicyTally, RecoveryPointStatus, ShareInfo, StoreStatus, UploadStatus,
    };
    use tombolo_core::{PolicyCounters, Tally};

    #[test]
    fn key_figures_stand_first() {
        let status = Status {
            dirty_bytes: 1 << 30,
            dirty_bytes_max: 4 << 30,
            oldest_dirty_age_s: 12.34,
            recovery_point: RecoveryPointStatus {
                age_s: 12.34,
                time_s: Some(1_000),
                ..Default::default()
            },
            dedup: DedupStatus::new(0, 3, 1),
            cache: CacheStatus {
                hits: 9,
                complete_misses: 1,
                ..Default::default()
            }
            .with_hit_ratio(),
            policy: PolicyStatus {
                replacement: "sarc".into(),
                prefetch: "amp".into(),
                tallies: vec![PolicyTally::from(&Tally {
                    replacement: "sarc",
                    prefetch: "amp",
                    counters: PolicyCounters {
                        prefetched: 1_000,
                        used: 250,
                        ..Default::default()
                    },
                })],
                ..Default::default()
            },
            store: StoreStatus {
                url: "s3://bucket".into(),
                state: StoreState::Unreachable,
                last_error: Some("connection refused".into()),
                last_success_age_s: Some(30.0),
                downloads: ConcurrencyStatus {
                    limit: 32,
                    bytes_per_s: 3.0 * 1024.0 * 1024.0,
                    halvings: 2,
                },
                uploads: ConcurrencyStatus {
                    limit: 16,
                    ..ConcurrencyStatus::default()
                },
                latency_table: Some(LatencyTableStatus {
                    file: "/etc/tombolo/latency-table.json".into(),
                    measured_at: "2026-11-23T18:00:00Z".into(),
                    measured_store: "s3://bucket".into(),
                }),
            },
            encryption: EncryptionStatus {
                is_on: true,
                master_key: Some("00000000000000aa".into()),
                wrapped_by: None,
                data_keys: vec![DataKeyStatus {
                    id: "00000000000000bb".into(),
                    made_s: 0,
                }],
            },
            upload: UploadStatus {
                drain_eta_s: Some(600.0),
                ..Default::default()
            },
            ..Default::default()
        };
        let shown = shown(&status);
        let expected = "dirty           1.00 GiB of at most 4.00 GiB (25.0 %)
recovery point  12.3 s ago
store           unreachable: s3://bucket; last success 30.0 s ago; connection refused
requests        up to 32 downloads (3.00 MiB/s) halved 2 times and 16 uploads at once; begun with /etc/tombolo/latency-table.json, measured 2026-11-23T18:00:00Z
encryption      aes-256-gcm, data key 00000000000000bb, master key 00000000000000aa
deduplication   4.00 : 1 (75.0 % duplicate, 0.0 % zero)
cache hits      90.0 % of 10 blocks (1 misses, 0 partial)
policies        sarc + amp, 25.0 % of 1,000 prefetched blocks used
upload          0 B/s, 0 objects in flight, 10 minutes left
";
        assert!(shown.starts_with(expected), "{shown}");
        assert!(!shown.contains("damage"), "{shown}");
    }

    #[test]
    fn an_idle_gateway_claims_no_ratios() {
        let shown = shown(&Status::default());
        assert!(
            shown.contains("now: the store has everything") && shown.contains("nothing read yet"),
            "{shown}"
        );
        assert!(
            shown.contains("encryption      none: whoever can read the store"),
            "{shown}"
        );
    }

    #[test]
    fn failure_and_damage_are_not_hidden() {
        let status = Status {
            failure: Some("input/output error".into()),
            cache: CacheStatus {
                slots_corrupt: 2,
                blocks_unreadable: 3,
                ..Default::default()
            },
            ..Default::default()
        };
        let text = shown(&status);
        assert!(text.starts_with("FAILED          input/output error"), "{text}");
        assert!(
            text.contains("2 corrupt cache slots found, 3 blocks unreadable for now"),
            "{text}"
        );
        let status = Status {
            pause: Some("no room".into()),
            ..Default::default()
        };
        let text = shown(&status);
        assert!(
            text.starts_with("PAUSED          no room; it goes on by itself"),
            "{text}"
        );
        assert!(!text.contains("FAILED"), "{text}");
        let status = Status {
            lost: LossStatus {
                blocks: 5,
                ranges: vec![LostRange {
                    volume: "vol".into(),
                    first_block: 3,
                    blocks: 5,
                    in_store: true,
                }],
            },
            store: StoreStatus {
                state: StoreState::Damaged,
                ..Default::default()
            },
            ..Default::default()
        };
        let text = shown(&status);
        let expected = "LOST            5 blocks read as errors until they are overwritten: vol 3..8 (store)\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("the store has everything\n"), "{text}");
        assert!(text.contains("damaged: "), "{text}");
    }

    #[test]
    fn shares_stand_with_their_use() {
        let share = |name: &str, quota_bytes| ShareInfo {
            name: name.into(),
            quota_bytes,
            used_bytes: 1 << 29,
            ..ShareInfo::default()
        };
        let status = Status {
            shares: vec![share("a", Some(1 << 30)), share("b", None)],
            ..Status::default()
        };
        let shown = shown(&status);
        assert!(
            shown.contains("shares          a (512.00 MiB of 1GiB), b (512.00 MiB)\n"),
            "{shown}"
        );
    }

    #[test]
    fn odd_durations_do_not_panic() {
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            duration(seconds);
        }
    }
}
