#!/bin/bash
# Runs in the guest: appends numbered records to a file on an NFS share, each synced, while servers are killed and started.
# usage: records.sh SECONDS ADDRESS NFS_PORT MOUNT_PORT EXPORT VERSION
set -euo pipefail

seconds=$1 address=$2 nfs_port=$3 mount_port=$4 export=$5 version=$6
options="vers=$version,addr=$address,port=$nfs_port,proto=tcp,sec=sys,hard"
[ "$version" != 3 ] || options+=",mountaddr=$address,mountport=$mount_port,mountproto=tcp,nolock"
[ "$version" = 3 ] || options+=",clientaddr=10.99.0.2"

modprobe -a nfs nfsv3 nfsv4 2>/dev/null || true
mkdir /run/mnt
mount -i -t "$([ "$version" = 3 ] && echo nfs || echo nfs4)" -o "$options" "$address:$export" /run/mnt
echo "GUEST loading"
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
seq -f 'record %08.0f' "$number" | cmp - /run/mnt/records || { echo "GUEST records are missing"; exit 1; }
[ "$(ls /run/mnt)" = records ] || { echo "GUEST names are left over: $(ls /run/mnt | head)"; exit 1; }
umount /run/mnt
echo "GUEST wrote $number records"
echo "GUEST clean"
