#!/bin/bash
# Runs in the guest: pjdfstest on a share over NFSv4.1.
# usage: pjdfstest.sh TOOLS ADDRESS NFS_PORT EXPORT
set -euo pipefail

tools=$1 address=$2 nfs_port=$3 export=$4

. "$(dirname "$0")/clients.sh"

mount_client nfs4.1
mkdir -m 755 /run/mnt/pjdfstest
cd /run/mnt/pjdfstest
# Its exit code tells whether all passed; who reads this judges by name.
"$tools/pjdfstest" -c "$tools/pjdfstest.toml" -p /run/mnt/pjdfstest || true
cd /
umount /run/mnt
say clean
