"""When snapshots are due; that their pages are the catalog, bounded, mostly those before."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2.page import Page, catalog_of_pages, decode_page, encode_page
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    MergedInto,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterMark,
)
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.domain.storage.snapshot import (
    RETRY_MANIFESTS_MAX,
    SinceSnapshot,
    SnapshotLimits,
    after_failure,
    after_manifest,
    snapshot_due,
)
from kit.thorough import one_in
from kit.tier2_pages import PageShelf, overlay_between, pages_of

SMALL = SnapshotLimits(page_target=1500, page_max=3000, extents_inline=4)
BIG = 2**63 - 1


def _extents(count: int, first: int = 0) -> tuple[TieredExtent, ...]:
    return tuple(
        TieredExtent(at * 10, ChunkRef(f"c3/0000000007-{at:010}", at, 10, at * 7919 % 2**32))
        for at in range(first, first + count)
    )


def _catalog(extent_counts: Sequence[int], tombstones: int = 0, writers: int = 0) -> Catalog:
    """Segments with these numbers of extents; writers belong to the first segments."""
    states = [
        SegmentState(f"scope/stream-{at}/0.#epoch.0", at + 1, Stamp(1, at), 0, count * 10, at)
        for at, count in enumerate(extent_counts)
    ]
    return Catalog(
        applied_sequence=9,
        segments={state.name: state for state in states},
        tombstones={
            f"t/{at}": Tombstone(f"t/{at}", Stamp(1, 1), at, 5) for at in range(tombstones)
        },
        writers={(at % 7 + 1, at.to_bytes(16, "big")): WriterMark(at, at) for at in range(writers)},
        extents={at + 1: _extents(count) for at, count in enumerate(extent_counts)},
    )


def _read_back(pages: Sequence[Page]) -> Catalog:
    encoded = [encode_page(page) for page in pages]
    return catalog_of_pages(9, [decode_page(data, "p") for data in encoded])


def _rewritten(before: Catalog, after: Catalog) -> int:
    """How many pages the snapshot after a change writes; it is the one made from scratch."""
    shelf = PageShelf()
    last = shelf.snapshot(before, SMALL)
    found = shelf.next_snapshot(last, overlay_between(before, after), SMALL)
    expected = [(made.page, made.head) for made in pages_of(after, SMALL)]
    assert [(shelf.pages[held.ref.name], held.head) for held in found.pages] == expected
    return len(shelf.written)


def _page_count(catalog: Catalog) -> int:
    return len(list(pages_of(catalog, SMALL)))


# --- pages ------------------------------------------------------------------------------------


@settings(max_examples=40 // one_in(4))
@given(
    extent_counts=st.lists(st.integers(0, 30), max_size=40),
    tombstones=st.integers(0, 60),
    writers=st.integers(0, 150),
    page_max=st.integers(1000, 5000),
    inline=st.integers(1, 9),
)
def test_pages_are_the_catalog_exactly_and_within_their_size(
    extent_counts: list[int], tombstones: int, writers: int, page_max: int, inline: int
) -> None:
    writers = writers if len(extent_counts) >= 7 else 0
    catalog = _catalog(extent_counts, tombstones, writers)
    limits = SnapshotLimits(page_target=1500, page_max=page_max, extents_inline=inline)
    pages = list(pages_of(catalog, limits))
    assert _read_back([made.page for made in pages]) == catalog
    assert all(len(made.data) <= page_max for made in pages)


def test_a_page_of_the_largest_numbers_is_within_its_size() -> None:
    large = [
        SegmentState(
            f"s/a/{at}",
            BIG - at,
            Stamp(BIG, BIG),
            BIG,
            BIG,
            BIG,
            sealed=True,
            modified_ms=BIG,
            attributes={key.to_bytes(16, "big"): -BIG for key in range(at)},
        )
        for at in range(9)
    ]
    ref = ChunkRef(f"c{BIG}/9999999999-9999999999", BIG, BIG, 2**32 - 1)
    catalog = Catalog(
        applied_sequence=9,
        segments={state.name: state for state in large},
        tombstones={
            f"t/{at}": Tombstone(
                f"t/{at}",
                Stamp(BIG, BIG),
                BIG,
                BIG,
                MergedInto("s/a" * 9 * (at % 2), BIG, BIG, BIG),
            )
            for at in range(99)
        },
        writers={(BIG, at.to_bytes(16, "big")): WriterMark(BIG, BIG) for at in range(99)},
        extents={
            state.number: tuple(TieredExtent(BIG - 999 + of, ref) for of in range(19 + 20 * at))
            for at, state in enumerate(large)
        },
    )
    # segments so large that one more than fits would be seen
    limits = replace(SMALL, page_target=10**9, extents_inline=20)
    pages = list(pages_of(catalog, limits))
    assert len(pages) > 5
    assert max(len(made.data) for made in pages) <= limits.page_max


def test_a_page_holds_entries_of_one_kind() -> None:
    for made in pages_of(_catalog([1, 9, 30] * 5, tombstones=9, writers=30), SMALL):
        page = made.page
        kinds = (page.segments, page.tombstones, page.writers, page.extents)
        assert sum(bool(kind) for kind in kinds) == 1


def test_an_unchanged_catalog_reads_and_writes_nothing() -> None:
    catalog = _catalog([3] * 100 + [20], tombstones=50, writers=200)
    shelf = PageShelf()
    last = shelf.snapshot(catalog, SMALL)
    assert len(last.pages) > 20
    assert shelf.next_snapshot(last, Overlay(77), SMALL).pages == last.pages
    assert (shelf.read, shelf.written) == ([], [])


@settings(max_examples=30)
@given(at=st.integers(0, 199), what=st.sampled_from(["grow", "seal", "delete", "create"]))
def test_a_small_change_rewrites_few_pages_wherever_it_is(at: int, what: str) -> None:
    before = _catalog([3] * 200, writers=400)
    name = f"scope/stream-{at}/0.#epoch.0"
    state = before.segments[name]
    segments, extents = dict(before.segments), dict(before.extents)
    writers, tombstones = dict(before.writers), dict(before.tombstones)
    if what == "grow":
        segments[name] = replace(state, length=40)
        extents[state.number] = _extents(4)
    elif what == "seal":
        segments[name] = replace(state, sealed=True)
    elif what == "delete":
        del segments[name], extents[state.number]
        tombstones = {name: Tombstone(name, Stamp(2, 1), 10, 5)}
        writers = {key: last for key, last in writers.items() if key[0] != state.number}
    else:
        segments[name + "a"] = replace(state, name=name + "a", number=999, start=30)
        extents[999] = ()
    after = Catalog(9, segments, tombstones, writers, extents)
    assert _page_count(before) > 50
    of_its_writers = _page_count(Catalog(writers=before.writers)) if at < 7 else 0
    assert _rewritten(before, after) <= 4 + (of_its_writers if what == "delete" else 0)


def test_a_segment_of_many_extents_rewrites_its_last_ones_only() -> None:
    before, after = _catalog([1000]), _catalog([1003])
    assert _page_count(before) > 20
    assert _rewritten(before, after) == 1


def test_a_truncated_segment_of_many_extents_rewrites_few_pages() -> None:
    before = _catalog([1000])
    (state,) = before.segments.values()
    after = replace(
        before,
        segments={state.name: replace(state, start=10)},
        extents={state.number: before.extents[state.number][1:]},
    )
    assert _rewritten(before, after) <= 3


def test_extents_of_no_segment_are_corruption() -> None:
    with pytest.raises(CorruptManifest, match="unknown segment"):
        _read_back([Page(extents=((1, _extents(2)),))])


# --- when -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifests", "size_bytes", "due"), [(255, 100, False), (256, 100, True), (3, 8 << 20, True)]
)
def test_a_snapshot_is_due_after_so_many_manifests_or_bytes_of_them(
    manifests: int, size_bytes: int, due: bool
) -> None:
    assert snapshot_due(SinceSnapshot(manifests, size_bytes), SnapshotLimits()) is due


def test_the_manifest_that_names_a_snapshot_is_the_first_one_after_it() -> None:
    since = after_manifest(SinceSnapshot(255, 100), 7, new_snapshot=False)
    assert since == SinceSnapshot(256, 107)
    assert after_manifest(since, 9, new_snapshot=True) == SinceSnapshot(1, 9)


def test_a_snapshot_that_fails_is_tried_again_after_more_and_more_manifests() -> None:
    limits, since = SnapshotLimits(), SinceSnapshot(256, 0)
    tried = []
    for number in range(256, 600):
        if snapshot_due(since, limits):
            tried.append(number - 256)
            since = after_failure(since)
        since = after_manifest(since, 1, new_snapshot=False)
    assert tried[:8] == [0, 1, 3, 7, 15, 31, 63, 127]
    assert tried[8] - tried[7] == RETRY_MANIFESTS_MAX
