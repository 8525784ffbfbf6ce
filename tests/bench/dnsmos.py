"""DNSMOS: a model's guess at what listeners would give speech, 1 to 5; 24 kHz samples in.

Weights and the curve that maps them to opinions are those of the package `speechmos` 0.0.1.1
(MIT), whose wheel holds the model as ONNX. Only that file is read: its Python needs librosa. Put
it anywhere on the path: `uv pip install --no-deps --target DIR speechmos==0.0.1.1`, then
`PYTHONPATH=DIR:...`.
"""

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from playhead.worker.demo.asr import ASR_RATE_HZ, to_asr_rate

WINDOW_SAMPLES = int(9.01 * ASR_RATE_HZ)
"""What the model takes; shorter speech is repeated, longer speech judged every second."""
OVERALL = np.poly1d([-0.06766283, 1.11546468, 0.04602535])
"""From the model's value to an opinion, P.835 overall quality."""


class Dnsmos:
    """The model that hears signal, background and overall quality."""

    def __init__(self) -> None:
        """Load the packaged weights; raises ModuleNotFoundError where they are not installed."""
        found = importlib.util.find_spec("speechmos")
        if found is None or found.origin is None:
            raise ModuleNotFoundError("speechmos is not installed; see tests/bench/dnsmos.py")
        model = Path(found.origin).parent / "dnsmos_models" / "sig_bak_ovr.onnx"
        self._session = onnxruntime.InferenceSession(str(model))

    def overall(self, pcm: npt.NDArray[np.int16]) -> float:
        """Return the overall opinion of one utterance, the mean over its windows."""
        audio = np.clip(to_asr_rate(pcm), -1.0, 1.0)
        while len(audio) < WINDOW_SAMPLES:
            audio = np.concatenate([audio, audio])
        starts = range(0, len(audio) - WINDOW_SAMPLES + 1, ASR_RATE_HZ)
        raw = [
            self._session.run(None, {"input_1": audio[None, at : at + WINDOW_SAMPLES]})[0][0][2]
            for at in starts
        ]
        return float(np.mean([OVERALL(value) for value in raw]))
