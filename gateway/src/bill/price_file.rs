//! Prices as a file has them, and as they are shipped.

use crate::settings::Prices as PriceSettings;
use std::path::{Path, PathBuf};
use tombolo_billing::{AGE_DAYS_MAX, Date, DateError, PriceFault, Prices, Table};

/// Prices that are in force.
#[derive(Clone, Debug, PartialEq)]
pub struct PricesInForce {
    pub prices: Prices,
    /// The table's name, or the file's path.
    pub name: String,
    pub date: Date,
    pub source: String,
}

/// What is wrong with one line of a price file.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PriceFileFault {
    #[error(transparent)]
    Price(#[from] PriceFault),
    #[error("`{field}` has to be a number, not {found}")]
    NoNumber { field: String, found: String },
    #[error("`date` is missing: when the prices were looked up, such as date = \"2026-01-31\"")]
    DateMissing,
    #[error("`date` = {found}: {error}")]
    Date { found: String, error: DateError },
    #[error("`source` is missing: where the prices are from, such as source = \"contract of January\"")]
    SourceMissing,
}

/// Why there are no prices.
#[derive(Debug, thiserror::Error)]
pub enum PriceFileError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{path} is not valid TOML: {error}")]
    Syntax { path: PathBuf, error: Box<toml::de::Error> },
    #[error("{path} has {} {}:{}", .faults.len(), if .faults.len() == 1 { "fault" } else { "faults" }, list(.faults))]
    Faults { path: PathBuf, faults: Vec<PriceFileFault> },
}

