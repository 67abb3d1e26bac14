//! The command line as a process of its own, against a gateway made of a list.

use crate::fake::{FakeState, Gateway, MIB, said};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use tombolo::admin::model::{CheckState, EncryptionStatus, ErrorKind, JournalStatus, Status, StoreCheckStatus};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn bare(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.env_remove("TOMBOLO_SOCKET").args(words).stdin(Stdio::null());
    command
}

#[test]
fn volumes_are_created_listed_changed_and_deleted() {
    let gateway = Gateway::start();
    assert_eq!(
        gateway.cli(&["volume", "create", "b", "--size", "10GiB"], 0).out,
        "created volume b: 10GiB\n"
    );
    let created = parsed(
        &gateway
            .cli(&["volume", "create", "a.1", "--size", "4096", "--json"], 0)
            .out,
    );
    assert_eq!(
        created,
        json!({ "name": "a.1", "size_bytes": 4096, "flush": "local", "connections": 0 })
    );
    assert_eq!(
        gateway.cli(&["volume", "set", "b", "--flush", "bucket"], 0).out,
        "changed volume b: 10GiB, flushed to the store\n"
    );
    let listed = gateway.cli(&["volume", "list"], 0).out;
    assert_eq!(
        listed,
        "NAME  SIZE   FLUSH   CONNECTIONS\na.1   4KiB   local   0\nb     10GiB  bucket  0\n"
    );
    let status = gateway.cli(&["status"], 0).out;
    assert!(
        status.contains("a.1 (4KiB), b (10GiB, flushed to the store)"),
        "{status}"
    );
    gateway.cli(&["volume", "resize", "a.1", "--size", "8KiB"], 0);
    let refused = gateway.cli(&["volume", "resize", "a.1", "--size", "4KiB"], 2);
    assert!(refused.err.contains("shrinking must be allowed"), "{}", refused.err);
    gateway.cli(&["volume", "resize", "a.1", "--size", "4KiB", "--allow-shrink"], 0);
    gateway.cli(&["volume", "delete", "a.1"], 0);
    gateway.cli(&["volume", "delete", "b", "--yes"], 0);
    assert_eq!(parsed(&gateway.cli(&["volume", "list", "--json"], 0).out), json!([]));
}

#[test]
fn policies_are_shown_and_changed() {
    let gateway = Gateway::start();
    let changed = gateway.cli(&["policy", "set", "replacement=arc"], 0).out;
    assert!(changed.starts_with("replacement     arc\n"), "{changed}");
    let shown = parsed(&gateway.cli(&["policy", "show", "--json"], 0).out);
    assert_eq!(shown["replacement"], json!("arc"));
    let refused = gateway.cli(&["policy", "set", "arc"], 2);
    assert!(refused.err.contains("KEY=VALUE"), "{}", refused.err);
    gateway.cli(&["policy", "set"], 2);
}

