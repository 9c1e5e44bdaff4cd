"""`WriterTimes` in memory: for tests. One event loop owns it; nothing here waits."""

from collections.abc import Sequence

from anabranch.common.contracts.subjects import shard_of_subject, stream_events
from anabranch.common.contracts.writer_times import MARK_MS_MAX, WRITERS_MAX, WriterMark
from anabranch.common.errors import Unavailable
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamCut
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.writer_times import (
    KnownMarks,
    Mark,
    MarkPage,
    Noted,
    NotedStream,
    refuse_earlier,
    refuse_lower,
    refuse_more_writers,
)


class InMemoryWriterTimes:
    """`away` makes every call fail, as without a server. `calls` counts the calls."""

    def __init__(
        self, clock: Clock, *, writers_max: int = WRITERS_MAX, mark_ms: int = MARK_MS_MAX
    ) -> None:
        self._clock = clock
        self._writers_max = writers_max
        self._mark_ms = mark_ms
        self._marks: dict[tuple[StreamRef, int], dict[str, Mark]] = {}
        self._index: dict[int, dict[tuple[StreamRef, int], int]] = {}
        self._generation = 1
        self._number = 0
        self.away = False
        self.calls = 0

    def empty(self) -> None:
        """Lose everything, as a server that starts anew."""
        self._marks.clear()
        self._index.clear()
        self._generation += 1
        self._number = 0

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """See `WriterTimes.note`."""
        known = self._known(stream, incarnation)
        before = known.get(writer_id)
        if before is not None and before.is_closed:
            before = None
        if before is not None and before.timestamp_ms > timestamp_ms:
            refuse_earlier(writer_id, timestamp_ms, before.timestamp_ms)
        noted = {} if before is None else {at.segment_id: at.offset for at in before.positions}
        for at in positions:
            if at.offset < noted.get(at.segment_id, at.offset):
                refuse_lower(writer_id, at.segment_id, at.offset, noted[at.segment_id])
        if writer_id not in known and len(known) >= self._writers_max:
            for closed in [name for name, mark in known.items() if mark.is_closed]:
                del known[closed]
            if len(known) >= self._writers_max:
                refuse_more_writers(stream, self._writers_max)
        known[writer_id] = Mark(writer_id, timestamp_ms, positions, self._clock.now_ms())
        self._changed(stream, incarnation)

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """See `WriterTimes.remove`."""
        known = self._known(stream, incarnation)
        before = known.get(writer_id)
        if before is None or before.is_closed:
            return False
        known[writer_id] = before._replace(is_closed=True)
        self._changed(stream, incarnation)
        return True

    async def page(self, stream: StreamRef, incarnation: int, after: str, count: int) -> MarkPage:
        """See `WriterTimes.page`."""
        known = self._known(stream, incarnation)
        writers = [writer for writer in sorted(known) if writer > after]
        marks = [known[writer] for writer in writers[:count] if not known[writer].is_closed]
        return MarkPage(
            self._clock.now_ms(),
            tuple(
                WriterMark(
                    writer_id=mark.writer_id,
                    timestamp_ms=mark.timestamp_ms,
                    positions=mark.positions,
                    noted_ms=mark.noted_ms,
                )
                for mark in marks
            ),
            writers[count - 1] if len(writers) > count else "",
        )

    async def marks(self, stream: StreamRef, incarnation: int) -> KnownMarks:
        """See `WriterTimes.marks`."""
        return KnownMarks(self._generation, tuple(self._known(stream, incarnation).values()))

    async def drop(self, stream: StreamRef, incarnation: int, marks: Sequence[Mark]) -> None:
        """See `WriterTimes.drop`."""
        known = self._known(stream, incarnation)
        for mark in marks:
            if known.get(mark.writer_id) == mark:
                del known[mark.writer_id]

    async def noted(self, shard: int, generation: int, after: int, count: int) -> Noted:
        """See `WriterTimes.noted`."""
        self._enter()
        if generation != self._generation:
            after = 0
        index = self._index.get(shard, {})
        rows = sorted((number, key) for key, number in index.items() if number > after)[:count]
        streams = tuple(NotedStream(*key, number) for number, key in rows)
        last = rows[-1][0] if rows else after
        return Noted(self._generation, last, streams, len(rows) >= count)

    async def forget(self, noted: NotedStream) -> None:
        """See `WriterTimes.forget`."""
        self._enter()
        index = self._index.get(_shard_of(noted.stream), {})
        if index.get((noted.stream, noted.incarnation)) == noted.number:
            del index[noted.stream, noted.incarnation]

    async def close(self) -> None:
        """See `WriterTimes.close`."""

    def _changed(self, stream: StreamRef, incarnation: int) -> None:
        self._number += 1
        self._index.setdefault(_shard_of(stream), {})[stream, incarnation] = self._number

    def _enter(self) -> None:
        self.calls += 1
        if self.away:
            raise Unavailable("the times of writers are away")

    def _known(self, stream: StreamRef, incarnation: int) -> dict[str, Mark]:
        """What has not ended."""
        self._enter()
        known = self._marks.setdefault((stream, incarnation), {})
        ended = self._clock.now_ms() - self._mark_ms
        for writer in [name for name, mark in known.items() if mark.noted_ms <= ended]:
            del known[writer]
        return known


class SeenTimes(InMemoryWriterTimes):
    """The same marks as somebody else's, as one controller sees them. `at_s`: when it last read the
    marks of a stream."""

    def __init__(self, shared: InMemoryWriterTimes, clock: Clock) -> None:
        super().__init__(clock)
        self._shared = shared
        self.at_s: dict[tuple[StreamRef, int], float] = {}

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """See `WriterTimes.note`."""
        await self._shared.note(stream, incarnation, writer_id, timestamp_ms, positions)

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """See `WriterTimes.remove`."""
        return await self._shared.remove(stream, incarnation, writer_id)

    async def marks(self, stream: StreamRef, incarnation: int) -> KnownMarks:
        """See `WriterTimes.marks`."""
        self.at_s[stream, incarnation] = self._clock.monotonic()
        return await self._shared.marks(stream, incarnation)

    async def drop(self, stream: StreamRef, incarnation: int, marks: Sequence[Mark]) -> None:
        """See `WriterTimes.drop`."""
        await self._shared.drop(stream, incarnation, marks)

    async def noted(self, shard: int, generation: int, after: int, count: int) -> Noted:
        """See `WriterTimes.noted`."""
        return await self._shared.noted(shard, generation, after, count)

    async def forget(self, noted: NotedStream) -> None:
        """See `WriterTimes.forget`."""
        await self._shared.forget(noted)


def _shard_of(stream: StreamRef) -> int:
    return shard_of_subject(stream_events(stream))
