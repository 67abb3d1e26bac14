#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Fetches the source package of tgt for its headers (Debian has no tgt-dev) and
# unpacks it to BUILD_DIR/tgt-1.0.85.  How, and without touching the machine's
# own apt configuration: scripts/apt-source.sh.  Running it again is a no-op.
#
# usage: fetch-headers.sh [BUILD_DIR]

set -eu

version=1.0.85
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../build}
headers=$build/tgt-$version

if [ -f "$headers/.complete" ]; then
    exit 0
fi

for tool in apt-get dpkg-source; do
    if ! command -v "$tool" >/dev/null; then
        echo "fetch-headers.sh: $tool is missing; install the packages apt and dpkg-dev" >&2
        exit 1
    fi
done

"$here/../scripts/apt-source.sh" tgt "$build"
if [ ! -f "$headers/usr/tgtd.h" ]; then
    echo "fetch-headers.sh: the archive does not offer tgt $version; the plugin is written for exactly that version" >&2
    exit 1
fi
touch "$headers/.complete"
echo "fetch-headers.sh: headers of tgt $version in $headers"
