//! The one table of all metrics.

use super::model::Metrics;
use super::requests::OperationMetrics;
use super::{Kind, Labels, Metric, Reading};
use crate::admin::model::{
    CauseBill, PolicyTally, ReplicaBill, ReplicaInfo, SessionInfo, SessionKind, ShareInfo, StoreState,
    UploadIntervalStatus,
};
use tombolo_cloud_driver::{CauseCounts, OperationCounts, ReplicaState};
use tombolo_core::PolicyCounters;
use tombolo_flow_control::concurrency::State;

const fn counter(name: &'static str, help: &'static str, read: fn(&Metrics) -> Reading) -> Metric {
    Metric {
        name,
        kind: Kind::Counter,
        help,
        read,
    }
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Metrics) -> Reading) -> Metric {
    Metric {
        name,
        kind: Kind::Gauge,
        help,
        read,
    }
}

const fn histogram(name: &'static str, help: &'static str, read: fn(&Metrics) -> Reading) -> Metric {
    Metric {
        name,
        kind: Kind::Histogram,
        help,
        read,
    }
}

use Reading::{Durations, Float, Floats, Integer, Integers};

pub(super) const METRICS: &[Metric] = &[
    gauge("tombolo_build_info", "Always 1; the label holds the version.", |m| {
        Integers(vec![(vec![("version", m.status.version.clone())], 1)])
    }),
    gauge(
        "tombolo_uptime_seconds",
        "Time since the gateway began to serve.",
        |m| Float(m.status.uptime_s),
    ),
    gauge(
        "tombolo_failed",
        "1 once the local disk has failed and changes are refused.",
        |m| Integer(u64::from(m.status.failure.is_some())),
    ),
    gauge(
        "tombolo_paused",
        "1 while the local disk is full, or checkpoints fail: it goes on by itself.",
        |m| Integer(u64::from(m.status.pause.is_some())),
    ),
    gauge(
        "tombolo_named_stores_absent",
        "Named stores that do not serve; missing where there are none.",
        |m| match m.status.stores.len() as u64 {
            0 => Integers(Vec::new()),
            absent => Integer(absent),
        },
    ),
    // What is not in the store yet.
    gauge("tombolo_dirty_bytes", "Acknowledged data that the store lacks.", |m| {
        Integer(m.status.dirty_bytes)
    }),
    gauge("tombolo_dirty_limit_bytes", "The most that may be dirty.", |m| {
        Integer(m.status.dirty_bytes_max)
    }),
    gauge(
        "tombolo_oldest_dirty_age_seconds",
        "Age of the oldest dirty data; 0 when clean.",
        |m| Float(m.status.oldest_dirty_age_s),
    ),
    gauge(
        "tombolo_recovery_point_age_seconds",
        "Age of the oldest change that a recovery from the store alone would lose; 0 when there is none.",
        |m| Float(m.status.recovery_point.age_s),
    ),
    counter(
        "tombolo_recovery_points_total",
        "Recovery points that the store was told of.",
        |m| Integer(m.status.recovery_point.count),
    ),
    counter(
        "tombolo_recovery_point_failures_total",
        "Attempts to tell the store of a recovery point that failed and were repeated.",
        |m| Integer(m.status.recovery_point.failures),
    ),
    gauge(
        "tombolo_metadata_complete",
        "0 while a part of local metadata is in the store alone, after a recovery from it.",
        |m| Integer(u64::from(m.status.metadata.is_complete)),
    ),
    counter(
        "tombolo_metadata_loaded_records_total",
        "Pages of maps, entries and objects that were brought from the store after a recovery from it.",
        |m| Integer(m.status.metadata.loaded_records),
    ),
    gauge(
        "tombolo_clean_bytes_per_second",
        "Dirty data that became clean per second, lately.",
        |m| Float(m.status.upload.clean_bytes_per_s),
    ),
    gauge("tombolo_draining", "1 while a drain that was asked for goes on.", |m| {
        Integer(u64::from(m.status.upload.draining))
    }),
    counter(
        "tombolo_writes_throttled_total",
        "Writes slowed on the way to the limit.",
        |m| Integer(m.status.writes.throttled),
    ),
    counter(
        "tombolo_writes_stalled_total",
        "Writes that had to wait at the limit.",
        |m| Integer(m.status.writes.stalled),
    ),
    counter(
        "tombolo_writes_refused_total",
        "Writes, and flushes that wait for the store, refused as busy after waiting too long.",
        |m| Integer(m.status.writes.refused),
    ),
    counter(
        "tombolo_reads_refused_total",
        "Reads refused as the store did not bring their blocks; clients try again.",
        |m| Integer(m.core.counters.reads_refused),
    ),
    gauge("tombolo_writes_waiting", "Writes waiting at the limit now.", |m| {
        Integer(m.status.writes.waiting)
    }),
    // The store.
    gauge(
        "tombolo_store_state",
        "1 for the present state of the store, 0 for the others.",
        store_states,
    ),
    gauge(
        "tombolo_store_last_success_age_seconds",
        "Since the last request that succeeded; absent before the first.",
        |m| {
            let age = m.status.store.last_success_age_s;
            age.map_or(Integers(Vec::new()), Float)
        },
    ),
    histogram(
        "tombolo_store_request_duration_seconds",
        "Requests to the store, every attempt, by operation.",
        |m| {
            let counts = m.store.iter();
            Durations(
                counts
                    .map(|entry| (operation(entry.operation.name()), entry.micros.clone()))
                    .collect(),
            )
        },
    ),
    counter(
        "tombolo_store_request_bytes_total",
        "Payload of requests to the store, by operation.",
        |m| by_store_operation(m, |entry| entry.bytes),
    ),
    counter(
        "tombolo_store_request_failures_total",
        "Failed attempts, by operation and kind.",
        store_failures,
    ),
    counter(
        "tombolo_store_retries_total",
        "Requests to the store that were sent again after a passing failure.",
        |m| Integer(m.store_retries.retries),
    ),
    counter(
        "tombolo_store_requests_given_up_total",
        "Requests to the store that failed in all their attempts; uploads begin anew later.",
        |m| Integer(m.store_retries.gave_up),
    ),
    gauge(
        "tombolo_store_requests_waiting",
        "Requests to the store that wait for earlier ones, by class.",
        |m| {
            let gate = &m.store_gate;
            let classes = [
                ("demand", gate.demands_waiting),
                ("prefetch", gate.prefetches_waiting),
                ("put", gate.puts_waiting),
            ];
            let labelled = classes.map(|(class, waiting)| (vec![("class", class.to_owned())], waiting as u64));
            Integers(labelled.to_vec())
        },
    ),
    gauge(
        "tombolo_store_concurrency_limit",
        "Requests that may be in flight to the store, by direction; found out unless pinned.",
        |m| by_direction(m, |state| u64::from(state.limit)),
    ),
    gauge(
        "tombolo_store_rate_bytes_per_second",
        "The highest rate of late, by direction.",
        |m| by_direction(m, |state| state.bytes_per_s as u64),
    ),
    counter(
        "tombolo_store_concurrency_halvings_total",
        "Times that the store asked for less, or did not answer, and requests in flight were halved, by direction.",
        |m| by_direction(m, |state| state.halvings),
    ),
    gauge(
        "tombolo_store_upload_window_bytes",
        "Bytes of uploads that may be under way at once, by what the path carries; memory bounds them besides.",
        |m| Integer(m.store_pace.upload_window_bytes),
    ),
    gauge(
        "tombolo_store_download_window_bytes",
        "Bytes of downloads that may be under way at once, by what the path carries; memory bounds them besides.",
        |m| Integer(m.store_pace.download_window_bytes),
    ),
    counter(
        "tombolo_store_uploads_given_up_total",
        "Attempts of uploads that took far longer than such attempts do, and were made again.",
        |m| Integer(m.store_pace.uploads_given_up),
    ),
    gauge(
        "tombolo_store_bytes",
        "Bytes of all objects, after deduplication and compression.",
        |m| Integer(m.status.stored_bytes),
    ),
    gauge("tombolo_store_objects", "Objects in the store.", |m| {
        Integer(m.status.objects)
    }),
    counter("tombolo_uploads_total", "Objects uploaded.", |m| {
        Integer(m.core.counters.uploads)
    }),
    counter(
        "tombolo_upload_failures_total",
        "Uploads that failed after all attempts and begin again.",
        |m| Integer(m.core.counters.upload_failures),
    ),
    counter("tombolo_upload_bytes_total", "Bytes of uploaded objects.", |m| {
        Integer(m.core.counters.upload_bytes)
    }),
    gauge("tombolo_uploads_in_flight", "Objects on their way to the store.", |m| {
        Integer(m.status.upload.objects_in_flight)
    }),
    counter("tombolo_fetches_total", "Fetches from the store.", |m| {
        Integer(m.core.counters.fetches)
    }),
    counter(
        "tombolo_fetch_failures_total",
        "Fetches that failed after all attempts.",
        |m| Integer(m.core.counters.fetch_failures),
    ),
    gauge("tombolo_fetches_in_flight", "Fetches under way.", |m| {
        Integer(m.core.fetches_in_flight)
    }),
    // Replicas.
    gauge(
        "tombolo_replica_state",
        "1 for the present state of each replica of the store, 0 for the others.",
        |m| {
            let all = m.status.replicas.iter().flat_map(|replica| {
                ReplicaState::ALL.map(|state| {
                    let labels = vec![("replica", replica.name.clone()), ("state", state.name().to_owned())];
                    (labels, u64::from(replica.state == state.name()))
                })
            });
            Integers(all.collect())
        },
    ),
    gauge(
        "tombolo_replica_behind_objects",
        "Objects that are known to be lacking in a replica.",
        |m| by_replica(m, |replica| replica.behind_objects),
    ),
    gauge("tombolo_replica_behind_bytes", "Bytes of these objects.", |m| {
        by_replica(m, |replica| replica.behind_bytes)
    }),
    gauge(
        "tombolo_replica_behind_age_seconds",
        "For how long a replica has been lacking something; 0 when it lacks nothing.",
        |m| by_replica(m, |replica| replica.behind_age_s),
    ),
    gauge(
        "tombolo_replica_comparing",
        "1 while what a replica lacks is not known and has to be found out by comparing the listings.",
        |m| by_replica(m, |replica| u64::from(replica.is_compared)),
    ),
    counter(
        "tombolo_replica_brought_total",
        "Objects that were brought to a replica later, as it was away.",
        |m| by_replica(m, |replica| replica.brought),
    ),
    counter(
        "tombolo_replica_healed_total",
        "Objects that were put into a replica again as they were missing or altered.",
        |m| by_replica(m, |replica| replica.healed),
    ),
    counter(
        "tombolo_store_healed_total",
        "Objects that were put into the store itself again, from a replica, as they were missing or altered.",
        |m| Integer(m.reads.healed),
    ),
    counter(
        "tombolo_copy_reads_total",
        "Reads of objects that a store answered: `store`, or a replica's name. Absent without replicas.",
        |m| by_copy(m, &m.reads.answered),
    ),
    counter(
        "tombolo_copy_reads_failed_over_total",
        "Reads that a store did not answer, or too late, so that another was asked.",
        |m| by_copy(m, &m.reads.failed_over),
    ),
    counter(
        "tombolo_replica_requests_total",
        "Attempts of requests to each replica, by operation and cause.",
        |m| by_replica_and_cause(m, |count| count.requests),
    ),
    counter(
        "tombolo_replica_bytes_total",
        "Payload of requests to each replica, by operation and cause.",
        |m| by_replica_and_cause(m, |count| count.bytes),
    ),
    gauge(
        "tombolo_replica_bill_month_dollars",
        "What each replica has cost in this calendar month so far, at its own prices.",
        |m| {
            let bills = m.status.bill.replicas.iter();
            let of = |bill: &ReplicaBill| (vec![("replica", bill.name.clone())], bill.month_usd);
            Floats(bills.map(of).collect())
        },
    ),
    // What it costs.
    counter(
        "tombolo_store_requests_total",
        "Attempts of requests to the store, by operation and cause.",
        |m| by_cause(m, |count| count.requests),
    ),
    counter(
        "tombolo_store_requests_charged_total",
        "Those of them that a provider charges for: not what the store itself failed at, or what was never sent.",
        |m| by_cause(m, |count| count.charged),
    ),
    counter(
        "tombolo_store_cause_bytes_total",
        "Payload of requests to the store, by operation and cause.",
        |m| by_cause(m, |count| count.bytes),
    ),
    counter(
        "tombolo_bill_dollars_total",
        "What requests to the store and transfers have cost since the start, by cause.",
        |m| by_bill(m, |bill| bill.since_start_usd),
    ),
    gauge(
        "tombolo_bill_month_dollars",
        "What was spent in this calendar month so far, by cause, storage among them.",
        |m| {
            let bill = &m.status.bill;
            let mut causes = bill_by_cause(m, |cause| cause.month_usd);
            causes.push((vec![("cause", "storage".to_owned())], bill.month_storage_usd));
            Floats(causes)
        },
    ),
    gauge(
        "tombolo_bill_dollars_per_day",
        "What a day costs, by cause: requests and transfers as in the last day, and what is stored now.",
        |m| {
            let mut causes = bill_by_cause(m, |cause| cause.usd_per_day);
            let storage = m.status.bill.storage_usd_per_day;
            causes.push((vec![("cause", "storage".to_owned())], storage));
            Floats(causes)
        },
    ),
    gauge(
        "tombolo_bill_hour_dollars_per_day",
        "What a day of requests and transfers costs if all are as in the last hour.",
        |m| Float(m.status.bill.usd_per_day_of_hour),
    ),
    gauge(
        "tombolo_bill_forecast_dollars",
        "What this calendar month comes to if it goes on like the last day.",
        |m| Float(m.status.bill.all_stores_forecast_usd),
    ),
    gauge(
        "tombolo_bill_budget_dollars",
        "What a calendar month may cost; absent without a budget.",
        |m| m.status.bill.budget_usd.map_or(Floats(Vec::new()), Float),
    ),
    // Deduplication.
    counter(
        "tombolo_dedup_blocks_total",
        "Blocks written, by what became of them.",
        |m| {
            let dedup = &m.status.dedup;
            let outcomes = [
                ("zero", dedup.blocks_zero),
                ("duplicate", dedup.blocks_duplicate),
                ("unique", dedup.blocks_unique),
            ];
            Integers(
                outcomes
                    .map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], count))
                    .into(),
            )
        },
    ),
    gauge("tombolo_dedup_ratio", "Blocks written for each block uploaded.", |m| {
        Float(m.status.dedup.ratio)
    }),
    gauge("tombolo_index_entries", "Fingerprints in the index.", |m| {
        Integer(m.local.index_entries)
    }),
    gauge("tombolo_index_runs", "Sorted runs of the index on disk.", |m| {
        Integer(m.local.index_runs)
    }),
    counter(
        "tombolo_index_entries_dropped_total",
        "Fingerprints not kept because the index could not be written: their contents may be stored twice.",
        |m| Integer(m.local.index_entries_dropped),
    ),
    // The cache.
    gauge("tombolo_cache_size_bytes", "Size of the cache.", |m| {
        Integer(m.status.cache.size_bytes)
    }),
    gauge(
        "tombolo_cache_used_bytes",
        "Dirty and clean blocks in the cache.",
        |m| Integer(m.status.cache.used_bytes),
    ),
    counter(
        "tombolo_cache_block_reads_total",
        "Blocks read, by what the cache could do.",
        |m| {
            let cache = &m.status.cache;
            let results = [
                ("hit", cache.hits),
                ("partial_miss", cache.partial_misses),
                ("complete_miss", cache.complete_misses),
            ];
            Integers(
                results
                    .map(|(result, count)| (vec![("result", result.to_owned())], count))
                    .into(),
            )
        },
    ),
    counter("tombolo_cache_blocks_prefetched_total", "Blocks prefetched.", |m| {
        Integer(m.status.cache.blocks_prefetched)
    }),
    counter(
        "tombolo_policy_reads_total",
        "Reads by their worst block, by the policies at work.",
        |m| {
            by_outcome(m, |counted| {
                [counted.reads_hit, counted.reads_partial, counted.reads_missed]
            })
        },
    ),
    counter(
        "tombolo_policy_block_reads_total",
        "Blocks read, by what the cache could do and the policies at work.",
        |m| {
            by_outcome(m, |counted| {
                [counted.hits, counted.partial_misses, counted.complete_misses]
            })
        },
    ),
    counter(
        "tombolo_policy_sample_reads_total",
        "Blocks read of the sample on which replacement policies are compared.",
        |m| Integer(m.status.policy.comparison.blocks_read),
    ),
    counter(
        "tombolo_policy_sample_hits_total",
        "Of them, what a cache of each replacement policy would have held, without prefetch.",
        |m| {
            let policies = m.status.policy.comparison.policies.iter();
            Integers(
                policies
                    .map(|one| (vec![("replacement", one.replacement.clone())], one.hits))
                    .collect(),
            )
        },
    ),
    counter(
        "tombolo_prefetch_blocks_total",
        "Blocks prefetched, by the policies at work.",
        |m| by_policy(m, |counted| counted.prefetched),
    ),
    counter(
        "tombolo_prefetch_used_blocks_total",
        "Prefetched blocks that were read.",
        |m| by_policy(m, |counted| counted.used),
    ),
    counter(
        "tombolo_prefetch_wasted_blocks_total",
        "Prefetched blocks evicted before anybody read them.",
        |m| by_policy(m, |counted| counted.wasted),
    ),
    counter(
        "tombolo_prefetch_dropped_blocks_total",
        "Blocks whose prefetch failed or was given up.",
        |m| by_policy(m, |counted| counted.dropped),
    ),
    counter(
        "tombolo_prefetch_accesses_total",
        "Reads of prefetched blocks while they stayed.",
        |m| by_policy(m, |counted| counted.accesses),
    ),
    gauge(
        "tombolo_prefetch_efficiency_ratio",
        "Prefetched blocks that were read, in all prefetched.",
        |m| by_policy_float(m, |counted| counted.efficiency),
    ),
    gauge(
        "tombolo_prefetch_accesses_per_block",
        "Reads of prefetched blocks, for each block prefetched.",
        |m| by_policy_float(m, |counted| counted.accesses_per_prefetched),
    ),
    counter(
        "tombolo_prefetch_suggestions_total",
        "Suggestions, or pieces of one, that were followed.",
        |m| by_policy(m, |counted| counted.suggestions_admitted),
    ),
    counter(
        "tombolo_prefetch_suggestions_refused_total",
        "Suggestions, or pieces of one, that were not worth their price.",
        |m| by_policy(m, |counted| counted.suggestions_refused),
    ),
    counter(
        "tombolo_prefetch_refused_blocks_total",
        "Blocks of the suggestions that were not worth their price.",
        |m| by_policy(m, |counted| counted.blocks_refused),
    ),
    gauge(
        "tombolo_prefetch_unread_blocks",
        "Prefetched blocks in the cache that nobody has read yet.",
        |m| Integer(m.status.policy.unread_blocks),
    ),
    gauge(
        "tombolo_prefetch_streams",
        "Streams that the prefetcher follows.",
        |m| Integer(m.status.policy.streams),
    ),
    gauge("tombolo_prefetch_graph_nodes", "Nodes of the history.", |m| {
        Integer(m.status.policy.graph_nodes)
    }),
    gauge("tombolo_prefetch_graph_edges", "Edges of the history.", |m| {
        Integer(m.status.policy.graph_edges)
    }),
    gauge(
        "tombolo_prefetch_memory_bytes",
        "Memory of the prefetcher, its history included.",
        |m| Integer(m.status.policy.prefetcher_memory_bytes),
    ),
    counter(
        "tombolo_cache_slots_corrupt_total",
        "Slots whose content did not match its checksum.",
        |m| Integer(m.status.cache.slots_corrupt),
    ),
    counter(
        "tombolo_cache_slots_stale_total",
        "Slots that held an older block than expected.",
        |m| Integer(m.core.counters.slots_stale),
    ),
    gauge(
        "tombolo_cache_blocks_unreadable",
        "Dirty blocks whose slots cannot be read for the time being.",
        |m| Integer(m.status.cache.blocks_unreadable),
    ),
    counter(
        "tombolo_blocks_lost_total",
        "Blocks found to be lost: their object missing or altered, or their only copy corrupt.",
        |m| Integer(m.status.cache.blocks_lost),
    ),
    // The local disk.
    gauge(
        "tombolo_journal_bytes",
        "Journal that a restart would replay or that is not free yet.",
        |m| Integer(m.status.journal.bytes),
    ),
    gauge("tombolo_checkpoint_age_seconds", "Since the last checkpoint.", |m| {
        Float(m.status.journal.last_checkpoint_age_s)
    }),
    gauge(
        "tombolo_replay_records",
        "Records that a restart would replay now.",
        |m| Integer(m.status.journal.replay_records),
    ),
    gauge(
        "tombolo_replay_seconds",
        "How long that would take, as the last replay lets expect.",
        |m| Float(m.status.journal.replay_s),
    ),
    gauge(
        "tombolo_checkpoint_behind",
        "1 while changes wait for the checkpoint under way.",
        |m| Integer(u64::from(m.status.journal.is_behind)),
    ),
    counter("tombolo_checkpoints_total", "Checkpoints.", |m| {
        Integer(m.core.counters.checkpoints)
    }),
    counter("tombolo_syncs_total", "Group commits to stable storage.", |m| {
        Integer(m.core.counters.syncs)
    }),
    gauge(
        "tombolo_sync_seconds",
        "How long a group commit takes, on average.",
        |m| Float(m.status.journal.group_commit.sync_s),
    ),
    gauge(
        "tombolo_group_commit_interval_seconds",
        "What a group commit is held back at the most, or the time between two, as `[journal] group_commit` has it; 0 at once.",
        |m| Float(m.status.journal.group_commit.interval_s),
    ),
    counter(
        "tombolo_group_commits_held_back_total",
        "Group commits that waited for more to join.",
        |m| Integer(m.status.journal.group_commit.held_back),
    ),
    counter(
        "tombolo_group_commit_accelerations_total",
        "Times that Stout shortened the interval between group commits.",
        |m| Integer(m.status.journal.group_commit.accelerations),
    ),
    counter(
        "tombolo_group_commit_back_offs_total",
        "Times that Stout lengthened it.",
        |m| Integer(m.status.journal.group_commit.back_offs),
    ),
    gauge(
        "tombolo_writes_absorbed_ratio",
        "The share of what was written lately that was replaced within `[flush] flush_delay_ms`; above 0.125 uploads wait for it.",
        |m| Float(m.status.upload.absorbed_share),
    ),
    gauge(
        "tombolo_upload_interval_seconds",
        "Stout's interval between rounds of uploads; 0 without it.",
        |m| Float(upload_interval(m).interval_s),
    ),
    gauge(
        "tombolo_upload_latency_seconds",
        "How long objects took from when they were ready, as Stout saw it last; 0 without it.",
        |m| Float(upload_interval(m).latency_s),
    ),
    counter(
        "tombolo_upload_interval_accelerations_total",
        "Times that Stout shortened the interval between rounds of uploads.",
        |m| Integer(upload_interval(m).accelerations),
    ),
    counter(
        "tombolo_upload_interval_back_offs_total",
        "Times that Stout lengthened it.",
        |m| Integer(upload_interval(m).back_offs),
    ),
    gauge("tombolo_metadata_bytes", "Local metadata on disk.", |m| {
        Integer(m.local.metadata_bytes)
    }),
    gauge("tombolo_memory_bytes", "Memory by purpose.", memory),
    gauge("tombolo_resident_memory_bytes", "Memory of the whole process.", |m| {
        Integer(m.status.memory.resident_bytes)
    }),
    // Clients.
    gauge("tombolo_connections", "Clients connected.", |m| {
        Integer(m.status.connections)
    }),
    gauge(
        "tombolo_volumes",
        "Volumes.",
        |m| Integer(m.status.volumes.len() as u64),
    ),
    gauge(
        "tombolo_volume_size_bytes",
        "Size of each volume as its clients see it.",
        |m| {
            let volumes = m.status.volumes.iter();
            Integers(
                volumes
                    .map(|volume| (vec![("volume", volume.name.clone())], volume.size_bytes))
                    .collect(),
            )
        },
    ),
    histogram(
        "tombolo_request_duration_seconds",
        "Requests of clients until their answer, by operation.",
        |m| durations(&m.requests),
    ),
    counter(
        "tombolo_request_bytes_total",
        "Data of clients' requests, by operation.",
        |m| by_operation(&m.requests, |entry| entry.bytes),
    ),
    counter(
        "tombolo_request_errors_total",
        "Requests of clients answered with an error, by operation.",
        |m| by_operation(&m.requests, |entry| entry.errors),
    ),
    // Shares.
    gauge("tombolo_shares", "Shares, those being deleted included.", |m| {
        Integer(m.status.shares.len() as u64)
    }),
    gauge(
        "tombolo_share_used_bytes",
        "Bytes that files of each share occupy.",
        |m| by_share(m, |share| Some(share.used_bytes)),
    ),
    gauge(
        "tombolo_share_quota_bytes",
        "The most that they may occupy; absent without a quota.",
        |m| by_share(m, |share| share.quota_bytes),
    ),
    gauge(
        "tombolo_share_inodes",
        "Files, directories and everything else of each share.",
        |m| by_share(m, |share| Some(share.inodes)),
    ),
    gauge(
        "tombolo_share_sessions",
        "Clients of each share by kind and state; away: gone, and waited for.",
        sessions,
    ),
    histogram(
        "tombolo_file_request_duration_seconds",
        "Requests of file clients until their answer, by operation.",
        |m| durations(&m.file_requests),
    ),
    counter(
        "tombolo_file_request_bytes_total",
        "Data of file clients' requests, by operation.",
        |m| by_operation(&m.file_requests, |entry| entry.bytes),
    ),
    counter(
        "tombolo_file_request_errors_total",
        "Requests of file clients that the gateway failed to carry out, by operation.",
        |m| by_operation(&m.file_requests, |entry| entry.errors),
    ),
    gauge(
        "tombolo_check_findings",
        "What the latest finished check of all shares found; absent before the first.",
        |m| m.check_findings.map_or(Integers(Vec::new()), Integer),
    ),
];

