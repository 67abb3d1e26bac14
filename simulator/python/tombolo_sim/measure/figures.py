"""Heat maps of bandwidth and latency over size and parallelism, and distribution functions of latencies."""

from collections.abc import Callable
from pathlib import Path

from tombolo_sim import plots
from tombolo_sim.measure.plan import MIB, OPERATIONS, size_name
from tombolo_sim.measure.table import Cell, Json, cells_of

_CURVES_MAX = 8


def draw(table: Json, folder: Path) -> list[str]:
    """The names of the pictures."""
    title = f"{table['measured']['store']}, {table['measured']['client']}, {table['measured']['at']}"
    return [
        _heat(table, title, "bandwidth, MiB/s", lambda cell: cell.bytes_per_s / MIB, folder, "bandwidth"),
        _heat(table, title, "mean latency, ms", lambda cell: cell.mean_ms, folder, "latency"),
        _distributions(table, title, folder),
    ]


def _heat(table: Json, title: str, label: str, figure_of: Callable[[Cell], float], folder: Path, name: str) -> str:
    figure, axes = plots.panels(len(OPERATIONS), title, width=6.5, height=4.8)
    for axis, kind in zip(axes, OPERATIONS, strict=True):
        cells = {(cell.size_bytes, cell.parallelism): figure_of(cell) for cell in cells_of(table, kind)}
        sizes = sorted({size for size, _ in cells}, reverse=True)
        counts = sorted({count for _, count in cells})
        values = [[cells.get((size, count)) for count in counts] for size in sizes]
        plots.heat_map(axis, [size_name(size) for size in sizes], [str(count) for count in counts], values, label)
        axis.set_title(kind.upper())
        axis.set_xlabel("requests under way")
        axis.set_ylabel("object")
    return plots.save(figure, folder, name)


def _distributions(table: Json, title: str, folder: Path) -> str:
    """One request at a time above, the most that were measured below."""
    figure, axes = plots.panels(2 * len(OPERATIONS), title)
    for place, kind in enumerate(OPERATIONS):
        cells = cells_of(table, kind)
        for axis, choose, words in (
            (axes[place], min, "alone"),
            (axes[place + len(OPERATIONS)], max, "most at a time"),
        ):
            series = {}
            for size in sorted({cell.size_bytes for cell in cells})[:_CURVES_MAX]:
                row = {cell.parallelism: cell for cell in cells if cell.size_bytes == size}
                cell = row[choose(row)]
                series[f"{size_name(size)} x {cell.parallelism}"] = [(ms, share) for share, ms in cell.latency_ms]
            plots.lines(axis, series, f"{kind.upper()}, {words}: ms", "share of requests")
            axis.set_xscale("log")
            axis.legend(fontsize="x-small")
    return plots.save(figure, folder, "distributions")
