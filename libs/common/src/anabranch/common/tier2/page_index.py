"""The page index: the pages of a snapshot, with a head for each.

Format 1 named the pages alone. Since format 2 the head of each page holds its kind, its first and
last key, and the facts that the next snapshot needs. An owner therefore opens a container of any
size without reading a page, and reads one page to find a name. The format is MessagePack in an
envelope (`envelope.py`), magic ANPX.

Keys are bytes that sort as the entries of a page do: a name in UTF-8, or a segment number with
the start of an extent or a writer id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import msgspec

from anabranch.common.errors import CorruptManifest
from anabranch.common.tier2 import wire as w
from anabranch.common.tier2.envelope import open_envelope, seal_envelope
from anabranch.common.tier2.page import Page
from anabranch.common.tier2.state import ChunkRef

MAGIC = b"ANPX"
FORMAT = 2
"""Format 2 added the heads of the pages."""
_NUMBER_SIZE_BYTES = 8


class PageKind(IntEnum):
    """The kind of a page's entries; an index lists the pages of each kind together."""

    SEGMENTS = 0
    EXTENTS = 1
    TOMBSTONES = 2
    WRITERS = 3


@dataclass(frozen=True, slots=True)
class PageHead:
    """The facts about a page that its index holds.

    `anchored`: the first entry begins a page regardless of the entries before it. `oldest_ms` is
    the time of the oldest entry that expires; 0: no entry expires.
    """

    kind: PageKind
    first: bytes
    last: bytes
    anchored: bool
    oldest_ms: int = 0


@dataclass(frozen=True, slots=True)
class HeldPage:
    """A stored page of a snapshot, and its head."""

    ref: ChunkRef
    head: PageHead


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The pages of the state after manifest `through`, at `applied_sequence`.

    `heads` are the heads of `pages`; empty if the index is of format 1.
    """

    container: int
    through: int
    applied_sequence: int
    pages: tuple[ChunkRef, ...]
    heads: tuple[PageHead, ...] = ()


# --- keys -------------------------------------------------------------------------------------


def name_key(name: str) -> bytes:
    """The key of a segment or a tombstone."""
    return name.encode()


def number_key(number: int, rest: bytes = b"") -> bytes:
    """The key of a segment's writer with the id `rest`; without `rest`, below all its keys."""
    return number.to_bytes(_NUMBER_SIZE_BYTES, "big") + rest


def extent_key(number: int, start: int) -> bytes:
    """The key of an extent in a page of extents."""
    return number_key(number, start.to_bytes(_NUMBER_SIZE_BYTES, "big"))


def number_of(key: bytes) -> int:
    """The segment number in the key of an extent or a writer."""
    return int.from_bytes(key[:_NUMBER_SIZE_BYTES], "big")


def keys_of(page: Page) -> tuple[PageKind, list[bytes]]:
    """Return a page's kind and its keys, ascending.

    Raises CorruptManifest if the page is empty or mixes kinds, or if its entries do not ascend.
    """
    keys = {
        PageKind.SEGMENTS: [name_key(state.name) for state, _ in page.segments],
        PageKind.EXTENTS: [
            extent_key(number, extent.start) for number, run in page.extents for extent in run
        ],
        PageKind.TOMBSTONES: [name_key(tombstone.name) for tombstone in page.tombstones],
        PageKind.WRITERS: [number_key(*key) for key in page.writers],
    }
    found = [(kind, held) for kind, held in keys.items() if held]
    if len(found) != 1:
        raise CorruptManifest("a page mixes kinds of entries", kinds=len(found))
    kind, ascending = found[0]
    if any(before >= after for before, after in pairwise(ascending)):
        raise CorruptManifest("the entries of a page do not ascend", kind=kind.name)
    return kind, ascending


def check_page(page: Page, held: HeldPage) -> None:
    """Check a page against its head in the index. Raises CorruptManifest."""
    kind, keys = keys_of(page)
    head = held.head
    if (kind, keys[0], keys[-1]) != (head.kind, head.first, head.last):
        raise CorruptManifest("a page contradicts its index", name=held.ref.name)


# --- codec ------------------------------------------------------------------------------------


class _HeadWire(w.Entry, frozen=True):
    kind: int
    first: bytes
    last: bytes
    anchored: bool
    oldest_ms: int


class _IndexWire(msgspec.Struct, frozen=True):
    container: int
    through: int
    applied_sequence: int
    pages: tuple[w.RefWire, ...]
    heads: tuple[_HeadWire, ...] = ()


_decoder = msgspec.msgpack.Decoder(_IndexWire)


def encode_index(index: PageIndex) -> bytes:
    """Encode the index, which has a head for each page."""
    assert len(index.heads) == len(index.pages)
    body = _IndexWire(
        container=index.container,
        through=index.through,
        applied_sequence=index.applied_sequence,
        pages=tuple(map(w.ref_to_wire, index.pages)),
        heads=tuple(map(_head_to_wire, index.heads)),
    )
    return seal_envelope(MAGIC, FORMAT, msgspec.msgpack.encode(body))


def decode_index(data: bytes, name: str) -> PageIndex:
    """Decode and verify the index of the object `name`. Raises CorruptManifest, FormatTooNew."""
    body = open_envelope(data, MAGIC, FORMAT, name=name, damaged=CorruptManifest)
    try:
        found = _decoder.decode(body)
        heads = tuple(map(_head_from_wire, found.heads))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise CorruptManifest("the page index is malformed", name=name) from error
    if heads and len(heads) != len(found.pages):
        raise CorruptManifest("the page index does not have one head per page", name=name)
    _check_order(heads, name)
    return PageIndex(
        container=found.container,
        through=found.through,
        applied_sequence=found.applied_sequence,
        pages=tuple(map(w.ref_from_wire, found.pages)),
        heads=heads,
    )


def _check_order(heads: Sequence[PageHead], name: str) -> None:
    """Check that kinds and keys ascend over the pages. Raises CorruptManifest."""
    bounds = [(head.kind, key) for head in heads for key in (head.first, head.last)]
    ranges_meet = any(
        (before.kind, before.last) >= (after.kind, after.first) for before, after in pairwise(heads)
    )
    if bounds != sorted(bounds) or ranges_meet:
        raise CorruptManifest("the pages of the index do not ascend", name=name)


def _head_to_wire(head: PageHead) -> _HeadWire:
    return _HeadWire(head.kind.value, head.first, head.last, head.anchored, head.oldest_ms)


def _head_from_wire(wire: _HeadWire) -> PageHead:
    return PageHead(PageKind(wire.kind), wire.first, wire.last, wire.anchored, wire.oldest_ms)
