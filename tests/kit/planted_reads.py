"""Bugs planted in the catch-up reads, to show that the tests which look for them can fail."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.granule import ChunkRange, Granule
from anabranch.segstore.shell.memory.read_ahead import ReadAhead

_look = ReadAhead.look
_borrow = ReadAhead._borrow


def _look_for_the_place_alone(self: ReadAhead, granule: Granule) -> bytes | None:
    """In place of `ReadAhead.look`: whose chunk it is does not matter."""
    if isinstance(granule, ChunkRange):
        for kept in (*self._used, *self._fresh):
            if not isinstance(kept, ChunkRange):
                continue
            if (kept.start, kept.size) == (granule.start, granule.size):
                return _look(self, kept)
    return _look(self, granule)


def _borrow_without_letting_go(self: ReadAhead, size: int) -> bool:
    """In place of `ReadAhead._borrow`: what makes room is still there, and served."""
    released = dict(self._used)
    found = _borrow(self, size)
    self._used.update(released)
    return found


def a_neighbours_bytes() -> AbstractContextManager[object]:
    """The read-ahead takes a granule for another one at the same place of another chunk."""
    return patch.object(ReadAhead, "look", _look_for_the_place_alone)


def released_and_served() -> AbstractContextManager[object]:
    """What was given up for others is still held, and served."""
    return patch.object(ReadAhead, "_borrow", _borrow_without_letting_go)


def no_share() -> AbstractContextManager[object]:
    """The read-ahead pushes the tail out of the memory."""

    def whole_budget(self: Cache) -> int:
        return self.size_max

    return patch.object(Cache, "lent_max", property(whole_budget))


READ_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "a neighbour's bytes": a_neighbours_bytes,
    "released and served": released_and_served,
    "no share": no_share,
}
