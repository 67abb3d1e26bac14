"""`make bench`: runs the comparisons and writes docs/results/NAME.{json,md}."""

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import hou_live, report, upload_interval, upload_runs
from bench.blocks import compare_blocks
from bench.bucket_cost import measure_bucket_cost
from bench.builds import compare_builds
from bench.capabilities import survey
from bench.cloud import compare_cloud
from bench.file_scale import FULL, QUICK
from bench.files import FRONT_ENDS, compare_files
from bench.group_commit import measure_group_commit
from bench.peers import measure_peers
from bench.protection import measure_protection
from bench.recovery import measure_recovery
from bench.report import Section
from bench.round_trips import Route, measure_round_trips
from bench.scans import measure_scans
from bench.simulator import measure_simulator
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.target import Tgtd
from harness.tools import REPOSITORY

MIB = 1 << 20
BUCKET = "tombolo-bench"
NAMES = {"all": "bench", "peer-capabilities": "bench-cloud"}
"""Of result files, where they are not those of the parts."""
Part = tuple[list[Section], dict[str, int]]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--part",
        choices=(
            "all",
            "blocks",
            "files",
            "simulator",
            "bucket-cost",
            "recovery",
            "protection",
            "round-trips",
            "scans",
            "peers",
            "peer-capabilities",
            "builds",
            "group-commit",
            "upload-interval",
            "chunks",
        ),
        default="all",
        help="what to measure",
    )
    parser.add_argument(
        "--other",
        type=Path,
        help="of builds, group-commit, protection, round-trips and scans: the daemon's binary to measure beside",
    )
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds per workload")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one round of a block workload")
    parser.add_argument("--size-mib", type=int, default=1024, help="size of the LUNs")
    parser.add_argument("--cloud-size-mib", type=int, default=512, help="data per round of a cloud workload")
    parser.add_argument(
        "--blocks", type=int, nargs="+", default=[100_000, 1_000_000], help="of the part recovery: sizes of the volume"
    )
    parser.add_argument(
        "--round-trips-ms",
        type=float,
        nargs="+",
        help="of the parts round-trips and peers: of the path, 0, 20 and 100 unless given; of scans: 20",
    )
    parser.add_argument(
        "--link-mib-s",
        type=float,
        help="of the same: what it takes each way; as much as the machine does unless given, 119 with scans",
    )
    parser.add_argument(
        "--workloads",
        default="1,2,3,4,5,6",
        help="of the part peer-capabilities: numbers, or none (`tombolo bench cloud`)",
    )
    parser.add_argument(
        "--quiet-s",
        type=int,
        default=12,
        help="of the part peer-capabilities: silence that ends a step; ours waits 5 s before it uploads, and 10 s"
        " before it tells the store of changes",
    )
    parser.add_argument(
        "--sync-delay-us", type=int, default=0, help="of the part group-commit: what each sync takes longer"
    )
    parser.add_argument("--quick-files", action="store_true", help="only see that the file part runs")
    parser.add_argument(
        "--front-end", choices=("all", *FRONT_ENDS), default="all", help="of the file part: what to measure"
    )
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build", help="a folder on the disk to measure")
    parser.add_argument("--name", help="name of the result files; `bench`, or `bench-PART` for one part")
    return parser.parse_args(arguments)


