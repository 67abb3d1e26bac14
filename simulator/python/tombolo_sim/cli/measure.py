"""`measure`: what a store takes, and whether it is fit to be a gateway's."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.prompt import Confirm
from rich.table import Table

from tombolo_sim.cli.options import AsJson, output, print_json, print_pairs
from tombolo_sim.jobs import known
from tombolo_sim.measure import plan as plans
from tombolo_sim.measure.checks import Checked, Verdict, check
from tombolo_sim.measure.figures import draw
from tombolo_sim.measure.measuring import CLIENTS, Measured, measure
from tombolo_sim.measure.place import MeasureError, Place
from tombolo_sim.measure.plan import GIB, KIB, MIB, OPERATIONS, Estimate, Plan, size_name, sizes_of
from tombolo_sim.measure.recommend import Advice, advise
from tombolo_sim.measure.table import FILE, Json, cells_of, write
from tombolo_sim.models import CLOUDS
from tombolo_sim.output import writing_to
from tombolo_sim.progress import bars, console

# What the gateway asks for at a time, and what its objects are: as it takes them itself when it is given the table.
_SIZES = {"get": 256 * KIB, "put": 4 * MIB}
_COLOURS = {Verdict.GOOD: "green", Verdict.ADVICE: "yellow", Verdict.UNKNOWN: "yellow", Verdict.MISSING: "red",
            Verdict.HARM: "bold red"}  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command(name="measure")(measure_store)


def measure_store(
    url: Annotated[
        str, typer.Argument(metavar="s3://BUCKET/PREFIX", help="What is put lies below a random name there.")
    ],
    folder: Annotated[Path | None, typer.Option("--output", "-o", help=f"Folder of {FILE} and the pictures.")] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="URL of a server other than AWS.")] = None,
    region: Annotated[str | None, typer.Option("--region")] = None,
    client: Annotated[
        str, typer.Option("--client", help="native: the gateway's own. boto3, or both beside each other.")
    ] = "native",
    only_check: Annotated[
        bool, typer.Option("--check", help="Only look whether the bucket is fit to be used.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and parallelisms, short repeats.")] = False,
    sizes: Annotated[str | None, typer.Option("--sizes", help="Such as 1KiB,64KiB,4MiB.")] = None,
    parallelisms: Annotated[str | None, typer.Option("--parallelism", help="Such as 1,4,16.")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="Of each cell: 5.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Of each repeat at the most: 2. Hou et al. take 60.")
    ] = None,
    in_flight: Annotated[
        str, typer.Option("--in-flight-max", help="Cells whose requests hold more bytes at a time are left out.")
    ] = "256MiB",
    prices: Annotated[str, typer.Option("--prices", help=f"Of the estimate: none, or {', '.join(CLOUDS)}.")] = "modern",
    dollars_max: Annotated[
        float | None, typer.Option("--dollars-max", min=0, help="Begin without asking if it can cost no more.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Begin without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measures an S3 store: latency and bandwidth by object size and parallelism, and what they recommend."""
    place = Place.of(url, endpoint, region)
    plan = _plan(quick, sizes, parallelisms, repeats, seconds, in_flight, len(known(CLIENTS, client, "client")))
    cloud = None if prices == "none" else known(CLOUDS, prices, "cloud")
    connection = place.connect()
    checked = check(connection, place)
    if not as_json:
        _print_findings(place, checked)
    found: Json = {"findings": [finding.data() for finding in checked.findings]}
    if not only_check:
        if folder is None:
            raise MeasureError("--output: say where the table is to be written, or --check to measure nothing")
        if hindrance := checked.hindrance():
            raise MeasureError(f"{hindrance.check}: {hindrance.told}: nothing was measured")
        estimate = plan.estimate(cloud)
        _permit(plan, estimate, dollars_max, yes)
        with writing_to(folder):
            measured = _measure(place, connection, plan, client)
            found |= _results(measured, estimate, folder, not as_json)
    if as_json:
        print_json(found)
    checked.require(place)


def _plan(
    quick: bool,
    sizes: str | None,
    parallelisms: str | None,
    repeats: int | None,
    seconds: float | None,
    in_flight: str,
    clients: int,
) -> Plan:
    given_sizes = sizes_of(sizes, "--sizes") if sizes else None
    given_counts = sizes_of(parallelisms, "--parallelism") if parallelisms else None
    plan = Plan(
        given_sizes or (plans.QUICK_SIZES if quick else plans.SIZES),
        given_counts or (plans.QUICK_PARALLELISMS if quick else plans.PARALLELISMS),
        repeats=(3 if quick else 5) if repeats is None else repeats,
        seconds=(0.3 if quick else 2.0) if seconds is None else seconds,
        run_requests_max=200 if quick else 1000,
        run_bytes_max=64 * MIB if quick else 256 * MIB,
        in_flight_bytes_max=sizes_of(in_flight, "--in-flight-max")[0],
        clients=clients,
    )
    plan.check()
    return plan


