"""A sink of events on the Python client."""

from collections.abc import Iterable

from anabranch.cli.records import Record
from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import BufferFull


class ClientSink:
    """An `EventSink` on an entered writer, transaction or part; leaving it flushes."""

    def __init__(self, writer: LaneWriter[bytes]) -> None:
        self._writer = writer

    async def write(self, records: Iterable[Record]) -> None:
        for record in records:
            while True:
                try:
                    self._writer.write(record.event, record.key)
                except BufferFull:
                    await self._writer.drain()
                else:
                    break

    async def flush(self) -> None:
        await self._writer.flush()
