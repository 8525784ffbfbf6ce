"""The playback clock's heard position against the waveform that a listener recorded."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from playhead.worker.demo.align import align
from tests.e2e.rig import HeardSpeech

MAX_ERROR_S = 0.030
RECEIVER_MOVED_S = 0.012
"""A change of the receiver's delay by itself, seen in the waveform."""
SETTLED_S = 1.2
"""The clock takes the median of a second of reports."""
FIRST_REPORTS_S = 0.8
"""A receiver may come out of the silence between speeches with another delay than it had."""


@dataclass(frozen=True, slots=True)
class HeardErrors:
    """How much later than the clock said the audio was really heard, in seconds, event by event."""

    steady: list[float]
    """While the receiver kept its delay."""
    moving: list[float]
    """Just after the receiver may have changed its delay by itself: its reports follow behind."""

    def __str__(self) -> str:
        return f"heard error in ms: steady {spread(self.steady)}, moving {spread(self.moving)}"

    def check(self) -> None:
        print(self)
        assert len(self.steady) > 40, self
        assert max(abs(error) for error in self.steady) < MAX_ERROR_S, self


def heard_errors(heard: HeardSpeech, request_id: str, known: npt.NDArray[np.int16]) -> HeardErrors:
    """Compare every clock event that rests on reports with the waveform."""
    found = align(known, heard.pcm)
    changes_s = [step.reference_s for step in found.steps(RECEIVER_MOVED_S)]
    duration_s = len(known) / 24_000
    errors = HeardErrors([], [])
    for event in heard.of("clock", request_id):
        heard_s = event["heard_s"]
        going = event["state"] == "playing" and 0.3 < heard_s < duration_s - 0.3
        place_s = found.heard_at_s(heard_s) if going else None
        if event["source"] != "reported" or place_s is None:
            continue
        changed = any(-0.6 < heard_s - change_s < SETTLED_S for change_s in changes_s)
        moving = changed or heard_s < FIRST_REPORTS_S
        error_s = heard.recording.time_at_s(place_s) - event["clock_s"]
        (errors.moving if moving else errors.steady).append(error_s)
    return errors


def spread(errors_s: list[float]) -> str:
    if not errors_s:
        return "none"
    quantiles = np.quantile(errors_s, [0, 0.05, 0.5, 0.95, 1]) * 1000
    return f"min/p5/p50/p95/max {np.round(quantiles, 1).tolist()} of {len(errors_s)}"
