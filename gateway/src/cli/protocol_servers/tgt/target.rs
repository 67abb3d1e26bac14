use std::fmt;
use std::path::PathBuf;

/// RFC 7143, section 12.1.3: shorter secrets can be guessed from one eavesdropped login.
const SECRET_BYTES_MIN: usize = 12;
/// tgtd keeps names and secrets in fields of this size, the final zero included.
const CHAP_FIELD_BYTES: usize = 64;
/// RFC 7143, section 4.2.7.1.
const IQN_BYTES_MAX: usize = 223;

/// The iSCSI target of one volume, as it is wanted.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub volume: String,
    pub iqn: String,
    /// An address, or ALL.
    pub initiator: String,
    pub nbd_socket: PathBuf,
    pub chap: Option<Chap>,
}

#[derive(Clone)]
pub(super) struct Chap {
    pub user: String,
    pub secret: String,
}

impl fmt::Debug for Chap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Chap")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// What the tgt plugin opens.
    pub fn nbd_uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.volume, self.nbd_socket.display())
    }

    /// Nothing that reaches tgtadm or targets.conf may be taken for something else there. The error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if !is_iscsi_name(&self.iqn) {
            let form = "iqn.YYYY-MM.REVERSED.DOMAIN[:NAME] of a-z 0-9 . : -";
            return Err(format!(
                "{:?} is not a valid iSCSI name: use {form}, at most {IQN_BYTES_MAX} bytes",
                self.iqn
            ));
        }
        if self.initiator != "ALL" && !is_address(&self.initiator) {
            return Err(format!(
                "{:?} is neither ALL nor an address or network of an initiator",
                self.initiator
            ));
        }
        let socket = self.nbd_socket.to_string_lossy();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte);
        if !socket.bytes().all(plain) {
            return Err(format!(
                "{socket:?} cannot stand in a configuration of tgt: use letters, digits and /._-+@"
            ));
        }
        self.chap.as_ref().map_or(Ok(()), Chap::check)
    }
}

impl Chap {
    fn check(&self) -> Result<(), String> {
        let fits = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'#<>\\`$".contains(&byte);
            text.len() < CHAP_FIELD_BYTES && !text.starts_with('-') && text.bytes().all(plain)
        };
        if self.user.is_empty() || !fits(&self.user) {
            return Err(format!(
                "{:?} is not a valid CHAP name: use 1 to 63 printable ASCII characters without quotes, blanks and # < > \\ ` $",
                self.user
            ));
        }
        if self.secret.len() < SECRET_BYTES_MIN || !fits(&self.secret) {
            return Err(
                "the CHAP secret must have 12 to 63 printable ASCII characters without quotes, blanks and # < > \\ ` $"
                    .into(),
            );
        }
        Ok(())
    }
}

fn is_iscsi_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".:-".contains(&byte);
    name.len() <= IQN_BYTES_MAX && name.starts_with("iqn.") && name.len() > 4 && name.bytes().all(plain)
}

fn is_address(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, "0"));
    address.parse::<std::net::IpAddr>().is_ok() && bits.parse::<u8>().is_ok()
}

/// Names on both ends are folded into what RFC 7143 permits. Two volumes may be folded into one name; the second is then
/// refused as a conflict, and `--iqn` helps.
pub(super) fn default_iqn(host: &str, volume: &str) -> String {
    let fold = |text: &str| -> String {
        let one = |character: char| match character.to_ascii_lowercase() {
            folded @ ('a'..='z' | '0'..='9' | '.' | '-') => folded,
            _ => '-',
        };
        text.chars().map(one).collect()
    };
    let host = if host.is_empty() { "localhost" } else { host };
    format!("iqn.2026-01.io.tombolo:{}:{}", fold(host), fold(volume))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn example() -> Target {
        Target {
            volume: "vol_1".into(),
            iqn: "iqn.2026-01.io.tombolo:host:vol-1".into(),
            initiator: "ALL".into(),
            nbd_socket: "/run/tombolo/nbd.sock".into(),
            chap: None,
        }
    }

    fn with_chap(user: &str, secret: &str) -> Target {
        Target {
            chap: Some(Chap {
                user: user.into(),
                secret: secret.into(),
            }),
            ..example()
        }
    }

    #[test]
    fn default_names_are_legal() {
        for (host, volume) in [("Host_1.example", "Vol_A"), ("", "x"), ("\u{e4}", "0")] {
            let target = Target {
                iqn: default_iqn(host, volume),
                ..example()
            };
            target.check().unwrap();
        }
        assert_eq!(default_iqn("Host_1", "Vol_A"), "iqn.2026-01.io.tombolo:host-1:vol-a");
    }

    #[test]
    fn nothing_can_break_out_of_a_configuration() {
        for iqn in [
            "", "iqn.", "eui.0123", "iqn.a b", "iqn.a>", "iqn.a\nx", "iqn.A", "iqn.a\"", "iqn.a;id",
        ] {
            assert!(
                Target {
                    iqn: iqn.into(),
                    ..example()
                }
                .check()
                .is_err(),
                "{iqn:?}"
            );
        }
        for initiator in ["", "all", "10.0.0.1 -x", "host", "10.0.0.0/x"] {
            assert!(
                Target {
                    initiator: initiator.into(),
                    ..example()
                }
                .check()
                .is_err(),
                "{initiator:?}"
            );
        }
        for socket in ["/run/a b/nbd.sock", "/run/$(id)/nbd.sock", "/run/\"/nbd.sock"] {
            assert!(
                Target {
                    nbd_socket: socket.into(),
                    ..example()
                }
                .check()
                .is_err(),
                "{socket:?}"
            );
        }
        for (user, secret) in [
            ("", "twelve-bytes"),
            ("u", "short"),
            ("u x", "twelve-bytes"),
            ("u", "twelve\nbytes"),
        ] {
            assert!(with_chap(user, secret).check().is_err(), "{user:?} {secret:?}");
        }
        with_chap("user", "twelve-bytes").check().unwrap();
        for initiator in ["10.0.0.1", "10.0.0.0/8", "::1"] {
            Target {
                initiator: initiator.into(),
                ..example()
            }
            .check()
            .unwrap();
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let target = with_chap("user", "hunter2hunter2");
        assert!(!format!("{target:?}").contains("hunter2"));
        assert!(!with_chap("user", "hunter2 #").check().unwrap_err().contains("hunter2"));
    }
}
