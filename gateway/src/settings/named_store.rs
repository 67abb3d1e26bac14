//! Named stores, `[store.named.NAME]`: each a gateway of its own inside the daemon. Owns what such a table holds, and the settings
//! that the gateway of one store has: a part of what is of the whole process, and what is its own.

use super::replica::{self, Replica};
use super::rules::{self, fault, is_plain_absolute};
use super::section::{Field, Permitted, Section, section};
use super::store::{self, Named, Store};
use super::{ByteSize, Fault, Memory, Settings, set_field};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tombolo_base::Named as _;
use tombolo_billing::Table;
use tombolo_cloud_driver::StoreUrl;

use super::value::Value;

/// In the table `[store]`.
pub(super) const KEY: &str = "named";
/// In the state directory.
const DIRECTORY: &str = "stores";
/// What the first store is called where several are told apart.
pub(crate) const FIRST: &str = "default";
/// Each takes some twenty threads.
const STORES_MAX: usize = 16;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// Keys of `[memory]` that are bounds of all gateways together.
const DIVIDED: [&str; 7] = [
    "map_cache_bytes",
    "descriptor_cache_bytes",
    "fingerprint_filter_bytes",
    "fingerprint_fence_bytes",
    "fingerprint_memtable_entries",
    "upload_buffer_bytes_max",
    "transfer_bytes_max",
];

section! {
    /// What a named store has besides the keys of a store.
    OwnKeys "store.named.NAME" {
        /// Another store, for volumes and shares that are created with `--store NAME`: a gateway of its own inside the daemon, with
        /// its state in `stores/NAME` of the state directory. Besides this and the next all keys of `[store]` stand here, `url` at
        /// least, with the same defaults, and its replicas in `[store.named.NAME.replica.NAME]`. This is its cache file's size.
        cache_size: ByteSize = ByteSize(4 * GIB), Permitted::bytes(16 * MIB, 15 * TIB),
            "A part of a small machine's disk. Each store has a cache of its own, so that none can push another out.";
        /// Acknowledged data that is not in this store yet never exceeds this.
        dirty_bytes_max: Option<ByteSize> = None, Permitted::bytes(MIB, 15 * TIB),
            "Unset: half of `cache_size`.";
        /// What this store charges: a shipped table of list prices.
        prices: Table = Table::AwsS3Standard, Permitted::Names(Table::WORDS),
            "As `[prices] table`. The budget is compared with the sum of all stores.";
        /// A file with its prices, in place of the table.
        prices_file: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: the table.";
    }
}

/// One table `[store.named.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedStore {
    pub store: Store,
    pub own: OwnKeys,
    pub replicas: BTreeMap<String, Replica>,
}

impl Default for NamedStore {
    fn default() -> Self {
        Self {
            // A place of its own has to be named.
            store: Store {
                url: String::new(),
                ..Store::default()
            },
            own: OwnKeys::default(),
            replicas: BTreeMap::new(),
        }
    }
}

impl NamedStore {
    /// As the table of this name has them.
    pub(super) fn fields_of(&self, name: &str) -> Vec<Field> {
        let section = section_of(name);
        let named = |field: Field| Field {
            section: section.clone().into(),
            ..field
        };
        let own = self.store.fields().into_iter().chain(self.own.fields()).map(named);
        let replicas = self.replicas.iter();
        let of_replica = |(replica, keys): (&String, &Replica)| keys.fields_in(&section, replica);
        own.chain(replicas.flat_map(of_replica)).collect()
    }

    /// For the documentation: not once more those of `[store]`.
    pub(super) fn own_fields() -> Vec<Field> {
        OwnKeys::default().fields()
    }
}

fn section_of(name: &str) -> String {
    format!("store.{KEY}.{name}")
}

