"""The pens of a client: the names and numbers under which its short transactions are stored.

A pen is a writer id and, for each segment, the number of the last event that was stored under it.
One commit has a pen at a time, and the number advances only when the store has acknowledged. The
next group of a pen therefore begins exactly behind the last one, and a store that finds the numbers
of a group stored has stored this very group.

    idle ──take──► writing ──acknowledged: advance──► idle
                      └──the outcome is unknown, or the store has forgotten it──► dropped

A number is never removed from a pen. If it were, a later group would begin with number 1 again, and
a store that remembers the pen would take it for a repetition, and lose it. A pen with many segments
is dropped as a whole instead.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.common.errors import Busy
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.ids import IdSource
from anabranch.common.wire.messages import BlockPlace

PENS_MAX = 64
"""The commits of one client that may be under way in one stream."""
SEGMENTS_MAX = 4_096
"""The segments whose numbers a pen has."""


@dataclass(slots=True, eq=False)
class Pen:
    """See the module. `writer_id` has 16 bytes; `last` has only segments that hold its events."""

    writer_id: bytes
    last: dict[str, int] = field(default_factory=dict)

    def next_number(self, segment: str) -> int:
        """The number of its next event in the segment."""
        return self.last.get(segment, 0) + 1

    def advance(self, places: Iterable[BlockPlace]) -> None:
        """Note that a group is stored."""
        for place in places:
            assert place.first_event_number == self.next_number(place.segment)
            self.last[place.segment] = place.first_event_number + place.count - 1


class Pens:
    """The pens of one client for one stream."""

    def __init__(self, stream: StreamRef, ids: IdSource) -> None:
        self._stream = stream
        self._ids = ids
        self._idle: list[Pen] = []
        self._free = asyncio.Semaphore(PENS_MAX)

    async def take(self, timeout_s: float) -> Pen:
        """A pen that no other commit has, the one that was used last if possible.

        Raises Busy if none becomes free in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise Busy(
                "too many short transactions of the stream are being committed",
                remedy="wait until some of them have ended, then commit again",
                stream=str(self._stream), limit=PENS_MAX,
            ) from None  # fmt: skip
        return self._idle.pop() if self._idle else self.new()

    def new(self) -> Pen:
        """A new pen, in place of one that its holder no longer uses."""
        return Pen(self._ids.new_bytes())

    def give_back(self, pen: Pen) -> None:
        """Return a pen whose numbers are those that the store has."""
        if len(pen.last) <= SEGMENTS_MAX:
            self._idle.append(pen)
        self._free.release()

    def drop(self) -> None:
        """Note that a pen is not used for other commits any more."""
        self._free.release()
