//! Every endpoint of a whole gateway, asked over its socket and compared with the document.

use super::*;
use crate::admin::openapi;
use crate::admin::server::{RECEIVE_TIMEOUT, Server as AdminServer};
use crate::frontends::{OpenStore, Stores};
use crate::{bill, daemon};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tombolo_billing::Table;

fn start(directory: &std::path::Path) -> (Arc<Gateway>, AdminServer) {
    let text = format!(
        "state_directory = \"{0}/state\"\nruntime_directory = \"{0}/run\"\n\
         [store]\nurl = \"dir:{0}/store\"\n[cache]\nsize = \"64MiB\"\n",
        directory.display()
    );
    let settings = Settings::parse(&text).unwrap();
    let gateway = Gateway::open(daemon::options(&settings).unwrap()).unwrap();
    let shares = Shares::open(&gateway, daemon::share_options(&settings)).unwrap();
    let prices = bill::shipped(Table::AwsS3Standard);
    let bill = Bill::start(
        &gateway,
        &settings.directories.state_directory,
        prices,
        Vec::new(),
        None,
    )
    .unwrap();
    let control = StoreControl::new(gateway.clone(), shares.clone(), Arc::default(), bill, &settings, None);
    let first = OpenStore {
        name: None,
        gateway: gateway.clone(),
        shares,
    };
    let control = Arc::new(GatewayControl::new(Arc::new(Stores::new(first, Vec::new())), control));
    let handlers = control.handlers();
    let server = AdminServer::start(&settings.admin_socket(), None, &handlers, RECEIVE_TIMEOUT).unwrap();
    (gateway, server)
}

/// Status and body of the answer.
fn ask(socket: &std::path::Path, method: &str, target: &str, body: &str) -> (String, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().into(), body.into())
}

/// What in a value is not as its schema says, or not in it.
fn faults(place: &str, value: &Value, schema: &Value, document: &Value) -> Vec<String> {
    if let Some(elsewhere) = schema.get("$ref").and_then(Value::as_str) {
        return faults(place, value, document.pointer(&elsewhere[1..]).unwrap(), document);
    }
    if let Some(choices) = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array) {
        let fits = |choice: &Value| faults(place, value, choice, document).is_empty();
        let is_fine = choices.iter().any(fits);
        return (!is_fine)
            .then(|| format!("{place}: {value} is none of {choices:?}"))
            .into_iter()
            .collect();
    }
    let wrong = |what: &str| vec![format!("{place}: {value} is not {what}: {schema}")];
    if schema.get("const").is_some_and(|only| only != value) {
        return wrong("the constant");
    }
    if schema
        .get("enum")
        .and_then(Value::as_array)
        .is_some_and(|all| !all.contains(value))
    {
        return wrong("permitted");
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() && kinds.contains(&"integer") => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        return wrong("of its type");
    }
    match value {
        Value::Array(items) => items
            .iter()
            .flat_map(|item| faults(&format!("{place}[]"), item, &schema["items"], document))
            .collect(),
        Value::Object(fields) => {
            let described = schema["properties"].as_object().unwrap();
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let missing = required.filter(|name| !fields.contains_key(name.as_str().unwrap()));
            let mut found: Vec<String> = missing.map(|name| format!("{place}: {name} is missing")).collect();
            for (name, field) in fields {
                let place = format!("{place}.{name}");
                match described.get(name) {
                    Some(schema) => found.extend(faults(&place, field, schema, document)),
                    None => found.push(format!("{place} is not in the schema")),
                }
            }
            found
        }
        _ => Vec::new(),
    }
}

/// Method and description of an operation.
fn operation<'d>(document: &'d Value, name: &str) -> (String, &'d Value) {
    let methods = document["paths"].as_object().unwrap().values();
    let mut all = methods.flat_map(|methods| methods.as_object().unwrap());
    let (method, found) = all.find(|(_, operation)| operation["operationId"] == name).unwrap();
    (method.to_uppercase(), found)
}

fn check(document: &Value, response: &Value, body: &str) {
    match response["content"].get("application/json") {
        Some(content) => {
            let value: Value = serde_json::from_str(body).unwrap();
            assert_eq!(faults("answer", &value, &content["schema"], document), [""; 0]);
        }
        None if response.get("content").is_some() => assert!(!body.is_empty()),
        None => assert_eq!(body, ""),
    }
}

