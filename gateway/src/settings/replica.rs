//! Replicas of the store, `[store.replica.NAME]`: as many tables as there are names, each with the same keys.

use super::rules::fault;
use super::section::{Field, Permitted, Section, section};
use super::store::{
    AddressingStyle, Named, UploadChecksum, check_directory_store, check_endpoint, check_files, place_of,
    without_userinfo,
};
use super::value::Value;
use super::{Fault, Prices, Settings, Store, set_field};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tombolo_base::Named as _;
use tombolo_billing::Table;
use tombolo_cloud_driver::{AcceptedRoot, StoreSettings, StoreUrl};

/// In the table `[store]`.
pub(super) const KEY: &str = "replica";
/// Each takes its part of every upload.
const REPLICAS_MAX: usize = 4;
/// It is a file's name too.
const NAME_BYTES_MAX: usize = 32;

section! {
    /// Another store that holds the same bucket.
    Replica "store.replica.NAME" {
        /// `s3://bucket/prefix` or `dir:/absolute/path`, of its own.
        url: String = String::new(), Permitted::Words("`s3://bucket[/prefix]` or `dir:/path`"),
            "It has to be named. What a replica lacks is noted in the state directory, by NAME and this; another URL is another replica, which is filled from the beginning.";
        /// As `[store] endpoint`.
        endpoint: Option<String> = None, Permitted::Words("`https://host[:port]`; `http://` with `allow_http`"),
            "Unset: as for the store, from the environment or the profile, else AWS.";
        /// As `[store] region`.
        region: Option<String> = None, Permitted::Words("a region's name, such as `eu-central-1`"),
            "A replica in another region says which; nothing is taken over from `[store]`.";
        /// As `[store] addressing_style`.
        addressing_style: AddressingStyle = AddressingStyle::Auto, Permitted::Words("`auto`, `path` or `virtual`"),
            "As for the store.";
        /// A profile of the AWS credential files: for a replica with other credentials.
        profile: Option<String> = None, Permitted::Words("a profile's name"),
            "Unset: the usual credential chain, as for the store.";
        /// As `[store] ca_file`.
        ca_file: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: the system's certificates.";
        /// As `[store] allow_http`.
        allow_http: bool = false, Permitted::Words("`true` or `false`"),
            "As for the store.";
        /// As `[store] upload_checksum`.
        upload_checksum: UploadChecksum = UploadChecksum::Sha256, Permitted::Words("`sha256`, `crc64nvme` or `off`"),
            "As for the store, from which it is not taken over: another server may refuse what that one takes.";
        /// What this store charges: a shipped table of list prices.
        prices: Table = Table::AwsS3Standard, Permitted::Names(Table::WORDS),
            "It decides which copy is read, and is in the bill.";
        /// A file with its prices, in place of the table.
        prices_file: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: the table.";
        /// A request that takes longer, or fails for so long, makes the replica count as away: uploads do not wait for it any more,
        /// and what it lacks is brought when it is back. What is brought may take longer, as long as at 1 Mbit/s.
        away_after_ms: u64 = 15_000, Permitted::numbers(1_000, 600_000),
            "So long uploads are held up once; each time it is away for longer. The largest object takes 2 s at 20 Mbit/s.";
        /// The replica may be overwritten although its root is not one that this gateway has put there: the root that the refusal
        /// names, by its digits; `none`, if there was one and is none any more.
        accept_root: Option<String> = None, Permitted::Words("16 hexadecimal digits, or `none`"),
            "It names one root, so it is safe to forget it here: a root that another gateway puts there later is another.";
        /// As `[store] uploads_in_flight_max`.
        uploads_in_flight_max: Option<u64> = None, Permitted::numbers(1, 64),
            "Unset: as many as pay, found out for each store on its own.";
        /// As `[store] downloads_in_flight_max`.
        downloads_in_flight_max: Option<u64> = None, Permitted::numbers(1, 64),
            "Unset: as many as pay, found out for each store on its own.";
        /// As `[store] latency_table`, of this store.
        latency_table: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "With one of each store the first reads go to the right one of equally cheap ones.";
    }
}

impl Replica {
    /// As the table of this name has them, below that of the store.
    pub(super) fn fields_in(&self, store: &str, name: &str) -> Vec<Field> {
        let section = section_in(store, name);
        let named = |field: Field| Field {
            section: section.clone().into(),
            ..field
        };
        self.fields().into_iter().map(named).collect()
    }

