//! `tombolo export smb`: a mounted share as a share of Samba.
//!
//! Each share has a file of its own in `shares/`, and `shares.conf` includes them all; both are written anew every time.
//! `smb.conf`, which includes that, is written once and belongs to the administrator from then on.

mod config;

use super::super::arguments::SmbOptions;
use super::super::error::CliError;
use super::super::output;
use super::files::{self, CONFIGURATION_MODE, Kept};
use super::{Report, plain, server};
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{ControlError, ErrorKind, check_share_name};
use config::{Section, Server};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

const ADDRESS_DEFAULT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PORT_DEFAULT: u16 = 445;
const PROGRAM: &str = "smbd";
/// Sections of smb.conf(5) with a meaning of their own.
const RESERVED: [&str; 3] = ["global", "homes", "printers"];

pub(super) fn run(client: &Client, options: &SmbOptions) -> Result<(), CliError> {
    check_share_name(&options.name)?;
    // Beside the gateway's, not within it: smbd works with the rights of its users, who must not pass through there.
    let state = PathBuf::from(client.ask(&endpoints::STATUS, &())?.state_directory + "-samba");
    let server = server_settings(options, plain::path(&state)?)?;
    if options.how.remove {
        return remove(options, &server);
    }
    let share = super::share(client, &options.name)?;
    let section = section(options)?;
    if options.how.show {
        return output::text(&format!("{}\n{}", server.text(), section.text()));
    }
    check_unique(options)?;
    let files = write(options, &server, &section)?;
    check_with_testparm(&main_file(options))?;
    let reloaded = server::reload(&server.pid_file(), PROGRAM)?;
    Report {
        share: share.name,
        url: Some(format!("smb://{}/{}", shown_address(&server), options.name)),
        next: next(options, reloaded, files.contains(&main_file(options))),
        files,
        reloaded,
    }
    .print(&options.how)
}

fn section(options: &SmbOptions) -> Result<Section, CliError> {
    if RESERVED.iter().any(|word| options.name.eq_ignore_ascii_case(word)) {
        return Err(CliError::Usage(format!(
            "{:?} has a meaning of its own for Samba and cannot be a share there",
            options.name
        )));
    }
    if let Some(wrong) = options.user.iter().find(|user| !plain::is_user(user)) {
        return Err(CliError::Usage(format!(
            "{wrong:?} is not a valid user: use NAME, @GROUP or DOMAIN\\NAME of letters, digits and ._-"
        )));
    }
    let default = || Path::new("/srv/tombolo").join(&options.name);
    Ok(Section {
        share: options.name.clone(),
        path: plain::path(&options.mount_dir.clone().unwrap_or_else(default))?,
        users: options.user.clone(),
        read_only: options.read_only,
        durable_handles: options.durable_handles,
    })
}

fn server_settings(options: &SmbOptions, state: PathBuf) -> Result<Server, CliError> {
    let addresses = match options.bind.as_slice() {
        [] => vec![ADDRESS_DEFAULT],
        some => some.to_vec(),
    };
    Ok(Server {
        addresses,
        port: options.port.unwrap_or(PORT_DEFAULT),
        require_encryption: options.require_encryption,
        state,
        shares: plain::path(&index_file(options))?,
    })
}

/// Clients do not tell upper case from lower case in names of shares.
fn check_unique(options: &SmbOptions) -> Result<(), CliError> {
    let name = &options.name;
    let same = |other: &String| other != name && other.eq_ignore_ascii_case(name);
    match files::shares_in(&shares_directory(options))?.into_iter().find(same) {
        None => Ok(()),
        Some(other) => Err(CliError::ExportConflict(format!(
            "share {other:?} is exported already, and SMB does not tell it from {name:?}"
        ))),
    }
}

