"""Event time in the demo: the promises of the writer, and the windows of a reader. Pure."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.cli.demo.source import Row


class Moment(NamedTuple):
    """Event times at a moment of the reader at the tail, all in Unix ms.

    `newest_ms`: the latest time of an event that it has read; `lower_ms`, `upper_ms`: its time
    window, None where there is no watermark yet. `late`: the number of events, of those that it has
    read so far, that were earlier than the lower bound before them.
    """

    at_ms: int
    newest_ms: int
    lower_ms: int | None
    upper_ms: int | None
    late: int


def least_to_come(rows: Sequence[Row]) -> "array[int]":
    """For each number of written rows, the lowest time of the rows that are still to be written.

    The writer may note this time: no later event is earlier. After the last row it is the highest
    time of all.
    """
    least = array("q", bytes(8 * (len(rows) + 1)))
    lowest = max((row.timestamp_ms for row in rows), default=0)
    least[len(rows)] = lowest
    for index in range(len(rows) - 1, -1, -1):
        lowest = min(lowest, rows[index].timestamp_ms)
        least[index] = lowest
    return least
