//! The object store: its settings, what contradicts itself in them, and what its driver gets of them.

use super::rules::{fault, is_plain_absolute};
use super::section::{Field, Permitted, Section, section};
use super::value::{Value, choice};
use super::{ByteSize, Fault, Settings, Usd};
use crate::runtime::{EncryptionOptions, MasterKeySource};
use std::path::{Path, PathBuf};
use tombolo_cloud_driver::kms::{KmsSettings, is_loopback};
use tombolo_cloud_driver::{self as driver, S3Settings, StoreSettings, StoreUrl};

/// What a URL leads to, however it is written: without a slash at the end, links followed.
pub(super) fn place_of(url: &str) -> String {
    match url.parse::<StoreUrl>() {
        Ok(StoreUrl::Dir { path }) => {
            let path = path.components().collect::<PathBuf>();
            format!("dir:{}", path.canonicalize().unwrap_or(path).display())
        }
        Ok(url) => url.to_string(),
        Err(_) => url.to_owned(),
    }
}

choice! {
    /// Where the bucket's name stands in a request.
    AddressingStyle {
        Auto = "auto",
        Path = "path",
        VirtualHost = "virtual",
    }
}

choice! {
    /// How objects are encrypted before they leave the machine.
    EncryptionAlgorithm {
        Aes256Gcm = "aes-256-gcm",
        None = "none",
    }
}

choice! {
    /// What the store verifies an upload against.
    UploadChecksum {
        Sha256 = "sha256",
        Crc64Nvme = "crc64nvme",
        Off = "off",
    }
}

choice! {
    /// How it is seen to that no other gateway writes to the store.
    SingleWriter {
        Conditional = "conditional",
        Trusted = "trusted",
    }
}

