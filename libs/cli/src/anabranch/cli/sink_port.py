"""The port for the events that commands write, independent of the transport."""

from collections.abc import Iterable
from typing import Protocol

from anabranch.cli.records import Record


class EventSink(Protocol):
    """Takes events for one stream; leaving its context waits until all are durable."""

    async def write(self, records: Iterable[Record]) -> None:
        """Take the records in order, and wait while too many are not stored yet.

        If the iterable raises an error, the records before it are kept, and `flush` stores them.
        """
        ...

    async def flush(self) -> None:
        """Return when everything taken is durable."""
        ...
