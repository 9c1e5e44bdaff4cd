"""The codecs of manifests, pages and page indexes."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from anabranch.common.errors import CorruptManifest, FormatTooNew
from anabranch.common.model.cluster import Abandonment
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2 import manifest as m
from anabranch.common.tier2 import page as p
from anabranch.common.tier2 import page_index as i
from anabranch.common.tier2.envelope import HEAD, open_envelope, seal_envelope
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
from kit.golden import assert_golden, read_golden

OLD_STATE = SegmentState(
    "s/a/0.#epoch.0", 9, Stamp(2, 5), 3, 40, 12, sealed=True, start_event_count=-1
)
STATE_5 = replace(OLD_STATE, modified_ms=77, attributes={bytes(16): -5, b"a" * 16: 2**62})
STATE = replace(STATE_5, start_event_count=2)
EXTENT_5 = TieredExtent(0, ChunkRef("c3/0000000007-0000000001", 16, 40, 0xDEADBEEF))
EXTENT = replace(EXTENT_5, events_before=0)
OLD_TOMBSTONE = Tombstone("s/a/1.#epoch.0", Stamp(1, 7), 11, 1_700_000_000_000)
TOMBSTONE = replace(OLD_TOMBSTONE, merged=MergedInto(STATE.name, 9, 10, 30))
OLD_WRITERS = {(9, bytes(range(16))): WriterMark(12), (4, bytes(16)): WriterMark(3)}
WRITERS = {key: WriterMark(mark.last, 1_700_000_000_123) for key, mark in OLD_WRITERS.items()}
OF_STREAM = "scope/stream/0.#epoch.0"
KINDS = {
    OF_STREAM: SegmentKind.STREAM,
    f"{OF_STREAM}#transaction.{'0a' * 16}.{'0c' * 16}": SegmentKind.TRANSACTION,
    f"{OF_STREAM}#transient.{'0b' * 16}": SegmentKind.TRANSIENT,
}
MANIFEST = m.Manifest(
    container=3,
    number=42,
    container_epoch=7,
    nonce=bytes(range(16, 32)),
    log=m.LogBinding("0123456789abcdef", closed=True),
    applied_sequence=1234,
    snapshot=m.SnapshotRef(40, ChunkRef("c3/0000000006-0000000009", 0, 77, 5)),
    changes=m.Changes(
        segments=(m.SegmentChange(STATE, (EXTENT,), (EXTENT,)),),
        tombstones=(TOMBSTONE,),
        tombstones_dropped=("s/a/2.#epoch.0",),
        writers=WRITERS,
        writers_dropped=((4, bytes(range(16))),),
    ),
)
MANIFEST_5 = replace(
    MANIFEST,
    changes=replace(
        MANIFEST.changes, segments=(m.SegmentChange(STATE_5, (EXTENT_5,), (EXTENT_5,)),)
    ),
)
ABANDONED_5 = replace(MANIFEST_5, abandoned=Abandonment("fedcba", 1200, 1_700_000_000_001))
ABANDONED = replace(MANIFEST, abandoned=Abandonment("fedcba", 1200, 1_700_000_000_001))
PAGE = p.Page(((STATE, (EXTENT,)),), (TOMBSTONE,), WRITERS)
PAGE_4 = replace(PAGE, segments=((STATE_5, (EXTENT_5,)),))
HEADS = (
    i.PageHead(i.PageKind.SEGMENTS, b"s/a/0", b"s/a/9", anchored=True),
    i.PageHead(i.PageKind.TOMBSTONES, b"s/a/0", b"s/b/3", anchored=False, oldest_ms=77),
)
INDEX = i.PageIndex(3, 40, 1200, (EXTENT.ref, replace(EXTENT.ref, offset=9)), HEADS)
OLD_INDEX = i.PageIndex(3, 40, 1200, (EXTENT.ref,))

OLD_MANIFEST = replace(
    MANIFEST,
    changes=replace(
        MANIFEST.changes,
        segments=(m.SegmentChange(OLD_STATE, (EXTENT_5,), (EXTENT_5,)),),
        tombstones=(OLD_TOMBSTONE,),
        writers=OLD_WRITERS,
    ),
)
OLD_PAGE = p.Page(((OLD_STATE, (EXTENT_5,)),), (OLD_TOMBSTONE,), OLD_WRITERS)
MANIFEST_2 = replace(MANIFEST_5, changes=replace(MANIFEST_5.changes, writers=OLD_WRITERS))
PAGE_2 = replace(PAGE_4, writers=OLD_WRITERS)

CODECS: list[tuple[str, bytes, Callable[[bytes], object], object]] = [
    (
        "manifest_format_6",
        m.encode_manifest(MANIFEST),
        lambda data: m.decode_manifest(data, 3, 42),
        MANIFEST,
    ),
    (
        "manifest_abandoned_format_6",
        m.encode_manifest(ABANDONED),
        lambda data: m.decode_manifest(data, 3, 42),
        ABANDONED,
    ),
    ("page_format_5", p.encode_page(PAGE), lambda data: p.decode_page(data, "page"), PAGE),
    ("page_index_format_2", i.encode_index(INDEX), lambda data: i.decode_index(data, "i"), INDEX),
]
each_codec = pytest.mark.parametrize(("name", "data", "decode", "value"), CODECS)


@each_codec
def test_the_format_is_frozen_and_read_back(
    name: str, data: bytes, decode: Callable[[bytes], object], value: object
) -> None:
    assert_golden(name, data)
    assert decode(read_golden(name)) == value


def test_what_format_1_wrote_is_read() -> None:
    assert m.decode_manifest(read_golden("manifest_format_1"), 3, 42) == OLD_MANIFEST
    assert p.decode_page(read_golden("page_format_1"), "page") == OLD_PAGE
    assert i.decode_index(read_golden("page_index_format_1"), "i") == OLD_INDEX


def test_what_format_2_wrote_is_read() -> None:
    assert m.decode_manifest(read_golden("manifest_format_2"), 3, 42) == MANIFEST_2
    assert p.decode_page(read_golden("page_format_2"), "page") == PAGE_2


def test_what_format_3_wrote_is_read() -> None:
    assert m.decode_manifest(read_golden("manifest_format_3"), 3, 42) == MANIFEST_5
    assert m.decode_manifest(read_golden("manifest_abandoned"), 3, 42) == ABANDONED_5
    assert p.decode_page(read_golden("page_format_3"), "page") == PAGE_4


def test_what_format_4_wrote_is_read() -> None:
    assert m.decode_manifest(read_golden("manifest_format_4"), 3, 42) == MANIFEST_5
    assert m.decode_manifest(read_golden("manifest_abandoned_format_4"), 3, 42) == ABANDONED_5
    assert p.decode_page(read_golden("page_format_4"), "page") == PAGE_4


def test_what_format_5_wrote_is_read() -> None:
    assert m.decode_manifest(read_golden("manifest_format_5"), 3, 42) == MANIFEST_5
    assert m.decode_manifest(read_golden("manifest_abandoned_format_5"), 3, 42) == ABANDONED_5


def test_before_format_6_the_first_number_is_known_of_segments_that_were_never_truncated() -> None:
    page = p.decode_page(read_golden("page_before_kinds"), "page")
    assert {state.start_event_count for state, _ in page.segments if not state.start} == {0}


def test_a_segment_without_a_kind_has_the_one_that_its_name_says() -> None:
    page = p.decode_page(read_golden("page_before_kinds"), "page")
    manifest = m.decode_manifest(read_golden("manifest_before_kinds"), 3, 42)
    for states in (
        [state for state, _ in page.segments],
        [change.state for change in manifest.changes.segments],
    ):
        assert {state.name: state.kind for state in states} == KINDS


def test_the_kind_that_is_stored_counts_and_not_the_name() -> None:
    page = p.Page(((replace(STATE, kind=SegmentKind.TRANSIENT), ()),))
    assert p.decode_page(p.encode_page(page), "page") == page


def test_a_kind_that_is_not_known_is_damage() -> None:
    body = open_envelope(
        p.encode_page(PAGE), p.PAGE_MAGIC, p.FORMAT, name="page", damaged=CorruptManifest
    )
    found = msgspec.msgpack.decode(body)
    found["segments"][0][0][-2] = 99
    data = seal_envelope(p.PAGE_MAGIC, p.FORMAT, msgspec.msgpack.encode(found))
    with pytest.raises(CorruptManifest):
        p.decode_page(data, "page")


@each_codec
def test_every_flipped_bit_is_detected(
    name: str, data: bytes, decode: Callable[[bytes], object], value: object
) -> None:
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptManifest):
                decode(bytes(damaged))


@each_codec
def test_every_truncation_and_anything_appended_is_detected(
    name: str, data: bytes, decode: Callable[[bytes], object], value: object
) -> None:
    for wrong in (*(data[:size] for size in range(len(data))), data + b"\0"):
        with pytest.raises(CorruptManifest):
            decode(wrong)


@each_codec
def test_a_newer_format_is_named_as_such(
    name: str, data: bytes, decode: Callable[[bytes], object], value: object
) -> None:
    newer = seal_envelope(data[:4], 7, data[HEAD.size :])
    with pytest.raises(FormatTooNew):
        decode(newer)


@each_codec
def test_fields_that_are_not_known_are_ignored(
    name: str, data: bytes, decode: Callable[[bytes], object], value: object
) -> None:
    body = open_envelope(data, data[:4], 6, name=name, damaged=CorruptManifest)
    fields = msgspec.msgpack.decode(body) | {"later": [1, 2]}
    assert decode(seal_envelope(data[:4], 1, msgspec.msgpack.encode(fields))) == value


def test_elements_added_at_the_end_of_an_entry_are_ignored() -> None:
    body = m.encode_manifest(MANIFEST)[HEAD.size :]
    fields = msgspec.msgpack.decode(body)
    fields["tombstones"][0].append("later")
    data = seal_envelope(m.MAGIC, 1, msgspec.msgpack.encode(fields))
    assert m.decode_manifest(data, 3, 42) == MANIFEST


def test_a_body_without_sense_is_corrupt_even_with_a_right_checksum() -> None:
    with pytest.raises(CorruptManifest, match="malformed"):
        m.decode_manifest(seal_envelope(m.MAGIC, 1, b"\x80"), 3, 42)


def test_a_manifest_under_anothers_name_is_refused() -> None:
    for container, number in ((3, 43), (4, 42)):
        with pytest.raises(CorruptManifest, match="another"):
            m.decode_manifest(m.encode_manifest(MANIFEST), container, number)


def test_equal_manifests_have_equal_bytes_whatever_the_order_of_their_writers() -> None:
    other = m.Changes(
        MANIFEST.changes.segments,
        MANIFEST.changes.tombstones,
        MANIFEST.changes.tombstones_dropped,
        dict(reversed(WRITERS.items())),
        MANIFEST.changes.writers_dropped,
    )
    assert m.encode_manifest(replace(MANIFEST, changes=other)) == m.encode_manifest(MANIFEST)


def test_pages_make_up_the_catalog() -> None:
    pages = [
        p.Page(((STATE, (EXTENT,)),)),
        p.Page(tombstones=(TOMBSTONE,)),
        p.Page(writers=WRITERS),
    ]
    assert p.catalog_of_pages(1200, pages) == Catalog(
        1200, {STATE.name: STATE}, {TOMBSTONE.name: TOMBSTONE}, WRITERS, {9: (EXTENT,)}
    )


@pytest.mark.parametrize(
    "heads",
    [
        HEADS[:1],
        HEADS[::-1],
        (HEADS[0], replace(HEADS[1], kind=i.PageKind.SEGMENTS)),
        (replace(HEADS[0], first=b"t"), HEADS[1]),
    ],
    ids=["one is missing", "kinds descend", "ranges meet", "last before first"],
)
def test_an_index_whose_heads_have_no_order_is_refused(heads: tuple[i.PageHead, ...]) -> None:
    fields = msgspec.msgpack.decode(i.encode_index(INDEX)[HEAD.size :])
    fields["heads"] = [(h.kind, h.first, h.last, h.anchored, h.oldest_ms) for h in heads]
    data = seal_envelope(i.MAGIC, i.FORMAT, msgspec.msgpack.encode(fields))
    with pytest.raises(CorruptManifest, match=r"head|ascend"):
        i.decode_index(data, "index")


def test_a_kind_of_page_that_is_not_known_makes_no_sense() -> None:
    fields = msgspec.msgpack.decode(i.encode_index(INDEX)[HEAD.size :])
    fields["heads"][1][0] = 9
    data = seal_envelope(i.MAGIC, i.FORMAT, msgspec.msgpack.encode(fields))
    with pytest.raises(CorruptManifest, match="malformed"):
        i.decode_index(data, "index")


def test_a_page_that_is_not_what_its_index_says_is_refused() -> None:
    page = p.Page(((STATE, (EXTENT,)),))
    key = i.name_key(STATE.name)
    head = i.PageHead(i.PageKind.SEGMENTS, key, key, anchored=True)
    i.check_page(page, i.HeldPage(EXTENT.ref, head))
    for wrong in (replace(head, last=b"z"), replace(head, kind=i.PageKind.TOMBSTONES)):
        with pytest.raises(CorruptManifest, match="its index"):
            i.check_page(page, i.HeldPage(EXTENT.ref, wrong))
    for wrong_page in (p.Page(), PAGE):
        with pytest.raises(CorruptManifest, match="mixes kinds"):
            i.check_page(wrong_page, i.HeldPage(EXTENT.ref, head))
    with pytest.raises(CorruptManifest, match="ascend"):
        i.check_page(p.Page(page.segments * 2), i.HeldPage(EXTENT.ref, head))


def test_two_pages_with_the_same_key_are_refused() -> None:
    page = p.Page(((STATE, (EXTENT,)),))
    with pytest.raises(CorruptManifest, match="same key"):
        p.catalog_of_pages(1200, [page, page])
