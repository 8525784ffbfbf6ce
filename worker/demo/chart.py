"""Draw the playback clock of an utterance as a PNG; matplotlib is an extra and may be absent."""

from pathlib import Path

from playhead.engine.units import frames_to_s
from playhead.worker.demo.timeline import Timeline


def draw_clock(timeline: Timeline, path: Path) -> bool:
    """Write the chart; False if matplotlib is not installed or there is nothing to draw."""
    try:
        import matplotlib  # an extra; the demo speaks without it

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    points = timeline.points
    if not points:
        return False
    times_s = [point.at_s - timeline.first_token_s for point in points]
    figure, (upper, middle, lower) = pyplot.subplots(
        3, 1, sharex=True, figsize=(11, 7.5), height_ratios=(5, 2, 2), layout="constrained"
    )
    pushed, heard = [p.pushed_s for p in points], [p.heard_s for p in points]
    upper.fill_between(times_s, heard, pushed, color="#5aa9ff", alpha=0.15, linewidth=0)
    upper.plot(times_s, pushed, color="#1f6fd0", label="pushed: handed to the sender")
    upper.plot(times_s, heard, color="#12a675", label="heard: at the listener's ear")
    upper.set_ylabel("audio of the utterance (s)")
    upper.legend(loc="upper left", frameon=False)
    upper.set_title("Playback clock; time 0 is the first token")
    middle.plot(times_s, [p.slack_s for p in points], color="#d98314")
    middle.axhline(0, color="#c33", linewidth=0.8)
    middle.set_ylabel("slack (s)")
    chunks = [
        (time_s, point.chunk_frames)
        for time_s, point, before in zip(times_s, points, [None, *points], strict=False)
        if before is None or point.pushed_s != before.pushed_s
    ]
    lower.bar([at for at, _ in chunks], [frames_to_s(n) for _, n in chunks], width=0.06)
    lower.set_ylabel("last chunk (s)")
    lower.set_xlabel("time (s)")
    for axes in (upper, middle, lower):
        axes.grid(alpha=0.25)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True