/// All zero where the intervals are not Stout's.
fn upload_interval(metrics: &Metrics) -> UploadIntervalStatus {
    metrics.status.upload.interval.clone().unwrap_or_default()
}

fn operation(name: &'static str) -> Labels {
    vec![("operation", name.to_owned())]
}

fn durations(entries: &[OperationMetrics]) -> Reading {
    let labelled = |entry: &OperationMetrics| (operation(entry.operation), entry.micros.clone());
    Durations(entries.iter().map(labelled).collect())
}

fn by_operation(entries: &[OperationMetrics], read: fn(&OperationMetrics) -> u64) -> Reading {
    Integers(
        entries
            .iter()
            .map(|entry| (operation(entry.operation), read(entry)))
            .collect(),
    )
}

fn by_share(metrics: &Metrics, read: fn(&ShareInfo) -> Option<u64>) -> Reading {
    let labelled = |share: &ShareInfo| Some((vec![("share", share.name.clone())], read(share)?));
    Integers(metrics.status.shares.iter().filter_map(labelled).collect())
}

/// All kinds and states of every share, so that a client that is gone shows as 0 and not as nothing.
fn sessions(metrics: &Metrics) -> Reading {
    let mut counts = Vec::new();
    for share in &metrics.status.shares {
        for kind in [SessionKind::Mount, SessionKind::Socket] {
            for (state, connected) in [("connected", true), ("away", false)] {
                let same = |session: &&SessionInfo| session.kind == kind && session.connected == connected;
                let count = share.sessions.iter().filter(same).count() as u64;
                let labels = vec![
                    ("share", share.name.clone()),
                    ("kind", kind.as_str().to_owned()),
                    ("state", state.to_owned()),
                ];
                counts.push((labels, count));
            }
        }
    }
    Integers(counts)
}

