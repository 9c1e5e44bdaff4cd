"""The changes since a controller last looked. Owns: the epochs and placements that it saw.

Controllers compute over the objects that a change concerns, because a pass over ten thousand
partitions after each of ten thousand changes would never end. A full pass, every reconciliation,
looks at everything, so that a missed connection costs time and nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from anabranch.common.model.cluster import Placement
from anabranch.common.model.objects import ClusterObject
from anabranch.controller.cluster.objects.local_store import (
    Deltas,
    Facet,
    LocalStore,
    Nothing,
    SyncAll,
)

S = TypeVar("S")
T = TypeVar("T")


class Seen(Generic[S, T]):
    """The changes of one kind of object since the last look."""

    def __init__(self, store: LocalStore[S, T], facet: Facet = Facet.ANY) -> None:
        self._store = store
        self._facet = facet
        self._epoch = 0

    def changed(self) -> Iterable[ClusterObject[S, T]]:
        """The objects that changed, came or went since the last call."""
        found = self._store.changes_since(self._epoch, self._facet)
        self._epoch = found.epoch
        match found:
            case SyncAll(objects=objects):
                return objects
            case Deltas(updated=updated, deleted=deleted):
                return (*deleted, *updated)
            case Nothing():
                return ()


class SeenPlacements:
    """The containers whose placements have changed since the last look."""

    def __init__(self) -> None:
        self._seen: dict[int, Placement] = {}

    def changed(self, placements: Mapping[int, Placement]) -> set[int]:
        """The containers that are placed otherwise than at the last call, came or went."""
        seen = self._seen
        found = {at for at, placed in placements.items() if seen.get(at) != placed}
        found.update(seen.keys() - placements.keys())
        self._seen = dict(placements)
        return found


class Touched:
    """Incarnations of topics whose backing streams were folded since the last look."""

    def __init__(self) -> None:
        self._touched: dict[str, str] = {}

    def touch(self, topic: str, incarnation: str) -> None:
        """The stream of this topic has changed."""
        self._touched[incarnation] = topic

    def take(self) -> Mapping[str, str]:
        """Topics by incarnation, since the last call."""
        found, self._touched = self._touched, {}
        return found
