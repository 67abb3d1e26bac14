#!/bin/bash
# Runs in the guest: appends numbered records to a file on an NFS share, each synced, while servers are killed and started.
# usage: records.sh SECONDS ADDRESS NFS_PORT MOUNT_PORT EXPORT VERSION
set -euo pipefail

seconds=$1 address=$2 nfs_port=$3 mount_port=$4 export=$5 version=$6
. "$(dirname "$0")/clients.sh"

mount_client "nfs$version"
say loading
end=$((SECONDS + seconds)) number=0
while [ "$SECONDS" -lt "$end" ]; do
    number=$((number + 1))
    printf 'record %08d\n' "$number" | dd of=/run/mnt/records oflag=append conv=notrunc,fsync status=none
    # Names are changed as well: each must be done once, however often it was sent.
    mkdir "/run/mnt/folder$number"
    mv "/run/mnt/folder$number" "/run/mnt/moved$number"
    rmdir "/run/mnt/moved$number"
done
echo 3 >/proc/sys/vm/drop_caches
seq -f 'record %08.0f' "$number" | cmp - /run/mnt/records || fail "records are missing"
[ "$(ls /run/mnt)" = records ] || fail "names are left over: $(ls /run/mnt | head)"
umount /run/mnt
say "wrote $number records"
say clean
