#!/bin/bash
# Runs in the guest: the commands for Linux's own clients that `make run` prints, each as it stands.
# usage: commands.sh NFS_MOUNT SMB_MOUNT ISCSI_LOGIN
set -euo pipefail

. "$(dirname "$0")/clients.sh"

try() { bash -c "$1" || { dmesg | tail -n 5; fail "$1"; }; }

# What a machine has that booted with udev and systemd: modules for what it finds, and the initiator's daemon.
modprobe -a nfsv4 cifs sd_mod
mkdir -p /run/lock
for folder in /etc/iscsi /var/lib/iscsi; do
    # The guest's own; it would change this machine's.
    mkdir -p "$folder" "/run$folder"
    cp -r "$folder/." "/run$folder"
    mount --bind "/run$folder" "$folder"
done
echo InitiatorName=iqn.2026-01.test.tombolo:commands >/etc/iscsi/initiatorname.iscsi
iscsid

try "$1"
echo hello >/mnt/hello
umount /mnt
try "$2"
[ "$(cat /mnt/hello)" = hello ] || fail "what was written over NFS is not there over SMB"
umount /mnt

try "$3"
for _ in $(seq 100); do
    [ -b /dev/sda ] && break
    sleep 0.1
done
mkfs.ext4 -q -F /dev/sda
e2fsck -fn /dev/sda || fail "what was written to the LUN cannot be read"
iscsiadm -m node --logoutall=all
say clean
