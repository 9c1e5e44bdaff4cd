"""Where a consumer starts in a partition, by record numbers. Pure.

    Offset.absolute(n)         n; it must lie within the partition
    Offset.from_beginning(n)   the n-th record that is kept, at most the end
    Offset.from_end(n)         n records before the end, at least the first one that is kept
    Offset.at(time)            the first record that its store took at this time or later

A named consumer that has committed an offset resumes after it. An absolute number and a time win
over the committed offset.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from anabranch.client.reading.times.instants import Instant, unix_ms
from anabranch.common.errors import InvalidRequest, RecordEvicted


class _From(StrEnum):
    BEGINNING = "beginning"
    END = "end"
    NUMBER = "number"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers of the first record that a partition keeps, and of the next one to be written."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Offset:
    """A place to start in every partition; see the module.

    ::

        async with client.topics.consumer("orders", start=Offset.from_end(10)) as consumer:
            record = await anext(consumer)
    """

    kind: _From
    value: int

    @classmethod
    def absolute(cls, number: int) -> "Offset":
        """The record with this number.

        ::

            start = Offset.absolute(1_000)
        """
        return cls(_From.NUMBER, _not_negative(number))

    @classmethod
    def from_beginning(cls, count: int = 0) -> "Offset":
        """So many records after the first one that is kept.

        ::

            start = Offset.from_beginning(10)
        """
        return cls(_From.BEGINNING, _not_negative(count))

    @classmethod
    def from_end(cls, count: int = 0) -> "Offset":
        """So many records before the end.

        ::

            start = Offset.from_end(10)
        """
        return cls(_From.END, _not_negative(count))

    @classmethod
    def at(cls, instant: Instant) -> "Offset":
        """The first record that was stored at this time or later: a `datetime` with a zone, or Unix
        ms.

        ::

            start = Offset.at(datetime(2026, 11, 20, 12, tzinfo=UTC))
        """
        return cls(_From.TIME, unix_ms(instant))

    @property
    def is_time(self) -> bool:
        """Whether only the store of the partition can find the place."""
        return self.kind is _From.TIME

    @property
    def yields_to_committed(self) -> bool:
        """Whether a committed offset takes its place."""
        return self.kind in (_From.BEGINNING, _From.END)


Start = Literal["beginning", "end"] | int | Offset
"""A number means the record with this number."""


def offset_of(start: Start) -> Offset:
    """The offset that a `start` means. Raises InvalidRequest."""
    match start:
        case Offset():
            return start
        case "beginning":
            return Offset.from_beginning()
        case "end":
            return Offset.from_end()
        case int() if not isinstance(start, bool):
            return Offset.absolute(start)
    raise InvalidRequest(
        f"a consumer cannot start at {start!r}"[:200],
        remedy="start at beginning, end, a record number, or an Offset",
    )


def first_number(offset: Offset, bounds: Bounds, *, topic: str, partition: int) -> int:
    """The number of the first record to read, for every offset but a time.

    It may be below `bounds.start`, see `evicted`. Raises InvalidRequest (beyond the end).
    """
    match offset.kind:
        case _From.BEGINNING:
            return min(bounds.start + offset.value, bounds.end)
        case _From.END:
            return max(bounds.end - offset.value, bounds.start)
        case _From.NUMBER:
            if offset.value > bounds.end:
                raise InvalidRequest(
                    f"start offset: {offset.value} is greater than leo: {bounds.end}",
                    remedy="start at a record that exists, or at the end",
                    topic=topic, partition=partition,
                )  # fmt: skip
            return offset.value
        case _From.TIME:
            raise AssertionError("a time is found by the store")


def resumed_number(last_seen: int, bounds: Bounds) -> int:
    """The number of the first record after the committed one, at most the end."""
    return min(last_seen + 1, bounds.end)


def evicted(number: int, next_available: int, *, topic: str, partition: int) -> RecordEvicted:
    """The records from `number` up to, not including, `next_available` are gone."""
    return RecordEvicted(
        f"offset {number} was evicted; the next available offset is {next_available}",
        topic=topic, partition=partition, offset=number, next_available=next_available,
    )  # fmt: skip


def _not_negative(value: int) -> int:
    if value < 0:
        raise InvalidRequest("a record number or count is negative", value=value)
    return value
