#!/bin/bash
# Runs a script as root in user-mode Linux: a real kernel with a real iSCSI initiator, as an ordinary process.
#
#   uml-run.sh network NAME                 makes the network namespace NAME with a tap device: host 10.99.0.1
#   uml-run.sh remove NAME                  takes it away
#   uml-run.sh run NAME SCRIPT ARGUMENT...  boots on this machine's own root, runs SCRIPT, exits with its exit code
#
# The guest has address 10.99.0.2 and reaches only what listens inside the namespace. It sees this machine's files, so a
# script keeps its own below /run, which is the guest's alone. GUEST_LIMIT_S (300) ends it, GUEST_MEMORY (1024M) holds it.
# GUEST_PRELOAD is preloaded into it instead of what lets it run on processors newer than it knows.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
registers=$root/build/uml/wide_registers.so

fail() { echo "uml-run.sh: $*" >&2; exit 1; }

make_network() {
    ip netns add "$1"
    ip -n "$1" link set lo up
    ip -n "$1" tuntap add dev tap0 mode tap
    ip -n "$1" addr add 10.99.0.1/24 dev tap0
    ip -n "$1" link set tap0 up
}

# Debian keeps the modules of this kernel where modprobe does not look.
link_modules() {
    local modules version
    modules=$(echo /usr/lib/uml/modules/*)
    [ -d "$modules" ] || fail "the package user-mode-linux is missing"
    version=$(basename "$modules")
    if [ ! -e "/lib/modules/$version" ]; then
        mkdir -p /lib/modules
        ln -s "$modules" "/lib/modules/$version"
        depmod "$version"
    fi
}

build_preload() {
    local source=$root/tests/guest/wide_registers.c unfinished
    [ "$registers" -nt "$source" ] && return
    mkdir -p "${registers%/*}"
    # Guests that start at once must not see half of it.
    unfinished=$(mktemp "$registers.XXXXXX")
    cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$unfinished" "$source"
    mv "$unfinished" "$registers"
}

run_guest() {
    local name=$1 work result init
    shift
    link_modules
    build_preload
    work=$(mktemp -d)
    # The children of this shell see its variables at exit.
    trap "rm -rf '$work'" EXIT
    result=$work/result
    init=$work/init
    {
        echo '#!/bin/bash'
        echo 'export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root'
        echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /run'
        echo 'mount -t devtmpfs dev /dev 2>/dev/null; mkdir -p /dev/shm /dev/pts'
        echo 'mount -t tmpfs tmpfs /dev/shm; mount -t devpts devpts /dev/pts'
        echo 'ip link set lo up; ip addr add 10.99.0.2/24 dev vec0; ip link set vec0 up'
        printf 'bash'
        printf ' %q' "$@"
        printf '\necho $? >%q\nsync\nbusybox poweroff -f\n' "$result"
    } >"$init"
    chmod +x "$init"
    ip netns exec "$name" timeout -k 5 "${GUEST_LIMIT_S:-300}" \
        env "LD_PRELOAD=${GUEST_PRELOAD:-$registers}" linux.uml "mem=${GUEST_MEMORY:-1024M}" quiet loglevel=3 rootfstype=hostfs rootflags=/ rw \
        "init=$init" con=null con0=fd:0,fd:1 vec0:transport=tap,ifname=tap0,depth=128,gro=1 </dev/null || true
    [ -s "$result" ] || fail "the guest did not reach the end of its script"
    exit "$(cat "$result")"
}

case ${1:-} in
network) make_network "${2:?name}" ;;
remove) ip netns del "${2:?name}" ;;
run)
    shift
    run_guest "$@"
    ;;
*) fail "usage: uml-run.sh network|remove|run NAME [SCRIPT ARGUMENT...]" ;;
esac
