//! `tombolo check`: begins a check of all shares or of the store in the gateway, or joins the one under way, and waits for
//! its end. Findings go to standard output, the progress to standard error.

use super::drain::{absent, served};
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoint::{Endpoint, Request};
use crate::admin::endpoints::{self, OfStore, StartStoreCheck};
use crate::admin::model::{
    CheckFinding, CheckState, CheckStatus, ReplicaCheck, StoreCheckStage, StoreCheckStatus, StoreFinding,
};
use crate::settings::FIRST;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// `whole`: whether the store is checked, and whether that goes on; `of`: which one, or whose shares; unless given, all that are
/// served, one after another. What one of them has found, or that it does not serve, keeps no other from being checked.
pub(super) fn run(client: &Client, whole: (bool, bool), of: Option<String>, as_json: bool) -> Result<(), CliError> {
    let status = client.ask(&endpoints::STATUS, &())?;
    let of = OfStore { store: of };
    let (stores, absent) = (served(&of, &status), absent(&of, &status));
    let are_several = stores.len() + absent.len() > 1;
    let mut outcome = Ok(());
    for store in stores {
        let name = store.clone().unwrap_or_else(|| FIRST.to_owned());
        if are_several && !as_json {
            output::text(&format!("store {name}:"))?;
        }
        let of = OfStore { store };
        outcome = outcome.and(check(client, whole, of, (as_json, are_several.then_some(name))));
    }
    for name in absent {
        let error = format!("store {name} does not serve, `tombolo status` says why: it was not checked");
        match as_json {
            true => output::json_line(&json!({ "store": name, "state": "failed", "error": error }))?,
            false => output::text(&format!("store {name}:\nnot checked: it does not serve"))?,
        }
        outcome = outcome.and(Err(CliError::CheckFailed(error)));
    }
    outcome
}

/// Of one of several stores.
#[derive(Serialize)]
struct OfOne<'s, S> {
    store: String,
    #[serde(flatten)]
    status: &'s S,
}

/// `output`: whether as JSON, and how the store is called if it is one of several.
fn check(client: &Client, whole: (bool, bool), of: OfStore, output: (bool, Option<String>)) -> Result<(), CliError> {
    let (of_store, resume) = whole;
    let store = of.store.clone();
    match of_store {
        true => carry_out(
            client,
            (&endpoints::STORE_CHECK_START, &StartStoreCheck { resume, store }),
            (&endpoints::STORE_CHECK_STATUS, &of),
            output,
        ),
        false => carry_out(
            client,
            (&endpoints::CHECK_START, &of),
            (&endpoints::CHECK_STATUS, &of),
            output,
        ),
    }
}

/// What both kinds of check tell.
struct Summary<'s> {
    run: u64,
    state: CheckState,
    /// What is counted.
    what: &'static str,
    checked: u64,
    total: u64,
    findings_count: u64,
    /// A line each.
    findings: Vec<String>,
    /// What else there is to say at the end.
    remark: String,
    error: Option<&'s str>,
    /// What no answer was had of, or is still wrong elsewhere than in the store itself.
    not_whole: Option<String>,
    /// Where it is, for who waits.
    progress: String,
    /// Said when nothing is known of it any more.
    how_to_go_on: &'static str,
}

trait Check: Serialize + DeserializeOwned + JsonSchema {
    fn summary(&self) -> Summary<'_>;
}

impl Check for CheckStatus {
    fn summary(&self) -> Summary<'_> {
        Summary {
            run: self.run,
            state: self.state,
            what: "inodes",
            checked: self.inodes_checked,
            total: self.inodes,
            findings_count: self.findings_count,
            findings: self.findings.iter().map(finding_shown).collect(),
            remark: String::new(),
            error: self.error.as_deref(),
            not_whole: None,
            progress: progress(self.inodes_checked, self.inodes, "inodes"),
            how_to_go_on: "",
        }
    }
}

