"""Promise 1 on a disk that somebody else touched: what is missing, cut, exchanged or altered in the state directory is
refused at every start, by a message that says what to do, and nothing is changed until it is put right."""

import errno
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import SEED, GatewayFactory, s3_settings
from harness.fault_proxy import FaultProxy
from harness.gateway import Gateway, parse_size
from harness.nbd import NbdError
from harness.object_store import S3Server
from harness.tools import wait_for

MIB = 1 << 20
BLOCK = 4096
SMALL = {"cache": {"size": "128MiB"}, "flush": {"dirty_bytes_max": "64MiB"}}
SMALL_SEGMENTS = SMALL | {"journal": {"segment_bytes": "1MiB", "checkpoint_journal_bytes": "64MiB"}}


@pytest.fixture
def cut_off(make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy) -> Callable[..., Gateway]:
    """A gateway that cannot upload, so that all it takes stays dirty."""

    def make(changes: dict[str, object]) -> Gateway:
        gateway = make_gateway(s3_settings(proxy.endpoint) | changes, s3.environment).start()
        proxy.refuse()
        return gateway

    return make


def write(gateway: Gateway, data: bytes) -> None:
    with gateway.disk("vol") as disk:
        for offset in range(0, len(data), MIB):
            disk.write(offset, data[offset : offset + MIB])
        disk.flush()


def read(gateway: Gateway, length: int, start: int = 0) -> bytes:
    with gateway.disk("vol") as disk:
        return b"".join(disk.read(start + offset, min(MIB, length - offset)) for offset in range(0, length, MIB))


def unique_data(mib: int) -> bytes:
    return random.Random(SEED).randbytes(mib * MIB)


def refused(gateway: Gateway, *named: str) -> None:
    """Twice, as a service manager starts it again: the first refusal must change nothing."""
    for _ in range(2):
        code, said = gateway.refused_start()
        assert code not in (0, 101), said
        for word in named:
            assert word in said
        assert "panicked" not in said


def segments(gateway: Gateway) -> list[Path]:
    return sorted((gateway.state_directory / "journal").glob("*.log"))


# Settings


@pytest.mark.parametrize("is_first_life", [True, False], ids=["before any checkpoint", "later"])
@pytest.mark.parametrize("size", ["96MiB", "256MiB"], ids=["smaller", "larger"])
def test_wrong_cache_size_is_refused_and_destroys_nothing(
    cut_off: Callable[..., Gateway], size: str, is_first_life: bool
) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    if not is_first_life:
        gateway.restart()
    data = unique_data(48)
    write(gateway, data)
    gateway.kill9()
    cache = gateway.settings["cache"]
    gateway.settings["cache"] = {"size": size}
    refused(gateway, "set [cache] size back to 32768 blocks of 4 KiB")
    assert gateway.cache_file.stat().st_size > parse_size("128MiB")
    gateway.settings["cache"] = cache
    gateway.start()
    assert read(gateway, len(data)) == data


# The cache file


def test_lost_cache_file_with_dirty_blocks_is_refused_at_every_start(cut_off: Callable[..., Gateway]) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    data = unique_data(8)
    write(gateway, data)
    gateway.kill9()
    hidden = gateway.folder / "hidden"
    gateway.cache_file.rename(hidden)
    refused(gateway, "the cache file is missing", "put the file back")
    assert not gateway.cache_file.exists()
    hidden.rename(gateway.cache_file)
    gateway.start()
    assert read(gateway, len(data)) == data


def test_lost_cache_file_with_unflushed_blocks_is_refused_too(cut_off: Callable[..., Gateway]) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, unique_data(1))
    gateway.kill9()
    gateway.cache_file.unlink()
    refused(gateway, "the cache file is missing")


