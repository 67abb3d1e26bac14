"""Fixtures: each test gets a folder of its own and factories for the processes it drives.

Everything started is ended after the test, and the ends of all logs are attached to a failure's report.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.fault_proxy import FaultProxy
from harness.front_ends import FrontEnd
from harness.ganesha import Ganesha
from harness.gateway import Gateway
from harness.guest import Guest, make_network
from harness.mount import Mount
from harness.object_store import S3Server
from harness.smbd import Smbd
from harness.target import Tgtd

LOG_LINES_SHOWN = 60
SEED = 20260101
BUCKET = "tombolo-test"
GatewayFactory = Callable[..., Gateway]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    folder = getattr(item, "funcargs", {}).get("folder")
    if report.failed and folder is not None:
        for log in sorted(path for path in folder.rglob("*.log") if "journal" not in path.parts):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            report.sections.append((str(log.relative_to(folder)), "\n".join(lines)))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: Unix socket paths end at 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="tombolo-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_gateway(folder: Path, closing: ExitStack) -> GatewayFactory:
    """Gateways that are not started yet; the first one gets a directory store unless told otherwise."""
    made: list[Gateway] = []

    def make(settings: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Gateway:
        gateway = Gateway(folder / f"gateway{len(made)}", settings, environment)
        made.append(gateway)
        closing.callback(gateway.close)
        return gateway

    return make


@pytest.fixture
def gateway(make_gateway: GatewayFactory) -> Gateway:
    """A running gateway on a directory store."""
    return make_gateway().start()


@pytest.fixture
def s3(folder: Path, closing: ExitStack) -> S3Server:
    """A running S3 server with an empty bucket."""
    server = S3Server(folder / "s3")
    closing.callback(server.close)
    server.start()
    server.create_bucket(BUCKET)
    return server


@pytest.fixture
def proxy(s3: S3Server, closing: ExitStack) -> FaultProxy:
    """A proxy in front of the S3 server, without faults until a test sets some."""
    middle = FaultProxy(s3.port, SEED)
    middle.start()
    closing.callback(middle.close)
    return middle


@pytest.fixture
def tgtd(folder: Path, closing: ExitStack) -> Tgtd:
    """A running tgtd with our plugin and no targets."""
    target = Tgtd(folder / "tgtd")
    closing.callback(target.close)
    target.start()
    return target


@pytest.fixture
def share(gateway: Gateway) -> Iterator[str]:
    """The name of an empty share. After the test its gateway, if it runs, finds no contradiction in any share."""
    yield gateway.create_share("share")
    if gateway.process.running:
        gateway.check()


MountFactory = Callable[..., Mount]


@pytest.fixture
def make_mount(gateway: Gateway, share: str, closing: ExitStack) -> MountFactory:
    """Mounts of the share that are not there yet, at the place of another if told so."""

    def make(folder: Path | None = None) -> Mount:
        mount = Mount(gateway, share, folder)
        closing.callback(mount.close)
        return mount

    return make


@pytest.fixture
def mount(make_mount: MountFactory) -> Mount:
    """The share, mounted."""
    return make_mount().start()


@pytest.fixture
def ganesha(gateway: Gateway, share: str, folder: Path, closing: ExitStack) -> Ganesha:
    """A running NFS server with the share."""
    server = Ganesha(folder / "ganesha")
    closing.callback(server.close)
    server.serve_share(gateway, share)
    server.start()
    return server


@pytest.fixture
def smbd(gateway: Gateway, share: str, mount: Mount, folder: Path, closing: ExitStack) -> Smbd:
    """A running SMB server with the share."""
    server = Smbd(folder / "smbd")
    closing.callback(server.close)
    server.serve_share(gateway, share, mount.folder)
    server.start()
    return server


@pytest.fixture
def front_ends(mount: Mount, ganesha: Ganesha, smbd: Smbd, closing: ExitStack) -> dict[str, FrontEnd]:
    """All of them lead to one share."""
    opened: dict[str, FrontEnd] = {"mount": mount.front_end(), "nfs": ganesha.front_end(), "smb": smbd.front_end()}
    for front_end in opened.values():
        closing.callback(front_end.close)
    return opened


@pytest.fixture
def guest(folder: Path, closing: ExitStack) -> Guest:
    """A guest that is not started yet, with a network for it and its servers."""
    machine = Guest(folder, make_network(closing))
    closing.callback(machine.close)
    return machine


def s3_settings(endpoint: str, prefix: str = "gateway") -> dict[str, Any]:
    """Settings of a gateway whose store is the test bucket at `endpoint`. Connections are not kept warm: tests count
    requests, or let them fail, and know nothing of those."""
    store = {"url": f"s3://{BUCKET}/{prefix}", "endpoint": endpoint, "allow_http": True, "warm_connections": 0}
    return {"store": store}
