"""The mirror of one kind of object: a map with two kinds of epochs. Pure.

The map has an *epoch*, which grows with every change, and keeps for each object the epoch at which
each of its *facets* last changed: its spec, its status, and the rest (*meta*). A listener remembers
the epoch that it has seen, and asks for the changes since. It may miss any number of wake-ups, and
still misses no change.

                list                 watch                      changes_since(epoch seen)
    bucket ──────────▶ sync_all ─┐                            ┌─▶ SyncAll   seen < fence
           ──────────▶ apply_changes ─▶ objects, stamps, ─────┼─▶ Deltas    updated and deleted
                                        deleted, fence        └─▶ Nothing   seen = epoch

Stamps and deletions are kept until the next `sync_all`, which moves the *fence* up: a listener that
has not come so far gets all objects, under a type of its own, and forgets all others. An empty
answer therefore never hides a deletion, and objects that rest have no stamps.

State owned: the objects as last seen. Only news from the bucket change it; a controller's writes
come back through the watch. A change that is older than the held object is dropped.

An object that cannot be read is not deleted: the map keeps the last version that could be read, if
it has one, and names the key in `damaged`. Nothing may be concluded from the absence of such a key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from anabranch.common.model.objects import ClusterObject
from anabranch.controller.cluster.objects.sharing import SharedParts

S = TypeVar("S")
T = TypeVar("T")


class Facet(StrEnum):
    """A part of an object. META: owner, incarnation, the mark of deletion, and the revision if
    nothing else has changed. ANY: all of them."""

    SPEC = "spec"
    STATUS = "status"
    META = "meta"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Gone:
    """A key lost its object; the deletion has a revision of its own."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """The stored object of a key cannot be read at this revision."""

    key: str
    revision: int


Change = ClusterObject[S, T] | Gone | Damaged


@dataclass(frozen=True, slots=True)
class Changed:
    """The effect of several changes: how many objects, by facet, and the epoch that they got."""

    epoch: int
    added: int = 0
    spec_updated: int = 0
    status_updated: int = 0
    meta_updated: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        return bool(
            self.added
            or self.spec_updated
            or self.status_updated
            or self.meta_updated
            or self.deleted
        )


@dataclass(frozen=True, slots=True)
class SyncAll(Generic[S, T]):
    """All objects as of `epoch`, because the listener's epoch is before the fence. It forgets every
    other object."""

    epoch: int
    objects: tuple[ClusterObject[S, T], ...]


@dataclass(frozen=True, slots=True)
class Deltas(Generic[S, T]):
    """The changes up to `epoch`. `deleted`: as last seen; a key that was created again since is
    also in `updated`, so deletions are to be applied first."""

    epoch: int
    updated: tuple[ClusterObject[S, T], ...]
    deleted: tuple[ClusterObject[S, T], ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing has changed since."""

    epoch: int


class _Stamps(NamedTuple):
    """The epochs at which the facets of an object last changed."""

    spec: int
    status: int
    meta: int

    def of(self, facet: Facet) -> int:
        match facet:
            case Facet.SPEC:
                return self.spec
            case Facet.STATUS:
                return self.status
            case Facet.META:
                return self.meta
            case Facet.ANY:
                return max(self)


_BEFORE = _Stamps(0, 0, 0)
"""Of an object that has not changed since the fence."""


class _Counter:
    """The counts of one batch of changes."""

    def __init__(self) -> None:
        self.added = self.spec = self.status = self.meta = self.deleted = 0

    def result(self, epoch: int) -> Changed:
        return Changed(epoch, self.added, self.spec, self.status, self.meta, self.deleted)