impl Check for StoreCheckStatus {
    fn summary(&self) -> Summary<'_> {
        let mut remark = format!("; {} verified", HumanBytes(self.bytes_read));
        if self.blocks_not_indexed > 0 {
            let count = HumanCount(self.blocks_not_indexed);
            remark +=
                &format!("; {count} blocks that the fingerprint index does not know, so equal ones are stored again");
        }
        if self.index_entries_nowhere > 0 {
            let count = HumanCount(self.index_entries_nowhere);
            remark += &format!("; {count} entries of the fingerprint index that lead nowhere and are not used");
        }
        if self.objects_healed > 0 {
            let count = HumanCount(self.objects_healed);
            remark += &format!("; {count} were put again from a replica");
        }
        for replica in &self.replicas {
            let bad = replica.missing + replica.altered;
            let of = HumanCount(replica.whole + bad + replica.unknown);
            remark += &format!(
                "; replica {}: {} of {of} whole",
                replica.name,
                HumanCount(replica.whole)
            );
            if bad > 0 {
                let (bad, healed) = (HumanCount(bad), HumanCount(replica.healed));
                remark += &format!(", {bad} missing or altered, {healed} of them put again");
            }
            if replica.unknown > 0 {
                remark += &format!(", {} not answered", HumanCount(replica.unknown));
            }
        }
        remark.extend(self.remarks.iter().map(|said| format!("; {said}")));
        remark += &match self.orphans_count {
            0 => String::new(),
            count => format!(
                "; {} orphans, such as {}: garbage of interrupted uploads, or of another gateway",
                HumanCount(count),
                self.orphans.first().map_or("", String::as_str)
            ),
        };
        Summary {
            run: self.run,
            state: self.state,
            what: "objects",
            checked: self.objects_checked,
            total: self.objects,
            findings_count: self.findings_count,
            findings: self.findings.iter().map(store_finding_shown).collect(),
            remark,
            error: self.error.as_deref(),
            not_whole: self.replicas.iter().find_map(not_whole),
            progress: self.progress(),
            how_to_go_on: "; `tombolo check --store --resume` goes on where it was",
        }
    }
}

fn carry_out<S: Check, R: Request>(
    client: &Client,
    start: (&Endpoint<R, S>, &R),
    latest: (&Endpoint<OfStore, S>, &OfStore),
    (as_json, one_of_several): (bool, Option<String>),
) -> Result<(), CliError> {
    let status = wait(client, start, latest, as_json)?;
    match (as_json, one_of_several) {
        (false, _) => output::text(&shown(&status.summary()))?,
        (true, None) => output::json(&status)?,
        (true, Some(store)) => output::json_line(&OfOne { store, status: &status })?,
    }
    verdict(&status.summary())
}

fn wait<S: Check, R: Request>(
    client: &Client,
    (start, request): (&Endpoint<R, S>, &R),
    latest: (&Endpoint<OfStore, S>, &OfStore),
    as_json: bool,
) -> Result<S, CliError> {
    let mut display = Display::new(as_json);
    let mut status = client.ask(start, request)?;
    let run = status.summary().run;
    while status.summary().state == CheckState::Running {
        display.show(&status);
        std::thread::sleep(POLL_INTERVAL);
        status = client.ask(latest.0, latest.1)?;
        // Another number: a gateway that was restarted, or somebody else's next check. What ours found is gone.
        if status.summary().run != run {
            display.finish();
            let said = "the gateway knows nothing of it any more".to_owned();
            return Err(CliError::CheckFailed(said + status.summary().how_to_go_on));
        }
    }
    display.finish();
    Ok(status)
}

