//! The language of smb.conf(5). Everything that gets here has been checked: it can only mean what it says.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// One share.
pub(super) struct Section {
    pub share: String,
    /// Where it is mounted.
    pub path: PathBuf,
    /// Empty: everybody with a password.
    pub users: Vec<String>,
    pub read_only: bool,
    pub durable_handles: bool,
}

/// The server itself.
pub(super) struct Server {
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    pub require_encryption: bool,
    /// Where it keeps passwords and what it must remember.
    pub state: PathBuf,
    /// The file that includes those of the shares.
    pub shares: PathBuf,
}

/// Oplocks let a client keep data and names without asking, and only they make durable handles possible; but the server
/// cannot call them back when somebody changes the file through NFS or the mount.
const COHERENT: &str = "    \
# Locks of SMB clients are locks of the file system, so that NFS clients and this machine honour them and the other way
    # round. Durable handles cannot be had together with that. Nor can oplocks: nobody would call them back before NFS
    # clients or this machine change the file.
    posix locking = yes
    oplocks = no
    level2 oplocks = no
    durable handles = no
";
const DURABLE: &str = "    \
# Clients may cache, and get their open files back after the connection was lost. The price: locks of SMB clients
    # stand in the SMB server alone, so that NFS clients and this machine neither see nor honour them, and changes that
    # those make are seen by an SMB client only after it has closed the file. For a share that SMB alone uses.
    posix locking = no
    oplocks = yes
    level2 oplocks = yes
    durable handles = yes
";

impl Section {
    pub fn text(&self) -> String {
        let users = if self.users.is_empty() {
            String::new()
        } else {
            format!("    valid users = {}\n", self.users.join(" "))
        };
        format!(
            "\
# Share {share} of Tombolo; written by `tombolo export smb`, which writes it anew every time.
[{share}]
    path = {path}
    # While the share is not mounted there, nobody gets in: files would end up on the disk below.
    root preexec = mountpoint -q {path}
    root preexec close = yes
    read only = {read_only}
    guest ok = no
{users}    # Windows' permissions, streams and attributes stand in extended attributes of the files.
    vfs objects = acl_xattr streams_xattr
    ea support = yes
    store dos attributes = yes
    map archive = no
    map hidden = no
    map system = no
    map readonly = no
    inherit acls = yes
{coherence}    # The kernel has neither of these for such a file system.
    kernel oplocks = no
    kernel share modes = no
    # A flush of the client is a flush to stable storage; space is taken when data comes.
    strict sync = yes
    strict allocate = no
",
            share = self.share,
            path = self.path.display(),
            read_only = yes_no(self.read_only),
            coherence = if self.durable_handles { DURABLE } else { COHERENT },
        )
    }
}

impl Server {
    pub fn text(&self) -> String {
        format!(
            "\
# The SMB server of Tombolo's shares. Written once by `tombolo export smb`; yours to change from then on.
[global]
    server role = standalone server
    disable netbios = yes
    smb ports = {port}
{interfaces}    # No SMB1; every packet is signed.
    server min protocol = SMB2_10
    server signing = mandatory
    server smb encrypt = {encrypt}
    # No guests, and nothing is told to those who have not logged in.
    map to guest = Never
    restrict anonymous = 2
    # Leases let clients cache like oplocks, and are given only where a share has `oplocks = yes`.
    smb2 leases = yes
    # No printers.
    load printers = no
    printcap name = /dev/null
    disable spoolss = yes
    # This server shares nothing with another Samba on the same machine.
    passdb backend = tdbsam:{state}/private/passdb.tdb
    private dir = {state}/private
    state directory = {state}/state
    cache directory = {state}/cache
    lock directory = {state}/lock
    pid directory = {state}/run
    ncalrpc dir = {state}/ncalrpc
    log file = {state}/log/smbd.log
    max log size = 10000
    include = {shares}
",
            port = self.port,
            interfaces = self.interfaces(),
            encrypt = if self.require_encryption { "required" } else { "desired" },
            state = self.state.display(),
            shares = self.shares.display(),
        )
    }

