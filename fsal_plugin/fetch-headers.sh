#!/bin/sh
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Fetches the source package of nfs-ganesha for its headers (Debian has no -dev package)
# and unpacks it to BUILD_DIR/nfs-ganesha-4.3.  How, and without touching the machine's
# own apt configuration: scripts/apt-source.sh.  Running it again is a no-op.
#
# A mirror that lacks Debian's part of the package will do: the headers are in upstream's.
#
# usage: fetch-headers.sh [BUILD_DIR]

set -eu

version=4.3
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../build}
headers=$build/nfs-ganesha-$version

if [ -f "$headers/.complete" ]; then
    exit 0
fi

for tool in apt-get dpkg-source; do
    if ! command -v "$tool" >/dev/null; then
        echo "fetch-headers.sh: $tool is missing; install the packages apt and dpkg-dev" >&2
        exit 1
    fi
done

# The lists that apt-source.sh has left are used once more.
fetch_upstream_archive() {
    private=$here/../build/apt-source
    (cd "$1" && apt-get -q -o Dir::Etc::sourcelist="$private/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$private/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root --only-source --tar-only source nfs-ganesha)
}

if ! "$here/../scripts/apt-source.sh" nfs-ganesha "$build"; then
    echo "fetch-headers.sh: trying without Debian's part of the package" >&2
    unpacking=$(mktemp -d "$build/.unpacking.XXXXXX")
    trap 'rm -rf "$unpacking"' EXIT
    fetch_upstream_archive "$unpacking"
    tar -C "$unpacking" -xf "$unpacking/nfs-ganesha_$version.orig.tar.gz"
    mv "$unpacking/nfs-ganesha-$version" "$headers"
fi
if [ ! -f "$headers/src/include/fsal_api.h" ]; then
    echo "fetch-headers.sh: the archive does not offer nfs-ganesha $version; the plugin is written for exactly that version" >&2
    exit 1
fi
touch "$headers/.complete"
echo "fetch-headers.sh: headers of nfs-ganesha $version in $headers"