#[test]
fn refusals_are_exact_and_have_their_exit_codes() {
    let gateway = Gateway::start();
    gateway.cli(&["volume", "create", "there", "--size", "16MiB"], 0);
    let long = "n".repeat(300);
    for (words, code, message) in [
        (
            &["volume", "delete", "absent"][..],
            4,
            "volume \"absent\" does not exist",
        ),
        (
            &["volume", "resize", "absent", "--size", "1GiB"],
            4,
            "volume \"absent\" does not exist",
        ),
        (
            &["volume", "set", "absent", "--flush", "local"],
            4,
            "volume \"absent\" does not exist",
        ),
        (&["volume", "set", "there"], 2, "--flush"),
        (
            &["volume", "set", "there", "--flush", "never"],
            2,
            "[possible values: local, bucket]",
        ),
        (
            &["volume", "create", "there", "--size", "1GiB"],
            5,
            "a volume named \"there\" exists already",
        ),
        (&["volume", "create", "new", "--size", "0"], 2, "size"),
        (&["volume", "create", "new", "--size", "lots"], 2, "lots"),
        (&["volume", "create", "a/b", "--size", "1GiB"], 2, "a/b"),
        (&["volume", "create", &long, "--size", "1GiB"], 2, "name"),
        (&["export", "iscsi", "absent", "--apply"], 4, "absent"),
        (&["fly"], 2, "fly"),
        (&["serve"], 2, "--config"),
    ] {
        let said = gateway.cli(words, code);
        assert!(said.err.contains(message), "{words:?}: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
    for (kind, code) in [
        (ErrorKind::Busy, 6),
        (ErrorKind::Unavailable, 6),
        (ErrorKind::ReadOnly, 1),
    ] {
        gateway.refuse(kind, "not now");
        assert!(
            gateway
                .cli(&["volume", "delete", "there"], code)
                .err
                .contains("not now")
        );
    }
}

#[test]
fn status_shows_the_key_figures_and_all_as_json() {
    let gateway = Gateway::start();
    gateway.fake.0.lock().unwrap().dirty_bytes = 3 * MIB;
    let shown = gateway.cli(&["status"], 0).out;
    assert!(
        shown.starts_with("dirty           3.00 MiB of at most 1.00 GiB"),
        "{shown}"
    );
    assert!(
        shown.contains("recovery point  3.5 s ago") && shown.contains("4.00 : 1"),
        "{shown}"
    );
    let status: Status = serde_json::from_str(&gateway.cli(&["status", "--json"], 0).out).unwrap();
    assert_eq!((status.dirty_bytes, status.dedup.blocks_duplicate), (3 * MIB, 3));
}

#[test]
fn drain_waits_until_nothing_is_dirty() {
    let gateway = Gateway::start();
    *gateway.fake.0.lock().unwrap() = FakeState {
        dirty_bytes: 4 * MIB,
        clean_bytes_per_look: MIB,
        ..Default::default()
    };
    let shown = gateway.cli(&["drain", "--wait"], 0).out;
    assert_eq!(
        shown,
        "3.00 MiB left, 1.00 MiB/s, ready in 3.0 s\nthe store has everything\n"
    );
    let state = gateway.fake.0.lock().unwrap();
    assert_eq!((state.dirty_bytes, state.drains), (0, 1));
}

#[test]
fn drain_ends_beside_a_writer() {
    let gateway = Gateway::start();
    gateway.fake.0.lock().unwrap().dirty_bytes = MIB;
    let shown = gateway.cli(&["drain", "--wait"], 0).out;
    let last = "the store has everything that was there when this began; 1.00 MiB have been written since\n";
    assert!(shown.ends_with(last), "{shown}");
}

#[test]
fn drain_without_waiting_says_how_much_there_is() {
    let gateway = Gateway::start();
    gateway.fake.0.lock().unwrap().dirty_bytes = MIB;
    assert!(gateway.cli(&["drain"], 0).out.starts_with("draining 1.00 MiB;"));
    let progress = parsed(&gateway.cli(&["drain", "--json"], 0).out);
    assert_eq!(
        (&progress["dirty_bytes"], &progress["store_state"]),
        (&json!(MIB), &json!("ok"))
    );
}

#[test]
fn drain_that_takes_too_long_says_why() {
    let gateway = Gateway::start();
    *gateway.fake.0.lock().unwrap() = FakeState {
        dirty_bytes: MIB,
        store_error: Some("connection refused".into()),
        ..Default::default()
    };
    let said = gateway.cli(&["drain", "--wait", "--timeout-s", "1", "--json"], 6);
    assert!(said.err.contains("1048576 bytes are still dirty") && said.err.contains("connection refused"));
    let first = parsed(said.out.lines().next().unwrap());
    assert_eq!(first["store_state"], "unreachable");
}

#[test]
fn a_checkpoint_tells_what_it_takes_in() {
    let gateway = Gateway::start();
    gateway.fake.0.lock().unwrap().journal = JournalStatus {
        replay_records: 1_234,
        replay_s: 0.5,
        ..Default::default()
    };
    let said = gateway.cli(&["checkpoint"], 0).out;
    assert!(said.contains("1,234 records") && said.contains("0.5 s"), "{said}");
    let journal = parsed(&gateway.cli(&["checkpoint", "--json"], 0).out);
    assert_eq!(journal["replay_records"], json!(0));
    gateway.refuse(ErrorKind::ReadOnly, "the disk is broken");
    assert!(gateway.cli(&["checkpoint"], 1).err.contains("the disk is broken"));
}

#[test]
fn a_check_of_the_store_ends_with_what_it_found() {
    let gateway = Gateway::start();
    let finished = StoreCheckStatus {
        run: 1,
        state: CheckState::Finished,
        objects_checked: 5,
        ..Default::default()
    };
    gateway.fake.0.lock().unwrap().store_check = finished;
    let said = gateway.cli(&["check", "--store"], 0).out;
    assert!(said.starts_with("5 objects checked, nothing found"), "{said}");
    gateway.fake.0.lock().unwrap().store_check.findings_count = 2;
    let status = parsed(&gateway.cli(&["check", "--store", "--json"], 7).out);
    assert_eq!(
        (&status["findings_count"], &status["resumed"]),
        (&json!(2), &json!(false))
    );
    let status = parsed(&gateway.cli(&["check", "--store", "--resume", "--json"], 7).out);
    assert_eq!(status["resumed"], json!(true));
    gateway.cli(&["check", "--resume"], 2);
}

#[test]
fn keys_are_listed_and_replaced_and_never_shown() {
    let gateway = Gateway::start();
    gateway.fake.0.lock().unwrap().encryption = EncryptionStatus {
        is_on: true,
        master_key: Some("00000000000000aa".into()),
        wrapped_by: None,
        data_keys: Vec::new(),
    };
    let said = gateway.cli(&["key", "rotate"], 0).out;
    assert!(said.contains("those in the store stay as they are"), "{said}");
    assert!(
        said.contains("0000000000000001  made 2027-01-15T08:00:00Z  encrypts"),
        "{said}"
    );
    let said = gateway.cli(&["key", "rotate", "--master-key-file", "new.key"], 0).out;
    assert!(
        said.contains("set [store] master_key_file = \"/") && said.contains("/new.key\""),
        "{said}"
    );
    let keys = parsed(&gateway.cli(&["key", "list", "--json"], 0).out);
    assert_eq!(keys["master_key"], "00000000000000ff");
    let said = gateway.cli(&["key", "rotate", "--master-key-kms", "alias/new"], 0).out;
    assert!(said.contains("set [store] master_key_kms = \"alias/new\""), "{said}");
    assert!(said.contains("wrapped by  alias/new"), "{said}");
    let both = [
        "key",
        "rotate",
        "--master-key-kms",
        "alias/new",
        "--master-key-file",
        "new.key",
    ];
    gateway.cli(&both, 2);
    let spaces = gateway.cli(&["key", "rotate", "--master-key-kms", "two words"], 2);
    assert!(spaces.err.contains("not the id, ARN or alias"), "{}", spaces.err);
    assert_eq!(keys["data_keys"].as_array().unwrap().len(), 1);
    gateway.refuse(ErrorKind::Busy, "the keys have changed");
    assert!(gateway.cli(&["key", "rotate"], 6).err.contains("the keys have changed"));
}

#[test]
fn without_a_gateway_the_socket_is_named() {
    let mut gateway = Gateway::start();
    gateway.stop();
    let said = gateway.cli(&["status"], 3);
    assert!(said.err.contains(gateway.socket().to_str().unwrap()), "{}", said.err);
}

#[test]
fn a_server_of_something_else_is_no_gateway() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let greeter = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        assert!(client.read(&mut [0; 1024]).unwrap() > 0);
        client.write_all(b"220 hello\r\n").unwrap();
    });
    let said = said(bare(&["--socket", path.to_str().unwrap(), "status"]), 1);
    greeter.join().unwrap();
    assert!(said.err.contains("cannot be understood"), "{}", said.err);
}

