#!/bin/bash
# Runs in the guest: pjdfstest on a share over NFSv4.1.
# usage: pjdfstest.sh TOOLS ADDRESS NFS_PORT EXPORT
set -euo pipefail

tools=$1 address=$2 nfs_port=$3 export=$4

modprobe -a nfs nfsv4 2>/dev/null || true
mkdir /run/mnt
options="vers=4.1,addr=$address,port=$nfs_port,proto=tcp,sec=sys,hard,clientaddr=10.99.0.2"
mount -i -t nfs4 -o "$options" "$address:$export" /run/mnt
mkdir -m 755 /run/mnt/pjdfstest
cd /run/mnt/pjdfstest
# Its exit code tells whether all passed; who reads this judges by name.
"$tools/pjdfstest" -c "$tools/pjdfstest.toml" -p /run/mnt/pjdfstest || true
cd /
umount /run/mnt
echo "GUEST clean"
