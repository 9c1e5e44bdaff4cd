"""Which names of a container are resident, in the order of their use, and which may leave.

    missing ──load──► resident ──leaving──► missing        (evicted: tier 2 tells it again)
                         │  ▲
                         └──┘ created, used, pinned

A name is resident if what is known under it is in memory, or that nothing is. Everything else is
only in tier 2, and nothing is decided about it before it is loaded: `is_known` is what the maps of
a container assert by. Order and pins are kept here; what a name is, the maps know. Owned by the
container; all calls come from the event loop's thread.
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
"""How many names one pass evicts or looks through, because nothing runs beside it."""


@dataclass(frozen=True, slots=True)
class ResidencyLimits:
    """`segments_max` names are resident per container, tombstones included, unless more are in
    use; for how many seconds writers that say nothing and tombstones are remembered."""

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
        """How many names are resident."""
        return len(self._order)

    @property
    def excess(self) -> int:
        """By how many the bound is exceeded."""
        return max(0, len(self._order) - self.limits.segments_max)

    def is_known(self, name: str) -> bool:
        """Whether the name is resident, or there is certainly nothing under it."""
        return name in self._order or self._stored.knows_nothing_of(name)

    def touch(self, names: Iterable[str]) -> None:
        """These are resident, and were used last."""
        for name in names:
            self._order[name] = None
            self._order.move_to_end(name)

    @contextmanager
    def pinned(self, name: str) -> Iterator[None]:
        """Whatever happens, the name stays resident."""
        self.pin(name)
        try:
            yield
        finally:
            self.unpin(name)

    def pin(self, name: str) -> None:
        """The name stays resident until it is unpinned as often as it was pinned."""
        self._pins[name] += 1

    def unpin(self, name: str) -> None:
        """One of the pins is gone."""
        self._pins[name] -= 1
        if not self._pins[name]:
            del self._pins[name]

    def is_pinned(self, name: str) -> bool:
        """Whether somebody needs the name to stay."""
        return name in self._pins

    def leaving(self, may_leave: Callable[[str], bool]) -> list[str]:
        """The least recently used names beyond the bound that may leave: they are missing now.

        At most `PASS_MAX`, and of those that may not no more are looked at; they count as used.
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
        """The name is missing now."""
        del self._order[name]

    def next_to_sweep(self) -> list[str]:
        """Up to `PASS_MAX` resident names; call after call it goes round all of them."""
        names = list(islice(self._sweep, PASS_MAX))
        if not names:
            self._sweep = iter(tuple(self._order))
            names = list(islice(self._sweep, PASS_MAX))
        return [name for name in names if name in self._order]
