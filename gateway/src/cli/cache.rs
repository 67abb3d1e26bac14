//! `tombolo cache`: the local cache of a gateway that does not run.

use super::Daemon;
use super::arguments::{CacheCommand, Connection};
use super::error::CliError;
use super::{local, output};
use crate::logging;
use crate::settings::Settings;
use indicatif::{HumanBytes, HumanCount};
use serde_json::json;

pub(super) fn run(connection: &Connection, command: &CacheCommand, daemon: &impl Daemon) -> Result<(), CliError> {
    let CacheCommand::Resize { store, json: as_json } = command;
    let settings = Settings::load(local::config(connection)?)?;
    let settings = local::of_store(settings, store.as_deref())?;
    logging::start(&settings.log);
    let done = daemon.resize_cache(&settings).map_err(CliError::CacheResize)?;
    if *as_json {
        return output::json(&json!({
            "bytes_before": done.bytes_before,
            "bytes": done.bytes,
            "blocks_moved": done.blocks_moved,
            "blocks_dropped": done.blocks_dropped,
        }));
    }
    let size = HumanBytes(done.bytes);
    if done.bytes == done.bytes_before {
        return output::text(&format!("the cache has {size}, as before"));
    }
    output::text(&format!(
        "the cache has {size} instead of {}; {} blocks that only it has were moved, {} blocks that the store has too are not in \
         it any more",
        HumanBytes(done.bytes_before),
        HumanCount(done.blocks_moved),
        HumanCount(done.blocks_dropped),
    ))
}
