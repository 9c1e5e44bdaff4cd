"""The rows that a demo replays: one event each, from a source with a fixed order.

A source has no state; asking it twice for its rows gives the same rows. Its implementations are
`flights.Flights` and `sensors.Sensors`.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """An event to write: a JSON object that has its number as `row`. `date`: its day."""

    event: bytes
    key: str | None
    timestamp_ms: int
    date: str


class Source(Protocol):
    """`described` completes the sentence "The demo writes 50,000 …"."""

    @property
    def count(self) -> int: ...

    @property
    def stream(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def described(self) -> str: ...

    def rows(self) -> Iterator[Row]:
        """All rows, numbered from 0; those of one day follow one another."""
        ...
