"""Which objects nobody needs any more, and when they may be deleted."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.tier2.catalog import apply_manifest
from anabranch.common.tier2.manifest import Changes, LogBinding, Manifest, SegmentChange
from anabranch.common.tier2.names import chunk_name
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    SegmentState,
    TieredExtent,
    Tombstone,
)
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.storage.collection import Garbage
from kit.thorough import one_in

CONTAINER, EPOCH, GRACE_S = 3, 7, 100.0


def _name(counter: int, epoch: int = EPOCH) -> str:
    return chunk_name(CONTAINER, epoch, counter)


def _extent(start: int, counter: int) -> TieredExtent:
    """Ten bytes of a segment in chunk `counter`."""
    return TieredExtent(start, ChunkRef(_name(counter), start, 10, 0))


class Owner:
    """Commits changes and tells `Garbage` of them, as `ContainerTierTwo` does."""

    def __init__(self, catalog: Catalog | None = None, *, counted: bool = True) -> None:
        self.catalog = catalog or Catalog()
        self.garbage = Garbage(CONTAINER, EPOCH, opened_s=0.0)
        if counted:
            self.garbage.counted(_live_bytes(self.catalog))
        self.number = 1

    def commit(self, changes: Changes, now_s: float) -> None:
        self.number += 1
        manifest = Manifest(
            CONTAINER, self.number, EPOCH, bytes(16), LogBinding("log"), self.number, None, changes
        )
        after = apply_manifest(self.catalog, manifest)
        self.garbage.manifest_committed(self.catalog, changes, now_s)
        self.catalog = after

    def append(self, name: str, number: int, counter: int, now_s: float = 0.0) -> None:
        """Ten more bytes, in chunk `counter`."""
        state = self.catalog.segments.get(name, SegmentState(name, number, Stamp(1, 1)))
        added = (_extent(state.length, counter),)
        grown = replace(state, length=state.length + 10)
        self.commit(Changes(segments=(SegmentChange(grown, added),)), now_s)

    def truncate(self, name: str, start: int, now_s: float) -> None:
        state = self.catalog.segments[name]
        held = self.catalog.extents[state.number]
        dropped = tuple(extent for extent in held if extent.start + 10 <= start)
        change = SegmentChange(replace(state, start=start), dropped=dropped)
        self.commit(Changes(segments=(change,)), now_s)

    def delete(self, name: str, now_s: float) -> None:
        self.commit(Changes(tombstones=(Tombstone(name, Stamp(1, 2), 0, 0),)), now_s)

    def due(self, now_s: float, *manifests: int, count_max: int = 99) -> list[str]:
        return list(self.garbage.due(manifests, now_s, GRACE_S, count_max))


def test_a_chunk_is_due_when_grace_has_passed_since_its_last_piece_was_dropped() -> None:
    owner = Owner()
    owner.append("a", 1, counter=1)
    owner.append("b", 2, counter=1)
    owner.delete("a", now_s=10.0)
    assert owner.due(1000.0) == []
    owner.delete("b", now_s=50.0)
    assert not owner.garbage.anything_due(149.0, GRACE_S)
    assert owner.due(149.0) == []
    assert owner.garbage.anything_due(150.0, GRACE_S)
    assert owner.due(150.0) == [_name(1)]


def test_truncation_drops_the_extents_before_the_new_start_only() -> None:
    owner = Owner()
    for counter in (1, 2, 3):
        owner.append("a", 1, counter)
    owner.truncate("a", 25, now_s=0.0)
    assert owner.due(GRACE_S) == [_name(1), _name(2)]


def test_a_segment_that_is_replaced_leaves_its_chunks() -> None:
    owner = Owner()
    owner.append("a", 1, counter=1)
    fresh = SegmentState("a", 9, Stamp(2, 1), 0, 10)
    owner.commit(Changes(segments=(SegmentChange(fresh, (_extent(0, 2),)),)), 0.0)
    assert owner.due(GRACE_S) == [_name(1)]


def test_a_deletion_of_what_is_not_in_tier_two_leaves_nothing() -> None:
    owner = Owner()
    owner.delete("a", now_s=0.0)
    assert owner.due(GRACE_S) == []


def test_what_was_deleted_is_not_due_again_and_what_failed_is() -> None:
    owner = Owner()
    for number in (1, 2):
        owner.append(f"{number}", number, counter=number)
        owner.delete(f"{number}", now_s=0.0)
    assert owner.due(GRACE_S, count_max=1) == [_name(1)]
    assert owner.due(GRACE_S) == [_name(1), _name(2)]
    owner.garbage.deleted(_name(1))
    assert owner.due(GRACE_S) == [_name(2)]


def test_pages_that_a_newer_snapshot_does_not_name_and_manifests_below_it_are_due() -> None:
    garbage = Owner().garbage
    garbage.snapshot_committed(["page 1", "page 2", "index 1"], 4, now_s=0.0)
    garbage.snapshot_committed(["page 1", "page 3", "index 2"], 8, now_s=50.0)
    # the manifests below the first snapshot are due, its pages are not: dropped 50 s later
    assert garbage.due([1, 3, 4, 8, 9], 100.0, GRACE_S, 99) == (
        "c3/m/0000000001",
        "c3/m/0000000003",
    )
    assert garbage.due([4, 7, 8, 9], 150.0, GRACE_S, 99) == (
        "index 1",
        "page 2",
        "c3/m/0000000004",
        "c3/m/0000000007",
    )
    assert garbage.in_use("page 1")


def test_manifests_stay_due_until_they_are_gone() -> None:
    garbage = Owner().garbage
    garbage.snapshot_committed(["index"], 8, now_s=0.0)
    for _ in range(2):
        assert garbage.due([7, 8, 9], GRACE_S, GRACE_S, 99) == ("c3/m/0000000007",)
        assert garbage.anything_due(GRACE_S, GRACE_S)
    assert garbage.due([8, 9], GRACE_S, GRACE_S, 99) == ()
    assert not garbage.anything_due(GRACE_S, GRACE_S)


@settings(max_examples=60 // one_in(4))
@given(
    before=st.integers(0, 12),
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "truncate", "delete"]), st.integers(0, 3)),
        max_size=24,
    ),
)
def test_whatever_happens_while_the_references_are_counted_the_same_is_due_in_the_end(
    before: int, steps: list[tuple[str, int]]
) -> None:
    counted = Owner()
    for counter in range(before):
        counted.append(f"segment {counter % 4}", counter % 4 + 1, counter // 2)
    late, found = Owner(counted.catalog, counted=False), _live_bytes(counted.catalog)
    for counter, (step, which) in enumerate(steps, start=before):
        name, now_s = f"segment {which}", 10.0 * counter
        state = counted.catalog.segments.get(name)
        for owner in (counted, late):
            owner.number = 100 + counter
            if step == "append":
                number = state.number if state is not None else owner.number
                owner.append(name, number, counter // 2, now_s)
            elif step == "truncate" and state is not None:
                owner.truncate(name, (state.start + state.length) // 2, now_s)
            elif state is not None:
                owner.delete(name, now_s)
        assert not late.garbage.anything_due(10_000.0, GRACE_S), "not all references are counted"
    late.garbage.counted(found)
    for now_s in (150.0, 250.0, 10_000.0):
        assert set(late.due(now_s)) == set(counted.due(now_s))


def test_listed_objects_of_lower_epochs_that_nothing_refers_to_are_due() -> None:
    owner = Owner()
    owner.append("a", 1, counter=1)
    owner.garbage.snapshot_committed([_name(5, epoch=2)], 1, now_s=0.0)
    names = [
        _name(1),
        _name(2),  # of this epoch: on its way to its manifest
        _name(1, epoch=6),
        _name(5, epoch=2),
        _name(1, epoch=8),  # of a successor
        "c3/m/0000000001",
        "c30/0000000001-0000000001",
        "c3/0000000001-0000000001.bak",
        "c3/notes",
    ]
    owner.garbage.listed(names)
    assert owner.due(GRACE_S) == [_name(1, epoch=6)]


def test_what_was_dropped_and_then_listed_waits_for_its_own_grace() -> None:
    extents = {1: (TieredExtent(0, ChunkRef(_name(4, epoch=2), 0, 10, 0)),)}
    owner = Owner(Catalog(1, {"a": SegmentState("a", 1, Stamp(1, 1), 0, 10)}, {}, {}, extents))
    owner.delete("a", now_s=90.0)
    owner.garbage.listed([_name(4, epoch=2)])
    assert owner.due(GRACE_S) == []
    assert owner.due(190.0) == [_name(4, epoch=2)]


@settings(max_examples=60 // one_in(4))
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "truncate", "delete"]),
            st.sets(st.integers(0, 3), min_size=1),
        ),
        max_size=30,
    )
)
def test_whatever_happens_what_is_in_use_is_never_due_and_all_else_is_in_the_end(
    steps: list[tuple[str, set[int]]],
) -> None:
    owner, now_s, gone = Owner(), 0.0, set[str]()
    created = {_name(counter) for counter, (step, _) in enumerate(steps) if step == "append"}
    for counter, (step, chosen) in enumerate(steps):
        now_s += 40.0
        for which in sorted(chosen):
            name = f"segment {which}"
            state = owner.catalog.segments.get(name)
            if step == "append":
                number = state.number if state is not None else owner.number + 1
                owner.append(name, number, counter, now_s)
            elif step == "truncate" and state is not None:
                owner.truncate(name, (state.start + state.length) // 2, now_s)
            elif state is not None:
                owner.delete(name, now_s)
        for due in owner.due(now_s):
            owner.garbage.deleted(due)
            gone.add(due)
        assert not gone & _used(owner.catalog)
    assert gone | set(owner.due(now_s + GRACE_S)) == created - _used(owner.catalog)


def _live_bytes(catalog: Catalog) -> Counter[str]:
    live: Counter[str] = Counter()
    for held in catalog.extents.values():
        for extent in held:
            live[extent.ref.name] += extent.ref.length
    return live


def _used(catalog: Catalog) -> set[str]:
    return {extent.ref.name for held in catalog.extents.values() for extent in held}
