"""A small client of the speech WebSocket: text in pieces, PCM out; needs aiohttp alone.

    python speech_socket.py ws://127.0.0.1:8880/v1/audio/speech/ws out.pcm "Hello there."

The protocol is described in docs/websocket.md.
"""

import asyncio
import json
import struct
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp

PROTOCOL = "playhead.speech.v1"
HEADER = struct.Struct("<BBHIQ")
"""Before the samples: version, kind, reserved, utterance number, first sample."""


class SpeechError(Exception):
    """The server refused a message or failed an utterance."""

    def __init__(self, event: dict[str, Any]) -> None:
        """Keep the whole event."""
        super().__init__(event["error"]["message"])
        self.event = event


async def speak(
    socket: aiohttp.ClientWebSocketResponse, name: str, pieces: Iterable[str], **controls: Any
) -> AsyncIterator[bytes | dict[str, Any]]:
    """Speak one utterance; yield its PCM (s16le mono, 24 kHz) and its events as they come."""
    await socket.send_json({"type": "utterance.start", "utterance": name, **controls})
    sequence = 0
    for piece in pieces:
        message = {"type": "text.append", "utterance": name, "sequence": sequence, "text": piece}
        await socket.send_json(message)
        sequence += 1
    await socket.send_json({"type": "text.end", "utterance": name, "sequence": sequence})
    number = -1
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            _, _, _, owner, _ = HEADER.unpack_from(message.data)
            if owner == number:
                yield message.data[HEADER.size :]
            continue
        event = json.loads(message.data)
        if event.get("utterance") not in (None, name):
            continue
        if event["type"] == "error":
            raise SpeechError(event)
        if event["type"] == "utterance.created":
            number = event["number"]
        yield event
        if event["type"] == "utterance.done":
            return


async def main(url: str, out: Path, text: str) -> None:
    """Speak a text word by word into a file of PCM."""
    words = [f"{word} " for word in text.split()]
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=[PROTOCOL]) as socket,
    ):
        with out.open("wb") as file:
            async for item in speak(socket, "first", words):
                if isinstance(item, bytes):
                    file.write(item)
                else:
                    print(json.dumps(item))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
