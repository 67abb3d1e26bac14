//! Findings of a check of the store, for people: where, what, and what to do.

use crate::admin::model::{StoreFinding, StoreFindingKind};
use crate::runtime::{CheckedObject, FingerprintFinding, Gateway, MetadataFinding};
use tombolo_base::{ObjectDescriptor, Pvbn, VolumeId};
use tombolo_cloud_driver::keys::KEYS_NAME;
use tombolo_core::audit::{AuditFinding, Listed};
use tombolo_core::local_metadata::Table;
use tombolo_core::{Extent, Target};

const RESTORE_OBJECT: &str = "restore the object from a copy of the bucket; else what refers to its blocks reads as an error until it is written again";
const RESTORE_METADATA: &str = "clients are not harmed while the local disk is whole, but `tombolo recover` would need it: restore \
     it from a copy of the bucket";
const RESTORE_KEYS: &str = "clients are not harmed while the local disk is whole, but `tombolo recover` would need it: remove it if \
     it is there, and restart the gateway, which puts the copy of its state directory in its place; else restore it from a copy of the bucket";
const RESTORE_STATE: &str = "local metadata is damaged: stop the gateway and restore the state directory from a copy, or make it \
     anew from the store with `tombolo recover` after a drain";
const COMPARE_STATE: &str = "one of the two is damaged: do not recover from the store before it is known which; restore the state \
     directory or the bucket from a copy, and report it";

pub(super) fn object_finding(descriptor: &ObjectDescriptor, object: &CheckedObject) -> Option<StoreFinding> {
    let (kind, message) = match object {
        CheckedObject::Missing => (StoreFindingKind::ObjectMissing, "it is missing".to_owned()),
        CheckedObject::Altered(reason) => (StoreFindingKind::ObjectAltered, reason.clone()),
        CheckedObject::Whole | CheckedObject::Unknown(_) => return None,
    };
    Some(StoreFinding {
        kind,
        object: descriptor.id().key(),
        first_pvbn: descriptor.first_pvbn().0,
        last_pvbn: descriptor.last_pvbn().0,
        blocks: descriptor.blocks().len() as u64,
        message,
        advice: RESTORE_OBJECT.into(),
        ..StoreFinding::default()
    })
}

pub(super) fn fingerprint_finding(wrong: &FingerprintFinding) -> StoreFinding {
    StoreFinding {
        kind: StoreFindingKind::FingerprintWrong,
        first_pvbn: wrong.pvbn.0,
        last_pvbn: wrong.pvbn.0,
        blocks: 1,
        message: format!(
            "the fingerprint index leads from {} to this block, which has other contents",
            wrong.fingerprint
        ),
        advice: "equal blocks that are written would read as these: stop the gateway, remove `index/` from the state directory, and \
                 start it again; what is stored until now is then stored once more when it is written again"
            .into(),
        ..StoreFinding::default()
    }
}

pub(super) fn metadata_finding(gateway: &Gateway, finding: MetadataFinding) -> StoreFinding {
    match finding {
        MetadataFinding::Object { name, reason } => StoreFinding {
            kind: StoreFindingKind::StoreMetadata,
            advice: match name == KEYS_NAME {
                true => RESTORE_KEYS.into(),
                false => RESTORE_METADATA.into(),
            },
            object: name,
            message: reason,
            ..StoreFinding::default()
        },
        MetadataFinding::Local(reason) => StoreFinding {
            kind: StoreFindingKind::LocalMetadata,
            message: reason,
            advice: RESTORE_STATE.into(),
            ..StoreFinding::default()
        },
        MetadataFinding::Differs(finding) => audit_finding(gateway, finding),
    }
}

pub(super) fn audit_finding(gateway: &Gateway, finding: AuditFinding) -> StoreFinding {
    match finding {
        AuditFinding::References {
            pvbn,
            blocks,
            counted,
            named,
        } => StoreFinding {
            kind: StoreFindingKind::References,
            message: format!("{counted} references are counted to each, and the maps have {named}"),
            advice: RESTORE_STATE.into(),
            ..of_pvbns(pvbn, blocks)
        },
        AuditFinding::NoObject { run, is_damaged_slot } => StoreFinding {
            kind: StoreFindingKind::BlocksLost,
            message: match is_damaged_slot {
                true => "the only copy, in the cache file, is damaged".into(),
                false => "no object and no slot of the cache file has them".into(),
            },
            advice:
                "they read as errors until they are written again: restore them from a backup of the volume or file"
                    .into(),
            ..of_run(gateway, &run)
        },
        AuditFinding::MisplacedObject { key, first } => StoreFinding {
            kind: StoreFindingKind::ObjectMisplaced,
            message: format!("it is listed under {key:02x?}, and begins with another PVBN"),
            advice: RESTORE_STATE.into(),
            ..of_pvbns(first, 1)
        },
        AuditFinding::Map { local, bucket } => StoreFinding {
            kind: StoreFindingKind::MapDiffers,
            message: format!(
                "they map to {} in local metadata, and to {} in the store's",
                target_shown(local.target),
                target_shown(bucket)
            ),
            advice: COMPARE_STATE.into(),
            ..of_run(gateway, &local)
        },
        AuditFinding::Object { first, listed } => StoreFinding {
            kind: StoreFindingKind::ObjectDiffers,
            message: format!("the object that begins with it: {}", listed_shown(listed)),
            advice: COMPARE_STATE.into(),
            ..of_pvbns(first, 1)
        },
        AuditFinding::Record { table, key, listed } => {
            let what = if table == Table::Counters { "counter" } else { "entry" };
            StoreFinding {
                kind: StoreFindingKind::RecordDiffers,
                message: format!("{what} {}: {}", key.escape_ascii(), listed_shown(listed)),
                advice: COMPARE_STATE.into(),
                ..StoreFinding::default()
            }
        }
        AuditFinding::Volume { volume, listed } => StoreFinding {
            kind: StoreFindingKind::VolumeDiffers,
            volume: Some(volume_shown(gateway, volume)),
            message: listed_shown(listed).into(),
            advice: COMPARE_STATE.into(),
            ..StoreFinding::default()
        },
    }
}

fn of_pvbns(first: Pvbn, blocks: u64) -> StoreFinding {
    StoreFinding {
        first_pvbn: first.0,
        last_pvbn: first.0.saturating_add(blocks.saturating_sub(1)),
        blocks,
        ..StoreFinding::default()
    }
}

fn of_run(gateway: &Gateway, run: &Extent) -> StoreFinding {
    let of_pvbns = match run.target {
        Target::At(first) => of_pvbns(first, run.count),
        Target::Hole => StoreFinding {
            blocks: run.count,
            ..StoreFinding::default()
        },
    };
    StoreFinding {
        volume: Some(volume_shown(gateway, run.volume)),
        first_block: run.first,
        ..of_pvbns
    }
}

fn volume_shown(gateway: &Gateway, volume: VolumeId) -> String {
    gateway.name_of(volume)
}

fn target_shown(target: Target) -> String {
    match target {
        Target::At(pvbn) => format!("PVBN {}", pvbn.0),
        Target::Hole => "nothing".into(),
    }
}

fn listed_shown(listed: Listed) -> &'static str {
    match listed {
        Listed::Locally => "local metadata has it, the store's does not",
        Listed::InBucket => "the store's metadata has it, the local does not",
        Listed::Differently => "local metadata and the store's say different things of it",
    }
}
