"""clippy.toml is in force where it is meant to be: each pure crate is shown calls that it must not make, in a copy of
the sources."""

import json
import shutil
from pathlib import Path

from harness.tools import REPOSITORY, build_folder, run

PURE = {
    "base/src/lib.rs": "tombolo-base",
    "bench_cloud/src/method.rs": "tombolo-bench-cloud",
    "billing/src/lib.rs": "tombolo-billing",
    "cache/src/lib.rs": "tombolo-cache",
    "dedup/src/lib.rs": "tombolo-dedup",
    "flow_control/src/lib.rs": "tombolo-flow-control",
    "gateway/core/src/lib.rs": "tombolo-core",
    "gateway/file_storage/src/lib.rs": "tombolo-file-storage",
    "gateway/files/src/lib.rs": "tombolo-files",
    "gateway/metadata_tree/src/lib.rs": "tombolo-metadata-tree",
    "prefetch/src/lib.rs": "tombolo-prefetch",
    "simulator/engine/src/faults.rs": "tombolo-engine",
    "simulator/engine/src/replay.rs": "tombolo-engine",
    "trace/src/lib.rs": "tombolo-trace",
}
DENIED = "#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]"
# Crates without the standard library have none of this but by force.
CANARY = """
mod forbidden {
    extern crate std;

    pub fn method() -> std::time::Instant {
        std::time::Instant::now()
    }

    pub fn kind(_: &std::net::TcpStream) {}

    pub fn order(table: &std::collections::HashMap<u8, u8>) {
        for _ in table {}
    }
}
"""


def test_every_pure_crate_denies_them() -> None:
    sources = (path for path in REPOSITORY.rglob("src/**/*.rs") if "target" not in path.parts)
    denying = {str(path.relative_to(REPOSITORY)) for path in sources if DENIED in path.read_text()}
    assert denying == set(PURE)


def test_a_forbidden_call_is_found_in_every_pure_crate(folder: Path) -> None:
    copy = folder / "tree"
    shutil.copytree(REPOSITORY, copy, ignore=shutil.ignore_patterns(".*", "build", "target", "run", "__pycache__"))
    for source in PURE:
        with (copy / source).open("a") as file:
            file.write(CANARY)
    packages = [word for name in sorted(set(PURE.values())) for word in ("-p", name)]
    shown = ["--message-format", "json", "--target-dir", str(build_folder())]
    # As warnings, or the crates above the first one would not be looked at.
    clippy = ["cargo", "clippy", "--locked", "--offline", "--lib", *packages, *shown, "--", "--cap-lints", "warn"]
    found = diagnostics(run(clippy, 1200, cwd=copy).stdout)
    lints = ["disallowed_methods", "disallowed_types", "iter_over_hash_type"]
    assert {lint: {at for named, at in found if named == f"clippy::{lint}"} for lint in lints} == {
        lint: set(PURE) for lint in lints
    }
    # It speaks of itself where a path names nothing, and would ban nothing.
    assert not [at for _, at in found if at.endswith("clippy.toml")]


def diagnostics(messages: str) -> set[tuple[str, str]]:
    """Lints and the files that they speak of."""
    found = set()
    for line in messages.splitlines():
        message = json.loads(line).get("message")
        if isinstance(message, dict):
            lint = (message["code"] or {"code": ""})["code"]
            found |= {(lint, span["file_name"]) for span in message["spans"] if span["is_primary"]}
    return found