/// A replica is there to be relied on one day.
fn not_whole(replica: &ReplicaCheck) -> Option<String> {
    let bad = (replica.missing + replica.altered).saturating_sub(replica.healed);
    if bad > 0 {
        return Some(format!(
            "{} copies in replica {} are missing or altered, and were not put again",
            HumanCount(bad),
            replica.name
        ));
    }
    (replica.unknown > 0).then(|| {
        format!(
            "replica {} did not answer for {} of its copies",
            replica.name,
            HumanCount(replica.unknown)
        )
    })
}

/// Findings count, even if the check did not come to its end.
fn verdict(summary: &Summary<'_>) -> Result<(), CliError> {
    match (summary.state, summary.findings_count) {
        (CheckState::Finished, 0) => match &summary.not_whole {
            None => Ok(()),
            Some(not_whole) => Err(CliError::CheckFailed(not_whole.clone())),
        },
        (_, 0) => Err(CliError::CheckFailed(
            summary.error.unwrap_or("no reason was given").to_owned(),
        )),
        (_, findings) => Err(CliError::CheckFindings { findings }),
    }
}

fn shown(summary: &Summary<'_>) -> String {
    let mut text = summary.findings.concat();
    let more = summary.findings_count.saturating_sub(summary.findings.len() as u64);
    if more > 0 {
        text += &format!("... and {} more\n", HumanCount(more));
    }
    if let (CheckState::Failed, Some(error)) = (summary.state, summary.error) {
        text += &format!("did not finish: {error}\n");
    }
    let found = match summary.findings_count {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{} findings", HumanCount(count)),
    };
    let (checked, what, remark) = (HumanCount(summary.checked), summary.what, &summary.remark);
    text + &format!("{checked} {what} checked, {found}{remark}\n")
}

fn store_finding_shown(finding: &StoreFinding) -> String {
    let mut place = Vec::new();
    if !finding.object.is_empty() {
        place.push(finding.object.clone());
    }
    if let Some(volume) = &finding.volume {
        place.push(volume.clone());
    }
    match (&finding.volume, finding.blocks) {
        (_, 0) => {}
        (Some(_), blocks) => place.push(format!(
            "blocks {} to {}",
            finding.first_block,
            finding.first_block + (blocks - 1)
        )),
        (None, blocks) => place.push(format!("{blocks} blocks")),
    }
    if finding.blocks > 0 && finding.last_pvbn > 0 {
        place.push(format!("PVBN {} to {}", finding.first_pvbn, finding.last_pvbn));
    }
    let place = place.join(", ");
    let separator = if place.is_empty() { "" } else { ": " };
    let advice = match finding.advice.as_str() {
        "" => String::new(),
        advice => format!("; {advice}"),
    };
    format!("{place}{separator}{}{advice}\n", finding.message)
}

fn finding_shown(finding: &CheckFinding) -> String {
    let share = finding.share.as_deref().map(|share| format!("share {share}: "));
    let inode = finding.inode.map(|inode| format!("inode {inode}: "));
    let (share, inode) = (share.unwrap_or_default(), inode.unwrap_or_default());
    format!("{share}{inode}{}\n", finding.message)
}

impl StoreCheckStatus {
    fn progress(&self) -> String {
        match self.stage {
            StoreCheckStage::StoreMetadata => {
                let count = HumanCount(self.records_compared);
                format!("the store's metadata: {count} blocks and records compared")
            }
            StoreCheckStage::References => format!("references: {} blocks", HumanCount(self.references_checked)),
            StoreCheckStage::Index => {
                let count = HumanCount(self.index_entries_checked);
                format!("fingerprint index: {count} entries")
            }
            StoreCheckStage::Listing => "names in the store".to_owned(),
            StoreCheckStage::Objects => format!(
                "{}, {} of {}, {}/s",
                progress(self.objects_checked, self.objects, "objects"),
                HumanBytes(self.bytes_read),
                HumanBytes(self.bytes),
                HumanBytes(self.bytes_per_s as u64)
            ),
        }
    }
}

fn progress(checked: u64, total: u64, what: &str) -> String {
    format!("{} of {} {what}", HumanCount(checked), HumanCount(total))
}