fn by_store_operation(metrics: &Metrics, read: fn(&OperationCounts) -> u64) -> Reading {
    Integers(
        metrics
            .store
            .iter()
            .map(|entry| (operation(entry.operation.name()), read(entry)))
            .collect(),
    )
}

fn by_direction(metrics: &Metrics, read: fn(&State) -> u64) -> Reading {
    let directions = [("get", &metrics.store_pace.gets), ("put", &metrics.store_pace.puts)];
    let labelled = directions.map(|(name, state)| (vec![("direction", name.to_owned())], read(state)));
    Integers(labelled.to_vec())
}

fn by_cause(metrics: &Metrics, read: fn(&CauseCounts) -> u64) -> Reading {
    let labelled = |count: &CauseCounts| {
        let mut labels = operation(count.operation.name());
        labels.push(("cause", count.cause.name().to_owned()));
        (labels, read(count))
    };
    Integers(metrics.store_causes.iter().map(labelled).collect())
}

fn bill_by_cause(metrics: &Metrics, read: fn(&CauseBill) -> f64) -> Vec<(Labels, f64)> {
    let labelled = |bill: &CauseBill| (vec![("cause", bill.cause.clone())], read(bill));
    metrics.status.bill.causes.iter().map(labelled).collect()
}

fn by_replica(metrics: &Metrics, read: fn(&ReplicaInfo) -> u64) -> Reading {
    let replicas = metrics.status.replicas.iter();
    let of = |replica: &ReplicaInfo| (vec![("replica", replica.name.clone())], read(replica));
    Integers(replicas.map(of).collect())
}

