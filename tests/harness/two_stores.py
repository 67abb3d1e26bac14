"""Two S3 servers, for gateways that keep data in both."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.fault_proxy import FaultProxy
from harness.object_store import S3Server


class TwoStores:
    """A bucket in each, `gateway` in the one and `far` in the other; the second server behind a proxy."""

    def __init__(self, near: S3Server, far: S3Server, proxy: FaultProxy, bucket: str) -> None:
        self.near, self.far, self.proxy = near, far, proxy
        self.near_objects = near.folder / bucket / "gateway"
        self.far_objects = far.folder / bucket / "far"


@contextmanager
def far_store(folder: Path, bucket: str, seed: int) -> Iterator[tuple[S3Server, FaultProxy]]:
    """The second server, with its bucket and its proxy."""
    with ExitStack() as closing:
        far = S3Server(folder / "far")
        closing.callback(far.close)
        far.start()
        far.create_bucket(bucket)
        proxy = FaultProxy(far.port, seed)
        proxy.start()
        closing.callback(proxy.close)
        yield far, proxy
