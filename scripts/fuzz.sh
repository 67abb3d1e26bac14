#!/bin/bash
# Fuzzes every target of fuzz/ for some seconds each: fuzz.sh SECONDS
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: fuzz.sh SECONDS}
for source in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    echo "== $target"
    fuzz/run.sh "$target" "$seconds"
done