/// The store's own copy first.
fn by_copy(metrics: &Metrics, counts: &[u64]) -> Reading {
    let names = metrics.status.replicas.iter().map(|replica| replica.name.clone());
    let names = std::iter::once("store".to_owned()).chain(names);
    Integers(
        names
            .map(|name| vec![("copy", name)])
            .zip(counts.iter().copied())
            .collect(),
    )
}

/// Those that have occurred.
fn by_replica_and_cause(metrics: &Metrics, read: fn(&CauseCounts) -> u64) -> Reading {
    let all = metrics.replicas.iter().flat_map(|replica| {
        let counts = replica.causes.iter().filter(|count| count.requests > 0);
        counts.map(|count| {
            let labels = vec![
                ("replica", replica.status.name.clone()),
                ("operation", count.operation.name().to_owned()),
                ("cause", count.cause.name().to_owned()),
            ];
            (labels, read(count))
        })
    });
    Integers(all.collect())
}

fn by_bill(metrics: &Metrics, read: fn(&CauseBill) -> f64) -> Reading {
    Floats(bill_by_cause(metrics, read))
}

fn pair(tally: &PolicyTally) -> Labels {
    vec![
        ("replacement", tally.replacement.clone()),
        ("prefetch", tally.prefetch.clone()),
    ]
}

