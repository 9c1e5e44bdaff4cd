"""The objects of one kind, as queries and actions read and change them, on any controller.

Owns nothing. `known` is the local store, which only the watch of the bucket changes; `stored` is
the object store. An action reads the object store, decides, and writes by compare-and-set; a
negative answer also needs the object store, because the local store may lag.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from anabranch.common.contracts.objects import ObjectKind
from anabranch.common.errors import OutcomeUnknown, RevisionConflict, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.objects import ClusterObject

ATTEMPTS_MAX = 8

S = TypeVar("S")
T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Known(Protocol[S, T]):
    """The objects of a kind as this controller last saw them."""

    @property
    def objects(self) -> Mapping[str, ClusterObject[S, T]]: ...

    @property
    def listed(self) -> bool:
        """Whether every stored object has been seen."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Shelf(Generic[S, T]):
    """The objects of a kind: `known` from memory, and as `stored`."""

    kind: ObjectKind[S, T]
    known: Known[S, T]
    stored: ObjectStore

    @property
    def objects(self) -> Mapping[str, ClusterObject[S, T]]:
        """The objects as last seen. Raises Unavailable until all have been seen."""
        if not self.known.listed:
            raise Unavailable(f"the controller has not seen every {self.kind.word} yet")
        return self.known.objects

    async def read(self, key: str) -> ClusterObject[S, T] | None:
        """The object as stored now. Raises Unavailable, Corrupt."""
        found = await self.stored.get(key)
        return None if found is None or not found.value else self.kind.from_stored(found)

    async def find(self, key: str) -> ClusterObject[S, T] | None:
        """The object as last seen, or as stored if it was not seen. Raises Unavailable, Corrupt."""
        found = self.known.objects.get(key)
        return found if found is not None else await self.read(key)

    async def create(self, new: ClusterObject[S, T]) -> ClusterObject[S, T]:
        """Store a new object; returns it with its revision.

        Raises ObjectExists, Unavailable, OutcomeUnknown.
        """
        value = self.kind.to_bytes(new)
        try:
            revision = await self.stored.create(new.key, value)
        except OutcomeUnknown:
            found = await self.read(new.key)
            if found is None or self.kind.to_bytes(found) != value:
                raise
            return found
        return replace(new, revision=revision)

    async def change(
        self,
        key: str,
        decide: Callable[[ClusterObject[S, T] | None], ClusterObject[S, T]],
    ) -> ClusterObject[S, T]:
        """Read the object, replace it by the result of `decide`, and return that as stored.

        `decide` gets None if there is no object; it raises to refuse, and returns the object itself
        if there is nothing to change. Raises its errors, Unavailable, OutcomeUnknown, Corrupt.
        """
        for _ in range(ATTEMPTS_MAX):
            found = await self.read(key)
            wanted = decide(found)
            assert found is not None, "a decision refuses a missing object"
            if wanted == found:
                return found
            try:
                revision = await self.stored.update(key, self.kind.to_bytes(wanted), found.revision)
            except RevisionConflict:
                continue
            return replace(wanted, revision=revision)
        raise Unavailable(f"the {self.kind.word} changes too often", name=key)
