"""Pictures. Every figure is written as PNG and SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

mpl.use("Agg")
# Without it, no two SVGs of the same figure are equal.
mpl.rcParams["svg.hashsalt"] = "tombolo"
mpl.rcParams["axes.grid"] = True
mpl.rcParams["grid.alpha"] = 0.3

Points: TypeAlias = Sequence[tuple[float, float]]

_COLUMNS = 3


def panels(count: int, title: str, width: float = 5.0, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    columns = min(_COLUMNS, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [axis for row in grid for axis in row]
    for unused in axes[count:]:
        unused.set_axis_off()
    figure.suptitle(title)
    return figure, axes[:count]


def save(figure: Figure, folder: Path, name: str) -> str:
    """Returns the PNG's name."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return f"{name}.png"


def grouped_bars(axis: Axes, groups: Sequence[str], series: Mapping[str, Sequence[float]], ylabel: str) -> None:
    width = 0.8 / max(1, len(series))
    for place, (label, values) in enumerate(series.items()):
        offset = (place - (len(series) - 1) / 2) * width
        axis.bar([group + offset for group in range(len(groups))], values, width, label=label)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel(ylabel)


def lines(axis: Axes, series: Mapping[str, Points], xlabel: str, ylabel: str, marker: str = "") -> None:
    for label, points in series.items():
        axis.plot([x for x, _ in points], [y for _, y in points], marker=marker, label=label)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)


def steps(axis: Axes, series: Mapping[str, Points], xlabel: str, ylabel: str) -> None:
    """Distribution functions."""
    for label, points in series.items():
        axis.step([x for x, _ in points], [y for _, y in points], where="post", label=label)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)


def heat_map(
    axis: Axes, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], label: str
) -> None:
    """Colours by the logarithm, each with its number; what is None stays blank."""
    filled = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    image = axis.imshow(filled, norm=LogNorm(), aspect="auto")
    middle = np.sqrt(np.nanmin(filled) * np.nanmax(filled))
    for (row, column), value in np.ndenumerate(filled):
        if not np.isnan(value):
            colour = "black" if value > middle else "white"
            axis.text(column, row, f"{value:.3g}", ha="center", va="center", color=colour, fontsize="x-small")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)
    axis.figure.colorbar(image, ax=axis, label=label)


def cumulative(pairs: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """(value, count) pairs in ascending order, as the share of counts up to each value."""
    total = sum(count for _, count in pairs)
    points, below = [], 0.0
    for value, count in pairs:
        below += count
        points.append((value, below / total))
    return points


def latency_distribution(report: Mapping[str, Any]) -> list[tuple[float, float]]:
    return cumulative(report["read_latency"]["histogram"])
