#!/bin/bash
# A gateway on loopback in ./run with one 10 GiB LUN over iSCSI, and one share that is mounted at ./run/share and served
# over NFS and SMB: run.sh [--detach|--stop]
#
# STORE=dir (default) keeps objects in ./run/store; STORE=s3 starts an S3 server over ./run/objects.
# ADDRESS=127.0.0.1 (default) is all that the servers listen on. At another address, whoever reaches it may use the LUN,
# and the share over NFS, as root.
# RUN_FOLDER=./run (default) keeps all of it. What was written stays there for the next time.
# Ctrl-C, or --stop after --detach, ends every process started here, by its id.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/progress.sh
# A plain `su` leaves it without the folders of the servers.
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p "${RUN_FOLDER:-run}"
run=$(realpath "${RUN_FOLDER:-run}")
pids=$run/pids
volume=lun0
size=10GiB
store=${STORE:-dir}
address=${ADDRESS:-127.0.0.1}
share=share
# Compiled into tgtd and ganesha. They see the plugins' build folders mounted there; the machine keeps what it has
# installed.
modules=/usr/lib/tgt/backing-store
nfs_modules=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/ganesha
access_key=tombolo-run
secret_key=tombolo-run-secret
smb_password=tombolo-run

say() { printf 'run: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("'"$address"'", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS WHAT NAME COMMAND...: until the command succeeds. Fails early when what was launched as NAME has ended.
wait_for() {
    local limit=$1 what=$2 name=$3 why="no $2 within $1 s"
    shift 3
    for ((tick = 0; tick < limit * 20; tick++)); do
        "$@" >/dev/null 2>&1 && return
        is_running "$name" || { why="no $what: it has ended"; break; }
        sleep 0.05
    done
    fail "$why; $run/$name.log ends with: $(last_line "$run/$name.log")"
}

# Written as PID and start time, so that a recycled id is never signalled.
started_at() { awk '{ print $22 }' "/proc/$1/stat" 2>/dev/null || true; }

launch() { # NAME COMMAND...
    local name=$1
    shift
    # What the last use has logged stays for a look.
    [ ! -s "$run/$name.log" ] || mv "$run/$name.log" "$run/$name.log.old"
    setsid "$@" </dev/null >"$run/$name.log" 2>&1 &
    local pid=$!
    launched=$pid
    echo "$name $pid $(started_at "$pid")" >>"$pids"
}

is_ours() { [ -n "$2" ] && [ "$(started_at "$1")" = "$2" ]; }

end_one() { # NAME PID START SIGNAL
    is_ours "$2" "$3" || return 0
    kill "-$4" "$2" 2>/dev/null || return 0
    for ((tick = 0; tick < 600; tick++)); do
        is_ours "$2" "$3" && [ "$(awk '{ print $3 }' "/proc/$2/stat" 2>/dev/null)" != Z ] || return 0
        sleep 0.05
    done
    say "$1 ($2) does not end; killing it"
    kill -KILL "$2" 2>/dev/null || true
}

# In the reverse of their order of start: first what serves clients, last the store.
stop_all() {
    [ -f "$pids" ] || return 0
    local name pid start
    while read -r name pid start; do
        case $name in
        # tgtd ignores SIGTERM while it has targets, and keeps nothing.
        tgtd) end_one "$name" "$pid" "$start" KILL ;;
        s3) end_one "$name" "$pid" "$start" KILL ;;
        *) end_one "$name" "$pid" "$start" TERM ;;
        esac
    done < <(tac "$pids")
    # Its holder takes the mount away, unless it was killed.
    if is_mounted; then umount -l "$run/share"; fi
    rm -f "$pids"
}

# Read from the kernel's list: a look at the folder itself could wait for a gateway that is gone.
is_mounted() { grep -qF " $run/share " /proc/self/mountinfo; }

# is_running [NAME]: whether what was launched as NAME, or anything, runs
is_running() {
    [ -f "$pids" ] || return 1
    local name pid start
    while read -r name pid start; do
        [ "$name" = "${1:-$name}" ] && is_ours "$pid" "$start" && return 0
    done <"$pids"
    return 1
}

tombolo() { "$binary" --socket "$run/runtime/admin.sock" "$@"; }

build() {
    if [ -n "${TOMBOLO_BINARY:-}" ]; then
        binary=$TOMBOLO_BINARY
        build_plugins
    else
        say "building; the first time takes some minutes"
        at_once build_plugins 'cargo build --locked -p tombolo'
        binary=$(scripts/build-folder.sh)/debug/tombolo
    fi
    mkdir -p "$modules" "$nfs_modules"
}

