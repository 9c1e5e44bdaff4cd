"""Takes the events that commands write."""

from collections.abc import Iterable

from anabranch.cli.records import Record
from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import BufferFull


class EventSink:
    """Takes events for an entered writer, which waits for the rest when it is left; also for that
    of a transaction or a part of one."""

    def __init__(self, writer: LaneWriter[bytes]) -> None:
        self._writer = writer

    async def write(self, records: Iterable[Record]) -> None:
        """Take them in their order, and wait while too many are not stored yet. Records before
        an error of the iterable itself are kept, and stored by `flush`."""
        for record in records:
            while True:
                try:
                    self._writer.write(record.event, record.key)
                except BufferFull:
                    await self._writer.drain()
                else:
                    break

    async def flush(self) -> None:
        """Return when everything taken is durable."""
        await self._writer.flush()
