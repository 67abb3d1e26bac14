use super::*;
use crate::ErrorKind;
use std::fs;
use std::os::unix::fs::PermissionsExt;

async fn put(store: &DirStore, key: &str, content: &'static str) -> Result<ETag> {
    store
        .put(key, Bytes::from_static(content.as_bytes()), PutMode::Overwrite)
        .await
}

#[tokio::test]
async fn leftovers_of_a_crash_are_swept_by_the_next_opener_only_when_alone() {
    let root = tempfile::tempdir().unwrap();
    let leftover = root.path().join(".tombolo-store/tmp/1-0");
    let first = DirStore::open(root.path()).unwrap();
    put(&first, "a/b", "kept").await.unwrap();
    fs::write(&leftover, "half a fi").unwrap();
    let second = DirStore::open(root.path()).unwrap();
    assert!(leftover.exists(), "another opener may still be writing it");
    drop((first, second));
    let third = DirStore::open(root.path()).unwrap();
    assert!(!leftover.exists());
    assert_eq!(third.get("a/b", None).await.unwrap(), "kept");
    assert_eq!(
        third.list("", None, 10).await.unwrap().len(),
        1,
        "own files are not listed"
    );
}

/// As after a crash between writing a temporary file and moving it into place.
#[tokio::test]
async fn a_name_in_use_is_skipped() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    let taken = root.path().join(format!(".tombolo-store/tmp/{}-0", std::process::id()));
    fs::write(&taken, "another opener's").unwrap();
    put(&store, "a", "mine").await.unwrap();
    assert_eq!(fs::read(&taken).unwrap(), b"another opener's");
    assert_eq!(store.get("a", None).await.unwrap(), "mine");
}

#[tokio::test]
async fn failed_and_successful_puts_leave_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    put(&store, "a", "one").await.unwrap();
    store.put("a", Bytes::new(), PutMode::IfAbsent).await.unwrap_err();
    store.put("b", Bytes::new(), PutMode::IfAbsent).await.unwrap();
    store
        .put("a", Bytes::new(), PutMode::IfMatch(ETag("other".into())))
        .await
        .unwrap_err();
    put(&store, "a/below", "refused").await.unwrap_err();
    assert_eq!(fs::read_dir(root.path().join(".tombolo-store/tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn only_the_owner_may_look() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("store");
    let store = DirStore::open(&root).unwrap();
    put(&store, "a/b/c", "x").await.unwrap();
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(""), mode("a"), mode("a/b"), mode("a/b/c")),
        (0o700, 0o700, 0o700, 0o600)
    );
}

#[tokio::test]
async fn a_key_cannot_be_a_directory_of_another() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    put(&store, "a/b", "x").await.unwrap();
    assert_eq!(put(&store, "a", "x").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(put(&store, "a/b/c", "x").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.get("a", None).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.get("a/b/c", None).await.unwrap_err().kind(), ErrorKind::NotFound);
    store.delete("a").await.unwrap();
    store.delete("a/b/c").await.unwrap();
    assert_eq!(store.get("a/b", None).await.unwrap(), "x");
}

#[tokio::test]
async fn a_vanished_or_impossible_directory_is_reported() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("store");
    let store = DirStore::open(&root).unwrap();
    store.check().await.unwrap();
    fs::remove_dir_all(&root).unwrap();
    for error in [
        store.check().await.unwrap_err(),
        put(&store, "a", "x").await.unwrap_err(),
        store.get("a", None).await.unwrap_err(),
        store.list("", None, 1).await.unwrap_err(),
        DirStore::open(&parent.path().join("no/parent")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::BucketMissing, "{error}");
    }
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(DirStore::open(&file).unwrap_err().kind(), ErrorKind::Invalid);
}

/// As when someone clears a store by hand: what comes next needs no restart.
#[tokio::test]
async fn a_directory_removed_below_the_root_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    for mode in [PutMode::Overwrite, PutMode::IfAbsent] {
        put(&store, "objects/ab/one", "1").await.unwrap();
        fs::remove_dir_all(root.path().join("objects")).unwrap();
        store
            .put("objects/ab/two", Bytes::from_static(b"2"), mode)
            .await
            .unwrap();
        assert_eq!(store.get("objects/ab/two", None).await.unwrap(), "2");
    }
    fs::remove_dir_all(root.path().join("objects")).unwrap();
    let mode = PutMode::IfMatch(ETag("other".into()));
    let error = store.put("objects/ab/two", Bytes::new(), mode).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Precondition, "{error}");
}

/// As when the disk was unmounted: an empty folder in its place is not the store, and nothing is written there.
#[tokio::test]
async fn an_empty_folder_in_the_place_of_the_root_is_not_written_to() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("store");
    let store = DirStore::open(&root).unwrap();
    put(&store, "objects/one", "1").await.unwrap();
    fs::remove_dir_all(&root).unwrap();
    fs::create_dir(&root).unwrap();
    for key in ["objects/two", "two", "others/two"] {
        let error = put(&store, key, "2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BucketMissing, "{error}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
}

/// The error of /dev/full is that of a full file system, and needs no mount.
#[tokio::test]
async fn a_full_disk_is_out_of_space() {
    let root = tempfile::tempdir().unwrap();
    let store = DirStore::open(root.path()).unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = std::io::Write::write_all(&mut &full, b"x").unwrap_err();
    let error = files::classify(store.files.name(), Operation::Put, "a", &error);
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
}

/// A crash at any moment leaves each object whole, old or new. The child is this test binary, killed at random moments.
#[test]
fn kill_9_leaves_whole_objects() {
    const CHILD: &str = "TOMBOLO_DIR_CRASH_CHILD";
    if let Some(root) = std::env::var_os(CHILD) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = DirStore::open(Path::new(&root)).unwrap();
        for round in 0u8.. {
            let content = Bytes::from(vec![round; 20_000]);
            let key = format!("d{}/x", round % 5);
            runtime.block_on(store.put(&key, content, PutMode::Overwrite)).unwrap();
            if round == u8::MAX {
                return;
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    let mut found = 0;
    for round in 0..8 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dir::tests::kill_9_leaves_whole_objects"])
            .env(CHILD, root.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Different moments in the child's life; any of them must do.
        std::thread::sleep(std::time::Duration::from_millis(20 + 7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = DirStore::open(root.path()).unwrap();
        for object in store.files.list("", None, 100).unwrap() {
            let content = store.files.get(&object.key, None).unwrap();
            assert_eq!(content.len(), 20_000);
            assert!(content.iter().all(|byte| *byte == content[0]), "{} is torn", object.key);
            found += 1;
        }
        assert_eq!(fs::read_dir(root.path().join(".tombolo-store/tmp")).unwrap().count(), 0);
    }
    assert!(found > 0, "no child lived long enough to put anything");
}
