//! Policies by name, their settings, and the six combinations of the Tombolo paper.
//!
//! A combination names a replacement policy as well, but only names it: this crate does not know the cache, and putting
//! the two together is the gateway core's part.

use crate::{
    Amp, AmpConfig, Graph, GraphConfig, Hou, HouConfig, Leap, LeapConfig, Linux, LinuxConfig, Mithril, MithrilConfig,
    NoPrefetch, Prefetcher, ProbabilityConfig, ProbabilityGraph, Ramp, Sequential, SequentialConfig, graph::Insertion,
    leap::WINDOW_READS_MAX,
};
use alloc::{boxed::Box, vec::Vec};
use tombolo_base::names;

/// A setting out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value} is not allowed: {permitted}, because {reason}")]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// What it may be.
    pub permitted: &'static str,
    /// Why no more and no less.
    pub reason: &'static str,
}

names! {
    /// The prefetch policies that can be had without knowing the future.
    pub enum PolicyName: "prefetch policy" {
        None = "none",
        Ramp = "ramp",
        Sequential = "seq",
        Amp = "amp",
        Graph = "graph",
        Hou = "hou",
        Linux = "linux",
        Leap = "leap",
        Mithril = "mithril",
        Probability = "probability",
    }
}

names! {
    /// The replacement policies of the paper's combinations.
    pub enum ReplacementName: "replacement policy" {
        Lru = "lru",
        Sarc = "sarc",
    }
}

names! {
    /// The six combinations of the Tombolo paper, table 3. Those with GRAPH include AMP.
    pub enum Combination: "combination" {
        LruSequential = "lru_seq",
        LruAmp = "lru_amp",
        LruGraph = "lru_graph",
        SarcSequential = "sarc_seq",
        SarcAmp = "sarc_amp",
        SarcGraph = "sarc_graph",
    }
}

impl Combination {
    /// Its first half.
    pub const fn replacement(self) -> ReplacementName {
        match self {
            Self::LruSequential | Self::LruAmp | Self::LruGraph => ReplacementName::Lru,
            Self::SarcSequential | Self::SarcAmp | Self::SarcGraph => ReplacementName::Sarc,
        }
    }

    /// Its second half.
    pub const fn prefetch(self) -> PolicyName {
        match self {
            Self::LruSequential | Self::SarcSequential => PolicyName::Sequential,
            Self::LruAmp | Self::SarcAmp => PolicyName::Amp,
            Self::LruGraph | Self::SarcGraph => PolicyName::Graph,
        }
    }

    /// The prefetcher's settings. Under SARC, and with GRAPH under either, a stream is one from its third read on: AMP runs
    /// only for what SARC deems sequential, and the heads of streams belong to the graph.
    pub fn prefetcher(self) -> PolicyConfig {
        let mut config = PolicyConfig::of(self.prefetch());
        if let (PolicyConfig::Amp(amp), ReplacementName::Sarc) = (&mut config, self.replacement()) {
            amp.threshold = 3;
        }
        config
    }
}

/// What the addresses of accesses are. The policies do not care; whoever calls them must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Volume and block: overwriting a block keeps its history.
    #[default]
    Logical,
    /// PVBNs in [`crate::PVBN_SPACE`], as in the paper: clones and duplicates share history, overwriting orphans it.
    Pvbn,
    /// Volume and block; and PVBNs for what follows no stream there, by [`crate::TwoWay`]. So small files that were written one after the
    /// other, and files that are read backwards, are streams too. What follows no stream there either may follow a stride,
    /// by [`crate::Strides`].
    Both,
}

/// A policy with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyConfig {
    /// Fetches nothing ahead.
    None,
    /// Windows that double.
    Ramp {
        /// Where the doubling ends.
        window_blocks_max: u64,
    },
    /// A fixed degree.
    Sequential(SequentialConfig),
    /// A degree that each stream learns.
    Amp(AmpConfig),
    /// AMP for streams, the history graph for all else.
    Graph(GraphConfig),
    /// Windows of chunks.
    Hou(HouConfig),
    /// The kernel's read-ahead.
    Linux(LinuxConfig),
    /// The majority of strides.
    Leap(LeapConfig),
    /// Associations mined from what is read sporadically.
    Mithril(MithrilConfig),
    /// The probability graph.
    Probability(ProbabilityConfig),
}

impl PolicyConfig {
    /// A policy with its default settings.
    pub fn of(name: PolicyName) -> Self {
        match name {
            PolicyName::None => Self::None,
            PolicyName::Ramp => Self::Ramp {
                window_blocks_max: 2048,
            },
            PolicyName::Sequential => Self::Sequential(SequentialConfig::default()),
            PolicyName::Amp => Self::Amp(AmpConfig::default()),
            PolicyName::Graph => Self::Graph(GraphConfig::default()),
            PolicyName::Hou => Self::Hou(HouConfig::default()),
            PolicyName::Linux => Self::Linux(LinuxConfig::default()),
            PolicyName::Leap => Self::Leap(LeapConfig::default()),
            PolicyName::Mithril => Self::Mithril(MithrilConfig::default()),
            PolicyName::Probability => Self::Probability(ProbabilityConfig::default()),
        }
    }