fn list(faults: &[PriceFileFault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

/// What the settings name.
pub fn load(settings: &PriceSettings) -> Result<PricesInForce, PriceFileError> {
    let Some(path) = &settings.file else {
        return Ok(shipped(settings.table));
    };
    let text = std::fs::read_to_string(path).map_err(|error| PriceFileError::Read {
        path: path.clone(),
        error,
    })?;
    parse(path, &text)
}

/// A table that comes with the program.
pub fn shipped(table: Table) -> PricesInForce {
    let list = table.list();
    PricesInForce {
        prices: list.prices,
        name: table.name().into(),
        date: list.date,
        source: list.source.into(),
    }
}

impl PricesInForce {
    /// How many days ago the prices were looked up, if that is too long ago.
    pub fn outdated_days(&self, now_s: u64) -> Option<i64> {
        let age_days = Date::at(now_s).days() - self.date.days();
        (age_days > AGE_DAYS_MAX).then_some(age_days)
    }

    /// As a price file.
    pub fn to_toml(&self) -> String {
        let text = |text: &str| toml::Value::String(text.into());
        let mut lines = vec![
            "# When and where the prices were looked up.".to_owned(),
            format!("date = {}", text(&self.date.to_string())),
            format!("source = {}", text(&self.source)),
        ];
        for ((name, figure), meaning) in self.prices.fields().iter().zip(Prices::MEANINGS) {
            lines.push(format!("#{meaning}"));
            lines.push(format!("{name} = {figure}"));
        }
        lines.join("\n") + "\n"
    }
}

fn parse(path: &Path, text: &str) -> Result<PricesInForce, PriceFileError> {
    let mut document: toml::Table = text.parse().map_err(|error| PriceFileError::Syntax {
        path: path.to_owned(),
        error: Box::new(error),
    })?;
    let mut faults = Vec::new();
    let date = match document.remove("date") {
        None => Err(PriceFileFault::DateMissing),
        Some(found) => {
            let text = found.as_str().map_or_else(|| found.to_string(), ToOwned::to_owned);
            text.parse().map_err(|error| PriceFileFault::Date {
                found: found.to_string(),
                error,
            })
        }
    };
    let source = document.remove("source");
    let source = source
        .as_ref()
        .and_then(toml::Value::as_str)
        .filter(|text| !text.is_empty());
    let mut figures = Vec::new();
    for (field, value) in &document {
        match value {
            toml::Value::Float(figure) => figures.push((field.as_str(), *figure)),
            toml::Value::Integer(figure) => figures.push((field.as_str(), *figure as f64)),
            found => {
                // Said once, and not also to be missing.
                figures.push((field.as_str(), 0.0));
                faults.push(PriceFileFault::NoNumber {
                    field: field.clone(),
                    found: found.to_string(),
                });
            }
        }
    }
    let prices = Prices::from_fields(figures).unwrap_or_else(|found| {
        faults.extend(found.into_iter().map(PriceFileFault::Price));
        Prices::default()
    });
    if source.is_none() {
        faults.push(PriceFileFault::SourceMissing);
    }
    match date {
        Ok(date) if faults.is_empty() => Ok(PricesInForce {
            prices,
            name: path.display().to_string(),
            date,
            source: source.unwrap_or_default().into(),
        }),
        date => {
            faults.extend(date.err());
            let path = path.to_owned();
            Err(PriceFileError::Faults { path, faults })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<PricesInForce, PriceFileError> {
        parse(Path::new("/p.toml"), text)
    }

    fn faults(text: &str) -> Vec<String> {
        match parsed(text) {
            Err(PriceFileError::Faults { faults, .. }) => faults.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_printed_table_is_a_price_file() {
        for table in Table::ALL {
            let shipped = shipped(table);
            let read = parsed(&shipped.to_toml()).unwrap();
            assert_eq!((read.prices, read.date), (table.prices(), table.list().date), "{table}");
            assert_eq!((read.name, read.source), ("/p.toml".into(), shipped.source));
        }
    }

    #[test]
    fn gaps_are_told_exactly_and_all_at_once() {
        let whole = shipped(Table::AwsS3Standard).to_toml();
        let changed = |from: &str, to: &str| {
            assert!(whole.contains(from), "{from}");
            faults(&whole.replace(from, to))
        };
        assert_eq!(
            changed("delete_usd_per_1000 = 0\n", ""),
            ["`delete_usd_per_1000` is missing; what is free has to be said to be: `delete_usd_per_1000 = 0`"]
        );
        assert_eq!(
            changed("get_usd_per_1000 = 0.0004", "get_usd_per_1000 = -0.0004"),
            ["`get_usd_per_1000` is -0.0004, and nothing costs less than nothing"]
        );
        assert_eq!(
            changed("get_usd_per_1000 = 0.0004", "get_usd_per_1000 = nan"),
            ["`get_usd_per_1000` is NaN, which is no number"]
        );
        assert_eq!(
            changed("get_usd_per_1000 = 0.0004", "get_usd_per_1000 = \"0.0004\""),
            ["`get_usd_per_1000` has to be a number, not \"0.0004\""]
        );
        let unknown = changed("egress_usd_per_gib", "egress_usd_per_gb");
        assert!(
            unknown[0].starts_with("there is no price `egress_usd_per_gb`; known are "),
            "{unknown:?}"
        );
        assert!(unknown[1].starts_with("`egress_usd_per_gib` is missing"), "{unknown:?}");
        assert_eq!(
            changed("date = \"2025-10-01\"", "date = \"2025-02-29\""),
            ["`date` = \"2025-02-29\": it is no date such as 2026-01-31"]
        );
        assert_eq!(faults("").len(), Prices::FIELDS.len() + 2);
        assert!(matches!(parsed("x = \n"), Err(PriceFileError::Syntax { .. })));
        let missing = PriceSettings {
            file: Some("/nowhere/p.toml".into()),
            ..PriceSettings::default()
        };
        let error = load(&missing).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/p.toml: "), "{error}");
    }

    #[test]
    fn old_prices_are_told_from_new_ones() {
        let table = shipped(Table::AwsS3Standard);
        let day = |days: i64| (table.date.days() + days) as u64 * 86_400;
        assert_eq!(table.outdated_days(day(AGE_DAYS_MAX)), None);
        assert_eq!(table.outdated_days(day(AGE_DAYS_MAX + 1)), Some(AGE_DAYS_MAX + 1));
        assert_eq!(table.outdated_days(0), None);
        assert_eq!(shipped(Table::Free).outdated_days(day(100_000)), None);
    }
}
