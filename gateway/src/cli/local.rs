//! Commands that need no running gateway.

use super::Daemon;
use super::arguments::{Connection, ServeOptions};
use super::error::CliError;
use super::output;
use crate::bill;
use crate::logging;
use crate::measured::Measured;
use crate::settings::{FIRST, Fault, Settings, SettingsError};
use serde_json::json;
use std::path::Path;

pub(super) fn serve(connection: &Connection, options: &ServeOptions, daemon: &impl Daemon) -> Result<(), CliError> {
    let settings = Settings::load(config(connection)?)?;
    logging::start(&settings.log);
    daemon.serve(settings, options.accept_loss).map_err(CliError::Serve)
}

pub(super) fn check_config(connection: &Connection, as_json: bool) -> Result<(), CliError> {
    let path = config(connection)?;
    let checked = Settings::load(path).and_then(|settings| check_files(&settings));
    match (&checked, as_json) {
        (Err(SettingsError::Faults(faults)), true) => output::json(faults)?,
        (Ok(()), true) => output::json(&json!([]))?,
        (Ok(()), false) => output::text(&format!("{} is valid", path.display()))?,
        (Err(_), _) => {}
    }
    checked.map(drop).map_err(CliError::from)
}

/// The files that the settings name and a start reads.
fn check_files(settings: &Settings) -> Result<(), SettingsError> {
    let mut faults = faults_of_files("[prices] file", "store", settings);
    let own = |name: &String| {
        settings
            .of_named_store(name)
            .map(|own| (format!("store.named.{name}"), own))
    };
    for (section, own) in settings.named_stores.keys().filter_map(own) {
        faults.extend(faults_of_files(&format!("[{section}] prices_file"), &section, &own));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(SettingsError::Faults(faults)),
    }
}

/// Of one store, whose table of settings is `section`.
fn faults_of_files(prices_key: &str, section: &str, settings: &Settings) -> Vec<Fault> {
    let shown = |file: Option<&Path>| file.map_or_else(String::new, |file| file.display().to_string());
    let prices = bill::load(&settings.prices).err().map(|error| Fault {
        key: prices_key.into(),
        value: shown(settings.prices.file.as_deref()),
        permitted: "a price file as `tombolo prices TABLE` prints it".into(),
        reason: error.to_string(),
    });
    let tables = settings.latency_tables(section).filter_map(|(section, file)| {
        let error = Measured::load(file).err()?;
        Some(Fault {
            key: format!("[{section}] latency_table"),
            value: shown(file),
            permitted: "a latency-table.json as `tombolo-sim measure` writes it".into(),
            reason: error.to_string(),
        })
    });
    prices.into_iter().chain(tables).collect()
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
