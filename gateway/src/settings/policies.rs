//! Policies by their names, and from settings to the policies themselves.

use super::ByteSize;
use super::value::{Value, quoted};
use super::{Cache, Fault, Prefetch, PrefetchAddressing, Settings};
use std::str::FromStr;
use tombolo_base::{BLOCK_BYTES, Named};
use tombolo_billing::{Table, UnitPrices};
use tombolo_cache::Policy;
use tombolo_core::Economy;
use tombolo_prefetch::{Addressing, Combination, PolicyConfig, PolicyName};

/// What the gateway runs with when nothing is set.
pub(super) const DEFAULT_REPLACEMENT: Policy = Policy::TwoQ;
pub(super) const DEFAULT_PREFETCH: PolicyName = PolicyName::Graph;

/// Under SARC a stream is one from its third read on: AMP runs only for what SARC deems sequential.
const SARC_STREAM_READS: u32 = 3;

/// Policies that weigh dirty blocks, of which no policy here has any, and what is left of them without.
const REPLACED: [(&str, &str); 4] = [
    ("gds-l", "gds-latency"),
    ("gds-lf", "gdsf-latency"),
    ("gds-lc", "gds-latency"),
    ("gds-lcf", "gdsf-latency"),
];

fn parse_name<T: Named + FromStr>(value: &toml::Value) -> Result<T, String> {
    let parsed = value.as_str().and_then(|word| word.parse().ok());
    parsed.ok_or_else(|| {
        let known = T::WORDS.join(", ");
        let mut replaced = REPLACED.iter().filter(|(_, now)| T::WORDS.contains(now));
        let advice = match replaced.find(|(before, _)| value.as_str() == Some(before)) {
            Some((_, now)) => format!("say {now} instead, or one of {known}"),
            None => format!("choose one of {known}"),
        };
        format!("{value} is not a valid {}; {advice}", T::WHAT)
    })
}

macro_rules! named {
    ($($type:ty),+) => { $(
        impl Value for $type {
            const NAME: &'static str = "string";

            fn parse(value: toml::Value) -> Result<Self, String> {
                parse_name(&value)
            }

            fn written(&self) -> Option<String> {
                Some(quoted(self.name()))
            }
        }
    )+ };
}

named!(Policy, PolicyName, Combination, Table);

/// Everything that says which policies are at work, ready to be built.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    pub replacement: Policy,
    pub prefetch: PolicyConfig,
    pub addressing: Addressing,
    pub economy: Economy,
}

impl PolicySettings {
    /// A combination decides over both policies.
    pub fn of(cache: &Cache, prefetch: &Prefetch, prices: UnitPrices) -> Self {
        let (replacement, name) = match prefetch.combination {
            Some(combination) => replacement_of(combination),
            None => (cache.replacement, prefetch.policy),
        };
        Self {
            replacement,
            prefetch: config(replacement, name, window_of(cache, prefetch), prefetch),
            addressing: match prefetch.addressing {
                Some(PrefetchAddressing::Logical) => Addressing::Logical,
                Some(PrefetchAddressing::Pvbn) => Addressing::Pvbn,
                Some(PrefetchAddressing::Both) => Addressing::Both,
                None if name == PolicyName::Graph && prefetch.combination.is_none() => Addressing::Both,
                None => Addressing::Logical,
            },
            economy: Economy {
                prices,
                microdollars_per_second: prefetch.wait_microdollars_per_second,
            },
        }
    }

    /// The paper's name for this pair, if it has one.
    pub fn combination(&self) -> Option<Combination> {
        let pair = (self.replacement, self.prefetch.name());
        Combination::ALL
            .into_iter()
            .find(|combination| replacement_of(*combination) == pair)
    }
}

fn replacement_of(combination: Combination) -> (Policy, PolicyName) {
    let replacement = match combination.replacement() {
        tombolo_prefetch::ReplacementName::Lru => Policy::Lru,
        tombolo_prefetch::ReplacementName::Sarc => Policy::Sarc,
    };
    (replacement, combination.prefetch())
}

fn window_of(cache: &Cache, prefetch: &Prefetch) -> ByteSize {
    let share = ByteSize(cache.size.0 / 8);
    prefetch.window_bytes_max.unwrap_or(share.min(WINDOW_BYTES_MAX))
}

fn config(replacement: Policy, name: PolicyName, window: ByteSize, settings: &Prefetch) -> PolicyConfig {
    let blocks = |bytes: ByteSize| bytes.0 / BLOCK_BYTES as u64;
    let window = blocks(window);
    let mut config = PolicyConfig::of(name);
    match &mut config {
        PolicyConfig::Ramp { window_blocks_max } => *window_blocks_max = window,
        PolicyConfig::Linux(linux) => linux.window_blocks_max = window,
        PolicyConfig::Sequential(sequential) => sequential.degree_blocks = blocks(settings.degree_bytes),
        PolicyConfig::Amp(amp) => {
            amp.degree_blocks_max = window;
            if matches!(replacement, Policy::Sarc | Policy::SarcStreams) {
                amp.threshold = SARC_STREAM_READS;
            }
        }
        PolicyConfig::Graph(graph) => {
            graph.amp.degree_blocks_max = window;
            graph.track_blocks = blocks(settings.graph_track_bytes);
            graph.threshold_miss_permille = settings.graph_threshold_miss_permille as u32;
            graph.threshold_hit_permille = settings.graph_threshold_hit_permille as u32;
            graph.memory_bytes_max = settings.graph_memory_bytes_max.0;
            graph.count_window_micros = settings.graph_forget_hours * HOUR_MICROS;
        }
        PolicyConfig::None
        | PolicyConfig::Hou(_)
        | PolicyConfig::Leap(_)
        | PolicyConfig::Mithril(_)
        | PolicyConfig::Probability(_) => {}
    }
    config
}

