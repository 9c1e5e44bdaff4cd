"""What the manifests after a snapshot changed, laid over what its pages tell (pure).

State: per name what became of it, and per segment number the writers that moved. It grows with
the manifests since the snapshot, which the snapshot's trigger bounds, and begins anew with the
next one. Nothing of the snapshot need be read to fold a manifest in; what the manifest says of
extents is held against the snapshot's when the two are laid together:

    compose(overlay, below, names, forget_ms) -> Catalog

where `below` and what is returned hold these names alone.
"""

from collections.abc import Iterable, Mapping

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.catalog import Extents, extents_after
from anabranch.common.tier2.manifest import Manifest, SegmentChange
from anabranch.common.tier2.state import Catalog, SegmentState, Tombstone, WriterKey, WriterMark

Fate = SegmentChange | Tombstone | None
"""What became of a name: a segment, with what its extents lost and won since the snapshot; a
tombstone; or neither, because its tombstone was dropped again."""


class Overlay:
    """All changes since the snapshot of the state at `applied_sequence`."""

    def __init__(self, applied_sequence: int = 0) -> None:
        self.applied_sequence = applied_sequence
        self.names: dict[str, Fate] = {}
        self.forgotten: set[str] = set()
        """Names whose tombstone in the snapshot was dropped, if there is one."""
        self.writers: dict[int, dict[bytes, WriterMark | None]] = {}

    def copy(self) -> "Overlay":
        """An independent overlay with the same content."""
        twin = Overlay(self.applied_sequence)
        twin.names = dict(self.names)
        twin.forgotten = set(self.forgotten)
        twin.writers = {number: dict(writers) for number, writers in self.writers.items()}
        return twin

    def apply(self, manifest: Manifest) -> None:
        """Fold the next manifest in. Raises CorruptManifest on what no manifest may say."""
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
        """The segment of this name ends; its writers with it."""
        before = self.names.get(name)
        if isinstance(before, SegmentChange):
            self.writers.pop(before.state.number, None)

    def decides(self, name: str, snapshot_sequence: int) -> bool:
        """Whether what the snapshot, exact at this sequence, tells of the name counts no more.

        Once it does not count it never does again: numbers are sequence numbers.
        """
        fate = self.names.get(name)
        if isinstance(fate, SegmentChange):
            return fate.state.number > snapshot_sequence
        return name in self.names


def compose(overlay: Overlay, below: Catalog, names: Iterable[str], forget_ms: int) -> Catalog:
    """What is true of these names, given what the snapshot tells of them.

    Tombstones made at `forget_ms` or before are as if they were not there. Raises
    CorruptManifest if the manifests do not follow the snapshot.
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