build_plugins() {
    make -s -C tgt_plugin all
    make -s -C fsal_plugin all
}

start_s3() {
    s3_port=$(free_port)
    mkdir -p "$run/objects"
    ROOT_ACCESS_KEY=$access_key ROOT_SECRET_KEY=$secret_key launch s3 build/bin/versitygw \
        --port "127.0.0.1:$s3_port" --quiet --keep-alive posix "$run/objects"
    export AWS_ACCESS_KEY_ID=$access_key AWS_SECRET_ACCESS_KEY=$secret_key AWS_REGION=us-east-1
    wait_for 20 "S3 server" s3 bash -c "exec 3<>/dev/tcp/127.0.0.1/$s3_port"
    .venv/bin/python - "http://127.0.0.1:$s3_port" <<'PYTHON'
import sys

import boto3

client = boto3.client("s3", endpoint_url=sys.argv[1])
if "tombolo" not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
    client.create_bucket(Bucket="tombolo")
PYTHON
}

write_settings() {
    metrics_port=$(free_port)
    {
        echo "state_directory = \"$run/state-$store\""
        echo "runtime_directory = \"$run/runtime\""
        echo
        echo "[store]"
        if [ "$store" = s3 ]; then
            echo 'url = "s3://tombolo/gateway"'
            echo "endpoint = \"http://127.0.0.1:$s3_port\""
            echo "allow_http = true"
        else
            echo "url = \"dir:$run/store\""
        fi
        echo
        echo "[cache]"
        echo 'size = "4GiB"'
        echo
        echo "[flush]"
        echo 'dirty_bytes_max = "2GiB"'
        echo
        echo "[metrics]"
        echo "listen = \"127.0.0.1:$metrics_port\""
    } >"$run/tombolo.toml"
}

start_all() {
    mkdir -p "$run/runtime" "$run/store" "$run/state-$store"
    : >"$pids"
    [ "$store" != s3 ] || start_s3
    write_settings
    launch tombolo "$binary" serve --config "$run/tombolo.toml"
    wait_for 60 gateway tombolo tombolo status
    tombolo volume list --json | grep -q "\"$volume\"" || tombolo volume create "$volume" --size "$size" >/dev/null
    iscsi_port=$(free_port)
    export TGT_IPC_SOCKET=$run/runtime/tgtd.ipc
    rm -f "$TGT_IPC_SOCKET"*
    launch tgtd unshare --mount sh -c "mount --bind '$root/build/tgt_plugin/release' $modules && exec \"\$@\"" sh \
        tgtd -f -C 0 --iscsi "portal=$address:$iscsi_port"
    wait_for 20 tgtd tgtd tgtadm -C 0 --lld iscsi --op show --mode target
    tombolo export iscsi "$volume" --apply >/dev/null
    iqn=$(tgtadm -C 0 --lld iscsi --op show --mode target | sed -n 's/^Target [0-9]*: //p' | head -n 1)
    lun=iscsi://$address:$iscsi_port/$iqn/1
    start_mount
    start_nfs
    start_smb
}

start_mount() {
    tombolo share list --json | grep -q "\"$share\"" || tombolo share create "$share" >/dev/null
    mkdir -p "$run/share"
    launch mount "$binary" --socket "$run/runtime/admin.sock" share mount "$share" "$run/share"
    wait_for 20 mount mount is_mounted
}

# Ganesha must register with a port mapper while it starts. It finds one of its own in a private /run, and the port mapper
# has a network of its own, so that neither disturbs what the machine runs.
start_nfs() {
    nfs_port=$(free_port)
    mount_port=$(free_port)
    # Only clients of the address reach it at all.
    tombolo export nfs "$share" --rewrite --v3 --bind "$address" --port "$nfs_port" --mount-port "$mount_port" \
        --client '*' --no-root-squash --directory "$run/ganesha" --pid-file "$run/ganesha/ganesha.pid" >/dev/null
    launch rpcbind unshare --mount --net sh -c "mount -t tmpfs tmpfs /run && mount --bind '$root/build/fsal_plugin/release' \
        $nfs_modules && ip link set lo up && exec rpcbind -f -w"
    local port_mapper=$launched
    wait_for 20 "port mapper" rpcbind is_private_socket "$port_mapper"
    launch nfs nsenter --mount="/proc/$port_mapper/ns/mnt" ganesha.nfsd -F -L /dev/stdout \
        -f "$run/ganesha/ganesha.conf" -p "$run/ganesha/ganesha.pid"
    wait_for 60 "NFS server" nfs grep -q "NFS SERVER INITIALIZED" "$run/nfs.log"
    disown "$port_mapper" # So that the shell does not report its end.
    kill -KILL "$port_mapper"
}

