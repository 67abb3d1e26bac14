#!/bin/sh
# Builds fio with its libiscsi and libnbd engines from Debian's source package into build/bin/fio.
# Debian's own binary package lacks libiscsi. The engines let the benchmarks reach a LUN without a kernel initiator.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/apt-source.sh" fio "$root/build/source"
cd "$root"/build/source/fio-3.*
if [ ! -f config-host.mak ]; then
    ./configure --disable-native --enable-libiscsi --enable-libnbd
fi
make -j"$(nproc)" fio
./fio --enghelp | grep -qw libiscsi || { echo "build-fio.sh: fio was built without libiscsi" >&2; exit 1; }
./fio --enghelp | grep -qw nbd || { echo "build-fio.sh: fio was built without nbd" >&2; exit 1; }
install -D -m 0755 fio "$root/build/bin/fio"
