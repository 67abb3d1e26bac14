//! Runs a job file of the trace simulator and prints its report as JSON.

use clap::{Parser, ValueEnum};
use serde::{Serialize, de::DeserializeOwned};
use std::path::PathBuf;
use std::process::ExitCode;
use tombolo_engine::{keys, replay};

#[derive(Parser)]
#[command(about = "Runs a job of the trace simulator")]
struct Arguments {
    /// What the job is for.
    kind: Kind,
    /// A JSON file.
    job: PathBuf,
    /// Says on standard error how far it is.
    #[arg(long)]
    progress: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// A trace through the gateway's core in virtual time.
    Blocks,
    /// Replacement policies alone over keys.
    Keys,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let mut progress = |done, total| {
        if arguments.progress {
            eprintln!("{done} of {total}");
        }
        Ok(())
    };
    match arguments.kind {
        Kind::Blocks => text(&replay::run(&job(arguments)?, None, &mut progress)?),
        Kind::Keys => text(&keys::run(&job(arguments)?, &mut progress)?),
    }
}

fn job<T: DeserializeOwned>(arguments: &Arguments) -> Result<T, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(&arguments.job)?;
    Ok(serde_json::from_str(&text)?)
}

fn text(report: &impl Serialize) -> Result<String, Box<dyn std::error::Error>> {
    Ok(serde_json::to_string_pretty(report)?)
}
