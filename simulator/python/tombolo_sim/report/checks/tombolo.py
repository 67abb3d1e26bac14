"""The claims of the Tombolo paper (MSST'16)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from tombolo_sim.engine import Json
from tombolo_sim.models import operation_usd
from tombolo_sim.report import printed
from tombolo_sim.report.checks.base import (
    LEUNG,
    Check,
    by_majority,
    particular,
    verdict_of,
)
from tombolo_sim.report.checks.measures import MISS_RATIO, by_cell, by_trace, series
from tombolo_sim.report.estimate import Estimate, falling, share, shares, staying
from tombolo_sim.report.parameters import DEGREE_BLOCKS
from tombolo_sim.report.results import CONTROLLED, DENOMINATORS, PERCENTS, TRACK_BLOCKS, WINDOWS, Results

_CF = "cloudfront-2014"
_S3 = "s3-2014"
_SHORT_RUN_UNITS = 10
_POINT = 0.01
_RATIO_GRAPH = (1.8, 2.6)
_RATIO_SARC = (1.17, 1.38)


def tombolo(results: Results) -> list[Check]:
    return [
        *_workload(results),
        *_misses(results),
        *_latencies(results),
        *_prefetching(results),
        *_cost(results),
    ]


def additions(results: Results) -> list[Check]:
    """What the paper does not claim, and what it claims of things that are ours here: the graph's nodes are cut at
    places of 16 blocks, its tables have a fixed size, and the time of a run is a whole replay's. None of it counts."""
    return [_control(results), _degrees(results), _nodes(results), _metadata(results), _runtime(results)]


def _workload(results: Results) -> list[Check]:
    def new_data(trace: str) -> tuple[bool, str] | str:
        analysis = results.analyses[trace]
        sizes = ((denominator, percent) for denominator in DENOMINATORS for percent in PERCENTS)
        reports = (results.get(trace, *size, "lru_seq", _CF) for size in sizes)
        report = next((report for report in reports if report is not None), None)
        if not analysis["written_units"]:
            return "it has no writes"
        if not analysis["named_contents"]:
            return "it does not say what is written, so that nothing can be deduplicated"
        if report is None:
            return "not run under these conditions"
        writes = report["writes"]
        new = writes["blocks_unique"] / writes["blocks"]
        return 0.6 <= new <= 0.8, f"{new:.1%} of the blocks written are new after deduplication"

    def short_runs(trace: str) -> tuple[bool, str] | str:
        runs = results.analyses[trace]["runs"]
        blocks = sum(run["units"] * run["runs"] for run in runs["strict"])
        if not blocks:
            return "it has no reads"
        short = sum(run["units"] * run["runs"] for run in runs["strict"] if run["units"] < _SHORT_RUN_UNITS) / blocks
        return short > 0.6, f"{short:.1%}; the longest run has {runs['strict_longest']} blocks"

    return [
        particular("New data of all data written", "table 1", "69 %, 73 %", LEUNG, by_trace(results, new_data)),
        particular(
            "Blocks read in runs shorter than 10; the longest run",
            "figure 5",
            "> 60 %; about 10,000",
            LEUNG,
            by_trace(results, short_runs),
        ),
    ]


def _misses(results: Results) -> list[Check]:
    def ordering(*algorithms: str) -> Callable[[str, str, int], tuple[bool | None, str] | None]:
        """Each misses less than the one before it."""

        def test(trace: str, denominator: str, percent: int) -> tuple[bool | None, str] | None:
            values = series(results, algorithms, MISS_RATIO, (trace, denominator, percent), _CF)
            return None if values is None else (falling(values), shares(values))

        return test

    def graph_best(trace: str, denominator: str, percent: int) -> tuple[bool | None, str] | None:
        values = series(results, printed.ALGORITHMS, MISS_RATIO, (trace, denominator, percent), _CF)
        if values is None:
            return None
        others, graphs = sorted(values[:4], key=_mean), sorted(values[4:], key=_mean)
        return falling([others[0], graphs[-1]]), f"GRAPH {_each(graphs)}, the others {_each(others)}"

    return [
        particular(
            "LRU_SEQ to SARC_AMP, Corp, 30 GB: misses",
            "section 6.2, figure 8",
            "21 % to 13 %",
            LEUNG,
            by_cell(results, ordering("lru_seq", "sarc_amp"), _CF, only=(10,)),
        ),
        by_majority(
            "Both GRAPH policies miss less than all others",
            "figure 8",
            "< 10 %; best 6 %",
            by_cell(results, graph_best, _CF),
        ),
        by_majority(
            "SARC_SEQ misses less than LRU_SEQ",
            "figure 8",
            "ordering",
            by_cell(results, ordering("lru_seq", "sarc_seq"), _CF),
        ),
        particular(
            "LRU_AMP misses less than LRU_SEQ",
            "figure 8",
            "on Corp, not on Eng",
            "the paper has it on one of its traces and not on the other, so that neither outcome speaks against it",
            by_cell(results, ordering("lru_seq", "lru_amp"), _CF),
        ),
        by_majority(
            "SARC_AMP misses less than SARC_SEQ",
            "figure 8",
            "ordering",
            by_cell(results, ordering("sarc_seq", "sarc_amp"), _CF),
        ),
        by_majority(
            "SARC_AMP misses less than LRU_AMP",
            "figure 8",
            "ordering",
            by_cell(results, ordering("lru_amp", "sarc_amp"), _CF),
        ),
        by_majority(
            "The whole order LRU_SEQ > LRU_AMP > SARC_SEQ > SARC_AMP > LRU_GRAPH > SARC_GRAPH",
            "figure 8, tables 4, 5",
            "ordering, Corp, 90 GB",
            by_cell(results, ordering(*printed.ALGORITHMS), _CF, only=(30,)),
        ),
    ]


