"""Lets equal values of different objects be one value in memory. Pure.

Ten thousand idle partitions have few different specs and statuses, and few different owners. Each
is decoded from bytes of its own, so without sharing every object would hold copies of all of them.
A newer version of an object has the key of the older one, which maps by that key hold anyway.

Only objects with an owner take part, which are many and small. Statuses of topics are large and
differ, so a memory of them would share nothing and keep old ones alive.
"""

import sys
from collections.abc import Hashable
from dataclasses import replace
from typing import TypeVar

from anabranch.common.model.objects import ClusterObject
from anabranch.common.runtime.shared_values import SharedValues

S = TypeVar("S")
T = TypeVar("T")

VALUES_COUNT_MAX = 1_024
"""The values that are remembered. Beyond that all are forgotten, which only costs memory."""


class SharedParts:
    """The parts of objects as first seen. They are immutable, so that sharing does not change their
    meaning."""

    def __init__(self, count_max: int = VALUES_COUNT_MAX) -> None:
        self._values = SharedValues(count_max)

    def object(
        self, new: ClusterObject[S, T], before: ClusterObject[S, T] | None = None
    ) -> ClusterObject[S, T]:
        """An object that equals `new`, and shares its parts with the objects before it.

        `before`: the version of the same key that it replaces.
        """
        if not new.owner:
            return new
        assert isinstance(new.spec, Hashable), "specs are frozen"
        assert isinstance(new.status, Hashable), "statuses are frozen"
        return replace(
            new,
            key=new.key if before is None else before.key,
            spec=self._values.one(new.spec),
            status=self._values.one(new.status),
            owner=sys.intern(new.owner),
            incarnation=sys.intern(new.incarnation),
        )
