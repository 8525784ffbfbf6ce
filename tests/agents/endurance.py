"""Many interrupted, cancelled and whole streams, and what they leave behind."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from livekit.agents import APIConnectOptions
from livekit.plugins import playhead

from tests.agents.fakes import tokens, until

TEXT = "Take the second left after the bridge, and then go on until you see the station. "
PATIENT = APIConnectOptions(max_retry=0, timeout=60)


@dataclass
class Leaks:
    """What was there after a run and not before."""

    tasks: int = 0
    sockets: int = 0
    live: int = 0
    """Utterances an engine still holds."""
    rss_mb: float = 0.0

    @property
    def num(self) -> int:
        return self.tasks + self.sockets + self.live


@asynccontextmanager
async def watch(num_live: Callable[[], int]) -> AsyncIterator[Leaks]:
    """Fill in what the block left behind; `num_live` asks the engine."""
    tasks, sockets, rss_mb = len(asyncio.all_tasks()), num_sockets(), resident_mb()
    leaks = Leaks()
    yield leaks
    await until(lambda: num_live() == 0 and num_sockets() <= sockets)
    await asyncio.sleep(0.1)
    leaks.tasks = max(len(asyncio.all_tasks()) - tasks, 0)
    leaks.sockets = max(num_sockets() - sockets, 0)
    leaks.live = num_live()
    leaks.rss_mb = resident_mb() - rss_mb


async def interrupt(voice: playhead.TTS, count: int, seed: int = 0) -> None:
    """End so many streams at random moments: before, while and after they speak."""
    chance = random.Random(seed)
    for _ in range(count):
        stream = voice.stream(conn_options=PATIENT)
        reading = asyncio.create_task(_read(stream))
        for token in tokens(TEXT)[: chance.randrange(1, 20)]:
            stream.push_text(token)
            if chance.random() < 0.1:
                await asyncio.sleep(0)
        if chance.random() < 0.5:
            stream.end_input()
        await asyncio.sleep(chance.choice([0.0, chance.uniform(0.0, 0.3)]))
        await stream.aclose()
        await reading


async def cancel(voice: playhead.TTS, count: int, seed: int = 1) -> None:
    """Cancel so many whole texts at random moments."""
    chance = random.Random(seed)
    for _ in range(count):
        stream = voice.synthesize(TEXT, conn_options=PATIENT)
        await asyncio.sleep(chance.choice([0.0, chance.uniform(0.0, 0.1)]))
        await stream.aclose()


async def take_turns(voice: playhead.TTS, count: int) -> None:
    """Speak so many short texts one after another."""
    for _ in range(count):
        async with voice.stream(conn_options=PATIENT) as stream:
            stream.push_text("Yes.")
            stream.end_input()
            frames = [audio.frame async for audio in stream]
        assert frames


async def _read(stream: playhead.SynthesizeStream) -> None:
    async for _ in stream:
        pass


def num_sockets() -> int:
    """Return how many sockets this process holds."""
    links = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    return sum("socket:" in link for link in links)


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