    fn interfaces(&self) -> String {
        if self.addresses.iter().any(IpAddr::is_unspecified) {
            return String::new();
        }
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        format!(
            "    interfaces = {}\n    bind interfaces only = yes\n",
            addresses.join(" ")
        )
    }

    /// What must be there before it starts, and for whom. smbd uses locks and caches with the rights of its users.
    pub fn directories(&self) -> [(PathBuf, u32); 7] {
        [
            ("private", 0o700),
            ("state", 0o755),
            ("cache", 0o755),
            ("lock", 0o755),
            ("run", 0o755),
            ("ncalrpc", 0o755),
            ("log", 0o700),
        ]
        .map(|(name, mode)| (self.state.join(name), mode))
    }

    pub fn pid_file(&self) -> PathBuf {
        self.state.join("run/smbd.pid")
    }
}

/// The file that includes those of all shares, since smb.conf cannot include a directory.
pub(super) fn index(directory: &Path, names: &[String]) -> String {
    let mut text = String::from("# All exported shares; written by `tombolo export smb`.\n");
    for name in names {
        text += &format!("include = {}/{name}.conf\n", directory.display());
    }
    text
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        Section {
            share: "docs".into(),
            path: "/srv/tombolo/docs".into(),
            users: vec!["alice".into(), "@staff".into()],
            read_only: false,
            durable_handles: false,
        }
    }

    fn server() -> Server {
        Server {
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            port: 445,
            require_encryption: false,
            state: "/var/lib/tombolo-samba".into(),
            shares: "/etc/tombolo/samba/shares.conf".into(),
        }
    }

    #[test]
    fn section_is_coherent_by_default() {
        let expected = "\
# Share docs of Tombolo; written by `tombolo export smb`, which writes it anew every time.
[docs]
    path = /srv/tombolo/docs
    # While the share is not mounted there, nobody gets in: files would end up on the disk below.
    root preexec = mountpoint -q /srv/tombolo/docs
    root preexec close = yes
    read only = no
    guest ok = no
    valid users = alice @staff
    # Windows' permissions, streams and attributes stand in extended attributes of the files.
    vfs objects = acl_xattr streams_xattr
    ea support = yes
    store dos attributes = yes
    map archive = no
    map hidden = no
    map system = no
    map readonly = no
    inherit acls = yes
    # Locks of SMB clients are locks of the file system, so that NFS clients and this machine honour them and the other way
    # round. Durable handles cannot be had together with that. Nor can oplocks: nobody would call them back before NFS
    # clients or this machine change the file.
    posix locking = yes
    oplocks = no
    level2 oplocks = no
    durable handles = no
    # The kernel has neither of these for such a file system.
    kernel oplocks = no
    kernel share modes = no
    # A flush of the client is a flush to stable storage; space is taken when data comes.
    strict sync = yes
    strict allocate = no
";
        assert_eq!(section().text(), expected);
    }

    #[test]
    fn what_is_not_the_default_is_asked_for() {
        let text = Section {
            users: Vec::new(),
            read_only: true,
            durable_handles: true,
            ..section()
        }
        .text();
        for line in [
            "read only = yes\n    guest ok = no\n    # Windows'",
            "    posix locking = no\n    oplocks = yes\n    level2 oplocks = yes\n    durable handles = yes\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("valid users"), "{text}");
    }

    #[test]
    fn server_listens_where_it_is_told() {
        let text = server().text();
        for line in [
            "    smb ports = 445\n    interfaces = 127.0.0.1 ::1\n    bind interfaces only = yes\n",
            "    server signing = mandatory\n    server smb encrypt = desired\n",
            "    pid directory = /var/lib/tombolo-samba/run\n",
            "    include = /etc/tombolo/samba/shares.conf\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let text = Server {
            addresses: vec!["0.0.0.0".parse().unwrap()],
            require_encryption: true,
            ..server()
        }
        .text();
        assert!(
            !text.contains("interfaces") && text.contains("encrypt = required"),
            "{text}"
        );
    }

    #[test]
    fn index_includes_every_share() {
        let text = index(Path::new("/etc/s"), &["a".into(), "b".into()]);
        assert!(
            text.ends_with("\ninclude = /etc/s/a.conf\ninclude = /etc/s/b.conf\n"),
            "{text}"
        );
    }
}