    /// In everything that says where a store is, and what is known of it.
    pub(super) fn take_the_place_of(self, store: &mut Store) {
        store.url = self.url;
        store.endpoint = self.endpoint;
        store.region = self.region;
        store.addressing_style = self.addressing_style;
        store.profile = self.profile;
        store.ca_file = self.ca_file;
        store.allow_http = self.allow_http;
        store.upload_checksum = self.upload_checksum;
        store.latency_table = self.latency_table;
    }

    /// What the store that `url` names takes besides it; times are those of `[store]`.
    pub fn driver_settings(&self, store: &Store) -> StoreSettings {
        let mut place = store.clone();
        self.clone().take_the_place_of(&mut place);
        place.driver_settings()
    }

    /// What it charges.
    pub fn price_settings(&self) -> Prices {
        Prices {
            table: self.prices,
            file: self.prices_file.clone(),
            ..Prices::default()
        }
    }

    pub fn accepted_root(&self) -> Option<AcceptedRoot> {
        let accepted = self.accept_root.as_ref()?;
        Some(match accepted.as_str() {
            "none" => AcceptedRoot::Absent,
            digits => AcceptedRoot::Salt(digits.to_ascii_lowercase()),
        })
    }
}

fn section_in(store: &str, name: &str) -> String {
    format!("{store}.{KEY}.{name}")
}

fn section_of(name: &str) -> String {
    section_in("store", name)
}

impl Settings {
    /// Of the store, whose table of settings is `store`, then of each replica: the name of the table, and the latency table that it
    /// names.
    pub fn latency_tables(&self, store: &str) -> impl Iterator<Item = (String, Option<&Path>)> {
        let replicas = self.replicas.iter();
        let replicas = replicas.map(|(name, replica)| (section_in(store, name), replica.latency_table.as_deref()));
        std::iter::once((store.to_owned(), self.store.latency_table.as_deref())).chain(replicas)
    }
}

/// `replica` in the table of a store: a table of tables.
pub(super) fn read(replicas: &mut BTreeMap<String, Replica>, store: &str, value: toml::Value, faults: &mut Vec<Fault>) {
    let toml::Value::Table(tables) = value else {
        let reason = "each replica has a name and a table of its own";
        let permitted = format!("tables [{}]", section_in(store, "NAME"));
        faults.push(fault(store, KEY, value, permitted, reason));
        return;
    };
    for (name, value) in tables {
        let section = section_in(store, &name);
        let toml::Value::Table(table) = value else {
            let reason = "each replica has a name and a table of its own";
            let permitted = format!("the table [{section}]");
            faults.push(fault(store, &format!("{KEY}.{name}"), value, permitted, reason));
            continue;
        };
        let mut replica = Replica::default();
        for (key, value) in table {
            set_field(&mut replica, &section, &key, value, faults);
        }
        replicas.insert(name, replica);
    }
}

pub(super) fn check(settings: &Settings, faults: &mut Vec<Fault>) {
    if settings.replicas.len() > REPLICAS_MAX {
        let permitted = format!("at most {REPLICAS_MAX} replicas");
        let reason = "each takes its part of every upload";
        faults.push(fault("store", KEY, settings.replicas.len(), permitted, reason));
    }
    let mut places = vec![place_of(&settings.store.url)];
    for (name, replica) in &settings.replicas {
        let section = &section_of(name);
        check_name(section, name, faults);
        let place = place_of(&replica.url);
        if places.contains(&place) {
            let reason = "two stores of one gateway cannot be in one place";
            faults.push(fault(section, "url", &replica.url, "a place of its own", reason));
        }
        places.push(place);
        check_one(settings, section, replica, faults);
    }
}

pub(super) fn check_name(section: &str, name: &str, faults: &mut Vec<Fault>) {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let permitted = format!("up to {NAME_BYTES_MAX} lower-case letters, digits and '-'");
        faults.push(fault(
            section,
            "NAME",
            name,
            permitted,
            "it is a label of metrics and the name of a file",
        ));
    }
}

