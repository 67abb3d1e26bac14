//! Shares and checks: the admin API over its socket, and the command line.

use crate::fake::{Gateway, MIB};
use serde_json::{Value, json};
use tombolo::admin::model::{CheckFinding, CheckState, CheckStatus, ErrorKind, SessionInfo, SessionKind};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn use_share(gateway: &Gateway, name: &str) {
    let mut state = gateway.fake.0.lock().unwrap();
    let share = state.shares.get_mut(name).unwrap();
    share.used_bytes = 3 * MIB;
    share.sessions.push(SessionInfo {
        client: "host".into(),
        kind: SessionKind::Mount,
        connected: true,
    });
}

#[test]
fn a_share_lives_and_dies_over_the_api() {
    let gateway = Gateway::start();
    let body = json!({ "name": "docs", "quota_bytes": 16 * MIB }).to_string();
    let (code, created) = gateway.request("POST", "/v1/shares", &body);
    let expected = json!({
        "name": "docs", "id": 1, "quota_bytes": 16 * MIB, "flush": "local", "used_bytes": 0, "inodes": 1, "deleting": false, "sessions": [],
    });
    assert_eq!((code, parsed(&created)), (201, expected));
    use_share(&gateway, "docs");
    let (code, listed) = gateway.request("GET", "/v1/shares", "");
    let session = json!({ "client": "host", "kind": "mount", "connected": true });
    assert_eq!((code, &parsed(&listed)[0]["sessions"][0]), (200, &session));
    let (code, changed) = gateway.request("PATCH", "/v1/shares/docs", r#"{"quota_bytes": null}"#);
    assert_eq!((code, &parsed(&changed)["quota_bytes"]), (200, &Value::Null));
    let (code, changed) = gateway.request("PATCH", "/v1/shares/docs/flush", r#"{"flush": "bucket"}"#);
    assert_eq!((code, &parsed(&changed)["flush"]), (200, &json!("bucket")));
    assert_eq!(gateway.request("DELETE", "/v1/shares/docs", "").0, 409);
    assert_eq!(gateway.request("DELETE", "/v1/shares/docs?force=false", "").0, 409);
    assert_eq!(gateway.request("DELETE", "/v1/shares/docs?force=true", "").0, 204);
    assert_eq!(gateway.request("GET", "/v1/shares", ""), (200, "[]".into()));
}

#[test]
fn wrong_requests_are_named() {
    let gateway = Gateway::start();
    let valid = r#"{"name": "docs"}"#;
    assert_eq!(gateway.request("POST", "/v1/shares", valid).0, 201);
    for (method, path, body, code, kind) in [
        ("POST", "/v1/shares", valid, 409, "already_exists"),
        ("POST", "/v1/shares", "", 400, "invalid"),
        ("POST", "/v1/shares", r#"{"name": "a/b"}"#, 400, "invalid"),
        (
            "POST",
            "/v1/shares",
            r#"{"name": "x", "quota_bytes": 0}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/shares",
            r#"{"name": "x", "quota_bytes": 4097}"#,
            400,
            "invalid",
        ),
        (
            "POST",
            "/v1/shares",
            r#"{"name": "x", "size_bytes": 4096}"#,
            400,
            "invalid",
        ),
        ("PATCH", "/v1/shares/docs", "{}", 400, "invalid"),
        ("PATCH", "/v1/shares/docs", r#"{"quota_bytes": 1}"#, 400, "invalid"),
        (
            "PATCH",
            "/v1/shares/absent",
            r#"{"quota_bytes": null}"#,
            404,
            "not_found",
        ),
        ("DELETE", "/v1/shares/absent", "", 404, "not_found"),
        ("DELETE", "/v1/shares/docs?force=perhaps", "", 400, "invalid"),
        ("DELETE", "/v1/shares/docs?farce=true", "", 400, "invalid"),
        ("DELETE", "/v1/shares/%2E%2E", "", 400, "invalid"),
        ("PUT", "/v1/check", "", 405, "invalid"),
    ] {
        let (got, answer) = gateway.request(method, path, body);
        let answer = parsed(&answer);
        assert_eq!((got, &answer["kind"]), (code, &json!(kind)), "{method} {path} {answer}");
    }
    assert!(gateway.fake.0.lock().unwrap().shares.contains_key("docs"));
}

#[test]
fn shares_are_created_listed_limited_and_deleted() {
    let gateway = Gateway::start();
    assert_eq!(
        gateway.cli(&["share", "create", "docs", "--quota", "10GiB"], 0).out,
        "created share docs: quota 10GiB\n"
    );
    assert_eq!(
        gateway.cli(&["share", "create", "free"], 0).out,
        "created share free: no quota\n"
    );
    assert_eq!(
        gateway.cli(&["share", "set", "free", "--flush", "bucket"], 0).out,
        "changed share free: no quota, flushed to the store\n"
    );
    use_share(&gateway, "docs");
    assert_eq!(
        gateway.cli(&["share", "list"], 0).out,
        "NAME  USED      QUOTA  FLUSH   FILES  CLIENTS\n\
         docs  3.00 MiB  10GiB  local   1      host (mount)\n\
         free  0 B       none   bucket  1\n"
    );
    assert_eq!(
        gateway.cli(&["share", "quota", "docs", "none"], 0).out,
        "changed share docs: no quota\n"
    );
    let changed = parsed(&gateway.cli(&["share", "quota", "free", "1MiB", "--json"], 0).out);
    assert_eq!(changed["quota_bytes"], json!(MIB));
    let refused = gateway.cli(&["share", "delete", "docs"], 6);
    assert!(refused.err.contains("in use by 1 sessions"), "{}", refused.err);
    assert_eq!(
        gateway.cli(&["share", "delete", "docs", "--force"], 0).out,
        "deleted share docs\n"
    );
    let deleted = parsed(&gateway.cli(&["share", "delete", "free", "--yes", "--json"], 0).out);
    assert_eq!(deleted, json!({ "name": "free", "deleted": true }));
    assert_eq!(parsed(&gateway.cli(&["share", "list", "--json"], 0).out), json!([]));
}

#[test]
fn refusals_are_exact_and_have_their_exit_codes() {
    let gateway = Gateway::start();
    gateway.cli(&["share", "create", "there"], 0);
    for (words, code, message) in [
        (
            &["share", "create", "there"][..],
            5,
            "a share named \"there\" exists already",
        ),
        (&["share", "create", "a/b"], 2, "not a valid name for a share"),
        (&["share", "create", "new", "--quota", "none"], 2, "not a size"),
        (&["share", "create", "new", "--quota", "5000"], 2, "multiple of 4096"),
        (&["share", "quota", "there", "lots"], 2, "lots"),
        (&["share", "quota", "there"], 2, "SIZE|none"),
        (
            &["share", "quota", "absent", "none"],
            4,
            "share \"absent\" does not exist",
        ),
        (
            &["share", "set", "absent", "--flush", "local"],
            4,
            "share \"absent\" does not exist",
        ),
        (&["share", "delete", "absent"], 4, "share \"absent\" does not exist"),
        (&["share", "mount", "..", "/mnt"], 2, "not a valid name for a share"),
        (&["share", "mount", "there", "/mnt", "--threads", "0"], 2, "1..=64"),
        (&["share", "mount", "there"], 2, "DIRECTORY"),
    ] {
        let said = gateway.cli(words, code);
        assert!(said.err.contains(message), "{words:?}: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
    gateway.refuse(ErrorKind::ReadOnly, "the disk is broken");
    assert!(
        gateway
            .cli(&["share", "create", "new"], 1)
            .err
            .contains("the disk is broken")
    );
    assert!(gateway.cli(&["check"], 1).err.contains("the disk is broken"));
}

// Checks

fn check_that_ends_as(gateway: &Gateway, state: CheckState, findings: Vec<CheckFinding>) {
    gateway.fake.0.lock().unwrap().check = CheckStatus {
        run: 41,
        state,
        inodes_checked: 0,
        inodes: 3,
        findings_count: findings.len() as u64,
        findings,
        error: (state == CheckState::Failed).then(|| "the disk is broken".into()),
    };
}

fn finding() -> CheckFinding {
    CheckFinding {
        share: Some("docs".into()),
        inode: Some(17),
        message: "2 names, but a link count of 3".into(),
    }
}

#[test]
fn a_check_is_waited_for_and_its_findings_are_told() {
    let gateway = Gateway::start();
    check_that_ends_as(&gateway, CheckState::Finished, Vec::new());
    assert_eq!(gateway.cli(&["check"], 0).out, "3 inodes checked, nothing found\n");
    check_that_ends_as(&gateway, CheckState::Finished, vec![finding()]);
    let said = gateway.cli(&["check"], 7);
    assert_eq!(
        said.out,
        "share docs: inode 17: 2 names, but a link count of 3\n3 inodes checked, 1 finding\n"
    );
    assert!(said.err.contains("1 finding"), "{}", said.err);
    let status: CheckStatus = serde_json::from_str(&gateway.cli(&["check", "--json"], 7).out).unwrap();
    assert_eq!((status.findings, status.inodes_checked), (vec![finding()], 3));
}

#[test]
fn a_check_that_fails_is_no_good_check() {
    let gateway = Gateway::start();
    check_that_ends_as(&gateway, CheckState::Failed, Vec::new());
    let said = gateway.cli(&["check"], 1);
    assert!(said.err.contains("did not finish: the disk is broken"), "{}", said.err);
    let (code, begun) = gateway.request("POST", "/v1/check", "");
    assert_eq!((code, &parsed(&begun)["state"]), (202, &json!("running")));
}

#[test]
fn a_check_of_a_gateway_that_was_restarted_is_not_waited_for() {
    let gateway = Gateway::start();
    check_that_ends_as(&gateway, CheckState::Finished, Vec::new());
    gateway.fake.0.lock().unwrap().check.inodes = 1_000_000;
    let mut command = gateway.command(&["check"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while gateway.fake.0.lock().unwrap().check.inodes_checked == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    gateway.fake.0.lock().unwrap().check = CheckStatus::default();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("knows nothing of it"), "{said}");
}
