"""The changes of the manifests after a snapshot, laid over its pages (pure).

State: the fate of each changed name, and the changed writers by segment number. It grows with the
manifests since the snapshot, which the snapshot's trigger bounds, and begins anew with the next
one. Applying a manifest requires no page of the snapshot; its changes to extents are checked
against the snapshot's when the two are composed:

    compose(overlay, below, names, forget_ms) -> Catalog

where `below` and the result hold these names alone.
"""

from collections.abc import Iterable, Mapping

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.catalog import Extents, extents_after
from anabranch.common.tier2.manifest import Manifest, SegmentChange
from anabranch.common.tier2.state import Catalog, SegmentState, Tombstone, WriterKey, WriterMark

Fate = SegmentChange | Tombstone | None
"""The fate of a name: a segment, with the extents that it lost and gained since the snapshot; a
tombstone; or neither, because its tombstone was dropped again."""


class Overlay:
    """All changes since the snapshot of the state at `applied_sequence`."""

    def __init__(self, applied_sequence: int = 0) -> None:
        self.applied_sequence = applied_sequence
        self.names: dict[str, Fate] = {}
        self.forgotten: set[str] = set()
        """Names whose tombstone in the snapshot, if there is one, was dropped."""
        self.writers: dict[int, dict[bytes, WriterMark | None]] = {}

    def copy(self) -> "Overlay":
        """An independent overlay with the same content."""
        twin = Overlay(self.applied_sequence)
        twin.names = dict(self.names)
        twin.forgotten = set(self.forgotten)
        twin.writers = {number: dict(writers) for number, writers in self.writers.items()}
        return twin

    def apply(self, manifest: Manifest) -> None:
        """Apply the next manifest. Raises CorruptManifest if it breaks a rule."""
        if manifest.applied_sequence < self.applied_sequence:
            raise CorruptManifest("the applied sequence falls", number=manifest.number)
        self.applied_sequence = manifest.applied_sequence
        changes = manifest.changes
        for tombstone in changes.tombstones:
            self._forget_writers(tombstone.name)
            self.names[tombstone.name] = tombstone
        for name in changes.tombstones_dropped:
            if isinstance(self.names.get(name), Tombstone):
                self.names[name] = None
            self.forgotten.add(name)
        dead = {tombstone.name for tombstone in changes.tombstones}
        for change in changes.segments:
            if change.state.name in dead:
                raise CorruptManifest(
                    "a segment is both alive and deleted",
                    number=manifest.number,
                    segment=change.state.name,
                )
            self._upsert(change)
        for (number, writer_id), mark in changes.writers.items():
            self.writers.setdefault(number, {})[writer_id] = mark
        for number, writer_id in changes.writers_dropped:
            self.writers.setdefault(number, {})[writer_id] = None

    def _upsert(self, change: SegmentChange) -> None:
        before = self.names.get(change.state.name)
        if not isinstance(before, SegmentChange) or before.state.number != change.state.number:
            self._forget_writers(change.state.name)
            self.names[change.state.name] = change
            return
        dropped, added = set(change.dropped), set(before.added)
        self.names[change.state.name] = SegmentChange(
            change.state,
            added=tuple(held for held in before.added if held not in dropped) + change.added,
            dropped=before.dropped + tuple(held for held in change.dropped if held not in added),
        )

    def _forget_writers(self, name: str) -> None:
        """Forget the writers of the segment of this name, because it ends."""
        before = self.names.get(name)
        if isinstance(before, SegmentChange):
            self.writers.pop(before.state.number, None)

    def decides(self, name: str, snapshot_sequence: int) -> bool:
        """Whether the snapshot, which is exact at this sequence, no longer matters for the name.

        This never changes back, because numbers are sequence numbers.
        """
        fate = self.names.get(name)
        if isinstance(fate, SegmentChange):
            return fate.state.number > snapshot_sequence
        return name in self.names


def compose(overlay: Overlay, below: Catalog, names: Iterable[str], forget_ms: int) -> Catalog:
    """The catalog of these names, given the snapshot's records of them.

    Tombstones created at or before `forget_ms` are left out. Raises CorruptManifest if the
    manifests do not follow the snapshot.
    """
    segments: dict[str, SegmentState] = {}
    tombstones: dict[str, Tombstone] = {}
    extents: dict[int, Extents] = {}
    for name in names:
        fate: Fate = overlay.names.get(name)
        held = below.segments.get(name)
        if isinstance(fate, SegmentChange):
            state = segments[name] = fate.state
            continues = held is not None and held.number == state.number
            before = below.extents[state.number] if continues else ()
            extents[state.number] = extents_after(before, fate)
        elif isinstance(fate, Tombstone):
            tombstones[name] = fate
        elif name in overlay.names:
            continue
        elif held is not None:
            segments[name] = held
            extents[held.number] = below.extents[held.number]
        elif name in below.tombstones and name not in overlay.forgotten:
            tombstones[name] = below.tombstones[name]
    if len(extents) != len(segments):
        raise CorruptManifest("two segments have the same number")
    tombstones = {k: held for k, held in tombstones.items() if held.deleted_ms > forget_ms}
    writers = _writers(overlay, below.writers, extents)
    return Catalog(overlay.applied_sequence, segments, tombstones, writers, extents)


def _writers(
    overlay: Overlay, below: Mapping[WriterKey, WriterMark], living: Iterable[int]
) -> dict[WriterKey, WriterMark]:
    numbers = set(living)
    found: dict[WriterKey, WriterMark | None] = {
        key: mark for key, mark in below.items() if key[0] in numbers
    }
    for number in numbers:
        moved = overlay.writers.get(number, {})
        found |= {(number, writer_id): mark for writer_id, mark in moved.items()}
    return {key: mark for key, mark in found.items() if mark is not None}
