"""The resident names of a container in the order of their use, and the choice of names to evict.

    missing ──load──► resident ──leaving──► missing        (evicted: tier 2 can load it again)
                         │  ▲
                         └──┘ created, used, pinned

A name is resident if its segment or tombstone is in memory, or the fact that it has neither. All
other names are only in tier 2, and are loaded before any decision about them: the maps of a
container assert `is_known`. This module keeps order and pins; the maps know the segments. Owned by
the container; all calls come from the event loop's thread.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from anabranch.segstore.ports import StoredCatalog

SEGMENTS_MAX = 10_000
WRITER_EXPIRY_S = 7 * 86400.0
TOMBSTONE_S = 86400.0
PASS_MAX = 1000
"""How many names one pass evicts or examines, because it blocks the event loop."""


@dataclass(frozen=True, slots=True)
class ResidencyLimits:
    """`segments_max` names are resident per container, tombstones included, unless more are in use.

    `writer_expiry_s` and `tombstone_s` are how long idle writers and tombstones are remembered.
    """

    segments_max: int = SEGMENTS_MAX
    writer_expiry_s: float = WRITER_EXPIRY_S
    tombstone_s: float = TOMBSTONE_S


class Residency:
    """The resident names of one container."""

    def __init__(self, stored: StoredCatalog, limits: ResidencyLimits) -> None:
        self._stored = stored
        self.limits = limits
        self._order: OrderedDict[str, None] = OrderedDict()
        """Least recently used first. Requests, loads and flushes count as use, appends do not."""
        self._pins: Counter[str] = Counter()
        self._sweep: Iterator[str] = iter(())

    @property
    def count(self) -> int:
        """The number of resident names."""
        return len(self._order)

    @property
    def excess(self) -> int:
        """By how many names the bound is exceeded."""
        return max(0, len(self._order) - self.limits.segments_max)

    def is_known(self, name: str) -> bool:
        """Whether the name is resident, or certainly has neither segment nor tombstone."""
        return name in self._order or self._stored.knows_nothing_of(name)

    def touch(self, names: Iterable[str]) -> None:
        """Mark these names as resident and most recently used."""
        for name in names:
            self._order[name] = None
            self._order.move_to_end(name)

    @contextmanager
    def pinned(self, name: str) -> Iterator[None]:
        """Keep the name resident within the block."""
        self.pin(name)
        try:
            yield
        finally:
            self.unpin(name)

    def pin(self, name: str) -> None:
        """Keep the name resident until it is unpinned as often as it was pinned."""
        self._pins[name] += 1

    def unpin(self, name: str) -> None:
        """Remove one pin."""
        self._pins[name] -= 1
        if not self._pins[name]:
            del self._pins[name]

    def is_pinned(self, name: str) -> bool:
        """Whether the name has a pin."""
        return name in self._pins

    def leaving(self, may_leave: Callable[[str], bool]) -> list[str]:
        """Remove and return the least recently used names beyond the bound that may leave.

        At most `PASS_MAX` leave. At most `PASS_MAX` names more than should leave are examined;
        names that may not leave count as used.
        """
        left: list[str] = []
        looks = min(self.excess, PASS_MAX) + PASS_MAX
        for name in list(islice(self._order, looks)):
            if len(left) == PASS_MAX or not self.excess:
                break
            if may_leave(name):
                del self._order[name]
                left.append(name)
            else:
                self._order.move_to_end(name)
        return left

    def forget(self, name: str) -> None:
        """Mark the name as missing."""
        del self._order[name]

    def next_to_sweep(self) -> list[str]:
        """Up to `PASS_MAX` resident names; successive calls cycle through all of them."""
        names = list(islice(self._sweep, PASS_MAX))
        if not names:
            self._sweep = iter(tuple(self._order))
            names = list(islice(self._sweep, PASS_MAX))
        return [name for name in names if name in self._order]
