"""Draws first audio over the request rate and by policy; matplotlib is an extra, may be absent."""

import re
from collections.abc import Mapping
from pathlib import Path

from playhead.worker.bench.chart import NO_CHART

_NAME = re.compile(r"(p50|p95)_ms_([\d.]+)rps_(\w+)")


def draw(figures: Mapping[str, float], title: str, path: Path) -> str:
    """Write the chart; return its path, or why there is none."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name, value in figures.items():
        if match := _NAME.fullmatch(name):
            points.setdefault((match[3], match[1]), []).append((float(match[2]), value))
    if not points:
        return "no chart: no policy was simulated"
    try:
        import matplotlib  # an extra

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return NO_CHART
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for (policy, percentile), values in sorted(points.items()):
        rates, times_ms = zip(*sorted(values), strict=True)
        dash = "-" if percentile == "p95" else ":"
        axes.plot(rates, times_ms, dash, marker="o", label=f"{policy} {percentile}")
    axes.set_xlabel("requests per second, Poisson")
    axes.set_ylabel("first audio (ms)")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return str(path)
