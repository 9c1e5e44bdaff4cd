"""The changes of a cut to the catalog: the contents of the next manifest."""

from collections.abc import Mapping

from anabranch.common.tier2.catalog import Extents
from anabranch.common.tier2.manifest import Changes, SegmentChange
from anabranch.common.tier2.state import Catalog, SegmentState
from anabranch.segstore.domain.container.state import ContainerCut


def changes_of_cut(catalog: Catalog, cut: ContainerCut, added: Mapping[int, Extents]) -> Changes:
    """The changes of a cut, given the extents (by segment number) that hold its bytes.

    The catalog needs only the names of the cut, and the cut includes the segment of each of its
    writers. If a name was deleted and created again within the cut, the later event counts: a
    segment's number and a tombstone's sequence are both sequence numbers of operations. Extents
    that end at or before a segment's start are dropped, and so are writers of dead segments.

    Extents that came with a merge are added to the target and leave with the source, so a chunk may
    hold pieces under the name of a segment that is gone.
    """
    created = {segment.state.name: segment.state.number for segment in cut.segments}
    tombstones = tuple(
        tombstone
        for tombstone in cut.tombstones
        if created.get(tombstone.name, -1) < tombstone.sequence
    )
    dead = {tombstone.name for tombstone in tombstones}
    living = tuple(segment for segment in cut.segments if segment.state.name not in dead)
    numbers = {segment.state.number for segment in living}
    assert {key[0] for key in cut.writers} <= {segment.state.number for segment in cut.segments}
    return Changes(
        segments=tuple(
            SegmentChange(
                state=segment.state,
                added=_ascending(added.get(segment.state.number, ()) + segment.adopted),
                dropped=_truncated(segment.state, catalog.extents.get(segment.state.number, ())),
            )
            for segment in living
        ),
        tombstones=tombstones,
        writers={key: last for key, last in cut.writers.items() if key[0] in numbers},
    )


def _truncated(state: SegmentState, extents: Extents) -> Extents:
    return tuple(held for held in extents if held.start + held.ref.length <= state.start)


def _ascending(extents: Extents) -> Extents:
    return tuple(sorted(extents, key=lambda extent: extent.start))
