"""Fetches a stream's watermarks as a position needs them.

    position ──► enough watermarks ahead? ──no──► read the next page ──► known marks ──► window
                        │ yes                         │ nothing there
                        ▼                             ▼
                     window                  ask again after a pause

It asks for nothing by itself: a reader whose window is not asked for costs nothing, and one that
waits at the tail asks at most once a second. If the store does not answer, the window is that of
the watermarks known so far: a bound may then be too old, which is loose but true.

    no such segment      the stream has no watermarks yet: asked again, ever more seldom
    truncated            it continues at the new start; the missing watermarks were passed, or the
                         lower bound stays None until the next one is
    another segment      the stream was deleted and created again: the log leaves out the watermarks
                         of other lives, so the window stays as it is
    damaged              CorruptBlock, at every call
"""

import asyncio
from collections.abc import Sequence
from math import inf

from anabranch.client.backoff import Backoff
from anabranch.client.reading.times.log import StoredMark, WatermarkLog
from anabranch.client.reading.times.window import KnownMarks, MarkedCut, Place, Side, TimeWindow
from anabranch.client.settings import BackoffSettings
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import (
    Fenced,
    InvalidRequest,
    Retry,
    SegmentNotFound,
    SegmentTruncated,
    Unknown,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng

PAUSE_S_MIN = 1.0
TAIL_PAUSE_S_MAX = 5.0
"""The longest pause before the tail is read again."""
MISSING_PAUSE_S_MAX = 60.0
"""The longest pause while the stream has no watermarks, or their store does not serve."""
RETRY_TIMEOUT_S = 1.0
"""How long a store that refuses is asked again at once."""
ATTEMPT_S = 10.0
"""The longest wait for a store that does not answer."""


class WatermarkFollower:
    """The watermarks around one position of one stream, which only moves forward."""

    def __init__(self, log: WatermarkLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._known = KnownMarks()
        self._next: int | None = None
        """The offset of the next page; None: not found yet."""
        self._ask_at_s = -inf
        self._pause_s = PAUSE_S_MIN

    async def catch_up(self, places: Sequence[Place]) -> None:
        """Fetch the watermarks up to those ahead of the position, as far as they exist.

        May be called concurrently and cancelled. Raises CorruptBlock.
        """
        while self._known.wants_more(places) and self._clock.monotonic() >= self._ask_at_s:
            asked = self._next
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    if asked is None:
                        await self._find_start(places)
                    else:
                        await self._next_page(asked)
            except SegmentNotFound:
                self._pause(MISSING_PAUSE_S_MAX)
            except SegmentTruncated as error:
                start = error.fields.get("start")
                if self._next == asked:
                    self._next = start if isinstance(start, int) and asked is not None else None
                if asked is None:
                    self._pause(TAIL_PAUSE_S_MAX)
            except InvalidRequest:
                if self._next == asked:
                    self._next = None
                    self._known.begin_again()
                self._pause(MISSING_PAUSE_S_MAX)
            except (Retry, Unknown, Fenced, TimeoutError):
                self._pause(MISSING_PAUSE_S_MAX)

    def window(self, places: Sequence[Place]) -> TimeWindow:
        """The window at the position, by the watermarks fetched so far."""
        return self._known.window(places)

    def upper_ms(self, places: Sequence[Place]) -> int | None:
        """The upper bound of a position, by the watermarks fetched so far."""
        return self._known.upper_ms(places)

    async def _find_start(self, places: Sequence[Place]) -> None:
        """Begin at the last watermark that the position has passed."""
        last, end = await self._log.seek(lambda mark: MarkedCut(mark).side(places) is Side.PASSED)
        if self._next is None:
            self._add(() if last is None else (last,))
            self._next, self._pause_s = end, PAUSE_S_MIN

    async def _next_page(self, offset: int) -> None:
        page = await self._log.page(offset)
        if self._next != offset:
            return  # a concurrent call was faster
        self._next = page.end
        if page.is_empty:
            self._pause(TAIL_PAUSE_S_MAX)
        else:
            self._pause_s = PAUSE_S_MIN
            self._add(page.marks)

    def _add(self, marks: Sequence[StoredMark]) -> None:
        for mark in marks:
            self._known.add(MarkedCut(mark.watermark))

    def _pause(self, longest_s: float) -> None:
        self._ask_at_s = self._clock.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, longest_s)


def new_follower(
    stream: StreamRef, incarnation: int, *, directory: SegmentDirectory, clock: Clock, rng: Rng
) -> WatermarkFollower:
    """A follower of the watermarks of this life of the stream."""

    def calls(segment: str) -> SegmentCalls:
        backoff = Backoff(BackoffSettings(), rng, RETRY_TIMEOUT_S)
        return SegmentCalls(segment, directory=directory, clock=clock, backoff=backoff)

    return WatermarkFollower(WatermarkLog(stream, incarnation, calls), clock)
