"""Logger of the plugin."""

import logging

logger = logging.getLogger("livekit.plugins.playhead")
