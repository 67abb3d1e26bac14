use super::arguments::PolicyCommand;
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoints::{self, OfStore, PolicyChanges};
use crate::admin::model::{ControlError, ErrorKind, PolicyComparison, PolicyStatus, PolicyTally};
use indicatif::{HumanBytes, HumanCount};

pub(super) fn run(client: &Client, command: PolicyCommand) -> Result<(), CliError> {
    let (status, json) = match command {
        PolicyCommand::Show { store, json } => (client.ask(&endpoints::POLICY, &OfStore { store })?, json),
        PolicyCommand::Set { changes, json } => {
            let changes = PolicyChanges(table(&changes)?);
            (client.ask(&endpoints::POLICY_SET, &changes)?, json)
        }
    };
    if json {
        return output::json(&status);
    }
    output::text(&shown(&status))
}

/// `KEY=VALUE` as in the settings file; words need no quotes here.
fn table(changes: &[String]) -> Result<toml::Table, CliError> {
    let mut table = toml::Table::new();
    for change in changes {
        let Some((key, value)) = change.split_once('=') else {
            let message = format!("{change:?} is not of the form KEY=VALUE");
            return Err(ControlError::new(ErrorKind::Invalid, message).into());
        };
        let value = match value.trim().parse::<i64>() {
            Ok(number) => toml::Value::Integer(number),
            Err(_) => toml::Value::String(value.trim().trim_matches('"').to_owned()),
        };
        if table.insert(key.trim().to_owned(), value).is_some() {
            let message = format!("{} is given twice; say it once", key.trim());
            return Err(ControlError::new(ErrorKind::Invalid, message).into());
        }
    }
    Ok(table)
}

fn shown(status: &PolicyStatus) -> String {
    let combination = status.combination.as_ref().map(|name| format!(" ({name})"));
    let mut text = format!(
        "replacement     {}\nprefetch        {}{}, {} addresses\n",
        status.replacement,
        status.prefetch,
        combination.unwrap_or_default(),
        status.addressing
    );
    text += &format!(
        "prefetcher      {} streams, {} nodes, {} edges, {} of memory\n",
        HumanCount(status.streams),
        HumanCount(status.graph_nodes),
        HumanCount(status.graph_edges),
        HumanBytes(status.prefetcher_memory_bytes)
    );
    let settings = status.settings.iter();
    for setting in settings {
        text += &format!("[{}] {} = {}\n", setting.section, setting.key, setting.value);
    }
    text + "\n"
        + &output::table(
            [
                "REPLACEMENT",
                "PREFETCH",
                "READS HIT",
                "BLOCKS HIT",
                "PREFETCHED",
                "USED",
                "WASTED",
                "REFUSED",
            ],
            &status.tallies.iter().map(row).collect::<Vec<_>>(),
        )
        + &compared(&status.comparison)
}

fn compared(comparison: &PolicyComparison) -> String {
    if comparison.blocks_read == 0 {
        return String::new();
    }
    let mut text = format!(
        "\nWithout prefetch, of a sample of {} blocks read since the start, each policy would have held:\n",
        HumanCount(comparison.blocks_read)
    );
    let rows = comparison
        .policies
        .iter()
        .map(|one| [one.replacement.clone(), share(one.hits, comparison.blocks_read)]);
    text += &output::table(["REPLACEMENT", "BLOCKS HIT"], &rows.collect::<Vec<_>>());
    if let Some(better) = &comparison.better {
        text += &format!(
            "\n{better} holds clearly more: `tombolo policy set replacement={better}`. What it does with prefetch, to latency and \
             to the bill says `tombolo-sim advise` of a recorded trace (`tombolo trace`).\n"
        );
    }
    text
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

fn row(tally: &PolicyTally) -> [String; 8] {
    let counted = &tally.counters;
    let reads = counted.reads_hit + counted.reads_partial + counted.reads_missed;
    let blocks = counted.hits + counted.partial_misses + counted.complete_misses;
    [
        tally.replacement.clone(),
        tally.prefetch.clone(),
        share(counted.reads_hit, reads),
        share(counted.hits, blocks),
        HumanCount(counted.prefetched).to_string(),
        share(counted.used, counted.prefetched),
        share(counted.wasted, counted.prefetched),
        HumanCount(counted.blocks_refused).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::model::ComparedPolicy;
    use tombolo_core::PolicyCounters;

    #[test]
    fn words_and_numbers_are_told_apart() {
        let table = table(&[
            "replacement=sarc".into(),
            "graph_track_bytes = 65536".into(),
            "a=\"1MiB\"".into(),
        ])
        .unwrap();
        assert_eq!(table["replacement"].as_str(), Some("sarc"));
        assert_eq!(table["graph_track_bytes"].as_integer(), Some(65536));
        assert_eq!(table["a"].as_str(), Some("1MiB"));
        assert!(super::table(&["sarc".into()]).is_err());
    }

    #[test]
    fn a_key_that_is_given_twice_is_refused() {
        let refused = table(&["replacement=sarc".into(), " replacement =lru".into()]).unwrap_err();
        assert_eq!(refused.to_string(), "replacement is given twice; say it once");
    }

    #[test]
    fn ratios_are_shown_where_there_are_any() {
        let tally = PolicyTally {
            replacement: "sarc".into(),
            prefetch: "graph".into(),
            counters: PolicyCounters {
                hits: 3,
                complete_misses: 1,
                prefetched: 10,
                used: 5,
                ..PolicyCounters::default()
            },
            ..PolicyTally::default()
        };
        let status = PolicyStatus {
            combination: Some("sarc_graph".into()),
            tallies: vec![tally],
            ..PolicyStatus::default()
        };
        let text = shown(&status);
        assert!(
            text.contains("(sarc_graph)") && text.contains("75.0 %") && text.contains("50.0 %"),
            "{text}"
        );
        assert!(text.lines().last().unwrap().contains(" - "), "{text}");
    }

    #[test]
    fn a_better_policy_is_named_with_the_command() {
        let compared = |(replacement, hits): (&str, u64)| ComparedPolicy {
            replacement: replacement.into(),
            hits,
        };
        let mut status = PolicyStatus {
            comparison: PolicyComparison {
                blocks_read: 1_000,
                policies: [("lru", 400), ("lirs", 900)].map(compared).into(),
                better: Some("lirs".into()),
            },
            ..PolicyStatus::default()
        };
        let text = shown(&status);
        assert!(
            text.contains("40.0 %") && text.contains("`tombolo policy set replacement=lirs`"),
            "{text}"
        );
        status.comparison.better = None;
        assert!(!shown(&status).contains("policy set"));
        status.comparison.blocks_read = 0;
        assert!(!shown(&status).contains("sample"));
    }
}
