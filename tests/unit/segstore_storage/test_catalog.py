"""How manifests make the catalog, and the manifests that are refused."""

from dataclasses import replace

import pytest

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.catalog import apply_manifest, apply_manifests, check_catalog
from anabranch.common.tier2.manifest import Changes, LogBinding, Manifest, SegmentChange
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterMark,
)
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.storage.changes import changes_of_cut
from kit.tier2_model import WRITER, ModelContainer, small_container

NAME = "s/a/0.#epoch.0"


def _extent(start: int, end: int) -> TieredExtent:
    return TieredExtent(start, ChunkRef("c0/0000000001-0000000001", start, end - start, 0))


def _manifest(number: int, applied: int, changes: Changes | None = None) -> Manifest:
    return Manifest(0, number, 1, bytes(16), LogBinding("log"), applied, None, changes or Changes())


def _state(length: int, *, number: int = 1, start: int = 0) -> SegmentState:
    return SegmentState(NAME, number, Stamp(1, 1), start, length)


def _upsert(state: SegmentState, *added: TieredExtent) -> Changes:
    return Changes(segments=(SegmentChange(state, added),))


HELD = apply_manifest(Catalog(), _manifest(1, 5, _upsert(_state(10), _extent(0, 10))))


def _flushed(model: ModelContainer, before: Catalog, number: int) -> Catalog:
    """The catalog after a flush, with one extent per segment that grew."""
    cut = model.cut(before)
    added = {
        segment.state.number: (_extent(segment.runs[0].start, segment.state.length),)
        for segment in cut.segments
        if segment.runs
    }
    changes = changes_of_cut(before, cut, added)
    return apply_manifest(before, _manifest(number, cut.sequence, changes))


def test_flushes_one_after_another_make_the_exact_state() -> None:
    model = small_container()
    first = _flushed(model, Catalog(), 1)
    assert model.matches(first)
    model.append(NAME, b"more", events=2)
    model.delete("s/a/1.#epoch.0")
    model.create("s/a/2.#epoch.0")
    second = _flushed(model, first, 2)
    assert model.matches(second)
    check_catalog(second)
    assert model.segments["s/a/2.#epoch.0"].number in second.extents


def test_a_segment_deleted_and_created_again_loses_its_extents_and_writers() -> None:
    model = small_container()
    first = _flushed(model, Catalog(), 1)
    old = first.segments[NAME].number
    model.delete(NAME)
    model.create(NAME)
    model.append(NAME, b"anew")
    second = _flushed(model, first, 2)
    assert model.matches(second)
    assert old not in second.extents
    assert (old, WRITER) not in second.writers


def test_of_a_name_in_both_parts_of_a_cut_the_later_fate_counts() -> None:
    model = ModelContainer()
    model.create(NAME)
    model.append(NAME, b"x")
    cut = model.cut(Catalog())
    later = replace(cut, tombstones=(Tombstone(NAME, Stamp(1, 9), 9, 0),))
    assert [t.name for t in changes_of_cut(Catalog(), later, {}).tombstones] == [NAME]
    assert changes_of_cut(Catalog(), later, {}).segments == ()
    assert changes_of_cut(Catalog(), later, {}).writers == {}
    earlier = replace(cut, tombstones=(Tombstone(NAME, Stamp(1, 0), 0, 0),))
    assert changes_of_cut(Catalog(), earlier, {}).tombstones == ()


def test_extents_before_a_segments_start_are_dropped() -> None:
    model = ModelContainer()
    model.create(NAME)
    for _ in range(2):
        model.append(NAME, bytes(10))
    before = apply_manifest(
        Catalog(), _manifest(1, 3, _upsert(model.segments[NAME], _extent(0, 10), _extent(10, 20)))
    )
    model.segments[NAME] = replace(model.segments[NAME], start=10)
    model.sequence += 1
    after = _flushed(model, before, 2)
    assert after.extents[1] == (_extent(10, 20),)


def test_applying_many_is_applying_each_and_changes_no_argument() -> None:
    more = _manifest(2, 6, _upsert(_state(20), _extent(10, 20)))
    again = _manifest(3, 7, Changes(tombstones=(Tombstone(NAME, Stamp(1, 2), 7, 0),)))
    one_by_one = apply_manifest(apply_manifest(HELD, more), again)
    assert apply_manifests(HELD, [more, again]) == one_by_one
    assert HELD.segments[NAME].length == 10
    assert one_by_one == Catalog(7, {}, {NAME: Tombstone(NAME, Stamp(1, 2), 7, 0)}, {}, {})


def test_tombstones_and_writers_may_be_dropped() -> None:
    before = replace(
        HELD,
        tombstones={"x": Tombstone("x", Stamp(1, 1), 1, 0)},
        writers={(1, WRITER): WriterMark(4)},
    )
    changes = Changes(tombstones_dropped=("x",), writers_dropped=((1, WRITER),))
    assert apply_manifest(before, _manifest(2, 5, changes)) == HELD


@pytest.mark.parametrize(
    ("applied", "changes", "what"),
    [
        (4, Changes(), "sequence falls"),
        (6, _upsert(_state(20), _extent(11, 20)), "not adjacent"),
        (6, _upsert(_state(20), _extent(10, 19)), "do not end"),
        (6, _upsert(_state(20)), "do not end"),
        (6, _upsert(_state(5, number=2), _extent(1, 5)), "begin after"),
        (6, _upsert(_state(5, number=2)), "no extent"),
        (6, _upsert(_state(10), _extent(10, 10)), "empty"),
        (6, Changes(writers={(7, WRITER): WriterMark(1)}), "no segment"),
        (
            6,
            Changes(segments=(SegmentChange(_state(10), (), (_extent(3, 4),)),)),
            "does not exist",
        ),
        (
            6,
            replace(_upsert(_state(10)), tombstones=(Tombstone(NAME, Stamp(1, 1), 6, 0),)),
            "both alive and deleted",
        ),
        (6, _upsert(replace(_state(0), name="other")), "same number"),
    ],
)
def test_a_manifest_that_breaks_an_invariant_is_refused(
    applied: int, changes: Changes, what: str
) -> None:
    with pytest.raises(CorruptManifest, match=what):
        apply_manifest(HELD, _manifest(2, applied, changes))


@pytest.mark.parametrize(
    "broken",
    [
        replace(HELD, extents={}),
        replace(HELD, extents={1: ()}),
        replace(HELD, writers={(9, WRITER): WriterMark(1)}),
        replace(HELD, tombstones={NAME: Tombstone(NAME, Stamp(1, 1), 1, 0)}),
        replace(HELD, extents={1: (_extent(0, 4), _extent(5, 10))}),
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_refused(broken: Catalog) -> None:
    check_catalog(HELD)
    with pytest.raises(CorruptManifest):
        check_catalog(broken)
