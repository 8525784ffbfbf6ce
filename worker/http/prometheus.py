"""HttpCounters and the /metrics page: what the service and its engine did, as Prometheus text."""

from collections import Counter
from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENGINE_GAUGES = frozenset({"live", "load"})
_ENGINE_HELP = {
    "load": "Predicted busy share or slot use, 0 to 1.",
    "live": "Requests with a listener that hold a slot.",
    "accepted": "Requests accepted.",
    "refused": "Requests refused.",
    "done": "Requests spoken to their end.",
    "cancelled": "Requests cancelled.",
    "failed": "Requests that broke.",
    "late_chunks": "Chunks that missed their soft deadline.",
    "unheard_samples": "Samples published and dropped unheard by interruptions.",
    "first_audio_s_p50": "Median of first text to first audio of recent requests, seconds.",
    "first_audio_s_p99": "99th percentile of the same.",
}


class HttpCounters:
    """Counts of the HTTP service since its start; loop thread only."""

    def __init__(self) -> None:
        """Start at zero."""
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route and status."""
        self.problems: Counter[str] = Counter()
        """By code, HTTP and WebSocket together."""
        self.utterances = 0
        self.live_utterances = 0
        self.connections = 0
        """WebSockets open now."""
        self.audio_samples = 0
        """Handed to clients."""
        self.stalled = 0
        """Clients dropped because they took nothing."""

    def exposition(self, ready: bool) -> str:
        """Return the service's part of the page."""
        page = _Page()
        for (route, status), count in sorted(self.requests.items()):
            labels = f'{{route="{route}",status="{status}"}}'
            page.add("http_requests", "counter", "Answers by route and status.", count, labels)
        for code, count in sorted(self.problems.items()):
            help_ = "Problems told to clients, by code."
            page.add("http_problems", "counter", help_, count, f'{{code="{code}"}}')
        page.add("http_ready", "gauge", "1 once warmed up and not draining.", ready)
        page.add("http_utterances", "counter", "Utterances begun.", self.utterances)
        page.add("http_live_utterances", "gauge", "Utterances live.", self.live_utterances)
        page.add("http_connections", "gauge", "WebSockets open.", self.connections)
        page.add("http_audio_samples", "counter", "Samples handed over.", self.audio_samples)
        page.add("http_stalled", "counter", "Clients dropped, taking nothing.", self.stalled)
        return page.text()


def engine_exposition(numbers: Mapping[str, float], load: float) -> str:
    """Return the engine's part of the page from its own plain numbers."""
    page = _Page()
    for name, value in {**numbers, "load": load}.items():
        gauge = name in _ENGINE_GAUGES or name.endswith(("_p50", "_p99"))
        help_ = _ENGINE_HELP.get(name, f"{name.replace('_', ' ')} of the engine.")
        page.add(f"engine_{name}", "gauge" if gauge else "counter", help_, value)
    return page.text()


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._named: set[str] = set()

    def add(self, name: str, kind: str, help_: str, value: float, labels: str = "") -> None:
        full = f"playhead_{name}"
        if full not in self._named:
            self._named.add(full)
            self._lines += [f"# HELP {full} {help_}", f"# TYPE {full} {kind}"]
        self._lines.append(f"{full}{labels} {float(value):.9g}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n" if self._lines else ""
