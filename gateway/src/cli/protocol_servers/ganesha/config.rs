//! The language of ganesha-config(8). Everything that gets here has been checked: it can only mean what it says.

use std::net::IpAddr;
use std::path::PathBuf;

/// One share.
pub(super) struct Export {
    pub share: String,
    pub id: u16,
    pub clients: Vec<String>,
    pub root_squash: bool,
    pub read_only: bool,
    pub v3: bool,
    pub files_socket: PathBuf,
    /// Of a share in a named store.
    pub file_system: Option<u32>,
}

/// The server itself.
pub(super) struct Server {
    pub address: IpAddr,
    pub port: u16,
    pub v3: bool,
    pub mount_port: u16,
    /// Where it remembers its clients for the time after a restart.
    pub recovery: PathBuf,
    /// Where the files of the shares stand.
    pub shares: PathBuf,
}

fn protocols(v3: bool) -> &'static str {
    if v3 { "3, 4" } else { "4" }
}

/// Whether a server with this configuration, which may have been edited, answers NFSv3.
pub(super) fn serves_v3(text: &str) -> bool {
    let settings = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let dense: String = settings
        .flat_map(str::chars)
        .filter(|one| !one.is_whitespace())
        .collect();
    let dense = dense.to_ascii_lowercase();
    let core = dense.split_once("nfs_core_param{").map_or("", |(_, rest)| rest);
    let core = core.split('}').next().unwrap_or_default();
    let protocols = core.split(';').find_map(|setting| setting.split_once("protocols="));
    // Ganesha's own default is both.
    protocols.is_none_or(|(_, versions)| versions.split(',').any(|version| version.ends_with('3')))
}

/// The number of the export that a share's configuration, which may have been edited, is for.
pub(super) fn export_id(text: &str) -> Option<u16> {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let value = lines.find_map(|line| {
        let (key, value) = line.split_once('=')?;
        key.trim().eq_ignore_ascii_case("export_id").then_some(value)
    })?;
    value.trim().trim_end_matches(';').trim().parse().ok()
}

impl Export {
    pub fn text(&self) -> String {
        format!(
            "\
# Share {share} of Tombolo; written by `tombolo export nfs`, which writes it anew every time.
EXPORT {{
    Export_Id = {id};
    Path = \"/{share}\";
    Pseudo = \"/{share}\";
    Protocols = {protocols};
    Transports = TCP;
    SecType = sys;
    Squash = {squash};
    Anonymous_uid = 65534;
    Anonymous_gid = 65534;
    # Nobody but the clients below.
    Access_Type = None;
    # Changes from elsewhere are announced; this bounds what a lost announcement can hide.
    Attr_Expiration_Time = 1;
    CLIENT {{
        Clients = {clients};
        Access_Type = {access};
        Protocols = {protocols};
    }}
    FSAL {{
        Name = TOMBOLO;
        Share = \"{share}\";
        Socket = \"{socket}\";
{file_system}    }}
}}
",
            file_system = self
                .file_system
                .map(|number| format!("        File_System = {number};\n"))
                .unwrap_or_default(),
            share = self.share,
            id = self.id,
            protocols = protocols(self.v3),
            squash = if self.root_squash {
                "root_squash"
            } else {
                "no_root_squash"
            },
            clients = self.clients.join(", "),
            access = if self.read_only { "RO" } else { "RW" },
            socket = self.files_socket.display(),
        )
    }
}

