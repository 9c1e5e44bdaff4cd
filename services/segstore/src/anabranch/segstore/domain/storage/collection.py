"""Which objects of a container nobody needs any more, and since when (decides, deletes nothing).

    in use ──the last reference dropped by a committed manifest──► garbage ──gc_grace──► due
    of a lower epoch, never referenced (found by listing)───────────► due, gc_grace after open
    manifest below the `through` of the snapshot ──gc_grace──────────► due

The owner tells of each manifest that it committed, after it saw no successor, and of nothing
else: what a manifest of unknown fate dropped may be needed still. Names are never used twice, so
what is garbage stays garbage. `Garbage` counts references per object, because a chunk holds
pieces of many segments. Times are seconds of a monotonic clock.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from anabranch.common.tier2.manifest import Changes
from anabranch.common.tier2.names import chunk_epoch, manifest_name
from anabranch.common.tier2.state import Catalog, TieredExtent


class Garbage:
    """One owner's view of its container's objects, from its fence manifest on."""

    def __init__(
        self, container: int, container_epoch: int, catalog: Catalog, *, opened_s: float
    ) -> None:
        self._container = container
        self._container_epoch = container_epoch
        self._opened_s = opened_s
        self._references = Counter(
            extent.ref.name for extents in catalog.extents.values() for extent in extents
        )
        self._pages: frozenset[str] = frozenset()
        self._dropped: deque[tuple[float, str]] = deque()
        self._covered: deque[tuple[float, int]] = deque()
        self._manifests_below = 0

    def in_use(self, name: str) -> bool:
        """Whether the newest committed state refers to the object."""
        return name in self._references or name in self._pages

    # --- what happened ------------------------------------------------------------------------

    def snapshot_committed(self, pages: Iterable[str], through: int, now_s: float) -> None:
        """From now on these are the snapshot's objects (its index among them)."""
        before, self._pages = self._pages, frozenset(pages)
        for name in sorted(before - self._pages):
            self._drop(name, now_s)
        self._covered.append((now_s, through))

    def manifest_committed(self, before: Catalog, changes: Changes, now_s: float) -> None:
        """A manifest of ours made these changes to the state `before` it."""
        for change in changes.segments:
            self._references.update(extent.ref.name for extent in change.added)
        for extent in _dropped_extents(before, changes):
            name = extent.ref.name
            self._references[name] -= 1
            if not self._references[name]:
                del self._references[name]
                self._drop(name, now_s)

    def _drop(self, name: str, now_s: float) -> None:
        if not self.in_use(name):
            self._dropped.append((now_s, name))

    def listed(self, names: Sequence[str]) -> None:
        """What was there once `gc_grace` had passed since the open, of all kinds."""
        known = {name for _, name in self._dropped}
        for name in names:
            epoch = chunk_epoch(self._container, name)
            if epoch is None or epoch >= self._container_epoch:
                continue
            if not self.in_use(name) and name not in known:
                self._dropped.appendleft((self._opened_s, name))

    # --- what is due --------------------------------------------------------------------------

    def anything_due(self, now_s: float, grace_s: float) -> bool:
        """Whether `due` may have something to say."""
        if self._manifests_below:
            return True
        times = [queue[0][0] for queue in (self._dropped, self._covered) if queue]
        return bool(times) and min(times) + grace_s <= now_s

    def due(
        self, manifests: Sequence[int], now_s: float, grace_s: float, count_max: int
    ) -> tuple[str, ...]:
        """At most `count_max` names to delete, given the numbers of the manifests that exist."""
        while self._covered and self._covered[0][0] + grace_s <= now_s:
            self._manifests_below = self._covered.popleft()[1]
        names = tuple(islice(self._all_due(manifests, now_s, grace_s), count_max))
        if not names:
            self._manifests_below = 0
        return names

    def _all_due(self, manifests: Sequence[int], now_s: float, grace_s: float) -> Iterator[str]:
        for since_s, name in self._dropped:
            if since_s + grace_s > now_s:
                break
            assert not self.in_use(name), f"{name} is garbage and in use"
            yield name
        for number in manifests:
            if number < self._manifests_below:
                yield manifest_name(self._container, number)

    def deleted(self, name: str) -> None:
        """The object is gone; said in the order of `due`."""
        if self._dropped and self._dropped[0][1] == name:
            self._dropped.popleft()


def _dropped_extents(before: Catalog, changes: Changes) -> Iterator[TieredExtent]:
    """What the changes take from the state: dropped extents, and all of segments that ended."""
    for change in changes.segments:
        held = before.segments.get(change.state.name)
        if held is not None and held.number != change.state.number:
            yield from before.extents[held.number]
        yield from change.dropped
    for tombstone in changes.tombstones:
        held = before.segments.get(tombstone.name)
        if held is not None:
            yield from before.extents[held.number]