def measure_blocks(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    """Volumes and the cloud behind them."""
    server = S3Server(folder / "s3")
    stack.callback(server.close)
    server.start()
    server.create_bucket(BUCKET)
    settings = {
        "store": {"url": f"s3://{BUCKET}/gateway", "endpoint": server.endpoint, "allow_http": True},
        "cache": {"size": f"{4 * max(options.size_mib, options.cloud_size_mib)}MiB"},
        "flush": {"dirty_bytes_max": f"{2 * max(options.size_mib, options.cloud_size_mib)}MiB"},
    }
    gateway = Gateway(folder / "gateway", merged({}, settings), server.environment)
    stack.callback(gateway.close)
    gateway.start()
    memory = {"idle": gateway.process.resident_bytes()}
    tgtd = Tgtd(folder / "tgtd")
    stack.callback(tgtd.close)
    tgtd.start()
    blocks = compare_blocks(gateway, tgtd, folder, options.size_mib * MIB, options.rounds, options.seconds)
    memory["highest_under_block_load"] = gateway.process.resident_bytes(peak=True)
    tgtd.kill9()
    cloud = compare_cloud(gateway, server, BUCKET, options.cloud_size_mib * MIB, options.rounds)
    memory["highest_after_cloud_load"] = gateway.process.resident_bytes(peak=True)
    sections = [
        Section("iSCSI, all data cached, beside tgtd's file store", ("gateway", "tgtd rdwr"), blocks),
        Section("Cloud, beside plain requests", ("gateway", "plain requests"), cloud),
    ]
    return sections, memory


def measure_files(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    front_ends = list(FRONT_ENDS) if options.front_end == "all" else [options.front_end]
    return compare_files(folder, QUICK if options.quick_files else FULL, front_ends, stack)


def measure_replays(options: argparse.Namespace, folder: Path, _: ExitStack) -> Part:
    return measure_simulator(folder, options.rounds), {}


def measure_cost(options: argparse.Namespace, folder: Path, _: ExitStack) -> Part:
    return measure_bucket_cost(folder, options.cloud_size_mib * MIB, options.rounds), {}


def measure_recoveries(options: argparse.Namespace, folder: Path, _: ExitStack) -> Part:
    return measure_recovery(folder, options.blocks, options.rounds), {}


def measure_protected(options: argparse.Namespace, folder: Path, _: ExitStack) -> Part:
    other = options.other and Path(options.other).resolve(strict=True)
    size = options.cloud_size_mib * MIB
    return measure_protection(folder, other, size, options.seconds, options.rounds), {}


def routes(options: argparse.Namespace) -> list[Route]:
    return [Route(round_trip_ms, options.link_mib_s) for round_trip_ms in options.round_trips_ms or (0, 20, 100)]


def routes_of_scans(options: argparse.Namespace) -> list[Route]:
    """A gigabit, one region away."""
    link_mib_s = options.link_mib_s or 119
    return [Route(round_trip_ms, link_mib_s) for round_trip_ms in options.round_trips_ms or (20,)]


def measure_path(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    other = options.other and Path(options.other).resolve(strict=True)
    size = options.cloud_size_mib * MIB
    return measure_round_trips(folder, routes(options), other, size, options.rounds, stack), {}


def measure_cold_scans(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    other = options.other and Path(options.other).resolve(strict=True)
    size = options.cloud_size_mib * MIB
    return measure_scans(folder, routes_of_scans(options), other, size, options.rounds, stack), {}


def measure_beside_peers(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    return measure_peers(folder, routes(options), options.cloud_size_mib * MIB, options.rounds, stack), {}


def survey_peers(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    return survey(folder, options.workloads, options.rounds, options.quiet_s, stack), {}


def measure_commits(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    other = options.other and Path(options.other).resolve(strict=True)
    delay_us = options.sync_delay_us
    return measure_group_commit(folder, other, delay_us, options.rounds, options.seconds, stack), {}


def measure_intervals(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    return upload_interval.measure_upload_interval(folder, upload_runs.Plan(), options.rounds, stack), {}


def measure_chunks(_: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    return hou_live.measure_chunks(folder, hou_live.Plan(), stack), {}


def measure_builds(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Part:
    scale = QUICK if options.quick_files else FULL
    other = Path(options.other).resolve(strict=True)
    size, cloud_size = options.size_mib * MIB, options.cloud_size_mib * MIB
    return compare_builds(other, folder, size, cloud_size, options.rounds, options.seconds, scale, stack), {}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    measures = {
        "blocks": measure_blocks,
        "files": measure_files,
        "simulator": measure_replays,
        "bucket-cost": measure_cost,
        "recovery": measure_recoveries,
        "protection": measure_protected,
        "round-trips": measure_path,
        "peers": measure_beside_peers,
        "peer-capabilities": survey_peers,
        "group-commit": measure_commits,
        "upload-interval": measure_intervals,
        "chunks": measure_chunks,
    }
    chosen = list(measures) if options.part == "all" else [options.part]
    measures["builds"] = measure_builds
    measures["scans"] = measure_cold_scans
    if options.part == "builds" and options.other is None:
        raise SystemExit("bench: --part builds needs --other BINARY, the build to measure beside")
    sections: list[Section] = []
    memory: dict[str, int] = {}
    for part in chosen:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="bench-", dir=options.folder))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            measured, resident = measures[part](options, folder, stack)
            sections += measured
            memory |= resident
    name = options.name or NAMES.get(options.part, f"bench-{options.part}")
    report.write(name, arguments, sections, memory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