def _latencies(results: Results) -> list[Check]:
    def tail(cloud: str) -> Callable[[str, str, int], tuple[bool | None, str] | None]:
        def test(trace: str, denominator: str, percent: int) -> tuple[bool | None, str] | None:
            verdicts, texts = [], []
            for name in ("p90", "p95", "p99"):
                measure = f"read_latency.{name}"
                values = series(results, printed.ALGORITHMS, measure, (trace, denominator, percent), cloud)
                if values is None:
                    return None
                verdicts.append(staying(values))
                texts.append(f"{name} " + "/".join(f"{value.mean:.0f}" for value in values))
            return all(verdicts), ", ".join(texts)

        return test

    def below(trace: str, denominator: str, percent: int) -> tuple[bool | None, str] | None:
        value = results.value("read_latency.p90", trace, denominator, percent, "sarc_graph", _CF)
        return None if value is None else (value < 40, f"p90 {value:.0f} ms")

    def below_at_p80(trace: str, denominator: str, percent: int) -> tuple[bool | None, str] | None:
        values = series(results, printed.ALGORITHMS, "read_latency.p80", (trace, denominator, percent), _CF)
        if values is None:
            return None
        slow = [
            name
            for name, value in zip(printed.ALGORITHMS, values, strict=True)
            if value.mean >= 40 and (name, percent) != ("lru_seq", 10)
        ]
        return not slow, "p80 " + "/".join(f"{value.mean:.0f}" for value in values) + " ms"

    order = "p90, p95 and p99 fall (or stay) from LRU_SEQ over LRU_AMP, SARC_SEQ, SARC_AMP, LRU_GRAPH to SARC_GRAPH"
    return [
        by_majority(f"{order}: S3", "table 4", "see table 4", by_cell(results, tail(_S3), _S3, only=(30,))),
        by_majority(f"{order}: CloudFront", "table 5", "see table 5", by_cell(results, tail(_CF), _CF, only=(30,))),
        particular(
            "SARC_GRAPH's p90 is below 40 ms always",
            "section 6.2, figure 9",
            "< 40 ms",
            LEUNG,
            by_cell(results, below, _CF),
        ),
        particular(
            "p80 is below 40 ms, but of LRU_SEQ with 30 GB",
            "section 6.2, figures 9, 10",
            "< 40 ms",
            LEUNG,
            by_cell(results, below_at_p80, _CF),
        ),
    ]


def _prefetching(results: Results) -> list[Check]:
    def once(trace: str) -> tuple[bool, str] | str:
        texts, above = [], 0
        for algorithm in printed.ALGORITHMS:
            report = results.get(trace, "footprint", 10, algorithm, _CF)
            used = sum(report["prefetched"]["blocks_by_reads"][1:]) if report else 0
            if report is None or not used:
                texts.append(f"{algorithm} -")
                continue
            share = report["prefetched"]["blocks_by_reads"][1] / used
            above += share > 0.6
            texts.append(f"{algorithm} {share:.0%}")
        return above > len(printed.ALGORITHMS) / 2, "of the used ones: " + ", ".join(texts)

    def track(trace: str) -> tuple[bool, str] | str:
        measures = []
        for path in (MISS_RATIO, "prefetched.efficiency"):
            values = [
                results.estimate(path, trace, "footprint", 10, "sarc_graph", _CF, variant=f"track={blocks}")
                for blocks in TRACK_BLOCKS
            ]
            found = [value for value in values if value is not None]
            if len(found) < len(values):
                return "not run under these conditions"
            measures.append(found)
        misses, efficiencies = measures
        return staying(misses) and staying(efficiencies), f"misses {shares(misses)}; PE {shares(efficiencies)}"

    return [
        by_majority(
            "Of most policies, more than 60 % of the prefetched blocks are read once",
            "figure 12",
            "> 60 %",
            by_trace(results, once),
        ),
        by_majority("Larger tracks: fewer misses, lower PE", "figure 11", "monotone", by_trace(results, track)),
        _random_only(results),
    ]