/// What was written, the server's own file last if it was.
fn write(options: &SmbOptions, server: &Server, section: &Section) -> Result<Vec<PathBuf>, CliError> {
    let (main, text) = (main_file(options), server.text());
    let asked = !options.bind.is_empty() || options.port.is_some() || options.require_encryption;
    let kept = files::keep_or_write(&main, &text, asked, options.how.rewrite)?;
    files::make_directory(&shares_directory(options), 0o755)?;
    files::make_directory(&server.state, 0o755)?;
    for (directory, mode) in server.directories() {
        files::make_directory(&directory, mode)?;
    }
    let file = share_file(options);
    files::replace(&file, &section.text(), CONFIGURATION_MODE)?;
    write_index(options)?;
    let mut written = vec![file, index_file(options)];
    if kept == Kept::Write {
        files::replace(&main, &text, CONFIGURATION_MODE)?;
        written.push(main);
    }
    Ok(written)
}

fn write_index(options: &SmbOptions) -> Result<(), CliError> {
    let directory = plain::path(&shares_directory(options))?;
    let names = files::shares_in(&directory)?;
    files::replace(
        &index_file(options),
        &config::index(&directory, &names),
        CONFIGURATION_MODE,
    )
}

/// The share may be gone already.
fn remove(options: &SmbOptions, server: &Server) -> Result<(), CliError> {
    let file = share_file(options);
    if !files::remove(&file)? {
        let message = format!(
            "{} does not exist: share {:?} is not exported",
            file.display(),
            options.name
        );
        return Err(ControlError::new(ErrorKind::NotFound, message).into());
    }
    write_index(options)?;
    let reloaded = server::reload(&server.pid_file(), PROGRAM)?;
    let next = if reloaded && !close_share(options) {
        vec![format!(
            "whoever is connected keeps the share until `smbcontrol -s {} smbd close-share {}`",
            main_file(options).display(),
            options.name
        )]
    } else {
        Vec::new()
    };
    Report {
        share: options.name.clone(),
        url: None,
        files: vec![file],
        next,
        reloaded,
    }
    .print(&options.how)
}

/// A configuration that is read again concerns new connections only.
fn close_share(options: &SmbOptions) -> bool {
    let done = Command::new("smbcontrol")
        .arg("-s")
        .arg(main_file(options))
        .args(["smbd", "close-share", &options.name])
        .output();
    done.is_ok_and(|done| done.status.success())
}

/// Samba's own judgement, where its tools are installed.
fn check_with_testparm(path: &Path) -> Result<(), CliError> {
    let checked = Command::new("testparm").arg("-s").arg(path).output();
    let fault = |said: String| CliError::Testparm {
        path: path.to_owned(),
        said,
    };
    match checked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(fault(error.to_string())),
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(fault(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
}

fn next(options: &SmbOptions, reloaded: bool, main_written: bool) -> Vec<String> {
    let main = main_file(options);
    let mut next = Vec::new();
    match (reloaded, main_written) {
        (true, false) => {}
        (true, true) => next.push("restart the SMB server: its own settings have changed".into()),
        (false, _) => next.push(format!(
            "no SMB server runs; start it with `systemctl start tombolo-smbd`, or with `{PROGRAM} -F -s {}`",
            main.display()
        )),
    }
    if main_written {
        next.push(format!(
            "every user needs a password of its own there: `smbpasswd -c {} -a USER`",
            main.display()
        ));
    }
    next
}

/// Only a literal address can be shown; on all addresses any name of this machine will do.
fn shown_address(server: &Server) -> String {
    let host = match server.addresses.first() {
        Some(IpAddr::V4(address)) if !address.is_unspecified() => address.to_string(),
        Some(IpAddr::V6(address)) if !address.is_unspecified() => format!("[{address}]"),
        _ => "HOST".into(),
    };
    match server.port {
        PORT_DEFAULT => host,
        port => format!("{host}:{port}"),
    }
}

fn main_file(options: &SmbOptions) -> PathBuf {
    options.directory.join("smb.conf")
}

fn index_file(options: &SmbOptions) -> PathBuf {
    options.directory.join("shares.conf")
}

fn shares_directory(options: &SmbOptions) -> PathBuf {
    options.directory.join("shares")
}

fn share_file(options: &SmbOptions) -> PathBuf {
    shares_directory(options).join(format!("{}.conf", options.name))
}
