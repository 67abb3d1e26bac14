"""What the GDS-LC paper says of its policies, held against the workloads at hand by the rules in `RULES`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tombolo_sim.gds_lc import runs
from tombolo_sim.gds_lc.figures import MIDDLE, TITLES
from tombolo_sim.gds_lc.readings import READINGS
from tombolo_sim.gds_lc.runs import Metric, Point, Results, point
from tombolo_sim.gds_lc.scenarios import CACHE_SHARES, SCENARIOS, Workload
from tombolo_sim.report.checks.base import Check, Finding, Verdict, by_majority, particular, verdict_of, with_reading
from tombolo_sim.report.estimate import Estimate

CLOSE = 0.05
EQUAL = 0.01
SAME = 0.002
"""Of two values that differ by no more neither is the lower one."""
PRINTED_BYTES_MIN = 164e6
"""Of Clark, the smallest of the paper's workloads."""
VARIATION = (0.05, 0.10)
COSTS: tuple[tuple[str, Metric], ...] = (("latency", runs.latency_ms), ("bill", runs.dollars))

RULES = (
    "The same rules hold for every claim, workload and condition. A claim holds when it does in most of the cells that "
    "decide anything; how many they are stands beside the verdict. A cell is a workload that stands for one of which "
    "the claim speaks, and each size of cache of which it speaks; where it says nothing of sizes that is a tenth of "
    "all objects' bytes, as in the paper's own details.",
    "*Lower* and *higher* are judged by the change from one to the other under the same seed, averaged over the seeds. "
    f"A cell decides nothing where the border between yes and no lies within the 95 % interval, or within {SAME:.1%} "
    f"where that is more; runs that deviate by less than {EQUAL:.0%} from their mean do not say which deviate more.",
    f"*Lowest or within 1 %*: at most {EQUAL:.0%} above the best other, where the policies differ by more than "
    f"{SAME:.1%}. *Close*, *comparable*, *about equal*, *little*: at most {CLOSE:.0%} above. Where the paper prints "
    "the size of an effect, a second claim asks for half of it or more.",
    f"A workload of less than a tenth of the bytes of the paper's smallest ({PRINTED_BYTES_MIN / 1e6:.0f} MB) is shown "
    "and decides nothing.",
)


