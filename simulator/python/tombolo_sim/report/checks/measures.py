"""What the claims are about, taken from the results: series of a measure over policies and cache sizes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tombolo_sim.report.checks.base import Finding, Verdict, verdict_of
from tombolo_sim.report.results import DENOMINATORS, PERCENTS, Results

MISS_RATIO = "reads.miss_ratio"


def places(results: Results) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(trace, denominator, percents) with the sizes at which the cache does not hold everything."""
    for trace in results.traces:
        distinct = results.analyses[trace.name]["distinct"]
        for denominator in DENOMINATORS:
            smaller = tuple(p for p in PERCENTS if results.sizes[trace.name, denominator, p] < distinct)
            if smaller:
                yield trace.name, denominator, smaller


def by_size(
    results: Results, test: Callable[[str, str, int], tuple[bool, str] | None], only: Sequence[int] = PERCENTS
) -> Iterator[Finding]:
    """One finding for each trace and reading of the size, over all its sizes; None is a result that is not there."""
    for trace, denominator, percents in places(results):
        answers = [(percent, test(trace, denominator, percent)) for percent in percents if percent in only]
        answers = [(percent, answer) for percent, answer in answers if answer is not None]
        if not answers:
            continue
        detail = "; ".join(f"{percent} %: {answer[1]}" for percent, answer in answers if answer is not None)
        holds = all(answer[0] for _, answer in answers if answer is not None)
        yield Finding(f"{trace}, {denominator}", verdict_of(holds), detail)


def by_trace(results: Results, test: Callable[[str], tuple[bool, str] | str]) -> Iterator[Finding]:
    """One finding for each trace; text alone is the reason why it cannot be tested."""
    for trace in results.traces:
        answer = test(trace.name)
        if isinstance(answer, str):
            yield Finding(trace.name, Verdict.UNTESTABLE, answer)
        else:
            yield Finding(trace.name, verdict_of(answer[0]), answer[1])


def series(
    results: Results, algorithms: Sequence[str], measure: str, place: tuple[str, str, int], cloud: str
) -> list[float] | None:
    trace, denominator, percent = place
    values = [results.value(measure, trace, denominator, percent, algorithm, cloud) for algorithm in algorithms]
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def falling(values: Sequence[float]) -> bool:
    return all(after < before for before, after in pairwise(values))


def shares(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1%}" for value in values)