#[test]
fn every_endpoint_answers_as_it_is_described() {
    let directory = tempfile::tempdir().unwrap();
    let (gateway, server) = start(directory.path());
    let socket = directory.path().join("run/admin.sock");
    let trace = json!({ "path": directory.path().join("a.tbtr"), "bytes_max": 1 << 20 }).to_string();
    let requests = [
        ("volume_create", "/v1/volumes", r#"{"name": "vol", "size_bytes": 8192}"#),
        (
            "volume_resize",
            "/v1/volumes/vol",
            r#"{"size_bytes": 4096, "allow_shrink": true}"#,
        ),
        ("volume_flush", "/v1/volumes/vol/flush", r#"{"flush": "bucket"}"#),
        ("volume_list", "/v1/volumes", ""),
        ("share_create", "/v1/shares", r#"{"name": "docs"}"#),
        ("share_quota", "/v1/shares/docs", r#"{"quota_bytes": 1048576}"#),
        ("share_flush", "/v1/shares/docs/flush", r#"{"flush": "bucket"}"#),
        ("share_list", "/v1/shares", ""),
        ("check_start", "/v1/check", ""),
        ("check_status", "/v1/check", ""),
        ("store_check_start", "/v1/check/store", "{}"),
        ("store_check_status", "/v1/check/store", ""),
        ("policy_set", "/v1/policy", r#"{"combination": "sarc_graph"}"#),
        ("policy", "/v1/policy", ""),
        ("trace_start", "/v1/trace", trace.as_str()),
        ("trace_status", "/v1/trace", ""),
        ("trace_stop", "/v1/trace", ""),
        ("drain", "/v1/drain", ""),
        ("checkpoint", "/v1/checkpoint", ""),
        ("keys", "/v1/keys", ""),
        ("key_rotate", "/v1/keys", "{}"),
        ("status", "/v1/status", ""),
        ("metrics", "/metrics", ""),
        ("share_delete", "/v1/shares/docs?force=true", ""),
        ("volume_delete", "/v1/volumes/vol", ""),
    ];
    let document = openapi::document();
    for (name, target, body) in requests {
        let (method, described) = operation(&document, name);
        let (status, answer) = ask(&socket, &method, target, body);
        let response = described["responses"].get(&status);
        check(
            &document,
            response.unwrap_or_else(|| panic!("{name}: {status}, {answer}")),
            &answer,
        );
    }
    let (_, described) = operation(&document, "volume_delete");
    let (status, answer) = ask(&socket, "DELETE", "/v1/volumes/vol", "");
    assert_eq!(status, "404");
    check(&document, &described["responses"]["default"], &answer);

    let mut asked: Vec<&str> = requests.map(|(name, ..)| name).to_vec();
    let paths = document["paths"].as_object().unwrap().values();
    let methods = paths.flat_map(|methods| methods.as_object().unwrap().values());
    let mut all: Vec<&str> = methods
        .filter_map(|operation| operation["operationId"].as_str())
        .collect();
    asked.sort_unstable();
    all.sort_unstable();
    assert_eq!(asked, all, "every endpoint is asked");
    server.shutdown();
    gateway.stop(std::time::Duration::ZERO);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn damage_to_local_metadata_is_found_and_what_to_do_is_said() {
    use tombolo_core::local_metadata::{MetadataTransaction as _, Table, map_key};
    let directory = tempfile::tempdir().unwrap();
    let (gateway, server) = start(directory.path());
    let socket = directory.path().join("run/admin.sock");
    let checked = || -> Value {
        ask(&socket, "POST", "/v1/check/store", "{}");
        let mut status = Value::Null;
        until("the check ends", || {
            status = serde_json::from_str(&ask(&socket, "GET", "/v1/check/store", "").1).unwrap();
            status["state"] != "running"
        });
        status
    };
    ask(&socket, "POST", "/v1/volumes", r#"{"name": "vol", "size_bytes": 8192}"#);
    ask(&socket, "POST", "/v1/drain", "");
    until("the store is told", || gateway.snapshot().counters.recovery_points > 0);
    let status = checked();
    assert_eq!((&status["findings"], &status["remarks"]), (&json!([]), &json!([])));
    assert!(status["records_compared"].as_u64() > Some(0) || status["references_checked"] == 0);

    // Runs of a page: start, length - 1, then PVBN or count. Two blocks map to where nothing is, and something is counted.
    let run = |start: u8, length: u8, value: u64| [&[start, length - 1][..], &value.to_le_bytes()].concat();
    let volume = gateway.volume_named("vol").unwrap().id;
    let mut writing = gateway.metadata.write().unwrap();
    writing.put(Table::Map, &map_key(volume, 0), &run(0, 2, 7_000)).unwrap();
    let page = (70_000u64 / 256).to_be_bytes();
    writing.put(Table::References, &page, &run(3, 1, 9)).unwrap();
    writing.commit().unwrap();
    let status = checked();
    assert_eq!(status["state"], "finished");
    let findings = status["findings"].as_array().unwrap();
    let mut kinds: Vec<&str> = findings.iter().map(|found| found["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        ["blocks_lost", "blocks_lost", "map_differs", "references", "references"]
    );
    for found in findings {
        assert!(!found["message"].as_str().unwrap().is_empty() && !found["advice"].as_str().unwrap().is_empty());
    }
    let of_map = findings.iter().find(|found| found["kind"] == "map_differs").unwrap();
    assert_eq!(
        (
            &of_map["volume"],
            &of_map["first_block"],
            &of_map["blocks"],
            &of_map["first_pvbn"]
        ),
        (&json!("vol"), &json!(0), &json!(2), &json!(7_000))
    );
    server.shutdown();
    gateway.stop(std::time::Duration::ZERO);
}

#[test]
fn what_is_not_described_is_found() {
    let schema = json!({ "type": "object", "properties": { "size": { "type": "integer" } }, "required": ["size"] });
    let found = |value: Value| faults("it", &value, &schema, &Value::Null).len();
    assert_eq!(found(json!({ "size": 1 })), 0);
    assert_eq!(found(json!({})), 1);
    assert_eq!(found(json!({ "size": "1" })), 1);
    assert_eq!(found(json!({ "size": 1, "colour": 2 })), 1);
}
