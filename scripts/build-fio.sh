#!/bin/sh
# Builds fio with its libiscsi and libnbd engines from Debian's source package into build/fio/fio.
# Debian's own binary package lacks libiscsi. The engines let the benchmarks reach a LUN without a kernel initiator.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/apt-source.sh" fio "$root/build/source"
cd "$root"/build/source/fio-3.*
if [ ! -f config-host.mak ]; then
    ./configure --disable-native --enable-libiscsi --enable-libnbd >configure.log
fi
make -s -j"$(nproc)" fio >make.log 2>&1 || { tail -n 30 make.log >&2; exit 1; }
./fio --enghelp | grep -qw libiscsi || { echo "build-fio.sh: fio was built without libiscsi" >&2; exit 1; }
./fio --enghelp | grep -qw nbd || { echo "build-fio.sh: fio was built without nbd" >&2; exit 1; }
mkdir -p "$root/build/fio"
install -m 0755 fio "$root/build/fio/fio"
