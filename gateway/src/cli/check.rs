//! `tombolo check`: begins a check of all shares in the gateway, or joins the one under way, and waits for its end.
//! Findings go to standard output, the progress to standard error.

use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{CheckFinding, CheckState, CheckStatus};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn run(client: &Client, as_json: bool) -> Result<(), CliError> {
    let status = wait(client)?;
    if as_json {
        output::json(&status)?;
    } else {
        output::text(&shown(&status))?;
    }
    verdict(&status)
}

fn wait(client: &Client) -> Result<CheckStatus, CliError> {
    let mut display = Display::new();
    let mut status = client.ask(&endpoints::CHECK_START, &())?;
    let run = status.run;
    while status.state == CheckState::Running {
        display.show(&status);
        std::thread::sleep(POLL_INTERVAL);
        status = client.ask(&endpoints::CHECK_STATUS, &())?;
        // Another number: a gateway that was restarted, or somebody else's next check. What ours found is gone.
        if status.run != run {
            display.finish();
            return Err(CliError::CheckFailed("the gateway knows nothing of it any more".into()));
        }
    }
    display.finish();
    Ok(status)
}

/// Findings count, even if the check did not come to its end.
fn verdict(status: &CheckStatus) -> Result<(), CliError> {
    let reason = || status.error.clone().unwrap_or_else(|| "no reason was given".into());
    match (status.state, status.findings_count) {
        (CheckState::Finished, 0) => Ok(()),
        (_, 0) => Err(CliError::CheckFailed(reason())),
        (_, findings) => Err(CliError::CheckFindings { findings }),
    }
}

fn shown(status: &CheckStatus) -> String {
    let mut text: String = status.findings.iter().map(finding_shown).collect();
    let more = status.findings_count.saturating_sub(status.findings.len() as u64);
    if more > 0 {
        text += &format!("... and {} more\n", HumanCount(more));
    }
    if let (CheckState::Failed, Some(error)) = (status.state, &status.error) {
        text += &format!("did not finish: {error}\n");
    }
    let findings = match status.findings_count {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{} findings", HumanCount(count)),
    };
    text + &format!("{} inodes checked, {findings}\n", HumanCount(status.inodes_checked))
}

fn finding_shown(finding: &CheckFinding) -> String {
    let share = finding.share.as_deref().map(|share| format!("share {share}: "));
    let inode = finding.inode.map(|inode| format!("inode {inode}: "));
    let (share, inode) = (share.unwrap_or_default(), inode.unwrap_or_default());
    format!("{share}{inode}{}\n", finding.message)
}

enum Display {
    Bar(ProgressBar),
    Lines { last: Instant },
}

impl Display {
    fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { last: Instant::now() };
        }
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        Self::Bar(ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    fn show(&mut self, status: &CheckStatus) {
        let (checked, findings) = (HumanCount(status.inodes_checked), HumanCount(status.findings_count));
        let message = format!("{checked} of {} inodes, {findings} findings", HumanCount(status.inodes));
        match self {
            Self::Bar(bar) => {
                bar.set_length(status.inodes.max(status.inodes_checked));
                bar.set_position(status.inodes_checked);
                bar.set_message(message);
            }
            Self::Lines { last } if last.elapsed() < LINE_INTERVAL => {}
            Self::Lines { last } => {
                *last = Instant::now();
                eprintln!("{message}");
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
        assert_eq!(shown(&status), expected);
        assert_eq!(verdict(&status).unwrap_err().exit_code(), 7);
    }

    #[test]
    fn only_a_finished_check_without_findings_is_good() {
        let mut status = finished(0, Vec::new());
        assert_eq!(shown(&status), "1,000 inodes checked, nothing found\n");
        verdict(&status).unwrap();
        status.state = CheckState::Failed;
        status.error = Some("disk".into());
        assert!(shown(&status).contains("did not finish: disk\n"));
        assert_eq!(verdict(&status).unwrap_err().exit_code(), 1);
        status.findings_count = 1;
        assert_eq!(verdict(&status).unwrap_err().exit_code(), 7);
        status.state = CheckState::None;
        assert!(verdict(&status).is_err());
    }
}