#[test]
fn the_socket_is_found_by_settings_and_environment() {
    let gateway = Gateway::start();
    let run = gateway.socket().parent().unwrap().to_owned();
    let config = gateway.directory.path().join("tombolo.toml");
    fs::write(&config, format!("runtime_directory = {run:?}\n")).unwrap();
    said(bare(&["status", "--config", config.to_str().unwrap()]), 0);
    let mut by_environment = bare(&["status"]);
    by_environment.env("TOMBOLO_SOCKET", gateway.socket());
    said(by_environment, 0);
    let mut flag_first = bare(&["status", "--socket", "/nonexistent/admin.sock"]);
    flag_first.env("TOMBOLO_SOCKET", gateway.socket());
    said(flag_first, 3);
}

#[test]
fn settings_are_checked_without_a_gateway() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("tombolo.toml");
    let config = path.to_str().unwrap();
    fs::write(&path, "[cache]\nsize = \"64MiB\"\n").unwrap();
    said(bare(&["check-config", "--config", config]), 0);
    let shown = said(bare(&["settings", "--config", config]), 0).out;
    assert!(shown.contains("[cache]\nsize = \"64MiB\"\n"), "{shown}");
    fs::write(&path, "bogus = 1\n[flush]\ndirty_bytes_max = \"1TiB\"\n").unwrap();
    let refused = said(bare(&["check-config", "--config", config, "--json"]), 2);
    let keys: Vec<Value> = parsed(&refused.out)
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["key"].clone())
        .collect();
    assert_eq!(keys, ["bogus", "[flush] dirty_bytes_max"]);
    assert!(
        refused.err.contains("bogus") && refused.err.contains("dirty_bytes_max"),
        "{}",
        refused.err
    );
    for command in ["serve", "check-config", "settings", "status"] {
        let missing = said(bare(&[command, "--config", "/nonexistent/tombolo.toml"]), 2);
        assert!(missing.err.contains("/nonexistent/tombolo.toml"), "{}", missing.err);
    }
}

