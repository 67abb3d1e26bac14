"""Promise 4 over a long time: a link at a tenth of its rate for an hour, under a writer that never rests."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.gateway import Gateway, merged
from harness.object_store import S3Server
from harness.process import Process
from harness.tools import built_binary, can_connect, free_port
from test_cloud_faults import watched
from test_policies import metric

MIB = 1 << 20
CHUNK = 256 << 10
LINK_MIB_S = 12.0
ROUND_TRIP_MS = 20
AS_USUAL_S, SLOW_S = 60, 3_600
THIN_MIB_S, THIN_S = 0.5, 120
COMPARED = 400
"""Chunks that are read again at the end, of all that were written."""


@dataclass
class Link:
    """Between gateway and server; its rate can be changed, by which its connections break."""

    server: S3Server
    port: int
    process: Process

    def set_rate(self, mib_s: float) -> None:
        if self.process.running:
            self.process.kill9()
        binary = built_binary("examples/delay_proxy", "tombolo-cloud-driver --examples", "TOMBOLO_DELAY_PROXY")
        addresses = [f"127.0.0.1:{self.port}", f"127.0.0.1:{self.server.port}"]
        self.process.start([binary, *addresses, str(ROUND_TRIP_MS), str(mib_s)])
        self.process.wait_until(lambda: can_connect(self.port), 20, "listening socket")


@dataclass
class Writer:
    """Writes new data in order, without a rest, until it is told to end."""

    gateway: Gateway
    chunks: int = 0
    longest_s: float = 0.0
    fault: BaseException | None = None
    _ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @staticmethod
    def chunk(index: int) -> bytes:
        return random.Random(f"{SEED}/{index}").randbytes(CHUNK)

    def _write(self) -> None:
        try:
            with self.gateway.disk("vol", limit_s=600) as disk:
                while not self._ending.is_set():
                    begun = time.monotonic()
                    disk.write(self.chunks * CHUNK, self.chunk(self.chunks))
                    self.longest_s = max(self.longest_s, time.monotonic() - begun)
                    self.chunks += 1
                disk.flush()
        except BaseException as fault:  # Raised by end().
            self.fault = fault

    def written_in(self, seconds: float) -> float:
        """MiB/s."""
        before, begun = self.chunks, time.monotonic()
        while time.monotonic() - begun < seconds and self.fault is None:
            time.sleep(1)
        return (self.chunks - before) * CHUNK / MIB / (time.monotonic() - begun)

    def end(self) -> None:
        self._ending.set()
        self._thread.join(600)
        assert not self._thread.is_alive()
        if self.fault is not None:
            raise self.fault


@contextmanager
def link_to(server: S3Server, folder: Path) -> Iterator[Link]:
    process = Process("delay_proxy", folder / "delay_proxy.log")
    try:
        yield Link(server, free_port(), process)
    finally:
        process.kill9()


@pytest.mark.soak
@pytest.mark.timeout(2 * SLOW_S)
def test_an_hour_at_a_tenth_of_the_speed(make_gateway: GatewayFactory, s3: S3Server, tmp_path: Path) -> None:
    with link_to(s3, tmp_path) as link:
        link.set_rate(LINK_MIB_S)
        changes = {"cache": {"size": "512MiB"}, "flush": {"dirty_bytes_max": "64MiB"}}
        endpoint = f"http://127.0.0.1:{link.port}"
        gateway = make_gateway(merged(s3_settings(endpoint), changes), s3.environment).start()
        gateway.create_volume("vol", "64GiB")
        with watched(gateway):
            writer = Writer(gateway)
            rates = [writer.written_in(AS_USUAL_S)]
            link.set_rate(LINK_MIB_S / 10)
            rates.append(writer.written_in(SLOW_S))
            # What is not in the cache any more comes beside the uploads.
            with gateway.disk("vol", limit_s=120) as reader:
                assert reader.read(0, CHUNK) == Writer.chunk(0)
            link.set_rate(LINK_MIB_S)
            rates.append(writer.written_in(AS_USUAL_S))
            writer.end()
        given_up = metric(gateway, "tombolo_store_uploads_given_up_total")
        print(f"MiB/s {rates}, longest write {writer.longest_s:.1f} s, {given_up:.0f} uploads given up")
        # The link is what holds the writer, not the gateway's patience; half leaves room for any machine.
        assert rates[1] > LINK_MIB_S / 10 / 2, rates
        assert rates[2] > LINK_MIB_S / 2, "it comes back by itself"
        gateway.drain(300)
        gateway.stop()
        gateway.cache_file.unlink()
        gateway.start()
        chosen = random.Random(SEED).sample(range(writer.chunks), COMPARED)
        with gateway.disk("vol") as disk:
            for index in sorted(chosen):
                assert disk.read(index * CHUNK, CHUNK) == Writer.chunk(index), f"chunk {index}"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_what_is_read_ahead_over_a_thin_link_leaves_reads_their_turn(
    make_gateway: GatewayFactory, s3: S3Server, tmp_path: Path
) -> None:
    """More under way than the link carries in the time that a request may take, and nothing would ever come."""
    with link_to(s3, tmp_path) as link:
        link.set_rate(100 * LINK_MIB_S)
        endpoint = f"http://127.0.0.1:{link.port}"
        gateway = make_gateway(merged(s3_settings(endpoint), {"cache": {"size": "512MiB"}}), s3.environment).start()
        gateway.create_volume("vol", "128MiB")
        with gateway.disk("vol") as disk:
            for index in range(128 * MIB // CHUNK):
                disk.write(index * CHUNK, Writer.chunk(index))
            disk.flush()
        gateway.drain(300)
        gateway.stop()
        gateway.cache_file.unlink()
        link.set_rate(THIN_MIB_S)
        gateway.start()
        chunks, longest_s, begun = 0, 0.0, time.monotonic()
        with gateway.disk("vol", limit_s=120) as disk:
            while time.monotonic() - begun < THIN_S:
                asked = time.monotonic()
                assert disk.read(chunks * CHUNK, CHUNK) == Writer.chunk(chunks)
                longest_s = max(longest_s, time.monotonic() - asked)
                chunks += 1
        rate = chunks * CHUNK / MIB / (time.monotonic() - begun)
        print(f"{rate:.2f} of {THIN_MIB_S} MiB/s, longest read {longest_s:.1f} s")
        assert metric(gateway, "tombolo_reads_refused_total") == 0
        assert rate > THIN_MIB_S / 3, "half and more is the link's; the rest leaves room for any machine"
