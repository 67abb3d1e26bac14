use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(in super::super) enum ExportCommand {
    /// Export a volume as LUN 1 of an iSCSI target of tgtd; without --write and --apply, show the configuration
    Iscsi(IscsiOptions),
    /// Export a share over NFS: write its configuration for NFS-Ganesha and have a running one read it
    Nfs(NfsOptions),
    /// Export a mounted share over SMB: write its configuration for Samba and have a running one read it
    Smb(SmbOptions),
}

#[derive(Debug, Args)]
pub(in super::super) struct IscsiOptions {
    /// The volume
    pub name: String,
    /// Write the configuration where tgtd's start reads it
    #[arg(long)]
    pub write: bool,
    /// The file of --write [default: /etc/tgt/conf.d/tombolo-NAME.conf]
    #[arg(long, value_name = "FILE", requires = "write")]
    pub file: Option<PathBuf>,
    /// Apply it to the running tgtd; what is already in place stays untouched
    #[arg(long)]
    pub apply: bool,
    /// ADDRESS:PORT for the URL that is shown [default: the first portal of tgtd with --apply, else 127.0.0.1:3260]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub portal: Option<String>,
    /// The target's name [default: made from the names of this machine and the volume]
    #[arg(long)]
    pub iqn: Option<String>,
    /// The address of an initiator that may connect, or ALL
    #[arg(long, value_name = "ADDRESS", default_value = "ALL")]
    pub initiator: String,
    /// Require CHAP under this name
    #[arg(long, value_name = "NAME", requires = "chap_secret_file")]
    pub chap_user: Option<String>,
    /// The file that holds the CHAP secret, - for standard input. tgtadm takes it as an argument, so that for a moment
    /// users of this machine can see it in the list of processes
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// The control port of tgtd (as tgtadm -C)
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub control_port: u16,
    /// Print a JSON object with the URL and the target
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(in super::super) struct NfsOptions {
    /// The share
    pub name: String,
    /// An address or network that may mount it, or *; may be repeated
    #[arg(long, value_name = "CIDR", default_value = "127.0.0.1", value_delimiter = ',')]
    pub client: Vec<String>,
    /// Let root of the clients be root of the share
    #[arg(long)]
    pub no_root_squash: bool,
    /// Let clients read only
    #[arg(long)]
    pub read_only: bool,
    /// Serve NFSv3 besides NFSv4, without locks (mount with nolock); needs rpcbind while the server starts
    #[arg(long)]
    pub v3: bool,
    /// The export's number for the server [default: the share's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub export_id: Option<u16>,
    /// The address that the server listens on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// The server's port [default: 2049]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The port of its MOUNT service, which only NFSv3 needs [default: 20048]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), requires = "v3")]
    pub mount_port: Option<u16>,
    /// The folder of the server's configuration
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/tombolo/ganesha")]
    pub directory: PathBuf,
    /// The file that holds the running server's process number
    #[arg(long, value_name = "FILE", default_value = "/run/tombolo-ganesha/ganesha.pid")]
    pub pid_file: PathBuf,
    #[command(flatten)]
    pub how: HowToWrite,
}

#[derive(Debug, Args)]
pub(in super::super) struct SmbOptions {
    /// The share
    pub name: String,
    /// Where the share is mounted [default: /srv/tombolo/NAME]
    #[arg(long, value_name = "DIRECTORY")]
    pub mount_dir: Option<PathBuf>,
    /// A user, or a @group, that may connect; may be repeated [default: every user with a password in Samba]
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Let clients read only
    #[arg(long)]
    pub read_only: bool,
    /// Let clients cache, and keep their open files over a lost connection. The price: SMB clients no longer see locks of
    /// NFS clients and of this machine, nor these theirs, and see changes that these make only after closing a file. For
    /// shares that are used over SMB alone
    #[arg(long)]
    pub durable_handles: bool,
    /// Refuse clients that cannot encrypt; otherwise encryption is used with those that can, and signing with all
    #[arg(long)]
    pub require_encryption: bool,
    /// An address that the server listens on; may be repeated [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub bind: Vec<IpAddr>,
    /// The server's port [default: 445]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The folder of the server's configuration
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/tombolo/samba")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub how: HowToWrite,
}

/// What both file exports do with the configuration.
#[derive(Clone, Copy, Debug, Args)]
pub(in super::super) struct HowToWrite {
    /// Only show what would be written
    #[arg(long, conflicts_with_all = ["remove", "rewrite"])]
    pub show: bool,
    /// Remove the export; the share and the server's own settings stay
    #[arg(long, conflicts_with = "rewrite")]
    pub remove: bool,
    /// Write the server's own settings again, too; otherwise they are written once and are yours from then on
    #[arg(long)]
    pub rewrite: bool,
    /// Print a JSON object with the URL and the files
    #[arg(long)]
    pub json: bool,
}