/// `named` in `[store]`: a table of tables.
pub(super) fn read(stores: &mut BTreeMap<String, NamedStore>, value: toml::Value, faults: &mut Vec<Fault>) {
    let reason = "each named store has a name and a table of its own";
    let toml::Value::Table(tables) = value else {
        faults.push(fault("store", KEY, value, "tables [store.named.NAME]", reason));
        return;
    };
    for (name, value) in tables {
        let section = section_of(&name);
        let toml::Value::Table(table) = value else {
            let permitted = format!("the table [{section}]");
            faults.push(fault("store", &format!("{KEY}.{name}"), value, permitted, reason));
            continue;
        };
        let mut named = NamedStore::default();
        let own: Vec<&str> = named.own.fields().iter().map(|field| field.key).collect();
        for (key, value) in table {
            match &*key {
                replica::KEY => replica::read(&mut named.replicas, &section, value, faults),
                key if own.contains(&key) => set_field(&mut named.own, &section, key, value, faults),
                key => set_field(&mut named.store, &section, key, value, faults),
            }
        }
        stores.insert(name, named);
    }
}

impl Settings {
    /// What the state directory holds: `stores` only where there are any.
    pub(super) fn state_entries(&self) -> impl Iterator<Item = &'static str> {
        let named = (!self.named_stores.is_empty()).then_some(DIRECTORY);
        rules::STATE_ENTRIES.into_iter().chain(named)
    }

    /// Where named stores have their state directories, of stores that the settings do not name any more too.
    pub(crate) fn stores_directory(&self) -> PathBuf {
        self.directories.state_directory.join(DIRECTORY)
    }

    /// As the gateway of the first store has them.
    pub(crate) fn of_first_store(&self) -> Self {
        let mut first = self.clone();
        self.divide(&mut first, self.cache.size);
        first.named_stores.clear();
        first
    }

    /// As the gateway of this named store has them. The budget is compared with the sum of all, by the first.
    pub(crate) fn of_named_store(&self, name: &str) -> Option<Self> {
        let named = self.named_stores.get(name)?;
        let mut own = self.clone();
        own.store = named.store.clone();
        own.replicas = named.replicas.clone();
        own.cache.size = named.own.cache_size;
        own.flush.dirty_bytes_max = named.own.dirty_bytes_max;
        own.prices.table = named.own.prices;
        own.prices.file.clone_from(&named.own.prices_file);
        own.prices.budget_usd_per_month = None;
        own.directories.state_directory = self.stores_directory().join(name);
        self.divide(&mut own, named.own.cache_size);
        own.named_stores.clear();
        Some(own)
    }

    /// Of what is of the whole process each gateway gets the least that is permitted, and its part of the rest by what it has
    /// of all caches. A thread of each kind is the least there is, also where fewer are set.
    fn divide(&self, part: &mut Self, cache: ByteSize) {
        let gateways = 1 + self.named_stores.len() as u64;
        if gateways == 1 {
            return;
        }
        let named: u64 = self.named_stores.values().map(|named| named.own.cache_size.0).sum();
        let all = u128::from(self.cache.size.0.saturating_add(named)).max(1);
        let of = |whole: u64, least: u64| {
            let rest = u128::from(whole.saturating_sub(gateways * least));
            least + (rest * u128::from(cache.0) / all) as u64
        };
        for (key, whole, least) in divided(&self.memory) {
            // Part of a number that was accepted is one.
            let _ = part.memory.set(key, toml::Value::Integer(of(whole, least) as i64));
        }
        part.threads.io = of(self.threads.io, 1);
        part.threads.hash = of(self.threads.hash, 1);
    }
}

/// Key, value and the least that each gateway needs.
fn divided(memory: &Memory) -> Vec<(&'static str, u64, u64)> {
    let fields = memory.fields().into_iter();
    let of = |field: Field| {
        let (Permitted::Bytes { minimum, .. } | Permitted::Numbers { minimum, .. }) = field.permitted else {
            return None;
        };
        DIVIDED
            .contains(&field.key)
            .then_some((field.key, field.number?, minimum))
    };
    fields.filter_map(of).collect()
}

