#!/bin/bash
# Runs in the guest: mounts a share with Linux's own clients and works in it.
# usage: files.sh TOOLS ADDRESS NFS_PORT MOUNT_PORT EXPORT SMB_PORT SHARE USER PASSWORD CLIENT...
# CLIENT is nfs3, nfs4.0, nfs4.1, nfs4.2 or cifs; each gets a folder of its own in the share. TOOLS holds fsx and its settings.
set -euo pipefail

tools=$1 address=$2 nfs_port=$3 mount_port=$4 export=$5 smb_port=$6 share=$7 user=$8 password=$9
shift 9

. "$(dirname "$0")/clients.sh"

forget_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }

large_file() {
    head -c 8M /dev/urandom >/run/large
    cp /run/large "$1/large"
    forget_caches
    cmp /run/large "$1/large" || fail "the large file differs"
    truncate -s 12345 "$1/large"
    forget_caches
    head -c 12345 /run/large | cmp - "$1/large" || fail "the truncated file differs"
}

many_names() {
    mkdir "$1/names"
    for number in $(seq 300); do echo "$number" >"$1/names/file $number"; done
    forget_caches
    [ "$(ls "$1/names" | wc -l)" -eq 300 ] || fail "not 300 names"
    for number in $(seq 1 2 300); do mv "$1/names/file $number" "$1/names/moved $number"; done
    [ "$(ls "$1/names" | grep -c moved)" -eq 150 ] || fail "not 150 moved names"
    [ "$(cat "$1/names/moved 151")" = 151 ] || fail "a moved file has changed"
    rm -r "$1/names"
    [ ! -e "$1/names" ] || fail "the folder of names is still there"
}

# A lock of one process keeps another out.
locks() {
    : >"$1/locked"
    exec 9<>"$1/locked"
    flock -x 9
    if flock -n -x "$1/locked" true; then fail "a locked file was locked again"; fi
    flock -u 9
    flock -n -x "$1/locked" true || fail "a lock that was released is still there"
    exec 9>&-
}

modes_and_links() {
    echo x >"$1/plain"
    chmod 640 "$1/plain"
    chown 1:1 "$1/plain"
    ln "$1/plain" "$1/second"
    ln -s plain "$1/soft"
    forget_caches
    [ "$(stat -c '%a %u %g %h' "$1/second")" = "640 1 1 2" ] || fail "owner, mode or links: $(stat "$1/second")"
    [ "$(readlink "$1/soft")" = plain ] || fail "the symbolic link"
    if setpriv --reuid=65534 --regid=65534 --clear-groups cat "$1/plain" 2>/dev/null; then fail "anybody can read it"; fi
    touch -d '2001-02-03 04:05:06.789' "$1/plain"
    forget_caches
    [ "$(stat -c %y "$1/plain" | cut -c 1-23)" = "2001-02-03 04:05:06.789" ] || fail "time: $(stat -c %y "$1/plain")"
}

holes_and_attributes() {
    truncate -s 1M "$1/sparse"
    echo end >>"$1/sparse"
    fallocate -p -o 0 -l 4096 "$1/sparse"
    [ "$(stat -c %s "$1/sparse")" -eq 1048580 ] || fail "size of the sparse file"
    setfattr -n user.note -v kept "$1/sparse" || { say "no attributes"; return; }
    forget_caches
    [ "$(getfattr --only-values -n user.note "$1/sparse")" = kept ] || fail "the extended attribute"
}

exercise() { # CLIENT
    local folder="/run/mnt/$1"
    mkdir "$folder"
    large_file "$folder"
    many_names "$folder"
    "$tools/fsx" -f "$tools/fsx-network.toml" -q -P /run -S 7 -N 400 "$folder/fsx" || fail "fsx"
    case $1 in
    nfs3) modes_and_links "$folder" ;;
    nfs4.2) locks "$folder"; modes_and_links "$folder"; holes_and_attributes "$folder" ;;
    nfs4.*) locks "$folder"; modes_and_links "$folder" ;;
    cifs) locks "$folder" ;;
    esac
}

for client in "$@"; do
    mount_client "$client"
    exercise "$client"
    umount /run/mnt
    say "$client is done"
done
say clean
