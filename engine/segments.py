"""Segments: where each request is in its text, from one run of rows to the next.

Rows of text that are known go into the table as a run, which frames are launched from without
asking anybody. Whatever may change what follows (text that comes, an end, a guard) ends the run
first: its unused rows go back to the feed. Engine thread only.
"""

from collections.abc import Callable, Sequence

import numpy as np

from playhead.engine.guard import RunawayGuard
from playhead.engine.intake import Intake
from playhead.engine.messages import Guard
from playhead.engine.request import Request
from playhead.engine.runner import Runner
from playhead.engine.table import RequestTable

Fail = Callable[[Request, Exception], None]


class Segments:
    """The talker segments of all requests on one runner."""

    def __init__(
        self,
        runner: Runner,
        intake: Intake,
        table: RequestTable,
        guard: RunawayGuard,
        fail: Fail,
    ) -> None:
        """Take the parts; `fail` ends one request with an error."""
        self._runner, self._intake, self._table = runner, intake, table
        self._guard, self._fail = guard, fail

    def next_run(self, request: Request, now_s: float) -> bool:
        """Ask for the next rows of text; return whether the request has a frame to make now."""
        feed, slot = request.feed, request.slot
        if request.ended or request.needs_prefill:
            return False
        if feed is None:
            self._table.store(np.array([slot]), request.next_recorded()[None])
            self._table.count_frames(slot, 1)
            self._table.update(request)
            return False
        num_frames, segment_frames = self._table.position(slot)
        left = request.max_frames - num_frames - 1  # the frame at the limit is a run by itself
        try:
            run = feed.run(num_frames, segment_frames, max(left, 1))
        except Exception as error:
            self._fail(request, error)
            return False
        if request.first_frame_s is None:
            request.first_frame_s = now_s
        if left <= 0:
            request.ended = request.reached_limit = True
        if run.overdue:
            self._table.mark(request, True)
        more = run.more and not (request.ended or run.overdue)
        self._table.begin_run(slot, run, more)
        self._table.await_words(slot, request.words_from)
        return True

    def end_run(self, request: Request) -> None:
        """Give the rows of text back that no frame was launched with: what follows may change."""
        num_frames, _ = self._table.position(request.slot)
        left = self._table.end_run(request.slot)
        if request.feed is not None:
            request.feed.give_back(num_frames, left)

    def stop(self, request: Request, guard: Guard) -> None:
        """End a segment with its next frame: it goes on behind its text."""
        self.end_run(request)
        assert request.feed is not None
        request.feed.stop(guard)

    def landed(self, request: Request, ended: bool, num_behind: int) -> bool:
        """Look at one row of a frame batch with so many behind it; return whether it is a frame."""
        if request.released:
            return False
        if request.void_frames:
            request.void_frames -= 1
            self._table.mark(request, request.void_frames > 0)
            return False
        feed = request.feed
        assert feed is not None
        _, segment_frames = self._table.position(request.slot)
        if ended:
            # The model chose the end: this row made no frame, and those behind it are void.
            # Their text is unspoken; but a segment that made nothing must not begin the same again.
            request.void_frames = num_behind
            self.end_run(request)
            feed.take_back(num_behind + (segment_frames > 1 + num_behind))
            self._table.count_frames(request.slot, -1 - num_behind)
            request.reached_limit = request.ended = False
            self._table.mark(request, num_behind > 0)
            self._next_segment(request)
        elif not (request.ended or num_behind) and (overdue := feed.overdue(segment_frames)):
            request.reached_limit = True
            if overdue != "full":
                request.guard = request.guard or overdue
            self._table.mark(request, False)
            self._next_segment(request)
        return not ended

    def _next_segment(self, request: Request) -> None:
        """End the speech, or go on with the next segment: fresh talker, same codec and seed."""
        feed = request.feed
        assert feed is not None
        if not feed.more_segments:
            request.ended = True
            self._table.update(request)
            return
        request.reached_limit = False
        feed.begin_segment()
        self._table.end_segment(request.slot)
        self._guard.forget(request.slot)
        request.needs_prefill = True
        try:
            if not feed.in_prompt:
                self.restart(request, [])
            self._table.update(request)
        except Exception as error:
            self._fail(request, error)

    def restart(self, request: Request, body: Sequence[int]) -> None:
        """Lay out the prompt of the next segment, with `body` in it. Raises TextTooLong."""
        prompt = self._intake.prompt(request.submit, body)
        request.prompt_rows = self._runner.restart(request.slot, prompt)
        if request.feed is not None:
            request.feed.trail(prompt.trailing_ids)
