"""`WriterTimes` in memory: for tests. One event loop owns it; nothing here waits."""

from anabranch.common.contracts.writer_times import MARK_MS_MAX, WRITERS_MAX, WriterMark
from anabranch.common.errors import Unavailable
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamCut
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.writer_times import (
    MarkPage,
    refuse_earlier,
    refuse_lower,
    refuse_more_writers,
)


class InMemoryWriterTimes:
    """`away` makes every call fail, as without a server."""

    def __init__(
        self, clock: Clock, *, writers_max: int = WRITERS_MAX, mark_ms: int = MARK_MS_MAX
    ) -> None:
        self._clock = clock
        self._writers_max = writers_max
        self._mark_ms = mark_ms
        self._marks: dict[tuple[StreamRef, int], dict[str, WriterMark]] = {}
        self.away = False

    async def note(
        self, stream: StreamRef, incarnation: int, writer_id: str, timestamp_ms: int,
        positions: StreamCut,
    ) -> None:  # fmt: skip
        """See `WriterTimes.note`."""
        known = self._known(stream, incarnation)
        before = known.get(writer_id)
        if before is not None and before.timestamp_ms > timestamp_ms:
            refuse_earlier(writer_id, timestamp_ms, before.timestamp_ms)
        noted = {} if before is None else {at.segment_id: at.offset for at in before.positions}
        for at in positions:
            if at.offset < noted.get(at.segment_id, at.offset):
                refuse_lower(writer_id, at.segment_id, at.offset, noted[at.segment_id])
        if before is None and len(known) >= self._writers_max:
            refuse_more_writers(stream, self._writers_max)
        known[writer_id] = WriterMark(
            writer_id=writer_id,
            timestamp_ms=timestamp_ms,
            positions=positions,
            noted_ms=self._clock.now_ms(),
        )

    async def remove(self, stream: StreamRef, incarnation: int, writer_id: str) -> bool:
        """See `WriterTimes.remove`."""
        return self._known(stream, incarnation).pop(writer_id, None) is not None

    async def page(self, stream: StreamRef, incarnation: int, after: str, count: int) -> MarkPage:
        """See `WriterTimes.page`."""
        known = self._known(stream, incarnation)
        writers = [writer for writer in sorted(known) if writer > after]
        return MarkPage(
            self._clock.now_ms(),
            tuple(known[writer] for writer in writers[:count]),
            writers[count - 1] if len(writers) > count else "",
        )

    async def close(self) -> None:
        """See `WriterTimes.close`."""

    def _known(self, stream: StreamRef, incarnation: int) -> dict[str, WriterMark]:
        """What has not ended."""
        if self.away:
            raise Unavailable("the times of writers are away")
        known = self._marks.setdefault((stream, incarnation), {})
        ended = self._clock.now_ms() - self._mark_ms
        for writer in [name for name, mark in known.items() if mark.noted_ms <= ended]:
            del known[writer]
        return known
