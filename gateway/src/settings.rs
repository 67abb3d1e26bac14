//! What a user may write in the settings file, as data. Clocks, stores and devices are no settings; the daemon builds
//! them from these.
//!
//! Reading reports every fault at once: unknown keys, wrong types, values out of range and contradictions. It owns the
//! file's form and rules; it does not look at the machine (whether a directory exists, a disk has room, a bucket answers).

mod byte_size;
mod markdown;
mod named_store;
mod policies;
mod replica;
mod rules;
mod section;
mod sections;
mod store;
mod value;

pub(crate) use byte_size::{ByteSize, ByteSizeError};
pub(crate) use named_store::{FIRST, NamedStore};
pub(crate) use policies::PolicySettings;
pub(crate) use replica::Replica;
pub(crate) use section::Field;
pub(crate) use sections::{
    Cache, Compression, CompressionAlgorithm, Directories, Files, Flush, FlushIntervalRule, GroupCommitRule, Journal,
    Log, LogFormat, LogLevel, Memory, Metrics, Nbd, Prefetch, PrefetchAddressing, Prices, Threads,
};
pub(crate) use store::{SingleWriter, Store};
pub(crate) use value::Usd;

use section::{Section, qualified};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The whole settings file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The keys above all tables.
    pub(crate) directories: Directories,
    pub(crate) store: Store,
    /// `[store.replica.NAME]`, by name.
    pub(crate) replicas: BTreeMap<String, Replica>,
    /// `[store.named.NAME]`, by name.
    pub(crate) named_stores: BTreeMap<String, NamedStore>,
    pub(crate) cache: Cache,
    pub(crate) flush: Flush,
    pub(crate) journal: Journal,
    pub(crate) memory: Memory,
    pub(crate) compression: Compression,
    pub(crate) prefetch: Prefetch,
    pub(crate) prices: Prices,
    pub(crate) nbd: Nbd,
    pub(crate) files: Files,
    pub(crate) metrics: Metrics,
    pub(crate) threads: Threads,
    pub(crate) log: Log,
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Fault {
    /// `[section] key`
    pub key: String,
    /// As written, without secrets.
    pub value: String,
    /// What could stand there instead.
    pub permitted: String,
    /// Why that is so.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} = {}: permitted: {}; {}",
            self.key, self.value, self.permitted, self.reason
        )
    }
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("cannot read the settings file {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("the settings are not valid TOML: {0}")]
    Syntax(Box<toml::de::Error>),
    #[error("the settings have {} {}:{}", .0.len(), if .0.len() == 1 { "fault" } else { "faults" }, list(.0))]
    Faults(Vec<Fault>),
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

impl Settings {
    /// Reads and validates a settings file.
    pub(crate) fn load(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path).map_err(|error| SettingsError::Read {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(&text)
    }

    /// Parses and validates the text of a settings file.
    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let document: toml::Table = text.parse().map_err(|error| SettingsError::Syntax(Box::new(error)))?;
        let mut settings = Self::default();
        let mut faults = Vec::new();
        for (key, value) in document {
            settings.set(&key, value, &mut faults);
        }
        settings.check(&mut faults);
        if faults.is_empty() {
            Ok(settings)
        } else {
            Err(SettingsError::Faults(faults))
        }
    }

    /// Acknowledged data that may wait for its upload.
    pub(crate) fn dirty_bytes_max(&self) -> ByteSize {
        self.flush.dirty_bytes_max.unwrap_or(ByteSize(self.cache.size.0 / 2))
    }

    /// Where `/metrics` is served over TCP, if it is. Validated settings hold an address or nothing.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.listen.parse().ok()
    }

    pub(crate) fn nbd_socket(&self) -> PathBuf {
        self.directories.runtime_directory.join("nbd.sock")
    }

    pub(crate) fn files_socket(&self) -> PathBuf {
        self.directories.runtime_directory.join("files.sock")
    }

    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.directories.runtime_directory.join("admin.sock")
    }

    /// Every field with its present value, in the order of the documentation.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let mut fields = self.directories.fields();
        for (name, section) in self.sections() {
            fields.extend(section.fields());
            if name == "store" {
                let replicas = self.replicas.iter();
                fields.extend(replicas.flat_map(|(name, replica)| replica.fields_in("store", name)));
                let stores = self.named_stores.iter();
                fields.extend(stores.flat_map(|(name, named)| named.fields_of(name)));
            }
        }
        fields
    }

    /// Those that a table has which stands there once for each name, too.
    fn documented_fields(&self) -> Vec<Field> {
        let mut fields = self.fields();
        let of_store = fields.iter().rposition(|field| field.section == "store");
        let behind = of_store.map_or(0, |last| last + 1);
        let of_replica = Replica::default().fields_in("store", "NAME").into_iter();
        fields.splice(behind..behind, of_replica.chain(NamedStore::own_fields()));
        fields
    }

    /// The store that is named, with what the settings say of it if it is one of the replicas; the other replicas stay.
    pub(crate) fn use_store(&mut self, url: String) {
        let named = self.replicas.iter().find(|(_, replica)| replica.url == url);
        if let Some((name, replica)) = named.map(|(name, replica)| (name.clone(), replica.clone())) {
            replica.take_the_place_of(&mut self.store);
            self.replicas.remove(&name);
        }
        self.store.url = url;
    }

    /// These settings as a file, every default written out.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = Cow::Borrowed("");
        for field in self.fields() {
            if field.section != section {
                section = field.section;
                text += &format!("\n[{section}]\n");
            }
            if let Some(value) = field.value {
                text += &format!("{} = {value}\n", field.key);
            }
        }
        text
    }

    /// docs/CONFIGURATION.md.
    pub fn markdown() -> String {
        markdown::document(&Self::default())
    }

    fn sections(&self) -> [(&'static str, &dyn Section); 13] {
        [
            ("store", &self.store),
            ("cache", &self.cache),
            ("flush", &self.flush),
            ("journal", &self.journal),
            ("memory", &self.memory),
            ("compression", &self.compression),
            ("prefetch", &self.prefetch),
            ("prices", &self.prices),
            ("nbd", &self.nbd),
            ("files", &self.files),
            ("metrics", &self.metrics),
            ("threads", &self.threads),
            ("log", &self.log),
        ]
    }

    fn section_mut(&mut self, name: &str) -> Option<&mut dyn Section> {
        Some(match name {
            "store" => &mut self.store,
            "cache" => &mut self.cache,
            "flush" => &mut self.flush,
            "journal" => &mut self.journal,
            "memory" => &mut self.memory,
            "compression" => &mut self.compression,
            "prefetch" => &mut self.prefetch,
            "prices" => &mut self.prices,
            "nbd" => &mut self.nbd,
            "files" => &mut self.files,
            "metrics" => &mut self.metrics,
            "threads" => &mut self.threads,
            "log" => &mut self.log,
            _ => return None,
        })
    }

    /// One entry at the top of the file: a table or a key.
    fn set(&mut self, key: &str, value: toml::Value, faults: &mut Vec<Fault>) {
        match (self.section_mut(key), value) {
            (Some(section), toml::Value::Table(table)) => {
                let (mut replicas, mut named) = (None, None);
                for (inner, value) in table {
                    match (key, &*inner) {
                        ("store", replica::KEY) => replicas = Some(value),
                        ("store", named_store::KEY) => named = Some(value),
                        _ => set_field(section, key, &inner, value, faults),
                    }
                }
                if let Some(value) = replicas {
                    replica::read(&mut self.replicas, "store", value, faults);
                }
                if let Some(value) = named {
                    named_store::read(&mut self.named_stores, value, faults);
                }
            }
            (Some(_), value) => faults.push(Fault {
                key: key.into(),
                value: value.to_string(),
                permitted: format!("the table [{key}]"),
                reason: "this name is a table's".into(),
            }),
            (None, toml::Value::Table(_)) => {
                let known = self.sections().map(|(name, _)| name).join(", ");
                faults.push(Fault {
                    key: format!("[{key}]"),
                    value: "a table".into(),
                    permitted: format!("the tables {known}"),
                    reason: "there is no such table".into(),
                });
            }
            (None, value) => set_field(&mut self.directories, "", key, value, faults),
        }
    }

    fn check(&self, faults: &mut Vec<Fault>) {
        let out_of_range = |field: &Field| !field.permitted.accepts(field.number);
        faults.extend(self.fields().into_iter().filter(out_of_range).map(|field| Fault {
            key: field.name(),
            value: field.value.unwrap_or_default(),
            permitted: field.permitted.to_string(),
            reason: field.reason.into(),
        }));
        rules::check(self, faults);
    }
}

fn set_field(section: &mut dyn Section, table: &str, key: &str, value: toml::Value, faults: &mut Vec<Fault>) {
    let shown = value.to_string();
    let find = |section: &dyn Section| section.fields().into_iter().find(|field| field.key == key);
    match section.set(key, value) {
        Some(Ok(())) => {}
        Some(Err(reason)) => faults.push(Fault {
            key: qualified(table, key),
            value: shown,
            permitted: find(section)
                .map(|field| field.permitted.to_string())
                .unwrap_or_default(),
            reason,
        }),
        None => faults.push(Fault {
            key: qualified(table, key),
            value: shown,
            permitted: section
                .fields()
                .iter()
                .map(|field| field.key)
                .collect::<Vec<_>>()
                .join(", "),
            reason: "there is no such key".into(),
        }),
    }
}

#[cfg(test)]
mod tests;