class Claims:
    def __init__(self, results: Results, workloads: Sequence[Workload]) -> None:
        self.results = results
        self.workloads = workloads

    def standing_for(self, *papers: str) -> list[Workload]:
        return [workload for workload in self.workloads if workload.stands_for in papers]

    def all(self) -> Iterator[Check]:
        yield from self._orders()
        yield from self._both_goals()
        yield from self._write_intensive()
        yield from self._uploads()
        yield self._missed_sizes()
        yield from self._fees()
        yield from self._regions()
        yield from self._normalisation()
        yield from self._frequencies()
        yield from self._clean_dirty()
        yield from self._variation()

    def _cell(self, workload: Workload, holds: bool | None, detail: str, place: str = "") -> Finding:
        where = f"{workload.name}, {place}" if place else workload.name
        first = self.results.reports[point(SCENARIOS[0].name, workload.name, "lru", MIDDLE)][0]
        is_tiny = first["object_bytes"] < PRINTED_BYTES_MIN / 10
        verdict = Verdict.UNDECIDED if holds is None or is_tiny else verdict_of(holds)
        return Finding(where, verdict, detail, workload.name)

    def _compared(
        self, workload: Workload, mine: Point, other: Point, metric: Metric, bound: float = 0.0, place: str = ""
    ) -> Finding:
        """Whether one configuration has no more than `1 + bound` times what another has."""
        change = self.results.change(mine, other, metric)
        left, right = (f"{TITLES[at.policy]} {self.results.mean(at, metric):.4g}" for at in (mine, other))
        error = f"±{change.half_width:.1%}" if change.half_width >= 0.0005 else ""
        return self._cell(workload, below(change, bound), f"{left}, {right} ({change.mean:+.1%}{error})", place)

    def _each(
        self,
        scenario: str,
        papers: Sequence[str],
        mine: str,
        other: str,
        metric: Metric,
        bound: float = 0.0,
        share: float = MIDDLE,
    ) -> list[Finding]:
        """One policy against another on all workloads that stand for some of the paper's."""
        found = []
        for workload in self.standing_for(*papers):
            at, base = (point(scenario, workload.name, policy, share) for policy in (mine, other))
            found.append(self._compared(workload, at, base, metric, bound))
        return found

    def _orders(self) -> Iterator[Check]:
        for scenario in SCENARIOS:
            for label, metric in COSTS:
                source = f"figure {scenario.figure}"
                cells = [(workload, share) for workload in self.workloads for share in CACHE_SHARES]
                worst = [self._worst(scenario.name, *cell, metric) for cell in cells]
                yield by_majority(f"{scenario.title}: LRU has the highest {label}", source, "ordering", worst)
                best = [self._best(scenario.name, *cell, metric) for cell in cells]
                claim = f"{scenario.title}: GDS-LCF has the lowest {label} or one within 1 % of it"
                yield by_majority(claim, source, "ordering, most cases", best)

    def _ranked(self, scenario: str, workload: Workload, share: float, metric: Metric, but: str) -> list[Point]:
        """All policies but one, the cheapest first."""
        others = [point(scenario, workload.name, policy, share) for policy in runs.BASIC if policy != but]
        return sorted(others, key=lambda at: self.results.mean(at, metric))

    def _worst(self, scenario: str, workload: Workload, share: float, metric: Metric) -> Finding:
        *_, dearest = self._ranked(scenario, workload, share, metric, "lru")
        mine = point(scenario, workload.name, "lru", share)
        return self._compared(workload, dearest, mine, metric, place=f"{share:.0%}")

    def _best(self, scenario: str, workload: Workload, share: float, metric: Metric) -> Finding:
        least, *_, most = self._ranked(scenario, workload, share, metric, "gds-lcf")
        mine = point(scenario, workload.name, "gds-lcf", share)
        values = [self.results.mean(at, metric) for at in (mine, least, most)]
        if max(values) <= min(values) * (1 + SAME):
            return self._cell(workload, None, f"all policies have {values[0]:.4g}", f"{share:.0%}")
        return self._compared(workload, mine, least, metric, EQUAL, f"{share:.0%}")

    def _both_goals(self) -> Iterator[Check]:
        for (label, metric), single in zip(COSTS, ("gds-latency", "gds-price"), strict=True):
            yield by_majority(
                f"Local cloud, reads: GDS-LC's {label} is close to {TITLES[single]}'s",
                "section 5.2.1, figures 6b-c, h-i",
                "close",
                self._each("local", ("Clark", "Media"), "gds-lc", single, metric, CLOSE),
            )

    def _write_intensive(self) -> Iterator[Check]:
        for claim, bound in (("lower", 0.0), ("lower by half of the printed 21 % or more", -0.21 / 2)):
            yield by_majority(
                f"Netfs, local, 5 %: GDS-LC's latency against GDS(latency)'s is {claim}",
                "section 5.2.1, figure 6e",
                "33 to 26 ms, -21 %",
                self._each("local", ("Netfs",), "gds-lc", "gds-latency", runs.latency_ms, bound, share=0.05),
            )
        yield by_majority(
            "Netfs, local: GDS(price) has a lower latency than GDS(latency)",
            "figure 6e",
            "ordering",
            self._each("local", ("Netfs",), "gds-price", "gds-latency", runs.latency_ms),
        )
        yield by_majority(
            "Netfs, local, 20 %: even LRU has a lower latency than GDS(latency)",
            "figure 6e",
            "ordering",
            self._each("local", ("Netfs",), "lru", "gds-latency", runs.latency_ms, share=0.20),
        )

    def _uploads(self) -> Iterator[Check]:
        on_demand = runs.uploads("on_demand")
        for claim, bound in (("fewer", 0.0), ("fewer by half of the printed 46 % or more", -0.46 / 2)):
            yield by_majority(
                f"Netfs, local, 10 %: GDS-LC's uploads on demand against GDS(latency)'s are {claim}",
                "figure 8a",
                "2,800 to 1,500, -46 %",
                self._each("local", ("Netfs",), "gds-lc", "gds-latency", on_demand, bound),
            )
        for claim, metric, less, more in (
            ("LRU has fewer uploads on demand than ARC", on_demand, "lru", "arc"),
            ("ARC has fewer uploads in the background than LRU", runs.uploads("background"), "arc", "lru"),
            ("ARC has fewer uploads in all than LRU", runs.all_uploads, "arc", "lru"),
        ):
            found = self._each("local", ("Netfs",), less, more, metric)
            yield by_majority(f"Netfs, local, 10 %: {claim}", "figure 8a-b", "ordering", found)
        claim = "Netfs, local, 10 %: GDS(price), GDS-LC and GDS-LCF upload about equally much"
        alike = [
            self._alike(
                workload, [point("local", workload.name, policy, MIDDLE) for policy in _ALIKE], runs.all_uploads
            )
            for workload in self.standing_for("Netfs")
        ]
        yield by_majority(claim, "figure 8b", "comparable", alike)

    def _alike(self, workload: Workload, points: Sequence[Point], metric: Metric) -> Finding:
        """Whether the largest is close to the smallest."""
        values = {at: self.results.mean(at, metric) for at in points}
        least, most = min(points, key=values.__getitem__), max(points, key=values.__getitem__)
        detail = ", ".join(f"{value:.5g}" for value in values.values())
        return self._cell(workload, below(self.results.change(most, least, metric), CLOSE), detail)

    def _missed_sizes(self) -> Check:
        return by_majority(
            "Clark, local, 10 %: of the objects downloaded more are above 20 KB with GDS-LC than with LRU",
            "figure 7b",
            "37 % against 18 %",
            self._each("local", ("Clark",), "lru", "gds-lc", runs.share_above_20_kib),
        )

    def _fees(self) -> Iterator[Check]:
        for claim, item, less, more in (
            ("more for transfer", "egress", "lru", "gds-lc"),
            ("less for requests", "get", "gds-lc", "lru"),
        ):
            found = self._each("internet", ("Clark",), less, more, runs.fee(item))
            yield by_majority(f"Clark, Internet, 10 %: GDS-LC pays {claim} than LRU", "figure 10a", "ordering", found)
        claim = "Clark: GDS-LC saves a smaller part of LRU's bill over the Internet than in the local cloud"
        saved = [self._saved(workload) for workload in self.standing_for("Clark")]
        yield by_majority(claim, "figures 6c, 9c", "ordering", saved)
        for label, metric in (("pays less", runs.dollars), ("pays less for PUTs", runs.fee("put"))):
            for policy in ("gds-lc", "gds-lcf"):
                found = self._each("internet", ("Netfs",), policy, "gds-price", metric)
                claim = f"Netfs, Internet, 10 %: {TITLES[policy]} {label} than GDS(price)"
                yield by_majority(claim, "figures 9f, 10b", "ordering", found)

    def _saved(self, workload: Workload) -> Finding:
        near, far = (
            self.results.change(
                point(scenario, workload.name, "gds-lc", MIDDLE),
                point(scenario, workload.name, "lru", MIDDLE),
                runs.dollars,
            )
            for scenario in ("local", "internet")
        )
        detail = f"GDS-LC's bill against LRU's: {near.mean:+.1%} in the local cloud, {far.mean:+.1%} over the Internet"
        error = near.half_width + far.half_width
        return self._cell(workload, below(Estimate(near.mean - far.mean, error)), detail)

    def _regions(self) -> Iterator[Check]:
        found = []
        for workload in self.standing_for("Netfs"):
            at = {ratio: self._ratio(workload, ratio) for ratio in runs.RATIOS}
            shown = (
                f"{upper}:{lower} {self.results.mean(of, runs.latency_ms):.4g} ms" for (upper, lower), of in at.items()
            )
            changes = [self.results.change(at[1, 2], at[other], runs.latency_ms) for other in ((1, 3), (2, 1))]
            found.append(self._cell(workload, _all(below(change) for change in changes), ", ".join(shown)))
        claim = "Netfs, Internet, 10 %: regions of 1:2 give a lower latency than 1:3 and than 2:1"
        yield by_majority(claim, "figure 15e", "1:3 74, 1:2 59, 2:1 80 ms", found)
        alike = [
            self._alike(workload, [self._ratio(workload, ratio) for ratio in runs.RATIOS], runs.latency_ms)
            for workload in self.standing_for("Clark", "Media")
        ]
        yield by_majority("Reads, Internet, 10 %: the regions' sizes matter little", "figure 15b, h", "weak", alike)

    def _ratio(self, workload: Workload, ratio: tuple[int, int]) -> Point:
        return Point("internet", workload.name, "gds-lcf", MIDDLE, runs.PAPERS_FACTOR, ratio)

    def _normalisation(self) -> Iterator[Check]:
        printed = {
            "local": (10, "figure 16", ("Clark", "Netfs", "Media")),
            "internet": (1, "figure 17", ("Media",)),
            "hetero": (1, "figure 18", ("Clark",)),
        }
        for scenario in SCENARIOS:
            best, source, papers = printed[scenario.name]
            found = [self._factors(scenario.name, workload, best) for workload in self.standing_for(*papers)]
            where = f"{scenario.title}, GDS(latency), 10 %"
            claims = [
                (f"{best} round trips is the best factor", f"{best}"),
                (f"100 round trips are worse than {best}", "ordering"),
            ]
            if scenario.name == "local":
                claims.append(("hit ratios rise with the factor", "ordering"))
            for place, (claim, shown) in enumerate(claims):
                yield by_majority(f"{where}: {claim}", source, shown, [findings[place] for findings in found])

    def _factors(self, scenario: str, workload: Workload, best: int) -> tuple[Finding, Finding, Finding]:
        """Whether a factor is the best one, better than 100, and whether hit ratios rise with it."""
        at = {factor: Point(scenario, workload.name, "gds-latency", MIDDLE, factor) for factor in runs.FACTORS}
        means = {factor: self.results.mean(of, runs.latency_ms) for factor, of in at.items()}
        detail = ", ".join(f"{factor or 'none'} {mean:.5g} ms" for factor, mean in means.items())
        rival = min((factor for factor in means if factor != best), key=means.__getitem__)
        is_best, is_better = (
            below(self.results.change(at[best], at[other], runs.latency_ms)) for other in (rival, 100)
        )
        hits = list(at.values())
        rises = [below(self.results.change(before, after, runs.hit_ratio)) for before, after in pairwise(hits)]
        rising = False if False in rises else True if True in rises else None
        shown = ", ".join(f"{self.results.mean(of, runs.hit_ratio):.4f}" for of in hits)
        return (
            self._cell(workload, is_best, detail),
            self._cell(workload, is_better, detail),
            self._cell(workload, rising, shown),
        )

    def _frequencies(self) -> Iterator[Check]:
        for (label, metric), single in zip(COSTS, runs.FREQUENCY, strict=True):
            claim = f"Reads, Internet, 10 %: GDS-LCF's {label} is close to {TITLES[single]}'s"
            found = self._each("internet", ("Clark", "Media"), "gds-lcf", single, metric, CLOSE)
            yield by_majority(claim, "figure 19", "comparable", found)
            claim = f"Netfs, Internet, 10 %: GDS-LCF's {label} is lower than both GDSF's"
            found = [
                finding
                for other in runs.FREQUENCY
                for finding in self._each("internet", ("Netfs",), "gds-lcf", other, metric)
            ]
            yield by_majority(claim, "figure 19", "ordering", found)

    def _clean_dirty(self) -> Iterator[Check]:
        for mine, other, figure in (("gds-lc", "gds-l", 20), ("gds-lcf", "gds-lf", 21)):
            for said, metric, bound, printed in (
                ("bill is lower than", runs.dollars, 0.0, "ordering"),
                ("latency is comparable to", runs.latency_ms, CLOSE, "comparable"),
            ):
                claim = f"Netfs, Internet, 10 %: {TITLES[mine]}'s {said} {TITLES[other]}'s"
                found = self._each("internet", ("Netfs",), mine, other, metric, bound)
                yield by_majority(claim, f"figure {figure}", printed, found)

    def _variation(self) -> Iterator[Check]:
        """Of the means of runs."""
        places = [(scenario.name, workload) for scenario in SCENARIOS for workload in self.workloads]
        relative, more = [], []
        for scenario, workload in places:
            of = {policy: point(scenario, workload.name, policy, MIDDLE) for policy in runs.BASIC}
            deviations = {policy: self.results.error(at, runs.latency_ms) for policy, at in of.items()}
            means = {policy: self.results.mean(at, runs.latency_ms) for policy, at in of.items()}
            shares = [deviations[policy] / means[policy] for policy in runs.BASIC]
            mean = sum(shares) / len(shares)
            is_run_often = len(self.results.reports[of["lru"]]) > 1
            holds = VARIATION[0] <= mean <= VARIATION[1] if is_run_often else None
            detail = f"{mean:.1%} on average over the policies, from {min(shares):.1%} to {max(shares):.1%}"
            relative.append(self._cell(workload, holds, detail, scenario))
            left, right = deviations["lru"], deviations["gds-lcf"]
            shown = f"LRU ±{left:.3g} ms, GDS-LCF ±{right:.3g} ms"
            does_vary = is_run_often and mean > EQUAL
            more.append(self._cell(workload, left > right if does_vary else None, shown, scenario))
        claim = "Latencies vary by 5 to 10 % from run to run"
        reason = "how far the network drifts is an input, taken from this claim"
        yield particular(claim, "figures 12-14", "5-10 %", reason, relative)
        claim = "The policy that hits less varies more: LRU's latency, in ms, more than GDS-LCF's"
        yield by_majority(claim, "section 5.2.4", "ordering", more)


_ALIKE = ("gds-price", "gds-lc", "gds-lcf")


def below(change: Estimate, bound: float = 0.0) -> bool | None:
    """Whether a change is less than a bound; None: it is too near to it."""
    if abs(change.mean - bound) <= max(change.half_width, SAME):
        return None
    return change.mean < bound


def _all(answers: Iterable[bool | None]) -> bool | None:
    """False when one is; else None when one is."""
    given = list(answers)
    return False if False in given else None if None in given else True


def all_checks(results: Results, workloads: Sequence[Workload]) -> list[Check]:
    return [with_reading(check, READINGS) for check in Claims(results, workloads).all()]
