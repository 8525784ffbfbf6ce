"""Speech over HTTP with OpenAI's own client: a file, and a stream that is played as it comes.

python speech_http.py http://127.0.0.1:8880/v1 out.mp3 "Hello there."
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from openai import OpenAI


def client(base_url: str) -> OpenAI:
    """Return a client of this server; the key may be anything where the server asks for none."""
    return OpenAI(base_url=base_url, api_key=os.environ.get("PLAYHEAD_API_KEY", "none"))


def save(speech: OpenAI, path: Path, text: str) -> None:
    """Make a file at full speed; its ending chooses the format."""
    made = speech.audio.speech.create(
        model="tts-1", voice="alloy", input=text, response_format=path.suffix[1:]
    )
    path.write_bytes(made.content)


def stream(speech: OpenAI, text: str) -> Iterator[bytes]:
    """Yield PCM (s16le mono, 24 kHz) at the pace of a listener; stop early to cancel."""
    with speech.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=text, response_format="pcm"
    ) as answer:
        yield from answer.iter_bytes()


if __name__ == "__main__":
    save(client(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