def _permit(plan: Plan, estimate: Estimate, dollars_max: float | None, yes: bool) -> None:
    left_out = ", ".join(f"{size_name(size)} x {count}" for size, count in plan.left_out())
    console.print(
        f"At the most {estimate.puts:,} PUTs of {estimate.bytes_up / GIB:.3g} GiB, {estimate.gets:,} GETs of "
        f"{estimate.bytes_down / GIB:.3g} GiB, {estimate.stored_bytes / GIB:.2g} GiB stored at a time, "
        f"{max(1, estimate.seconds / 60):.0f} min or somewhat more, ${estimate.dollars:.2f}."
        + (f" Left out, as they hold too much at a time: {left_out}." if left_out else ""),
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    if dollars_max is not None:
        if estimate.dollars > dollars_max:
            cost = f"it can cost ${estimate.dollars:.2f}"
            raise MeasureError(f"--dollars-max {dollars_max:g}: {cost}; try --quick, fewer sizes or repeats")
        return
    if yes:
        return
    if not sys.stdin.isatty():
        raise MeasureError("nobody can be asked: say --yes or --dollars-max")
    if not Confirm.ask("Begin?", console=console):
        raise MeasureError("nothing was measured")


def _measure(place: Place, connection: Any, plan: Plan, client: str) -> Measured:  # noqa: ANN401
    with bars() as progress:
        task = progress.add_task("measuring", total=None)

        def tell(done: int, total: int, words: str) -> None:
            progress.update(task, completed=done, total=total, description=words)

        return measure(place, connection, plan, CLIENTS[client], tell)


def _results(measured: Measured, estimate: Estimate, folder: Path, printed: bool) -> Json:
    """The first client's table is the one that is written and drawn; the others stand beside it."""
    tables = list(measured.tables.values())
    write(tables[0], folder / FILE)
    pictures = draw(tables[0], folder)
    for table in tables[1:]:
        write(table, folder / f"{table['measured']['client']}-{FILE}")
    advice = {
        name: {operation: advise(cells_of(table, operation)) for operation in OPERATIONS}
        for name, table in measured.tables.items()
    }
    if printed:
        for name, table in measured.tables.items():
            _print_table(table, advice[name])
        if len(tables) > 1:
            _print_ratios(tables)
        output.print(f"{folder}: {FILE}, {', '.join(pictures)}", soft_wrap=True, highlight=False)
        for message, count in measured.failures.items():
            console.print(f"{count} requests failed: {message}", soft_wrap=True, highlight=False, markup=False)
    return {
        "tables": measured.tables,
        "recommended": {
            name: {operation: one.data() for operation, one in found.items()} for name, found in advice.items()
        },
        "settings": _settings(advice[next(iter(advice))]),
        "failures": measured.failures,
        "estimate": vars(estimate),
        "pictures": pictures,
    }


def _settings(advice: dict[str, Advice]) -> dict[str, list[int]]:
    """Of the gateway, `[store]`: from where no request waits longer for the others, to where all bandwidth is used."""
    found = {}
    for name, operation in (("downloads_in_flight_max", "get"), ("uploads_in_flight_max", "put")):
        size = _SIZES[operation]
        least = advice[operation].parallelism(size)
        found[name] = [least, max(least, advice[operation].saturating_parallelism(size))]
    return found


def _print_findings(place: Place, checked: Checked) -> None:
    table = Table("check", "", "what was found", title=place.url(), title_justify="left")
    for finding in checked.findings:
        told = finding.told + (f"\n→ {finding.advice}" if finding.advice else "")
        table.add_row(finding.check, f"[{_COLOURS[finding.verdict]}]{finding.verdict}[/]", escape(told))
    output.print(table, highlight=False)


def _print_table(table: Json, advice: dict[str, Advice]) -> None:
    for operation in OPERATIONS:
        shown = Table("object", title=f"{operation.upper()}, {table['measured']['client']}: MiB/s (mean ms)",
                      title_justify="left")  # fmt: skip
        cells = {(cell.size_bytes, cell.parallelism): cell for cell in cells_of(table, operation)}
        counts = sorted({count for _, count in cells})
        for count in counts:
            shown.add_column(f"x {count}", justify="right")
        for size in sorted({size for size, _ in cells}):
            row = [cells.get((size, count)) for count in counts]
            shown.add_row(size_name(size), *(f"{c.bytes_per_s / MIB:.3g} ({c.mean_ms:.3g})" if c else "" for c in row))
        output.print(shown)
    print_pairs("Recommended, as Hou et al. do", _pairs(table, advice))


def _pairs(table: Json, advice: dict[str, Advice]) -> list[tuple[str, str]]:
    pairs = [("round trip", f"{table['round_trip_ms']:.3g} ms")]
    for operation, one in advice.items():
        degrees = ", ".join(
            f"{size_name(degree.size_bytes)} x {degree.parallelism}"
            + ("?" if degree.unsure else "+" if degree.bounded else "")
            for degree in one.degrees
        )
        kind, best = operation.upper(), f"{size_name(one.best_size_bytes)} x {one.best_parallelism}"
        pairs += [
            (f"{kind}: size", f"{size_name(one.size_bytes)}, the smallest within 5 % of the peak of one stream"),
            (f"{kind}: parallelism", degrees),
            (f"{kind}: most", f"{one.best_bytes_per_s / MIB:.3g} MiB/s, at {best}"),
        ]
    for name, (least, most) in _settings(advice).items():
        words = f"{least}: requests wait 10 % longer for each other at the most; {most}: they use the bandwidth"
        pairs.append((escape(f"[store] {name}"), words))
    return pairs


def _print_ratios(tables: list[Json]) -> None:
    first, second = tables[0], tables[1]
    shown = Table("", "object", "x", "bandwidth", "mean latency", title_justify="left",
                  title=f"{first['measured']['client']} in {second['measured']['client']}")  # fmt: skip
    for operation in OPERATIONS:
        others = {(cell.size_bytes, cell.parallelism): cell for cell in cells_of(second, operation)}
        for cell in cells_of(first, operation):
            other = others[cell.size_bytes, cell.parallelism]
            shown.add_row(
                operation.upper(), size_name(cell.size_bytes), str(cell.parallelism),
                f"{cell.bytes_per_s / other.bytes_per_s:.2f}", f"{cell.mean_ms / other.mean_ms:.2f}",
            )  # fmt: skip
    output.print(shown)
