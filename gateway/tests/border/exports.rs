//! Exports of shares: what stands in the files of NFS-Ganesha and Samba, and when a running server is told.

use crate::fake::Gateway;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tombolo::admin::model::ShareInfo;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn with_shares(names: &[&str]) -> Gateway {
    let gateway = Gateway::start();
    for name in names {
        gateway.cli(&["share", "create", name], 0);
    }
    gateway
}

fn folder(gateway: &Gateway) -> PathBuf {
    gateway.directory.path().join("etc")
}

/// `export nfs` or `export smb` of a share, into a folder of the test.
fn export(gateway: &Gateway, kind: &str, name: &str, more: &[&str]) -> Vec<String> {
    let folder = folder(gateway);
    let mut words = vec!["export", kind, name, "--directory", folder.to_str().unwrap()];
    let pid_file = gateway.directory.path().join("ganesha.pid");
    if kind == "nfs" {
        words.extend(["--pid-file", pid_file.to_str().unwrap()]);
    }
    words
        .into_iter()
        .chain(more.iter().copied())
        .map(String::from)
        .collect()
}

fn run(gateway: &Gateway, kind: &str, name: &str, more: &[&str], code: i32) -> crate::fake::Said {
    let words = export(gateway, kind, name, more);
    gateway.cli(&words.iter().map(String::as_str).collect::<Vec<_>>(), code)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A process with the name of a server, which ends when it is told anything.
fn pretend_server(gateway: &Gateway, program: &str, pid_file: &Path) -> Child {
    let renamed = gateway.directory.path().join(program);
    if !renamed.is_symlink() {
        std::os::unix::fs::symlink("/bin/sleep", &renamed).unwrap();
    }
    let child = Command::new(&renamed).arg("60").spawn().unwrap();
    fs::create_dir_all(pid_file.parent().unwrap()).unwrap();
    fs::write(pid_file, child.id().to_string()).unwrap();
    child
}

fn was_told(mut child: Child) -> bool {
    child.wait().unwrap().signal() == Some(libc::SIGHUP)
}

// NFS

#[test]
fn nfs_configuration_is_written_once_for_the_server_and_anew_for_the_share() {
    let gateway = with_shares(&["docs"]);
    let said = run(&gateway, "nfs", "docs", &[], 0).out;
    let (main, share) = (
        folder(&gateway).join("ganesha.conf"),
        folder(&gateway).join("shares/docs.conf"),
    );
    assert!(
        said.contains(&format!("wrote {}\nwrote {}\n", share.display(), main.display())),
        "{said}"
    );
    assert!(
        said.contains("tombolo-ganesha") && said.ends_with("\nnfs://127.0.0.1/docs\n"),
        "{said}"
    );
    let text = read(&main);
    let recovery = gateway.directory.path().join("state/ganesha");
    assert!(recovery.is_dir());
    assert!(
        text.contains(&format!("RecoveryRoot = \"{}\";", recovery.display())),
        "{text}"
    );
    assert!(
        text.contains("Bind_addr = 127.0.0.1;\n    NFS_Port = 2049;\n"),
        "{text}"
    );
    let text = read(&share);
    let files_socket = gateway.socket().with_file_name("files.sock");
    for line in [
        "    Export_Id = 1;\n",
        "    Pseudo = \"/docs\";\n",
        "        Clients = 127.0.0.1;\n",
        &format!("        Socket = \"{}\";\n", files_socket.display()),
    ] {
        assert!(text.contains(line), "{line:?} is not in: {text}");
    }

    fs::write(&main, "# mine\n").unwrap();
    let changed = [
        "--client",
        "10.0.0.0/8,::1",
        "--client",
        "*",
        "--no-root-squash",
        "--export-id",
        "9",
    ];
    run(&gateway, "nfs", "docs", &changed, 0);
    assert_eq!(read(&main), "# mine\n");
    let text = read(&share);
    for line in [
        "Clients = 10.0.0.0/8, ::1, *;",
        "Squash = no_root_squash;",
        "Export_Id = 9;",
    ] {
        assert!(text.contains(line), "{line:?} is not in: {text}");
    }
}

#[test]
fn nfs_settings_of_the_server_are_not_ignored_silently() {
    let gateway = with_shares(&["docs"]);
    let said = run(
        &gateway,
        "nfs",
        "docs",
        &["--v3", "--bind", "::1", "--port", "12049", "--json"],
        0,
    );
    let done = parsed(&said.out);
    assert_eq!(done["url"], "nfs://[::1]:12049/docs");
    assert_eq!(done["reloaded"], json!(false));
    let refused = run(&gateway, "nfs", "docs", &["--port", "12050"], 1);
    assert!(refused.err.contains("--rewrite"), "{}", refused.err);
    // Saying the same again is no contradiction, and saying nothing is none either.
    run(
        &gateway,
        "nfs",
        "docs",
        &["--v3", "--bind", "::1", "--port", "12049"],
        0,
    );
    run(&gateway, "nfs", "docs", &[], 0);
    run(&gateway, "nfs", "docs", &["--v3"], 0);
    run(&gateway, "nfs", "docs", &["--port", "12050", "--rewrite"], 0);
    assert!(
        run(&gateway, "nfs", "docs", &["--v3"], 1).err.contains("--rewrite"),
        "the server does not answer NFSv3"
    );
    let text = read(&folder(&gateway).join("ganesha.conf"));
    assert!(
        text.contains("NFS_Port = 12050;") && text.contains("Protocols = 4;"),
        "{text}"
    );
}

#[test]
fn nfs_exports_are_shown_and_taken_away() {
    let gateway = with_shares(&["docs"]);
    let shown = run(&gateway, "nfs", "docs", &["--show"], 0).out;
    assert!(
        shown.contains("NFS_CORE_PARAM {\n") && shown.contains("    FSAL {\n"),
        "{shown}"
    );
    assert!(!folder(&gateway).exists());
    run(&gateway, "nfs", "docs", &[], 0);
    // The share may be deleted before its export is.
    gateway.cli(&["share", "delete", "docs"], 0);
    let said = run(&gateway, "nfs", "docs", &["--remove"], 0).out;
    assert!(
        said.contains("removed ") && !folder(&gateway).join("shares/docs.conf").exists(),
        "{said}"
    );
    assert!(folder(&gateway).join("ganesha.conf").exists());
    run(&gateway, "nfs", "docs", &["--remove"], 4);
}

#[test]
fn a_running_nfs_server_is_told() {
    let gateway = with_shares(&["docs"]);
    run(&gateway, "nfs", "docs", &[], 0);
    let pid_file = gateway.directory.path().join("ganesha.pid");
    let server = pretend_server(&gateway, "ganesha.nfsd", &pid_file);
    let done = parsed(&run(&gateway, "nfs", "docs", &["--read-only", "--json"], 0).out);
    assert_eq!((&done["reloaded"], &done["next"]), (&json!(true), &json!([])));
    assert!(was_told(server));
    let server = pretend_server(&gateway, "ganesha.nfsd", &pid_file);
    let done = parsed(&run(&gateway, "nfs", "docs", &["--port", "12049", "--rewrite", "--json"], 0).out);
    assert!(
        done["next"][0].as_str().unwrap().contains("restart the NFS server"),
        "{done}"
    );
    assert!(was_told(server));
}

#[test]
fn nfs_refusals_are_exact_and_leave_nothing_behind() {
    let gateway = with_shares(&["docs", "old", "far"]);
    {
        let mut state = gateway.fake.0.lock().unwrap();
        let set = |share: Option<&mut ShareInfo>, change: fn(&mut ShareInfo)| change(share.unwrap());
        set(state.shares.get_mut("old"), |share| share.deleting = true);
        set(state.shares.get_mut("far"), |share| share.id = 65_536);
    }
    for (name, more, code, message) in [
        ("absent", &[][..], 4, "share \"absent\" does not exist"),
        ("old", &[], 6, "is being deleted"),
        ("a/b", &[], 2, "not a valid name for a share"),
        ("far", &[], 2, "--export-id"),
        ("docs", &["--client", "host"], 2, "\"host\" is not a valid client"),
        ("docs", &["--client", "10.0.0.1; }"], 2, "is not a valid client"),
        ("docs", &["--bind", "host"], 2, "host"),
        ("docs", &["--port", "0"], 2, "0"),
        ("docs", &["--mount-port", "20048"], 2, "--v3"),
        ("docs", &["--show", "--remove"], 2, "--remove"),
    ] {
        let said = run(&gateway, "nfs", name, more, code);
        assert!(said.err.contains(message), "{name} {more:?}: {}", said.err);
    }
    assert!(!folder(&gateway).exists());
    let odd = ["export", "nfs", "docs", "--directory", "/tmp/a b"];
    assert!(gateway.cli(&odd, 2).err.contains("cannot stand in a configuration"));
}

// SMB

#[test]
fn smb_configuration_is_what_samba_understands() {
    let gateway = with_shares(&["docs", "free"]);
    let mount = gateway.directory.path().join("mnt");
    let said = run(
        &gateway,
        "smb",
        "docs",
        &[
            "--mount-dir",
            mount.to_str().unwrap(),
            "--user",
            "alice,@staff",
            "--port",
            "1445",
        ],
        0,
    );
    assert!(
        said.out.contains("smbpasswd -c ") && said.out.ends_with("\nsmb://127.0.0.1:1445/docs\n"),
        "{}",
        said.out
    );
    let durable = ["--durable-handles", "--read-only"];
    assert!(!run(&gateway, "smb", "free", &durable, 0).out.contains("smbpasswd"));
    let main = folder(&gateway).join("smb.conf");
    assert!(gateway.directory.path().join("state-samba/private").is_dir());
    let index = read(&folder(&gateway).join("shares.conf"));
    assert!(
        index.contains("shares/docs.conf\n") && index.contains("shares/free.conf\n"),
        "{index}"
    );
    // Samba's default, so testparm does not show it.
    assert!(read(&main).contains("smb2 leases = yes"));
    let Ok(checked) = Command::new("testparm").arg("-s").arg(&main).output() else {
        eprintln!("skipped: testparm is not installed");
        return;
    };
    let (understood, complaints) = (
        String::from_utf8(checked.stdout).unwrap(),
        String::from_utf8(checked.stderr).unwrap(),
    );
    assert!(checked.status.success(), "{complaints}");
    let lower = complaints.to_lowercase();
    assert!(
        !lower.contains("unknown") && !lower.contains("ignoring") && !lower.contains("error"),
        "{complaints}"
    );
    let (global, shares) = understood.split_once("\n[docs]\n").expect(&understood);
    let (docs, free) = shares.split_once("\n[free]\n").expect(&understood);
    for line in [
        "server min protocol = SMB2",
        "server signing = required",
        "server smb encrypt = desired",
        "smb ports = 1445",
    ] {
        assert!(global.contains(line), "{line:?} is not in: {global}");
    }
    for line in [
        &format!("path = {}", mount.display()),
        "valid users = alice @staff",
        "read only = No",
        "oplocks = No",
        "durable handles = No",
        "vfs objects = acl_xattr streams_xattr",
        "root preexec close = Yes",
    ] {
        assert!(docs.contains(line), "{line:?} is not in: {docs}");
    }
    for line in ["path = /srv/tombolo/free", "posix locking = No"] {
        assert!(free.contains(line), "{line:?} is not in: {free}");
    }
    // These are Samba's defaults, so they are not shown.
    assert!(
        !free.contains("oplocks = No") && !free.contains("durable handles") && !free.contains("read only"),
        "{free}"
    );
}

#[test]
fn smb_server_settings_are_kept_and_not_ignored_silently() {
    let gateway = with_shares(&["docs"]);
    run(&gateway, "smb", "docs", &["--bind", "127.0.0.1,::1"], 0);
    let main = folder(&gateway).join("smb.conf");
    let own = read(&main).replace("max log size = 10000", "max log size = 1");
    fs::write(&main, &own).unwrap();
    run(&gateway, "smb", "docs", &["--read-only"], 0);
    assert_eq!(read(&main), own);
    assert!(
        run(&gateway, "smb", "docs", &["--require-encryption"], 1)
            .err
            .contains("--rewrite")
    );
    run(&gateway, "smb", "docs", &["--require-encryption", "--rewrite"], 0);
    assert!(read(&main).contains("server smb encrypt = required\n"));
}

#[test]
fn a_running_smb_server_is_told_also_of_removals() {
    let gateway = with_shares(&["docs", "free"]);
    let pid_file = gateway.directory.path().join("state-samba/run/smbd.pid");
    run(&gateway, "smb", "free", &[], 0);
    let server = pretend_server(&gateway, "smbd", &pid_file);
    let done = parsed(&run(&gateway, "smb", "docs", &["--json"], 0).out);
    assert_eq!((&done["reloaded"], &done["next"]), (&json!(true), &json!([])));
    assert!(was_told(server));
    let server = pretend_server(&gateway, "smbd", &pid_file);
    let done = parsed(&run(&gateway, "smb", "docs", &["--remove", "--json"], 0).out);
    assert!(was_told(server));
    // What was told is no server that could end a connection.
    assert!(done["next"][0].as_str().unwrap().contains("close-share docs"), "{done}");
    let index = read(&folder(&gateway).join("shares.conf"));
    assert!(!index.contains("docs") && index.contains("free"), "{index}");
    run(&gateway, "smb", "docs", &["--remove"], 4);
}

#[test]
fn smb_refusals_are_exact_and_leave_nothing_behind() {
    let gateway = with_shares(&["docs", "Homes", "GLOBAL"]);
    for (name, more, code, message) in [
        ("absent", &[][..], 4, "share \"absent\" does not exist"),
        ("Homes", &[], 2, "a meaning of its own"),
        ("GLOBAL", &[], 2, "a meaning of its own"),
        ("docs", &["--user", "al ice"], 2, "\"al ice\" is not a valid user"),
        ("docs", &["--user", "%U"], 2, "is not a valid user"),
        (
            "docs",
            &["--mount-dir", "/mnt/%U"],
            2,
            "cannot stand in a configuration",
        ),
        ("docs", &["--bind", "host"], 2, "host"),
    ] {
        let said = run(&gateway, "smb", name, more, code);
        assert!(said.err.contains(message), "{name} {more:?}: {}", said.err);
    }
    assert!(!folder(&gateway).exists());
}

#[test]
fn shares_that_smb_cannot_tell_apart_are_refused() {
    let gateway = with_shares(&["docs", "Docs"]);
    run(&gateway, "smb", "docs", &[], 0);
    assert!(
        run(&gateway, "smb", "Docs", &[], 1)
            .err
            .contains("\"docs\" is exported already")
    );
    assert!(!folder(&gateway).join("shares/Docs.conf").exists());
}