fn by_policy(metrics: &Metrics, read: fn(&PolicyCounters) -> u64) -> Reading {
    let tallies = metrics.status.policy.tallies.iter();
    Integers(tallies.map(|tally| (pair(tally), read(&tally.counters))).collect())
}

fn by_policy_float(metrics: &Metrics, read: fn(&PolicyTally) -> f64) -> Reading {
    let tallies = metrics.status.policy.tallies.iter();
    Floats(tallies.map(|tally| (pair(tally), read(tally))).collect())
}

/// Hits, partial misses and misses.
fn by_outcome(metrics: &Metrics, read: fn(&PolicyCounters) -> [u64; 3]) -> Reading {
    let labelled = |tally: &PolicyTally| {
        let pair = pair(tally);
        let results = ["hit", "partial_miss", "complete_miss"]
            .into_iter()
            .zip(read(&tally.counters));
        results.map(move |(result, count)| {
            let mut labels = pair.clone();
            labels.push(("result", result.to_owned()));
            (labels, count)
        })
    };
    Integers(metrics.status.policy.tallies.iter().flat_map(labelled).collect())
}

fn store_states(metrics: &Metrics) -> Reading {
    let present = metrics.status.store.state;
    let states = [
        StoreState::Ok,
        StoreState::Damaged,
        StoreState::Degraded,
        StoreState::Unreachable,
        StoreState::Full,
        StoreState::Denied,
        StoreState::Missing,
    ];
    Integers(
        states
            .map(|state| (vec![("state", state.as_str().to_owned())], u64::from(state == present)))
            .into(),
    )
}

fn store_failures(metrics: &Metrics) -> Reading {
    let labelled = |entry: &OperationCounts| {
        let name = entry.operation.name();
        let failures = entry.failures.clone();
        failures.into_iter().map(move |(kind, count)| {
            (
                vec![("operation", name.to_owned()), ("kind", kind.name().to_owned())],
                count,
            )
        })
    };
    Integers(metrics.store.iter().flat_map(labelled).collect())
}

fn memory(metrics: &Metrics) -> Reading {
    let memory = &metrics.status.memory;
    let purposes = [
        ("slots", memory.slots_bytes),
        ("dirty", memory.dirty_bytes),
        ("map_cache", memory.map_cache_bytes),
        ("descriptor_cache", memory.descriptor_cache_bytes),
        ("fingerprint_index", memory.fingerprint_index_bytes),
        ("prefetcher", memory.prefetcher_bytes),
    ];
    Integers(
        purposes
            .map(|(purpose, bytes)| (vec![("purpose", purpose.to_owned())], bytes))
            .into(),
    )
}