section! {
    /// The object store.
    Store "store" {
        /// `s3://bucket/prefix` or `dir:/absolute/path`. One gateway per prefix or directory.
        url: String = "dir:/var/lib/tombolo/store".into(),
            Permitted::Words("`s3://bucket[/prefix]` or `dir:/path`"),
            "A directory needs no account, so a first try works; for keeping data, name a bucket.";
        /// An S3 server other than AWS: `https://host[:port]`.
        endpoint: Option<String> = None, Permitted::Words("`https://host[:port]`; `http://` with `allow_http`"),
            "Unset: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile, else AWS.";
        /// The region that requests are signed for.
        region: Option<String> = None, Permitted::Words("a region's name, such as `eu-central-1`"),
            "Unset: `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile; with an endpoint of one's own `us-east-1`.";
        /// Where the bucket's name stands in a request.
        addressing_style: AddressingStyle = AddressingStyle::Auto, Permitted::Words("`auto`, `path` or `virtual`"),
            "`auto` is path style at an endpoint of one's own and virtual hosts at AWS, which suits almost every server.";
        /// A profile of the AWS credential files. Secrets never stand in this file.
        profile: Option<String> = None, Permitted::Words("a profile's name"),
            "Unset: the usual credential chain (environment, files, the machine's role).";
        /// PEM certificates to trust instead of the system's.
        ca_file: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: the system's certificates.";
        /// Permits an endpoint without TLS.
        allow_http: bool = false, Permitted::Words("`true` or `false`"),
            "Without TLS whoever can watch the network can read the data, so it must be asked for.";
        /// What the store verifies an upload against. With `crc64nvme` or `off` bodies are not signed over TLS, which protects them, and
        /// no SHA-256 of them is made on either side; over plain HTTP they are signed all the same, as nothing else protects them.
        /// `off` is for servers that refuse checksum headers.
        upload_checksum: UploadChecksum = UploadChecksum::Sha256, Permitted::Words("`sha256`, `crc64nvme` or `off`"),
            "Every server takes it. Over TLS `crc64nvme` costs the gateway 2.2 instead of 3.0 ms of a processor for each MiB it uploads.";
        /// Starts with a store that has none of this gateway's objects; what only they held is lost.
        accept_foreign: bool = false, Permitted::Words("`true` or `false`"),
            "Nearly always the URL is wrong, or a folder is not mounted, and new data would go to the wrong place.";
        /// How objects are encrypted before they leave the machine. A change counts for new objects; others are read as they
        /// were put.
        encryption: EncryptionAlgorithm = EncryptionAlgorithm::Aes256Gcm, Permitted::Words("`aes-256-gcm` or `none`"),
            "Whoever can read the bucket should learn nothing; AES in hardware costs less than the SHA-256 of dedup.";
        /// The file with the master key, which encrypts the keys of the data: 64 hexadecimal digits, mode 0600. **Keep a copy away
        /// from this machine: without it nothing in the store can be read or recovered.**
        master_key_file: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: `master.key` in the state directory, which a first start makes; a file that is named here is never made.";
        /// The environment variable with the master key, in place of a file.
        master_key_environment: Option<String> = None, Permitted::Words("a variable's name"),
            "For supervisors that hand out secrets so.";
        /// A program that writes the master key to its standard output, and its arguments, in place of a file. It is run at each
        /// start, without a shell.
        master_key_command: Option<Vec<String>> = None, Permitted::Words("a list of words, the program first"),
            "For key services: the master key is then nowhere on this machine.";
        /// A symmetric key of AWS KMS that wraps the master key, in place of a file. The master key is made at the first start; it
        /// lies beside the data keys, and is unwrapped at each start. **Whoever deletes that key has lost the data.**
        master_key_kms: Option<String> = None, Permitted::Words("a key's id, ARN or alias (`alias/NAME`)"),
            "No secret to keep, and KMS tells who has used it. An ARN says the region too; else it is `region`. Credentials are those of the bucket.";
        /// A server of KMS other than AWS: `https://host[:port]`, which `ca_file` and the system's certificates are trusted for.
        master_key_kms_endpoint: Option<String> = None, Permitted::Words("`https://host[:port]`; `http://` on this machine alone"),
            "Unset: `AWS_ENDPOINT_URL_KMS`, `AWS_ENDPOINT_URL`, the profile, else AWS.";
        /// How it is seen to that no other gateway writes to the store: by conditional puts of its root, or on trust.
        single_writer: SingleWriter = SingleWriter::Conditional, Permitted::Words("`conditional` or `trusted`"),
            "Two writers would overwrite each other's root; `trusted` is for stores without conditional puts, where nothing keeps a second gateway away.";
        /// The root in the store is put anew before so much has passed, changes or not. Who wants to take the store over without
        /// being told that this gateway is gone watches it for so long.
        lease_ms: u64 = 60_000, Permitted::numbers(1_000, 3_600_000),
            "A put every 20 s is 0.65 $ a month; a recovery waits a minute for it.";
        /// Earlier roots that are kept in the store: `tombolo recover --list` shows them, and a recovery can go back to one.
        roots_kept: u64 = 48, Permitted::numbers(0, 500),
            "Two days at one an hour: enough to notice what went wrong. What blocks held is not removed yet, so each costs next to nothing.";
        /// ... and the least time between two of them.
        kept_root_interval_ms: u64 = 3_600_000, Permitted::numbers(100, 86_400_000),
            "An hour of work is what one may have to do again.";
        /// Metadata in the store that no root needs any more is removed after so long.
        removal_delay_ms: u64 = 600_000, Permitted::numbers(1_000, 86_400_000),
            "A recovery that began before may be reading it, and ends with an error when it is gone.";
        /// What an hour is worth that clients wait for reads, in US dollars: for choosing which copy is read, where there are replicas.
        read_hour_usd: Usd = Usd(0), Permitted::Words("an amount from 0 to 1000000000"),
            "The cheapest copy is read, and of equally cheap ones the fastest. At 1, 4 KiB from S3 Standard over the Internet are worth 3 ms.";
        /// How long a connection may take to come about.
        connect_timeout_ms: u64 = 5_000, Permitted::numbers(100, 300_000),
            "Several retransmissions of the first packet (1 s, 2 s); beyond that the next attempt helps more.";
        /// From the sending of a request to the last byte of its answer. An upload has beside it what all that are under way would take
        /// at 1 Mbit/s; once it is known how long uploads take, one is given up, and made again, after four times that, 5 s at the least.
        request_timeout_ms: u64 = 30_000, Permitted::numbers(1_000, 600_000),
            "The largest answer, 4 MiB, takes 17 s over 2 Mbit/s. A connection that hangs holds up what is confirmed behind it.";
        /// Attempts of one request, the first included. What still fails is begun again later; nothing is lost by it.
        attempts_max: u64 = 30, Permitted::numbers(1, 100),
            "With half of the requests failing one in 10^9 is given up; `stall_timeout_ms` ends the attempts sooner when the store is away.";
        /// The longest delay between two attempts.
        retry_delay_ms_max: u64 = 20_000, Permitted::numbers(100, 600_000),
            "S3 asks to slow down while it splits partitions, which takes seconds to minutes.";
        /// An object holds at most this much of data. Whatever is at hand goes together, so few bytes make a small object.
        object_bytes_max: ByteSize = ByteSize(4 << 20), Permitted::bytes(256 << 10, 4 << 20),
            "A request costs the same whatever its size: a TiB takes 262,144 puts, 1.3 $, and 21 $ in objects of 256 KiB.";
        /// Uploads at the same time.
        uploads_in_flight_max: Option<u64> = None, Permitted::numbers(1, 64),
            "Unset: as many as pay, found out while uploading, up to 64. A number pins it.";
        /// Downloads at the same time, prefetches included.
        downloads_in_flight_max: Option<u64> = None, Permitted::numbers(1, 64),
            "Unset: as many as pay, found out while downloading, up to 64. A quarter is kept for what is read right now.";
        /// Connections to the store that are kept open while hosts read or write, and for five minutes after that: where fewer requests
        /// are under way at once, so many look at the root every 10 s. 0 keeps none.
        warm_connections: u64 = 4, Permitted::numbers(0, 64),
            "A store closes a connection after 20 s of rest, and what is read next waits for TCP and TLS, two or three round trips more. A million requests a month at the most, 0.42 $ at S3 Standard.";
        /// What the store was measured to take: the `latency-table.json` of `tombolo-sim measure`. The gateway begins with what that
        /// recommends; what the store does from then on counts more, and what is pinned holds.
        latency_table: Option<PathBuf> = None, Permitted::Words("an absolute path"),
            "Unset: 32 requests at once to begin with, of 16 MiB of uploads and 4 MiB of downloads at the most, until the path has been seen.";
    }
}

