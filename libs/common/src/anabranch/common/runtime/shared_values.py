"""Lets equal values be one value in memory.

Thousands of objects that are decoded from bytes hold copies of a few values. A table of the values
that came lately makes most of them one. The table is bounded: if it is full, it forgets all values,
which only costs memory.
"""

from collections.abc import Hashable
from typing import TypeVar, cast

V = TypeVar("V", bound=Hashable)


class SharedValues:
    """At most `count_max` values as first seen."""

    def __init__(self, count_max: int) -> None:
        self._values: dict[Hashable, Hashable] = {}
        self._count_max = count_max

    def one(self, value: V) -> V:
        """The value that equals this one and came first. It must be immutable."""
        found = self._values.get(value)
        if found is not None:
            return cast("V", found)
        if len(self._values) >= self._count_max:
            self._values.clear()
        self._values[value] = value
        return value
