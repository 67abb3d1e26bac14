"""Figures 6, 9, 11 and 15 to 21 of the GDS-LC paper, and 7b, 8 and 10 as bars."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from tombolo_sim import plots
from tombolo_sim.gds_lc import runs
from tombolo_sim.gds_lc.runs import Metric, Point, Results, point
from tombolo_sim.gds_lc.scenarios import CACHE_SHARES, SCENARIOS, Scenario, Workload

MIDDLE = 0.10
"""The cache of the paper's detailed figures."""

TITLES = {
    "lru": "LRU",
    "arc": "ARC",
    "sieve": "SIEVE (ours)",
    "gds-latency": "GDS(latency)",
    "gds-price": "GDS(price)",
    "gdsf-latency": "GDSF(latency)",
    "gdsf-price": "GDSF(price)",
    "gds-l": "GDS-L",
    "gds-lf": "GDS-LF",
    "gds-lc": "GDS-LC",
    "gds-lcf": "GDS-LCF",
}

METRICS: tuple[tuple[str, Metric], ...] = (
    ("hit ratio", runs.hit_ratio),
    ("mean latency, ms", runs.latency_ms),
    ("dollars", runs.dollars),
)

At: TypeAlias = Callable[[float], Point]


class Drawing:
    def __init__(self, results: Results, workloads: Sequence[Workload], shares: Sequence[float], folder: Path) -> None:
        self.results = results
        self.workloads = workloads
        self.shares = shares
        self.folder = folder

    def draw_all(self) -> dict[str, str]:
        """Captions by file."""
        drawn: dict[str, str] = {}
        for scenario in SCENARIOS:
            drawn |= self._basic(scenario)
            drawn |= self._factors(scenario)
        drawn |= self._ratios()
        drawn |= self._internet(
            "figure-19", "Figure 19: with frequencies", ("gds-lcf", *runs.FREQUENCY), self.workloads
        )
        netfs = [workload for workload in self.workloads if workload.stands_for == "Netfs"]
        drawn |= self._internet("figure-20", "Figure 20: GDS-LC and GDS-L", ("gds-lc", "gds-l"), netfs)
        drawn |= self._internet("figure-21", "Figure 21: GDS-LCF and GDS-LF", ("gds-lcf", "gds-lf"), netfs)
        return drawn | self._uploads(netfs) | self._fees()

    def _lines(
        self, name: str, caption: str, series: dict[str, Callable[[str], At]], workloads: Sequence[Workload]
    ) -> dict[str, str]:
        if not workloads:
            return {}
        figure, axes = plots.panels(len(workloads) * len(METRICS), caption)
        for row, workload in enumerate(workloads):
            for column, (label, metric) in enumerate(METRICS):
                axis = axes[row * len(METRICS) + column]
                values = {
                    title: [(share * 100, self.results.mean(at(workload.name)(share), metric)) for share in self.shares]
                    for title, at in series.items()
                }
                plots.lines(axis, values, "cache, % of all objects' bytes", label, marker="o")
                axis.set_title(f"{workload.name} (for {workload.stands_for})")
        axes[0].legend(fontsize="small")
        return {plots.save(figure, self.folder, name): caption}

    def _basic(self, scenario: Scenario) -> dict[str, str]:
        def along(policy: str) -> Callable[[str], At]:
            return lambda workload: lambda share: point(scenario.name, workload, policy, share)

        series = {TITLES[policy]: along(policy) for policy in (*runs.BASIC, runs.BASELINE)}
        caption = f"Figure {scenario.figure}: {scenario.title}"
        return self._lines(f"figure-{scenario.figure:02}", caption, series, self.workloads)

    def _internet(
        self, name: str, caption: str, policies: Sequence[str], workloads: Sequence[Workload]
    ) -> dict[str, str]:
        def along(policy: str) -> Callable[[str], At]:
            return lambda workload: lambda share: point("internet", workload, policy, share)

        return self._lines(
            name, f"{caption}, Internet cloud", {TITLES[policy]: along(policy) for policy in policies}, workloads
        )

    def _ratios(self) -> dict[str, str]:
        def along(ratio: tuple[int, int]) -> Callable[[str], At]:
            return lambda workload: (
                lambda share: Point("internet", workload, "gds-lcf", share, runs.PAPERS_FACTOR, ratio)
            )

        series = {f"{ratio[0]}:{ratio[1]}": along(ratio) for ratio in runs.RATIOS}
        caption = "Figure 15: GDS-LCF by sizes of performance and price region, Internet cloud"
        return self._lines("figure-15", caption, series, self.workloads)

    def _factors(self, scenario: Scenario) -> dict[str, str]:
        """The paper prints one workload outside the local cloud; here are all."""
        number = {"local": 16, "internet": 17, "hetero": 18}[scenario.name]
        caption = f"Figure {number}: normalisation, {scenario.title.lower()}, cache of 10 %"
        groups = ["none", "1 RTT", "10 RTT", "100 RTT"]
        figure, axes = plots.panels(len(self.workloads) * len(METRICS), caption)
        for row, workload in enumerate(self.workloads):
            for column, (label, metric) in enumerate(METRICS):
                axis = axes[row * len(METRICS) + column]
                series = {
                    TITLES[policy]: [
                        self.results.mean(Point(scenario.name, workload.name, policy, MIDDLE, factor), metric)
                        for factor in runs.FACTORS
                    ]
                    for policy in runs.NORMALISED
                }
                plots.grouped_bars(axis, groups, series, label)
                axis.set_title(f"{workload.name} (for {workload.stands_for})")
        axes[0].legend(fontsize="small")
        return {plots.save(figure, self.folder, f"figure-{number}"): caption}

    def _bars(
        self,
        name: str,
        caption: str,
        scenario: str,
        workloads: Sequence[Workload],
        items: dict[str, Metric],
        label: str,
    ) -> dict[str, str]:
        if not workloads:
            return {}
        figure, axes = plots.panels(len(workloads), caption, width=7.0)
        for axis, workload in zip(axes, workloads, strict=True):
            series = {
                item: [self.results.basic(scenario, workload.name, policy, MIDDLE, metric) for policy in runs.BASIC]
                for item, metric in items.items()
            }
            plots.grouped_bars(axis, [TITLES[policy] for policy in runs.BASIC], series, label)
            axis.tick_params(axis="x", labelrotation=20)
            axis.set_title(f"{workload.name} (for {workload.stands_for})")
        axes[0].legend(fontsize="small")
        return {plots.save(figure, self.folder, name): caption}

    def _uploads(self, netfs: Sequence[Workload]) -> dict[str, str]:
        items = {"on demand": runs.uploads("on_demand"), "background": runs.uploads("background")}
        return self._bars(
            "figure-08", "Figure 8: uploads, local cloud, cache of 10 %", "local", netfs, items, "uploads"
        )

    def _fees(self) -> dict[str, str]:
        items = {item: runs.fee(item) for item in ("get", "put", "egress")}
        caption = "Figure 10: the bill by item, Internet cloud, cache of 10 %"
        return self._bars("figure-10", caption, "internet", self.workloads, items, "dollars")


def draw_all(results: Results, workloads: Sequence[Workload], folder: Path) -> dict[str, str]:
    return Drawing(results, workloads, CACHE_SHARES, folder).draw_all()