def test_cache_file_of_another_gateway_is_refused(
    cut_off: Callable[..., Gateway], make_gateway: GatewayFactory
) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    data = unique_data(8)
    write(gateway, data)
    gateway.kill9()
    # Killed, so that it has no longer metadata than this one's is.
    other = make_gateway(SMALL).start()
    other.kill9()
    hidden = gateway.folder / "hidden"
    gateway.cache_file.rename(hidden)
    shutil.copy(other.cache_file, gateway.cache_file)
    refused(gateway, "belongs to another state directory")
    hidden.rename(gateway.cache_file)
    gateway.start()
    assert read(gateway, len(data)) == data


def test_cut_cache_file_is_refused(cut_off: Callable[..., Gateway]) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    write(gateway, unique_data(8))
    gateway.kill9()
    os.truncate(gateway.cache_file, 16 * MIB)
    refused(gateway, str(gateway.cache_file), "was cut")
    assert gateway.cache_file.stat().st_size == 16 * MIB


@pytest.mark.parametrize("since", ["a checkpoint", "one flush", "several flushes"])
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_older_copy_of_the_cache_file_is_refused(cut_off: Callable[..., Gateway], end: str, since: str) -> None:
    """Local metadata and journal speak of blocks that it does not have."""
    gateway = cut_off(SMALL | {"journal": {"checkpoint_interval_ms": 3_600_000}})
    gateway.create_volume("vol", "256MiB")
    data = unique_data(4)
    write(gateway, data[: 2 * MIB])
    older, newest = gateway.folder / "older", gateway.folder / "newest"
    shutil.copy(gateway.cache_file, older)
    with gateway.disk("vol") as disk:
        step = MIB // 4 if since == "several flushes" else 2 * MIB
        for offset in range(2 * MIB, 4 * MIB, step):
            disk.write(offset, data[offset : offset + step])
            disk.flush()
    if since == "a checkpoint":
        gateway.cli("checkpoint")
    if end == "kill":
        gateway.kill9()
    else:
        gateway.stop()
    gateway.cache_file.rename(newest)
    shutil.copy(older, gateway.cache_file)
    before = older.read_bytes()
    refused(gateway, "the cache file is an older copy of itself", "put the file back as it was")
    assert gateway.cache_file.read_bytes() == before
    newest.rename(gateway.cache_file)
    gateway.start()
    assert read(gateway, len(data)) == data


