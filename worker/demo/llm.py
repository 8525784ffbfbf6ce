"""A scripted language model: it writes a known text token by token at a steady pace."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

PARAGRAPH = (
    "Good morning, and thanks for calling. I can help you with your order today. "
    "The package left our warehouse on Monday, and it should be at your door by Friday afternoon. "
    "Would you like me to send you a message when the driver is near? "
    "Please stay on the line while I look at the rest of your account."
)
"""About twenty seconds of everyday speech."""


def split_tokens(text: str) -> list[str]:
    """Cut a text as language models do: words with their space, long ones in pieces of five."""
    pieces = re.findall(r"\s*\S{1,5}", text)
    trailing = text[len("".join(pieces)) :]
    return [*pieces, trailing] if trailing else pieces


async def write_tokens(
    text: str, period_s: float, on_token: Callable[[str], None] | None = None
) -> AsyncIterator[str]:
    """Yield the tokens of a text, one every `period_s`, on a schedule that does not drift."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    for number, token in enumerate(split_tokens(text)):
        await asyncio.sleep(max(start_s + number * period_s - loop.time(), 0))
        if on_token is not None:
            on_token(token)
        yield token
