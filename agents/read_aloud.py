"""Have a text read aloud in a room: a text stream to a playhead worker is all it takes.

    export LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=...
    playhead worker &
    some-llm | python read_aloud.py my-room

Each line is spoken while the next is still being written. Prints what was heard.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

from livekit import api, rtc

IDENTITY = "read-aloud"


async def read_aloud(room: rtc.Room, text: AsyncIterator[str], **attributes: str) -> str:
    """Stream a text to the speaker of a room; return what its listeners heard of it."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    attributes.setdefault("request_id", os.urandom(8).hex())

    def on_data(packet: rtc.DataPacket) -> None:
        if packet.topic != "playhead.events" or ended.done():
            return
        event = json.loads(packet.data)
        if event["request_id"] != attributes["request_id"]:
            return
        if event["type"] in ("finished", "interrupted"):
            ended.set_result(event["heard_text"])
        elif event["type"] == "error":
            ended.set_exception(RuntimeError(event["message"]))

    room.on("data_received", on_data)
    try:
        writer = await room.local_participant.stream_text(
            topic="playhead.text",
            attributes=attributes,
            destination_identities=[await find_speaker(room)],
        )
        async for piece in text:
            await writer.write(piece)
        await writer.aclose()
        return await ended
    finally:
        room.off("data_received", on_data)


async def find_speaker(room: rtc.Room) -> str:
    """Wait until the room has a speaker: an agent with an audio track; return its identity."""
    while True:
        for participant in room.remote_participants.values():
            tracks = participant.track_publications.values()
            is_agent = participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
            if is_agent and any(track.kind == rtc.TrackKind.KIND_AUDIO for track in tracks):
                return participant.identity
        await asyncio.sleep(0.1)


async def lines() -> AsyncIterator[str]:
    """Yield the lines of standard input as they come."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


def make_token(room_name: str) -> str:
    """Make a token that joins as an agent: agents may have the worker speak."""
    token = api.AccessToken().with_identity(IDENTITY).with_kind("agent")
    return token.with_grants(api.VideoGrants(room_join=True, room=room_name)).to_jwt()


async def main(room_name: str) -> None:
    """Read standard input aloud in a room."""
    room = rtc.Room()
    await room.connect(os.environ["LIVEKIT_URL"], make_token(room_name))
    try:
        print(await read_aloud(room, lines()))
    finally:
        await room.disconnect()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
