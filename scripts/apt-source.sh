#!/bin/sh
# Fetches and unpacks one Debian source package: apt-source.sh PACKAGE DIRECTORY
#
# The system usually lists binary packages only. The `deb-src` lines are derived from the system's own
# binary lists and kept, with their indices, below build/apt-source, so that nothing in /etc/apt changes.
# The tree ends up as DIRECTORY/PACKAGE-VERSION; a second call finds it there and does nothing.
# With PACKAGE=VERSION that exact version is fetched.
set -eu

if [ "$#" -ne 2 ]; then
    echo "usage: apt-source.sh PACKAGE[=VERSION] DIRECTORY" >&2
    exit 2
fi
package=$1
name=${package%%=*}
root=$(cd "$(dirname "$0")/.." && pwd)
private=$root/build/apt-source
mkdir -p "$2" "$private/lists/partial"
destination=$(cd "$2" && pwd)

for tree in "$destination/$name"-*/; do
    if [ -d "$tree/debian" ]; then
        exit 0
    fi
done

# One private apt at a time: two would fight over the index folder.
exec 9>"$private/lock"
flock 9

# Only Debian's own repositories carry the packages wanted here; a third party's without sources would fail the update.
apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '/debian/ { print "deb-src", $1, $2, $3 }' | sort -u >"$private/sources.list"
if ! [ -s "$private/sources.list" ]; then
    echo "apt-source.sh: apt knows no Debian repository; run 'apt-get update' first" >&2
    exit 1
fi

private_apt() {
    apt-get -q -o Dir::Etc::sourcelist="$private/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$private/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root \
        -o APT::Get::AllowUnauthenticated=false -o Acquire::Retries=3 "$@"
}

private_apt update
unpacking=$(mktemp -d "$destination/.unpacking.XXXXXX")
trap 'rm -rf "$unpacking"' EXIT
(cd "$unpacking" && private_apt --only-source source "$package")
mv "$unpacking/$name"-*/ "$destination/"