impl Store {
    /// What the store that `url` names takes besides it.
    pub fn driver_settings(&self) -> StoreSettings {
        StoreSettings {
            s3: S3Settings {
                endpoint: self.endpoint.clone(),
                region: self.region.clone(),
                addressing_style: match self.addressing_style {
                    AddressingStyle::Auto => driver::AddressingStyle::Auto,
                    AddressingStyle::Path => driver::AddressingStyle::Path,
                    AddressingStyle::VirtualHost => driver::AddressingStyle::VirtualHost,
                },
                profile: self.profile.clone(),
                ca_file: self.ca_file.clone(),
                allow_http: self.allow_http,
                upload_checksum: match self.upload_checksum {
                    UploadChecksum::Sha256 => driver::UploadChecksum::Sha256,
                    UploadChecksum::Crc64Nvme => driver::UploadChecksum::Crc64Nvme,
                    UploadChecksum::Off => driver::UploadChecksum::Off,
                },
                connect_timeout_ms: self.connect_timeout_ms,
                request_timeout_ms: self.request_timeout_ms,
                ..S3Settings::default()
            },
        }
    }
}

impl Store {
    /// How objects are encrypted; what is not set follows from the state directory.
    pub fn encryption_options(&self, state_directory: &Path) -> EncryptionOptions {
        let file = || match &self.master_key_file {
            Some(file) => MasterKeySource::File(file.clone()),
            None => MasterKeySource::OwnFile(state_directory.join("master.key")),
        };
        let environment = self.master_key_environment.clone().map(MasterKeySource::Environment);
        let command = self.master_key_command.clone().map(MasterKeySource::Command);
        let kms = |key: &String| KmsSettings {
            key: key.clone(),
            endpoint: self.master_key_kms_endpoint.clone(),
            s3: self.driver_settings().s3,
        };
        let at_kms = self.master_key_kms.as_ref().map(kms).map(Box::new);
        let at_kms = at_kms.map(MasterKeySource::Kms);
        EncryptionOptions {
            is_on: self.encryption == EncryptionAlgorithm::Aes256Gcm,
            master_key: environment.or(command).or(at_kms).unwrap_or_else(file),
            kms: kms(&String::new()),
        }
    }
}

pub(super) fn check(settings: &Settings, faults: &mut Vec<Fault>) {
    let store = &settings.store;
    check_master_key(store, faults);
    match store.url.parse::<StoreUrl>() {
        Err(error) => {
            let permitted = "s3://bucket[/prefix] or dir:/absolute/path";
            faults.push(fault("store", "url", without_userinfo(&store.url), permitted, error));
        }
        Ok(StoreUrl::Dir { path }) => {
            let named = Named {
                section: "store",
                url: &store.url,
                endpoint: store.endpoint.as_deref(),
            };
            check_directory_store(settings, named, &path, faults);
        }
        Ok(StoreUrl::S3 { .. }) => {}
    }
    if let Some(endpoint) = &store.endpoint {
        let reason =
            "without TLS others on the network can read the data; set [store] allow_http = true to accept that";
        check_endpoint("store", "endpoint", endpoint, store.allow_http, reason, faults);
    }
    if let Some(endpoint) = &store.master_key_kms_endpoint {
        let reason = "what is answered holds the master key, so without TLS it must not leave this machine";
        check_endpoint(
            "store",
            "master_key_kms_endpoint",
            endpoint,
            is_loopback(endpoint),
            reason,
            faults,
        );
    }
    check_files(
        "store",
        &[("ca_file", &store.ca_file), ("latency_table", &store.latency_table)],
        faults,
    );
}

