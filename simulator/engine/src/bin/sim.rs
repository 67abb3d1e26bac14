//! Runs seeds of the simulated world and reports those in which a promise was broken.

use clap::Parser;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tombolo_engine::{Canary, run_seed};

/// Simulates the gateway's core with failing disks, clouds and power, and checks everything it says.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Runs this seed alone and prints its digest.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints every event and command of the seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Builds a defect into the world; the run must fail.
    #[arg(long)]
    canary: Option<Canary>,
    /// Stops after this many failing seeds.
    #[arg(long, default_value_t = 10)]
    failures_max: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    // A failing seed is reported once, with its cause.
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => run_one(seed, &arguments),
        None => run_many(&arguments),
    }
}

fn run_one(seed: u64, arguments: &Arguments) -> ExitCode {
    match run_seed(seed, arguments.canary, arguments.trace) {
        Ok(outcome) => {
            println!("seed {seed}: digest {:016x}", outcome.digest);
            println!("{outcome:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("seed {seed} FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_many(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(arguments.start);
    let end = arguments.start.saturating_add(arguments.seeds);
    let failures: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let (digest, requests, lives, done) = (
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
    );
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || failures.lock().expect("no thread panics").len() >= arguments.failures_max {
                        return;
                    }
                    match run_seed(seed, arguments.canary, false) {
                        Ok(outcome) => {
                            // Order does not matter, so the sum is the same however threads interleave.
                            let mixed = (outcome.digest ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                            digest.fetch_add(mixed, Ordering::Relaxed);
                            requests.fetch_add(outcome.answered, Ordering::Relaxed);
                            lives.fetch_add(outcome.lives, Ordering::Relaxed);
                        }
                        Err(failure) => {
                            println!("seed {seed} FAILED: {failure}\n  replay: make sim SEED={seed}");
                            failures.lock().expect("no thread panics").push(seed);
                        }
                    }
                    let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if count.is_multiple_of(500) {
                        let rate = count as f64 / started.elapsed().as_secs_f64();
                        println!("{count} seeds, {rate:.0} seeds/s");
                    }
                }
            });
        }
    });
    let failed = failures.into_inner().expect("no thread panics");
    println!(
        "{} seeds in {:.1} s, {} requests, {} lives, digest {:016x}, {} failed",
        done.into_inner(),
        started.elapsed().as_secs_f64(),
        requests.into_inner(),
        lives.into_inner(),
        digest.into_inner(),
        failed.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
