"""Determines which objects of a container are garbage, and since when (decides, deletes nothing).

    in use ──the last live byte dropped by a committed manifest──► garbage ──gc_grace──► due
    of a lower epoch, never referenced (found by listing)────────► due, gc_grace after open
    manifest below the `through` of the snapshot ──gc_grace──────► due

The owner reports only the manifests that it committed, after it saw no successor: an object that a
manifest of unknown outcome dropped may still be needed. Names are never reused, so garbage stays
garbage. `Garbage` counts live bytes per object, because a chunk holds pieces of many segments.
Times are seconds of a monotonic clock.

The live bytes at the open are counted page by page while the owner already serves
(`count_live_bytes`). Until the count is complete nothing is due: an object that a manifest dropped
meanwhile may have references that were not counted yet.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from anabranch.common.tier2.manifest import Changes, SegmentChange
from anabranch.common.tier2.names import chunk_epoch, manifest_name
from anabranch.common.tier2.page_index import PageKind
from anabranch.common.tier2.state import Catalog, TieredExtent
from anabranch.segstore.domain.storage.directory import Directory, Reading
from anabranch.segstore.domain.storage.overlay import Fate, Overlay
from anabranch.segstore.domain.storage.space import RewriteLimits, Space


def count_live_bytes(directory: Directory, overlay: Overlay) -> Reading[Counter[str]]:
    """The bytes of each chunk to which extents of living segments refer. The overlay must not
    change."""
    live: Counter[str] = Counter()
    gone: set[int] = set()
    dropped: dict[int, set[TieredExtent]] = {}

    def count(number: int, extents: Iterable[TieredExtent]) -> None:
        if number not in gone:
            left = dropped.get(number, ())
            _add(live, (extent for extent in extents if extent not in left))

    for held in directory.of_kind(PageKind.SEGMENTS):
        page = yield held
        for state, last in page.page.segments:
            fate: Fate = overlay.names.get(state.name)
            if isinstance(fate, SegmentChange) and fate.state.number == state.number:
                dropped[state.number] = set(fate.dropped)
            elif state.name in overlay.names:
                gone.add(state.number)
            count(state.number, last)
    for held in directory.of_kind(PageKind.EXTENTS):
        page = yield held
        for number, run in page.page.extents:
            count(number, run)
    for fate in overlay.names.values():
        if isinstance(fate, SegmentChange):
            _add(live, fate.added)
    return live


def _add(live: Counter[str], extents: Iterable[TieredExtent]) -> None:
    for extent in extents:
        live[extent.ref.name] += extent.ref.length


class Garbage:
    """One owner's record of its container's objects, from its fence manifest on."""

    def __init__(
        self,
        container: int,
        container_epoch: int,
        *,
        opened_s: float,
        rewrite: RewriteLimits | None = None,
    ) -> None:
        self._container = container
        self._container_epoch = container_epoch
        self._opened_s = opened_s
        self._complete = False
        self._live: Counter[str] = Counter()
        """Live bytes of each object; until those at the open are counted, only the difference
        since. An extent has at least one byte, so an object without live bytes is unreferenced."""
        self._left: dict[str, float] = {}
        """Until then: the time at which an object last lost a piece, in order."""
        self._pages: frozenset[str] = frozenset()
        self._dropped: deque[tuple[float, str]] = deque()
        self._covered: deque[tuple[float, int]] = deque()
        self._manifests_below = 0
        self.space = Space(rewrite or RewriteLimits())
        """The partly dead ones among the objects in use; complete as soon as this record is."""

    @property
    def complete(self) -> bool:
        """Whether all references are counted; nothing is due before."""
        return self._complete

    @property
    def live(self) -> Mapping[str, int]:
        """The live bytes of each chunk in use."""
        return self._live

    @property
    def dead_bytes(self) -> int:
        """Dead bytes in objects of which other bytes live, as far as they are known."""
        return self.space.dead_bytes(self._live) if self._complete else 0

    def in_use(self, name: str) -> bool:
        """Whether the newest committed state refers to the object."""
        assert self._complete
        return name in self._live or name in self._pages

    # --- recording ----------------------------------------------------------------------------

    def counted(self, live: Counter[str]) -> None:
        """Add the live bytes at the open of the container."""
        assert not self._complete
        self._live.update(live)
        assert all(size >= 0 for size in self._live.values())
        self._live = +self._live
        self._complete = True
        left = [(since_s, name) for name, since_s in self._left.items() if not self.in_use(name)]
        self._dropped = deque(sorted([*self._dropped, *left], key=lambda drop: drop[0]))
        self._left = {}
        self.space.inherited(self._live)

    def snapshot_committed(self, pages: Iterable[str], through: int, now_s: float) -> None:
        """Replace the objects of the snapshot, including its index."""
        before, self._pages = self._pages, frozenset(pages)
        self._dropped.extend((now_s, name) for name in sorted(before - self._pages))
        self._covered.append((now_s, through))

    def manifest_committed(self, before: Catalog, changes: Changes, now_s: float) -> None:
        """Note the changes of a committed manifest to the state `before` it, of which only the
        changed segments are needed.

        An extent that moves from a merged segment to its target changes nothing.
        """
        differences: Counter[str] = Counter()
        for change in changes.segments:
            _add(differences, change.added)
        for extent in _dropped_extents(before, changes):
            differences[extent.ref.name] -= extent.ref.length
        for name, difference in differences.items():
            self._live[name] += difference
            if difference < 0:
                self._lost(name, -difference, now_s)

    def _lost(self, name: str, size: int, now_s: float) -> None:
        if not self._complete:
            self._left.pop(name, None)
            self._left[name] = now_s
            return
        live = self._live[name]
        self.space.lost(name, live + size, live, now_s)
        if not live:
            del self._live[name]
            self._dropped.append((now_s, name))

    def unreferenced(self, name: str, now_s: float) -> None:
        """Note an object of this owner that no manifest refers to, and none will."""
        assert not self.in_use(name)
        self._dropped.append((now_s, name))

    def listed(self, names: Sequence[str]) -> None:
        """Add unreferenced objects of lower epochs, from a list made `gc_grace` after the open."""
        known = {name for _, name in self._dropped}
        for name in names:
            epoch = chunk_epoch(self._container, name)
            if epoch is None or epoch >= self._container_epoch:
                continue
            if not self.in_use(name) and name not in known:
                self._dropped.appendleft((self._opened_s, name))

    # --- due objects --------------------------------------------------------------------------

    def anything_due(self, now_s: float, grace_s: float) -> bool:
        """Whether `due` may return names. Never until all references are counted."""
        if not self._complete:
            return False
        if self._manifests_below:
            return True
        times = [queue[0][0] for queue in (self._dropped, self._covered) if queue]
        return bool(times) and min(times) + grace_s <= now_s

    def due(
        self, manifests: Sequence[int], now_s: float, grace_s: float, count_max: int
    ) -> tuple[str, ...]:
        """At most `count_max` names to delete, given the numbers of the manifests that exist."""
        assert self._complete
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
        """Note that the object is gone; call it in the order of `due`."""
        if self._dropped and self._dropped[0][1] == name:
            self._dropped.popleft()


def _dropped_extents(before: Catalog, changes: Changes) -> Iterator[TieredExtent]:
    """The extents that the changes remove from the state, including all those of segments that
    ended."""
    for change in changes.segments:
        held = before.segments.get(change.state.name)
        if held is not None and held.number != change.state.number:
            yield from before.extents[held.number]
        yield from change.dropped
    for tombstone in changes.tombstones:
        held = before.segments.get(tombstone.name)
        if held is not None:
            yield from before.extents[held.number]
