"""attach: tells the engine where a session's playback stands, and its history what was heard."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession
from livekit.plugins.playhead.early_text import EarlyText
from livekit.plugins.playhead.pump_output import PumpOutput
from livekit.plugins.playhead.room_track import RoomTrack
from livekit.plugins.playhead.tap import HeardText, Tap


def attach(session: AgentSession[Any], room: rtc.Room | None = None) -> None:
    """Wire a session's playback to the engine that speaks for it.

    With a room, before `session.start`: the session speaks through a track of ours, whose clock
    is exact and whose pauses lose nothing. Without one, after `session.start`: the sink that is
    there is watched, and playing is assumed to go on in real time from its first sound.
    Either way an interrupted reply keeps the words that were heard.

    Raises:
        RuntimeError: There is a sink already and a room was given, or neither.
    """
    sink = session.output.audio
    if room is not None:
        if sink is not None:
            raise RuntimeError("the session has an audio output: attach before session.start")
        track = RoomTrack(room)
        speak_through(session, track.output)
        _when_closed(session, track.aclose)
        _when_closed(session, EarlyText(session, room).aclose)
    elif sink is None:
        raise RuntimeError("no audio output to watch: give room=, or attach after session.start")
    else:
        tap = Tap(sink)
        session.output.audio = tap
        session.on("close", lambda _: tap.close())


def speak_through(session: AgentSession[Any], output: PumpOutput) -> None:
    """Make a sink of ours the session's last; what was heard goes on top of all others."""

    def crown() -> None:
        top = session.output.audio
        if top is not None and not isinstance(top, HeardText | PumpOutput):
            session.output.audio = HeardText(output, top)

    # a session that starts stacks its own sinks on ours, and attaches them from the top down
    output.when_attached = lambda: asyncio.get_running_loop().call_soon(crown)
    session.output.audio = output


def _when_closed(
    session: AgentSession[Any], close: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def begin(_: object) -> None:
        tasks.add(asyncio.create_task(close()))

    session.on("close", begin)
