"""EngineMetrics: counters and windows of one engine as plain data; written by the engine thread."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from playhead.engine.messages import ClockSource
from playhead.engine.scheduler import LIVE, OFFLINE, SPECULATIVE

STALE = 16
"""Values after which a window's order is made anew: quantiles are read every step."""


@dataclass(slots=True)
class Window:
    """The most recent values of a measure; quantiles on demand."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=512))
    _ordered: list[float] = field(default_factory=list)
    _added: int = 0

    def add(self, value: float) -> None:
        """Take one value."""
        self.values.append(value)
        self._added += 1

    def quantile(self, share: float) -> float:
        """Return a nearest-rank quantile, 0 when empty; at most 15 values behind once full."""
        if self._added and (self._added >= STALE or len(self._ordered) < STALE):
            self._ordered, self._added = sorted(self.values), 0
        if not self._ordered:
            return 0.0
        return self._ordered[min(int(share * len(self._ordered)), len(self._ordered) - 1)]


@dataclass(slots=True)
class EngineMetrics:
    """Counts since start, and windows over recent steps; `HELP` says what each one is."""

    accepted: int = 0
    refused: int = 0
    refused_busy: int = 0
    done: int = 0
    cancelled: int = 0
    failed: int = 0
    runaways: int = 0
    live: int = 0
    speculative: int = 0
    offline: int = 0
    frame_steps: int = 0
    frame_rows: int = 0
    prefill_rows: int = 0
    codec_steps: int = 0
    codec_frames: int = 0
    published_samples: int = 0
    trimmed_samples: int = 0
    unheard_samples: int = 0
    text_wait_s: float = 0.0
    late_s: float = 0.0
    late_chunks: int = 0
    clock_exact: int = 0
    clock_reported: int = 0
    clock_assumed: int = 0
    first_audio_s: Window = field(default_factory=Window)
    first_queue_s: Window = field(default_factory=Window)
    first_frame_s: Window = field(default_factory=Window)
    first_codec_s: Window = field(default_factory=Window)
    slack_s: Window = field(default_factory=Window)
    frame_s: Window = field(default_factory=Window)
    codec_s: Window = field(default_factory=Window)
    step_s: Window = field(default_factory=Window)

    def count(self, kind: int, by: int) -> None:
        """Count a request that took a slot (1) or gave it back (-1)."""
        self.live += by * (kind == LIVE)
        self.speculative += by * (kind == SPECULATIVE)
        self.offline += by * (kind == OFFLINE)

    def saw_frames(self, num_rows: int, took_s: float) -> None:
        """Count one frame batch."""
        self.frame_steps += 1
        self.frame_rows += num_rows
        self.frame_s.add(took_s)

    def saw_codec(self, num_frames: int, took_s: float) -> None:
        """Count one codec batch of so many frames over all its rows."""
        self.codec_steps += 1
        self.codec_frames += num_frames
        self.codec_s.add(took_s)

    def saw_first_audio(
        self, text_s: float, launch_s: float | None, decode_s: float, now_s: float
    ) -> None:
        """Take one request's times: first text, first frame begun, first decode begun, published.

        `launch_s` is None where no frame was made: stored speech.
        """
        self.first_audio_s.add(now_s - text_s)
        self.first_queue_s.add((decode_s if launch_s is None else launch_s) - text_s)
        if launch_s is not None:
            self.first_frame_s.add(decode_s - launch_s)
        self.first_codec_s.add(now_s - decode_s)

    def saw_slack(self, least_s: float) -> None:
        """Take the least audio a listener of a codec batch held; inf: none has a deadline."""
        if least_s < float("inf"):
            self.slack_s.add(max(least_s, 0.0))

    def saw_playback(self, sources: Sequence[ClockSource]) -> None:
        """Count snapshots of listeners' clocks by what they rest on."""
        self.clock_reported += sources.count("reported")
        self.clock_assumed += sources.count("assumed")
        self.clock_exact += sources.count("exact")

    def snapshot(self) -> dict[str, float]:
        """Return name -> number: counters as they are, windows as two quantiles each.

        Of a time the median and what 99 % stay below; of slack the median and what 99 % exceed.
        """
        out: dict[str, float] = {}
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, Window):
                for share in (50, 1) if spec.name == "slack_s" else (50, 99):
                    out[f"{spec.name}_p{share:02}"] = value.quantile(share / 100)
            else:
                out[spec.name] = float(value)
        return out


GAUGES = frozenset({"live", "speculative", "offline"})
"""Counts that fall again."""
HELP = {
    "accepted": "Requests that got a slot.",
    "refused": "Requests that were not taken, whatever the reason.",
    "refused_busy": "Those of them that were told when to try again: there was no room.",
    "done": "Requests spoken to their end.",
    "cancelled": "Requests cancelled, interruptions among them.",
    "failed": "Requests that broke.",
    "runaways": "Requests whose speech went on behind its text until a guard ended it.",
    "live": "Requests with a listener that hold a slot.",
    "speculative": "Requests of a turn not yet confirmed that hold a slot.",
    "offline": "Requests without a listener (files) that hold a slot.",
    "frame_steps": "Frame batches.",
    "frame_rows": "Frames made, over all batches.",
    "prefill_rows": "Prompts run or copied.",
    "codec_steps": "Codec batches.",
    "codec_frames": "Frames decoded, over all batches.",
    "published_samples": "Samples handed over by requests that ended, 24000 a second.",
    "trimmed_samples": "Samples of silence dropped before speech began.",
    "unheard_samples": "Samples handed over that an interruption kept from being heard.",
    "text_wait_s": "Seconds in which a stream stood still because its text had not come.",
    "late_s": "Seconds by which chunks missed the moment their listener ran dry.",
    "late_chunks": "Chunks that missed it.",
    "clock_exact": "Playback snapshots that rest on the listener's own sample count.",
    "clock_reported": "Playback snapshots that rest on a listener's report.",
    "clock_assumed": "Playback snapshots that rest on a prior: the listener reports nothing.",
    "first_audio_s": "first speakable text to first audio published",
    "first_queue_s": "first speakable text to its first frame batch (stored speech: codec batch)",
    "first_frame_s": "first frame batch to first codec batch",
    "first_codec_s": "first codec batch to first audio, silence and what waits to begin included",
    "slack_s": "audio left to the emptiest listener of a codec batch when it was done; 0: late",
    "frame_s": "one frame batch",
    "codec_s": "one codec batch",
    "step_s": "one engine step that launched or published something, on the host",
}
"""What each number is; of a window without the words that a quantile adds."""
_QUANTILES = {
    "p50": "Median seconds of recent",
    "p99": "Seconds that 99 % of recent stay below:",
    "p01": "Seconds that 99 % of recent exceed:",
}


def describe(name: str) -> tuple[str, str]:
    """Return the kind (counter or gauge) and the meaning of a name in a snapshot.

    Names this version does not know, as of a newer engine, are gauges without a meaning.
    """
    stem, _, quantile = name.rpartition("_")
    if stem in HELP and quantile in _QUANTILES:
        return "gauge", f"{_QUANTILES[quantile]} {HELP[stem]}."
    known = "gauge" if name in GAUGES or name not in HELP else "counter"
    return known, HELP.get(name, "Not known to this version.")
