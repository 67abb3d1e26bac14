"""What the GDS-LC paper says of its policies, held against the workloads at hand.

Each claim has one rule, the same for every workload: *lower* means lower by any amount, *close* within 5 %,
*best or equal* within 1 % of the best. Where the paper prints a size of an effect, a second claim asks for half of
it or more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tombolo_sim.gds_lc import runs
from tombolo_sim.gds_lc.figures import MIDDLE, TITLES
from tombolo_sim.gds_lc.readings import READINGS
from tombolo_sim.gds_lc.runs import Metric, Point, Results
from tombolo_sim.gds_lc.scenarios import CACHE_SHARES, SCENARIOS, Workload
from tombolo_sim.report.checks.base import Check, Finding, Verdict, general, particular, verdict_of, with_reading

CLOSE = 0.05
EQUAL = 0.01
COSTS: tuple[tuple[str, Metric], ...] = (("latency", runs.latency_ms), ("bill", runs.dollars))

Value: TypeAlias = Callable[[str, Metric], float]


class Claims:
    def __init__(self, results: Results, workloads: Sequence[Workload]) -> None:
        self.results = results
        self.workloads = workloads

    def standing_for(self, *papers: str) -> list[Workload]:
        return [workload for workload in self.workloads if workload.stands_for in papers]

    def value(self, scenario: str, workload: Workload, share: float) -> Value:
        return lambda policy, metric: self.results.basic(scenario, workload.name, policy, share, metric)

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
        yield particular(
            "Latencies vary by 5 to 10 % from run to run",
            "figures 12-14",
            "5-10 %",
            "the clouds' fluctuation is an input here; independent draws over many requests average out",
        )

    def _orders(self) -> Iterator[Check]:
        for scenario in SCENARIOS:
            for label, metric in COSTS:
                source = f"figure {scenario.figure}"
                worst = [
                    self._extreme(scenario.name, workload, label, metric, is_worst=True) for workload in self.workloads
                ]
                yield general(f"{scenario.title}: LRU has the highest {label}", source, "ordering", worst)
                best = [
                    self._extreme(scenario.name, workload, label, metric, is_worst=False) for workload in self.workloads
                ]
                claim = f"{scenario.title}: GDS-LCF has the lowest {label} or one within 1 % of it"
                yield general(claim, source, "ordering, most cases", best)

    def _extreme(self, scenario: str, workload: Workload, label: str, metric: Metric, is_worst: bool) -> Finding:
        """Over all cache sizes: LRU the worst at each, or GDS-LCF the best or equal at most."""
        holding, exceptions = 0, []
        for share in CACHE_SHARES:
            found = {
                policy: self.results.basic(scenario, workload.name, policy, share, metric) for policy in runs.BASIC
            }
            least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
            holds = most == "lru" if is_worst else found["gds-lcf"] <= found[least] * (1 + EQUAL)
            holding += holds
            if not holds:
                mine, other = ("lru", most) if is_worst else ("gds-lcf", least)
                exceptions.append(f"{share:.0%}: {TITLES[mine]} {found[mine]:.4g}, {TITLES[other]} {found[other]:.4g}")
        enough = len(CACHE_SHARES) if is_worst else len(CACHE_SHARES) // 2 + 1
        detail = f"at {holding} of {len(CACHE_SHARES)} sizes" + ("; " + "; ".join(exceptions) if exceptions else "")
        return Finding(workload.name, verdict_of(holding >= enough), f"{label}: {detail}")

    def _both_goals(self) -> Iterator[Check]:
        pairs = (("latency", runs.latency_ms, "gds-latency"), ("bill", runs.dollars, "gds-price"))
        for label, metric, single in pairs:
            findings = []
            for workload in self.standing_for("Clark", "Media"):
                value = self.value("local", workload, MIDDLE)
                mine, other = value("gds-lc", metric), value(single, metric)
                findings.append(_compare(workload.name, mine <= other * (1 + CLOSE), "gds-lc", mine, single, other))
            claim = f"Local cloud, reads: GDS-LC's {label} is close to {TITLES[single]}'s"
            yield general(claim, "section 5.2.1, figures 6b-c, h-i", "close", findings)

    def _write_intensive(self) -> Iterator[Check]:
        netfs = self.standing_for("Netfs")
        small = [(workload, self.value("local", workload, 0.05)) for workload in netfs]
        for claim, factor in (("lower", 1.0), ("lower by half of the printed 21 % or more", 1 - 0.21 / 2)):
            findings = [
                _less(workload.name, value, "gds-lc", "gds-latency", runs.latency_ms, factor)
                for workload, value in small
            ]
            text = f"Netfs, local, 5 %: GDS-LC's latency against GDS(latency)'s is {claim}"
            yield general(text, "section 5.2.1, figure 6e", "33 to 26 ms, -21 %", findings)
        middle = [(workload, self.value("local", workload, MIDDLE)) for workload in netfs]
        findings = [
            _less(workload.name, value, "gds-price", "gds-latency", runs.latency_ms) for workload, value in middle
        ]
        yield general(
            "Netfs, local: GDS(price) has a lower latency than GDS(latency)", "figure 6e", "ordering", findings
        )
        large = [(workload, self.value("local", workload, 0.20)) for workload in netfs]
        findings = [_less(workload.name, value, "lru", "gds-latency", runs.latency_ms) for workload, value in large]
        yield general(
            "Netfs, local, 20 %: even LRU has a lower latency than GDS(latency)", "figure 6e", "ordering", findings
        )

    def _uploads(self) -> Iterator[Check]:
        on_demand = runs.uploads("on_demand")
        found = [(workload, self.value("local", workload, MIDDLE)) for workload in self.standing_for("Netfs")]
        for claim, factor in (("fewer", 1.0), ("fewer by half of the printed 46 % or more", 1 - 0.46 / 2)):
            findings = [
                _less(workload.name, value, "gds-lc", "gds-latency", on_demand, factor) for workload, value in found
            ]
            text = f"Netfs, local, 10 %: GDS-LC's uploads on demand against GDS(latency)'s are {claim}"
            yield general(text, "figure 8a", "2,800 to 1,500, -46 %", findings)
        for claim, metric, less, more in (
            ("LRU has fewer uploads on demand than ARC", on_demand, "lru", "arc"),
            ("ARC has fewer uploads in the background than LRU", runs.uploads("background"), "arc", "lru"),
            ("ARC has fewer uploads in all than LRU", runs.all_uploads, "arc", "lru"),
        ):
            findings = [_less(workload.name, value, less, more, metric) for workload, value in found]
            yield general(f"Netfs, local, 10 %: {claim}", "figure 8a-b", "ordering", findings)
        findings = []
        for workload, value in found:
            totals = [value(policy, runs.all_uploads) for policy in ("gds-price", "gds-lc", "gds-lcf")]
            detail = "GDS(price), GDS-LC, GDS-LCF: " + ", ".join(f"{total:,.0f}" for total in totals)
            findings.append(Finding(workload.name, verdict_of(max(totals) <= min(totals) * (1 + CLOSE)), detail))
        claim = "Netfs, local, 10 %: GDS(price), GDS-LC and GDS-LCF upload about equally much"
        yield general(claim, "figure 8b", "comparable", findings)

    def _missed_sizes(self) -> Check:
        findings = []
        for workload in self.standing_for("Clark"):
            value = self.value("local", workload, MIDDLE)
            findings.append(_less(workload.name, value, "lru", "gds-lc", runs.share_above_20_kib))
        return general(
            "Clark, local, 10 %: of the objects downloaded more are above 20 KB with GDS-LC than with LRU",
            "figure 7b", "37 % against 18 %", findings,
        )  # fmt: skip

    def _fees(self) -> Iterator[Check]:
        web = [(workload, self.value("internet", workload, MIDDLE)) for workload in self.standing_for("Clark")]
        findings = [_less(workload.name, value, "lru", "gds-lc", runs.fee("egress")) for workload, value in web]
        yield general(
            "Clark, Internet, 10 %: GDS-LC pays more for transfer than LRU", "figure 10a", "ordering", findings
        )
        findings = [_less(workload.name, value, "gds-lc", "lru", runs.fee("get")) for workload, value in web]
        yield general(
            "Clark, Internet, 10 %: GDS-LC pays less for requests than LRU", "figure 10a", "ordering", findings
        )
        findings = []
        for workload, value in web:
            local = self.value("local", workload, MIDDLE)
            near, far = (of("gds-lc", runs.dollars) / of("lru", runs.dollars) for of in (local, value))
            detail = f"GDS-LC's bill is {near:.1%} of LRU's in the local cloud, {far:.1%} over the Internet"
            findings.append(Finding(workload.name, verdict_of(near < far), detail))
        claim = "Clark: GDS-LC saves a smaller part of LRU's bill over the Internet than in the local cloud"
        yield general(claim, "figures 6c, 9c", "ordering", findings)
        netfs = [(workload, self.value("internet", workload, MIDDLE)) for workload in self.standing_for("Netfs")]
        for label, metric in (("pays less", runs.dollars), ("pays less for PUTs", runs.fee("put"))):
            for policy in ("gds-lc", "gds-lcf"):
                findings = [_less(workload.name, value, policy, "gds-price", metric) for workload, value in netfs]
                claim = f"Netfs, Internet, 10 %: {TITLES[policy]} {label} than GDS(price)"
                yield general(claim, "figures 9f, 10b", "ordering", findings)

    def _regions(self) -> Iterator[Check]:
        findings = []
        for workload in self.standing_for("Netfs"):
            found = {ratio: self._ratio(workload, ratio) for ratio in runs.RATIOS}
            detail = ", ".join(f"{upper}:{lower} {found[upper, lower]:.4g} ms" for upper, lower in runs.RATIOS)
            holds = found[1, 2] < found[1, 3] and found[1, 2] < found[2, 1]
            findings.append(Finding(workload.name, verdict_of(holds), detail))
        claim = "Netfs, Internet, 10 %: regions of 1:2 give a lower latency than 1:3 and than 2:1"
        yield general(claim, "figure 15e", "1:3 74, 1:2 59, 2:1 80 ms", findings)
        findings = []
        for workload in self.standing_for("Clark", "Media"):
            values = [self._ratio(workload, ratio) for ratio in runs.RATIOS]
            detail = "latencies of " + ", ".join(f"{value:.4g}" for value in values) + " ms"
            findings.append(Finding(workload.name, verdict_of(max(values) <= min(values) * (1 + CLOSE)), detail))
        yield general("Reads, Internet, 10 %: the regions' sizes matter little", "figure 15b, h", "weak", findings)

    def _ratio(self, workload: Workload, ratio: tuple[int, int]) -> float:
        at = Point("internet", workload.name, "gds-lcf", MIDDLE, runs.PAPERS_FACTOR, ratio)
        return self.results.mean(at, runs.latency_ms)

    def _normalisation(self) -> Iterator[Check]:
        printed = {
            "local": (10, "figure 16", ("Clark", "Netfs", "Media")),
            "internet": (1, "figure 17", ("Media",)),
            "hetero": (1, "figure 18", ("Clark",)),
        }
        for scenario in SCENARIOS:
            best, source, papers = printed[scenario.name]
            titles = {None: "none", 1: "1", 10: "10", 100: "100"}
            best_found, hurt, growing = [], [], []
            for workload in self.standing_for(*papers):
                found = {
                    factor: self._factor(scenario.name, workload, factor, runs.latency_ms) for factor in runs.FACTORS
                }
                detail = ", ".join(f"{titles[factor]} {value:.5g} ms" for factor, value in found.items())
                least = min(found.values())
                if max(found.values()) <= least * (1 + 0.002):
                    verdict = Verdict.FAILS
                    detail += "; no difference above 0.2 %"
                else:
                    verdict = verdict_of(found[best] == least)
                best_found.append(Finding(workload.name, verdict, detail))
                hurt.append(Finding(workload.name, verdict_of(found[100] > found[best]), detail))
                hits = [self._factor(scenario.name, workload, factor, runs.hit_ratio) for factor in runs.FACTORS]
                shown = ", ".join(f"{hit:.4f}" for hit in hits)
                growing.append(Finding(workload.name, verdict_of(hits[0] <= hits[1] <= hits[2] <= hits[3]), shown))
            where = f"{scenario.title}, GDS(latency), 10 %"
            yield general(f"{where}: {best} round trips is the best factor", source, f"{best}", best_found)
            yield general(f"{where}: 100 round trips are worse than {best}", source, "ordering", hurt)
            if scenario.name == "local":
                yield general(f"{where}: hit ratios rise with the factor", source, "ordering", growing)

    def _factor(self, scenario: str, workload: Workload, factor: int | None, metric: Metric) -> float:
        return self.results.mean(Point(scenario, workload.name, "gds-latency", MIDDLE, factor), metric)

    def _frequencies(self) -> Iterator[Check]:
        for label, metric, single in (
            ("latency", runs.latency_ms, "gdsf-latency"),
            ("bill", runs.dollars, "gdsf-price"),
        ):
            findings = []
            for workload in self.standing_for("Clark", "Media"):
                value = self.value("internet", workload, MIDDLE)
                mine, other = value("gds-lcf", metric), value(single, metric)
                findings.append(_compare(workload.name, mine <= other * (1 + CLOSE), "gds-lcf", mine, single, other))
            claim = f"Reads, Internet, 10 %: GDS-LCF's {label} is close to {TITLES[single]}'s"
            yield general(claim, "figure 19", "comparable", findings)
            findings = [
                _less(workload.name, self.value("internet", workload, MIDDLE), "gds-lcf", other, metric)
                for workload in self.standing_for("Netfs")
                for other in runs.FREQUENCY
            ]
            yield general(
                f"Netfs, Internet, 10 %: GDS-LCF's {label} is lower than both GDSF's", "figure 19", "ordering", findings
            )

    def _clean_dirty(self) -> Iterator[Check]:
        for mine, other, figure in (("gds-lc", "gds-l", 20), ("gds-lcf", "gds-lf", 21)):
            netfs = [(workload, self.value("internet", workload, MIDDLE)) for workload in self.standing_for("Netfs")]
            findings = [_less(workload.name, value, mine, other, runs.dollars) for workload, value in netfs]
            claim = f"Netfs, Internet, 10 %: {TITLES[mine]}'s bill is lower than {TITLES[other]}'s"
            yield general(claim, f"figure {figure}", "ordering", findings)
            findings = []
            for workload, value in netfs:
                left, right = value(mine, runs.latency_ms), value(other, runs.latency_ms)
                findings.append(_compare(workload.name, left <= right * (1 + CLOSE), mine, left, other, right))
            claim = f"Netfs, Internet, 10 %: {TITLES[mine]}'s latency is comparable to {TITLES[other]}'s"
            yield general(claim, f"figure {figure}", "comparable", findings)


def _compare(where: str, holds: bool, mine: str, left: float, other: str, right: float) -> Finding:
    change = f" ({left / right - 1:+.1%})" if right else ""
    return Finding(where, verdict_of(holds), f"{TITLES[mine]} {left:.4g}, {TITLES[other]} {right:.4g}{change}")


def _less(where: str, value: Value, less: str, more: str, metric: Metric, factor: float = 1.0) -> Finding:
    left, right = value(less, metric), value(more, metric)
    holds = left < right if factor == 1.0 else left <= right * factor
    return _compare(where, holds, less, left, more, right)


def all_checks(results: Results, workloads: Sequence[Workload]) -> list[Check]:
    return [with_reading(check, READINGS) for check in Claims(results, workloads).all()]
