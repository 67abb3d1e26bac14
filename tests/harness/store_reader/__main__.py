"""The command line."""

import argparse
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from harness.store_reader.bucket import Bucket, Volume
from harness.store_reader.export import export_share, export_volume
from harness.store_reader.fields import Damaged
from harness.store_reader.files import Inode, Share, read_shares, walk
from harness.store_reader.heads import read_wrapping
from harness.store_reader.kms import unwrap
from harness.store_reader.packs import BLOCK
from harness.store_reader.stores import Store, open_store
from harness.store_reader.verify import verify


def described(path: bytes, inode: Inode) -> dict[str, Any]:
    return {
        "path": os.fsdecode(path),
        "type": inode.kind,
        "size": inode.size,
        "links": inode.links,
        "mode": f"{inode.mode & 0o7777:04o}",
        "uid": inode.uid,
        "gid": inode.gid,
        "target": None if inode.target is None else os.fsdecode(inode.target),
        "xattrs": {os.fsdecode(name): base64.b64encode(value).decode() for name, value in inode.xattrs.items()},
    }


def contents(bucket: Bucket) -> dict[str, Any]:
    def share(found: Share) -> dict[str, Any]:
        files = [described(path, inode) for path, inode in walk(bucket, found)]
        return {"name": found.name, "quota_bytes": found.quota or None, "flush": found.flush, "files": files}

    def volume(found: Volume) -> dict[str, Any]:
        return {"name": found.name, "size_bytes": found.blocks * BLOCK, "flush": found.flush}

    root = bucket.root
    return {
        "time_s": root.time_s if root else None,
        "writer": root.writer_name if root else None,
        "epoch": root.epoch if root else None,
        "root": root.sequence if root else None,
        "kept_roots": root.kept if root else [],
        "volumes": [volume(found) for found in bucket.volumes()],
        "shares": [share(found) for found in read_shares(bucket) if not found.is_being_deleted],
    }


def show(found: dict[str, Any]) -> None:
    print(f"root {found['root']}, as of {found['time_s']} by {found['writer']}, epoch {found['epoch']}")
    print("earlier roots:", *found["kept_roots"] or ["none"])
    for volume in found["volumes"]:
        print(f"volume {volume['name']}: {volume['size_bytes']} bytes")
    for share in found["shares"]:
        print(f"share {share['name']}:")
        for file in share["files"]:
            target = "" if file["target"] is None else f" -> {file['target']}"
            xattrs = "".join(f" [{name}]" for name in file["xattrs"])
            numbers = f"{file['mode']} {file['links']:>3} {file['size']:>12}"
            printable = file["path"].encode(errors="backslashreplace").decode()
            print(f"  {file['type']:<10} {numbers} /{printable}{target}{xattrs}")


def export(bucket: Bucket, name: str, target: Path) -> None:
    kind, _, bare = name.partition(":") if name.startswith(("volume:", "share:")) else ("", "", name)
    volumes = [volume for volume in bucket.volumes() if volume.name == bare and kind != "share"]
    shares = [share for share in read_shares(bucket) if share.name == bare and kind != "volume"]
    if len(volumes) + len(shares) != 1:
        raise ValueError(f"{name}: " + ("say volume:NAME or share:NAME" if volumes else "no such volume or share"))
    if volumes:
        export_volume(bucket, volumes[0], target)
    else:
        export_share(bucket, shares[0], target)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("store_reader", description=(
        "Reads the bucket of a gateway, without the gateway. Exit code 1: something is missing or does not verify."
    ))  # fmt: skip
    parser.add_argument("url", help="dir:FOLDER, or s3://BUCKET/PREFIX with the credentials of the environment")
    parser.add_argument("--endpoint", help="of the S3 server, unless it is Amazon's")
    parser.add_argument("--key", type=Path, metavar="FILE", help=(
        "the master key; none for a bucket that is in clear, or whose master key AWS KMS unwraps for these credentials"
    ))  # fmt: skip
    parser.add_argument("--kms-endpoint", help="of AWS KMS, unless it is Amazon's")
    parser.add_argument(
        "--root", type=int, metavar="NUMBER", help="an earlier one that is kept; the newest unless given"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("list", "volumes, shares and files"),
        ("verify", "read everything and say what is missing or does not verify"),
    ):
        commands.add_parser(name, help=what, description=what).add_argument("--json", action="store_true")
    what = "write a volume to a sparse file, or a share to a folder"
    exporting = commands.add_parser("export", help=what, description=what)
    exporting.add_argument("name", help="of a volume or share; volume:NAME or share:NAME where both have it")
    exporting.add_argument("target", type=Path, help="must not be there yet")
    return parser.parse_args(words)


def say_verified(store: Store, master: bytes | None, kept: int | None, as_json: bool) -> int:
    report = verify(store, master, kept)
    if as_json:
        problems = [{"object": damage.name, "problem": damage.what} for damage in report.problems]
        print(json.dumps({"problems": problems, "counts": report.counts}))
    else:
        print("".join(f"{count} {what}\n" for what, count in report.counts.items()), end="")
        print("".join(f"{damage}\n" for damage in report.problems) or "all of it verifies\n", end="")
    return 1 if report.problems else 0


def read_master(store: Store, key: Path | None, kms_endpoint: str | None) -> bytes | None:
    if key is not None:
        return bytes.fromhex(key.read_text())
    try:
        wrapping = read_wrapping(store.get("keys"))
    except Damaged:
        # A bucket that is in clear; if it is not, its objects say so.
        return None
    return None if wrapping is None else unwrap(wrapping, kms_endpoint)


def main(words: list[str]) -> int:
    chosen = parse(words)
    try:
        store = open_store(chosen.url, chosen.endpoint)
        master = read_master(store, chosen.key, chosen.kms_endpoint)
        if chosen.command == "verify":
            return say_verified(store, master, chosen.root, chosen.json)
        bucket = Bucket(store, master, kept=chosen.root)
        if chosen.command == "export":
            export(bucket, chosen.name, chosen.target)
        elif chosen.json:
            print(json.dumps(contents(bucket)))
        else:
            show(contents(bucket))
    except (Damaged, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
