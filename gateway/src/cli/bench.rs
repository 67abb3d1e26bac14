//! `tombolo bench cloud`: what a mounted system does between its folder and its store. Needs no running gateway.

use super::arguments::{BenchCommand, Choice, CloudArguments};
use super::error::CliError;
use super::output;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tombolo_bench_cloud::method::probes::Probe;
use tombolo_bench_cloud::{Options, Second, suite};

pub(super) fn run(command: BenchCommand) -> Result<(), CliError> {
    let BenchCommand::Cloud(arguments) = command;
    let json = arguments.json;
    let report = tombolo_bench_cloud::run(&options(arguments), &|step| eprintln!("{step}"))?;
    if json {
        return output::json(&report);
    }
    output::text(&report.markdown())
}

fn options(arguments: CloudArguments) -> Options {
    let numbers: Vec<u32> = chosen(arguments.workloads).map_or_else(
        || (1..=6).collect(),
        |numbers| numbers.iter().map(|number| number.0).collect(),
    );
    let second = arguments.second_folder.zip(arguments.second_listen);
    Options {
        listen: arguments.listen.to_string(),
        store: arguments.store,
        folder: arguments.folder,
        second: second.map(|(folder, listen)| Second {
            folder,
            listen: listen.to_string(),
        }),
        start: arguments.start,
        remount: arguments.remount,
        probes: chosen(arguments.probes).unwrap_or_else(|| Probe::ALL.to_vec()),
        workloads: suite::workloads(&numbers),
        repeats: arguments.repeats,
        gap: Duration::from_secs(arguments.gap_s),
        quiet: Duration::from_secs(arguments.quiet_s),
        noise_bytes: arguments.noise_bytes,
        limit: Duration::from_secs(arguments.limit_s),
        seed: arguments.seed.unwrap_or_else(new_seed),
    }
}

/// Nothing when nothing was said.
fn chosen<T>(list: Option<Vec<Choice<T>>>) -> Option<Vec<T>> {
    let one = |choice| match choice {
        Choice::None => None,
        Choice::One(one) => Some(one),
    };
    list.map(|list| list.into_iter().filter_map(one).collect())
}

/// What was written by an earlier run may be in the store still, and would be known.
fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{Arguments, Command};
    use super::*;
    use clap::Parser;

    fn parsed(words: &str) -> Result<Options, clap::Error> {
        let given = format!("tombolo bench cloud --folder /mnt --store 127.0.0.1:1 {words}");
        let Command::Bench(BenchCommand::Cloud(arguments)) =
            Arguments::try_parse_from(given.split_whitespace())?.command
        else {
            panic!("another command");
        };
        Ok(options(arguments))
    }

    #[test]
    fn all_is_measured_unless_a_list_says_otherwise() {
        let options = parsed("").unwrap();
        assert_eq!((options.probes.len(), options.workloads.len()), (6, 6));
        let options = parsed("--probes dedup,delta --workloads none --seed 7").unwrap();
        assert_eq!(options.probes, [Probe::Dedup, Probe::Delta]);
        assert!(options.workloads.is_empty() && options.seed == 7);
        let options = parsed("--probes none --workloads 1,3").unwrap();
        assert!(options.probes.is_empty());
        assert_eq!(
            options.workloads.iter().map(|each| each.number).collect::<Vec<_>>(),
            [1, 3]
        );
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        assert!(
            parsed("--probes speed")
                .unwrap_err()
                .to_string()
                .contains("bundling chunking")
        );
        assert!(parsed("--workloads 7").unwrap_err().to_string().contains("1 to 6"));
        assert!(
            parsed("--second-folder /other")
                .unwrap_err()
                .to_string()
                .contains("--second-listen")
        );
    }
}
