"""playhead for LiveKit Agents: Qwen3-TTS speech, in this process or from an engine beside it.

`playhead.TTS()` needs no key and no server: it speaks with the embedded voice. Importing this
package loads neither a model nor torch.
"""

from livekit.agents import Plugin
from livekit.plugins.playhead.log import logger
from livekit.plugins.playhead.shared_engine import use_engine
from livekit.plugins.playhead.streams import ChunkedStream, SynthesizeStream
from livekit.plugins.playhead.tts import TTS, Voice
from livekit.plugins.playhead.version import __version__

__all__ = ["TTS", "ChunkedStream", "SynthesizeStream", "Voice", "__version__", "use_engine"]


class PlayheadPlugin(Plugin):
    """What LiveKit Agents lists and prepares."""

    def __init__(self) -> None:
        """Name the plugin."""
        super().__init__(__name__, __version__, __package__ or __name__, logger)


Plugin.register_plugin(PlayheadPlugin())
