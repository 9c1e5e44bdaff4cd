"""Places for the reads of all callers: each read, scan or watch takes one until it ends."""

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.common.errors import Overloaded


class ReadPlaces:
    """At most `readers_max` concurrent reads."""

    def __init__(self, readers_max: int) -> None:
        self._readers_max = readers_max
        self._taken = 0

    def __len__(self) -> int:
        """The number of places that are taken."""
        return self._taken

    def take(self) -> None:
        """Take a place, which the caller gives back by `release`. Raises Overloaded."""
        if self._taken >= self._readers_max:
            raise Overloaded("too many reads at once", limit=self._readers_max)
        self._taken += 1

    def release(self) -> None:
        """Give a place back."""
        assert self._taken > 0
        self._taken -= 1

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A place for the duration of a block. Raises Overloaded."""
        self.take()
        try:
            yield
        finally:
            self.release()
