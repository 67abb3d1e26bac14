#!/bin/sh
# Fuzzes one target for a bounded time with the stable toolchain: run.sh TARGET SECONDS
# Seeds come from seeds/TARGET; new inputs go to corpus/TARGET, findings to artifacts/TARGET (neither is committed).
# A finding is replayed by: run.sh TARGET FILE
set -eu
[ $# -eq 2 ] || { echo "usage: run.sh TARGET SECONDS|FILE" >&2; exit 2; }
target=$1
limit=$2
case $limit in
    *[!0-9]*) [ -f "$limit" ] && limit=$(realpath "$limit") || { echo "$limit: no such file" >&2; exit 2; } ;;
esac
cd "$(dirname "$0")"
[ -f "fuzz_targets/$target.rs" ] || { echo "no target $target; there are:" fuzz_targets/* >&2; exit 2; }

# What cargo-fuzz would pass, of which the stable compiler takes all that libFuzzer needs: coverage and comparisons.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
# Named explicitly so that the flags reach the targets only, not the build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
build_dir=${CARGO_TARGET_DIR:-target}/fuzz
CARGO_TARGET_DIR=$build_dir RUSTFLAGS=$(echo $coverage) cargo build --release --locked --target "$host" --bin "$target"

mkdir -p "corpus/$target" "artifacts/$target" "seeds/$target"
run="$build_dir/$host/release/$target"
case $limit in
    *[!0-9]*) exec "$run" "$limit" ;;
esac
exec "$run" -max_total_time="$limit" -max_len=4096 -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target"
