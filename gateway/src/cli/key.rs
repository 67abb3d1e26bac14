//! `tombolo key`: which keys there are, and others in their place.

use super::arguments::KeyCommand;
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoints::{self, OfStore, RotateKey};
use crate::admin::model::EncryptionStatus;
use std::fmt::Display;
use std::time::{Duration, UNIX_EPOCH};

pub(super) fn run(client: &Client, command: KeyCommand) -> Result<(), CliError> {
    match command {
        KeyCommand::List { store, json } => {
            let keys = client.ask(&endpoints::KEYS, &OfStore { store })?;
            match json {
                true => output::json(&keys),
                false => output::text(&shown(&keys)),
            }
        }
        KeyCommand::Rotate {
            master_key_file,
            master_key_kms,
            store,
            json,
        } => {
            let request = RotateKey {
                master_key_file,
                master_key_kms,
                store,
            };
            rotate(client, request, json)
        }
    }
}

fn rotate(client: &Client, mut request: RotateKey, as_json: bool) -> Result<(), CliError> {
    // The gateway has another working directory.
    if let Some(file) = &mut request.master_key_file {
        *file = std::path::absolute(&*file).map_err(|error| CliError::File {
            action: "cannot find",
            path: file.clone(),
            error,
        })?;
    }
    let keys = client.ask(&endpoints::KEY_ROTATE, &request)?;
    if as_json {
        return output::json(&keys);
    }
    let advice = match (&request.master_key_file, &request.master_key_kms) {
        (Some(file), _) => format!(
            "the data keys need the new master key from now on: set [store] master_key_file = \"{}\" before the next start, and \
             keep a copy of the file in a safe place\n",
            file.display()
        ),
        (None, Some(key)) => format!(
            "the data keys need a new master key from now on, which AWS KMS unwraps: set [store] master_key_kms = \"{key}\" in \
             place of any other master_key setting before the next start, and never delete the key at AWS KMS\n"
        ),
        (None, None) => {
            "new objects are encrypted with the last data key; those in the store stay as they are\n".into()
        }
    };
    output::text(&(advice + &shown(&keys)))
}

fn shown(keys: &EncryptionStatus) -> String {
    let mut lines = vec![match keys.is_on {
        true => "encryption  aes-256-gcm".to_owned(),
        false => "encryption  none".to_owned(),
    }];
    lines.extend(keys.master_key.iter().map(|id| format!("master key  {id}")));
    lines.extend(keys.wrapped_by.iter().map(|key| format!("wrapped by  {key}")));
    for (index, key) in keys.data_keys.iter().enumerate() {
        let is_last = index + 1 == keys.data_keys.len() && keys.is_on;
        let mark = if is_last { "  encrypts" } else { "" };
        lines.push(format!("data key    {}  made {}{mark}", key.id, date(key.made_s)));
    }
    lines.join("\n") + "\n"
}

fn date(seconds_since_1970: u64) -> impl Display {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds_since_1970))
}
