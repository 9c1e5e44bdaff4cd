"""Lets equal values of different objects be one value in memory. Pure.

Ten thousand idle partitions have few different specs and statuses, and few different owners. Each
is decoded from bytes of its own, so without sharing every object would hold copies of all of them.

Only objects with an owner take part, which are many and small. Statuses of topics are large and
differ, so a memory of them would share nothing and keep old ones alive.
"""

import sys
from collections.abc import Hashable
from dataclasses import replace
from typing import TypeVar, cast

from anabranch.common.model.objects import ClusterObject

S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")

VALUES_COUNT_MAX = 1_024
"""The values that are remembered. Beyond that all are forgotten, which only costs memory."""


class SharedValues:
    """Values as first seen. They are immutable, so that sharing does not change their meaning."""

    def __init__(self, count_max: int = VALUES_COUNT_MAX) -> None:
        self._values: dict[Hashable, object] = {}
        self._count_max = count_max

    def object(self, new: ClusterObject[S, T]) -> ClusterObject[S, T]:
        """An object that equals `new`, and shares its parts with the objects before it."""
        if not new.owner:
            return new
        return replace(
            new,
            spec=self._one(new.spec),
            status=self._one(new.status),
            owner=sys.intern(new.owner),
            incarnation=sys.intern(new.incarnation),
        )

    def _one(self, value: V) -> V:
        assert isinstance(value, Hashable), "specs and statuses are frozen"
        found = self._values.get(value)
        if found is not None:
            return cast("V", found)
        if len(self._values) >= self._count_max:
            self._values.clear()
        self._values[value] = value
        return value