const HOUR_MICROS: u64 = 3_600_000_000;
/// How far ahead of one reader, unless set or the cache is small.
const WINDOW_BYTES_MAX: ByteSize = ByteSize(64 << 20);
/// In place of a value: what a file that does not mention the key says.
const UNSET: &str = "unset";

impl Settings {
    /// With the prices of `[prices]`, which may be in a file.
    pub(crate) fn policies(&self, prices: UnitPrices) -> PolicySettings {
        PolicySettings::of(&self.cache, &self.prefetch, prices)
    }

    /// Those of the settings alone, for comparing pairs.
    pub(super) fn unpriced_policies(&self) -> PolicySettings {
        self.policies(UnitPrices::default())
    }

    /// These settings with some of `[prefetch]` and the key `replacement` of `[cache]` changed; everything else takes a
    /// restart. A combination takes the place of both policies, and a policy that of a combination.
    pub(crate) fn with_policies(&self, changes: toml::Table) -> Result<Self, Vec<Fault>> {
        let mut changed = self.clone();
        let names = |key: &str| ["replacement", "policy"].contains(&key);
        let is_of_pair = |value: &toml::Value| value.as_str() != Some(UNSET) || self.prefetch.combination.is_some();
        if changes.get("combination").is_some_and(is_of_pair) && !changes.keys().any(|key| names(key)) {
            changed.cache.replacement = DEFAULT_REPLACEMENT;
            changed.prefetch.policy = DEFAULT_PREFETCH;
        } else if changes.keys().any(|key| names(key)) {
            let present = self.unpriced_policies();
            changed.cache.replacement = present.replacement;
            changed.prefetch.policy = present.prefetch.name();
            changed.prefetch.combination = None;
        }
        let mut faults = Vec::new();
        for (key, value) in changes {
            match (key.as_str(), value.as_str()) {
                ("combination", Some(UNSET)) => changed.prefetch.combination = None,
                ("wait_microdollars_per_second", Some(UNSET)) => changed.prefetch.wait_microdollars_per_second = None,
                _ => changed.set_policy_field(&key, value, &mut faults),
            }
        }
        changed.check(&mut faults);
        match faults.is_empty() {
            true => Ok(changed),
            false => Err(faults),
        }
    }

    fn set_policy_field(&mut self, key: &str, value: toml::Value, faults: &mut Vec<Fault>) {
        let (section, table): (&mut dyn super::section::Section, _) = match key {
            "replacement" => (&mut self.cache, "cache"),
            _ => (&mut self.prefetch, "prefetch"),
        };
        super::set_field(section, table, key, value, faults);
    }

