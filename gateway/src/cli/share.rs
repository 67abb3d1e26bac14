use super::arguments::{MountArguments, ShareCommand};
use super::confirm::confirm;
use super::error::CliError;
use super::output;
use super::volume::store_remark;
use crate::admin::client::Client;
use crate::admin::endpoint::Request;
use crate::admin::endpoints::{self, CreateShare, DeleteShare, ShareFlush, ShareQuota};
use crate::admin::model::{SessionInfo, ShareInfo, check_share_name};
use crate::logging;
use crate::mount::{self, MountOptions};
use crate::settings::{ByteSize, Log};
use indicatif::{HumanBytes, HumanCount};
use serde_json::json;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

pub(super) fn run(client: &Client, command: ShareCommand) -> Result<(), CliError> {
    match command {
        ShareCommand::Create {
            name,
            quota,
            flush,
            store,
            json,
        } => {
            let request = CreateShare {
                name,
                quota_bytes: quota.map(|size| size.0),
                flush,
                store,
            };
            let created = client.ask(&endpoints::SHARE_CREATE, &request)?;
            show(&created, "created", json)
        }
        ShareCommand::List { json } => {
            let shares = client.ask(&endpoints::SHARE_LIST, &())?;
            match json {
                true => output::json(&shares),
                false => output::text(&listed(&shares)),
            }
        }
        ShareCommand::Quota { name, quota, json } => {
            let quota_bytes = quota.0.map(|size| size.0);
            let changed = client.ask(&endpoints::SHARE_QUOTA, &ShareQuota { name, quota_bytes })?;
            show(&changed, "changed", json)
        }
        ShareCommand::Set { name, flush, json } => {
            let changed = client.ask(&endpoints::SHARE_FLUSH, &ShareFlush { name, flush })?;
            show(&changed, "changed", json)
        }
        ShareCommand::Delete { name, force, yes, json } => {
            let request = DeleteShare { name, force };
            request.check()?;
            let name = &request.name;
            if !yes {
                confirm(&format!("share {name} and all its files"), name)?;
            }
            client.ask(&endpoints::SHARE_DELETE, &request)?;
            deleted(name, json)
        }
        ShareCommand::Mount(arguments) => hold_mount(client, &arguments),
    }
}

fn show(share: &ShareInfo, done: &str, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::json(share);
    }
    let quota = share
        .quota_bytes
        .map_or("no quota".into(), |bytes| format!("quota {}", ByteSize(bytes)));
    let (flush, store) = (share.flush.remark(), store_remark(share.store.as_deref()));
    output::text(&format!("{done} share {}: {quota}{flush}{store}", share.name))
}

fn deleted(name: &str, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::json(&json!({ "name": name, "deleted": true }));
    }
    output::text(&format!("deleted share {name}"))
}

fn listed(shares: &[ShareInfo]) -> String {
    let row = |share: &ShareInfo| {
        let name = if share.deleting {
            format!("{} (being deleted)", share.name)
        } else {
            share.name.clone()
        };
        let name = name + &store_remark(share.store.as_deref());
        [
            name,
            HumanBytes(share.used_bytes).to_string(),
            share
                .quota_bytes
                .map_or("none".into(), |bytes| ByteSize(bytes).to_string()),
            share.flush.as_str().to_owned(),
            HumanCount(share.inodes).to_string(),
            share.sessions.iter().map(client_shown).collect::<Vec<_>>().join(", "),
        ]
    };
    output::table(
        ["NAME", "USED", "QUOTA", "FLUSH", "FILES", "CLIENTS"],
        &shares.iter().map(row).collect::<Vec<_>>(),
    )
}

fn client_shown(session: &SessionInfo) -> String {
    let away = if session.connected { "" } else { ", away" };
    format!("{} ({}{away})", session.client, session.kind.as_str())
}

fn hold_mount(client: &Client, arguments: &MountArguments) -> Result<(), CliError> {
    check_share_name(&arguments.name)?;
    let files_socket = files_socket(client.socket())?;
    let options = MountOptions {
        share: arguments.name.clone(),
        directory: absolute(&arguments.directory)?,
        read_only: arguments.read_only,
        state: state_directory(&files_socket),
        files_socket,
        threads: arguments.threads,
    };
    // It stays for long, and what happens meanwhile is for the supervisor's log.
    logging::start(&Log::default());
    Ok(mount::run(&options, tell_supervisor)?)
}

/// Both sockets stand in the runtime directory. The gateway need not run yet, so nothing is looked up.
pub(super) fn files_socket(admin_socket: &Path) -> Result<PathBuf, CliError> {
    Ok(absolute(admin_socket)?.with_file_name("files.sock"))
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| CliError::File {
        action: "cannot make absolute",
        path: path.to_owned(),
        error,
    })
}

/// As systemd.exec(5) says it with StateDirectory=, which outlives a restart of the machine; else beside the socket.
fn state_directory(files_socket: &Path) -> PathBuf {
    match std::env::var_os("STATE_DIRECTORY") {
        Some(directory) if Path::new(&directory).is_absolute() => directory.into(),
        _ => files_socket.parent().unwrap_or(Path::new("/")).to_owned(),
    }
}

/// As sd_notify(3): what needs the mount is started once it is there. Whoever is not run by systemd has no such socket,
/// and a supervisor that does not listen is no reason to give up a mount.
fn tell_supervisor() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| path.as_encoded_bytes().starts_with(b"/")) else {
        return;
    };
    if let Err(error) = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"READY=1", path)) {
        tracing::warn!(%error, "cannot tell the supervisor that the share is mounted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::model::{FlushMode, SessionKind};

    #[test]
    fn list_shows_use_and_users() {
        let session = |client: &str, kind, connected| SessionInfo {
            client: client.into(),
            kind,
            connected,
        };
        let shares = [
            ShareInfo {
                name: "docs".into(),
                quota_bytes: Some(10 << 30),
                flush: FlushMode::Bucket,
                used_bytes: 3 << 29,
                inodes: 12_345,
                sessions: vec![
                    session("host", SessionKind::Mount, true),
                    session("nfs", SessionKind::Socket, false),
                ],
                ..ShareInfo::default()
            },
            ShareInfo {
                name: "old".into(),
                inodes: 1,
                deleting: true,
                ..ShareInfo::default()
            },
        ];
        let expected = "\
NAME                 USED      QUOTA  FLUSH   FILES   CLIENTS
docs                 1.50 GiB  10GiB  bucket  12,345  host (mount), nfs (socket, away)
old (being deleted)  0 B       none   local   1
";
        assert_eq!(listed(&shares), expected);
    }

    #[test]
    fn sockets_stand_beside_each_other() {
        assert_eq!(
            files_socket(Path::new("/run/tombolo/admin.sock")).unwrap(),
            Path::new("/run/tombolo/files.sock")
        );
    }
}