pub(super) fn check(settings: &Settings, faults: &mut Vec<Fault>) {
    let count = settings.named_stores.len();
    if count == 0 {
        return;
    }
    if count > STORES_MAX {
        let permitted = format!("at most {STORES_MAX} named stores");
        faults.push(fault(
            "store",
            KEY,
            count,
            permitted,
            "each has threads and a cache of its own",
        ));
    }
    check_division(settings, faults);
    let mut places = vec![(store::place_of(&settings.store.url), &settings.store.endpoint)];
    places.extend(
        settings
            .replicas
            .values()
            .map(|replica| (store::place_of(&replica.url), &replica.endpoint)),
    );
    for (name, named) in &settings.named_stores {
        let section = &section_of(name);
        replica::check_name(section, name, faults);
        if name == FIRST {
            let reason = "so the first store is called";
            faults.push(fault(section, "NAME", name, "another name", reason));
        }
        let of_replicas = named.replicas.values().map(|replica| (&replica.url, &replica.endpoint));
        for (url, endpoint) in std::iter::once((&named.store.url, &named.store.endpoint)).chain(of_replicas) {
            let place = (store::place_of(url), endpoint);
            if places.contains(&place) {
                let reason = "two stores cannot be in one place";
                faults.push(fault(section, "url", url, "a place of its own", reason));
            }
            places.push(place);
        }
        check_one(settings, section, name, faults);
    }
}

fn check_division(settings: &Settings, faults: &mut Vec<Fault>) {
    let gateways = 1 + settings.named_stores.len() as u64;
    for (key, whole, least) in divided(&settings.memory) {
        if whole < gateways * least {
            let permitted = format!("at least {}", gateways * least);
            let reason = format!("it is of {gateways} stores together, and each needs {least}");
            faults.push(fault("memory", key, whole, permitted, reason));
        }
    }
}

/// By the rules of a gateway with one store, in the words of this one's table.
fn check_one(settings: &Settings, section: &str, name: &str, faults: &mut Vec<Fault>) {
    let Some(own) = settings.of_named_store(name) else {
        return;
    };
    let mut found = Vec::new();
    store::check(&own, &mut found);
    replica::check(&own, &mut found);
    rules::check_cache(&own, &mut found);
    let in_its_words = |text: &str| {
        text.replace("[store.replica.", &format!("[{section}.replica."))
            .replace("[store]", &format!("[{section}]"))
            .replace("[cache] size", &format!("[{section}] cache_size"))
            .replace("[flush] dirty_bytes_max", &format!("[{section}] dirty_bytes_max"))
    };
    faults.extend(found.into_iter().map(|fault| Fault {
        key: in_its_words(&fault.key),
        reason: in_its_words(&fault.reason),
        ..fault
    }));
    let named = &settings.named_stores[name];
    if let Some(file) = named.own.prices_file.as_deref().filter(|file| !is_plain_absolute(file)) {
        let reason = "the working directory of a service is nothing to rely on";
        let permitted = "an absolute path without ..";
        faults.push(fault(section, "prices_file", file.display(), permitted, reason));
    }
    let of_replicas = named.replicas.values().map(|replica| &replica.url);
    for url in std::iter::once(&named.store.url).chain(of_replicas) {
        if let Ok(StoreUrl::Dir { path }) = url.parse::<StoreUrl>() {
            check_outside(settings, section, url, &path, faults);
        }
    }
}

