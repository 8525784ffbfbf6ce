"""Listeners of the simulator: one in a room, one with a player and a clock of its own.

Both tell the engine through the product's own clocks; what they truly heard is counted beside.
"""

from playhead.engine.clock import GAP_FLOOR_S, PlaybackClock, total_s
from playhead.engine.messages import PlaybackSnapshot
from playhead.engine.receiver import ReceiverEstimate, ReceiverReport
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.http.pace import ClientClock

REPORT_S = 0.25
"""Listeners report at 4 Hz."""
ROOM_REPORT = ReceiverReport(jitter_buffer_s=0.06, target_s=0.06, rtt_s=0.03)
"""A clean link in a browser."""
REMOTE_PATH_S = 0.02
"""From the service to a remote player, one way."""
NETWORK_GAP_S = 0.2


class RoomListener:
    """Hears through a room: the pump's queue empties in real time, the receiver has a buffer."""

    def __init__(self, request_id: str, subscribed: bool = True) -> None:
        """`subscribed`: it hears from the beginning; else it only waits."""
        self._receiver = ReceiverEstimate()
        self._reported_s = float("-inf")
        self._end_s = float("inf")
        self.clock = PlaybackClock(request_id, self._receiver)
        if subscribed:
            self.clock.start()

    def push(self, num_samples: int, now_s: float) -> None:
        """Take samples that the engine published at `now_s`; a short lateness is withheld."""
        if self.clock.state == "waiting":
            return
        if now_s - self._reported_s >= REPORT_S:
            self._reported_s = now_s
            self._receiver.report(ROOM_REPORT, now_s)
        clock = self.clock
        dry_s = clock.dry_at_s(now_s)
        bridge_s = self._receiver.bridge_s(now_s)
        exit_s, late_s = max(dry_s, now_s), now_s - self._end_s
        self._end_s = exit_s + num_samples / SAMPLE_RATE_HZ
        clock.push(num_samples, exit_s, now_s, withheld=late_s <= bridge_s)

    def starve(self) -> None:
        """Text is awaited: what follows is no gap."""
        self.clock.starve()

    def snapshot(self, now_s: float) -> PlaybackSnapshot:
        """Return what the worker tells the engine."""
        return self.clock.snapshot(now_s)

    def heard_samples(self, now_s: float) -> int:
        """Return how many samples have reached the ear."""
        return self.clock.heard_samples(now_s)

    @property
    def gaps_s(self) -> list[float]:
        """Silences nobody asked for."""
        return [each.duration_s for each in self.clock.gaps]

    @property
    def stretched_s(self) -> float:
        """Time the receiver bridged."""
        return total_s(self.clock.stretches)

    network_gaps = 0


class RemoteListener:
    """Plays what comes over a network at the rate of a clock of its own, with no buffer."""

    def __init__(
        self, request_id: str, drift_ppm: float, network_gaps_s: tuple[float, ...]
    ) -> None:
        """`network_gaps_s`: when the network begins to stand still for 200 ms."""
        self._request_id = request_id
        self._clock = ClientClock()
        self._rate_hz = SAMPLE_RATE_HZ * (1 + drift_ppm * 1e-6)
        self._network_gaps_s = network_gaps_s
        self._reported_s = 0.0
        self._total = 0
        self._dry_s: float | None = None
        """When the player has played all it has, true time."""
        self._awaits_text = False
        self.gaps_s: list[float] = []
        self.network_gaps = 0
        """Gaps that only the network made."""
        self.stretched_s = 0.0

    def push(self, num_samples: int, now_s: float) -> None:
        """Take samples that the engine published at `now_s`."""
        arrives_s = now_s + REMOTE_PATH_S
        came_s = arrives_s + self._stuck_s(arrives_s)
        if self._dry_s is not None and not self._awaits_text:
            gap_s = came_s - self._dry_s
            if gap_s > GAP_FLOOR_S and arrives_s - self._dry_s > GAP_FLOOR_S:
                self.gaps_s.append(gap_s)
            elif gap_s > GAP_FLOOR_S:
                self.network_gaps += 1
        start_s = came_s if self._dry_s is None else max(self._dry_s, came_s)
        self._dry_s = start_s + num_samples / self._rate_hz
        self._total += num_samples
        self._awaits_text = False
        self._clock.push(num_samples, now_s)

    def starve(self) -> None:
        """Text is awaited: what follows is no gap."""
        self._awaits_text = True

    def snapshot(self, now_s: float) -> PlaybackSnapshot:
        """Return what the service tells the engine: the player's newest report, a path old."""
        sent_s = now_s - REMOTE_PATH_S
        stuck = self._stuck_s(sent_s) > 0
        if self._total and not stuck and now_s - self._reported_s >= REPORT_S:
            played = self.heard_samples(sent_s) + round(REMOTE_PATH_S * self._rate_hz)
            problem = self._clock.report(min(played, self._total), False, now_s)
            assert problem is None, problem
            self._reported_s = now_s
        return self._clock.snapshot(self._request_id, now_s)

    def heard_samples(self, now_s: float) -> int:
        """Return how many samples the player has played."""
        if self._dry_s is None:
            return 0
        left = max(self._dry_s - now_s, 0.0) * self._rate_hz
        return max(self._total - round(left), 0)

    def _stuck_s(self, at_s: float) -> float:
        """Return how long a packet waits that is under way at a moment."""
        ends_s = [s + NETWORK_GAP_S for s in self._network_gaps_s if s <= at_s < s + NETWORK_GAP_S]
        return max(ends_s) - at_s if ends_s else 0.0


Listener = RoomListener | RemoteListener
