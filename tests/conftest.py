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
from harness.gateway import Gateway
from harness.object_store import S3Server
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


def s3_settings(endpoint: str, prefix: str = "gateway") -> dict[str, Any]:
    """Settings of a gateway whose store is the test bucket at `endpoint`."""
    return {"store": {"url": f"s3://{BUCKET}/{prefix}", "endpoint": endpoint, "allow_http": True}}