def _mean(value: Estimate) -> float:
    return value.mean


def _each(values: Sequence[Estimate]) -> str:
    return ", ".join(share(value) for value in values)


def _populations(results: Results, trace: str) -> list[Json] | None:
    """Of LRU_GRAPH with all reads in its graph, and with random ones only."""
    key = (trace, "footprint", 10, "lru_graph", _CF)
    found = [results.get(*key, "populate=every"), results.get(*key)]
    reports = [report for report in found if report is not None]
    return reports if len(reports) == len(found) else None


def _random_only(results: Results) -> Check:
    def test(trace: str) -> tuple[bool, str] | str:
        reports = _populations(results, trace)
        if reports is None:
            return "not run under these conditions"
        nodes = [report["policy"]["nodes"] + report["policy"]["edges"] for report in reports]
        if not nodes[0]:
            return "the graph is empty"
        saved = 1 - nodes[1] / nodes[0]
        misses = [report["reads"]["miss_ratio"] for report in reports]
        efficiency = [report["prefetched"]["efficiency"] for report in reports]
        same = abs(misses[1] - misses[0]) < 0.01 and abs(efficiency[1] - efficiency[0]) < 0.02
        detail = (
            f"metadata {-saved:+.0%}, misses {misses[0]:.1%} -> {misses[1]:.1%}, "
            f"PE {efficiency[0]:.1%} -> {efficiency[1]:.1%}"
        )
        return saved >= 0.7 and same, detail

    claim = "A graph of random reads only has less metadata and hits as well"
    return by_majority(claim, "section 4.2.3", "-80 %, same hit ratio and PE", by_trace(results, test))


def _runtime(results: Results) -> Check:
    def test(trace: str) -> tuple[bool, str] | str:
        reports = _populations(results, trace)
        if reports is None:
            return "not run under these conditions"
        every, random = (report["wall_seconds"] for report in reports)
        return random <= 0.2 * every, f"{random / every - 1:+.0%}, decoding, cache and other workers included"

    claim = "A graph of random reads only takes less time"
    return by_majority(claim, "section 4.2.3", "-90 %", by_trace(results, test))


def _nodes(results: Results) -> Check:
    def test(trace: str) -> tuple[bool, str] | str:
        report = results.get(trace, "footprint", 10, "lru_graph", _CF)
        if report is None:
            return "not run under these conditions"
        share = report["policy"]["nodes"] / max(1, results.analyses[trace]["distinct"])
        return 0.005 <= share <= 0.02, f"{share:.2%} of the distinct blocks"

    claim = "The graph has about 1 % as many nodes as there are blocks"
    return by_majority(claim, "section 6.4", "about 1 %", by_trace(results, test))


def _degrees(results: Results) -> Check:
    """SEQ's m is not printed, and what AMP gains over SEQ depends on it."""

    def test(trace: str) -> tuple[bool, str] | str:
        key = (trace, "footprint", 10)
        adaptive = results.estimate(MISS_RATIO, *key, "lru_amp", _CF)
        fixed = [results.estimate(MISS_RATIO, *key, "lru_seq", _CF, f"degree={degree}") for degree in DEGREE_BLOCKS]
        found = [value for value in fixed if value is not None]
        if adaptive is None or len(found) < len(fixed):
            return "not run under these conditions"
        less = sum(adaptive.is_below(value) for value in found)
        degrees = "/".join(str(degree) for degree in DEGREE_BLOCKS)
        texts = " ".join(f"{value.mean:.1%}" for value in found)
        return less > len(found) / 2, f"AMP {share(adaptive)}; m = {degrees}: {texts}"

    claim = "LRU_AMP misses less than LRU_SEQ with most values of m, a cache of 10 %"
    return by_majority(claim, "not in the paper", "-", by_trace(results, test))


