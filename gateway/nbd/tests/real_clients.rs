//! The clients that people use, against an export in memory. They come from the Debian packages libnbd-bin and
//! qemu-utils, and fio with its NBD engine from `scripts/setup.sh`; one that is missing fails its test.

mod common;

use common::Fixture;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tombolo_nbd::ServerConfig;

const SIZE: u64 = 16 << 20;

fn fixture() -> Fixture {
    Fixture::memory(SIZE, ServerConfig::default())
}

fn uri(fixture: &Fixture, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", fixture.socket.display())
}

/// Runs a program without judging its exit.
fn execute(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be run ({error}): run scripts/setup.sh test"))
}

/// Runs a program that must succeed; its output.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = execute(program, arguments);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{text}",
        output.status
    );
    text
}

/// Bytes that differ everywhere, with a hole in the middle third.
fn sample_file(directory: &Path) -> String {
    let mut bytes: Vec<u8> = (0..SIZE / 8)
        .flat_map(|index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    bytes[5 << 20..10 << 20].fill(0);
    let path = directory.join("sample");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn nbdinfo_sees_size_flags_contexts_and_block_sizes() {
    let fixture = fixture();
    let json = run("nbdinfo", &["--json", &uri(&fixture, "disk")]);
    for expected in [
        "\"export-size\": 16777216",
        "\"structured\": true",
        "\"is_read_only\": false",
        "\"can_multi_conn\": true",
        "\"can_fua\": true",
        "\"can_df\": true",
        "\"can_cache\": false",
        "\"can_fast_zero\": false",
        "\"base:allocation\"",
        "\"x-tombolo:resize\"",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "\"description\": \"sparse memory\"",
    ] {
        assert!(json.contains(expected), "no {expected} in {json}");
    }
}

#[test]
fn nbdinfo_lists_every_export() {
    let fixture = fixture();
    let list = run("nbdinfo", &["--list", &uri(&fixture, "")]);
    assert!(
        list.contains("export=\"disk\"") && list.contains("export=\"frozen\""),
        "{list}"
    );
}

#[test]
fn nbdinfo_finds_what_the_server_can_and_cannot() {
    let fixture = fixture();
    for able in ["multi-conn", "df", "flush", "fua", "trim", "zero", "structured"] {
        run("nbdinfo", &["--can", able, &uri(&fixture, "disk")]);
    }
    for unable in ["cache", "fast-zero"] {
        let output = execute("nbdinfo", &["--can", unable, &uri(&fixture, "disk")]);
        assert_eq!(output.status.code(), Some(2), "{unable}");
    }
    run("nbdinfo", &["--is", "read-only", &uri(&fixture, "frozen")]);
}

#[test]
fn nbdinfo_fails_on_an_unknown_export() {
    let fixture = fixture();
    let output = execute("nbdinfo", &[&uri(&fixture, "nothing")]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("nothing") || text.contains("No such file"), "{text}");
}

#[test]
fn nbdcopy_round_trip_over_several_connections() {
    let fixture = fixture();
    let sample = sample_file(fixture.directory.path());
    let back = fixture.directory.path().join("back");
    run(
        "nbdcopy",
        &["--connections=4", "--requests=32", &sample, &uri(&fixture, "disk")],
    );
    assert!(fixture.disk.read(0, SIZE as usize) == fs::read(&sample).unwrap());
    run(
        "nbdcopy",
        &["--connections=4", &uri(&fixture, "disk"), back.to_str().unwrap()],
    );
    assert!(fs::read(&back).unwrap() == fs::read(&sample).unwrap());
    let map = run("nbdinfo", &["--map", "--totals", &uri(&fixture, "disk")]);
    assert!(
        map.contains("5242880") && map.contains("hole,zero"),
        "the hole stays a hole: {map}"
    );
}

#[test]
fn nbdinfo_maps_data_and_holes() {
    let fixture = fixture();
    fixture.disk.write(1 << 20, &[1; 32 * 1024]);
    let map = run("nbdinfo", &["--map", &uri(&fixture, "disk")]);
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["0", "1048576", "3", "hole,zero"],
            vec!["1048576", "32768", "0", "data"],
            vec!["1081344", "15695872", "3", "hole,zero"]
        ]
    );
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let fixture = fixture();
    let sample = sample_file(fixture.directory.path());
    let target = uri(&fixture, "disk");
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", &sample, &target],
    );
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &sample, &target]);
    assert!(fixture.disk.read(0, SIZE as usize) == fs::read(&sample).unwrap());
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &target]);
    assert!(map.contains("\"start\": 5242880, \"length\": 5242880"), "{map}");
    fixture.disk.write(SIZE - 1, &[0x42]);
    let output = execute("qemu-img", &["compare", "-f", "raw", "-F", "raw", &sample, &target]);
    assert_eq!(output.status.code(), Some(1), "a difference is found");
}

