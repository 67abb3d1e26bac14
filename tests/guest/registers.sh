#!/bin/bash
# Runs in the guest: sums in several processes that take turns on its one processor, with the widest registers there are.
set -euo pipefail

. "$(dirname "$0")/clients.sh"

head -c 20M /dev/urandom >/run/data
expected=$(sha256sum </run/data)
processes=()
for _ in $(seq 4); do
    (for _ in $(seq 5); do [ "$(sha256sum </run/data)" = "$expected" ] || exit 1; done) &
    processes+=($!)
done
for process in "${processes[@]}"; do wait "$process" || fail "a sum differs"; done
say clean
