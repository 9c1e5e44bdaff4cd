"""What takes the events that commands write, whichever way they reach the cluster."""

from collections.abc import Iterable
from typing import Protocol

from anabranch.cli.records import Record


class EventSink(Protocol):
    """Takes events for one stream; leaving its context waits until all are durable."""

    async def write(self, records: Iterable[Record]) -> None:
        """Take them in their order, and wait while too many are not stored yet. What came before
        an error of the iterable itself is kept, and stored by `flush`."""
        ...

    async def flush(self) -> None:
        """Return when everything taken is durable."""
        ...
