//! Which policies the gateway runs with: a seed decides, and may decide anew while clients are at work.

use crate::faults::operation::Operation;
use crate::faults::world::World;
use tombolo_base::Prng;
use tombolo_billing::Table;
use tombolo_cache::{Capacity, Grouping, Policy};
use tombolo_core::{Economy, Policies};
use tombolo_prefetch::{Addressing, PolicyConfig, PolicyName};

/// Policies as data; each life of the gateway builds its own.
#[derive(Clone, Debug)]
pub struct PolicyChoice {
    pub replacement: Policy,
    pub prefetch: PolicyConfig,
    pub addressing: Addressing,
    pub economy: Economy,
}

impl PolicyChoice {
    pub fn draw(prng: &mut Prng) -> Self {
        let name = PolicyName::ALL[prng.below(PolicyName::ALL.len() as u64) as usize];
        let addressing = match prng.below(1_000) {
            0..250 => Addressing::Pvbn,
            250..500 => Addressing::Logical,
            _ => Addressing::Both,
        };
        // About half of what a fetch of some blocks costs is worth waiting for.
        let economy = Economy {
            prices: Table::AwsS3Standard.prices().units(),
            microdollars_per_second: prng.chance(300).then(|| prng.below(2_000)),
        };
        Self {
            replacement: Policy::ALL[prng.below(Policy::ALL.len() as u64) as usize],
            prefetch: small(name, prng),
            addressing,
            economy,
        }
    }

    pub fn build(&self, slot_count: u32) -> Policies {
        let grouping = Grouping::Objects { evict_blocks: 16 };
        Policies {
            replacement: self.replacement.build(Capacity::of_blocks(slot_count), grouping),
            prefetcher: self.prefetch.build(),
            addressing: self.addressing,
            economy: self.economy,
        }
    }
}

/// A prefetcher for a cache of some hundred blocks.
fn small(name: PolicyName, prng: &mut Prng) -> PolicyConfig {
    let mut config = PolicyConfig::of(name);
    match &mut config {
        PolicyConfig::Ramp { window_blocks_max } => *window_blocks_max = 1 + prng.below(64),
        PolicyConfig::Sequential(sequential) => sequential.degree_blocks = 1 + prng.below(32),
        PolicyConfig::Amp(amp) => amp.degree_blocks_max = 1 + prng.below(32),
        PolicyConfig::Graph(graph) => {
            graph.memory_bytes_max = 8 << 20;
            graph.memo_entries = 64;
            graph.clients_max = 8;
            graph.track_blocks = 1 << prng.below(5);
            graph.amp.degree_blocks_max = 1 + prng.below(32);
        }
        PolicyConfig::Hou(hou) => hou.chunk_blocks = 1 + prng.below(16),
        PolicyConfig::Linux(linux) => linux.window_blocks_max = 1 + prng.below(64),
        PolicyConfig::Mithril(mithril) => {
            (mithril.recorded_max, mithril.mined_max, mithril.partners_max) = (256, 32, 256);
        }
        PolicyConfig::Probability(probability) => probability.reads_max = 256,
        PolicyConfig::None | PolicyConfig::Leap(_) => {}
    }
    config
}

impl World {
    pub(crate) fn schedule_policy_change(&mut self) {
        let interval_ms = self.scenario.policy_change_interval_ms;
        if interval_ms > 0 && !self.is_calm {
            let micros = self.prng.below(2 * interval_ms * 1_000);
            self.schedule(micros, Operation::PoliciesChange);
        }
    }

    /// As an administrator would; until the next restart. Nothing that is cached may be lost by it.
    pub(crate) fn change_policies(&mut self) {
        if self.is_calm {
            return;
        }
        let choice = PolicyChoice::draw(&mut self.prng);
        self.say(|| format!("policies from now on: {choice:?}"));
        let clean = self.core.snapshot().slots_clean;
        let policies = choice.build(self.scenario.config.slot_count);
        if self.prng.chance(700) && self.core.check_replacement_settled().is_ok() {
            self.core.set_replacement(policies.replacement);
        }
        if self.prng.chance(700) {
            self.core.set_prefetcher(policies.prefetcher, policies.addressing);
        }
        self.core.set_economy(policies.economy);
        self.core.check_invariants();
        assert_eq!(
            self.core.snapshot().slots_clean,
            clean,
            "a change of policy keeps the cache"
        );
        self.schedule_policy_change();
    }
}
