#!/bin/bash
# Installs what a task of the Makefile needs, on a Debian 12 machine: setup.sh build|run|simulate|test|mutants|bench|conformance
#
# Every step looks first whether its result is there, so that a second run takes a moment. All results lie below
# build/ and .venv/, apart from Debian packages; tests look for programs in build/bin and nowhere else. A service that a
# package brings along is not started.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/progress.sh

versitygw_version=v1.8.0
pjdfstest_version=0.2.2
cargo_mutants_version=27.1.0
fsx_version=0.3.2
rust_version_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

packages_build=(
    build-essential ca-certificates dpkg-dev libacl1-dev libkrb5-dev libnbd-dev libntirpc-dev liburcu-dev nfs-ganesha
    pkg-config python3 python3-venv
)
packages_run=(
    "${packages_build[@]}" e2fsprogs file fuse3 iproute2 libiscsi-bin libnbd-bin libnfs-utils qemu-block-extra qemu-utils
    rpcbind samba samba-vfs-modules smbclient tgt util-linux
)
packages_simulate=("${packages_build[@]}" libdb5.3-dev nbdkit python3-dev)
packages_test=(
    "${packages_run[@]}" "${packages_simulate[@]}" acl attr git libaio-dev libiscsi-dev libnfs13 nfs-ganesha-vfs
    postgresql-15 prometheus rsync systemd zlib1g-dev
)
packages_bench=("${packages_test[@]}" libfuse3-dev rclone s3backer s3fs zstd)
packages_conformance=(
    "${packages_test[@]}" busybox-static cifs-utils fio kmod nfs-common open-iscsi samba-testsuite user-mode-linux
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
    local refuse=/usr/sbin/policy-rc.d
    if [ ! -e "$refuse" ]; then
        # For the trap, which runs when this function's own variables are gone.
        refusing=$refuse
        trap 'rm -f "$refusing"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$refuse"
        chmod +x "$refuse"
    fi
    with_progress "installing Debian packages" build/apt.log fetch_and_install "${wanted[@]}"
    [ -z "${refusing:-}" ] || rm -f "$refusing"
    trap - EXIT
}

fetch_and_install() { # PACKAGE...
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -q -y --no-install-recommends "$@"
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

# has NAME VERSION: whether build/bin has it.
has() { [ -x "build/bin/$1" ] && [ "$(cat "build/bin/$1.version" 2>/dev/null)" = "$2" ]; }

install_versitygw() {
    has versitygw "$versitygw_version" && return
    command -v go >/dev/null ||
        fail "go is missing, and versitygw, the S3 server of the tests, is built with it: install a current Go from https://go.dev/dl (Debian 12's golang is too old)"
    mkdir -p build/bin
    GOBIN=$root/build/bin CGO_ENABLED=0 with_progress "building versitygw $versitygw_version" build/versitygw.log \
        go install -v -ldflags=-w "github.com/versity/versitygw/cmd/versitygw@$versitygw_version"
    echo "$versitygw_version" >build/bin/versitygw.version
}

install_python() { # LOCK-FILE...
    local lock locked stamp
    for lock in "$@"; do
        stamp=.venv/${lock//\//-}.sha256
        locked=$(sha256sum "$lock" | cut -d ' ' -f 1)
        [ "$(cat "$stamp" 2>/dev/null)" = "$locked" ] && continue
        [ -x .venv/bin/python ] || python3 -m venv .venv
        .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed"
        with_progress "filling .venv from $lock" "build/pip-${lock//\//-}.log" \
            .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "$lock"
        echo "$locked" >"$stamp"
    done
}

install_fio() {
    [ -x build/bin/fio ] && return
    with_progress "building fio with its libiscsi and nbd engines" build/fio.log scripts/build-fio.sh
}

# Below build/, so that what the developer has installed stays as it is.
install_crate() { # NAME VERSION
    has "$1" "$2" && return
    # A test tool that runs for seconds need not be optimised for longer than that.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        with_progress "building $1 $2" "build/$1.log" cargo install "$1" --version "$2" --locked --root build
    echo "$2" >"build/bin/$1.version"
}

fetch_crates() {
    local wanted=(cargo fetch --locked --target "$(rustc -vV | sed -n 's/^host: //p')")
    "${wanted[@]}" --offline -q 2>/dev/null || with_progress "fetching the crates of Cargo.lock" build/fetch.log "${wanted[@]}"
}

check_rust
case ${1:-} in
build)
    at_once 'install_packages "${packages_build[@]}"' fetch_crates
    ;;
run)
    if [ "${STORE:-dir}" = s3 ]; then
        at_once 'install_packages "${packages_run[@]}"' fetch_crates install_versitygw
        install_python tests/requirements.txt
    else
        at_once 'install_packages "${packages_run[@]}"' fetch_crates
    fi
    ;;
simulate)
    at_once 'install_packages "${packages_simulate[@]}"' fetch_crates
    install_python tests/requirements.txt simulator/python/requirements.txt
    ;;
test)
    check_rust_lints
    at_once 'install_packages "${packages_test[@]}"' fetch_crates install_versitygw
    at_once 'install_python tests/requirements.txt simulator/python/requirements.txt' install_fio \
        'install_crate fsx "$fsx_version"' 'install_crate pjdfstest "$pjdfstest_version"'
    ;;
bench)
    at_once 'install_packages "${packages_bench[@]}"' fetch_crates install_versitygw
    at_once 'install_python tests/requirements.txt simulator/python/requirements.txt tests/bench/requirements.txt' install_fio
    ;;
mutants)
    at_once 'install_packages "${packages_build[@]}" patch' fetch_crates
    install_python tests/requirements.txt
    install_crate cargo-mutants "$cargo_mutants_version"
    ;;
conformance)
    at_once 'install_packages "${packages_conformance[@]}"' fetch_crates install_versitygw
    at_once 'install_python tests/requirements.txt' install_fio \
        'install_crate fsx "$fsx_version"' 'install_crate pjdfstest "$pjdfstest_version"'
    ;;
*)
    fail "usage: setup.sh build|run|simulate|test|mutants|bench|conformance"
    ;;
esac
