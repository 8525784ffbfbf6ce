"""An engine in this very process, for loads without any transport."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from playhead.engine.messages import Done, Submit
from playhead.worker.client import EngineClient
from playhead.worker.interpreter import hand_over_at_once, settle
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker


@contextlib.asynccontextmanager
async def opened(model: str | None, profile: str) -> AsyncIterator[EngineClient]:
    """Start an engine, speak one utterance to warm it up, hand its client out, stop it."""
    client = EngineClient(ThreadCarrier(engine_maker(model, profile)))
    await asyncio.get_running_loop().run_in_executor(None, client.start)
    try:
        warm = Submit("warm", text="Ready to speak.", closed=True, live=False, max_frames=16)
        async for result in await client.submit(warm):
            if isinstance(result, Done):
                break
        settle()
        hand_over_at_once()
        yield client
    finally:
        client.close()
