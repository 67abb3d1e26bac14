"""Rounds of several contenders that each give several figures at once."""

from collections.abc import Callable, Mapping

from bench.rounds import Comparison

Figures = dict[str, float]
Measurements = dict[str, dict[str, list[float]]]
"""The figures of all rounds: by contender, then by workload."""


def rotate(contenders: Mapping[str, Callable[[], Figures]], rounds: int, settle: Callable[[], None]) -> Measurements:
    """All contenders forward, then backward, ...: a machine that drifts harms all alike. `settle` comes before each."""
    measured: Measurements = {name: {} for name in contenders}
    for index in range(rounds):
        for name in contenders if index % 2 == 0 else reversed(list(contenders)):
            settle()
            for workload, value in contenders[name]().items():
                measured[name].setdefault(workload, []).append(value)
    return measured


def beside(measured: Measurements, ours: str, other: str, units: Mapping[str, str]) -> list[Comparison]:
    """One comparison per workload, of those that have a unit."""
    return [
        Comparison(workload, unit, measured[ours][workload], measured[other][workload])
        for workload, unit in units.items()
    ]