/// The state directory of the first store has files of its own, and those of all named ones.
fn check_outside(settings: &Settings, section: &str, url: &str, path: &Path, faults: &mut Vec<Fault>) {
    let mut found = Vec::new();
    let named = Named {
        section,
        url,
        endpoint: None,
    };
    store::check_directory_store(settings, named, path, &mut found);
    // Its own state directory is below the first one's: told already.
    let is_new = |fault: &Fault| !faults.iter().any(|told| told.key == fault.key);
    let news: Vec<Fault> = found.into_iter().filter(is_new).collect();
    faults.extend(news);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::fault_lines as faults;

    const ARCHIVE: &str = "[store]\nurl = \"s3://near\"\n[cache]\nsize = \"3GiB\"\n\
        [store.named.archive]\nurl = \"s3://archive\"\ncache_size = \"1GiB\"\nroots_kept = 5\nprices = \"free\"\n\
        [store.named.archive.replica.far]\nurl = \"s3://far\"\n";

    #[test]
    fn named_stores_are_read_and_written() {
        let settings = Settings::parse(ARCHIVE).unwrap();
        let archive = &settings.named_stores["archive"];
        assert_eq!((&*archive.store.url, archive.store.roots_kept), ("s3://archive", 5));
        assert_eq!(archive.replicas["far"].url, "s3://far");
        assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
    }

    #[test]
    fn each_gateway_has_its_own_and_its_part() {
        let settings = Settings::parse(ARCHIVE).unwrap();
        let own = settings.of_named_store("archive").unwrap();
        assert_eq!(own.store.url, "s3://archive");
        assert_eq!(own.cache.size, ByteSize(GIB));
        assert_eq!(own.dirty_bytes_max(), ByteSize(GIB / 2));
        assert_eq!(own.prices.table, Table::Free);
        assert_eq!(
            own.directories.state_directory,
            Path::new("/var/lib/tombolo/stores/archive")
        );
        assert!(own.named_stores.is_empty() && own.replicas.contains_key("far"));
        let first = settings.of_first_store();
        assert!(first.named_stores.is_empty() && first.replicas.is_empty());
        // A MiB each, and of the 62 that are left a quarter.
        assert_eq!(own.memory.map_cache_bytes, ByteSize(16 * MIB + MIB / 2));
        assert_eq!(first.memory.map_cache_bytes, ByteSize(47 * MIB + MIB / 2));
        assert_eq!((first.threads.io, own.threads.io), (5, 2));
        assert_eq!((first.threads.hash, own.threads.hash), (1, 1));
        for (key, whole, _) in divided(&settings.memory) {
            let of = |part: &Settings| {
                divided(&part.memory)
                    .into_iter()
                    .find(|(other, ..)| *other == key)
                    .unwrap()
                    .1
            };
            assert!(of(&first) + of(&own) <= whole, "{key}");
        }
    }

    #[test]
    fn without_named_stores_nothing_changes() {
        let settings = Settings::default();
        assert_eq!(settings.of_first_store(), settings);
        assert_eq!(settings.of_named_store("archive"), None);
        // What is the gateway's own only where there are named stores.
        assert_eq!(faults("[store]\nurl = \"dir:/var/lib/tombolo/stores\""), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_told_in_the_words_of_the_table() {
        for (text, key, word) in [
            ("[store.named.a]\n", "[store.named.a] url", "neither"),
            ("[store.named.A]\nurl = \"s3://aaa\"", "[store.named.A] NAME", "label"),
            (
                "[store.named.default]\nurl = \"s3://aaa\"",
                "[store.named.default] NAME",
                "first",
            ),
            ("[store]\nnamed = 3", "[store] named", "table of its own"),
            ("[store.named]\na = 3", "[store] named.a", "table of its own"),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\nnope = 1",
                "[store.named.a] nope",
                "no such key",
            ),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\nlease_ms = 1",
                "[store.named.a] lease_ms",
                "1000 to",
            ),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\ncache_size = 1",
                "[store.named.a] cache_size",
                "16MiB",
            ),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\ncache_size = \"1GiB\"\ndirty_bytes_max = \"2GiB\"",
                "[store.named.a] dirty_bytes_max",
                "[store.named.a] cache_size = 1GiB",
            ),
            (
                "[store]\nurl = \"s3://aaa\"\n[store.named.a]\nurl = \"s3://aaa\"",
                "[store.named.a] url",
                "one place",
            ),
            (
                "[store]\nurl = \"s3://aaa/b\"\n[store.named.a]\nurl = \"s3://aaa/b/\"",
                "[store.named.a] url",
                "one place",
            ),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\nendpoint = \"http://host\"",
                "[store.named.a] endpoint",
                "[store.named.a] allow_http",
            ),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\n[store.named.a.replica.b]\nurl = \"s3://bbb\"\naway_after_ms = 1",
                "[store.named.a.replica.b] away_after_ms",
                "1000 to",
            ),
            (
                "[store.named.a]\nurl = \"s3://aaa\"\nprices_file = \"x\"",
                "[store.named.a] prices_file",
                "absolute",
            ),
            (
                "[store.named.a]\nurl = \"dir:/var/lib/tombolo/stores/b\"",
                "[store.named.a] url",
                "gateway's own",
            ),
            (
                "[memory]\nmap_cache_bytes = \"1MiB\"\n[store.named.a]\nurl = \"s3://aaa\"",
                "[memory] map_cache_bytes",
                "2 stores together",
            ),
        ] {
            let found = faults(text);
            let is_told = |fault: &String| fault.starts_with(key) && fault.contains(word);
            assert!(found.iter().any(is_told), "{text}: {found:?}");
            assert!(found.iter().all(|fault| fault.starts_with(key)), "{text}: {found:?}");
        }
    }
}
