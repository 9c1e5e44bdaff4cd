"""Random lives of a catalog in tiny pages: what is found is what a plain catalog would say."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.catalog import apply_manifest, check_catalog
from anabranch.common.tier2.manifest import Changes, LogBinding, Manifest, SegmentChange
from anabranch.common.tier2.page_index import PageKind
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterMark,
)
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.storage.collection import count_live_bytes
from anabranch.segstore.domain.storage.directory import Directory, look_up
from anabranch.segstore.domain.storage.overlay import Overlay, compose
from anabranch.segstore.domain.storage.paging import PageLimits
from anabranch.segstore.domain.storage.rewrite import (
    HeldExtent,
    Move,
    find_extents,
    with_moves,
)
from kit.planted_tier2 import overlay_lost_at_the_merge, page_boundary_off_by_one
from kit.thorough import one_in
from kit.tier2_pages import NEVER_MS, PageShelf, overlay_between, pages_of

NAMES = [f"s/{letter}/{at}" for letter in "abc" for at in range(4)]
WRITERS = [bytes([at]) * 16 for at in range(3)]


@dataclass(frozen=True)
class Step:
    """Something that happens to one of the names, or to the whole (a snapshot)."""

    what: str
    name: str
    count: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["append", "append", "append", "truncate", "replace", "delete", "drop",
                         "rewrite", "rewrite", "snapshot", "snapshot"]),
        st.sampled_from(NAMES[4:7]) | st.sampled_from(NAMES),
        st.integers(1, 6),
    ),
    max_size=60,
)  # fmt: skip


class Life:
    """A plain catalog, and the same in pages with an overlay."""

    def __init__(self, limits: PageLimits) -> None:
        self.limits = limits
        self.catalog = Catalog()
        self.shelf = PageShelf()
        self.directory = Directory()
        self.overlay = Overlay()

    def do(self, step: Step) -> None:
        if step.what == "snapshot":
            forget_ms = max(self.catalog.applied_sequence - 6 * step.count, NEVER_MS)
            self.snapshot(forget_ms)
            return
        sequence = self.catalog.applied_sequence + 1
        manifest = Manifest(
            3, sequence, 1, bytes(16), LogBinding("log"), sequence, None, self.changes(step)
        )
        self.catalog = apply_manifest(self.catalog, manifest)
        self.overlay.apply(manifest)

    def changes(self, step: Step) -> Changes:
        """What the next manifest says; the operations' sequence numbers are the manifests'."""
        if step.what == "rewrite":
            return self.rewritten(step)
        now = self.catalog.applied_sequence + 1
        state = self.catalog.segments.get(step.name)
        if step.what == "drop":
            writers = [k for k in self.catalog.writers if state and k[0] == state.number]
            return Changes(tombstones_dropped=(step.name,), writers_dropped=tuple(writers[:1]))
        if step.what == "delete":
            return Changes(tombstones=(Tombstone(step.name, Stamp(1, now), now, now),))
        if step.what == "truncate" and state is not None:
            held = self.catalog.extents[state.number]
            at = min(step.count, len(held))
            start = state.length if at == len(held) else held[at].start
            change = SegmentChange(replace(state, start=start), dropped=held[:at])
            return Changes(segments=(change,))
        if state is None or step.what == "replace":
            state = SegmentState(step.name, now, Stamp(1, now))
        added = tuple(
            TieredExtent(state.length + 10 * at, ChunkRef(f"c3/0000000001-{now:010}", at, 10, at))
            for at in range(step.count)
        )
        grown = replace(state, length=state.length + 10 * step.count, event_count=now)
        key = (state.number, WRITERS[step.count % 3])
        return Changes(segments=(SegmentChange(grown, added),), writers={key: WriterMark(now, now)})

    def rewritten(self, step: Step) -> Changes:
        """Some extents of a segment move, beside an append or a truncation of it."""
        changes = Changes()
        if step.count % 3:
            what = "append" if step.count % 3 == 1 else "truncate"
            changes = self.changes(replace(step, what=what))
        state, now = self.catalog.segments.get(step.name), self.catalog.applied_sequence + 1
        held = () if state is None else self.catalog.extents[state.number]
        moves = [
            Move(
                HeldExtent(step.name, state.number, extent),
                replace(extent.ref, name=f"c3/0000000002-{now:010}"),
            )
            for at, extent in enumerate(held)
            if state is not None and at % step.count == 0
        ]
        return with_moves(self.catalog, changes, moves)[0]

    def snapshot(self, forget_ms: int = NEVER_MS) -> None:
        """The next snapshot takes the place of what was."""
        kept = {
            k: held for k, held in self.catalog.tombstones.items() if held.deleted_ms > forget_ms
        }
        self.catalog = replace(self.catalog, tombstones=kept)
        self.directory = self.shelf.next_snapshot(
            self.directory, self.overlay, self.limits, forget_ms
        )
        self.overlay = Overlay(self.directory.applied_sequence)

    def find(self, names: list[str], forget_ms: int = NEVER_MS) -> Catalog:
        undecided = [
            n for n in names if not self.overlay.decides(n, self.directory.applied_sequence)
        ]
        below = self.shelf.perform(look_up(self.directory, undecided))
        return compose(self.overlay, below, names, forget_ms)

    def check_pages(self) -> None:
        """The pages are those that the whole catalog would be cut into."""
        pages = [(self.shelf.pages[held.ref.name], held.head) for held in self.directory.pages]
        expected = [(made.page, made.head) for made in pages_of(self.catalog, self.limits)]
        assert pages == expected, "the snapshot is not the catalog"

    def check_references(self) -> None:
        """Every extent of a living segment is counted once, and found."""
        live = self.shelf.perform(count_live_bytes(self.directory, self.overlay))
        held: dict[str, list[tuple[int, TieredExtent]]] = {}
        for number, extents in self.catalog.extents.items():
            for extent in extents:
                held.setdefault(extent.ref.name, []).append((number, extent))
        assert live == {
            name: sum(extent.ref.length for _, extent in found) for name, found in held.items()
        }
        some = sorted(held)[::2]
        plan = find_extents(self.directory, self.overlay, some, extents_max=10_000)
        assert {
            name: sorted((each.number, each.extent.start, each.extent.ref) for each in found)
            for name, found in self.shelf.perform(plan).items()
        } == {
            name: sorted((number, extent.start, extent.ref) for number, extent in held[name])
            for name in some
        }


def _only(catalog: Catalog, names: list[str]) -> Catalog:
    segments = {name: catalog.segments[name] for name in names if name in catalog.segments}
    numbers = {state.number for state in segments.values()}
    return Catalog(
        catalog.applied_sequence,
        segments,
        {name: catalog.tombstones[name] for name in names if name in catalog.tombstones},
        {key: last for key, last in catalog.writers.items() if key[0] in numbers},
        {number: catalog.extents[number] for number in numbers},
    )


@settings(max_examples=150 // one_in(4))
@given(
    steps=STEPS,
    page_target=st.integers(150, 900),
    page_max=st.integers(600, 1500),
    inline=st.integers(1, 5),
)
def test_whatever_happens_names_are_found_as_they_are_and_snapshots_are_the_catalog(
    steps: list[Step], page_target: int, page_max: int, inline: int
) -> None:
    life = Life(PageLimits(page_target=page_target, page_max=page_max, extents_inline=inline))
    for step in steps:
        life.do(step)
        if step.what == "snapshot":
            life.check_pages()
        asked = [step.name, NAMES[step.count]]
        assert life.find(asked) == _only(life.catalog, asked)
    assert life.find(NAMES) == life.catalog
    check_catalog(life.catalog)
    life.check_references()
    life.snapshot()
    life.check_pages()
    assert life.find(NAMES) == life.catalog


@pytest.mark.parametrize(
    "happens",
    [
        ["append 6", "snapshot 1", "append 3", "truncate 2", "append 1", "truncate 3"],
        ["append 6", "snapshot 1", "append 3", "truncate 7", "truncate 1", "append 2"],
        ["append 6", "snapshot 1", "rewrite 3", "append 3", "rewrite 1", "truncate 2", "rewrite 2"],
        ["append 6", "append 6", "rewrite 3", "snapshot 1", "rewrite 4", "snapshot 1", "rewrite 3"],
        ["append 6", "snapshot 1", "replace 2", "append 4", "snapshot 1", "delete 1"],
        ["append 6", "snapshot 1", "delete 1", "append 2", "replace 1", "snapshot 1"],
        ["append 1", "delete 1", "snapshot 1", "drop 1", "snapshot 1"],
        ["append 1", "delete 1", "snapshot 1", "append 5", "drop 1", "snapshot 1"],
        ["append 1", "snapshot 1", "delete 1", "drop 1", "snapshot 1", "append 1"],
        ["append 1", "append 2", "append 3", "drop 1", "snapshot 1", "drop 1", "append 1"],
    ],
    ids=", ".join,
)
def test_what_several_manifests_say_of_one_name_adds_up(happens: list[str]) -> None:
    life = Life(PageLimits(page_target=400, page_max=900, extents_inline=4))
    for name in NAMES:
        life.do(Step("append", name, 5))
    for words in (*happens, "snapshot 1"):
        what, count = words.split()
        life.do(Step(what, NAMES[5], int(count)))
        assert life.find(NAMES) == life.catalog
        life.check_references()
        if what == "snapshot":
            life.check_pages()


SMALL = PageLimits(page_target=400, page_max=900, extents_inline=4)


def _large_life() -> Life:
    """Two hundred names in a snapshot of many pages."""
    life = Life(SMALL)
    for at in range(200):
        life.do(Step("append" if at % 3 else "delete", f"s/n/{at:03}", 1 + at % 6))
    life.snapshot()
    assert len(life.directory.pages) > 40
    return life


def _change_each_and_check() -> None:
    life = _large_life()
    for at in range(0, 200, 7):
        for what in ("append", "delete"):
            life.do(Step(what, f"s/n/{at:03}", 3))
            life.snapshot()
            life.check_pages()
            name = [f"s/n/{at:03}"]
            assert life.find(name) == _only(life.catalog, name), "a name is not found"


def test_each_change_by_itself_is_in_the_next_snapshot() -> None:
    _change_each_and_check()


def test_an_entry_of_the_overlay_that_a_merge_loses_is_found_out() -> None:
    with overlay_lost_at_the_merge(), pytest.raises(AssertionError, match="not the catalog"):
        _change_each_and_check()


def test_a_page_that_is_looked_for_one_too_low_is_found_out() -> None:
    with page_boundary_off_by_one(), pytest.raises(AssertionError, match="not found"):
        _change_each_and_check()


def test_a_change_reads_and_writes_the_pages_next_to_it_alone() -> None:
    life = _large_life()
    for at in range(1, 200, 9):
        life.do(Step("append", f"s/n/{at:03}", 1))
        life.snapshot()
        assert len(life.shelf.written) <= 6
        assert len(life.shelf.read) <= 9


def test_a_name_is_looked_for_in_the_one_page_that_can_hold_it() -> None:
    life = _large_life()
    for at in range(200):
        name = f"s/n/{at:03}"
        life.shelf.read = []
        found = life.find([name])
        assert name in found.segments or name in found.tombstones
        kinds = [held.head.kind for held in life.shelf.read]
        assert kinds.count(PageKind.SEGMENTS) <= 1
        assert kinds.count(PageKind.TOMBSTONES) <= 1
        assert len(kinds) <= 6


def test_what_the_overlay_decides_is_found_without_reading() -> None:
    life = _large_life()
    life.do(Step("delete", "s/n/001", 1))
    life.do(Step("replace", "s/n/002", 1))
    life.shelf.read = []
    assert life.find(["s/n/001", "s/n/002"]) == _only(life.catalog, ["s/n/001", "s/n/002"])
    assert life.shelf.read == []


def test_tombstones_that_are_old_enough_are_not_found_and_leave_with_the_next_snapshot() -> None:
    life = _large_life()
    names = sorted(life.catalog.tombstones)
    made = life.catalog.tombstones[names[9]].deleted_ms
    assert life.find(names, forget_ms=made).tombstones.keys() == set(names[10:])
    life.snapshot(forget_ms=made)
    life.check_pages()
    assert life.find(names).tombstones.keys() == set(names[10:])
    life.snapshot(forget_ms=made)
    assert (life.shelf.read, life.shelf.written) == ([], []), "nothing is old enough any more"


def test_a_manifest_that_does_not_follow_the_snapshot_is_found_out_when_its_segment_is() -> None:
    life = _large_life()
    state = life.catalog.segments["s/n/001"]
    extents = life.catalog.extents[state.number]
    wrong = replace(extents[-1], start=state.length + 1)
    for change in (SegmentChange(state, added=(wrong,)), SegmentChange(state, dropped=(wrong,))):
        overlay = Overlay(life.overlay.applied_sequence)
        changes = Changes(segments=(change,))
        overlay.apply(Manifest(3, 999, 1, bytes(16), LogBinding("log"), 999, None, changes))
        below = life.shelf.perform(look_up(life.directory, [state.name]))
        with pytest.raises(CorruptManifest):
            compose(overlay, below, [state.name], NEVER_MS)
        with pytest.raises(CorruptManifest):
            life.shelf.next_snapshot(life.directory, overlay, SMALL)


@pytest.mark.parametrize(
    ("applied", "changes", "what"),
    [
        (0, Changes(), "sequence falls"),
        (
            9,
            Changes(
                segments=(SegmentChange(SegmentState("a", 1, Stamp(1, 1))),),
                tombstones=(Tombstone("a", Stamp(1, 1), 1, 1),),
            ),
            "both alive and deleted",
        ),
    ],
)
def test_a_manifest_that_breaks_an_invariant_by_itself_is_refused_at_once(
    applied: int, changes: Changes, what: str
) -> None:
    with pytest.raises(CorruptManifest, match=what):
        Overlay(5).apply(Manifest(3, 2, 1, bytes(16), LogBinding("log"), applied, None, changes))


def test_two_segments_of_one_number_are_corruption() -> None:
    states = [SegmentState(name, 7, Stamp(1, 1)) for name in "ab"]
    catalog = Catalog(9, {state.name: state for state in states}, {}, {}, {7: ()})
    overlay = overlay_between(Catalog(), catalog)
    with pytest.raises(CorruptManifest, match="same number"):
        compose(overlay, Catalog(), ["a", "b"], NEVER_MS)
    shelf = PageShelf()
    directory = shelf.snapshot(catalog, SMALL)
    with pytest.raises(CorruptManifest, match="same number"):
        shelf.perform(look_up(directory, ["a", "b"]))
