"""Gateways that upload to one store of limited capacity, and how old writes are when they are in it.

What is measured is the age at which a write is in the bucket: from when its time had come until the store has answered
the PUT that holds it, by the log of the proxy before the store. No client waits for that, so no latency that a client
sees would tell; ages that the gateway itself tells of stop when a sync has made the confirmation durable, which has a
rhythm of its own; and FLUSH of a volume with `flush = bucket` waits for no interval: it begins a point at once.
"""

import re
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from bench.capacity import BLOCK_BYTES, Capacity, Exchange, LimitedStore, marked, now_s
from harness.gateway import Gateway, Settings
from harness.object_store import S3Server

BUCKET = "tombolo-interval"
VOLUME, VOLUME_BLOCKS = "bench", 1 << 18
STOUT = "Stout"
SAMPLE_S = 0.5


@dataclass(frozen=True)
class Rule:
    """Of the rounds of uploads."""

    name: str
    flush_delay_ms: int
    is_stout: bool = False

    def settings(self) -> Settings:
        interval = "stout" if self.is_stout else "fixed"
        return {"interval": interval, "flush_delay_ms": self.flush_delay_ms}


@dataclass(frozen=True)
class Phase:
    seconds: float
    writes_per_s: float
    """Of all gateways together."""


STORE = Capacity(4, 40, 100)


@dataclass(frozen=True)
class Plan:
    gateways: int = 4
    capacity: Capacity = STORE
    rules: tuple[Rule, ...] = (
        Rule("20 ms", 20),
        Rule("100 ms", 100),
        Rule("1 s", 1000),
        Rule("5 s", 5000),
        Rule(STOUT, 5000, True),
    )
    loads: tuple[int, ...] = (20, 180, 540, 1620)
    """Writes a second, of all gateways together."""
    warm_s: float = 8
    warm_stout_s: float = 30
    """Likewise with Stout, which begins at 200 ms whatever the store is like."""
    measured_s: float = 9
    tail_s: float = 1.5
    """Besides the delay: so that what was measured is in the store at the end."""
    steps: tuple[Phase, ...] = (Phase(25, 60), Phase(35, 1620), Phase(40, 60))
    pause_s: float = 2.7
    around_pause_s: tuple[float, float] = (25, 35)
    """Before it and after it."""
    pause_load: int = 180

    def warm_of(self, rule: Rule) -> float:
        return self.warm_stout_s if rule.is_stout else self.warm_s

    def phases(self, rule: Rule, load: int) -> list[Phase]:
        return [Phase(self.warm_of(rule) + self.measured_s + rule.flush_delay_ms / 1e3 + self.tail_s, load)]

    @property
    def stout(self) -> Rule:
        return next(rule for rule in self.rules if rule.is_stout)


@dataclass
class Watched:
    """What the gateways' metrics said, and when."""

    at_s: list[float] = field(default_factory=list)
    interval_s: list[float] = field(default_factory=list)
    """The mean of all gateways."""
    interval_max_s: list[float] = field(default_factory=list)
    point_age_s: list[float] = field(default_factory=list)
    """Of the gateway that is furthest behind."""

    def within(self, values: Sequence[float], from_s: float, to_s: float) -> list[float]:
        return [value for at, value in zip(self.at_s, values, strict=True) if from_s <= at < to_s]


@dataclass(frozen=True)
class Recorded:
    """One run of all gateways."""

    begun_s: float
    ended_s: float
    exchanges: list[Exchange]
    offered: list[list[float]]
    """When writes were due, by gateway."""
    watched: Watched

    def ages(self, index: int, from_s: float, to_s: float) -> list[tuple[float, float]]:
        """Of what gateway `index` wrote in this time: when, and its age when it was in the bucket. What never was there
        has at least the age that it had at the end."""
        stored = {
            int(written * 1e6): exchange.at_s
            for exchange in self.exchanges
            if f"/gateway-{index}/" in exchange.path
            for written in exchange.written_s
        }
        due = [at for at in self.offered[index] if from_s <= at < to_s]
        return [(at, stored.get(int(at * 1e6), self.ended_s) - at) for at in due]

    def all_ages(self, from_s: float, to_s: float) -> list[tuple[float, float]]:
        return sorted(pair for index in range(len(self.offered)) for pair in self.ages(index, from_s, to_s))


