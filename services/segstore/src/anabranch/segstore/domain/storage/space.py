"""Chooses the objects to rewrite, because most of their bytes are dead (pure).

A chunk holds pieces of many segments, and stays as long as one of them lives. So truncations and
deletions return no space while small pieces live on, until the live ones are copied elsewhere.

    whole ──loses a piece──► partly dead ──less than `live_share` lives, and it rests──► chosen
    inherited ──is measured──────┘                                     damaged ──► given up

The owner knows the size of an object from the moment when all of it was live. An object of earlier
owners may have lost pieces before: its size is unknown until the caller measures it.

An object that has just lost a piece will probably lose more, because retention truncates one stream
after the other. It therefore rests for `rest_s` after each loss, but for six times as long at most.
The objects with the smallest live share come first, and the oldest among equals. A rewrite copies
less than `live_share` of the bytes that it frees space for, so with a half, rewrites never write
more to tier 2 than flushes did. Times are seconds of a monotonic clock.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from anabranch.segstore.domain.storage.plan import CHUNK_DATA_BYTES_MAX

REWRITE_BYTES_MAX = 32 * 1024 * 1024
REWRITE_EXTENTS_MAX = 16 * 1024
REWRITE_REST_S = 600.0
WAIT_RESTS_MAX = 6
NEARLY_WHOLE_SHARE = 0.9
"""A measured object with a larger live share counts as whole, so that few footers are read."""


@dataclass(frozen=True, slots=True)
class RewriteLimits:
    """What is rewritten, and how much at once.

    Objects of which less than `live_share` lives are rewritten, 0: none. A round copies at most
    `bytes_max` bytes and `extents_max` extents, or those of one object. `rest_s`: see the module.
    """

    live_share: float = 0.5
    bytes_max: int = REWRITE_BYTES_MAX
    extents_max: int = REWRITE_EXTENTS_MAX
    rest_s: float = REWRITE_REST_S


@dataclass(slots=True)
class _PartlyDead:
    """`size`: bytes when all of it was live; the times at which it lost its first and last known
    piece."""

    size: int
    first_s: float
    last_s: float


class Space:
    """The partly dead objects of one container, as its owner knows them."""

    def __init__(self, limits: RewriteLimits) -> None:
        self._limits = limits
        self._partly: dict[str, _PartlyDead] = {}
        self._unmeasured: deque[str] = deque()
        self._given_up: set[str] = set()

    # --- recording ----------------------------------------------------------------------------

    def inherited(self, live: Mapping[str, int]) -> None:
        """Note the objects of earlier owners, with their live bytes."""
        if self._limits.live_share == 0:
            return
        smaller = self._limits.live_share * CHUNK_DATA_BYTES_MAX
        self._unmeasured.extend(name for name, size in live.items() if size < smaller)

    def unmeasured(self, count_max: int) -> tuple[str, ...]:
        """Some objects whose sizes the caller must measure."""
        return tuple(islice(self._unmeasured, count_max))

    def measured(self, name: str, size: int, live: int, now_s: float) -> None:
        """Note the data bytes of an object, of which `live` bytes live; 0: it is gone."""
        if self._unmeasured and self._unmeasured[0] == name:
            self._unmeasured.popleft()
        known = self._partly.get(name)
        if not live or live >= NEARLY_WHOLE_SHARE * size:
            self._partly.pop(name, None)
        elif known is not None:
            known.size = size
        else:
            self._partly[name] = _PartlyDead(size, now_s, now_s)

    def lost(self, name: str, before: int, live: int, now_s: float) -> None:
        """Note that an object lost pieces: of `before` live bytes, `live` are left."""
        known = self._partly.get(name)
        if not live:
            self._partly.pop(name, None)
            self._given_up.discard(name)
        elif known is None:
            self._partly[name] = _PartlyDead(before, now_s, now_s)
        else:
            known.last_s = now_s

    def give_up(self, name: str) -> None:
        """Never choose the object again, because it is damaged."""
        self._given_up.add(name)

    # --- choosing -----------------------------------------------------------------------------

    def chosen(self, live: Mapping[str, int], now_s: float) -> tuple[str, ...]:
        """The objects to rewrite now, the best ones first, given the live bytes of each."""
        ready = sorted(self._ready(live, now_s))
        names: list[str] = []
        size = 0
        for _, name in ready:
            size += live[name]
            if names and size > self._limits.bytes_max:
                break
            names.append(name)
        return tuple(names)

    def _ready(self, live: Mapping[str, int], now_s: float) -> Iterator[tuple[float, str]]:
        rest_s = self._limits.rest_s
        for name, known in self._partly.items():
            rested = (
                now_s - known.last_s >= rest_s or now_s - known.first_s >= WAIT_RESTS_MAX * rest_s
            )
            mostly_dead = live[name] < self._limits.live_share * known.size
            if rested and mostly_dead and name not in self._given_up:
                yield live[name] / known.size, name

    def dead_bytes(self, live: Mapping[str, int]) -> int:
        """Dead bytes in objects of which other bytes live."""
        return sum(max(known.size - live[name], 0) for name, known in self._partly.items())