fn check_one(settings: &Settings, section: &str, replica: &Replica, faults: &mut Vec<Fault>) {
    match replica.url.parse::<StoreUrl>() {
        Err(error) => {
            let permitted = "s3://bucket[/prefix] or dir:/absolute/path";
            faults.push(fault(section, "url", without_userinfo(&replica.url), permitted, error));
        }
        Ok(StoreUrl::Dir { path }) => {
            let named = Named {
                section,
                url: &replica.url,
                endpoint: replica.endpoint.as_deref(),
            };
            check_directory_store(settings, named, &path, faults);
        }
        Ok(StoreUrl::S3 { .. }) => {}
    }
    if let Some(endpoint) = &replica.endpoint {
        let reason = "without TLS others on the network can read the data; set allow_http = true here to accept that";
        check_endpoint(section, "endpoint", endpoint, replica.allow_http, reason, faults);
    }
    check_files(
        section,
        &[
            ("ca_file", &replica.ca_file),
            ("prices_file", &replica.prices_file),
            ("latency_table", &replica.latency_table),
        ],
        faults,
    );
    let is_root =
        |text: &&String| *text == "none" || (text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if let Some(root) = replica.accept_root.as_ref().filter(|text| !is_root(text)) {
        let reason = "it names the one root that may be overwritten, as `tombolo status` shows it";
        faults.push(fault(
            section,
            "accept_root",
            root,
            "16 hexadecimal digits, or none",
            reason,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::fault_lines as faults;

    const FAR: &str =
        "[store]\nurl = \"s3://near\"\nregion = \"eu-central-1\"\n[store.replica.far]\nurl = \"s3://far/x\"\n";

    #[test]
    fn replicas_are_read_and_written() {
        let text = format!(
            "{FAR}endpoint = \"https://far.example\"\nprices = \"free\"\naway_after_ms = 2000\nupload_checksum = \"off\"\n"
        );
        let settings = Settings::parse(&text).unwrap();
        let far = &settings.replicas["far"];
        assert_eq!((far.away_after_ms, far.prices), (2_000, Table::Free));
        let driver = far.driver_settings(&settings.store).s3;
        assert_eq!(
            (driver.endpoint.as_deref(), driver.region),
            (Some("https://far.example"), None)
        );
        assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
        assert_eq!(driver.upload_checksum, tombolo_cloud_driver::UploadChecksum::Off);
        assert!(
            settings.to_toml().contains("\n[store.replica.far]\n"),
            "{}",
            settings.to_toml()
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_the_replica_s_name() {
        for (text, key, word) in [
            ("[store.replica.far]\n", "[store.replica.far] url", "neither"),
            (
                "[store.replica.Far]\nurl = \"s3://far\"",
                "[store.replica.Far] NAME",
                "label",
            ),
            ("[store]\nreplica = 3", "[store] replica", "table of its own"),
            (
                "[store.replica]\nfar = \"s3://far\"",
                "[store] replica.far",
                "table of its own",
            ),
            (
                "[store]\nurl = \"s3://far\"\n[store.replica.far]\nurl = \"s3://far\"",
                "[store.replica.far] url",
                "one place",
            ),
            (
                "[store]\nurl = \"dir:/srv/store\"\n[store.replica.far]\nurl = \"dir:/srv//store/\"",
                "[store.replica.far] url",
                "one place",
            ),
            (
                "[store.replica.far]\nurl = \"s3://far\"\nnope = 1",
                "[store.replica.far] nope",
                "no such key",
            ),
            (
                "[store.replica.far]\nurl = \"s3://far\"\naway_after_ms = 1",
                "[store.replica.far] away_after_ms",
                "1000 to",
            ),
            (
                "[store.replica.far]\nurl = \"s3://far\"\nendpoint = \"http://host\"",
                "[store.replica.far] endpoint",
                "allow_http",
            ),
            (
                "[store.replica.far]\nurl = \"dir:/var/lib/tombolo\"",
                "[store.replica.far] url",
                "state directory",
            ),
            (
                "[store.replica.far]\nurl = \"s3://far\"\naccept_root = \"yes\"",
                "[store.replica.far] accept_root",
                "16 hexadecimal",
            ),
        ] {
            let found = faults(text);
            assert!(
                found.len() == 1 && found[0].starts_with(key) && found[0].contains(word),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn a_replica_takes_the_place_of_the_store_with_all_that_says_where_it_is() {
        let mut settings = Settings::parse(&format!("{FAR}region = \"us-east-1\"\n")).unwrap();
        settings.use_store("s3://far/x".into());
        assert_eq!(
            (&*settings.store.url, settings.store.region.as_deref()),
            ("s3://far/x", Some("us-east-1"))
        );
        assert!(settings.replicas.is_empty());
        settings.use_store("s3://other".into());
        assert_eq!(
            (&*settings.store.url, settings.store.region.as_deref()),
            ("s3://other", Some("us-east-1"))
        );
    }
}