enum Display {
    Bar(ProgressBar),
    Lines { last: Instant, as_json: bool },
}

impl Display {
    fn new(as_json: bool) -> Self {
        if as_json || !std::io::stderr().is_terminal() {
            let last = Instant::now();
            return Self::Lines { last, as_json };
        }
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        Self::Bar(ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    fn show<S: Check>(&mut self, status: &S) {
        let summary = status.summary();
        let (checked, total) = (summary.checked, summary.total);
        let message = format!("{}, {} findings", summary.progress, HumanCount(summary.findings_count));
        match self {
            Self::Bar(bar) => {
                bar.set_length(total.max(checked));
                bar.set_position(checked);
                bar.set_message(message);
            }
            Self::Lines { last, .. } if last.elapsed() < LINE_INTERVAL => {}
            Self::Lines { last, as_json } => {
                *last = Instant::now();
                match serde_json::to_string(status) {
                    Ok(line) if *as_json => eprintln!("{line}"),
                    _ => eprintln!("{message}"),
                }
            }
        }
    }

    fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(findings_count: u64, findings: Vec<CheckFinding>) -> CheckStatus {
        CheckStatus {
            run: 1,
            state: CheckState::Finished,
            inodes_checked: 1_000,
            inodes: 1_000,
            findings_count,
            findings,
            error: None,
        }
    }

    #[test]
    fn findings_name_their_place() {
        let finding = CheckFinding {
            share: Some("docs".into()),
            inode: Some(17),
            message: "2 names, but a link count of 3".into(),
        };
        let general = CheckFinding {
            share: None,
            inode: None,
            message: "a session without a share".into(),
        };
        let expected = "\
share docs: inode 17: 2 names, but a link count of 3
a session without a share
... and 1,000 more
1,000 inodes checked, 1,002 findings
";
        let status = finished(1_002, vec![finding, general]);
        assert_eq!(shown(&status.summary()), expected);
        assert_eq!(verdict(&status.summary()).unwrap_err().exit_code(), 7);
    }

    #[test]
    fn a_check_of_the_store_names_objects_and_what_lies_there_besides() {
        let status = StoreCheckStatus {
            run: 1,
            state: CheckState::Finished,
            objects_checked: 2_000,
            bytes_read: 3 << 20,
            orphans_count: 2,
            orphans: vec!["objects/ab/cd".into(), "objects/ef/01".into()],
            findings_count: 1,
            findings: vec![StoreFinding {
                object: "objects/12/34".into(),
                first_pvbn: 7,
                last_pvbn: 90,
                blocks: 64,
                message: "it is missing".into(),
                ..StoreFinding::default()
            }],
            ..StoreCheckStatus::default()
        };
        let expected = "\
objects/12/34, 64 blocks, PVBN 7 to 90: it is missing
2,000 objects checked, 1 finding; 3.00 MiB verified; 2 orphans, such as objects/ab/cd: garbage of interrupted uploads, or of \
                        another gateway
";
        assert_eq!(shown(&status.summary()), expected);
        assert_eq!(verdict(&status.summary()).unwrap_err().exit_code(), 7);
    }

    #[test]
    fn only_a_finished_check_without_findings_is_good() {
        let mut status = finished(0, Vec::new());
        assert_eq!(shown(&status.summary()), "1,000 inodes checked, nothing found\n");
        verdict(&status.summary()).unwrap();
        status.state = CheckState::Failed;
        status.error = Some("disk".into());
        assert!(shown(&status.summary()).contains("did not finish: disk\n"));
        assert_eq!(verdict(&status.summary()).unwrap_err().exit_code(), 1);
        status.findings_count = 1;
        assert_eq!(verdict(&status.summary()).unwrap_err().exit_code(), 7);
        status.state = CheckState::None;
        assert!(verdict(&status.summary()).is_err());
    }
}
