//! What the synthetic traces are, beside what the paper prints, over several seeds: the tables of
//! docs/results/synthetic-traces.md. `synthetic_table SCALE SEEDS`, such as `synthetic_table 0.01 10`.
//!
//! It measures the trace and nothing else: no policy runs here.

use std::error::Error;
use tombolo_engine::synthetic::{Dataset, Generator, Specification};
use tombolo_trace::{Analyser, Analysis};

const DAY_US: u64 = 86_400_000_000;

type Measure = (&'static str, fn(&Analysis) -> f64);

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

fn short(lengths: &[tombolo_trace::analysis::RunLength]) -> f64 {
    let units = |short_only: bool| {
        let counted = lengths.iter().filter(|run| !short_only || run.units < 10);
        counted.map(|run| run.units * run.runs).sum::<u64>()
    };
    share(units(true), units(false))
}

const MEASURES: [Measure; 17] = [
    ("clients", |found| found.clients as f64),
    ("days", |found| found.span_us as f64 / DAY_US as f64),
    ("reads", |found| found.reads as f64),
    ("writes", |found| found.writes as f64),
    ("GB read", |found| found.read_bytes as f64 / 1e9),
    ("GB written", |found| found.written_bytes as f64 / 1e9),
    ("GB of new data", |found| found.distinct_contents as f64 * 4096.0 / 1e9),
    ("new in written, %", |found| {
        share(found.distinct_contents, found.named_contents)
    }),
    ("blocks read in runs < 10, %", |found| short(&found.runs.strict)),
    ("the same by stream, %", |found| short(&found.runs.streams)),
    ("longest run, blocks", |found| found.runs.strict_longest as f64),
    ("longest by stream, blocks", |found| found.runs.streams_longest as f64),
    ("jumps to the last successor, %", |found| {
        share(found.successors.to_last, found.successors.jumps)
    }),
    ("jumps to one of the last four, %", |found| {
        share(found.successors.to_any_of_4, found.successors.jumps)
    }),
    ("GB touched", |found| found.distinct as f64 * 4096.0 / 1e9),
    ("of it touched once, %", |found| share(found.one_touch, found.distinct)),
    ("GB touched in a day, most", |found| {
        let days = found.working_set.intervals.iter().map(|day| day.distinct);
        days.max().unwrap_or(0) as f64 * 4096.0 / 1e9
    }),
];

fn analyse(trace: Specification) -> Result<Analysis, Box<dyn Error>> {
    let mut analyser = Analyser::new(DAY_US);
    Generator::new(trace)?.for_each(|record| analyser.on_record(&record));
    Ok(analyser.finish())
}

/// As the paper has it, where it does.
fn printed(dataset: Dataset, name: &str, scale: f64) -> String {
    let printed = dataset.printed();
    let scaled = |value: f64| figure(value * scale);
    match name {
        "clients" => scaled(printed.clients as f64),
        "days" => printed.days.to_string(),
        "reads" => scaled(printed.reads as f64),
        "writes" => scaled(printed.writes as f64),
        "GB read" => scaled(printed.read_gb),
        "GB written" => scaled(printed.written_gb),
        "GB of new data" => scaled(printed.growth_gb),
        "new in written, %" => figure(printed.new_share() * 100.0),
        "blocks read in runs < 10, %" => "> 60".into(),
        "longest run, blocks" => "about 10,000".into(),
        _ => "-".into(),
    }
}

fn figure(value: f64) -> String {
    match value {
        1000.0.. => {
            let digits = format!("{:.0}", value.round());
            let (head, tail) = digits.split_at(digits.len() - 3);
            match head.len() {
                4.. => format!("{},{},{tail}", &head[..head.len() - 3], &head[head.len() - 3..]),
                _ => format!("{head},{tail}"),
            }
        }
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn row(found: &[Analysis], measure: fn(&Analysis) -> f64) -> String {
    let values: Vec<f64> = found.iter().map(measure).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match least < most {
        true => format!("{} ({} to {})", figure(mean), figure(least), figure(most)),
        false => figure(mean),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [scale, seeds] = &words[..] else {
        return Err("synthetic_table SCALE SEEDS".into());
    };
    let (scale, seeds): (f64, u64) = (scale.parse()?, seeds.parse()?);
    for dataset in Dataset::ALL {
        let of = |templates: Option<u32>| -> Result<Vec<Analysis>, Box<dyn Error>> {
            let seeded = (1..=seeds).map(|seed| Specification::new(dataset, scale, seed));
            let traces = seeded.map(|trace| Specification {
                templates: templates.unwrap_or(trace.templates),
                ..trace
            });
            traces.map(analyse).collect()
        };
        let (made, control) = (of(None)?, of(Some(0))?);
        println!("| {dataset:?}, scale {scale} | printed | generated | control |\n|---|---|---|---|");
        for (name, measure) in MEASURES {
            let wanted = printed(dataset, name, scale);
            println!(
                "| {name} | {wanted} | {} | {} |",
                row(&made, measure),
                row(&control, measure)
            );
        }
        println!();
    }
    Ok(())
}