def _control(results: Results) -> Check:
    def gain(trace: str, variant: str) -> float | None:
        """Points of miss ratio that LRU_GRAPH gains over LRU_AMP."""
        misses = [
            results.value(MISS_RATIO, trace, "footprint", 10, algorithm, _CF, variant) for algorithm in CONTROLLED
        ]
        return None if misses[0] is None or misses[1] is None else misses[0] - misses[1]

    def test(trace: str) -> tuple[bool, str] | str:
        original = gain(trace, "")
        shuffled = [gain(trace, f"shuffled={window}") for window in WINDOWS]
        if original is None or None in shuffled:
            return "not run under these conditions"
        if original < _POINT:
            return f"GRAPH gains {original:.1%} here, too little to lose"
        left = [value for value in shuffled if value is not None]
        texts = " ".join(f"{value:.1%}" for value in left)
        return left[-1] < original / 2, f"{original:.1%}; shuffled among {WINDOWS[0]} and {WINDOWS[1]}: {texts}"

    claim = "Control: where jumps are shuffled, less than half of what GRAPH gains over AMP is left"
    return by_majority(claim, "not in the paper", "-", by_trace(results, test))


def _cost(results: Results) -> list[Check]:
    def cheaper(trace: str, denominator: str, percent: int) -> tuple[bool | None, str] | None:
        sizes = [size for size in PERCENTS if results.get(trace, denominator, size, "sarc_graph", _CF)]
        if len(sizes) < len(PERCENTS) or percent != sizes[-1]:
            return None
        costs = [
            [operation_usd(report["dollars"]) for report in reports if report]
            for name in printed.ALGORITHMS
            if (reports := [results.get(trace, denominator, size, name, _CF) for size in sizes])
        ]
        if not all(of[0] for of in costs):
            return None, "nothing is asked of the cloud"
        falls = sum(all(after <= before for before, after in pairwise(of)) for of in costs)
        texts = ", ".join(
            f"{name} " + "/".join(f"{cost / of[0]:.2f}" for cost in of)
            for name, of in zip(printed.ALGORITHMS, costs, strict=True)
        )
        return falls == len(costs), f"at 10, 20, 30 %: {texts}"

    return [
        *_arithmetic(),
        particular(
            "Operational cost with history, $/GB over three years", "figure 13", "Corp .05-.15, Eng .01-.02", LEUNG
        ),
        by_majority("A larger cache lowers the cost of operation", "section 6.3", "-", by_cell(results, cheaper, _CF)),
    ]


def _metadata(results: Results) -> Check:
    def metadata(trace: str, denominator: str, percent: int) -> tuple[bool, str] | None:
        sizes = {}
        for algorithm in printed.ALGORITHMS:
            parts = [
                results.value(f"policy.{part}", trace, denominator, percent, algorithm, _CF)
                for part in ("cache_bytes", "prefetch_bytes")
            ]
            if None in parts:
                return None
            sizes[algorithm] = sum(part for part in parts if part is not None)
        graph = [sizes[name] / sizes["lru_seq"] for name in ("lru_graph", "sarc_graph")]
        sarc = sizes["sarc_amp"] / sizes["lru_seq"]
        holds = all(_RATIO_GRAPH[0] <= ratio <= _RATIO_GRAPH[1] for ratio in graph)
        holds = holds and _RATIO_SARC[0] <= sarc <= _RATIO_SARC[1]
        return holds, f"LRU_GRAPH {graph[0]:.2f}, SARC_GRAPH {graph[1]:.2f}, SARC_AMP {sarc:.2f} times LRU_SEQ"

    claim = "Metadata: GRAPH 1.8-2.6 times LRU_SEQ, SARC_AMP 1.17-1.38 times"
    return by_majority(claim, "table 7", "see table 7", by_cell(results, metadata, _CF))


def _arithmetic() -> list[Check]:
    """Table 6 from the paper's own formulas and inputs."""
    checks = []
    for dataset, model in printed.STORAGE_MODEL.items():
        cost = printed.storage_usd_per_gb(unit_price=printed.UNIT_PRICE_OF_TOTAL, **model)
        storage, operation, total = printed.TABLE_6[dataset]
        sums = abs(storage + operation - total) < 0.0005
        reason = (
            f"the formulas give {cost:.4f} at {printed.UNIT_PRICE_OF_TOTAL} $/GB and month; the printed "
            f"{printed.UNIT_PRICE_PRINTED} and 4040.65 are misprints, since neither gives the printed totals"
        )
        claim = f"Storage + operation = total, storage by formulas (4)-(6), {dataset}"
        holds = verdict_of(sums and abs(cost - storage) < 0.0015)
        checks.append(Check(claim, "table 6", f"{storage} + {operation} = {total}", holds, reason))
    return checks
