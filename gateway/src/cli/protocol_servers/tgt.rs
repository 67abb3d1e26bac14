//! `tombolo export iscsi`. tgtd keeps nothing of ours: its restart reads the file that `--write` left, or `--apply` is
//! repeated.

mod plan;
mod stanza;
mod target;
mod tgtadm;

use super::super::arguments::IscsiOptions;
use super::super::error::CliError;
use super::super::output;
use super::files;
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{ControlError, check_volume_name};
use serde_json::json;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use target::{Chap, Target};
use tgtadm::Tgtadm;

/// The longest secret that any initiator takes is far shorter.
const SECRET_FILE_BYTES_MAX: u64 = 4096;
const PORTAL_DEFAULT: &str = "127.0.0.1:3260";

pub(super) fn run(client: &Client, options: &IscsiOptions) -> Result<(), CliError> {
    let target = target(client, options)?;
    if options.write {
        let file = options.file.clone().unwrap_or_else(|| default_file(&target.volume));
        // It may hold a secret.
        files::replace(&file, &stanza::with_secret(&target), 0o600)?;
    }
    let mut portal = options.portal.clone();
    if options.apply {
        let tgtadm = Tgtadm::new(options.control_port);
        tgtadm.apply(&target)?;
        portal = portal.or(tgtadm.first_portal()?);
    }
    let url = format!(
        "iscsi://{}/{}/1",
        portal.as_deref().unwrap_or(PORTAL_DEFAULT),
        target.iqn
    );
    if options.json {
        let nbd_uri = target.nbd_uri();
        return output::json(&json!({ "volume": target.volume, "iqn": target.iqn, "url": url, "nbd_uri": nbd_uri }));
    }
    if !options.write && !options.apply {
        output::text(&stanza::without_secret(&target))?;
    }
    output::text(&url)
}

/// What is wanted, checked against the gateway that serves it.
fn target(client: &Client, options: &IscsiOptions) -> Result<Target, CliError> {
    check_volume_name(&options.name)?;
    let volumes = client.ask(&endpoints::VOLUME_LIST, &())?;
    if !volumes.iter().any(|volume| volume.name == options.name) {
        return Err(ControlError::volume_not_found(&options.name).into());
    }
    let target = Target {
        volume: options.name.clone(),
        iqn: options
            .iqn
            .clone()
            .unwrap_or_else(|| target::default_iqn(&host_name(), &options.name)),
        initiator: options.initiator.clone(),
        nbd_socket: nbd_socket(client.socket())?,
        chap: chap(options)?,
    };
    target.check().map_err(CliError::Usage)?;
    Ok(target)
}

/// Both sockets stand in the runtime directory. Absolute, since tgtd has a working directory of its own.
fn nbd_socket(admin_socket: &Path) -> Result<PathBuf, CliError> {
    let fault = |error| CliError::File {
        action: "cannot look up",
        path: admin_socket.to_owned(),
        error,
    };
    Ok(fs::canonicalize(admin_socket)
        .map_err(fault)?
        .with_file_name("nbd.sock"))
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn chap(options: &IscsiOptions) -> Result<Option<Chap>, CliError> {
    let (Some(user), Some(path)) = (&options.chap_user, &options.chap_secret_file) else {
        return Ok(None);
    };
    let fault = |error| CliError::File {
        action: "cannot read the CHAP secret from",
        path: path.clone(),
        error,
    };
    let mut text = String::new();
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(fs::File::open(path).map_err(fault)?)
    };
    source
        .take(SECRET_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(fault)?;
    Ok(Some(Chap {
        user: user.clone(),
        secret: text.trim_end_matches(['\r', '\n']).to_owned(),
    }))
}

fn default_file(volume: &str) -> PathBuf {
    PathBuf::from(format!("/etc/tgt/conf.d/tombolo-{volume}.conf"))
}
