//! What must be told to tgtd so that a target is as wanted: a pure function of what tgtd shows. Doing it twice does
//! nothing the second time.

use super::target::Target;

pub(super) const LUN: u32 = 1;
pub(super) const BACKING_STORE_TYPE: &str = "tombolo";

/// One target as `tgtadm --op show --mode target` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub tid: u32,
    pub iqn: String,
    pub luns: Vec<ShownLun>,
    pub accounts: Vec<String>,
    pub initiators: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownLun {
    pub lun: u32,
    pub store_type: String,
    pub path: String,
}

/// One call of tgtadm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    NewTarget { tid: u32, iqn: String },
    NewLun { tid: u32, path: String },
    SetThin { tid: u32 },
    NewAccount { user: String, secret: String },
    BindAccount { tid: u32, user: String },
    BindInitiator { tid: u32, initiator: String },
}

/// The steps in an order that never leaves a target open to more than is wanted: initiators come last. The error names
/// the conflict and the way out.
pub(super) fn plan(wanted: &Target, shown: &[Shown], accounts: &[String]) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let path = wanted.nbd_uri();
    let existing = shown.iter().find(|target| target.iqn == wanted.iqn);
    let tid = existing.map_or_else(|| free_tid(shown), |target| target.tid);
    if existing.is_none() {
        steps.push(Step::NewTarget {
            tid,
            iqn: wanted.iqn.clone(),
        });
    }
    match existing.and_then(|target| target.luns.iter().find(|lun| lun.lun == LUN)) {
        Some(lun) if lun.store_type == BACKING_STORE_TYPE && same_volume(lun, wanted) => {}
        Some(lun) => {
            return Err(format!(
                "LUN {LUN} of {} is {} ({}), not {path}; delete that target or choose another --iqn",
                wanted.iqn, lun.path, lun.store_type
            ));
        }
        None => {
            steps.push(Step::NewLun { tid, path });
            steps.push(Step::SetThin { tid });
        }
    }
    plan_access(wanted, existing, tid, accounts, &mut steps)?;
    Ok(steps)
}

/// A LUN from the configuration file shows the socket alone; its volume is not shown, and its target's name decides.
fn same_volume(lun: &ShownLun, wanted: &Target) -> bool {
    lun.path == wanted.nbd_uri() || lun.path == wanted.nbd_socket.to_string_lossy()
}

fn plan_access(
    wanted: &Target,
    existing: Option<&Shown>,
    tid: u32,
    accounts: &[String],
    steps: &mut Vec<Step>,
) -> Result<(), String> {
    let bound = existing.map_or(&[][..], |target| &target.accounts);
    match &wanted.chap {
        Some(chap) => {
            if !accounts.contains(&chap.user) {
                steps.push(Step::NewAccount {
                    user: chap.user.clone(),
                    secret: chap.secret.clone(),
                });
            }
            if !bound.contains(&chap.user) {
                steps.push(Step::BindAccount {
                    tid,
                    user: chap.user.clone(),
                });
            }
        }
        None if !bound.is_empty() => {
            let users = bound.join(", ");
            return Err(format!(
                "{} requires CHAP ({users}); give --chap-user, or delete that target first",
                wanted.iqn
            ));
        }
        None => {}
    }
    if !existing.is_some_and(|target| target.initiators.contains(&wanted.initiator)) {
        steps.push(Step::BindInitiator {
            tid,
            initiator: wanted.initiator.clone(),
        });
    }
    Ok(())
}

fn free_tid(shown: &[Shown]) -> u32 {
    shown.iter().map(|target| target.tid).max().unwrap_or(0) + 1
}

/// Reads the text of `tgtadm --op show --mode target`.
pub(super) fn parse_targets(text: &str) -> Vec<Shown> {
    let mut targets: Vec<Shown> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if let Some((tid, iqn)) = line.strip_prefix("Target ").and_then(|rest| rest.split_once(": ")) {
            if let Ok(tid) = tid.parse() {
                targets.push(Shown {
                    tid,
                    iqn: iqn.trim().into(),
                    ..Shown::default()
                });
            }
            continue;
        }
        let Some(target) = targets.last_mut() else { continue };
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        match (indent, section) {
            (4, _) => section = line,
            (8, "Account information:") => target.accounts.push(line.into()),
            (8, "ACL information:") => target.initiators.push(line.into()),
            (_, "LUN information:") => parse_lun_line(line, &mut target.luns),
            _ => {}
        }
    }
    targets
}

fn parse_lun_line(line: &str, luns: &mut Vec<ShownLun>) {
    let Some((key, value)) = line.split_once(": ") else {
        return;
    };
    match (key, luns.last_mut()) {
        ("LUN", _) => luns.extend(value.parse().map(|lun| ShownLun {
            lun,
            ..ShownLun::default()
        })),
        ("Backing store type", Some(lun)) => lun.store_type = value.into(),
        ("Backing store path", Some(lun)) => lun.path = value.into(),
        _ => {}
    }
}

