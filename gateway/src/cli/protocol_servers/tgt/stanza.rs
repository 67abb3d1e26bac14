//! The target in the language of targets.conf(5).
//!
//! tgt-admin opens only backing stores that exist as files, so the NBD socket stands there and the volume's name in the
//! options; a URI, which tgtadm takes, would be skipped. The gateway must be up when tgt starts.

use super::target::{Chap, Target};

/// For the file that tgt reads.
pub(super) fn with_secret(target: &Target) -> String {
    stanza(target, |chap| &chap.secret)
}

/// For the screen.
pub(super) fn without_secret(target: &Target) -> String {
    stanza(target, |_| "SECRET")
}

fn stanza(target: &Target, secret: fn(&Chap) -> &str) -> String {
    let chap = target.chap.as_ref();
    let account = chap
        .map(|chap| format!("    incominguser {} {}\n", chap.user, secret(chap)))
        .unwrap_or_default();
    format!(
        "# Volume {volume} of Tombolo; written by `tombolo export iscsi`.\n\
         <target {iqn}>\n\
         \x20   # Every volume has the same socket, which tgt-admin would take for a disk in use.\n\
         \x20   allow-in-use yes\n\
         \x20   <backing-store {socket}>\n\
         \x20       bs-type tombolo\n\
         \x20       bsopts \"export={volume}\"\n\
         \x20       lun 1\n\
         \x20       params thin_provisioning=1\n\
         \x20   </backing-store>\n\
         {account}\
         \x20   initiator-address {initiator}\n\
         </target>\n",
        volume = target.volume,
        iqn = target.iqn,
        socket = target.nbd_socket.display(),
        initiator = target.initiator,
    )
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::example;
    use super::*;

    #[test]
    fn stanza_is_what_tgt_reads() {
        let expected = "# Volume vol_1 of Tombolo; written by `tombolo export iscsi`.
<target iqn.2026-01.io.tombolo:host:vol-1>
    # Every volume has the same socket, which tgt-admin would take for a disk in use.
    allow-in-use yes
    <backing-store /run/tombolo/nbd.sock>
        bs-type tombolo
        bsopts \"export=vol_1\"
        lun 1
        params thin_provisioning=1
    </backing-store>
    initiator-address ALL
</target>
";
        assert_eq!(with_secret(&example()), expected);
    }

    #[test]
    fn secret_stands_in_the_file_only() {
        let chap = Chap {
            user: "user".into(),
            secret: "twelve-bytes".into(),
        };
        let target = Target {
            chap: Some(chap),
            ..example()
        };
        assert!(with_secret(&target).contains("    incominguser user twelve-bytes\n"));
        assert!(without_secret(&target).contains("    incominguser user SECRET\n"));
    }
}
