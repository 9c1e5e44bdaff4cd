"""Which extents a rewrite replaces, when their segments changed while they were copied."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.catalog import apply_manifest
from anabranch.common.tier2.manifest import Changes, LogBinding, Manifest, SegmentChange
from anabranch.common.tier2.state import Catalog, ChunkRef, SegmentState, TieredExtent, Tombstone
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.storage.directory import Directory, OpenPage
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.domain.storage.rewrite import (
    HeldExtent,
    Move,
    find_extents,
    with_moves,
)

NAME, NUMBER = "s/a/0.#epoch.0", 4


def extent(start: int, length: int = 10, name: str = "old") -> TieredExtent:
    return TieredExtent(start, ChunkRef(name, start, length, start))


def move(start: int, *, number: int = NUMBER, segment: str = NAME) -> Move:
    return Move(HeldExtent(segment, number, extent(start)), ChunkRef("new", start + 7, 10, start))


STATE = SegmentState(NAME, NUMBER, Stamp(1, 1), 0, 40)
BEFORE = Catalog(9, {NAME: STATE}, {}, {}, {NUMBER: tuple(map(extent, (0, 10, 20, 30)))})


def applied(changes: Changes) -> Sequence[str]:
    """The objects that hold the segment after the changes, in the order of its bytes."""
    manifest = Manifest(3, 2, 1, bytes(16), LogBinding("log"), 9, None, changes)
    return [held.ref.name for held in apply_manifest(BEFORE, manifest).extents.get(NUMBER, ())]


def test_extents_in_the_middle_are_replaced_and_the_others_stay() -> None:
    changes, moved = with_moves(BEFORE, Changes(), [move(20), move(0)])
    assert applied(changes) == ["new", "old", "new", "old"]
    assert len(moved) == 2


def test_a_segment_that_grows_in_the_same_manifest_keeps_its_order() -> None:
    grown = SegmentChange(replace(STATE, length=50), (extent(40, name="tail"),))
    changes, _ = with_moves(BEFORE, Changes(segments=(grown,)), [move(10)])
    assert applied(changes) == ["old", "new", "old", "old", "tail"]


def test_a_truncated_extent_is_not_replaced() -> None:
    truncated = SegmentChange(replace(STATE, start=20), (), (extent(0), extent(10)))
    changes, moved = with_moves(BEFORE, Changes(segments=(truncated,)), [move(10), move(20)])
    assert applied(changes) == ["new", "old"]
    assert moved == (move(20),)


@pytest.mark.parametrize(
    "changes",
    [
        Changes(tombstones=(Tombstone(NAME, Stamp(1, 2), 9, 0),)),
        Changes(
            segments=(SegmentChange(SegmentState(NAME, 8, Stamp(2, 1), 0, 5), (extent(0, 5),)),)
        ),
    ],
    ids=["deleted", "created again"],
)
def test_a_segment_that_is_gone_voids_its_moves(changes: Changes) -> None:
    assert with_moves(BEFORE, changes, [move(0), move(20)]) == (changes, ())


def test_moves_of_another_segment_with_the_same_name_or_of_extents_that_moved_on_are_void() -> None:
    moves = [
        move(0, number=3),
        move(0, segment="s/a/1.#epoch.0"),
        Move(HeldExtent(NAME, NUMBER, extent(10, name="older")), ChunkRef("new", 0, 10, 10)),
    ]
    assert with_moves(BEFORE, Changes(), moves) == (Changes(), ())


@pytest.mark.parametrize("dropped", [(10,), (20, 10), (0, 20), (30,)])
def test_a_manifest_that_drops_extents_in_the_middle_without_replacing_them_is_refused(
    dropped: tuple[int, ...],
) -> None:
    change = SegmentChange(STATE, (), tuple(map(extent, dropped)))
    with pytest.raises(CorruptManifest):
        applied(Changes(segments=(change,)))


def found(names: Sequence[str], extents_max: int) -> dict[str, int]:
    """How many extents are found in each object; three segments hold two in each of a, b and c."""
    overlay = Overlay()
    for number in range(1, 4):
        extents = [extent(10 * at, name="abc"[at % 3]) for at in range(6)]
        state = SegmentState(f"s/a/{number}", number, Stamp(1, 1), 0, 60)
        changes = Changes(segments=(SegmentChange(state, tuple(extents)),))
        overlay.apply(Manifest(3, number, 1, bytes(16), LogBinding("log"), number, None, changes))
    plan = find_extents(Directory(), overlay, names, extents_max)
    try:
        plan.send(None)  # type: ignore[arg-type]
    except StopIteration as end:
        return {name: len(held) for name, held in end.value.items()}
    raise AssertionError(f"there is no {OpenPage.__name__} to read")


def test_objects_are_left_out_from_the_last_on_if_they_have_too_many_extents() -> None:
    assert found(["b", "a", "c"], 100) == {"b": 6, "a": 6, "c": 6}
    assert found(["b", "a", "c"], 12) == {"b": 6, "a": 6}
    assert found(["b", "a", "c"], 3) == {"b": 6}
