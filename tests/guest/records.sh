#!/bin/bash
# Runs in the guest: appends numbered records to a file on a share, each synced, while servers are killed and started.
# usage: records.sh SECONDS CLIENT NAMES ADDRESS NFS_PORT MOUNT_PORT EXPORT SMB_PORT SHARE USER PASSWORD
# CLIENT is nfs3, nfs4.0, nfs4.1, nfs4.2 or cifs; NAMES is "names" if names are to be changed as well.
set -euo pipefail

seconds=$1 client=$2 names=$3
shift 3
address=$1 nfs_port=$2 mount_port=$3 export=$4 smb_port=$5 share=$6 user=$7 password=$8
. "$(dirname "$0")/clients.sh"

mount_client "$client"
say loading
end=$((SECONDS + seconds)) number=0
while [ "$SECONDS" -lt "$end" ]; do
    number=$((number + 1))
    printf 'record %08d\n' "$number" | dd of=/run/mnt/records oflag=append conv=notrunc,fsync status=none
    [ "$names" = names ] || continue
    # Each must be done once, however often it was sent.
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
