#!/bin/bash
# Installs what a task of the Makefile needs, on a Debian 12 machine: setup.sh build|run|simulate|test|bench|conformance
#
# Every step looks first whether its result is there, so that a second run takes a moment. All results lie below
# build/ and .venv/, apart from Debian packages. A service that a package brings along is not started.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

versitygw_version=v1.8.0
pjdfstest_version=0.2.2
fsx_version=0.3.2
rust_version_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

packages_build=(
    build-essential ca-certificates clang dpkg-dev libacl1-dev libnbd-dev libntirpc-dev liburcu-dev nfs-ganesha pkg-config
    python3 python3-venv
)
packages_run=(
    "${packages_build[@]}" e2fsprogs fuse3 iproute2 libiscsi-bin libnbd-bin libnfs-utils qemu-block-extra qemu-utils
    rpcbind samba samba-vfs-modules smbclient tgt util-linux
)
packages_simulate=("${packages_build[@]}" libdb5.3-dev nbdkit python3-dev)
packages_test=(
    "${packages_run[@]}" "${packages_simulate[@]}" acl attr git libaio-dev libiscsi-dev libnfs13 nfs-ganesha-vfs
    postgresql-15 prometheus rsync systemd zlib1g-dev
)
packages_bench=("${packages_test[@]}" libfuse3-dev zstd)
packages_conformance=(
    "${packages_test[@]}" busybox-static fio kmod open-iscsi samba-testsuite user-mode-linux
)

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

version_at_least() { # FOUND WANTED
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

install_packages() {
    local wanted=() package state
    for package in "$@"; do
        state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
        [ "${state:0:2}" = ii ] || wanted+=("$package")
    done
    [ "${#wanted[@]}" -eq 0 ] && return
    [ "$(id -u)" -eq 0 ] || fail "these Debian packages are missing and only root may install them: ${wanted[*]}"
    say "installing ${wanted[*]}"
    # The standard way to tell a package's scripts that no service may be started now.
    local refuse=/usr/sbin/policy-rc.d placed=
    if [ ! -e "$refuse" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$refuse"
        chmod +x "$refuse"
        placed=$refuse
        trap 'rm -f "$placed"' EXIT
    fi
    mkdir -p build
    {
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -q -y --no-install-recommends "${wanted[@]}"
    } >build/apt.log 2>&1 || { tail -n 20 build/apt.log >&2; fail "apt-get failed; the whole output is in build/apt.log"; }
    if [ -n "$placed" ]; then
        rm -f "$placed"
        trap - EXIT
    fi
}

check_rust() {
    local advice="install Rust $rust_version_min or newer with rustup (https://rustup.rs), with the components rustfmt and clippy; Debian 12's own cargo is too old"
    command -v cargo >/dev/null || fail "cargo is missing: $advice"
    local found
    found=$(cargo --version | awk '{ print $2 }')
    version_at_least "$found" "$rust_version_min" || fail "cargo $found is too old: $advice"
}

check_rust_lints() {
    cargo fmt --version >/dev/null 2>&1 || fail "rustfmt is missing: rustup component add rustfmt"
    cargo clippy --version >/dev/null 2>&1 || fail "clippy is missing: rustup component add clippy"
}

install_versitygw() {
    [ -x build/bin/versitygw ] && [ "$(cat build/bin/versitygw.version 2>/dev/null)" = "$versitygw_version" ] && return
    command -v go >/dev/null ||
        fail "go is missing, and versitygw, the S3 server of the tests, is built with it: install a current Go from https://go.dev/dl (Debian 12's golang is too old)"
    say "building versitygw $versitygw_version"
    mkdir -p build/bin
    GOBIN=$root/build/bin go install "github.com/versity/versitygw/cmd/versitygw@$versitygw_version" >build/versitygw.log 2>&1 ||
        { tail -n 20 build/versitygw.log >&2; fail "versitygw could not be built"; }
    echo "$versitygw_version" >build/bin/versitygw.version
}

install_python() { # LOCK-FILE...
    local lock locked stamp
    for lock in "$@"; do
        stamp=.venv/${lock//\//-}.sha256
        locked=$(sha256sum "$lock" | cut -d ' ' -f 1)
        [ "$(cat "$stamp" 2>/dev/null)" = "$locked" ] && continue
        say "filling .venv from $lock"
        [ -x .venv/bin/python ] || python3 -m venv .venv
        .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed"
        .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r "$lock"
        echo "$locked" >"$stamp"
    done
}

install_fio() {
    [ -x build/fio/fio ] && return
    say "building fio with its libiscsi engine"
    scripts/build-fio.sh
}

# Below build/, so that what the developer has installed stays as it is.
install_crate() { # NAME VERSION
    [ -x "build/bin/$1" ] && [ "$(cat "build/bin/$1.version" 2>/dev/null)" = "$2" ] && return
    say "building $1 $2"
    cargo install "$1" --version "$2" --locked --root build -q >"build/$1.log" 2>&1 ||
        { tail -n 20 "build/$1.log" >&2; fail "$1 could not be built"; }
    echo "$2" >"build/bin/$1.version"
}

case ${1:-} in
build)
    install_packages "${packages_build[@]}"
    check_rust
    ;;
run)
    install_packages "${packages_run[@]}"
    check_rust
    [ "${STORE:-dir}" != s3 ] || { install_versitygw; install_python tests/requirements.txt; }
    ;;
simulate)
    install_packages "${packages_simulate[@]}"
    check_rust
    install_python tests/requirements.txt simulator/python/requirements.txt
    ;;
test)
    install_packages "${packages_test[@]}"
    check_rust
    check_rust_lints
    install_versitygw
    install_python tests/requirements.txt simulator/python/requirements.txt
    install_fio
    install_crate fsx "$fsx_version"
    install_crate pjdfstest "$pjdfstest_version"
    ;;
bench)
    install_packages "${packages_bench[@]}"
    check_rust
    install_versitygw
    install_python tests/requirements.txt simulator/python/requirements.txt tests/bench/requirements.txt
    install_fio
    ;;
conformance)
    install_packages "${packages_conformance[@]}"
    check_rust
    install_versitygw
    install_python tests/requirements.txt
    install_fio
    install_crate fsx "$fsx_version"
    install_crate pjdfstest "$pjdfstest_version"
    ;;
*)
    fail "usage: setup.sh build|run|simulate|test|bench|conformance"
    ;;
esac
