//! The policies that a job names, built. Fields of prefetch policies are named as in the crate `tombolo-prefetch`.

use super::error::Error;
use super::job::{Addressing, Job};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::str::FromStr;
use tombolo_base::NameError;
use tombolo_cache::{Capacity, Grouping, Policy, Probation, Replacement};
use tombolo_core::{Economy, Policies};
use tombolo_prefetch::graph::{Budget, Expand, Insertion, Populate, Scope};
use tombolo_prefetch::{
    AmpConfig, FutureRead, GraphConfig, Oracle, OracleConfig, PolicyConfig, PolicyName, Prefetcher, Trigger,
    TriggerGrowth,
};

/// The replacement policy that holds most of a sample, as far as the core's comparison can tell; LRU at first.
pub const ADAPTIVE: &str = "adaptive";
/// The prefetcher that knows the future; the others are [`PolicyName`]'s.
pub const ORACLE: &str = "oracle";
/// Blocks of an object that GDS evicts at a time, as in the gateway.
const EVICT_BLOCKS: u32 = 16;

pub fn build(job: &Job, future: Vec<FutureRead>) -> Result<Policies, Error> {
    let named = match &*job.replacement {
        ADAPTIVE => Policy::Lru,
        name => parse_name("replacement", name, ADAPTIVE)?,
    };
    let (prefetcher, insertion) = prefetcher(job, future)?;
    let fresh = replacement(named, job.cache_blocks);
    Ok(Policies {
        replacement: match insertion {
            Insertion::Newest => fresh,
            Insertion::Probation if job.replacement == ADAPTIVE => {
                return Err(refused("insertion", "probation goes with one replacement policy only"));
            }
            Insertion::Probation => Box::new(Probation::new(fresh, Capacity::of_blocks(job.cache_blocks))),
        },
        prefetcher,
        addressing: match job.addressing {
            Addressing::Logical => tombolo_prefetch::Addressing::Logical,
            Addressing::Pvbn => tombolo_prefetch::Addressing::Pvbn,
            Addressing::Both => tombolo_prefetch::Addressing::Both,
        },
        economy: Economy {
            prices: job.prices.units(),
            microdollars_per_second: job.microdollars_per_second,
        },
    })
}

/// As the gateway builds it.
pub fn replacement(policy: Policy, cache_blocks: u32) -> Box<dyn Replacement> {
    let grouping = Grouping::Objects {
        evict_blocks: EVICT_BLOCKS,
    };
    policy.build(Capacity::of_blocks(cache_blocks), grouping)
}

/// And where the cache is to keep what it brings.
fn prefetcher(job: &Job, future: Vec<FutureRead>) -> Result<(Box<dyn Prefetcher>, Insertion), Error> {
    let settings = &job.prefetch_settings;
    if job.prefetch == ORACLE {
        let mut config = OracleConfig {
            look_ahead: 16,
            blocks_per_second_max: None,
        };
        each(settings, |name, value| {
            match name {
                "look_ahead" => config.look_ahead = parse(value)?,
                "blocks_per_second_max" => config.blocks_per_second_max = parse(value)?,
                _ => return Err(UNKNOWN.into()),
            }
            Ok(())
        })?;
        return Ok((Box::new(Oracle::new(config, future)), Insertion::Newest));
    }
    let name: PolicyName = parse_name("prefetch", &job.prefetch, ORACLE)?;
    let mut config = PolicyConfig::of(name);
    each(settings, |name, value| set(&mut config, name, value))?;
    if let Some(error) = config.validate().first() {
        return Err(refused("prefetch_settings", error));
    }
    Ok((config.build(), config.insertion()))
}

const UNKNOWN: &str = "the policy has no such field";

fn each(settings: &Map<String, Value>, mut set: impl FnMut(&str, &Value) -> Result<(), String>) -> Result<(), Error> {
    settings.iter().try_for_each(|(name, value)| {
        set(name, value).map_err(|reason| refused("prefetch_settings", format!("{name} = {value}: {reason}")))
    })
}

/// One of the gateway's policies; `beside` is what a replay takes besides, for whoever names none.
fn parse_name<T: FromStr<Err = NameError>>(field: &'static str, name: &str, beside: &str) -> Result<T, Error> {
    name.parse()
        .map_err(|error| refused(field, format!("{error} {beside}")))
}