#[test]
fn documents_come_from_the_program() {
    let markdown = said(bare(&["settings", "--markdown"]), 0).out;
    assert_eq!(markdown, tombolo::settings::Settings::markdown());
    let names = said(bare(&["metrics", "--names"]), 0).out;
    assert!(names.lines().any(|name| name == "tombolo_dirty_bytes"), "{names}");
    assert!(
        names
            .lines()
            .any(|name| name == "tombolo_request_duration_seconds_bucket"),
        "{names}"
    );
    assert!(said(bare(&["--help"]), 0).out.contains("no gateway answers"));
}

#[test]
fn metrics_come_through_the_socket() {
    let text = Gateway::start().cli(&["metrics"], 0).out;
    assert!(
        text.contains("# TYPE tombolo_uploads_total counter\ntombolo_uploads_total 0\n"),
        "{text}"
    );
}

// Export

#[test]
fn configuration_for_tgt_is_shown_and_written() {
    let gateway = Gateway::start();
    gateway.cli(&["volume", "create", "vol", "--size", "16MiB"], 0);
    let iqn = [
        "export",
        "iscsi",
        "vol",
        "--iqn",
        "iqn.2026-01.test:vol",
        "--portal",
        "192.0.2.1:3260",
    ];
    let shown = gateway.cli(&iqn, 0).out;
    let nbd_socket = gateway.socket().canonicalize().unwrap().with_file_name("nbd.sock");
    assert!(shown.contains("<target iqn.2026-01.test:vol>\n"), "{shown}");
    assert!(
        shown.contains(&format!("<backing-store {}>", nbd_socket.display())),
        "{shown}"
    );
    assert!(
        shown.contains("bs-type tombolo\n") && shown.contains("bsopts \"export=vol\"\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("iscsi://192.0.2.1:3260/iqn.2026-01.test:vol/1\n"),
        "{shown}"
    );

    let file = gateway.directory.path().join("vol.conf");
    let chap = [
        "--write",
        "--file",
        file.to_str().unwrap(),
        "--chap-user",
        "user",
        "--chap-secret-file",
        "-",
    ];
    let mut command = gateway.command(&[&iqn[..], &chap[..]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"twelve-bytes\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .contains("incominguser user twelve-bytes\n")
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Remembers targets as tgtd does, in files, and writes down every change that it was asked for.
const TGTADM: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
[ ! -e broken ] || { echo "tgtadm: failed to send request" >&2; exit 107; }
shift 4
case "$*" in
"--op show --mode target") [ ! -e target ] || cat target ;;
"--op show --mode account") printf 'Account list:\n'; [ ! -e account ] || cat account ;;
"--op show --mode portal") echo "Portal: 0.0.0.0:4711,1" ;;
*) echo "$*" >>calls ;;
esac
case "$*" in
*"new --mode target"*) printf 'Target %s: %s\n    LUN information:\n' "$6" "$8" >target ;;
*"new --mode logicalunit"*)
    printf '        LUN: %s\n            Backing store type: %s\n            Backing store path: %s\n' "$8" "${10}" "${12}" >>target
    printf '    Account information:\n' >>target ;;