impl Server {
    pub fn text(&self) -> String {
        let mount = if self.v3 {
            format!("    MNT_Port = {};\n", self.mount_port)
        } else {
            String::new()
        };
        format!(
            "\
# The NFS server of Tombolo's shares. Written once by `tombolo export nfs`; yours to change from then on.
NFS_CORE_PARAM {{
    # 3 needs rpcbind while the server starts; 4 needs nothing besides this server.
    Protocols = {protocols};
    Bind_addr = {address};
    NFS_Port = {port};
{mount}    Enable_UDP = false;
    # Locks of NFSv3 would need rpc.statd on both sides; such clients mount with nolock.
    Enable_NLM = false;
    Enable_RQUOTA = false;
}}
NFSV4 {{
    # Clients get their locks back after a restart, before others can take them.
    Graceless = false;
    Grace_Period = 90;
    Lease_Lifetime = 60;
    RecoveryBackend = fs;
    RecoveryRoot = \"{recovery}\";
    # Owners are numbers on both sides; names would need idmapd with the same accounts everywhere.
    Only_Numeric_Owners = true;
    # A delegated file would have to be called back before a mount or SMB could change it.
    Delegations = false;
}}
NFS_KRB5 {{
    Active_krb5 = false;
}}
%dir \"{shares}/*.conf\"
",
            protocols = protocols(self.v3),
            address = self.address,
            port = self.port,
            recovery = self.recovery.display(),
            shares = self.shares.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        Export {
            share: "docs".into(),
            id: 7,
            clients: vec!["10.0.0.0/8".into(), "::1".into()],
            root_squash: true,
            read_only: false,
            v3: false,
            files_socket: "/run/tombolo/files.sock".into(),
            file_system: None,
        }
    }

    #[test]
    fn export_says_who_may_do_what() {
        let expected = "\
# Share docs of Tombolo; written by `tombolo export nfs`, which writes it anew every time.
EXPORT {
    Export_Id = 7;
    Path = \"/docs\";
    Pseudo = \"/docs\";
    Protocols = 4;
    Transports = TCP;
    SecType = sys;
    Squash = root_squash;
    Anonymous_uid = 65534;
    Anonymous_gid = 65534;
    # Nobody but the clients below.
    Access_Type = None;
    # Changes from elsewhere are announced; this bounds what a lost announcement can hide.
    Attr_Expiration_Time = 1;
    CLIENT {
        Clients = 10.0.0.0/8, ::1;
        Access_Type = RW;
        Protocols = 4;
    }
    FSAL {
        Name = TOMBOLO;
        Share = \"docs\";
        Socket = \"/run/tombolo/files.sock\";
    }
}
";
        assert_eq!(export().text(), expected);
    }

    #[test]
    fn what_is_not_the_default_is_asked_for() {
        let text = Export {
            root_squash: false,
            read_only: true,
            v3: true,
            file_system: Some(77),
            ..export()
        }
        .text();
        for line in [
            "Squash = no_root_squash;",
            "Access_Type = RO;",
            "Protocols = 3, 4;",
            ".sock\";\n        File_System = 77;\n    }\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("RW"), "{text}");
    }

    #[test]
    fn an_export_s_number_is_read_again() {
        assert_eq!(export_id(&export().text()), Some(7));
        assert_eq!(export_id("EXPORT {\n  export_id=9; # mine\n}"), Some(9));
        assert_eq!(export_id("EXPORT { }"), None);
    }

    #[test]
    fn server_listens_where_it_is_told() {
        let mut server = Server {
            address: "127.0.0.1".parse().unwrap(),
            port: 12_049,
            v3: false,
            mount_port: 12_050,
            recovery: "/var/lib/tombolo/ganesha".into(),
            shares: "/etc/tombolo/ganesha/shares".into(),
        };
        let text = server.text();
        for line in [
            "    Protocols = 4;\n    Bind_addr = 127.0.0.1;\n    NFS_Port = 12049;\n    Enable_UDP = false;\n",
            "RecoveryRoot = \"/var/lib/tombolo/ganesha\";\n",
            "\n%dir \"/etc/tombolo/ganesha/shares/*.conf\"\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        server.v3 = true;
        let text = server.text();
        assert!(
            text.contains("Protocols = 3, 4;") && text.contains("    MNT_Port = 12050;\n"),
            "{text}"
        );
        assert!(serves_v3(&text));
        server.v3 = false;
        assert!(!serves_v3(&server.text()));
    }

    #[test]
    fn edited_settings_are_understood() {
        for (text, v3) in [
            ("NFS_Core_Param { NFS_Protocols=NFSv3,4; }", true),
            (
                "NFS_CORE_PARAM {\n    Protocols = 4; # not 3\n}\nX { Protocols = 3; }",
                false,
            ),
            ("NFS_CORE_PARAM { NFS_Port = 3; }", true),
        ] {
            assert_eq!(serves_v3(text), v3, "{text}");
        }
    }
}
