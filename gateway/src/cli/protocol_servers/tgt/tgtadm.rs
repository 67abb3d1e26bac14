//! Calls of tgtadm. Which tgtd it reaches is decided by the control port and by TGT_IPC_SOCKET, which it inherits.

use super::super::super::error::CliError;
use super::plan::{BACKING_STORE_TYPE, LUN, Step, parse_accounts, parse_portal, parse_targets, plan};
use super::target::Target;
use std::process::Command;

pub(super) struct Tgtadm {
    control_port: u16,
}

impl Tgtadm {
    pub fn new(control_port: u16) -> Self {
        Self { control_port }
    }

    /// Makes the target as wanted, and looks whether it is.
    pub fn apply(&self, wanted: &Target) -> Result<(), CliError> {
        for step in self.missing(wanted)? {
            self.call(&words(&step))?;
        }
        match self.missing(wanted)?.first() {
            None => Ok(()),
            Some(step) => {
                let command = describe(&words(step));
                Err(CliError::Tgtadm {
                    command,
                    said: "tgtd took it, but does not show it".into(),
                })
            }
        }
    }

    pub fn first_portal(&self) -> Result<Option<String>, CliError> {
        Ok(parse_portal(&self.show("portal")?))
    }

    fn missing(&self, wanted: &Target) -> Result<Vec<Step>, CliError> {
        let targets = parse_targets(&self.show("target")?);
        let accounts = parse_accounts(&self.show("account")?);
        plan(wanted, &targets, &accounts).map_err(CliError::ExportConflict)
    }

    fn show(&self, mode: &str) -> Result<String, CliError> {
        self.call(&["--op", "show", "--mode", mode].map(String::from))
    }

    fn call(&self, words: &[String]) -> Result<String, CliError> {
        let done = Command::new("tgtadm")
            .args(["--control-port", &self.control_port.to_string(), "--lld", "iscsi"])
            .args(words)
            .output()
            .map_err(CliError::TgtadmMissing)?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        let said = if said.is_empty() {
            format!("{}; is tgtd running?", done.status)
        } else {
            said
        };
        Err(CliError::Tgtadm {
            command: describe(words),
            said,
        })
    }
}

/// For an error: without a secret.
fn describe(words: &[String]) -> String {
    let mut shown = String::from("tgtadm");
    let mut secret_follows = false;
    for word in words {
        shown.push(' ');
        shown += if secret_follows { "..." } else { word };
        secret_follows = word == "--password";
    }
    shown
}

fn words(step: &Step) -> Vec<String> {
    let lun = LUN.to_string();
    let on = |tid: &u32| tid.to_string();
    let words: Vec<String> = match step {
        Step::NewTarget { tid, iqn } => [
            "--op",
            "new",
            "--mode",
            "target",
            "--tid",
            &on(tid),
            "--targetname",
            iqn,
        ]
        .map(String::from)
        .into(),
        Step::NewLun { tid, path } => {
            let place = ["--op", "new", "--mode", "logicalunit", "--tid", &on(tid), "--lun", &lun].map(String::from);
            let store = ["--bstype", BACKING_STORE_TYPE, "--backing-store", path].map(String::from);
            place.into_iter().chain(store).collect()
        }
        Step::SetThin { tid } => {
            let place = [
                "--op",
                "update",
                "--mode",
                "logicalunit",
                "--tid",
                &on(tid),
                "--lun",
                &lun,
            ]
            .map(String::from);
            place
                .into_iter()
                .chain(["--params", "thin_provisioning=1"].map(String::from))
                .collect()
        }
        Step::NewAccount { user, secret } => ["--op", "new", "--mode", "account", "--user", user, "--password", secret]
            .map(String::from)
            .into(),
        Step::BindAccount { tid, user } => ["--op", "bind", "--mode", "account", "--tid", &on(tid), "--user", user]
            .map(String::from)
            .into(),
        Step::BindInitiator { tid, initiator } => {
            let words = [
                "--op",
                "bind",
                "--mode",
                "target",
                "--tid",
                &on(tid),
                "--initiator-address",
                initiator,
            ];
            words.map(String::from).into()
        }
    };
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_hold_no_secret() {
        let step = Step::NewAccount {
            user: "user".into(),
            secret: "hunter2hunter2".into(),
        };
        assert_eq!(
            describe(&words(&step)),
            "tgtadm --op new --mode account --user user --password ..."
        );
    }
}
