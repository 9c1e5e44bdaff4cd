"""The chunk: a tier-2 object that holds pieces of one or many segments.

    data     the pieces, one after another
    footer   MessagePack: the object's own name; per piece {segment name, number, start in the
             segment, offset in the object, length, CRC32C, sparse entries}; one CRC32C per
             64 KiB of the data
    trailer  16 bytes, little-endian: footer length, format, reserved, CRC32C, magic

A chunk is read from its end. The trailer keeps its shape in every format; its CRC covers the
footer and the trailer's own first half. A sparse entry describes an append boundary: the bytes and
events before it, relative to its piece, and the time of the append.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from crc32c import crc32c

from anabranch.common.errors import CorruptChunk, FormatTooNew
from anabranch.common.tier2.state import ChunkRef
from anabranch.common.wire.malformed import MALFORMED

Buffer = bytes | bytearray | memoryview

MAGIC = b"ANCH"
FORMAT = 1
CRC_BLOCK_BYTES = 64 * 1024
TRAILER = struct.Struct("<IHHI4s")
TRAILER_SIZE_BYTES = TRAILER.size
_UNCHECKED = struct.Struct("<IHH")


@dataclass(frozen=True, slots=True)
class SparseEntry:
    """An append boundary, relative to its piece: bytes and events before it, and the time of the
    youngest append since the entry before."""

    offset: int
    event_count: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Piece:
    """`length` bytes of a segment from `start` on, stored at `offset` of the object."""

    segment_name: str
    segment_number: int
    start: int
    offset: int
    length: int
    crc: int
    entries: tuple[SparseEntry, ...]


@dataclass(frozen=True, slots=True)
class ChunkFooter:
    """The footer of a chunk. Its pieces are adjacent and sorted by offset."""

    name: str
    data_length: int
    pieces: tuple[Piece, ...]
    block_crcs: tuple[int, ...]


class _EntryWire(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    event_count: int
    time_ms: int


class _PieceWire(msgspec.Struct, array_like=True, frozen=True):
    segment_name: str
    segment_number: int
    start: int
    offset: int
    length: int
    crc: int
    entries: tuple[_EntryWire, ...]


class _FooterWire(msgspec.Struct, frozen=True):
    name: str
    data_length: int
    block_size: int
    block_crcs: bytes
    pieces: tuple[_PieceWire, ...]


_decoder = msgspec.msgpack.Decoder(_FooterWire)


def crc_of(parts: Sequence[Buffer], crc: int = 0) -> int:
    """The CRC32C of the joined parts, continued from the CRC of the bytes before them."""
    for part in parts:
        crc = crc32c(part, crc)
    return crc


class BlockCrcs:
    """Computes the CRC32C of each 64 KiB block of data that arrives in parts."""

    def __init__(self) -> None:
        self._crcs: list[int] = []
        self._crc, self._room = 0, CRC_BLOCK_BYTES

    def add(self, part: Buffer) -> None:
        """Add the next part."""
        view = memoryview(part)
        while view:
            taken = view[: self._room]
            self._crc, self._room = crc32c(taken, self._crc), self._room - len(taken)
            view = view[len(taken) :]
            if self._room == 0:
                self._crcs.append(self._crc)
                self._crc, self._room = 0, CRC_BLOCK_BYTES

    def end(self) -> tuple[int, ...]:
        """The CRC32C of each block; the last block may be shorter."""
        return (*self._crcs, self._crc) if self._room < CRC_BLOCK_BYTES else tuple(self._crcs)


def block_crcs_of(parts: Sequence[Buffer]) -> tuple[int, ...]:
    """The CRC32C of each 64 KiB block of the joined parts; the last block may be shorter."""
    crcs = BlockCrcs()
    for part in parts:
        crcs.add(part)
    return crcs.end()


def encode_footer(footer: ChunkFooter) -> bytes:
    """Encode the footer and the trailer, which follow the data in the object."""
    wire = _FooterWire(
        name=footer.name,
        data_length=footer.data_length,
        block_size=CRC_BLOCK_BYTES,
        block_crcs=struct.pack(f"<{len(footer.block_crcs)}I", *footer.block_crcs),
        pieces=tuple(_piece_to_wire(piece) for piece in footer.pieces),
    )
    body = msgspec.msgpack.encode(wire)
    head = _UNCHECKED.pack(len(body), FORMAT, 0)
    crc = crc32c(head, crc32c(body))
    return body + TRAILER.pack(len(body), FORMAT, 0, crc, MAGIC)


def _piece_to_wire(piece: Piece) -> _PieceWire:
    return _PieceWire(
        segment_name=piece.segment_name,
        segment_number=piece.segment_number,
        start=piece.start,
        offset=piece.offset,
        length=piece.length,
        crc=piece.crc,
        entries=tuple(
            _EntryWire(entry.offset, entry.event_count, entry.time_ms) for entry in piece.entries
        ),
    )


def footer_size(tail: bytes, name: str, object_size: int) -> int:
    """The size of footer and trailer together, according to the object's end (≥ 16 bytes).

    Raises CorruptChunk. The size is not verified; `decode_footer` verifies it.
    """
    if len(tail) < TRAILER_SIZE_BYTES:
        raise CorruptChunk("the chunk is truncated", name=name, size=object_size)
    length, _, _, _, magic = TRAILER.unpack(tail[-TRAILER_SIZE_BYTES:])
    if magic != MAGIC:
        raise CorruptChunk("the chunk has no valid end mark", name=name, size=object_size)
    size = int(length) + TRAILER_SIZE_BYTES
    if size > object_size:
        raise CorruptChunk("the chunk is shorter than its footer", name=name, size=object_size)
    return size


def decode_footer(tail: bytes, name: str, object_size: int) -> ChunkFooter:
    """Decode and verify the footer of the object `name` of `object_size` bytes.

    `tail` is the end of the object, at least footer and trailer. Raises CorruptChunk, FormatTooNew.
    """
    size = footer_size(tail, name, object_size)
    if len(tail) < size:
        raise CorruptChunk("the chunk's footer is truncated", name=name, size=object_size)
    body = tail[-size:-TRAILER_SIZE_BYTES]
    _, format_number, _, crc, _ = TRAILER.unpack(tail[-TRAILER_SIZE_BYTES:])
    head = tail[-TRAILER_SIZE_BYTES:][: _UNCHECKED.size]
    if crc32c(head, crc32c(body)) != crc:
        raise CorruptChunk("the checksum of the chunk's footer does not match", name=name)
    if format_number > FORMAT:
        raise FormatTooNew(
            "the chunk was written by a newer release",
            name=name, found=format_number, supported=FORMAT,
        )  # fmt: skip
    try:
        wire = _decoder.decode(body)
    except MALFORMED as error:
        raise CorruptChunk("the chunk's footer is malformed", name=name) from error
    footer = _footer_from_wire(wire)
    _check_footer(footer, wire.block_size, name, object_size - size)
    return footer


def _footer_from_wire(wire: _FooterWire) -> ChunkFooter:
    crcs = array("I", wire.block_crcs[: len(wire.block_crcs) // 4 * 4])
    return ChunkFooter(
        name=wire.name,
        data_length=wire.data_length,
        pieces=tuple(
            Piece(
                segment_name=piece.segment_name,
                segment_number=piece.segment_number,
                start=piece.start,
                offset=piece.offset,
                length=piece.length,
                crc=piece.crc,
                entries=tuple(
                    SparseEntry(entry.offset, entry.event_count, entry.time_ms)
                    for entry in piece.entries
                ),
            )
            for piece in wire.pieces
        ),
        block_crcs=tuple(crcs),
    )


def _check_footer(footer: ChunkFooter, block_size: int, name: str, data_length: int) -> None:
    """Check that the footer, whose checksum is right, is of this object, and of all its data."""
    if footer.name != name:
        raise CorruptChunk("the chunk's footer names another chunk", name=name, found=footer.name)
    blocks = -(-data_length // CRC_BLOCK_BYTES)
    if footer.data_length != data_length or block_size != CRC_BLOCK_BYTES:
        raise CorruptChunk("the chunk's size contradicts its footer", name=name)
    if len(footer.block_crcs) != blocks:
        raise CorruptChunk("the chunk's footer lacks checksums", name=name)
    offset = 0
    for piece in footer.pieces:
        if piece.offset != offset:
            raise CorruptChunk("the chunk's pieces are not adjacent", name=name)
        offset += piece.length
    if offset != data_length:
        raise CorruptChunk("the chunk's pieces do not cover it", name=name)


def referred_piece(footer: ChunkFooter, ref: ChunkRef) -> Piece:
    """The piece of the chunk that the reference names exactly. Raises CorruptChunk."""
    for piece in footer.pieces:
        if (piece.offset, piece.length, piece.crc) == (ref.offset, ref.length, ref.crc):
            return piece
    raise CorruptChunk("the chunk holds no such piece", name=ref.name, offset=ref.offset)


def block_span(footer: ChunkFooter, offset: int, length: int) -> tuple[int, int]:
    """The half-open byte range of whole blocks that cover `length` bytes at `offset`."""
    first = offset // CRC_BLOCK_BYTES * CRC_BLOCK_BYTES
    last = -(-(offset + length) // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES
    return first, min(last, footer.data_length)


def check_blocks(footer: ChunkFooter, first: int, data: bytes) -> None:
    """Check whole blocks from `first`, a block's start, on. Raises CorruptChunk."""
    assert first % CRC_BLOCK_BYTES == 0
    index = first // CRC_BLOCK_BYTES
    found = block_crcs_of([data])
    if found != footer.block_crcs[index : index + len(found)]:
        raise CorruptChunk(
            "the checksum of a chunk's block does not match", name=footer.name, offset=first
        )
