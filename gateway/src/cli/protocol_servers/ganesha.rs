//! `tombolo export nfs`: a share as an export of NFS-Ganesha.
//!
//! Each share has a file of its own in `shares/`, which is written anew every time. `ganesha.conf`, which includes them,
//! is written once and belongs to the administrator from then on.

mod config;

use super::super::arguments::NfsOptions;
use super::super::error::CliError;
use super::super::output;
use super::super::share::files_socket;
use super::files::{self, CONFIGURATION_MODE, Kept};
use super::{Report, plain, server};
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{ControlError, ErrorKind, ShareInfo, check_share_name};
use config::{Export, Server};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

const ADDRESS_DEFAULT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PORT_DEFAULT: u16 = 2049;
const MOUNT_PORT_DEFAULT: u16 = 20_048;
/// Numbers of exports from here on are of shares in named stores.
const UPPER_HALF: u16 = 1 << 15;
/// As the kernel cuts the program's name.
const PROGRAM: &str = "ganesha.nfsd";

pub(super) fn run(client: &Client, options: &NfsOptions) -> Result<(), CliError> {
    if options.how.remove {
        return remove(options);
    }
    let share = super::share(client, &options.name)?;
    let export = export(client, options, &share)?;
    let server = server_settings(client, options)?;
    if options.how.show {
        return output::text(&format!("{}\n{}", server.text(), export.text()));
    }
    let files = write(options, &server, &export)?;
    let reloaded = server::reload(&options.pid_file, PROGRAM)?;
    Report {
        share: share.name,
        url: Some(format!("nfs://{}/{}", shown_address(&server), options.name)),
        next: next(
            options,
            reloaded,
            !files.is_empty() && files.contains(&main_file(options)),
        ),
        files,
        reloaded,
    }
    .print(&options.how)
}

fn export(client: &Client, options: &NfsOptions, share: &ShareInfo) -> Result<Export, CliError> {
    if let Some(wrong) = options.client.iter().find(|client| !plain::is_client(client)) {
        return Err(CliError::Usage(format!(
            "{wrong:?} is not a valid client: use an address, ADDRESS/BITS with at least one bit, or *"
        )));
    }
    Ok(Export {
        share: share.name.clone(),
        id: export_id(options, share)?,
        clients: options.client.clone(),
        root_squash: !options.no_root_squash,
        read_only: options.read_only,
        v3: options.v3,
        files_socket: plain::path(&files_socket(client.socket())?)?,
        file_system: share.file_system,
    })
}

/// Ganesha has 16 bits for it.
fn export_id(options: &NfsOptions, share: &ShareInfo) -> Result<u16, CliError> {
    let own = || match share.file_system {
        None => u16::try_from(share.id).ok().filter(|id| *id > 0),
        Some(file_system) => id_in_named_store(options, share, file_system),
    };
    options.export_id.or_else(own).ok_or_else(|| {
        let message = format!(
            "share {:?} has the number {}, which is not a valid number of an NFS export: choose a free one with --export-id",
            share.name, share.id
        );
        ControlError::new(ErrorKind::Invalid, message).into()
    })
}

/// Shares of two stores may have the same number, so for one in a named store it is another, which stays the same from then on:
/// clients' handles have it. In the upper half, away from numbers of the first store's shares.
fn id_in_named_store(options: &NfsOptions, share: &ShareInfo, file_system: u32) -> Option<u16> {
    let of_share = |name: &str| {
        let file = shares_directory(options).join(format!("{name}.conf"));
        config::export_id(&std::fs::read_to_string(file).ok()?)
    };
    if let Some(before) = of_share(&share.name) {
        return Some(before);
    }
    let names = files::shares_in(&shares_directory(options)).unwrap_or_default();
    let taken: Vec<u16> = names.iter().filter_map(|name| of_share(name)).collect();
    let number = file_system.wrapping_add(share.id.wrapping_mul(0x9e37_79b9));
    let begin = (number ^ (number >> 16)) as u16 & (UPPER_HALF - 1);
    let candidates = (0..UPPER_HALF).map(|step| UPPER_HALF | (begin.wrapping_add(step) & (UPPER_HALF - 1)));
    candidates.into_iter().find(|id| !taken.contains(id))
}

fn server_settings(client: &Client, options: &NfsOptions) -> Result<Server, CliError> {
    let state = PathBuf::from(client.ask(&endpoints::STATUS, &())?.state_directory);
    Ok(Server {
        address: options.bind.unwrap_or(ADDRESS_DEFAULT),
        port: options.port.unwrap_or(PORT_DEFAULT),
        v3: options.v3,
        mount_port: options.mount_port.unwrap_or(MOUNT_PORT_DEFAULT),
        recovery: plain::path(&state.join("ganesha"))?,
        shares: plain::path(&shares_directory(options))?,
    })
}

/// What was written, the server's own file last if it was.
fn write(options: &NfsOptions, server: &Server, export: &Export) -> Result<Vec<PathBuf>, CliError> {
    let (main, text) = (main_file(options), server.text());
    let serves_v3 = || std::fs::read_to_string(&main).is_ok_and(|text| config::serves_v3(&text));
    let asked = options.bind.is_some()
        || options.port.is_some()
        || options.mount_port.is_some()
        || (options.v3 && !serves_v3());
    let kept = files::keep_or_write(&main, &text, asked, options.how.rewrite)?;
    files::make_directory(&shares_directory(options), 0o755)?;
    files::make_directory(&server.recovery, 0o700)?;
    let file = share_file(options);
    files::replace(&file, &export.text(), CONFIGURATION_MODE)?;
    let mut written = vec![file];
    if kept == Kept::Write {
        files::replace(&main, &text, CONFIGURATION_MODE)?;
        written.push(main);
    }
    Ok(written)
}

/// The share may be gone already.
fn remove(options: &NfsOptions) -> Result<(), CliError> {
    check_share_name(&options.name)?;
    let file = share_file(options);
    if !files::remove(&file)? {
        let message = format!(
            "{} does not exist: share {:?} is not exported",
            file.display(),
            options.name
        );
        return Err(ControlError::new(ErrorKind::NotFound, message).into());
    }
    let reloaded = server::reload(&options.pid_file, PROGRAM)?;
    Report {
        share: options.name.clone(),
        url: None,
        files: vec![file],
        next: Vec::new(),
        reloaded,
    }
    .print(&options.how)
}

/// Addresses and ports are read at the start only, exports at any time.
fn next(options: &NfsOptions, reloaded: bool, main_written: bool) -> Vec<String> {
    let (main, pid_file) = (main_file(options), options.pid_file.display());
    match (reloaded, main_written) {
        (true, false) => Vec::new(),
        (true, true) => vec!["restart the NFS server: its own settings have changed".into()],
        (false, _) => vec![format!(
            "no NFS server runs; start it with `systemctl start tombolo-ganesha`, or with `{PROGRAM} -f {} -p {pid_file}`",
            main.display()
        )],
    }
}

/// Only a literal address can be shown; on all addresses any name of this machine will do.
fn shown_address(server: &Server) -> String {
    let host = match server.address {
        address if address.is_unspecified() => "HOST".into(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    match server.port {
        PORT_DEFAULT => host,
        port => format!("{host}:{port}"),
    }
}

fn main_file(options: &NfsOptions) -> PathBuf {
    options.directory.join("ganesha.conf")
}

fn shares_directory(options: &NfsOptions) -> PathBuf {
    options.directory.join("shares")
}

fn share_file(options: &NfsOptions) -> PathBuf {
    shares_directory(options).join(Path::new(&format!("{}.conf", options.name)))
}
