#!/bin/bash
# Runs in the guest: everyday programs on an NFS share, as harness/suites.py has them.
# usage: work.sh PYTHON TESTS SOURCE ADDRESS NFS_PORT MOUNT_PORT EXPORT VERSION WORK...
# SOURCE is a folder for what is unpacked, cloned and logged; WORK are names of work.py.
set -euo pipefail

python=$1 tests=$2 source=$3 address=$4 nfs_port=$5 mount_port=$6 export=$7 version=$8
shift 8
. "$(dirname "$0")/clients.sh"

mount_client "nfs$version"
PYTHONPATH=$tests PYTHONDONTWRITEBYTECODE=1 "$python" "$tests/guest/work.py" /run/mnt "$source" "$@" || fail "work"
umount /run/mnt
say clean
