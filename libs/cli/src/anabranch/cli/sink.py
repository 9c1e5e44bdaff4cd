"""Takes the events that commands write."""

from collections.abc import Callable, Iterable

from anabranch.cli.records import Record
from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import BufferFull


class EventSink:
    """Takes events for an entered writer, which waits for the rest when it is left; also for that
    of a transaction or a part of one.

    `events` and `size_bytes` count the events taken, `durable` the events that were durable at the
    last flush.
    """

    def __init__(self, writer: LaneWriter[bytes]) -> None:
        self._writer = writer
        self._take: Callable[[bytes, str | None], None] = writer.write
        self.events = 0
        self.size_bytes = 0
        self.durable = 0

    async def write(self, records: Iterable[Record], *, batch: int | None = None) -> None:
        """Take them in their order, and wait while too many are not stored yet; with `batch`, after
        each so many events until they are durable. Records before an error of the iterable itself
        are kept, and stored by `flush`."""
        for record in records:
            while True:
                try:
                    self._take(record.event, record.key)
                except BufferFull:
                    await self._writer.drain()
                else:
                    break
            self.events += 1
            self.size_bytes += len(record.event)
            if batch is not None and self.events >= self.durable + batch:
                await self.flush()

    async def flush(self) -> None:
        """Return when everything taken is durable."""
        await self._writer.flush()
        self.durable = self.events

    @property
    def has_failed(self) -> bool:
        """Whether it takes no more events."""
        return self._writer.failed


class WholeSink(EventSink):
    """Takes the events of a whole transaction, which are durable when it is left."""

    async def flush(self) -> None:
        """Return at once: before the commit nothing has to be durable."""
