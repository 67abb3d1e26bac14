use super::arguments::VolumeCommand;
use super::confirm::confirm;
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::model::{VolumeInfo, check_volume_name, check_volume_size};
use crate::settings::ByteSize;
use serde_json::json;

pub(super) fn run(client: &Client, command: VolumeCommand) -> Result<(), CliError> {
    match command {
        VolumeCommand::Create { name, size, json } => {
            check_volume_name(&name)?;
            check_volume_size(size.0)?;
            let volume = client.volume_create(&name, size.0)?;
            show(&volume, "created", json)
        }
        VolumeCommand::List { json: true } => output::json(&client.volume_list()?),
        VolumeCommand::List { json: false } => output::text(&listed(&client.volume_list()?)),
        VolumeCommand::Resize {
            name,
            size,
            allow_shrink,
            json,
        } => {
            check_volume_name(&name)?;
            check_volume_size(size.0)?;
            let volume = client.volume_resize(&name, size.0, allow_shrink)?;
            show(&volume, "resized", json)
        }
        VolumeCommand::Delete { name, yes, json } => delete(client, &name, yes, json),
    }
}

fn show(volume: &VolumeInfo, done: &str, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::json(volume);
    }
    output::text(&format!(
        "{done} volume {}: {}",
        volume.name,
        ByteSize(volume.size_bytes)
    ))
}

fn listed(volumes: &[VolumeInfo]) -> String {
    let row = |volume: &VolumeInfo| {
        [
            volume.name.clone(),
            ByteSize(volume.size_bytes).to_string(),
            volume.connections.to_string(),
        ]
    };
    output::table(
        ["NAME", "SIZE", "CONNECTIONS"],
        &volumes.iter().map(row).collect::<Vec<_>>(),
    )
}

fn delete(client: &Client, name: &str, yes: bool, as_json: bool) -> Result<(), CliError> {
    check_volume_name(name)?;
    if !yes {
        confirm(&format!("volume {name} and all its data"), name)?;
    }
    client.volume_delete(name)?;
    if as_json {
        return output::json(&json!({ "name": name, "deleted": true }));
    }
    output::text(&format!("deleted volume {name}"))
}
