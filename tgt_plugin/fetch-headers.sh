#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Fetches the source package of tgt for its headers (Debian has no tgt-dev) and
# unpacks it to BUILD_DIR/tgt-1.0.85.
#
# The machine's own apt configuration is not touched: a private list of deb-src
# entries is derived from the deb entries that the machine already uses, with
# their keyrings, and apt keeps its indexes in BUILD_DIR.  apt verifies Debian's
# signature of the archive and through it the checksums of the source package.
# Running it again is a no-op.
#
# usage: fetch-headers.sh [BUILD_DIR]

set -eu

version=1.0.85
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../build}
mkdir -p "$build"
build=$(cd "$build" && pwd)
headers=$build/tgt-$version
apt=$build/apt-tgt

if [ -f "$headers/.complete" ]; then
    exit 0
fi

for tool in apt-get dpkg-source; do
    if ! command -v "$tool" >/dev/null; then
        echo "fetch-headers.sh: $tool is missing; install the packages apt and dpkg-dev" >&2
        exit 1
    fi
done

rm -rf "$apt" "$headers"
mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/archives/partial" "$apt/source"

# deb822 files: the same stanzas, of type deb-src.
for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/sources/$(basename "$file")"
done
# One-line files: each "deb" line as "deb-src".
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    sed -n 's/^deb[[:space:]]/deb-src /p' "$file" >"$apt/sources/$(basename "$file" .list)-lines.list"
done

private_apt_get() {
    apt-get -q \
        -o Dir::Etc::sourcelist=/dev/null \
        -o Dir::Etc::sourceparts="$apt/sources" \
        -o Dir::State::lists="$apt/lists" \
        -o Dir::Cache::archives="$apt/archives" \
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root \
        -o APT::Get::AllowUnauthenticated=false \
        -o Acquire::Retries=3 \
        "$@"
}

private_apt_get update

# The newest Debian revision of exactly this upstream version.
package_version=$(private_apt_get source --print-uris --only-source tgt |
    sed -n "s/.*[ _]tgt_\\($version-[^ ]*\\)\\.dsc .*/\\1/p" | head -n 1)
if [ -z "$package_version" ]; then
    echo "fetch-headers.sh: the archive does not offer tgt $version; the plugin is written for exactly that version" >&2
    exit 1
fi

(cd "$apt/source" && private_apt_get source --only-source tgt)
if [ ! -f "$apt/source/tgt-$version/usr/tgtd.h" ]; then
    echo "fetch-headers.sh: tgt $package_version holds no usr/tgtd.h" >&2
    exit 1
fi

mv "$apt/source/tgt-$version" "$headers"
rm -rf "$apt"
touch "$headers/.complete"
echo "fetch-headers.sh: headers of tgt $package_version in $headers"
