"""The paper's claims on made-up stand-ins for its own two traces, which are not public.

How often work repeats is a parameter of the model, so that no order among policies is borne out by them; each stands
beside a control whose jumps do not repeat. What they can bear out is scale: misses, latencies and cost of a load of the
printed size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tombolo_sim import synthetic
from tombolo_sim.engine import Json
from tombolo_sim.models import CLOUDS as CLOUD_MODELS
from tombolo_sim.policies import COMBINATIONS, title
from tombolo_sim.report import printed
from tombolo_sim.report.checks import Check, Verdict, tombolo
from tombolo_sim.report.checks.base import by_majority, verdict_of
from tombolo_sim.report.checks.measures import MISS_RATIO
from tombolo_sim.report.estimate import estimate, share
from tombolo_sim.report.markdown import Table
from tombolo_sim.report.results import CLOUDS, DENOMINATORS, MISSES_ON, PERCENTS, Results, operation_usd_over_term
from tombolo_sim.sources import Trace

SCALE = 0.01
DATASETS = ("Corp", "Eng")
_RANGE_USD_PER_GB = {"Corp": (0.05, 0.15), "Eng": (0.01, 0.02)}
_GRAPHS = ("lru_graph", "sarc_graph")


@dataclass(frozen=True)
class Group:
    """Of one data set, or its control."""

    title: str
    dataset: str
    wanted: Sequence[synthetic.Synthetic]


def groups(seeds: int) -> list[Group]:
    return [
        Group(
            f"{dataset}{', control' if templates == 0 else ''}",
            dataset,
            [synthetic.Synthetic(dataset.lower(), SCALE, seed, templates) for seed in range(1, seeds + 1)],
        )
        for dataset in DATASETS
        for templates in (None, 0)
    ]


def only(results: Results, group: Group, traces: Sequence[Trace]) -> Results:
    """Each is run with the first seed: the made-up traces differ by seeds of their own."""
    names = {wanted.name for wanted in group.wanted}
    return replace(results.of([trace for trace in traces if trace.name in names]), seeds=results.seeds[:1])


def checks(results: Results, group: Group) -> list[Check]:
    """The paper's claims, those about its own traces too, by the same rules."""
    found = [
        by_majority(check.claim, check.source, check.printed, check.findings)
        if check.verdict is Verdict.UNTESTABLE and check.findings
        else check
        for check in tombolo(results)
    ]
    return [_operation(results, group) if check.source == "figure 13" else check for check in found]


def _operation(results: Results, group: Group) -> Check:
    low, high = _RANGE_USD_PER_GB[group.dataset]
    costs = []
    for trace in results.traces:
        for cloud in CLOUDS:
            for denominator in DENOMINATORS:
                for name in _GRAPHS:
                    report = results.get(trace.name, denominator, PERCENTS[-1], name, cloud)
                    if report is not None:
                        costs.append(_usd_per_gb(report, results.analyses[trace.name], group))
    claim = f"Operational cost with history, {group.dataset}, $/GB over three years"
    printed_range = f"{low:.2f} (S3) to {high:.2f} (CloudFront)"
    if not costs:
        return Check(claim, "figure 13", printed_range, Verdict.UNTESTABLE, "runs are missing")
    within = low <= min(costs) and max(costs) <= high
    return Check(claim, "figure 13", printed_range, verdict_of(within), f"{min(costs):.3f} to {max(costs):.3f}")


def _usd_per_gb(report: Json, analysis: Json, group: Group) -> float:
    """Of what the data set has on average in three years, at the scale."""
    model = printed.STORAGE_MODEL[group.dataset]
    stored = (model["initial_gb"] + model["growth_gb_per_month"] * printed.MONTHS / 2) * SCALE
    return operation_usd_over_term(report, analysis["span_us"]) / stored


def misses(found: Sequence[tuple[Group, Results]]) -> Table:
    rows = []
    for group, results in found:
        for denominator in DENOMINATORS:
            for percent in PERCENTS:
                cells = []
                for name in COMBINATIONS:
                    values = [
                        results.value(MISS_RATIO, trace.name, denominator, percent, name, MISSES_ON)
                        for trace in results.traces
                    ]
                    there = [value for value in values if value is not None]
                    cells.append(share(estimate(there)) if there else "-")
                if any(cell != "-" for cell in cells):
                    rows.append([f"{group.title}, {percent} % of {denominator}", *cells])
    head = ["read requests that miss", *(title(name) for name in COMBINATIONS)]
    return Table(f"Misses on the stand-ins ({CLOUD_MODELS[MISSES_ON].title})", head, rows)
