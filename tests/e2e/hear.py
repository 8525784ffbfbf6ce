"""A listener as a process of its own: join, speak texts, keep sound, times and events in a folder.

Its own process so that it can live in a network namespace, and so that the machine's monotonic
clock is all it shares with the worker. Usage: hear.py SETUP_JSON, as rig.run_listener writes it.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from playhead.worker.demo.llm import write_tokens
from playhead.worker.listener import Listener

ENDS = ("finished", "interrupted", "error")
LIMIT_S = 90.0
PAUSE_S = 0.6
TAIL_S = 1.0


class Script:
    """Speaks the texts of a setup and keeps what happens."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.events: list[dict[str, Any]] = []
        self.begun: dict[str, float] = {}
        self.heard: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()

    async def read(self) -> None:
        while True:
            self.events.append(await self.listener.events.get())
            self._changed.set()

    async def until(self, request_id: str, *kinds: str, heard_s: float = 0.0) -> None:
        """Wait for an event of a request, at a heard position where it has one."""
        async with asyncio.timeout(LIMIT_S):
            while not any(
                event.get("request_id") == request_id
                and event["type"] in kinds
                and event.get("heard_s", 0.0) >= heard_s
                for event in self.events
            ):
                self._changed.clear()
                await self._changed.wait()

    async def act(self, text: dict[str, Any]) -> None:
        request_id = text["request_id"]

        def first(_: str) -> None:
            self.begun.setdefault(request_id, time.monotonic())

        tokens = write_tokens(text["text"], text["token_ms"] / 1000, first)
        attributes = {"request_id": request_id, "seed": str(text["seed"])}
        await self.listener.speak(tokens, **attributes)
        if text["interrupt_at_s"] is not None:
            await self.until(request_id, "clock", heard_s=text["interrupt_at_s"])
            sent_s = time.monotonic()
            self.heard[request_id] = {"sent_s": sent_s, **await self.listener.interrupt()}
        if text["wait"]:
            await self.until(request_id, *ENDS)
            await asyncio.sleep(PAUSE_S)


async def hear(setup: dict[str, Any]) -> None:
    listener = Listener()
    script = Script(listener)
    await listener.join(setup["url"], setup["token"], speaker_limit_s=60.0)
    reading = asyncio.create_task(script.read())
    await asyncio.sleep(setup["settle_s"])
    for text in setup["texts"]:
        await script.act(text)
    for text in setup["texts"]:
        await script.until(text["request_id"], *ENDS)
    await asyncio.sleep(TAIL_S)
    reading.cancel()
    out = Path(setup["out"])
    starts, times = listener.recording.arrivals()
    np.savez(out / "heard.npz", pcm=listener.recording.pcm(), starts=starts, times=times)
    document = {
        "events": script.events,
        "begun": script.begun,
        "heard": script.heard,
        "report": listener.reporter.last_report if listener.reporter else {},
        "captions": listener.captions,
    }
    (out / "heard.json").write_text(json.dumps(document))
    await listener.leave()


if __name__ == "__main__":
    asyncio.run(hear(json.loads(sys.argv[1])))
