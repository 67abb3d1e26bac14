//! Each probe on the system: what is written, and which verdict its traffic leads to.

use super::session::Session;
use crate::error::BenchError;
use crate::method::probes::{self, Probe, Stimulus};
use crate::method::report::{Finding, Observation};
use crate::method::traffic::Traffic;
use crate::method::verdicts::{self, Chunks, Replaced, Verdict};
use crate::method::workloads::{File, Seeds};
use tombolo_base::Named;

pub(super) fn find(session: &Session, probe: Probe, seed: u64) -> Result<Finding, BenchError> {
    let mut seeds = Seeds::of(seed, probe.index() as u64);
    let (verdict, detail, observations) = match probe {
        Probe::Bundling => bundling(session, &mut seeds)?,
        Probe::Chunking => chunking(session, &mut seeds)?,
        Probe::Compression => compression(session, &mut seeds)?,
        Probe::Dedup => dedup(session, &mut seeds)?,
        Probe::Delta => delta(session, &mut seeds)?,
        Probe::PeerToPeer => peer_to_peer(session, &mut seeds)?,
    };
    session.tell(&format!("{probe}: {verdict}; {detail}"));
    Ok(Finding {
        probe,
        verdict,
        detail,
        observations,
    })
}

type Found = (Verdict, String, Vec<Observation>);

fn bundling(session: &Session, seeds: &mut Seeds) -> Result<Found, BenchError> {
    let observed = observe(session, &probes::bundling(seeds))?;
    let points: Vec<(u64, u64)> = observed.iter().map(|each| (each.files, each.upload.stores)).collect();
    let requests = join(&observed, |each| {
        format!("{} for {}", each.upload.stores, each.stimulus)
    });
    let connections = join(&observed, |each| each.upload.connections.to_string());
    let detail = format!("requests that store: {requests}; new connections: {connections}");
    Ok((verdicts::bundling(&points), detail, observed))
}

fn chunking(session: &Session, seeds: &mut Seeds) -> Result<Found, BenchError> {
    let observed = observe(session, &probes::chunking(seeds))?;
    let points = |of: fn(&Observation) -> Option<u64>| {
        let points: Option<Vec<(u64, u64)>> = observed.iter().map(|each| Some((each.bytes, of(each)?))).collect();
        points.map(|points| verdicts::chunks(&points))
    };
    let upload = points(|each| Some(each.upload.stores)).unwrap_or(Chunks::Unknown);
    let download = points(|each| Some(each.download.as_ref()?.fetches));
    let verdict = match upload {
        Chunks::About(_) => Verdict::Yes,
        Chunks::None => Verdict::No,
        Chunks::Unknown => Verdict::Inconclusive,
    };
    let download = download.map_or_else(|| "not measured".to_owned(), said);
    Ok((
        verdict,
        format!("upload {}, download {download}", said(upload)),
        observed,
    ))
}

fn said(chunks: Chunks) -> String {
    match chunks {
        Chunks::None => "in one request".into(),
        Chunks::About(bytes) => format!("a request for each {:.1} MB", bytes as f64 / 1e6),
        Chunks::Unknown => "without requests".into(),
    }
}

fn compression(session: &Session, seeds: &mut Seeds) -> Result<Found, BenchError> {
    let observed = observe(session, &probes::compression(seeds))?;
    let points: Vec<(u64, u64)> = observed
        .iter()
        .map(|each| (each.bytes, each.upload.stored_bytes))
        .collect();
    let verdict = match points.split_last() {
        Some((fake_jpeg, text)) => verdicts::compression(text, *fake_jpeg),
        None => Verdict::Inconclusive,
    };
    let detail = join(&observed, |each| {
        format!(
            "{}: {} sent",
            each.stimulus,
            percent(each.upload.stored_bytes, each.bytes)
        )
    });
    Ok((verdict, detail, observed))
}

