//! The S3 store against a real server.

mod support;

use bytes::Bytes;
use std::sync::Arc;
use support::{BUCKET, Server};
use tombolo_cloud_driver::{
    AddressingStyle, ErrorKind, ObjectStore, PutMode, S3Settings, S3Store, StoreError, StoreSettings, StoreUrl,
    UploadChecksum, conformance, open_store,
};

fn open(settings: &S3Settings, prefix: &str) -> Arc<dyn ObjectStore> {
    let url = StoreUrl::S3 {
        bucket: BUCKET.into(),
        prefix: prefix.into(),
    };
    let settings = StoreSettings { s3: settings.clone() };
    open_store(&url, &settings).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_with_and_without_a_prefix() {
    let server = Server::start();
    conformance::run(open(&server.settings(), ""), "suite").await;
    conformance::run(open(&server.settings(), "some/prefix +%"), "suite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_over_tls_with_unsigned_payload() {
    let server = Server::start_tls();
    let settings = S3Settings {
        endpoint: Some(format!("https://localhost:{}", server.address.port())),
        ca_file: Some(support::data_file("loopback-ca.pem")),
        allow_http: false,
        upload_checksum: UploadChecksum::Crc64Nvme,
        ..server.settings()
    };
    conformance::run(open(&settings, ""), "suite").await;
    let untrusting = S3Settings {
        ca_file: None,
        ..settings
    };
    let error = open(&untrusting, "").check().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn virtual_host_addressing() {
    let server = Server::start_with(&["--virtual-domain", "0.0.1"]);
    let settings = S3Settings {
        endpoint: Some(format!("http://0.0.1:{}", server.address.port())),
        addressing_style: AddressingStyle::VirtualHost,
        ..server.settings()
    };
    let store = S3Store::open(support::NUMERIC_BUCKET, "p", &settings).unwrap();
    store.put("k", Bytes::new(), PutMode::Overwrite).await.unwrap();
    assert!(server.has_file("127/p/k"), "the bucket stood in the host's name");
    store.delete("k").await.unwrap();
    conformance::run(Arc::new(store), "suite").await;
}

#[tokio::test]
async fn prefixes_are_worlds_of_their_own() {
    let server = Server::start();
    let (a, ab) = (open(&server.settings(), "a"), open(&server.settings(), "ab"));
    a.put("k", Bytes::from_static(b"a"), PutMode::Overwrite).await.unwrap();
    ab.put("k", Bytes::from_static(b"ab"), PutMode::Overwrite)
        .await
        .unwrap();
    assert_eq!(a.get("k", None).await.unwrap(), "a");
    let listed = a.list("", None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|object| &object.key[..]).collect::<Vec<_>>(), ["k"]);
}

#[tokio::test]
async fn more_keys_than_a_page_are_listed() {
    let server = Server::start();
    let store = open(&server.settings(), "");
    let mut puts = tokio::task::JoinSet::new();
    for chunk in 0..10 {
        let store = Arc::clone(&store);
        puts.spawn(async move {
            for index in 0..120 {
                let key = format!("many/{chunk}-{index:04}");
                store.put(&key, Bytes::new(), PutMode::Overwrite).await.unwrap();
            }
        });
    }
    while let Some(task) = puts.join_next().await {
        task.unwrap();
    }
    assert_eq!(store.list("many/", None, 5_000).await.unwrap().len(), 1_200);
    assert_eq!(store.list("many/", None, 1_001).await.unwrap().len(), 1_001);
}

#[tokio::test]
async fn errors_are_typed_and_hold_no_secret() {
    let server = Server::start();
    let good = server.settings();
    let missing = S3Store::open("no-such-bucket", "", &good).unwrap();
    let error = missing.check().await.unwrap_err();
    assert!(matches!(error, StoreError::BucketMissing { .. }), "{error}");
    let put = missing.put("k", Bytes::new(), PutMode::Overwrite).await.unwrap_err();
    assert_eq!(put.kind(), ErrorKind::BucketMissing, "{put}");
    assert_eq!(
        missing.get("k", None).await.unwrap_err().kind(),
        ErrorKind::BucketMissing
    );

    let wrong = S3Settings {
        credentials: Some(support::credentials("hunter2-is-wrong")),
        ..good.clone()
    };
    let denied = S3Store::open(BUCKET, "", &wrong).unwrap();
    for error in [
        denied.check().await.unwrap_err(),
        denied.put("k", Bytes::new(), PutMode::Overwrite).await.unwrap_err(),
        denied.get("k", None).await.unwrap_err(),
        denied.head("k").await.unwrap_err(),
        denied.delete("k").await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::AccessDenied { .. }), "{error}");
        let shown = format!("{error} {error:?} {denied:?} {wrong:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    let nobody = support::settings_for(&format!("http://{}", support::nobody()));
    let error = open(&nobody, "").check().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");

    let silent = support::black_hole();
    let impatient = S3Settings {
        request_timeout_ms: 200,
        ..support::settings_for(&format!("http://{}", silent.local_addr().unwrap()))
    };
    let error = open(&impatient, "").check().await.unwrap_err();
    assert!(matches!(error, StoreError::Interrupted { .. }), "{error}");
}

#[tokio::test]
async fn what_a_server_says_is_heard() {
    const SLOW: &str = "HTTP/1.1 503 Slow Down\r\nRetry-After: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const NOISE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nnoise";
    const LEAK: &str = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<Error><Code>SignatureDoesNotMatch</Code>\
        <Message>no</Message><CanonicalRequest>x-amz-security-token:hunter2</CanonicalRequest></Error>";
    let open_at = |reply| {
        open(
            &support::settings_for(&format!("http://{}", support::fixed_reply(reply))),
            "",
        )
    };
    let error = open_at(SLOW).get("k", None).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(7)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Throttled);
    let error = open_at(NOISE).list("", None, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    let error = open_at(LEAK).get("k", None).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("SignatureDoesNotMatch") && !shown.contains("hunter2"),
        "{shown}"
    );
}
