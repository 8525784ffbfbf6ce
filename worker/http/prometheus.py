"""HttpCounters and the /metrics page: what the service and its engine did, as Prometheus text."""

from collections import Counter
from collections.abc import Mapping

from playhead.engine.metrics import describe
from playhead.engine.profile import Profile, sha256

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LOAD = "Predicted busy share against its limit, or slots in use: 0 to 1."
_ROOM_HELP = {
    "rooms": "Rooms entered.",
    "started": "Speeches that began to sound.",
    "finished": "Speeches heard to their end.",
    "interrupted": "Speeches cut.",
    "errors": "Speeches that ended with an error, refusals among them.",
    "unauthorized": "Texts and interruptions of participants that may not.",
    "heard_s": "Seconds of speech that reached the ear.",
    "underruns": "Silences inside speeches that no missing text explains.",
    "gap_s": "Seconds of them.",
    "stretched_s": "Seconds in which nothing was sent and the receiver lengthened the sound.",
    "text_wait_s": "Seconds of silence inside speeches whose text had not come.",
    "reports_dropped": "Receiver reports over the rate, malformed, absurd, or from strangers.",
}
_WORKER_HELP = {
    "ready": "1 while new rooms are taken.",
    "load": "What the media server schedules by, 0 to 1: the engine's load, or rooms in use.",
    "rooms": "Rooms now, silent ones included.",
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
    for name, value in numbers.items():
        kind, help_ = describe(name)
        page.add(f"engine_{name}", kind, help_, value)
    page.add("engine_load", "gauge", _LOAD, load)
    return page.text()


def worker_exposition(rooms: Mapping[str, float], worker: Mapping[str, float]) -> str:
    """Return the worker's part of the page: what its rooms counted, and how it stands."""
    page = _Page()
    for name, value in rooms.items():
        page.add(f"room_{name}", "counter", _ROOM_HELP[name], value)
    for name, value in worker.items():
        page.add(f"worker_{name}", "gauge", _WORKER_HELP[name], value)
    return page.text()


def config_exposition(profile: Profile) -> str:
    """Return the resolved profile's name and digest as labels of a constant 1."""
    name = profile.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    page = _Page()
    labels = f'{{profile="{name}",sha256="{sha256(profile)}"}}'
    page.add("config_info", "gauge", "Resolved profile of the engine.", 1, labels)
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
