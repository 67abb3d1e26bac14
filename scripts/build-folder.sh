#!/bin/sh
# Prints the folder cargo builds into, whether the environment, cargo's configuration or its default names it.
set -eu
cd "$(dirname "$0")/.."
cargo metadata --no-deps --format-version 1 --offline 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
