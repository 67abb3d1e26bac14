//! `tombolo prices`: what is shipped, with dates and sources.

use super::error::CliError;
use super::output;
use crate::bill::shipped;
use serde_json::{Map, Value, json};
use tombolo_billing::Table;

pub(super) fn run(table: Option<String>, as_json: bool) -> Result<(), CliError> {
    let table: Option<Table> = table
        .map(|word| word.parse())
        .transpose()
        .map_err(|error: tombolo_base::NameError| CliError::Usage(error.to_string()))?;
    match (table, as_json) {
        (Some(table), false) => output::text(&shipped(table).to_toml()),
        (Some(table), true) => output::json(&object(table)),
        (None, true) => {
            let tables = Table::ALL.map(|table| (table.name().to_owned(), object(table)));
            output::json(&Value::Object(Map::from_iter(tables)))
        }
        (None, false) => output::text(&Table::ALL.map(described).concat()),
    }
}

fn described(table: Table) -> String {
    let list = table.list();
    format!(
        "{:<24}{}  {}\n{:24}{}\n",
        table.name(),
        list.date,
        list.source,
        "",
        list.remark
    )
}

fn object(table: Table) -> Value {
    let list = table.list();
    json!({
        "date": list.date.to_string(),
        "source": list.source,
        "remark": list.remark,
        "prices": list.prices,
    })
}