    /// The policy without its settings.
    pub const fn name(&self) -> PolicyName {
        match self {
            Self::None => PolicyName::None,
            Self::Ramp { .. } => PolicyName::Ramp,
            Self::Sequential(_) => PolicyName::Sequential,
            Self::Amp(_) => PolicyName::Amp,
            Self::Graph(_) => PolicyName::Graph,
            Self::Hou(_) => PolicyName::Hou,
            Self::Linux(_) => PolicyName::Linux,
            Self::Leap(_) => PolicyName::Leap,
            Self::Mithril(_) => PolicyName::Mithril,
            Self::Probability(_) => PolicyName::Probability,
        }
    }

    /// Where a cache is to keep what is prefetched at random places until it is read.
    pub const fn insertion(&self) -> Insertion {
        match self {
            Self::Graph(config) => config.insertion,
            _ => Insertion::Newest,
        }
    }

    /// Builds the policy. Values out of range are brought into it; [`Self::validate`] says which are.
    pub fn build(&self) -> Box<dyn Prefetcher> {
        match self.clone() {
            Self::None => Box::new(NoPrefetch),
            Self::Ramp { window_blocks_max } => Box::new(Ramp::new(window_blocks_max)),
            Self::Sequential(config) => Box::new(Sequential::new(config)),
            Self::Amp(config) => Box::new(Amp::new(config)),
            Self::Graph(config) => Box::new(Graph::new(config)),
            Self::Hou(config) => Box::new(Hou::new(config)),
            Self::Linux(config) => Box::new(Linux::new(config)),
            Self::Leap(config) => Box::new(Leap::new(config)),
            Self::Mithril(config) => Box::new(Mithril::new(config)),
            Self::Probability(config) => Box::new(ProbabilityGraph::new(config)),
        }
    }

    /// Every value that is out of range.
    pub fn validate(&self) -> Vec<ConfigError> {
        const WINDOW: (&str, &str) = ("1 to 1048576", "a window beyond 4 GiB crowds out every cache");
        let mut errors = Vec::new();
        let mut check = |field, value: u64, ok: bool, (permitted, reason): (&'static str, &'static str)| {
            if !ok {
                errors.push(ConfigError {
                    field,
                    value,
                    permitted,
                    reason,
                });
            }
        };
        let window = 1..=1 << 20;
        match self {
            Self::None | Self::Mithril(_) | Self::Probability(_) => {}
            Self::Ramp {
                window_blocks_max: blocks,
            } => check("window_blocks_max", *blocks, window.contains(blocks), WINDOW),
            Self::Sequential(SequentialConfig {
                degree_blocks: blocks, ..
            }) => {
                check("degree_blocks", *blocks, window.contains(blocks), WINDOW);
            }
            Self::Amp(AmpConfig {
                degree_blocks_max: blocks,
                ..
            }) => {
                check("degree_blocks_max", *blocks, window.contains(blocks), WINDOW);
            }
            Self::Hou(HouConfig {
                chunk_blocks: blocks, ..
            }) => check("chunk_blocks", *blocks, window.contains(blocks), WINDOW),
            Self::Linux(LinuxConfig {
                window_blocks_max: blocks,
                ..
            }) => {
                check("window_blocks_max", *blocks, window.contains(blocks), WINDOW);
            }
            Self::Leap(config) => {
                let reads = config.window_reads_max;
                let why = ("1 to 64", "one read may add no more suggestions than that");
                check("window_reads_max", reads, (1..=WINDOW_READS_MAX).contains(&reads), why);
            }
            Self::Graph(config) => {
                let blocks = config.amp.degree_blocks_max;
                check("amp.degree_blocks_max", blocks, window.contains(&blocks), WINDOW);
                config.validate(&mut check);
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_policies_belong_together() {
        for name in PolicyName::ALL {
            let config = PolicyConfig::of(name);
            assert_eq!(config.name(), name);
            assert_eq!(config.build().name(), name.name());
            assert_eq!(config.validate(), []);
        }
        for combination in Combination::ALL {
            let parts = format!("{}_{}", combination.replacement(), combination.prefetch());
            assert_eq!(parts, combination.name());
            assert_eq!(combination.prefetcher().name(), combination.prefetch());
        }
        assert_eq!(Combination::ALL.len(), 6);
    }

    #[test]
    fn faults_are_named() {
        let config = PolicyConfig::Sequential(SequentialConfig {
            degree_blocks: 0,
            ..SequentialConfig::default()
        });
        assert_eq!(config.validate()[0].field, "degree_blocks");
        let config = PolicyConfig::Graph(GraphConfig {
            track_blocks: 3,
            memory_bytes_max: 1,
            ..GraphConfig::default()
        });
        let fields: Vec<_> = config.validate().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["memory_bytes_max", "track_blocks"]);
    }
}
