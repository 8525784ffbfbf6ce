"""Outlet: what a codec batch made, on its way out: trim, words, chunks; engine thread only."""

from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from playhead.engine.messages import Pcm, Result
from playhead.engine.metrics import EngineMetrics
from playhead.engine.request import Request
from playhead.engine.runner import CodecResult
from playhead.engine.stages import Batch
from playhead.engine.table import RequestTable, Slots
from playhead.engine.units import SAMPLE_BYTES


class Outlet:
    """Turns samples of a batch into results, and counts them."""

    def __init__(self, table: RequestTable, metrics: EngineMetrics) -> None:
        """Write into the engine's table and metrics."""
        self._table, self._metrics = table, metrics

    def publish(self, batch: Batch[CodecResult], result: CodecResult, now_s: float) -> list[Result]:
        """Return what goes out of a codec batch, in its order.

        Where silence is over, a row is one chunk, and before it the words that wait for it.
        """
        requests, slots, pcm = batch.requests, batch.slots, result.pcm
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
        if least_s >= 0.0 and not np.count_nonzero(odd):
            self._table.published(slots, num_samples, now_s)
            return self._with_words(requests, slots, chunks, worded.nonzero()[0])
        others = (odd | worded).nonzero()[0].tolist()
        counts, out, done = np.full(num_rows, num_samples), [], 0
        for i in others:
            out += chunks[done:i]
            gone = requests[i].released or result.broken[i]
            counts[i] = 0 if gone else self._row(requests[i], chunks[i], pcm[i], out, now_s)
            done = i + 1
        out += chunks[done:]
        heard = counts > 0
        if least_s < 0.0:
            late_s = -left_s[heard & (left_s < 0.0)]
            self._metrics.late_chunks += len(late_s)
            self._metrics.late_s += float(late_s.sum())
        self._table.published(slots[heard], counts[heard], now_s)
        return out

    def _with_words(
        self, requests: list[Request], slots: Slots, chunks: list[Result], rows: Slots
    ) -> list[Result]:
        """Put the words that wait in some rows before the chunks of those rows."""
        if not len(rows):
            return chunks
        out, done, slots = [], 0, slots[rows]
        for i, num_frames in zip(rows.tolist(), self._table.frames(slots), strict=True):
            out += chunks[done:i]
            out += requests[i].timed_words(num_frames)
            done = i
        self._table.await_words(slots, [requests[i].words_from for i in rows.tolist()])
        return out + chunks[done:]

    def _row(
        self,
        request: Request,
        chunk: Result,
        pcm: NDArray[np.int16],
        out: list[Result],
        now_s: float,
    ) -> int:
        """Hand out a chunk with the words before it, or what the trim leaves of it: its samples."""
        assert isinstance(chunk, Pcm)
        first = not chunk.start_sample
        last = first and request.ended and not self._table.busy(request.slot)
        kept = request.audible(pcm, last)
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
