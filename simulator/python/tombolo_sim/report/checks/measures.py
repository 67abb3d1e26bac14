"""What the claims are about, taken from the results: series of a measure over policies and cache sizes."""

from collections.abc import Callable, Iterator, Sequence

from tombolo_sim.policies import COMBINATIONS
from tombolo_sim.report.checks.base import Finding, Verdict, verdict_of
from tombolo_sim.report.estimate import Estimate
from tombolo_sim.report.results import DENOMINATORS, PERCENTS, Results

MISS_RATIO = "reads.miss_ratio"
GAIN_MIN = 0.002
"""Points of miss ratio by which the six combinations must differ somewhere, or a cell decides nothing."""


def places(results: Results) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(trace, denominator, percents) with the sizes at which the cache does not hold everything."""
    for trace in results.traces:
        distinct = results.analyses[trace.name]["distinct"]
        for denominator in DENOMINATORS:
            smaller = tuple(p for p in PERCENTS if results.sizes[trace.name, denominator, p] < distinct)
            if smaller:
                yield trace.name, denominator, smaller


def by_cell(
    results: Results,
    test: Callable[[str, str, int], tuple[bool | None, str] | None],
    cloud: str,
    only: Sequence[int] = PERCENTS,
) -> Iterator[Finding]:
    """One finding for each trace and size of the cache. No answer is a result that is not there, one without a truth a
    difference that is within the error."""
    for trace, denominator, percents in places(results):
        for percent in percents:
            if percent not in only or (answer := test(trace, denominator, percent)) is None:
                continue
            is_gain = gain(results, (trace, denominator, percent), cloud) >= GAIN_MIN
            holds = answer[0] if is_gain else None
            verdict = Verdict.UNDECIDED if holds is None else verdict_of(holds)
            yield Finding(f"{trace}, {percent} % of {denominator}", verdict, answer[1], trace)


def gain(results: Results, place: tuple[str, str, int], cloud: str) -> float:
    """Points of miss ratio between the best and the worst of the six combinations."""
    misses = series(results, COMBINATIONS, MISS_RATIO, place, cloud)
    return max(one.mean for one in misses) - min(one.mean for one in misses) if misses else 0.0


def by_trace(results: Results, test: Callable[[str], tuple[bool, str] | str]) -> Iterator[Finding]:
    """One finding for each trace; text alone is the reason why it cannot be tested."""
    for trace in results.traces:
        answer = test(trace.name)
        if isinstance(answer, str):
            yield Finding(trace.name, Verdict.UNTESTABLE, answer, trace.name)
        else:
            yield Finding(trace.name, verdict_of(answer[0]), answer[1], trace.name)


def series(
    results: Results, algorithms: Sequence[str], measure: str, place: tuple[str, str, int], cloud: str
) -> list[Estimate] | None:
    trace, denominator, percent = place
    values = [results.estimate(measure, trace, denominator, percent, algorithm, cloud) for algorithm in algorithms]
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None
