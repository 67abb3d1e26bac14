//! Commands that need no running gateway.

use super::Daemon;
use super::arguments::{Connection, ServeOptions};
use super::error::CliError;
use super::output;
use crate::bill;
use crate::logging;
use crate::settings::{FIRST, Fault, Prices, Settings, SettingsError};
use serde_json::json;
use std::path::Path;

pub(super) fn serve(connection: &Connection, options: &ServeOptions, daemon: &impl Daemon) -> Result<(), CliError> {
    let settings = Settings::load(config(connection)?)?;
    logging::start(&settings.log);
    daemon.serve(settings, options.accept_loss).map_err(CliError::Serve)
}

pub(super) fn check_config(connection: &Connection, as_json: bool) -> Result<(), CliError> {
    let path = config(connection)?;
    let checked = Settings::load(path).and_then(|settings| check_all_prices(&settings));
    match (&checked, as_json) {
        (Err(SettingsError::Faults(faults)), true) => output::json(faults)?,
        (Ok(()), true) => output::json(&json!([]))?,
        (Ok(()), false) => output::text(&format!("{} is valid", path.display()))?,
        (Err(_), _) => {}
    }
    checked.map(drop).map_err(CliError::from)
}

fn check_all_prices(settings: &Settings) -> Result<(), SettingsError> {
    check_prices("[prices] file", &settings.prices)?;
    let own = |name: &String| settings.of_named_store(name).map(|own| (name.clone(), own));
    for (name, own) in settings.named_stores.keys().filter_map(own) {
        check_prices(&format!("[store.named.{name}] prices_file"), &own.prices)?;
    }
    Ok(())
}

/// The files that the settings name and a start reads.
fn check_prices(key: &str, settings: &Prices) -> Result<(), SettingsError> {
    let loaded = bill::load(settings).map(drop);
    loaded.map_err(|error| {
        SettingsError::Faults(vec![Fault {
            key: key.into(),
            value: settings
                .file
                .as_ref()
                .map_or_else(String::new, |file| file.display().to_string()),
            permitted: "a price file as `tombolo prices TABLE` prints it".into(),
            reason: error.to_string(),
        }])
    })
}

pub(super) fn settings(connection: &Connection, markdown: bool, as_json: bool) -> Result<(), CliError> {
    if markdown {
        return output::text(&Settings::markdown());
    }
    let settings = connection
        .config
        .as_deref()
        .map(Settings::load)
        .transpose()?
        .unwrap_or_default();
    if as_json {
        output::json(&listed(&settings))
    } else {
        output::text(settings.to_toml().trim_start())
    }
}

fn listed(settings: &Settings) -> Vec<serde_json::Value> {
    let shown = |field: crate::settings::Field| {
        json!({
            "section": field.section,
            "key": field.key,
            "type": field.type_name,
            "value": field.value,
            "permitted": field.permitted.to_string(),
            "meaning": field.meaning.concat().trim(),
            "reason": field.reason,
        })
    };
    settings.fields().into_iter().map(shown).collect()
}

/// The settings as the gateway of one store has them: of the first, if none is named.
pub(super) fn of_store(settings: Settings, name: Option<&str>) -> Result<Settings, CliError> {
    let Some(name) = name.filter(|name| *name != FIRST) else {
        return Ok(settings);
    };
    settings.of_named_store(name).ok_or_else(|| {
        let named = settings.named_stores.keys().map(String::as_str);
        let there: Vec<&str> = std::iter::once(FIRST).chain(named).collect();
        let there = there.join(", ");
        CliError::Usage(format!("there is no store {name:?}: the settings have {there}"))
    })
}

pub(super) fn config(connection: &Connection) -> Result<&Path, CliError> {
    connection
        .config
        .as_deref()
        .ok_or_else(|| CliError::Usage("name the settings file with --config FILE".into()))
}