fn dedup(session: &Session, seeds: &mut Seeds) -> Result<Found, BenchError> {
    let steps = probes::dedup(seeds);
    let mut observed = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if index == 3 {
            let copies: Vec<File> = steps[..3].iter().flat_map(|step| step.files.clone()).collect();
            session.remove(&copies)?;
        }
        observed.push(observation(step, session.upload(&step.files)?.traffic));
    }
    session.remove(&steps[3].files)?;
    let sent = [0, 1, 2, 3].map(|index: usize| observed[index].upload.stored_bytes);
    let detail = join(&observed, |each| {
        format!(
            "{}: {} sent",
            each.stimulus,
            percent(each.upload.stored_bytes, each.bytes)
        )
    });
    Ok((verdicts::dedup(probes::DEDUP_BYTES, sent), detail, observed))
}

fn delta(session: &Session, seeds: &mut Seeds) -> Result<Found, BenchError> {
    let mut observed = Vec::new();
    let mut cases = Vec::new();
    for change in probes::delta(seeds) {
        session.upload(std::slice::from_ref(&change.file))?;
        let traffic = session.replace(&change.file, change.make())?.traffic;
        cases.push(Replaced {
            position: change.position,
            bytes: change.bytes(),
            added_bytes: change.added_bytes,
            sent_bytes: traffic.stored_bytes,
        });
        observed.push(Observation {
            stimulus: change.name(),
            files: 1,
            bytes: change.bytes(),
            upload: traffic,
            download: None,
        });
        session.remove(&[change.file])?;
    }
    let detail = join(&observed, |each| {
        format!("{}: {} kB sent", each.stimulus, each.upload.stored_bytes / 1_000)
    });
    Ok((verdicts::delta(&cases), detail, observed))
}

fn peer_to_peer(session: &Session, seeds: &mut Seeds) -> Result<Found, BenchError> {
    if !session.has_second() {
        return Ok((Verdict::NotApplicable, "there is no second client".into(), Vec::new()));
    }
    let stimulus = probes::peer_to_peer(seeds);
    let watched = session.watch_second(&stimulus.files);
    let mut observed = observation(&stimulus, session.upload(&stimulus.files)?.traffic);
    let second = watched.map(|watched| watched.wait(session)).transpose()?;
    session.remove(&stimulus.files)?;
    let Some(second) = second.filter(|second| second.has_all) else {
        let detail = "the second client has not seen the file";
        return Ok((Verdict::Inconclusive, detail.into(), vec![observed]));
    };
    let fetched = second.traffic.fetched_bytes;
    observed.download = Some(second.traffic);
    let detail = format!("{} fetched from the store", percent(fetched, probes::PEER_BYTES));
    Ok((
        verdicts::peer_to_peer(probes::PEER_BYTES, fetched),
        detail,
        vec![observed],
    ))
}

/// Each stimulus up, then, with empty caches, each down; then all are removed.
fn observe(session: &Session, stimuli: &[Stimulus]) -> Result<Vec<Observation>, BenchError> {
    let mut observed = Vec::new();
    for stimulus in stimuli {
        observed.push(observation(stimulus, session.upload(&stimulus.files)?.traffic));
    }
    if session.forget()? {
        for (stimulus, observation) in stimuli.iter().zip(&mut observed) {
            observation.download = Some(session.read(&stimulus.files)?);
        }
    }
    let files: Vec<File> = stimuli.iter().flat_map(|stimulus| stimulus.files.clone()).collect();
    session.remove(&files)?;
    Ok(observed)
}

fn observation(stimulus: &Stimulus, upload: Traffic) -> Observation {
    Observation {
        stimulus: stimulus.name.clone(),
        files: stimulus.files.len() as u64,
        bytes: stimulus.bytes(),
        upload,
        download: None,
    }
}

fn join(observed: &[Observation], text: impl Fn(&Observation) -> String) -> String {
    observed.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}
