//! `tombolo checkpoint`: local metadata are brought up to the journal at once instead of when it is time.

use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoints::{self, OfStore};
use crate::admin::model::JournalStatus;
use indicatif::HumanCount;

pub(super) fn run(client: &Client, store: Option<String>, as_json: bool) -> Result<(), CliError> {
    let journal = client.ask(&endpoints::CHECKPOINT, &OfStore { store })?;
    match as_json {
        true => output::json(&journal),
        false => output::text(&shown(&journal)),
    }
}

fn shown(journal: &JournalStatus) -> String {
    format!(
        "a checkpoint is under way; {} records are in it, which a restart would replay in {:.1} s",
        HumanCount(journal.replay_records),
        journal.replay_s
    )
}
