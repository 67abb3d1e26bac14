//! A whole benchmark: writes below the system's folder, waits for silence on the wire, and gathers what passed.

mod capabilities;
mod session;

use crate::error::BenchError;
use crate::method::probes::Probe;
use crate::method::report::{Circumstances, Measured, Report, Round, overhead};
use crate::method::workloads::{Seeds, WORKLOADS, Workload};
use session::Session;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tombolo_base::Prng;

/// Purposes of seeds; probes have those below, by their place.
const ROUNDS_PURPOSE: u64 = 1 << 32;
const GAPS_PURPOSE: u64 = 1 << 33;

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the proxy listens; the system's store is there for the system.
    pub listen: String,
    /// Where the store is.
    pub store: SocketAddr,
    /// Of the system.
    pub folder: PathBuf,
    /// The same data by another way.
    pub second: Option<Second>,
    /// Brings the system up, when the proxy listens.
    pub start: Option<String>,
    /// Makes the system forget what it has cached.
    pub remount: Option<String>,
    /// Which to ask for.
    pub probes: Vec<Probe>,
    /// Which to measure.
    pub workloads: Vec<Workload>,
    /// Of each workload.
    pub repeats: u32,
    /// Between workloads at least; up to twice as long.
    pub gap: Duration,
    /// Silence that says that the system is done.
    pub quiet: Duration,
    /// What may pass in it all the same.
    pub noise_bytes: u64,
    /// For each thing that is waited for.
    pub limit: Duration,
    /// Of all contents.
    pub seed: u64,
}

/// A second client of the same data.
#[derive(Clone, Debug)]
pub struct Second {
    /// Of the second mount.
    pub folder: PathBuf,
    /// Where the second proxy listens for it.
    pub listen: String,
}

/// Runs all that is asked for; `tell` hears of each step.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> Result<Report, BenchError> {
    let session = Session::open(options, tell)?;
    let mut capabilities = Vec::new();
    for probe in &options.probes {
        capabilities.push(capabilities::find(&session, *probe, options.seed)?);
    }
    let workloads = measure(&session, options)?;
    session.close()?;
    Ok(Report {
        circumstances: Circumstances {
            folder: options.folder.display().to_string(),
            seed: options.seed,
            repeats: options.repeats,
            quiet_s: options.quiet.as_secs_f64(),
            gap_s: options.gap.as_secs_f64(),
            noise_bytes: options.noise_bytes,
            with_remount: options.remount.is_some(),
            with_second: options.second.is_some(),
        },
        capabilities,
        workloads,
    })
}

/// The workloads of the paper that these numbers name.
pub fn workloads(numbers: &[u32]) -> Vec<Workload> {
    WORKLOADS
        .into_iter()
        .filter(|workload| numbers.contains(&workload.number))
        .collect()
}

/// Another workload each time, so that what is slow for a while harms none alone.
fn measure(session: &Session, options: &Options) -> Result<Vec<Measured>, BenchError> {
    let mut measured: Vec<Measured> = options.workloads.iter().map(Measured::of).collect();
    let mut gaps = Prng::new(Seeds::of(options.seed, GAPS_PURPOSE).take());
    for round in 0..options.repeats {
        for place in 0..measured.len() {
            let place = (place + round as usize) % measured.len();
            let workload = options.workloads[place];
            let mut seeds = Seeds::of(options.seed, ROUNDS_PURPOSE + u64::from(round));
            let once = one_round(session, &workload, &mut seeds)?;
            session.tell(&format!(
                "workload {}, round {} of {}: upload {} s, overhead {:.2}",
                workload.number,
                round + 1,
                options.repeats,
                once.upload_s
                    .map_or("unknown".to_owned(), |seconds| format!("{seconds:.2}")),
                once.overhead
            ));
            measured[place].rounds.push(once);
            let extra = gaps.below(options.gap.as_millis() as u64 + 1);
            thread::sleep(options.gap + Duration::from_millis(extra));
        }
    }
    Ok(measured)
}

fn one_round(session: &Session, workload: &Workload, seeds: &mut Seeds) -> Result<Round, BenchError> {
    // The workload's number makes its contents its own.
    for _ in 0..workload.number {
        seeds.take();
    }
    let files = workload.make(seeds);
    let watched = session.watch_second(&files);
    let upload = session.upload(&files)?;
    let second = watched.map(|watched| watched.wait(session)).transpose()?;
    let download = session.download(&files)?;
    session.remove(&files)?;
    let stored_us = upload.traffic.store_times.first_us;
    let seconds_from = |from_us: u64, at_us: Option<u64>| Some(at_us?.checked_sub(from_us)? as f64 / 1e6);
    Ok(Round {
        startup_s: seconds_from(upload.begun_us, stored_us),
        upload_s: upload.traffic.store_times.seconds(),
        propagation_s: second.and_then(|second| seconds_from(stored_us?, second.traffic.fetch_times.first_us)),
        download_s: download.as_ref().and_then(|traffic| traffic.fetch_times.seconds()),
        overhead: overhead(workload.bytes, &upload.traffic, download.as_ref()),
        upload: upload.traffic,
        download,
    })
}
