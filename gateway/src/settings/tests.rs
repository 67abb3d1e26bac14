use super::section::Permitted;
use super::*;

fn faults(text: &str) -> Vec<Fault> {
    match Settings::parse(text) {
        Err(SettingsError::Faults(faults)) => faults,
        other => panic!("{text}\nfaults were expected, not {other:?}"),
    }
}

/// As they are shown, a line each; none where there are none.
pub(super) fn fault_lines(text: &str) -> Vec<String> {
    match Settings::parse(text) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .to_string()
            .lines()
            .skip(1)
            .map(|line| line.trim().to_owned())
            .collect(),
    }
}

fn only_fault(text: &str) -> Fault {
    let mut found = faults(text);
    assert_eq!(found.len(), 1, "{text}\n{found:?}");
    found.remove(0)
}

#[test]
fn defaults_are_valid() {
    assert_eq!(Settings::parse("").unwrap(), Settings::default());
}

#[test]
fn settings_written_out_parse_to_the_same() {
    let mut settings = Settings::parse("[flush]\ndirty_bytes_max = 4096000\n[store]\nregion = \"a\\\"b\"").unwrap();
    assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
    settings = Settings::default();
    assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
}

#[test]
fn sizes_may_be_integers_or_texts() {
    let settings = Settings::parse("[cache]\nsize = 1073741824\n[flush]\ndirty_bytes_max = \"1GiB\"").unwrap();
    assert_eq!(settings.cache.size, ByteSize(1 << 30));
    assert_eq!(settings.dirty_bytes_max(), settings.cache.size);
}

#[test]
fn a_budget_may_have_cents() {
    let settings = Settings::parse("[prices]\nbudget_usd_per_month = 12.5").unwrap();
    assert_eq!(settings.prices.budget_usd_per_month.map(Usd::dollars), Some(12.5));
    assert_eq!(Settings::parse(&settings.to_toml()).unwrap(), settings);
    let whole = Settings::parse("[prices]\nbudget_usd_per_month = 12").unwrap();
    assert_eq!(whole.prices.budget_usd_per_month, Some(Usd(12_000_000)));
}

#[test]
fn dirty_cap_defaults_to_half_of_the_cache() {
    assert_eq!(
        Settings::parse("[cache]\nsize = \"4GiB\"").unwrap().dirty_bytes_max(),
        ByteSize(2 << 30)
    );
}

#[test]
fn every_number_is_refused_just_outside_its_range_and_taken_at_its_ends() {
    let mut checked = 0;
    for field in Settings::default().fields() {
        let (Permitted::Numbers { minimum, maximum } | Permitted::Bytes { minimum, maximum }) = field.permitted else {
            continue;
        };
        let named = |value: u64| {
            let text = format!("[{}]\n{} = {value}", field.section, field.key);
            let permitted = field.permitted.to_string();
            match Settings::parse(&text) {
                Ok(_) => false,
                Err(SettingsError::Faults(faults)) => faults
                    .iter()
                    .any(|fault| fault.key == field.name() && fault.permitted == permitted),
                Err(error) => panic!("{text}: {error}"),
            }
        };
        assert!(!named(minimum) && !named(maximum), "{}", field.name());
        assert!(named(maximum + 1), "{}", field.name());
        assert!(minimum == 0 || named(minimum - 1), "{}", field.name());
        checked += 1;
    }
    assert!(checked > 20, "only {checked} fields have a range");
}

#[test]
fn unknown_keys_and_tables_are_refused_with_the_known_ones() {
    let fault = only_fault("sate_directory = \"/x\"");
    assert_eq!(fault.key, "sate_directory");
    assert!(fault.permitted.contains("state_directory"));
    let fault = only_fault("[flush]\ndirty_bytes_maximum = 1");
    assert_eq!(fault.key, "[flush] dirty_bytes_maximum");
    assert!(fault.permitted.contains("dirty_bytes_max"));
    let fault = only_fault("[caches]\nsize = 1");
    assert_eq!(fault.key, "[caches]");
    assert!(fault.permitted.contains("cache"));
    assert_eq!(only_fault("cache = 3").permitted, "the table [cache]");
}

#[test]
fn wrong_types_are_named() {
    for (text, key, word) in [
        ("[cache]\nsize = \"much\"", "[cache] size", "much"),
        ("[cache]\nsize = 1.5", "[cache] size", "float"),
        ("[cache]\nreplacement = \"mru\"", "[cache] replacement", "lru"),
        ("[nbd]\nconnections_max = \"many\"", "[nbd] connections_max", "string"),
        ("[nbd]\nconnections_max = -1", "[nbd] connections_max", "negative"),
        ("[store]\nallow_http = 1", "[store] allow_http", "true or false"),
        ("state_directory = 7", "state_directory", "string"),
        ("[prices]\ntable = \"s3\"", "[prices] table", "aws-s3-standard"),
        (
            "[prices]\nbudget_usd_per_month = -1",
            "[prices] budget_usd_per_month",
            "-1 is no amount",
        ),
        (
            "[prices]\nbudget_usd_per_month = nan",
            "[prices] budget_usd_per_month",
            "NaN is no amount",
        ),
        (
            "[prices]\nbudget_usd_per_month = \"10 $\"",
            "[prices] budget_usd_per_month",
            "dollars",
        ),
    ] {
        let fault = only_fault(text);
        assert_eq!(fault.key, key, "{text}");
        assert!(fault.reason.contains(word), "{fault}");
    }
}

