"""Replaces extents by copies of the same bytes in another object (pure).

    find_extents(directory, overlay, names, extents_max)   the extents that refer to these objects
    with_moves(before, changes, moves)                     the changes that also replace extents

Between the two the caller copies the bytes, while flushes go on. So an extent may be gone by the
time its copy could replace it: its segment was truncated, deleted, merged or replaced. `with_moves`
leaves such a move out. The next manifest then replaces all other extents at once: before it,
readers find the old objects, and after it the copies. A copy has the start, the length and the
checksum of the original.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.common.tier2.manifest import Changes, SegmentChange
from anabranch.common.tier2.page_index import PageKind
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    SegmentState,
    TieredExtent,
)
from anabranch.segstore.domain.storage.directory import Directory, Reading
from anabranch.segstore.domain.storage.overlay import Fate, Overlay


@dataclass(frozen=True, slots=True)
class HeldExtent:
    """An extent, and the name and number of the segment that holds it."""

    segment: str
    number: int
    extent: TieredExtent


@dataclass(frozen=True, slots=True)
class Move:
    """An extent whose bytes lie in another object as well, at `to`."""

    held: HeldExtent
    to: ChunkRef

    @property
    def copy(self) -> TieredExtent:
        """The extent that replaces the held one."""
        return TieredExtent(self.held.extent.start, self.to, self.held.extent.events_before)


# --- finding ----------------------------------------------------------------------------------


class _Wanted:
    """The objects whose extents are wanted, the best first; the last ones go if there are too many
    extents."""

    def __init__(self, names: Sequence[str], extents_max: int) -> None:
        self._names = list(names)
        self._found: dict[str, list[HeldExtent]] = {name: [] for name in names}
        self._extents_max = extents_max
        self._count = 0

    def __contains__(self, extent: TieredExtent) -> bool:
        return extent.ref.name in self._found

    def add(self, state: SegmentState, extents: Iterable[TieredExtent]) -> None:
        for extent in extents:
            if extent in self:
                held = HeldExtent(state.name, state.number, extent)
                self._found[extent.ref.name].append(held)
                self._count += 1
        while self._count > self._extents_max and len(self._names) > 1:
            self._count -= len(self._found.pop(self._names.pop()))

    def found(self) -> dict[str, list[HeldExtent]]:
        for extents in self._found.values():
            extents.sort(key=lambda held: held.extent.ref.offset)
        return self._found


def find_extents(
    directory: Directory, overlay: Overlay, names: Sequence[str], extents_max: int
) -> Reading[Mapping[str, Sequence[HeldExtent]]]:
    """The extents of living segments that refer to these objects, by object and ascending in it.

    If they are more than `extents_max`, the last objects are left out, but never the first. The
    overlay must not change.
    """
    wanted = _Wanted(names, extents_max)
    earlier: dict[int, list[TieredExtent]] = {}
    for held in directory.of_kind(PageKind.EXTENTS):
        page = yield held
        for number, run in page.page.extents:
            taken = [extent for extent in run if extent in wanted]
            if taken:
                earlier.setdefault(number, []).extend(taken)
    for held in directory.of_kind(PageKind.SEGMENTS):
        page = yield held
        for state, last in page.page.segments:
            fate: Fate = overlay.names.get(state.name)
            continues = isinstance(fate, SegmentChange) and fate.state.number == state.number
            if state.name in overlay.names and not continues:
                continue
            left = set(fate.dropped) if isinstance(fate, SegmentChange) else ()
            extents = (*earlier.get(state.number, ()), *last)
            wanted.add(state, (extent for extent in extents if extent not in left))
    for fate in overlay.names.values():
        if isinstance(fate, SegmentChange):
            wanted.add(fate.state, fate.added)
    return wanted.found()


# --- replacing --------------------------------------------------------------------------------


def with_moves(
    before: Catalog, changes: Changes, moves: Iterable[Move]
) -> tuple[Changes, tuple[Move, ...]]:
    """The changes with those moves whose extents are still there after them, and these moves.

    `before` is the state before the changes; of it, the segments of the moves are needed, too.
    """
    ended = {tombstone.name for tombstone in changes.tombstones}
    changed = {change.state.name: change for change in changes.segments}
    performed: list[Move] = []
    for name, of_segment in _by_segment(moves).items():
        state = before.segments.get(name)
        if state is None or name in ended:
            continue
        change = changed.get(name, SegmentChange(state))
        if change.state.number != state.number:
            continue
        stay = set(before.extents[state.number]).difference(change.dropped)
        due = [
            move
            for move in of_segment
            if move.held.number == state.number and move.held.extent in stay
        ]
        if due:
            changed[name] = _with_moves(change, due)
            performed += due
    return replace(changes, segments=tuple(changed.values())), tuple(performed)


def _by_segment(moves: Iterable[Move]) -> Mapping[str, list[Move]]:
    found: dict[str, list[Move]] = {}
    for move in moves:
        found.setdefault(move.held.segment, []).append(move)
    return found


def _with_moves(change: SegmentChange, moves: Sequence[Move]) -> SegmentChange:
    added = (*change.added, *(move.copy for move in moves))
    return replace(
        change,
        added=tuple(sorted(added, key=lambda extent: extent.start)),
        dropped=(*change.dropped, *(move.held.extent for move in moves)),
    )
