"""Chooses the names to ask about in one refresh, so that a large cluster gets few questions. Pure.

Half of the questions go to those that were busiest when they were asked last, the other half to
those that were not asked for the longest time. So a newly busy one is found after some refreshes.
"""

from collections.abc import Iterable

NEVER = -1


class Rotation:
    """Remembers of each name when it was asked last, and how busy it was then."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self._busy: dict[str, float] = {}
        self._round = 0

    def chosen(self, names: Iterable[str], count: int) -> list[str]:
        """At most `count` of the names, in no certain order. Forgets all other names' past."""
        present = sorted(set(names))
        self._round += 1
        self._asked = {name: self._asked.get(name, NEVER) for name in present}
        self._busy = {name: self._busy.get(name, 0.0) for name in present}
        if len(present) <= count:
            return present
        busiest = sorted(present, key=lambda name: -self._busy[name])[: count // 2]
        rest = sorted(set(present).difference(busiest), key=lambda name: (self._asked[name], name))
        return [*busiest, *rest[: count - len(busiest)]]

    def answered(self, name: str, busy: float) -> None:
        """The name was asked in this round, and is so busy."""
        self._asked[name] = self._round
        self._busy[name] = busy
