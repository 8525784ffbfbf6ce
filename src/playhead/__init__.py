"""playhead: a LiveKit media worker that speaks for real-time voice agents."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.engine.library import Tts, open_model

__all__ = ["Tts", "open_model"]


def __getattr__(name: str) -> Any:
    """Load the engine (and torch) only when it is asked for."""
    if name in __all__:
        from playhead.engine import library

        return getattr(library, name)
    raise AttributeError(f"module 'playhead' has no attribute {name!r}")