class LocalStore(Generic[S, T]):
    """The objects of one kind. One event loop owns it; no method waits."""

    def __init__(self) -> None:
        self._objects: dict[str, ClusterObject[S, T]] = {}
        self._stamps: dict[str, _Stamps] = {}
        """Of the objects that came or changed since the last `sync_all`."""
        self._children: dict[str, dict[str, ClusterObject[S, T]]] = {}
        self._deleted: list[tuple[int, ClusterObject[S, T]]] = []
        self._deletions: dict[str, int] = {}
        """The revisions of the deletions since the last `sync_all`, by key."""
        self._damaged: dict[str, int] = {}
        self._shared = SharedParts()
        self._epoch = 0
        self._fence = 0
        self._revision = 0
        self._listed = False
        self._listeners: list[Callable[[], None]] = []

    # --- the objects and their changes ----------------------------------------------------------

    @property
    def objects(self) -> Mapping[str, ClusterObject[S, T]]:
        """The objects by key, in no order; a live view."""
        return MappingProxyType(self._objects)

    @property
    def epoch(self) -> int:
        """The epoch of the newest change."""
        return self._epoch

    @property
    def revision(self) -> int:
        """The highest revision that was seen, of any key."""
        return self._revision

    @property
    def listed(self) -> bool:
        """Whether all stored objects have been seen once."""
        return self._listed

    @property
    def damaged(self) -> Mapping[str, int]:
        """The keys whose stored objects cannot be read, and their revisions; a live view."""
        return MappingProxyType(self._damaged)

    def children(self, owner: str) -> Mapping[str, ClusterObject[S, T]]:
        """The objects whose `owner` is this key, by their keys; the owner need not exist."""
        return MappingProxyType(self._children.get(owner, {}))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each batch of changes. It must not wait, and asks
        `changes_since` for the changes."""
        self._listeners.append(listener)

    def changes_since(
        self, epoch: int, facet: Facet = Facet.ANY
    ) -> SyncAll[S, T] | Deltas[S, T] | Nothing:
        """The changes of a facet after `epoch`, and all deletions after it.

        The next call takes the epoch of the answer; the first takes 0.
        """
        if epoch < self._fence:
            return SyncAll(self._epoch, tuple(self._objects.values()))
        if epoch == self._epoch:
            return Nothing(self._epoch)
        updated = tuple(
            self._objects[key] for key, one in self._stamps.items() if one.of(facet) > epoch
        )
        deleted = tuple(one for at, one in self._deleted if at > epoch)
        if not updated and not deleted:
            return Nothing(self._epoch)
        return Deltas(self._epoch, updated, deleted)

    # --- news from the bucket ------------------------------------------------------------------

    def apply_changes(self, changes: Iterable[Change[S, T]]) -> Changed | None:
        """Take changes in the order of the watch, under one new epoch; None if all were known."""
        counter, epoch = _Counter(), self._epoch + 1
        for change in changes:
            if isinstance(change, Gone):
                self._remove(change, epoch, counter)
            elif isinstance(change, Damaged):
                self._note_damage(change)
            elif change.revision > self._deletions.get(change.key, 0):
                self._put(change, epoch, counter)
        changed = counter.result(epoch)
        if not changed:
            return None
        self._epoch = epoch
        self._tell()
        return changed

    def sync_all(
        self, objects: Iterable[ClusterObject[S, T]], damaged: Iterable[Damaged] = ()
    ) -> Changed:
        """Take a full list, which is at least as new as every change before; always a new epoch.

        Objects that are not in the list are deleted. An older version than the one held is dropped.
        """
        counter, epoch = _Counter(), self._epoch + 1
        present = {one.key: one for one in objects}
        self._damaged.clear()
        for found in damaged:
            self._note_damage(found)
        for key in [k for k in self._objects if k not in present and k not in self._damaged]:
            self._drop(key, epoch, counter)
        for one in present.values():
            self._put(one, epoch, counter)
        self._stamps.clear()
        self._deleted.clear()
        self._deletions.clear()
        self._epoch = self._fence = epoch
        self._listed = True
        self._tell()
        return counter.result(epoch)

    # --- one object ----------------------------------------------------------------------------

    def _put(self, new: ClusterObject[S, T], epoch: int, counter: _Counter) -> None:
        self._revision = max(self._revision, new.revision)
        if self._damaged.get(new.key, 0) < new.revision:
            self._damaged.pop(new.key, None)
        old = self._objects.get(new.key)
        if old is not None and new.revision <= old.revision:
            return
        new = self._shared.object(new, old)
        if old is None:
            self._stamps[new.key] = _Stamps(epoch, epoch, epoch)
            counter.added += 1
        else:
            self._stamps[new.key] = self._compared(old, new, epoch, counter)
            self._forget_child(old)
        self._objects[new.key] = new
        if new.owner:
            self._children.setdefault(new.owner, {})[new.key] = new

    def _compared(
        self, old: ClusterObject[S, T], new: ClusterObject[S, T], epoch: int, counter: _Counter
    ) -> _Stamps:
        spec, status, meta = self._stamps.get(new.key, _BEFORE)
        is_same = True
        if old.spec != new.spec:
            spec, is_same = epoch, False
            counter.spec += 1
        if old.status != new.status:
            status, is_same = epoch, False
            counter.status += 1
        if is_same or _meta(old) != _meta(new):
            meta = epoch
            counter.meta += 1
        return _Stamps(spec, status, meta)

    def _remove(self, gone: Gone, epoch: int, counter: _Counter) -> None:
        self._revision = max(self._revision, gone.revision)
        self._deletions[gone.key] = max(self._deletions.get(gone.key, 0), gone.revision)
        if self._damaged.get(gone.key, 0) < gone.revision:
            self._damaged.pop(gone.key, None)
        held = self._objects.get(gone.key)
        if held is not None and held.revision < gone.revision:
            self._drop(gone.key, epoch, counter)

    def _note_damage(self, found: Damaged) -> None:
        self._revision = max(self._revision, found.revision)
        self._damaged[found.key] = found.revision

    def _drop(self, key: str, epoch: int, counter: _Counter) -> None:
        old = self._objects.pop(key)
        self._stamps.pop(key, None)
        self._forget_child(old)
        self._deleted.append((epoch, old))
        counter.deleted += 1

    def _forget_child(self, old: ClusterObject[S, T]) -> None:
        siblings = self._children.get(old.owner)
        if siblings is not None:
            siblings.pop(old.key, None)
            if not siblings:
                del self._children[old.owner]

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def __iter__(self) -> Iterator[ClusterObject[S, T]]:
        """The objects as of now, in no order."""
        return iter(tuple(self._objects.values()))


def _meta(one: ClusterObject[S, T]) -> tuple[str, str, bool]:
    return one.owner, one.incarnation, one.deleting
