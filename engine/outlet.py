"""Outlet: what a codec batch made, on its way out: trim, words, chunks; engine thread only."""

from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.clock import GAP_FLOOR_S
from playhead.engine.messages import Pcm, Result
from playhead.engine.metrics import EngineMetrics
from playhead.engine.request import Request
from playhead.engine.runner import CodecResult
from playhead.engine.stages import Batch
from playhead.engine.table import RequestTable, Slots
from playhead.engine.units import FRAME_S, SAMPLE_BYTES

MAX_WAIT_S = 2 * FRAME_S
"""Speech begins with no more than this: a device that is slower, or was held up, is late anyway."""


class Outlet:
    """Turns samples of a batch into results, and counts them."""

    def __init__(
        self, table: RequestTable, metrics: EngineMetrics, costs: StepCosts, max_rows: int
    ) -> None:
        """Write into the engine's table and metrics; `costs` tell when the next chunk comes."""
        self._table, self._metrics, self._costs = table, metrics, costs
        self._max_rows = max_rows

    def publish(self, batch: Batch[CodecResult], result: CodecResult, now_s: float) -> list[Result]:
        """Return what goes out of a codec batch, in its order.

        Where silence is over, a row is one chunk, and before it the words that wait for it.
        """
        slots, pcm = batch.slots, result.pcm
        left_s = self._table.left_s(slots, now_s)
        least_s = float(left_s[left_s.argmin()])
        self._metrics.saw_slack(least_s)
        num_rows, num_samples = pcm.shape
        one_row = f"V{SAMPLE_BYTES * num_samples}"
        blocks = np.ascontiguousarray(pcm).view(one_row)[:, 0].tolist()  # bytes of each row
        names, starts = self._table.names(slots), self._table.starts(slots)
        chunks: list[Result] = list(map(Pcm, names, starts, blocks, repeat(batch.num_frames)))
        odd = result.broken | ~self._table.speaking(slots)
        worded = self._table.words_wait(slots)
        if least_s >= -GAP_FLOOR_S and not np.count_nonzero(odd):
            self._table.published(slots, num_samples, now_s)
            return self._with_words(slots, chunks, worded.nonzero()[0])
        others = (odd | worded).nonzero()[0].tolist()
        counts, out, done = np.full(num_rows, num_samples), [], 0
        for i in others:
            out += chunks[done:i]
            request = self._table.request(slots[i])
            gone = request.released or result.broken[i]
            counts[i] = 0 if gone else self._row(request, chunks[i], pcm[i], out, now_s)
            done = i + 1
        out += chunks[done:]
        heard = counts > 0
        if least_s < -GAP_FLOOR_S:
            late_s = -left_s[heard & (left_s < -GAP_FLOOR_S)]
            self._metrics.late_chunks += len(late_s)
            self._metrics.late_s += float(late_s.sum())
        self._table.published(slots[heard], counts[heard], now_s)
        return out

    def _with_words(self, slots: Slots, chunks: list[Result], rows: Slots) -> list[Result]:
        """Put the words that wait in some rows before the chunks of those rows."""
        if not len(rows):
            return chunks
        slots = slots[rows]
        requests = [*map(self._table.request, slots.tolist())]
        words = [*map(Request.timed_words, requests, self._table.frames(slots))]
        self._table.await_words(slots, [request.words_from for request in requests])
        for i, found in zip(reversed(rows.tolist()), reversed(words), strict=True):
            chunks[i:i] = found
        return chunks

    def _next_s(self) -> float:
        """Return how long everybody's next frame and its decoding take, MAX_WAIT_S at most."""
        rows = min(self._metrics.live, self._max_rows)
        return min(self._costs.frame_s(rows) + self._costs.codec_s(rows), MAX_WAIT_S)

    def flush(self, request: Request, now_s: float) -> list[Result]:
        """Hand out speech that waited for more to begin with: nothing is on its way."""
        out: list[Result] = []
        if not request.trim.holds:
            return out
        chunk, none = Pcm(request.id, 0, b"", 0), np.zeros(0, np.int16)
        num_samples = self._row(request, chunk, none, out, now_s, more=False)
        self._table.published(np.array([request.slot]), num_samples, now_s)
        return out

    def _row(
        self,
        request: Request,
        chunk: Result,
        pcm: NDArray[np.int16],
        out: list[Result],
        now_s: float,
        more: bool = True,
    ) -> int:
        """Hand out a chunk with the words before it, or what the trim leaves of it: its samples."""
        assert isinstance(chunk, Pcm)
        first = not chunk.start_sample
        last = first and request.ended and not self._table.busy(request.slot)
        kept = request.audible(pcm, last, self._next_s() if more else 0.0)
        if not len(kept):
            return 0
        num_frames, _ = self._table.position(request.slot)
        out += request.timed_words(num_frames)
        if kept is pcm:
            out.append(chunk)
        else:
            out.append(Pcm(request.id, 0, kept.tobytes(), chunk.num_frames))
        self._table.await_words(request.slot, request.words_from)
        if first:
            self._metrics.trimmed_samples += request.trim.dropped_samples
            self._metrics.saw_first_audio(*request.first_times_s(now_s))
        return len(kept)