class Writer(threading.Thread):
    """Blocks at random places of one volume, each at a time that was fixed before; who is late makes up for it."""

    def __init__(self, gateway: Gateway, begun_s: float, phases: Sequence[Phase], share: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.gateway, self.begun_s, self.phases, self.share, self.seed = gateway, begun_s, phases, share, seed
        self.offered: list[float] = []

    def due(self) -> Iterator[float]:
        chance = Random(self.seed)
        begun = self.begun_s
        for phase in self.phases:
            at = begun
            while (at := at + chance.expovariate(phase.writes_per_s / self.share)) < begun + phase.seconds:
                # As the mark has it.
                yield int(at * 1e6) / 1e6
            begun += phase.seconds

    def run(self) -> None:
        chance = Random(self.seed + 1)
        with self.gateway.disk(VOLUME) as disk:
            for at in self.due():
                time.sleep(max(0.0, at - now_s()))
                self.offered.append(at)
                disk.write(chance.randrange(VOLUME_BLOCKS) * BLOCK_BYTES, marked(at, chance.randbytes(16)))


class Watcher(threading.Thread):
    def __init__(self, gateways: Sequence[Gateway]) -> None:
        super().__init__(daemon=True)
        self.gateways = gateways
        self.watched = Watched()
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.wait(SAMPLE_S):
            at, texts = now_s(), [gateway.metrics() for gateway in self.gateways]
            intervals = [metric(text, "tombolo_upload_interval_seconds") for text in texts]
            self.watched.at_s.append(at)
            self.watched.interval_s.append(statistics.fmean(intervals))
            self.watched.interval_max_s.append(max(intervals))
            ages = [metric(text, "tombolo_recovery_point_age_seconds") for text in texts]
            self.watched.point_age_s.append(max(ages))


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    if found is None:
        raise AssertionError(f"the metrics have no {name}")
    return float(found[1])


class Runner:
    def __init__(self, plan: Plan, folder: Path, stack: ExitStack) -> None:
        self.plan, self.folder = plan, folder
        self.server = S3Server(folder / "s3")
        stack.callback(self.server.close)
        self.server.start()
        self.server.create_bucket(BUCKET)
        self.runs = 0

    def run(self, rule: Rule, phases: Sequence[Phase], pause_at_s: float | None = None) -> Recorded:
        """New gateways, prefixes and a new proxy each time, so that all runs begin alike."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.callback(shutil.rmtree, self.server.folder / BUCKET / str(self.runs), ignore_errors=True)
            store = LimitedStore(self.plan.capacity, self.server, folder, stack)
            gateways = [self._begun(rule, index, store, folder, stack) for index in range(self.plan.gateways)]
            begun = now_s() + 0.2
            writer = partial(Writer, begun_s=begun, phases=phases, share=len(gateways))
            writers = [writer(gateway, seed=10 * index) for index, gateway in enumerate(gateways)]
            watcher = Watcher(gateways)
            threads = [*writers, watcher]
            for thread in threads:
                thread.start()
            if pause_at_s is not None:
                time.sleep(begun + pause_at_s - now_s())
                store.process.signal(signal.SIGSTOP)
                time.sleep(self.plan.pause_s)
                store.process.signal(signal.SIGCONT)
            for each in writers:
                each.join()
            watcher.ends.set()
            watcher.join()
            ended = now_s()
            return Recorded(begun, ended, list(store.exchanges()), [each.offered for each in writers], watcher.watched)

    def _begun(self, rule: Rule, index: int, store: LimitedStore, folder: Path, stack: ExitStack) -> Gateway:
        url = f"s3://{BUCKET}/{self.runs}/gateway-{index}"
        settings: Settings = {
            "store": {"url": url, "endpoint": store.endpoint, "allow_http": True, "encryption": "none"},
            "compression": {"algorithm": "off"},
            "cache": {"size": "256MiB"},
            "flush": {"dirty_bytes_max": "128MiB", **rule.settings()},
        }
        gateway = Gateway(folder / f"gateway-{index}", settings, self.server.environment)
        stack.callback(gateway.close)
        gateway.start()
        gateway.create_volume(VOLUME, str(VOLUME_BLOCKS * BLOCK_BYTES))
        return gateway


@dataclass(frozen=True)
class Cell:
    """One rule at one load."""

    ages_s: list[float]
    by_gateway_s: list[float]
    """Mean ages."""
    is_sustained: bool
    puts_per_s: float
    """Of data, of all gateways."""
    requests_per_s: float
    """All that the store answered."""
    waited_s: float
    """Of such a PUT, for one of the store's servers, on average."""
    interval_s: float
    point_age_s: float

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.ages_s)


def cell_of(recorded: Recorded, plan: Plan, rule: Rule) -> Cell:
    begun = recorded.begun_s + plan.warm_of(rule)
    ended = begun + plan.measured_s
    pairs = recorded.all_ages(begun, ended)
    third = plan.measured_s / 3
    early = [age for at, age in pairs if at < begun + third]
    late = [age for at, age in pairs if at >= ended - third]
    unseen = sum(at + age >= recorded.ended_s for at, age in pairs)
    # A queue that grows makes ages grow as time passes.
    grows = statistics.fmean(late) > 1.5 * statistics.fmean(early) + 0.1
    answered = [each for each in recorded.exchanges if begun <= each.at_s < ended]
    data = [each for each in answered if each.written_s]
    by_gateway = [
        statistics.fmean([age for _, age in recorded.ages(index, begun, ended)] or [0.0])
        for index in range(len(recorded.offered))
    ]
    watched = recorded.watched
    return Cell(
        ages_s=[age for _, age in pairs],
        by_gateway_s=by_gateway,
        is_sustained=not grows and unseen * 100 <= len(pairs),
        puts_per_s=len(data) / plan.measured_s,
        requests_per_s=len(answered) / plan.measured_s,
        waited_s=statistics.fmean([each.waited_s for each in data] or [0.0]),
        interval_s=statistics.fmean(watched.within(watched.interval_s, begun, ended) or [0.0]),
        point_age_s=max(watched.within(watched.point_age_s, begun, ended), default=0.0),
    )
