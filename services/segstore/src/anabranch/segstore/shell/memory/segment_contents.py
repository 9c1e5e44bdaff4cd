"""The parts of a segment's index that other objects hold: its contents in a merge, and the state of
the flush that all indexes of a container share.
"""

from array import array
from dataclasses import dataclass

from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.shell.memory.cache import Piece


class FlushUnderWay:
    """Whether a flush may still fetch truncated bytes; shared by all segments."""

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        self.under_way = False


@dataclass(frozen=True, slots=True)
class Contents:
    """A segment's pieces, their columns (ends, events, times, frame offsets), and extents."""

    pieces: list[Piece]
    first: int
    columns: "tuple[array[int], array[int], array[int], array[int]]"
    extents: tuple[TieredExtent, ...]
    length: int
