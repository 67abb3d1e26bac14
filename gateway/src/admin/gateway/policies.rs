//! Which policies are at work, and their change while the gateway runs. It lasts until the next start, which follows the
//! settings file again.

use crate::admin::model::{ControlError, ErrorKind, PolicyComparison, PolicySetting, PolicyStatus, PolicyTally};
use crate::runtime::Gateway;
use crate::settings::{Fault, PolicySettings, Settings};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tombolo_billing::UnitPrices;
use tombolo_core::{PolicySnapshot, ReplacementChanging};
use tombolo_prefetch::Addressing;

/// The settings in force, of which only what concerns policies ever changes.
pub(super) struct PolicyControl {
    gateway: Arc<Gateway>,
    settings: Mutex<Settings>,
    prices: UnitPrices,
}

impl PolicyControl {
    pub fn new(gateway: Arc<Gateway>, settings: &Settings, prices: UnitPrices) -> Self {
        Self {
            gateway,
            settings: Mutex::new(settings.clone()),
            prices,
        }
    }

    pub fn status(&self, snapshot: &PolicySnapshot) -> PolicyStatus {
        let settings = self.settings();
        let set = settings.policy_fields().into_iter().filter_map(|field| {
            Some(PolicySetting {
                section: field.section.into_owned(),
                key: field.key.into(),
                value: field.value?,
            })
        });
        PolicyStatus {
            replacement: snapshot.replacement.into(),
            prefetch: snapshot.prefetch.into(),
            combination: settings
                .policies(self.prices)
                .combination()
                .map(|name| name.to_string()),
            addressing: match snapshot.addressing {
                Addressing::Logical => "logical".into(),
                Addressing::Pvbn => "pvbn".into(),
                Addressing::Both => "both".into(),
            },
            tallies: snapshot.tallies.iter().map(PolicyTally::from).collect(),
            streams: snapshot.prefetcher.streams as u64,
            graph_nodes: snapshot.prefetcher.nodes as u64,
            graph_edges: snapshot.prefetcher.edges as u64,
            prefetcher_memory_bytes: snapshot.prefetcher.bytes as u64,
            unread_blocks: snapshot.unread_blocks,
            calibration_sequential_permille: snapshot.calibration_permille[0],
            calibration_history_permille: snapshot.calibration_permille[1],
            comparison: PolicyComparison::new(&snapshot.comparison, snapshot.replacement),
            settings: set.collect(),
        }
    }

    /// Refuses what cannot be done, and lets nobody else change anything before the change is carried out or dropped.
    pub fn prepare(&self, changes: toml::Table) -> Result<PolicyChange<'_>, ControlError> {
        let settings = self.settings();
        let changed = settings.with_policies(changes).map_err(|faults| invalid(&faults))?;
        let (before, after) = (settings.policies(self.prices), changed.policies(self.prices));
        if before.replacement != after.replacement {
            let refused = |changing: ReplacementChanging| ControlError::new(ErrorKind::Busy, changing.to_string());
            self.gateway.check_replacement_settled().map_err(refused)?;
        }
        Ok(PolicyChange {
            gateway: &self.gateway,
            settings,
            changed,
            before,
            after,
        })
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change that nothing stands in the way of.
pub(super) struct PolicyChange<'a> {
    gateway: &'a Arc<Gateway>,
    settings: MutexGuard<'a, Settings>,
    changed: Settings,
    before: PolicySettings,
    after: PolicySettings,
}

impl PolicyChange<'_> {
    /// Only what differs is changed: a policy that stays keeps what it has learnt.
    pub fn carry_out(mut self) {
        let (before, after) = (&self.before, &self.after);
        if before.replacement != after.replacement {
            self.gateway.set_replacement(after.replacement);
        }
        if (&before.prefetch, before.addressing) != (&after.prefetch, after.addressing) {
            self.gateway.set_prefetch(&after.prefetch, after.addressing);
        }
        if before.economy != after.economy {
            self.gateway.set_economy(after.economy);
        }
        tracing::info!(
            replacement = after.replacement.name(),
            prefetch = after.prefetch.name().name(),
            "policies changed until the next start"
        );
        *self.settings = self.changed;
    }
}

fn invalid(faults: &[Fault]) -> ControlError {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    ControlError::new(ErrorKind::Invalid, texts.join("\n"))
}
