use super::arguments::VolumeCommand;
use super::confirm::confirm;
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoint::Request;
use crate::admin::endpoints::{self, CreateVolume, DeleteVolume, ResizeVolume, VolumeFlush};
use crate::admin::model::VolumeInfo;
use crate::settings::{ByteSize, FIRST};
use serde_json::json;

pub(super) fn run(client: &Client, command: VolumeCommand) -> Result<(), CliError> {
    match command {
        VolumeCommand::Create {
            name,
            size,
            flush,
            store,
            json,
        } => {
            let request = CreateVolume {
                name,
                size_bytes: size.0,
                flush,
                store,
            };
            let volume = client.ask(&endpoints::VOLUME_CREATE, &request)?;
            show(&volume, "created", json)
        }
        VolumeCommand::List { json } => {
            let volumes = client.ask(&endpoints::VOLUME_LIST, &())?;
            match json {
                true => output::json(&volumes),
                false => output::text(&listed(&volumes)),
            }
        }
        VolumeCommand::Resize {
            name,
            size,
            allow_shrink,
            json,
        } => {
            let request = ResizeVolume {
                name,
                size_bytes: size.0,
                allow_shrink,
            };
            let volume = client.ask(&endpoints::VOLUME_RESIZE, &request)?;
            show(&volume, "resized", json)
        }
        VolumeCommand::Set { name, flush, json } => {
            let volume = client.ask(&endpoints::VOLUME_FLUSH, &VolumeFlush { name, flush })?;
            show(&volume, "changed", json)
        }
        VolumeCommand::Delete { name, yes, json } => delete(client, DeleteVolume { name }, yes, json),
    }
}

fn show(volume: &VolumeInfo, done: &str, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::json(volume);
    }
    output::text(&format!(
        "{done} volume {}: {}{}{}",
        volume.name,
        ByteSize(volume.size_bytes),
        volume.flush.remark(),
        store_remark(volume.store.as_deref())
    ))
}

/// Which store it lives in, if that is not the first.
pub(super) fn store_remark(store: Option<&str>) -> String {
    store.map(|name| format!(", in store {name}")).unwrap_or_default()
}

fn listed(volumes: &[VolumeInfo]) -> String {
    if volumes.iter().any(|volume| volume.store.is_some()) {
        return listed_with_stores(volumes);
    }
    let row = |volume: &VolumeInfo| {
        [
            volume.name.clone(),
            ByteSize(volume.size_bytes).to_string(),
            volume.flush.as_str().to_owned(),
            volume.connections.to_string(),
        ]
    };
    output::table(
        ["NAME", "SIZE", "FLUSH", "CONNECTIONS"],
        &volumes.iter().map(row).collect::<Vec<_>>(),
    )
}

fn listed_with_stores(volumes: &[VolumeInfo]) -> String {
    let row = |volume: &VolumeInfo| {
        [
            volume.name.clone(),
            ByteSize(volume.size_bytes).to_string(),
            volume.flush.as_str().to_owned(),
            volume.connections.to_string(),
            volume.store.clone().unwrap_or_else(|| FIRST.into()),
        ]
    };
    output::table(
        ["NAME", "SIZE", "FLUSH", "CONNECTIONS", "STORE"],
        &volumes.iter().map(row).collect::<Vec<_>>(),
    )
}

fn delete(client: &Client, request: DeleteVolume, yes: bool, as_json: bool) -> Result<(), CliError> {
    request.check()?;
    let name = &request.name;
    if !yes {
        confirm(&format!("volume {name} and all its data"), name)?;
    }
    client.ask(&endpoints::VOLUME_DELETE, &request)?;
    if as_json {
        return output::json(&json!({ "name": name, "deleted": true }));
    }
    output::text(&format!("deleted volume {name}"))
}
