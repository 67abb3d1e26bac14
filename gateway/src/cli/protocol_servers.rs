//! `tombolo export`: makes a volume or a share known to a protocol server. What such a server needs of ours stands in
//! files that are written here; nothing else of it is touched.

mod files;
mod ganesha;
mod plain;
mod samba;
mod server;
mod tgt;

use super::arguments::{ExportCommand, HowToWrite};
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoints;
use crate::admin::model::{ControlError, ShareInfo, check_share_name};
use serde_json::json;
use std::path::PathBuf;

pub(super) fn run(client: &Client, command: ExportCommand) -> Result<(), CliError> {
    match command {
        ExportCommand::Iscsi(options) => tgt::run(client, &options),
        ExportCommand::Nfs(options) => ganesha::run(client, &options),
        ExportCommand::Smb(options) => samba::run(client, &options),
    }
}

/// A share that lives.
fn share(client: &Client, name: &str) -> Result<ShareInfo, CliError> {
    check_share_name(name)?;
    let shares = client.ask(&endpoints::SHARE_LIST, &())?;
    match shares.into_iter().find(|share| share.name == name) {
        None => Err(ControlError::share_not_found(name).into()),
        Some(share) if share.deleting => Err(ControlError::share_being_deleted(name).into()),
        Some(share) => Ok(share),
    }
}

/// What an export has come to.
struct Report {
    share: String,
    /// None: it was taken away.
    url: Option<String>,
    /// Written or removed.
    files: Vec<PathBuf>,
    /// A running server was told.
    reloaded: bool,
    /// What is left to do for a person.
    next: Vec<String>,
}

impl Report {
    fn print(&self, how: &HowToWrite) -> Result<(), CliError> {
        if how.json {
            return output::json(&json!({
                "share": self.share,
                "url": self.url,
                "files": self.files,
                "reloaded": self.reloaded,
                "next": self.next,
            }));
        }
        let verb = if how.remove { "removed" } else { "wrote" };
        let files = self.files.iter().map(|file| format!("{verb} {}", file.display()));
        output::lines(files.chain(self.next.iter().cloned()).chain(self.url.clone()))
    }
}
