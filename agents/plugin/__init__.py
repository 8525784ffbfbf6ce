"""playhead for LiveKit Agents: Qwen3-TTS speech, from this process, beside it, or over a network.

`playhead.TTS()` needs no key and no server: it speaks with the embedded voice. Importing this
package loads neither a model nor torch.
"""

from livekit.agents import Plugin
from livekit.plugins.playhead.attach import attach
from livekit.plugins.playhead.choice import default_model
from livekit.plugins.playhead.log import logger
from livekit.plugins.playhead.shared_engine import fetch_model, use_engine
from livekit.plugins.playhead.streams import ChunkedStream, SynthesizeStream
from livekit.plugins.playhead.tts import TTS, Voice
from livekit.plugins.playhead.version import __version__

__all__ = [
    "TTS",
    "ChunkedStream",
    "SynthesizeStream",
    "Voice",
    "__version__",
    "attach",
    "use_engine",
]


class PlayheadPlugin(Plugin):
    """What LiveKit Agents lists and prepares."""

    def __init__(self) -> None:
        """Name the plugin."""
        super().__init__(__name__, __version__, __package__ or __name__, logger)

    def download_files(self) -> None:
        """Fetch the checkpoint that `PLAYHEAD_MODEL` names; raises CheckpointError.

        The embedded voice is part of the package.
        """
        fetch_model(default_model())


Plugin.register_plugin(PlayheadPlugin())
