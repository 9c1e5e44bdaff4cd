"""How fast streams grow, by the lengths of their segments at two looks. Pure.

The controllers know rates as means of up to a minute, which lag behind a load that has just begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OVER_S_MAX = 30.0
Lengths = Mapping[int, int]
"""Segment id → the length of the segment."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The bytes per second that were written in the last `over_s` seconds."""

    bytes_per_s: float
    over_s: float


class Flow:
    """Remembers the last look at each stream. Times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, Lengths]] = {}

    def growth(self, stream: str, now_s: float, lengths: Lengths) -> Growth | None:
        """The growth since the last look; None at the first one, or `OVER_S_MAX` after the last.

        A segment that is new since then counts whole. One that a scale sealed meanwhile no longer
        counts.
        """
        before_s, before = self._looks.get(stream, (now_s, lengths))
        self._looks[stream] = now_s, lengths
        over_s = now_s - before_s
        if not 0 < over_s <= OVER_S_MAX:
            return None
        written = sum(max(0, length - before.get(one, 0)) for one, length in lengths.items())
        return Growth(written / over_s, over_s)

    def keep(self, streams: Iterable[str]) -> None:
        """Forget all other streams."""
        kept = set(streams)
        self._looks = {name: look for name, look in self._looks.items() if name in kept}