/// Reads the text of `tgtadm --op show --mode account`: a heading and one name per line.
pub(super) fn parse_accounts(text: &str) -> Vec<String> {
    text.lines()
        .skip(1)
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Reads the first portal of `tgtadm --op show --mode portal` (`Portal: 0.0.0.0:3260,1`). A wildcard address is shown as
/// loopback, which is certain to work here.
pub(super) fn parse_portal(text: &str) -> Option<String> {
    let portal = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Portal:"))?
        .trim();
    let portal = portal.split(',').next()?;
    let portal = portal
        .strip_prefix("0.0.0.0:")
        .map(|port| format!("127.0.0.1:{port}"))
        .unwrap_or(portal.into());
    Some(
        portal
            .strip_prefix("[::]:")
            .map(|port| format!("[::1]:{port}"))
            .unwrap_or(portal),
    )
}

#[cfg(test)]
mod tests {
    use super::super::target::Chap;
    use super::super::target::tests::example;
    use super::*;

    const SHOWN: &str = "Target 1: iqn.2026-01.io.tombolo:host:vol-1
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
        I_T nexus: 1
            Initiator: iqn.x alias: none
    LUN information:
        LUN: 0
            Type: controller
            Backing store type: null
            Backing store path: None
            Backing store flags:
        LUN: 1
            Type: disk
            SCSI ID: IET     00010001
            Backing store type: tombolo
            Backing store path: nbd+unix:///vol_1?socket=/run/tombolo/nbd.sock
            Backing store flags:
    Account information:
        user
    ACL information:
        ALL
        10.0.0.1
Target 7: iqn.other
    LUN information:
    Account information:
    ACL information:
";

    fn with_chap() -> Target {
        Target {
            chap: Some(Chap {
                user: "user".into(),
                secret: "twelve-bytes".into(),
            }),
            ..example()
        }
    }

    #[test]
    fn what_tgtadm_shows_is_read() {
        let targets = parse_targets(SHOWN);
        assert_eq!(targets.len(), 2);
        assert_eq!(targets[0].accounts, ["user"]);
        assert_eq!(targets[0].initiators, ["ALL", "10.0.0.1"]);
        assert_eq!(targets[0].luns.len(), 2);
        assert_eq!(targets[0].luns[1].path, example().nbd_uri());
        assert_eq!((targets[1].tid, targets[1].iqn.as_str()), (7, "iqn.other"));
        assert_eq!(parse_accounts("Account list:\n    user\n    two\n"), ["user", "two"]);
        assert_eq!(
            parse_portal("Portal: 0.0.0.0:3260,1\n").as_deref(),
            Some("127.0.0.1:3260")
        );
        assert_eq!(parse_portal("Portal: [::]:3260,1\n").as_deref(), Some("[::1]:3260"));
        assert_eq!(parse_portal("Portal: 10.1.1.1:99,1\n").as_deref(), Some("10.1.1.1:99"));
        assert_eq!(parse_portal(""), None);
        assert!(parse_targets("Target x: y\n    LUN information:\n        LUN: z\n").is_empty());
    }

    #[test]
    fn a_new_target_is_made_and_opened_last() {
        let steps = plan(&with_chap(), &parse_targets("Target 3: iqn.x\n"), &[]).unwrap();
        let expected = [
            Step::NewTarget {
                tid: 4,
                iqn: example().iqn,
            },
            Step::NewLun {
                tid: 4,
                path: example().nbd_uri(),
            },
            Step::SetThin { tid: 4 },
            Step::NewAccount {
                user: "user".into(),
                secret: "twelve-bytes".into(),
            },
            Step::BindAccount {
                tid: 4,
                user: "user".into(),
            },
            Step::BindInitiator {
                tid: 4,
                initiator: "ALL".into(),
            },
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn what_is_so_already_needs_nothing() {
        assert_eq!(plan(&with_chap(), &parse_targets(SHOWN), &["user".into()]), Ok(vec![]));
        let from_file = SHOWN.replace(
            "nbd+unix:///vol_1?socket=/run/tombolo/nbd.sock",
            "/run/tombolo/nbd.sock",
        );
        assert_eq!(
            plan(&with_chap(), &parse_targets(&from_file), &["user".into()]),
            Ok(vec![])
        );
    }

    #[test]
    fn conflicts_are_not_overwritten() {
        let other = Target {
            volume: "other".into(),
            ..with_chap()
        };
        assert!(plan(&other, &parse_targets(SHOWN), &[]).unwrap_err().contains("--iqn"));
        assert!(
            plan(&example(), &parse_targets(SHOWN), &[])
                .unwrap_err()
                .contains("CHAP")
        );
    }
}