fn refused(field: &'static str, reason: impl ToString) -> Error {
    let reason = reason.to_string();
    Error::Job { field, reason }
}

fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// Sets the field of that name.
macro_rules! set_field {
    ($config:expr, $name:expr, $value:expr, $($field:ident),+ $(,)?) => {
        match $name {
            $(stringify!($field) => $config.$field = parse($value)?,)+
            _ => return Err(UNKNOWN.into()),
        }
    };
}

fn set(config: &mut PolicyConfig, name: &str, value: &Value) -> Result<(), String> {
    match config {
        PolicyConfig::None => return Err(UNKNOWN.into()),
        PolicyConfig::Ramp { window_blocks_max } => match name {
            "window_blocks_max" => *window_blocks_max = parse(value)?,
            _ => return Err(UNKNOWN.into()),
        },
        PolicyConfig::Sequential(seq) => match name {
            "trigger_offset_blocks" => seq.trigger = trigger(value)?,
            _ => set_field!(
                seq,
                name,
                value,
                degree_blocks,
                align_blocks,
                threshold,
                streams_max,
                slack_blocks
            ),
        },
        PolicyConfig::Amp(amp) => set_amp(amp, name, value)?,
        PolicyConfig::Graph(graph) => set_graph(graph, name, value)?,
        PolicyConfig::Hou(hou) => {
            set_field!(
                hou,
                name,
                value,
                chunk_blocks,
                window_chunks_max,
                streams_max,
                slack_blocks
            );
        }
        PolicyConfig::Linux(linux) => set_field!(linux, name, value, window_blocks_max, streams_max, slack_blocks),
        PolicyConfig::Leap(leap) => set_field!(leap, name, value, window_reads_max, clients_max),
        PolicyConfig::Mithril(mithril) => set_field!(
            mithril,
            name,
            value,
            support_min,
            support_max,
            look_ahead,
            errors_max,
            recorded_max,
            mined_max,
            partners_max,
        ),
        PolicyConfig::Probability(probability) => {
            set_field!(
                probability,
                name,
                value,
                look_ahead,
                threshold_permille,
                reads_max,
                clients_max
            );
        }
    }
    Ok(())
}

/// Null: a group is fetched when the one before it has been used up.
fn trigger(value: &Value) -> Result<Trigger, String> {
    let offset: Option<u64> = parse(value)?;
    Ok(
        offset.map_or(Trigger::Synchronous, |offset_blocks| Trigger::Asynchronous {
            offset_blocks,
        }),
    )
}

fn set_amp(amp: &mut AmpConfig, name: &str, value: &Value) -> Result<(), String> {
    match name {
        "growth" => {
            amp.growth = word(
                value,
                &[
                    ("additive", TriggerGrowth::Additive),
                    ("set-length", TriggerGrowth::SetLength),
                    ("rate", TriggerGrowth::Rate),
                ],
            )?;
        }
        _ => set_field!(
            amp,
            name,
            value,
            degree_blocks_max,
            threshold,
            streams_max,
            slack_blocks
        ),
    }
    Ok(())
}

fn set_graph(graph: &mut GraphConfig, name: &str, value: &Value) -> Result<(), String> {
    if let Some(field) = name.strip_prefix("amp.") {
        return set_amp(&mut graph.amp, field, value);
    }
    match name {
        "populate" => graph.populate = word(value, &[("random", Populate::Random), ("every", Populate::Every)])?,
        "expand" => {
            graph.expand = word(
                value,
                &[("every-read", Expand::EveryRead), ("at-triggers", Expand::AtTriggers)],
            )?;
        }
        "budget" => graph.budget = word(value, &[("every", Budget::Every), ("absent", Budget::Absent)])?,
        "insertion" => {
            graph.insertion = word(
                value,
                &[("newest", Insertion::Newest), ("probation", Insertion::Probation)],
            )?;
        }
        "scope" => graph.scope = word(value, &[("client", Scope::Client), ("global", Scope::Global)])?,
        _ => set_field!(
            graph,
            name,
            value,
            memory_bytes_max,
            count_window_micros,
            memo_micros,
            memo_entries,
            threshold_miss_permille,
            threshold_hit_permille,
            track_blocks,
            degree_initial,
            degree_max,
            candidates_max,
            skips_recently_read,
            clients_max,
        ),
    }
    Ok(())
}

fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
    let permitted = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| format!("permitted are {}", permitted()))
}