def test_older_copy_of_the_cache_file_that_lacks_nothing_is_taken(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(SMALL).start()
    gateway.create_volume("vol", "256MiB")
    data = unique_data(4)
    write(gateway, data[: 2 * MIB])
    gateway.stop()
    older = gateway.folder / "older"
    shutil.copy(gateway.cache_file, older)
    gateway.start()
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    shutil.copy(older, gateway.cache_file)
    gateway.start()
    assert read(gateway, len(data)) == data


def older_parts(gateway: Gateway) -> tuple[Path, bytes]:
    """A copy of a state directory that has served more since, and what is in that."""
    data = unique_data(4)
    write(gateway, data[: 2 * MIB])
    gateway.stop()
    older = gateway.folder / "older"
    shutil.copytree(gateway.state_directory, older)
    gateway.start()
    with gateway.disk("vol") as disk:
        for offset in range(2 * MIB, 4 * MIB, MIB // 4):
            disk.write(offset, data[offset : offset + MIB // 4])
            disk.flush()
    return older, data


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_older_journal_beside_newer_parts_is_refused(cut_off: Callable[..., Gateway], end: str) -> None:
    """Or, where a checkpoint holds all that it lacks, is nothing that anybody needs."""
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    older, data = older_parts(gateway)
    journal, newest = gateway.state_directory / "journal", gateway.folder / "newest"
    if end == "kill":
        gateway.kill9()
    else:
        gateway.stop()
    journal.rename(newest)
    shutil.copytree(older / "journal", journal)
    if end == "kill":
        refused(gateway, "the journal ends at LSN", "put the journal back as it was")
        shutil.rmtree(journal)
        newest.rename(journal)
    gateway.start()
    assert read(gateway, len(data)) == data


@pytest.mark.parametrize("lacks", ["nothing", "the journal since", "its length"])
def test_older_metadata_beside_newer_parts(cut_off: Callable[..., Gateway], lacks: str) -> None:
    """With the journal since then it becomes as new as the others; without, it is refused."""
    gateway = cut_off(SMALL_SEGMENTS)
    gateway.create_volume("vol", "256MiB")
    if lacks != "its length":
        # Room in the file, which later checkpoints use.
        write(gateway, unique_data(32))
        gateway.cli("checkpoint")
        with gateway.disk("vol") as disk:
            disk.write_zeroes(0, 32 * MIB)
        for _ in range(3):
            gateway.cli("checkpoint")
    older, data = older_parts(gateway)
    gateway.restart()
    with gateway.disk("vol") as disk:
        disk.write(32 * MIB, b"x" * BLOCK)
        disk.flush()
    gateway.stop()
    metadata, newest = gateway.state_directory / "metadata" / "data.mdb", gateway.folder / "newest"
    metadata.rename(newest)
    shutil.copy(older / "metadata" / "data.mdb", metadata)
    assert (metadata.stat().st_size < newest.stat().st_size) == (lacks == "its length")
    if lacks == "the journal since":
        for path in segments(gateway)[:-1]:
            path.unlink()
    if lacks != "nothing":
        refused(gateway, "put it back as it was" if lacks == "its length" else "put the journal back as it was")
        newest.rename(metadata)
    gateway.start()
    assert read(gateway, len(data)) == data


# The journal


def delete_last(found: list[Path]) -> None:
    found[-1].unlink()


def delete_all(found: list[Path]) -> None:
    for path in found:
        path.unlink()


def zero_second_half(found: list[Path]) -> None:
    with found[-1].open("r+b") as opened:
        end = len(opened.read().rstrip(b"\0"))
        opened.seek(end // 2)
        opened.write(bytes(end - end // 2))


def truncate(found: list[Path]) -> None:
    os.truncate(found[-1], len(found[-1].read_bytes().rstrip(b"\0")) // 2)


@pytest.mark.parametrize(
    ("harm", "several"),
    [
        (delete_last, False),
        (zero_second_half, False),
        (truncate, False),
        (delete_last, True),
        (delete_all, True),
        (zero_second_half, True),
    ],
)
def test_lost_end_of_the_journal_is_refused(
    cut_off: Callable[..., Gateway], harm: Callable[[list[Path]], None], several: bool
) -> None:
    gateway = cut_off(SMALL_SEGMENTS if several else SMALL)
    gateway.create_volume("vol", "256MiB")
    if several:
        with gateway.disk("vol") as disk:
            block = 0
            while len(segments(gateway)) < 3:
                for _ in range(1000):
                    disk.write_zeroes(block % 60_000 * BLOCK, BLOCK)
                    block += 2
    data = unique_data(4)
    write(gateway, data)
    gateway.kill9()
    kept = gateway.folder / "kept"
    shutil.copytree(gateway.state_directory / "journal", kept)
    harm(segments(gateway))
    refused(gateway, "journal", "put the journal back as it was")
    shutil.rmtree(gateway.state_directory / "journal")
    shutil.copytree(kept, gateway.state_directory / "journal")
    gateway.start()
    assert read(gateway, len(data)) == data


def test_lost_journal_directory_is_refused(cut_off: Callable[..., Gateway]) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    write(gateway, unique_data(4))
    gateway.kill9()
    shutil.rmtree(gateway.state_directory / "journal")
    refused(gateway, str(gateway.state_directory / "journal"), "is missing")
    assert not (gateway.state_directory / "journal").exists()


def test_a_refusal_does_not_wait_for_a_store_that_is_away(cut_off: Callable[..., Gateway]) -> None:
    """Which would say what is lost."""
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    write(gateway, unique_data(1))
    gateway.kill9()
    shutil.rmtree(gateway.state_directory / "journal")
    began = time.monotonic()
    code, said = gateway.refused_start()
    assert (code, time.monotonic() - began < 5) == (1, True), said
    assert "is missing" in said and "the store did not answer" in said


def test_lost_segments_are_noticed_without_the_cache_file_too(cut_off: Callable[..., Gateway]) -> None:
    """In which is noted how far they went."""
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    write(gateway, unique_data(4))
    gateway.kill9()
    gateway.cache_file.unlink()
    for segment in (gateway.state_directory / "journal").glob("*.log"):
        segment.unlink()
    refused(gateway, str(gateway.state_directory / "journal"), "is missing")
    refused(gateway, str(gateway.state_directory / "journal"), "is missing")


def test_what_is_given_up_of_the_journal_is_said(cut_off: Callable[..., Gateway]) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    with gateway.disk("vol") as disk:
        disk.write(0, unique_data(1))
        disk.flush()
        disk.write(MIB, b"\x77" * BLOCK)
    gateway.kill9()
    last = segments(gateway)[-1]
    length = last.stat().st_size
    with last.open("r+b") as opened:
        end = len(opened.read().rstrip(b"\0"))
        opened.seek(end - 8)
        opened.write(bytes(8))
    gateway.start()
    assert "the end of the journal is given up" in gateway.process.log_tail(200)
    assert read(gateway, BLOCK, MIB) in (bytes(BLOCK), b"\x77" * BLOCK)
    gateway.kill9()
    assert not last.exists() or last.stat().st_size == length, "a segment is never shorter than it was made"


# Local metadata


def test_lost_metadata_is_refused(cut_off: Callable[..., Gateway]) -> None:
    gateway = cut_off(SMALL)
    gateway.create_volume("vol", "256MiB")
    data = unique_data(4)
    write(gateway, data)
    gateway.stop()
    metadata, hidden = gateway.state_directory / "metadata", gateway.folder / "hidden"
    metadata.rename(hidden)
    refused(gateway, str(metadata), "is missing", "restore the state directory")
    assert not metadata.exists()
    hidden.rename(metadata)
    shutil.move(metadata / "data.mdb", hidden)
    refused(gateway, "data.mdb is missing")
    shutil.move(hidden, metadata / "data.mdb")
    gateway.start()
    assert read(gateway, len(data)) == data


def test_cut_metadata_is_refused_before_it_is_mapped(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(SMALL).start()
    gateway.create_volume("vol", "256MiB")
    write(gateway, unique_data(16))
    gateway.drain()
    gateway.stop()
    file = gateway.state_directory / "metadata" / "data.mdb"
    length = file.stat().st_size
    kept = file.read_bytes()
    for cut in (0, 100, 5000, length // 2, length - BLOCK):
        os.truncate(file, cut)
        refused(gateway, "data.mdb was cut", "put it back as it was")
        file.write_bytes(kept)
    gateway.start()


@pytest.mark.parametrize("page", [0, 1])
def test_rotten_meta_page_is_not_taken_for_an_unfinished_first_start(make_gateway: GatewayFactory, page: int) -> None:
    gateway = make_gateway(SMALL).start()
    gateway.create_volume("vol", "256MiB")
    gateway.stop()
    file = gateway.state_directory / "metadata" / "data.mdb"
    kept = file.read_bytes()
    with file.open("r+b") as opened:
        opened.seek(page * BLOCK)
        opened.write(bytes(512))
    refused(gateway, f"meta page {page} is damaged", "do not remove the file")
    file.write_bytes(kept)
    gateway.start()
    assert [volume["name"] for volume in gateway.volumes()] == ["vol"]


@pytest.mark.parametrize("left", ["nothing", "empty journal", "cache.new", "metadata.new", "all three"])
def test_interrupted_first_start_is_begun_anew(make_gateway: GatewayFactory, left: str) -> None:
    gateway = make_gateway(SMALL)
    state = gateway.state_directory
    if left in ("empty journal", "all three"):
        (state / "journal").mkdir()
    if left in ("cache.new", "all three"):
        (state / "cache.new").write_bytes(bytes(5000))
    if left in ("metadata.new", "all three"):
        (state / "metadata.new").mkdir()
        (state / "metadata.new" / "data.mdb").write_bytes(bytes(4096))
    gateway.start()
    gateway.create_volume("vol", "16MiB")
    write(gateway, unique_data(1))
    gateway.restart()
    assert read(gateway, MIB) == unique_data(1)
    assert not list(state.glob("*.new"))


def records(data: bytes) -> dict[str, list[tuple[int, int, int]]]:
    """Of each table of an LMDB file, its records: where the key is, its length, and a place in the value."""

    def number(at: int, length: int) -> int:
        return int.from_bytes(data[at : at + length], "little")

    def leaves(page: int) -> Iterator[int]:
        start = page * BLOCK
        nodes = [start + number(start + 16 + 2 * index, 2) for index in range((number(start + 12, 2) - 16) // 2)]
        if number(start + 10, 2) & 1:
            for node in nodes:
                yield from leaves(number(node, 6))
        else:
            yield from nodes

    def tree(root: int) -> list[int]:
        return [] if root == (1 << 64) - 1 else list(leaves(root))

    def record(node: int) -> tuple[int, int, int]:
        key_bytes, value_bytes = number(node + 6, 2), number(node, 4)
        value = node + 8 + key_bytes
        # A long value has pages of its own.
        start = number(value, 8) * BLOCK + 16 if number(node + 4, 2) & 1 else value
        return node + 8, key_bytes, start + value_bytes // 2

    meta = max((0, BLOCK), key=lambda page: number(page + 144, 8))
    found: dict[str, list[tuple[int, int, int]]] = {}
    for node in tree(number(meta + 128, 8)):
        key_bytes = number(node + 6, 2)
        table = data[node + 8 : node + 8 + key_bytes].decode()
        inner = tree(number(node + 8 + key_bytes + 40, 8))
        found[table] = [record(at) for at in inner]
    return found


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("table", ["super", "map", "objects", "slots", "references"])
def test_altered_record_of_local_metadata_is_told_and_never_followed(
    make_gateway: GatewayFactory, table: str, part: str
) -> None:
    gateway = make_gateway(SMALL).start()
    gateway.create_volume("vol", "256MiB")
    data = unique_data(1)
    with gateway.disk("vol") as disk:
        for offset in range(0, len(data), 4 * BLOCK):
            disk.write(offset * 64, data[offset : offset + 4 * BLOCK])
        disk.flush()
    gateway.drain()
    gateway.stop()
    file = gateway.state_directory / "metadata" / "data.mdb"
    kept = file.read_bytes()
    key, key_bytes, value = random.Random(SEED).choice(records(kept)[table])
    place = key + key_bytes // 2 if part == "key" else value
    file.write_bytes(kept[:place] + bytes([kept[place] ^ 0x10]) + kept[place + 1 :])
    if table in ("super", "slots"):
        refused(gateway, "local metadata")
    else:
        gateway.cache_file.unlink()
        gateway.start()
        errors = 0
        with gateway.disk("vol") as disk:
            for offset in range(0, len(data), 4 * BLOCK):
                try:
                    assert disk.read(offset * 64, 4 * BLOCK) == data[offset : offset + 4 * BLOCK]
                except NbdError as error:
                    assert error.errno == errno.EIO
                    errors += 1
            if table == "references":
                assert errors == 0
                # Nothing reads them until a block is replaced.
                for offset in range(0, len(data), 4 * BLOCK):
                    disk.write_zeroes(offset * 64, 4 * BLOCK)
                disk.flush()
        if table == "references":
            wait_for(lambda: "checkpoint failed" in gateway.process.log_tail(200), 60, "the checkpoint to be refused")
        else:
            assert errors > 0
        gateway.kill9()


# A store that is not the gateway's


def drained(gateway: Gateway, data: bytes) -> None:
    gateway.create_volume("vol", "256MiB")
    write(gateway, data)
    gateway.drain()
    gateway.stop()
    gateway.cache_file.unlink()


def test_store_without_the_gateways_objects_is_refused(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(SMALL).start()
    data = unique_data(8)
    drained(gateway, data)
    right = gateway.settings["store"]
    wrong = gateway.folder / "wrong"
    gateway.settings["store"] = {"url": f"dir:{wrong}"}
    refused(
        gateway, f"dir:{wrong} has none of the objects", "such as objects/", "correct [store] url", "mount the folder"
    )
    assert not [path for path in wrong.glob("objects/**/*") if path.is_file()], "nothing is put into another store"
    gateway.settings["store"] = right
    gateway.start()
    assert read(gateway, len(data)) == data
    assert gateway.status()["lost"] == {"blocks": 0, "ranges": []}
    gateway.stop()
    gateway.settings["store"] = {"url": f"dir:{wrong}", "accept_foreign": True}
    gateway.start()
    drained_again = unique_data(4)
    write(gateway, drained_again)
    gateway.drain()
    assert read(gateway, len(drained_again)) == drained_again


def test_store_that_lacks_some_objects_is_told_and_taken(make_gateway: GatewayFactory) -> None:
    gateway = make_gateway(SMALL).start()
    gateway.create_volume("vol", "256MiB")
    with gateway.disk("vol") as disk:
        disk.write(128 * MIB, unique_data(1)[:BLOCK])
        disk.flush()
    gateway.drain()
    (first,) = stored(gateway)
    write(gateway, unique_data(8)[MIB:])
    gateway.drain()
    gateway.stop()
    first.unlink()
    gateway.start()
    told = [line for line in gateway.process.log_path.read_text().splitlines() if "are missing in the store" in line]
    assert len(told) == 1
    assert first.name in told[0]


def stored(gateway: Gateway) -> list[Path]:
    return [path for path in gateway.store_directory.glob("objects/**/*") if path.is_file()]


def test_foreign_store_that_is_reached_late_gets_nothing_and_loses_nothing(
    make_gateway: GatewayFactory, s3: S3Server, proxy: FaultProxy
) -> None:
    gateway = make_gateway(s3_settings(proxy.endpoint) | SMALL, s3.environment).start()
    data = unique_data(8)
    drained(gateway, data)
    right = gateway.settings["store"]
    gateway.settings["store"] = right | {"url": f"{right['url']}-mistyped"}
    proxy.refuse()
    gateway.start()
    new = random.Random("new").randbytes(MIB)
    with gateway.disk("vol") as disk:
        disk.write(64 * MIB, new)
        disk.flush()
    proxy.listen()

    def is_told() -> bool:
        return "has none of the objects" in str(gateway.status()["store"]["last_error"])

    wait_for(is_told, 60, "the other store to be told")
    assert gateway.status()["dirty_bytes"] == MIB, "nothing is uploaded to another store"
    with gateway.disk("vol") as disk, pytest.raises(NbdError):
        disk.read(0, BLOCK)
    assert gateway.status()["lost"] == {"blocks": 0, "ranges": []}
    gateway.stop()
    gateway.settings["store"] = right
    gateway.start()
    gateway.drain()
    assert read(gateway, len(data)) == data
    assert read(gateway, MIB, 64 * MIB) == new


def test_what_is_kept_is_private_to_its_user(gateway: Gateway) -> None:
    gateway.create_volume("vol", "64MiB")
    write(gateway, unique_data(1))
    gateway.drain()
    gateway.restart()
    folders = (gateway.state_directory, gateway.runtime_directory, gateway.store_directory)
    modes = {path: path.stat().st_mode & 0o077 for folder in folders for path in folder.rglob("*")}
    assert not [path for path, others in modes.items() if others]


def test_something_else_in_the_place_of_what_is_noted_beside_the_cache_file_is_named(
    make_gateway: GatewayFactory,
) -> None:
    gateway = make_gateway().start()
    gateway.stop()
    flushed = gateway.state_directory / "flushed"
    flushed.unlink()
    flushed.mkdir()
    code, said = gateway.refused_start()
    assert code == 1
    assert f"{flushed} has to be a file" in said and "move it away" in said, said
    flushed.rmdir()
    gateway.start()
    assert flushed.is_file()