pub(super) fn check_files(section: &str, files: &[(&str, &Option<PathBuf>)], faults: &mut Vec<Fault>) {
    for (key, file) in files {
        if let Some(file) = file.as_ref().filter(|file| !is_plain_absolute(file)) {
            let reason = "the working directory of a service is nothing to rely on";
            faults.push(fault(
                section,
                key,
                file.display(),
                "an absolute path without ..",
                reason,
            ));
        }
    }
}

fn check_master_key(store: &Store, faults: &mut Vec<Fault>) {
    if let Some(file) = store.master_key_file.as_ref().filter(|file| !is_plain_absolute(file)) {
        let reason = "the working directory of a service is nothing to rely on";
        let permitted = "an absolute path without ..";
        faults.push(fault("store", "master_key_file", file.display(), permitted, reason));
    }
    if store
        .master_key_command
        .as_ref()
        .is_some_and(|words| words.is_empty() || words[0].is_empty())
    {
        let reason = "it has to name a program";
        faults.push(fault(
            "store",
            "master_key_command",
            "[]",
            "[\"program\", \"argument\", ...]",
            reason,
        ));
    }
    if let Some(key) = store
        .master_key_kms
        .as_ref()
        .filter(|key| key.is_empty() || key.contains(char::is_whitespace))
    {
        let reason = "it has to name a key";
        faults.push(fault(
            "store",
            "master_key_kms",
            key,
            "a key's id, ARN or alias",
            reason,
        ));
    }
    let named = [
        ("master_key_file", store.master_key_file.is_some()),
        ("master_key_environment", store.master_key_environment.is_some()),
        ("master_key_command", store.master_key_command.is_some()),
        ("master_key_kms", store.master_key_kms.is_some()),
    ];
    let named: Vec<_> = named
        .iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(key, _)| *key)
        .collect();
    if let [first, second, ..] = named[..] {
        let reason = format!("[store] {first} is set too, and there is one master key");
        faults.push(fault("store", second, "set", "one of the four", reason));
    }
}

/// A store as a table of the settings names it.
pub(super) struct Named<'s> {
    pub section: &'s str,
    pub url: &'s str,
    pub endpoint: Option<&'s str>,
}

pub(super) fn check_directory_store(settings: &Settings, named: Named<'_>, store: &Path, faults: &mut Vec<Fault>) {
    let state = &settings.directories.state_directory;
    let (section, shown) = (named.section, named.url);
    if state.starts_with(store) {
        let reason = format!(
            "it contains the state directory {}, whose files are not objects",
            state.display()
        );
        faults.push(fault(section, "url", shown, "a directory of its own", reason));
    } else if let Some(entry) = settings
        .state_entries()
        .find(|entry| store.starts_with(state.join(entry)))
    {
        let reason = format!("{} is the gateway's own", state.join(entry).display());
        faults.push(fault(section, "url", shown, "a directory of its own", reason));
    }
    if settings.directories.runtime_directory.starts_with(store)
        || store.starts_with(&settings.directories.runtime_directory)
    {
        let reason = "the runtime directory is for sockets and is emptied at boot";
        faults.push(fault(
            section,
            "url",
            shown,
            "a directory outside runtime_directory",
            reason,
        ));
    }
    if let Some(endpoint) = named.endpoint {
        let shown = without_userinfo(endpoint);
        faults.push(fault(
            section,
            "endpoint",
            shown,
            "unset with a dir: store",
            "a directory has no endpoint",
        ));
    }
}

pub(super) fn check_endpoint(
    section: &str,
    key: &'static str,
    endpoint: &str,
    allow_http: bool,
    clear_reason: &str,
    faults: &mut Vec<Fault>,
) {
    let shown = without_userinfo(endpoint);
    let Some((scheme, rest)) = endpoint
        .split_once("://")
        .filter(|(scheme, _)| ["http", "https"].contains(scheme))
    else {
        let reason = "the scheme says whether TLS is used";
        faults.push(fault(section, key, shown, "https://host[:port]", reason));
        return;
    };
    if rest.contains('@') {
        let reason = "credentials come from the credential chain and never stand in a settings file";
        faults.push(fault(section, key, &shown, "https://host[:port]", reason));
    }
    if rest.is_empty() || rest.contains(|character: char| character.is_whitespace() || "?#".contains(character)) {
        let reason = "it names a server and nothing else";
        faults.push(fault(section, key, &shown, "https://host[:port]", reason));
    }
    if scheme == "http" && !allow_http {
        faults.push(fault(section, key, shown, "https://host[:port]", clear_reason));
    }
}

/// What someone wrote as `user:password@` is not repeated in an error.
pub(super) fn without_userinfo(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}...{}", &url[..scheme + 3], &url[at..]),
        _ => url.into(),
    }
}