#[test]
fn contradictions_are_refused() {
    for (text, key, word) in [
        (
            "[cache]\nsize = \"64MiB\"\n[flush]\ndirty_bytes_max = \"1GiB\"",
            "[flush] dirty_bytes_max",
            "64MiB",
        ),
        ("[cache]\nsize = 67108865", "[cache] size", "blocks"),
        (
            "[cache]\nsize = \"16MiB\"\n[prefetch]\nwindow_bytes_max = \"8MiB\"",
            "[prefetch] window_bytes_max",
            "quarter",
        ),
        (
            "[journal]\nsegment_bytes = \"512MiB\"",
            "[journal] segment_bytes",
            "256MiB",
        ),
        ("[store]\nurl = \"ftp://host/path\"", "[store] url", "ftp://host/path"),
        (
            "[store]\nurl = \"dir:/var/lib/tombolo\"",
            "[store] url",
            "state directory",
        ),
        ("[store]\nurl = \"dir:/var\"", "[store] url", "state directory"),
        (
            "[store]\nurl = \"dir:/var/lib/tombolo/journal/x\"",
            "[store] url",
            "journal",
        ),
        ("[store]\nurl = \"dir:/run/tombolo/store\"", "[store] url", "runtime"),
        (
            "[store]\nendpoint = \"https://host\"",
            "[store] endpoint",
            "no endpoint",
        ),
        (
            "[store]\nurl = \"s3://bucket\"\nendpoint = \"http://host\"",
            "[store] endpoint",
            "allow_http",
        ),
        (
            "[store]\nurl = \"s3://bucket\"\nendpoint = \"host:9000\"",
            "[store] endpoint",
            "scheme",
        ),
        (
            "[store]\nurl = \"s3://bucket\"\nendpoint = \"https://\"",
            "[store] endpoint",
            "server",
        ),
        ("[store]\nca_file = \"ca.pem\"", "[store] ca_file", "absolute"),
        ("[metrics]\nlisten = \"127.0.0.1\"", "[metrics] listen", "127.0.0.1"),
        ("[prices]\nfile = \"prices.toml\"", "[prices] file", "absolute"),
        (
            "[metrics]\nlisten = \"0.0.0.0:9464\"",
            "[metrics] listen",
            "allow_remote",
        ),
        ("state_directory = \"lib\"", "state_directory", "absolute"),
        ("runtime_directory = \"/run/../x\"", "runtime_directory", "without"),
        (
            "runtime_directory = \"/var/lib/tombolo/cache\"",
            "runtime_directory",
            "own files",
        ),
        (
            "[store]\nurl = \"dir:/var/lib/tombolo/ganesha\"",
            "[store] url",
            "gateway's own",
        ),
    ] {
        let fault = only_fault(text);
        assert_eq!(fault.key, key, "{text}");
        assert!(fault.to_string().contains(word), "{word} is not in: {fault}");
    }
    assert_eq!(
        only_fault(&format!("runtime_directory = \"/{}\"", "r".repeat(96))).permitted,
        "at most 96 bytes"
    );
}

#[test]
fn what_was_asked_for_is_permitted() {
    for text in [
        "[store]\nurl = \"s3://bucket/prefix\"\nendpoint = \"http://127.0.0.1:9000\"\nallow_http = true",
        "[metrics]\nlisten = \"0.0.0.0:9464\"\nallow_remote = true",
        "[metrics]\nlisten = \"[::1]:9464\"",
        "[metrics]\nlisten = \"\"",
        "[store]\nurl = \"dir:/var/lib/tombolo/caches\"",
    ] {
        Settings::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn all_faults_come_at_once() {
    let found = faults(
        "bogus = 1\n[cache]\nsize = \"64MiB\"\nreplacement = 4\n[flush]\ndirty_bytes_max = \"1GiB\"\n\
         throttle_start_permille = 1001\n[store]\nurl = \"ftp://host\"\nendpoint = \"http://host\"\n[nope]\n",
    );
    let mut keys: Vec<&str> = found.iter().map(|fault| fault.key.as_str()).collect();
    keys.sort_unstable();
    let expected = [
        "[cache] replacement",
        "[flush] dirty_bytes_max",
        "[flush] throttle_start_permille",
        "[nope]",
        "[store] endpoint",
        "[store] url",
        "bogus",
    ];
    assert_eq!(keys, expected);
    let message = SettingsError::Faults(found).to_string();
    assert!(message.starts_with("the settings have 7 faults:\n  "), "{message}");
}

#[test]
fn a_secret_in_a_url_is_not_repeated() {
    let text = "[store]\nurl = \"s3://key:hunter2@bucket\"\nendpoint = \"https://key:hunter2@host\"";
    let message = Settings::parse(text).unwrap_err().to_string();
    assert!(!message.contains("hunter2"), "{message}");
    assert!(message.contains("@bucket") && message.contains("@host"), "{message}");
}

#[test]
fn broken_toml_says_where() {
    let message = Settings::parse("[cache]\nsize = \n").unwrap_err().to_string();
    assert!(message.contains("line 2"), "{message}");
}

#[test]
fn every_field_says_what_why_and_what_is_permitted() {
    for field in Settings::default().fields() {
        assert!(
            !field.meaning.is_empty() && field.reason.ends_with('.'),
            "{}",
            field.name()
        );
        assert!(!field.permitted.to_string().is_empty(), "{}", field.name());
        assert!(
            !field.reason.contains('|') && !field.meaning.concat().contains('|'),
            "{}",
            field.name()
        );
    }
}

#[test]
fn configuration_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/CONFIGURATION.md");
    let document = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        document == Settings::markdown(),
        "regenerate it: tombolo settings --markdown > docs/CONFIGURATION.md"
    );
}
