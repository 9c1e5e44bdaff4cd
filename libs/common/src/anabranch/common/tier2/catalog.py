"""The catalog: its construction from manifests, and its invariants.

    apply_manifest(catalog, manifest) -> Catalog

The invariants are checked on every manifest before it is written and when it is read:

- the applied sequence never falls;
- the extents of a segment are adjacent, begin at or before its start and end at its length;
- a manifest drops only extents that the segment has;
- every segment has an entry in `extents`, possibly an empty one, and no other number has one;
- writer numbers belong to living segments; no name is both a segment and a tombstone.
"""

from collections.abc import Iterable

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.manifest import Changes, Manifest, SegmentChange
from anabranch.common.tier2.state import Catalog, SegmentState, TieredExtent

Extents = tuple[TieredExtent, ...]


def apply_manifest(catalog: Catalog, manifest: Manifest) -> Catalog:
    """Return the state after a manifest. Raises CorruptManifest if an invariant breaks."""
    return apply_manifests(catalog, [manifest])


def apply_manifests(catalog: Catalog, manifests: Iterable[Manifest]) -> Catalog:
    """Return the state after manifests in ascending order; copy the catalog once.

    Raises CorruptManifest if an invariant breaks.
    """
    draft = _Draft(catalog)
    for manifest in manifests:
        draft.apply(manifest)
    return draft.catalog()


class _Draft:
    """A mutable copy of a catalog, to which manifests are applied."""

    def __init__(self, catalog: Catalog) -> None:
        self._applied_sequence = catalog.applied_sequence
        self._segments = dict(catalog.segments)
        self._tombstones = dict(catalog.tombstones)
        self._writers = dict(catalog.writers)
        self._extents = dict(catalog.extents)

    def catalog(self) -> Catalog:
        return Catalog(
            self._applied_sequence,
            self._segments,
            self._tombstones,
            self._writers,
            self._extents,
        )

    def apply(self, manifest: Manifest) -> None:
        if manifest.applied_sequence < self._applied_sequence:
            raise CorruptManifest(
                "the applied sequence falls",
                number=manifest.number,
                before=self._applied_sequence,
                after=manifest.applied_sequence,
            )
        self._applied_sequence = manifest.applied_sequence
        changes = manifest.changes
        self._check_names(changes, manifest.number)
        gone = self._delete(changes)
        for change in changes.segments:
            self._upsert(change, gone, manifest.number)
        self._apply_writers(changes, gone, manifest.number)

    def _check_names(self, changes: Changes, number: int) -> None:
        dead = {tombstone.name for tombstone in changes.tombstones}
        for change in changes.segments:
            if change.state.name in dead:
                raise CorruptManifest(
                    "a segment is both alive and deleted", number=number, segment=change.state.name
                )

    def _delete(self, changes: Changes) -> set[int]:
        gone: set[int] = set()
        for tombstone in changes.tombstones:
            self._tombstones[tombstone.name] = tombstone
            state = self._segments.pop(tombstone.name, None)
            if state is not None:
                self._extents.pop(state.number)
                gone.add(state.number)
        for name in changes.tombstones_dropped:
            self._tombstones.pop(name, None)
        return gone

    def _upsert(self, change: SegmentChange, gone: set[int], number: int) -> None:
        state = change.state
        before = self._segments.get(state.name)
        if before is not None and before.number != state.number:
            self._extents.pop(before.number)
            gone.add(before.number)
        elif before is None and state.number in self._extents:
            raise CorruptManifest(
                "two segments have the same number", number=number, segment=state.name
            )
        held = self._extents.get(state.number, ())
        self._extents[state.number] = extents_after(held, change, number=number)
        self._segments[state.name] = state
        self._tombstones.pop(state.name, None)

    def _apply_writers(self, changes: Changes, gone: set[int], number: int) -> None:
        if gone:
            self._writers = {k: last for k, last in self._writers.items() if k[0] not in gone}
        for key, last in changes.writers.items():
            if key[0] not in self._extents:
                raise CorruptManifest(
                    "a writer number belongs to no segment", number=number, segment_number=key[0]
                )
            self._writers[key] = last
        for key in changes.writers_dropped:
            self._writers.pop(key, None)


def extents_after(held: Extents, change: SegmentChange, *, number: int | None = None) -> Extents:
    """Return a segment's extents after a change, given the extents before it.

    Added extents may follow those that stay, or take the places of dropped ones among them.
    `number` is the manifest's, for the error. Raises CorruptManifest if an invariant breaks.
    """
    dropped = set(change.dropped)
    kept = tuple(extent for extent in held if extent not in dropped)
    if len(kept) + len(change.dropped) != len(held):
        raise CorruptManifest(
            "a dropped extent does not exist", number=number, segment=change.state.name
        )
    after = kept + change.added
    joined = tuple(sorted(after, key=lambda extent: extent.start))
    grown = joined == after and dropped.issuperset(held[: len(dropped)])
    fault = _extents_fault(change.state, joined, len(kept) if grown else 0)
    if fault is not None:
        raise CorruptManifest(fault, number=number, segment=change.state.name)
    return joined


def check_catalog(catalog: Catalog) -> None:
    """Check all invariants of a catalog that was read from a snapshot. Raises CorruptManifest."""
    numbers = {state.number for state in catalog.segments.values()}
    if len(numbers) != len(catalog.segments) or numbers != set(catalog.extents):
        raise CorruptManifest("the segments and their numbers do not match")
    if catalog.segments.keys() & catalog.tombstones.keys():
        raise CorruptManifest("a segment is both alive and deleted")
    if any(key[0] not in numbers for key in catalog.writers):
        raise CorruptManifest("a writer number belongs to no segment")
    for state in catalog.segments.values():
        fault = _extents_fault(state, catalog.extents[state.number], 0)
        if fault is not None:
            raise CorruptManifest(fault, segment=state.name)


def _extents_fault(state: SegmentState, extents: Extents, trusted: int) -> str | None:
    """The fault of a segment's extents, or None; the first `trusted` are known to be adjacent."""
    if not extents:
        return None if state.start == state.length else "a segment's bytes have no extent"
    for before, after in zip(
        extents[max(trusted - 1, 0) :], extents[max(trusted, 1) :], strict=False
    ):
        if before.start + before.ref.length != after.start:
            return "the extents of a segment are not adjacent"
    if any(extent.ref.length <= 0 for extent in extents[trusted:]):
        return "an extent is empty"
    if extents[0].start > state.start:
        return "the extents of a segment begin after its start"
    if extents[-1].start + extents[-1].ref.length != state.length:
        return "the extents of a segment do not end at its length"
    return None