*"new --mode account"*) echo "    $6" >>account ;;
*"bind --mode account"*) echo "        $8" >>target ;;
*"bind --mode target"*) printf '    ACL information:\n        %s\n' "$8" >>target ;;
esac
"#;

fn fake_tgtadm(gateway: &Gateway) -> std::path::PathBuf {
    let folder = gateway.directory.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("tgtadm");
    fs::write(&program, TGTADM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_target_is_made_once_and_found_the_second_time() {
    let gateway = Gateway::start();
    gateway.cli(&["volume", "create", "vol", "--size", "16MiB"], 0);
    let folder = fake_tgtadm(&gateway);
    let secret = gateway.directory.path().join("secret");
    fs::write(&secret, "twelve-bytes\n").unwrap();
    let apply = || {
        let secret = secret.to_str().unwrap();
        let words = [
            "export",
            "iscsi",
            "vol",
            "--apply",
            "--json",
            "--iqn",
            "iqn.2026-01.test:vol",
            "--chap-user",
        ];
        let mut command = gateway.command(&[&words[..], &["user", "--chap-secret-file", secret]].concat());
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path);
        command
    };
    let done = parsed(&said(apply(), 0).out);
    assert_eq!(done["url"], "iscsi://127.0.0.1:4711/iqn.2026-01.test:vol/1");
    let calls = fs::read_to_string(folder.join("calls")).unwrap();
    let nbd_uri = done["nbd_uri"].as_str().unwrap();
    let expected = format!(
        "--op new --mode target --tid 1 --targetname iqn.2026-01.test:vol\n\
         --op new --mode logicalunit --tid 1 --lun 1 --bstype tombolo --backing-store {nbd_uri}\n\
         --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1\n\
         --op new --mode account --user user --password twelve-bytes\n\
         --op bind --mode account --tid 1 --user user\n\
         --op bind --mode target --tid 1 --initiator-address ALL\n"
    );
    assert_eq!(calls, expected);

    assert_eq!(parsed(&said(apply(), 0).out), done);
    assert_eq!(
        fs::read_to_string(folder.join("calls")).unwrap(),
        expected,
        "the second time nothing is left to do"
    );

    fs::write(folder.join("broken"), "").unwrap();
    let failed = said(apply(), 1);
    assert!(failed.err.contains("failed to send request"), "{}", failed.err);
    assert!(!failed.err.contains("twelve-bytes"), "{}", failed.err);
}

#[test]
fn bad_secrets_and_names_are_refused_before_anything_is_done() {
    let gateway = Gateway::start();
    gateway.cli(&["volume", "create", "vol", "--size", "16MiB"], 0);
    let secret = gateway.directory.path().join("secret");
    fs::write(&secret, "short").unwrap();
    let chap = [
        "export",
        "iscsi",
        "vol",
        "--chap-user",
        "user",
        "--chap-secret-file",
        secret.to_str().unwrap(),
    ];
    assert!(gateway.cli(&chap, 2).err.contains("12 to 63"));
    assert!(gateway.cli(&chap[..5], 2).err.contains("--chap-secret-file"));
    assert!(
        gateway
            .cli(&["export", "iscsi", "vol", "--iqn", "iqn.x>"], 2)
            .err
            .contains("iqn.x>")
    );
}

#[test]
fn a_trace_is_started_watched_and_stopped() {
    let gateway = Gateway::start();
    assert!(
        gateway
            .cli(&["trace", "status"], 0)
            .out
            .contains("no trace was recorded")
    );
    let started = parsed(
        &gateway
            .cli(&["trace", "start", "/var/a.tbtr", "--max-size", "2GiB", "--json"], 0)
            .out,
    );
    assert_eq!(
        (&started["state"], &started["bytes_max"]),
        (&json!("recording"), &json!(2u64 << 30))
    );
    gateway.cli(&["trace", "start", "a.tbtr"], 0);
    let status = parsed(&gateway.cli(&["trace", "status", "--json"], 0).out);
    let here = std::env::current_dir().unwrap().join("a.tbtr");
    assert_eq!(
        status["path"],
        json!(here.to_str().unwrap()),
        "a path is where the user is"
    );
    assert!(gateway.cli(&["trace", "stop"], 0).out.contains("finished"));
    gateway.cli(&["trace", "start", "/var/a.tbtr", "--max-size", "1KiB"], 2);
}