is_private_socket() { # PID
    [ "$(readlink "/proc/$1/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ] && [ -S "/proc/$1/root/run/rpcbind.sock" ]
}

start_smb() {
    smb_port=$(free_port)
    tombolo export smb "$share" --rewrite --mount-dir "$run/share" --bind "$address" --port "$smb_port" \
        --directory "$run/samba" >/dev/null
    printf '%s\n%s\n' "$smb_password" "$smb_password" | smbpasswd -c "$run/samba/smb.conf" -s -a root >/dev/null
    launch smbd smbd -F --no-process-group -s "$run/samba/smb.conf"
    wait_for 20 "SMB server" smbd bash -c "exec 3<>/dev/tcp/$address/$smb_port"
}

print_commands() {
    local cli="$binary --socket $run/runtime/admin.sock"
    {
        cat <<TEXT
Tombolo serves the volume $volume ($size) and the share $share; their objects go to $([ "$store" = s3 ] && echo "s3://tombolo/gateway at http://127.0.0.1:$s3_port" || echo "$run/store").

  iSCSI   $lun
  NBD     nbd+unix:///$volume?socket=$run/runtime/nbd.sock
  NFS     $address:/$share, port $nfs_port (version 3: MOUNT at port $mount_port, no locks)
  SMB     //$address/$share, port $smb_port, user root, password $smb_password
  Folder  $run/share
  Metrics http://127.0.0.1:$metrics_port/metrics
  Key     $run/state-$store/master.key (of your own gateways keep a copy: without it nothing in the store can be read)

Look at it
  iscsi-ls -s iscsi://$address:$iscsi_port
  nbdinfo 'nbd+unix:///$volume?socket=$run/runtime/nbd.sock'
  $cli status

Write a file-system image and read it back
  truncate -s 1G $run/demo.img && mkfs.ext4 -q -F -d /usr/share/doc $run/demo.img
  qemu-img convert -n -f raw -O raw $run/demo.img $lun
  qemu-img compare -f raw -F raw $run/demo.img $lun

Push everything to the store and see how little a second copy adds
  $cli drain --wait
  $cli volume create copy --size 10GiB
  qemu-img convert -n -f raw -O raw $run/demo.img 'nbd+unix:///copy?socket=$run/runtime/nbd.sock'
  $cli drain --wait && $cli status

One share through three protocols
  cp -r /usr/share/doc/bash $run/share/
  nfs-ls 'nfs://$address/$share/bash?version=3&nfsport=$nfs_port&mountport=$mount_port'
  smbclient -p $smb_port -U root%$smb_password //$address/$share -c 'ls bash/*'

With Linux's NFS and SMB clients (packages nfs-common, cifs-utils)
  mount -t nfs4 -o port=$nfs_port $address:/$share /mnt
  mount -t cifs -o port=$smb_port,username=root,password=$smb_password //$address/$share /mnt

With Linux's initiator (package open-iscsi)
  iscsiadm -m discovery -t sendtargets -p $address:$iscsi_port && iscsiadm -m node -T $iqn --login
TEXT
    } | tee "$run/commands.txt"
    printf '%s\n' "$lun" >"$run/lun.url"
}

case ${1:-} in
--stop)
    stop_all
    exit 0
    ;;
--detach | "") ;;
*) fail "usage: run.sh [--detach|--stop]" ;;
esac

case $store in
dir | s3) ;;
*) fail "STORE=$store: expected dir or s3" ;;
esac
[ "$(id -u)" -eq 0 ] || fail "tgtd, ganesha and the mount need root"
is_running && fail "a gateway runs from $run already; end it with: make stop"
build
trap stop_all EXIT
trap 'exit 130' INT TERM
start_all
print_commands
if [ "${1:-}" = --detach ]; then
    trap - EXIT
    echo
    echo "Running in the background; end it with: make stop"
    exit 0
fi
echo
echo "Ctrl-C ends it; the data stays in $run."
# Ends when the gateway does, or at Ctrl-C.
read -r _ gateway_pid gateway_start < <(grep '^tombolo ' "$pids")
while is_ours "$gateway_pid" "$gateway_start"; do
    sleep 0.5
done
fail "the gateway ended by itself; see $run/tombolo.log"