    /// Keys and values that [`Self::with_policies`] may change.
    pub(crate) fn policy_fields(&self) -> Vec<super::Field> {
        let mut fields = self.fields();
        fields.retain(|field| field.section == "prefetch" || (&*field.section, field.key) == ("cache", "replacement"));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> toml::Table {
        text.parse().unwrap()
    }

    #[test]
    fn the_default_pair_is_told_in_one_place() {
        let policies = Settings::default().unpriced_policies();
        assert_eq!(policies.replacement, DEFAULT_REPLACEMENT);
        assert_eq!(policies.prefetch.name(), DEFAULT_PREFETCH);
        assert_eq!(policies.economy.microdollars_per_second, None);
    }

    #[test]
    fn every_word_is_permitted_and_documented() {
        let fields = Settings::default().policy_fields();
        let permitted = |key: &str| {
            let field = fields.iter().find(|field| field.key == key).unwrap();
            field.permitted.to_string()
        };
        let check = |section: &str, key: &str, words: &[&str]| {
            for word in words {
                assert!(permitted(key).contains(&format!("`{word}`")), "{key} = {word}");
                Settings::parse(&format!("[{section}]\n{key} = \"{word}\"")).unwrap();
            }
            assert_eq!(permitted(key).matches('`').count(), 2 * words.len(), "{key}");
        };
        check("cache", "replacement", Policy::WORDS);
        check("prefetch", "policy", PolicyName::WORDS);
        check("prefetch", "combination", Combination::WORDS);
    }

    #[test]
    fn a_name_of_before_is_refused_with_the_one_of_now() {
        let refused = |text: &str| Settings::parse(text).unwrap_err().to_string();
        for (before, now) in REPLACED {
            let error = refused(&format!("[cache]\nreplacement = \"{before}\""));
            assert!(error.contains(&format!("say {now} instead")), "{error}");
        }
        let error = refused("[prefetch]\npolicy = \"gds-l\"");
        assert!(!error.contains("instead"), "{error}");
    }

    #[test]
    fn a_pair_is_given_up_only_where_there_is_one() {
        let unset = |text: &str| {
            let changes = toml::Table::from_iter([("combination".into(), UNSET.into())]);
            let policies = Settings::parse(text)
                .unwrap()
                .with_policies(changes)
                .unwrap()
                .unpriced_policies();
            (policies.replacement, policies.prefetch.name())
        };
        let default = (DEFAULT_REPLACEMENT, DEFAULT_PREFETCH);
        assert_eq!(unset("[prefetch]\ncombination = \"sarc_amp\""), default);
        let apart = "[cache]\nreplacement = \"arc\"\n[prefetch]\npolicy = \"amp\"";
        assert_eq!(unset(apart), (Policy::Arc, PolicyName::Amp));
    }

    #[test]
    fn settings_reach_the_policies_and_their_own_rules_agree() {
        let text = "[cache]\nreplacement = \"sarc\"\n[prefetch]\npolicy = \"graph\"\ngraph_track_bytes = \"4KiB\"\n\
                    graph_threshold_hit_permille = 77\nwindow_bytes_max = \"1MiB\"\naddressing = \"pvbn\"";
        let policies = Settings::parse(text).unwrap().unpriced_policies();
        let PolicyConfig::Graph(graph) = &policies.prefetch else {
            panic!("{policies:?}")
        };
        assert_eq!((graph.track_blocks, graph.threshold_hit_permille), (1, 77));
        assert_eq!(graph.amp.degree_blocks_max, 256);
        assert_eq!(policies.addressing, Addressing::Pvbn);
        assert_eq!(policies.combination(), Some(Combination::SarcGraph));
        for name in PolicyName::ALL {
            for bound in [false, true] {
                let mut prefetch = Prefetch::default();
                if bound {
                    prefetch.graph_threshold_miss_permille = 1;
                    prefetch.graph_forget_hours = 1;
                    prefetch.graph_memory_bytes_max = super::super::ByteSize(16 << 20);
                }
                assert_eq!(config(Policy::Sarc, name, WINDOW_BYTES_MAX, &prefetch).validate(), []);
            }
        }
    }

    #[test]
    fn combinations_are_the_papers() {
        for combination in Combination::ALL {
            let text = format!("[prefetch]\ncombination = \"{combination}\"");
            let policies = Settings::parse(&text).unwrap().unpriced_policies();
            assert_eq!(policies.combination(), Some(combination));
            let (PolicyConfig::Amp(ours), PolicyConfig::Amp(papers)) = (&policies.prefetch, combination.prefetcher())
            else {
                continue;
            };
            assert_eq!(ours.threshold, papers.threshold);
        }
    }

    #[test]
    fn a_combination_and_another_policy_contradict_each_other() {
        let text = "[cache]\nreplacement = \"arc\"\n[prefetch]\ncombination = \"sarc_amp\"";
        assert!(Settings::parse(text).is_err());
    }

    #[test]
    fn changes_while_running_take_each_others_place() {
        let settings = Settings::default();
        let sarc_graph = settings.with_policies(table("combination = \"sarc_graph\"")).unwrap();
        assert_eq!(
            sarc_graph.unpriced_policies().combination(),
            Some(Combination::SarcGraph)
        );
        let arc_graph = sarc_graph.with_policies(table("replacement = \"arc\"")).unwrap();
        assert_eq!(arc_graph.unpriced_policies().replacement, Policy::Arc);
        assert_eq!(arc_graph.unpriced_policies().prefetch.name(), PolicyName::Graph);
        let lru_seq = arc_graph.with_policies(table("combination = \"lru_seq\"")).unwrap();
        assert_eq!(
            lru_seq.unpriced_policies().combination(),
            Some(Combination::LruSequential)
        );
        let tuned = lru_seq.with_policies(table("degree_bytes = 65536")).unwrap();
        assert_eq!(
            tuned.unpriced_policies().combination(),
            Some(Combination::LruSequential)
        );
        let priced = tuned.with_policies(table("wait_microdollars_per_second = 7")).unwrap();
        assert_eq!(priced.unpriced_policies().economy.microdollars_per_second, Some(7));
        let free = priced
            .with_policies(table("wait_microdollars_per_second = \"unset\""))
            .unwrap();
        assert_eq!(free.unpriced_policies(), tuned.unpriced_policies());
    }

    #[test]
    fn faults_of_changes_are_typed() {
        let settings = Settings::default();
        for (text, key) in [
            ("replacement = \"clock\"", "[cache] replacement"),
            ("size = 1", "[prefetch] size"),
            ("graph_track_bytes = 12288", "[prefetch] graph_track_bytes"),
            (
                "graph_threshold_hit_permille = 1001",
                "[prefetch] graph_threshold_hit_permille",
            ),
        ] {
            let faults = settings.with_policies(table(text)).unwrap_err();
            assert_eq!(faults[0].key, key, "{faults:?}");
        }
    }
}
