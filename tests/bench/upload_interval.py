"""The interval between uploads before a store of limited capacity: fixed ones beside Stout's, and what Stout's paper
claims of them (McCullough et al., USENIX ATC 2010, section 5)."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path

from bench import claims
from bench.claims import Claim, jain
from bench.report import Section
from bench.upload_runs import Cell, Phase, Plan, Recorded, Runner, cell_of

LIGHT_TIMES, HEAVY_TIMES, FAIR, OVERHEAD = 34, 3, 0.95, 4 / 3
"""What the paper prints: figures 8 and 10, section 5.5."""
PUT_DOLLARS, MONTH_S = 5e-6, 2.63e6
SETTLED_TIMES = 1.5
WINDOW_S = 3.0
UNSEEN_S = 1.0
"""Before the end of a run, of which not all is in the store yet."""
Cells = Mapping[tuple[str, int], Sequence[Cell]]
"""Of all rounds, by rule and load."""


def measure_upload_interval(folder: Path, plan: Plan, rounds: int, stack: ExitStack) -> list[Section]:
    runner = Runner(plan, folder, stack)
    cells: dict[tuple[str, int], list[Cell]] = {}
    for index in range(rounds):
        for load in plan.loads:
            for rule in plan.rules if index % 2 == 0 else reversed(plan.rules):
                recorded = runner.run(rule, plan.phases(rule, load))
                cells.setdefault((rule.name, load), []).append(cell_of(recorded, plan, rule))
    stepped = runner.run(plan.stout, plan.steps)
    before, after = plan.around_pause_s
    paused = runner.run(plan.stout, [Phase(before + plan.pause_s + after, plan.pause_load)], pause_at_s=before)
    said = [*of_loads(plan, cells), *of_steps(plan, cells, stepped), *of_a_pause(plan, paused)]
    return [claims.section("Claims", said), *tables(plan, cells), courses(plan, stepped, paused)]


def mean_ms(cells: Sequence[Cell]) -> float:
    return 1e3 * statistics.fmean(cell.mean_s for cell in cells)


def is_sustained(cells: Sequence[Cell]) -> bool:
    """In most rounds."""
    return 2 * sum(cell.is_sustained for cell in cells) > len(cells)


def tables(plan: Plan, cells: Cells) -> list[Section]:
    def shown(title: str, remark: str, text: Callable[[Sequence[Cell]], str]) -> Section:
        rows = [[f"{load:,}", *(text(cells[rule.name, load]) for rule in plan.rules)] for load in plan.loads]
        return Section(title, tuple(rule.name for rule in plan.rules), remark=remark, words=rows)

    def ages(found: Sequence[Cell]) -> str:
        every = sorted(age for cell in found for age in cell.ages_s)
        text = f"{mean_ms(found):,.0f} / {1e3 * every[len(every) * 95 // 100]:,.0f}"
        return text if is_sustained(found) else f"queues ({text})"

    def puts(found: Sequence[Cell]) -> str:
        a_second = statistics.fmean(cell.puts_per_s for cell in found)
        share = statistics.fmean(cell.requests_per_s for cell in found) / plan.capacity.requests_per_s
        dollars = a_second / plan.gateways * MONTH_S * PUT_DOLLARS
        waited = 1e3 * statistics.fmean(cell.waited_s for cell in found)
        return f"{a_second:,.1f} ({share:.0%} of the store), {waited:,.0f} ms, {dollars:,.0f} $"

    def points(found: Sequence[Cell]) -> str:
        return f"{max(cell.point_age_s for cell in found):.1f}"

    def interval(found: Sequence[Cell]) -> str:
        return f"{1e3 * statistics.fmean(cell.interval_s for cell in found):,.0f}"

    age_remark = (
        f"{plan.gateways} gateways, random writes of 4 KiB over NBD, so many a second of all together. The store:"
        f" {plan.capacity}. `queues`: what is written later is older when it is in the bucket, and so on."
    )
    put_remark = (
        "PUTs of data a second, of all gateways; the share of the store's small requests that all requests are,"
        " metadata included; how long a PUT waits for one of its servers; and what those PUTs cost each gateway a month"
        f" at {PUT_DOLLARS * 1e3:g} $ for 1,000."
    )
    point_remark = (
        "The oldest change that would be lost with the local disk, at worst, in seconds: `recovery_point_ms` is 10 s,"
        " and what is in the bucket counts when the root there says so."
    )
    stout = [[f"{load:,}", interval(cells[plan.stout.name, load])] for load in plan.loads]
    return [
        shown("Age of a write when it is in the bucket: mean / 95 % below, ms", age_remark, ages),
        shown("Requests", put_remark, puts),
        shown("Recovery", point_remark, points),
        Section("Stout's interval, mean, ms", ("interval",), words=stout),
    ]


def of_loads(plan: Plan, cells: Cells) -> list[Claim]:
    fixed = [rule for rule in plan.rules if not rule.is_stout]
    shortest, longest, stout = fixed[0], fixed[-1], plan.stout

    def highest(name: str) -> int:
        """With all that are lower."""
        sustained = takewhile(lambda load: is_sustained(cells[name, load]), plan.loads)
        return max(sustained, default=0)

    light = plan.loads[0]
    own, other = (mean_ms(cells[rule.name, light]) for rule in (stout, longest))
    sustained = {rule.name: highest(rule.name) for rule in plan.rules}
    reached = ", ".join(f"{name} {load:,}" for name, load in sustained.items())
    overheads = {}
    for load in plan.loads:
        among = [(mean_ms(cells[rule.name, load]), rule.name) for rule in fixed if is_sustained(cells[rule.name, load])]
        if among:
            best, name = min(among)
            overheads[load] = (mean_ms(cells[stout.name, load]) / best, f"{best:,.0f} ms ({name})")
    shown = "; ".join(f"{load:,}: {times:.2f} times {best}" for load, (times, best) in overheads.items())
    fairness = {load: [jain(cell.by_gateway_s) for cell in cells[stout.name, load]] for load in plan.loads}
    indices = "; ".join(f"{load:,}: {', '.join(f'{each:.3f}' for each in found)}" for load, found in fairness.items())
    return [
        Claim(
            f"Light load: Stout's age is {LIGHT_TIMES} times lower than that of the longest interval",
            "figure 8",
            "4.2 against 144 ms",
            f"{own:,.0f} against {other:,.0f} ms at {light} writes/s: {other / own:.1f} times",
            other >= LIGHT_TIMES * own,
            "the store itself takes a large part of Stout's age",
        ),
        Claim(
            f"Stout sustains {HEAVY_TIMES} times the load of the shortest interval",
            "figure 8",
            "41,000 against 12,000",
            f"highest of the loads tried, with all that are lower: {reached}",
            sustained[stout.name] >= HEAVY_TIMES * sustained[shortest.name] > 0,
            "where the store is full, what waits for a lane gathers in one object, whatever the interval; Stout's ages"
            " still rise while it comes to rest there, and swing then",
        ),
        Claim(
            "Stout's age is at most a third above that of the best fixed interval, which nobody knows beforehand",
            "figure 10",
            "80 to 94 ms; 75 to 100 ms",
            shown,
            all(times <= OVERHEAD for times, _ in overheads.values()),
            "the loop searches, and while its interval is too short a queue grows that is worked off later",
        ),
        Claim(
            f"Jain's index of the gateways' mean ages is at least {FAIR}",
            "section 5.5",
            "0.97",
            indices,
            all(index >= FAIR for found in fairness.values() for index in found),
        ),
    ]


def moving(recorded: Recorded, from_s: float, to_s: float) -> list[tuple[float, float]]:
    """Mean ages of what was written in windows of `WINDOW_S`, a second apart: the end since `from_s`, and age."""
    pairs = recorded.all_ages(from_s, to_s)
    found = []
    for second in range(int(to_s - from_s - WINDOW_S) + 1):
        within = [age for at, age in pairs if second <= at - from_s < second + WINDOW_S]
        if within:
            found.append((second + WINDOW_S, statistics.fmean(within)))
    return found


def settled(course: Sequence[tuple[float, float]]) -> tuple[float | None, float]:
    """When the age came within `SETTLED_TIMES` of the mean of its last third, to stay there; and that mean."""
    if not course:
        return None, 0.0
    final = statistics.fmean(age for _, age in course[-max(1, len(course) // 3) :])
    outside = [at for at, age in course if not final / SETTLED_TIMES <= age <= final * SETTLED_TIMES]
    last = max(outside, default=0.0)
    return (None if last >= course[-1][0] else last), final


def of_steps(plan: Plan, cells: Cells, stepped: Recorded) -> list[Claim]:
    bounds = [stepped.begun_s]
    for phase in plan.steps:
        bounds.append(bounds[-1] + phase.seconds)
    said = []
    finals = []
    for index, (text, printed) in enumerate((("rise", "50 to 80 ms"), ("fall", "50 to 5 ms")), start=1):
        at, final = settled(moving(stepped, bounds[index], bounds[index + 1] - (UNSEEN_S if index == 2 else 0)))
        finals.append(final)
        when = "not settled" if at is None else f"within {at:.0f} s"
        loads = f"{plan.steps[index - 1].writes_per_s:,.0f} to {plan.steps[index].writes_per_s:,.0f} writes/s"
        said.append(
            Claim(
                f"After a {text} of load the age comes to rest",
                "section 5.4, figure 11",
                printed,
                f"{loads}: {when}, at {1e3 * final:,.0f} ms",
                at is not None,
                "the interval is searched for ever, and so the age swings",
            )
        )
    shortest = plan.rules[0]
    other = mean_ms(cells[shortest.name, min(plan.loads, key=lambda load: abs(load - plan.steps[2].writes_per_s))])
    said.append(
        Claim(
            f"After a fall of load the age is below that of {shortest.name}",
            "section 5.4, figure 11",
            "5 against 24 ms",
            f"{1e3 * finals[1]:,.0f} against {other:,.0f} ms",
            1e3 * finals[1] < other,
            "after a fall each request brings fewer bytes, which counts as a loss of performance: the interval grows",
        )
    )
    return said


def of_a_pause(plan: Plan, paused: Recorded) -> list[Claim]:
    at = paused.begun_s + plan.around_pause_s[0]
    resumed = at + plan.pause_s
    watched, end = paused.watched, paused.ended_s
    before = statistics.fmean(watched.within(watched.interval_s, paused.begun_s + WINDOW_S, at) or [0.0])
    highest = max(watched.within(watched.interval_max_s, at, end), default=0.0)
    later = [
        (each - resumed, value) for each, value in zip(watched.at_s, watched.interval_s, strict=True) if each >= resumed
    ]
    back = next((since for since, value in later if value <= 2 * before), None)
    age_before = statistics.fmean(age for _, age in paused.all_ages(paused.begun_s + WINDOW_S, at - 1))
    course = [(since, age) for since, age in moving(paused, resumed, end - UNSEEN_S)]
    recovered = next((since for since, age in course if age <= SETTLED_TIMES * age_before), None)
    return [
        Claim(
            f"After a pause of {plan.pause_s:g} s the interval is back within 60 s",
            "section 5.7, figure 14",
            "slightly over half a minute",
            f"{1e3 * before:,.0f} ms before, at most {1e3 * highest:,.0f} ms, at most twice that before again"
            + (" never" if back is None else f" {back:.1f} s after the pause's end"),
            back is not None and back <= 60,
        ),
        Claim(
            f"... and the age is within {SETTLED_TIMES} of what it was",
            "ours",
            "",
            f"{1e3 * age_before:,.0f} ms before;"
            + (" never" if recovered is None else f" again {recovered:.0f} s after it"),
            recovered is not None,
        ),
    ]


def courses(plan: Plan, stepped: Recorded, paused: Recorded) -> Section:
    """The age and the interval over time, so that it is seen what the claims make of them."""

    def rows(title: str, recorded: Recorded, seconds: float, step: int = 5) -> list[list[str]]:
        found = []
        for second in range(0, int(seconds), step):
            begun = recorded.begun_s + second
            ages = [age for _, age in recorded.all_ages(begun, begun + step)]
            intervals = recorded.watched.within(recorded.watched.interval_s, begun, begun + step)
            puts = sum(bool(each.written_s) for each in recorded.exchanges if begun <= each.at_s < begun + step) / step
            if ages and intervals:
                values = (1e3 * statistics.fmean(ages), 1e3 * statistics.fmean(intervals))
                found.append([f"{title}, {second} s", *(f"{value:,.0f}" for value in values), f"{puts:.1f}"])
        return found

    words = rows("step", stepped, sum(phase.seconds for phase in plan.steps) - UNSEEN_S)
    words += rows("pause", paused, sum(plan.around_pause_s) + plan.pause_s - UNSEEN_S)
    loads = ", then ".join(f"{phase.seconds:g} s of {phase.writes_per_s:,.0f} writes/s" for phase in plan.steps)
    remark = (
        f"step: {loads}. pause: {plan.pause_load} writes/s, and the store is stopped for {plan.pause_s:g} s after"
        f" {plan.around_pause_s[0]:g} s. Means of five seconds, by when a write was due."
    )
    return Section("Stout over time", ("age, ms", "interval, ms", "PUTs/s"), remark=remark, words=words)
