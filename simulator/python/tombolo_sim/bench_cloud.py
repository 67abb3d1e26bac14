"""Pictures of what `tombolo bench cloud --json` has found, side by side if there are several systems."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from tombolo_sim.jobs import OptionError
from tombolo_sim.plots import grouped_bars, panels, save, steps

METRICS = {
    "startup_s": "start-up, s",
    "upload_s": "upload, s",
    "propagation_s": "propagation, s",
    "download_s": "download, s",
    "overhead": "overhead ratio",
}


def read(path: Path) -> dict[str, Any]:
    """One report; it must have workloads."""
    try:
        report: dict[str, Any] = json.loads(path.read_text())
        if not report["workloads"]:
            raise OptionError(f"{path}: it has no workloads; run `tombolo bench cloud --json` without --workloads none")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{path} is no report of `tombolo bench cloud --json`: {error!r}") from None
    return report


def values(report: dict[str, Any], number: int, metric: str) -> list[float]:
    """Of all rounds in which it was measured."""
    rounds = [once for each in report["workloads"] if each["number"] == number for once in each["rounds"]]
    return [once[metric] for once in rounds if once[metric] is not None]


def plot(reports: dict[str, dict[str, Any]], folder: Path) -> list[str]:
    """Medians of each workload, and the distributions over the rounds, by the systems' names."""
    numbers = sorted({each["number"] for report in reports.values() for each in report["workloads"]})
    measured = {
        metric: label
        for metric, label in METRICS.items()
        if any(values(report, number, metric) for report in reports.values() for number in numbers)
    }
    return [medians(reports, numbers, measured, folder), *distributions(reports, numbers, measured, folder)]


def medians(reports: dict[str, dict[str, Any]], numbers: list[int], measured: dict[str, str], folder: Path) -> str:
    figure, axes = panels(len(measured), "Medians by workload")
    for axis, (metric, label) in zip(axes, measured.items(), strict=True):
        found = {name: [values(report, number, metric) for number in numbers] for name, report in reports.items()}
        series = {name: [median(each) if each else 0.0 for each in rows] for name, rows in found.items()}
        grouped_bars(axis, [str(number) for number in numbers], series, label)
        axis.set_xlabel("workload")
        axis.legend()
    return save(figure, folder, "medians")


def distributions(
    reports: dict[str, dict[str, Any]], numbers: list[int], measured: dict[str, str], folder: Path
) -> list[str]:
    names = []
    for metric, label in measured.items():
        figure, axes = panels(len(numbers), f"Distribution of {label} over the rounds")
        for axis, number in zip(axes, numbers, strict=True):
            series = {name: distribution(values(report, number, metric)) for name, report in reports.items()}
            steps(axis, series, label, "fraction of rounds")
            axis.set_title(f"workload {number}")
            axis.legend()
        names.append(save(figure, folder, f"distribution-{metric.removesuffix('_s')}"))
    return names


def distribution(found: list[float]) -> list[tuple[float, float]]:
    return [(value, (place + 1) / len(found)) for place, value in enumerate(sorted(found))]
