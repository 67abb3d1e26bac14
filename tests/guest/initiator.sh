#!/bin/bash
# Runs in the guest: logs in to a LUN, makes a file system, loads it with verified I/O, checks it.
# usage: initiator.sh PORTAL_ADDRESS PORT IQN
set -euo pipefail

address=$1
port=$2
iqn=$3

say() { echo "GUEST $*"; }

modprobe -a iscsi_tcp sd_mod crc32c_generic ext4 2>/dev/null || modprobe -a iscsi_tcp sd_mod
iscsistart -i iqn.2026-01.test.tombolo:guest -t "$iqn" -g 1 -a "$address" -p "$port"

disk=
for _ in $(seq 100); do
    for candidate in /sys/block/sd*; do
        [ -e "$candidate" ] && disk=/dev/$(basename "$candidate")
    done
    [ -n "$disk" ] && break
    sleep 0.1
done
[ -n "$disk" ] || { say "no disk after login"; exit 1; }
say "disk $disk, write cache $(cat "/sys/block/$(basename "$disk")/queue/write_cache")"

mkfs.ext4 -q -F "$disk"
mkdir /run/mnt
mount "$disk" /run/mnt
say loading
# About half a minute, in which the daemon may be killed. Direct, so that verification reads from the LUN.
fio --name=guest --directory=/run/mnt --rw=randwrite --bs=4k --size=160M --rate=6m --ioengine=psync --direct=1 --fsync=32 \
    --verify=crc32c --do_verify=1 --verify_fatal=1 --eta=never --output=/run/fio.txt ||
    { cat /run/fio.txt; say "fio failed"; exit 1; }
umount /run/mnt
e2fsck -fn "$disk"
dmesg | grep -E "I/O error|EXT4-fs error" && { say "the kernel reported errors"; exit 1; }
say clean
