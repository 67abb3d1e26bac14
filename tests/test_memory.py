"""Memory: what the settings allow, added up as docs/OPERATIONS.md does, beside what the daemon holds under load."""

import random
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory
from harness.gateway import Gateway
from harness.memory import bounds, in_force
from harness.nbd import NbdDisk
from harness.tools import wait_for

KIB, MIB = 1 << 10, 1 << 20
OPERATIONS = Path(__file__).parent.parent / "docs" / "OPERATIONS.md"
CLIENTS = 32
LOAD_S = 10.0
REST_MIB = 80
"""What a load may leave: the allocator's spare, fragments, the index's table and what is cached of maps."""

SMALL = {
    "cache": {"size": "128MiB"},
    "flush": {"dirty_bytes_max": "32MiB"},
    "prefetch": {"policy": "none"},
    "journal": {"replay_records_max": 10_000},
    "memory": {
        "map_cache_bytes": "2MiB",
        "descriptor_cache_bytes": "2MiB",
        "fingerprint_filter_bytes": "2MiB",
        "fingerprint_fence_bytes": "1MiB",
        "fingerprint_memtable_entries": 16_384,
        "payload_bytes_max": "64MiB",
        "transfer_bytes_max": "8MiB",
        "upload_buffer_bytes_max": "4MiB",
    },
}


def load(gateway: Gateway, closing: ExitStack) -> int:
    """Clients that read and write up to 16 MiB at a time; the most that the daemon held of its own meanwhile."""
    data = random.Random(SEED).randbytes(16 * MIB)
    until = time.monotonic() + LOAD_S

    def work(number: int) -> None:
        generator = random.Random(number)
        with gateway.disk("vol") as disk:
            while time.monotonic() < until:
                length = MIB << generator.randrange(5)
                offset = generator.randrange(48) * MIB
                if generator.random() < 0.3:
                    disk.write(offset, data[:length])
                else:
                    disk.read(offset, length)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
        closing.callback(thread.join)
    peak = 0
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, gateway.process.anonymous_bytes())
        time.sleep(0.05)
    return peak


@pytest.mark.parametrize("settings", [SMALL, {}], ids=["small", "default"])
def test_memory_under_many_clients_is_within_the_sum(
    make_gateway: GatewayFactory, closing: ExitStack, settings: dict[str, object]
) -> None:
    """By `[memory]` and the rest; files that are mapped, as LMDB's, are page cache and not counted."""
    gateway = make_gateway(settings).start()
    gateway.create_volume("vol", "1GiB")
    before = gateway.process.anonymous_bytes()
    peak = load(gateway, closing)
    allowed = bounds(in_force(gateway), connections=CLIENTS)
    print(f"at most {peak / MIB:.0f} MiB of {sum(allowed.values()) / MIB:.0f} MiB")
    assert peak < sum(allowed.values())
    gateway.drain()
    rest = gateway.process.anonymous_bytes()
    print(f"{before / MIB:.0f} MiB before, {rest / MIB:.0f} MiB at rest")
    assert rest < before + REST_MIB * MIB, "what requests held goes back"


def test_operations_add_up_the_same_memory(gateway: Gateway) -> None:
    """With every setting at its default."""
    gateway.config_path.write_text(f'state_directory = "{gateway.state_directory}"\n')
    table = re.findall(r"^\| ([^|]+) \| [^|]+ \| (\d+) MiB \|$", OPERATIONS.read_text(), re.MULTILINE)
    said = {part: int(mib) for part, mib in table}
    computed = {part: round(size / MIB) for part, size in bounds(in_force(gateway)).items()}
    assert said == computed | {"all": sum(computed.values())}


def test_clients_that_take_no_answers_do_not_keep_others_waiting(make_gateway: GatewayFactory) -> None:
    """Four of them hold all the payload there may be; they are disconnected, and that is logged once each."""
    gateway = make_gateway({"memory": {"payload_bytes_max": "64MiB", "client_timeout_ms": 1_000}}).start()
    gateway.create_volume("vol", "64MiB")
    with ExitStack() as stack:
        for _ in range(4):
            hoarder = stack.enter_context(gateway.disk("vol"))
            hoarder.ask_to_read(0, 16 * MIB)
        time.sleep(0.5)  # Until all four have what they asked for.
        with NbdDisk(gateway.nbd_socket, "vol", limit_s=30) as disk:
            assert disk.read(0, MIB) == bytes(MIB)

        def closed() -> int:
            return gateway.process.log_tail(1000).count("has taken nothing of its answers")

        # The read above may be served when the first of them has gone.
        wait_for(lambda: closed() >= 4, 30, "all four are disconnected")
        assert closed() == 4
