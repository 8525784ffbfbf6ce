"""A network link with delay, jitter and loss between this machine and a network namespace.

Two TUN devices, one of them moved into the namespace, and a relay between them in this process:
no kernel module is needed. Packets of UDP are lost and jittered, others only delayed. Run as root:

    impaired_link.py NAMESPACE      prints "ready", then reads one JSON object a line on stdin:
                                    {"delay_ms": 80, "jitter_ms": 30, "loss": 0.03}; ends at EOF
"""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x0001 | 0x1000
HERE_ADDRESS, THERE_ADDRESS = "10.99.0.1", "10.99.0.2"
UDP = 17
MTU_BYTES = 1400


@dataclass(frozen=True, slots=True)
class Impairment:
    """What the link does to packets, in each direction."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0


def open_tun(name: str) -> int:
    """Create a TUN device and return its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN_NO_PI))
    return device


def ip(*arguments: str) -> None:
    """Run one `ip` command; raises if it fails."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def connect(namespace: str, here: str, there: str) -> None:
    """Give both devices addresses, one of them inside the namespace, and a default route there."""
    ip("netns", "add", namespace)
    ip("link", "set", there, "netns", namespace)
    ip("addr", "add", f"{HERE_ADDRESS}/24", "dev", here)
    ip("link", "set", here, "up", "mtu", str(MTU_BYTES))
    inside = ("-n", namespace)
    ip(*inside, "addr", "add", f"{THERE_ADDRESS}/24", "dev", there)
    ip(*inside, "link", "set", there, "up", "mtu", str(MTU_BYTES))
    ip(*inside, "link", "set", "lo", "up")
    ip(*inside, "route", "add", "default", "via", HERE_ADDRESS)


class Relay:
    """Carries packets between two devices, late and not all of them."""

    def __init__(self, left: int, right: int, seed: int = 1) -> None:
        """Take both ends; the same seed loses the same share, not the same packets."""
        self._other = {left: right, right: left}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._random = random.Random(seed)
        self.impairment = Impairment()

    def run(self) -> None:
        """Relay until stdin ends."""
        while True:
            now_s = time.monotonic()
            limit_s = max(self._waiting[0][0] - now_s, 0.0) if self._waiting else 0.5
            orders = sys.stdin.fileno()
            ready, _, _ = select.select([*self._other, orders], [], [], limit_s)
            for source in ready:
                if source != orders:
                    self._receive(source)
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                self.impairment = Impairment(**json.loads(line))
            self._send_due(time.monotonic())

    def _receive(self, device: int) -> None:
        while True:
            try:
                packet = os.read(device, MTU_BYTES + 600)
            except BlockingIOError:
                return
            delay_ms = self.impairment.delay_ms
            if len(packet) > 9 and packet[9] == UDP:
                if self._random.random() < self.impairment.loss:
                    continue
                delay_ms += self._random.uniform(-1, 1) * self.impairment.jitter_ms
            self._count += 1
            due_s = time.monotonic() + max(delay_ms, 0.0) / 1000
            heapq.heappush(self._waiting, (due_s, self._count, self._other[device], packet))

    def _send_due(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, device, packet = heapq.heappop(self._waiting)
            try:
                os.write(device, packet)
            except OSError:
                continue  # the far end is not up yet


def main() -> None:
    """Make the link, relay until stdin ends, take the namespace away."""
    namespace = sys.argv[1]
    here, there = f"{namespace[:10]}-a", f"{namespace[:10]}-b"
    left, right = open_tun(here), open_tun(there)
    try:
        connect(namespace, here, there)
        print(f"ready {here} {HERE_ADDRESS}", flush=True)
        Relay(left, right).run()
    finally:
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


if __name__ == "__main__":
    main()