#[test]
fn qemu_io_writes_zeroes_with_and_without_unmap_and_discards() {
    let fixture = fixture();
    fixture.disk.write(0, &vec![0xff; 1 << 20]);
    let target = uri(&fixture, "disk");
    let io = |command: &str| run("qemu-io", &["-f", "raw", "-d", "unmap", "-c", command, &target]);
    io("write -z 0 128k");
    io("write -z -u 256k 128k");
    io("discard 512k 128k");
    io("write -f -P 0x77 700k 5k");
    io("flush");
    assert!(io("read -P 0 0 128k").contains("read 131072/131072"));
    for command in [
        "read -P 0 256k 128k",
        "read -P 0 512k 128k",
        "read -P 0x77 700k 5k",
        "read -P 0xff 128k 128k",
    ] {
        assert!(!io(command).contains("Pattern verification failed"), "{command}");
    }
    let map = run("nbdinfo", &["--map", &target]);
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[0],
        ["0", "262144", "0", "data"],
        "without -u the range stays allocated"
    );
    assert_eq!(rows[1], ["262144", "131072", "3", "hole,zero"]);
    assert_eq!(rows[3], ["524288", "131072", "3", "hole,zero"]);
}

#[test]
fn qemu_io_cannot_write_a_read_only_export() {
    let fixture = fixture();
    let output = execute("qemu-io", &["-f", "raw", "-c", "write 0 4k", &uri(&fixture, "frozen")]);
    assert!(!output.status.success());
}

#[test]
fn fio_verifies_what_it_wrote_at_depth() {
    let fixture = fixture();
    let target = format!("--uri={}", uri(&fixture, "disk"));
    // Cargo's configuration says where `scripts/setup.sh` has put it.
    let tools = std::env::var("TOMBOLO_TOOLS").expect("TOMBOLO_TOOLS is not set: run this test with cargo");
    let text = run(
        &format!("{tools}/fio"),
        &[
            "--name=verify",
            "--ioengine=nbd",
            &target,
            "--rw=randwrite",
            "--bsrange=512-256k",
            "--bs_unaligned",
            "--iodepth=32",
            "--size=16m",
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_state_save=0",
            "--randseed=7",
            "--fsync=50",
        ],
    );
    assert!(text.contains("err= 0"), "{text}");
}

/// A mount that is undone whatever the test does.
struct Mount {
    child: std::process::Child,
    file: std::path::PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").arg("-u").arg(&self.file).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nbdfuse_presents_the_export_as_a_file() {
    let fixture = fixture();
    let file = fixture.directory.path().join("image");
    fs::write(&file, b"").unwrap();
    let child = Command::new("nbdfuse")
        .arg(&file)
        .arg(uri(&fixture, "disk"))
        .stdin(Stdio::null())
        .spawn()
        .expect("nbdfuse cannot be run: install libnbd-bin");
    let mount = Mount { child, file };
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::metadata(&mount.file).map_or(0, |metadata| metadata.len()) != SIZE {
        assert!(
            Instant::now() < deadline,
            "nbdfuse does not mount: is /dev/fuse usable here?"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let handle = fs::OpenOptions::new().read(true).write(true).open(&mount.file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&handle, b"through fuse", 12_345).unwrap();
    handle.sync_all().unwrap();
    assert_eq!(fixture.disk.read(12_345, 12), b"through fuse");
    let mut back = [0; 12];
    std::os::unix::fs::FileExt::read_exact_at(&handle, &mut back, 12_345).unwrap();
    assert_eq!(&back, b"through fuse");
}
