"""Draws first-audio percentiles over the request rate; matplotlib is an extra and may be absent."""

import re
from collections.abc import Mapping
from pathlib import Path

NO_CHART = "no chart: matplotlib is not installed (pip install 'playhead[demo]' brings it)"
_NAME = re.compile(r"(\w*?)first_pcm_(p50|p95|p99)_ms_([\d.]+)rps")
_COLOURS = {"p50": "#12a675", "p95": "#1f6fd0", "p99": "#d98314"}
_DASHES = ("-", "--", ":", "-.")


def series_of(figures: Mapping[str, float]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return (prefix, percentile) -> points (requests per second, ms) in order of the rate."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name, value in figures.items():
        match = _NAME.fullmatch(name)
        if match:
            found.setdefault((match[1], match[2]), []).append((float(match[3]), value))
    return {key: sorted(points) for key, points in sorted(found.items())}


def draw_serve(figures: Mapping[str, float], title: str, path: Path) -> str:
    """Write the chart; return its path, or why there is none."""
    series = series_of(figures)
    if not series:
        return "no chart: no rate was measured"
    try:
        import matplotlib  # an extra

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return NO_CHART
    prefixes = list(dict.fromkeys(prefix for prefix, _ in series))
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for (prefix, percentile), points in series.items():
        rates, times_ms = zip(*points, strict=True)
        label = f"{prefix.rstrip('_') or 'http'} {percentile}"
        dash = _DASHES[prefixes.index(prefix) % len(_DASHES)]
        axes.plot(rates, times_ms, dash, color=_COLOURS[percentile], marker="o", label=label)
    axes.set_xlabel("requests per second, Poisson")
    axes.set_ylabel("first PCM at the client's socket (ms)")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return str(path)
