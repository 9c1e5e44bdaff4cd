"""Every decoder of bytes from outside, as something to throw bytes at.

A target decodes completely and returns what it believed, item by item. `seal` makes the checksums
of damaged bytes right, so that what lies behind them is tried too.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crc32c import crc32c
from msgspec.structs import replace

from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    CorruptBlock,
    CorruptChunk,
    CorruptJournal,
    CorruptManifest,
    FormatTooNew,
    MalformedBlock,
)
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.tier2 import chunk, envelope
from anabranch.common.tier2.manifest import decode_manifest
from anabranch.common.tier2.page import Page, catalog_of_pages, decode_page
from anabranch.common.tier2.page_index import decode_index
from anabranch.common.tier2.state import ChunkRef
from anabranch.common.tier2.streams import (
    ExportedEpoch,
    ExportedStream,
    decode_stream,
    encode_stream,
    stream_object_name,
)
from anabranch.common.wire import packet
from anabranch.common.wire.block import (
    FLAG_LARGE,
    HEADER_SIZE_BYTES,
    Block,
    LargeReference,
    count_events,
    verify_block,
)
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.common.wire.codec import CODEC_NONE
from anabranch.common.wire.contents import check_contents
from anabranch.common.wire.event_key import event_key
from anabranch.common.wire.messages import Failed, decode_message, encode_message, error_of
from anabranch.common.wire.packet import PacketParser
from anabranch.segstore.adapters.journal.layout import read_small_bytes
from anabranch.segstore.domain.container.operations import AppendOperation, decode_operations
from anabranch.segstore.domain.log import formats
from anabranch.segstore.domain.log.scan import scan_file
from kit.golden import read_golden
from kit.message_samples import SAMPLES

CHUNK = "c3/0000000007-0000000012"
JOURNAL = (CorruptJournal, FormatTooNew)
OPERATIONS = ("log_operations", "log_operations_format_2", "log_operations_format_4")
STREAM = stream_ref("demo/flights")


@dataclass(frozen=True, slots=True)
class Shape:
    """`put(seed, body)`: the seed with another body, its lengths and checksums right."""

    take: Callable[[bytes], bytes]
    put: Callable[[bytes, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """`guarded`: what is not sealed anew and yet believed must be a part of a seed.

    `shape`: how the MessagePack in a seed is taken out, to be changed value by value, and put back.
    """

    name: str
    seeds: Sequence[bytes]
    decode: Callable[[bytes], Sequence[str]]
    errors: tuple[type[AnabranchError], ...]
    seal: Callable[[bytes], bytes] | None = None
    guarded: bool = True
    shape: Shape | None = None


# --- wire ---------------------------------------------------------------------------------------


def _packets(data: bytes) -> list[str]:
    parser = PacketParser()
    half = len(data) // 2
    found = []
    for part in (data[:half], data[half:]):
        for item in parser.feed(part):
            message = decode_message(item)
            if isinstance(message, Failed):
                assert str(error_of(message)) is not None
            found.append(f"{item.request_id} {message!r} {item.payload.hex()}")
    return found


def _seal_packet(data: bytes) -> bytes:
    if len(data) < packet.HEADER_SIZE_BYTES:
        return data
    _, kind, _, meta_size, request_id, _, _ = packet.HEADER.unpack_from(data)
    body = data[packet.HEADER_SIZE_BYTES :]
    meta_size = min(meta_size, len(body), packet.META_SIZE_BYTES_MAX)
    return b"".join(packet.encode_packet(kind, request_id, body[:meta_size], body[meta_size:]))


def _take_meta(data: bytes) -> bytes:
    (found,) = PacketParser().feed(data)
    return found.meta


def _put_meta(data: bytes, meta: bytes) -> bytes:
    (found,) = PacketParser().feed(data)
    meta = meta[: packet.META_SIZE_BYTES_MAX]
    return b"".join(packet.encode_packet(found.kind, found.request_id, meta, found.payload))


def _block(data: bytes) -> list[str]:
    count_events(data)
    found = Block(data)
    return [repr((found.header, found.events(), found.keys(), found.timestamps_ms()))]


def _stored_block(data: bytes) -> list[str]:
    """What a store accepts a reader can read; of a compressed block only as far as a store can
    tell without decompressing it."""
    header = verify_block(data)
    if header.size != len(data):
        raise CorruptBlock("an append is one whole block")
    check_contents(header, data)
    try:
        found = Block(data)
        if found.header.is_part:
            return [repr((found.header, bytes(found.part())))]
        if found.header.is_large:
            LargeReference.parse(found[0])
        keys = [None if key is None else key.decode() for key in found.keys()]  # noqa: SIM118
        if header.codec == CODEC_NONE and not found.header.is_large:
            sampled = [event_key(data, index) for index in range(len(keys))]
            assert sampled == list(zip(found.keys(), map(len, found.events()), strict=True))
        return [repr((found.header, found.events(), keys, found.timestamps_ms()))]
    except CorruptBlock as error:
        if header.codec == CODEC_NONE:
            raise AssertionError("a store accepts what readers refuse") from error
        raise


def _event_keys(data: bytes) -> list[str]:
    """At most, no event is found: byte streams are sampled too, and no bytes make that fail."""
    found = [event_key(data, index) for index in (0, 1, 50, 1_000_000)]
    if not any(found):
        raise MalformedBlock("no event was found")
    return [repr(found)]


def _odd_blocks() -> list[bytes]:
    """A part, a reference to parts, and events of many sizes some of which have a key."""
    writer = bytes(16)
    reference = LargeReference(0, 100, 90, 7).encode()
    sizes = range(0, 700, 7)
    return [
        encode_part(b"piece", writer_id=writer, number=1, base_timestamp_ms=1),
        encode_block(
            [reference], writer_id=writer, first_event_number=1, base_timestamp_ms=1,
            flags=FLAG_LARGE,
        ),
        encode_block(
            [bytes(size) for size in sizes], writer_id=writer, first_event_number=1,
            base_timestamp_ms=1, keys=["é".encode() * (size % 3) if size % 2 else None
                                       for size in sizes],
        ),
    ]  # fmt: skip


def _seal_block(data: bytes) -> bytes:
    if len(data) < HEADER_SIZE_BYTES:
        return data
    head = data[:16][:12] + struct.pack("<I", len(data)) + data[16 : HEADER_SIZE_BYTES - 4]
    body = data[HEADER_SIZE_BYTES:]
    return head + struct.pack("<I", crc32c(body, crc32c(head))) + body


# --- journal ------------------------------------------------------------------------------------


def _journal_header(data: bytes) -> list[str]:
    return [repr(formats.parse_file_header(data, "journal"))]


def _seal_header(data: bytes) -> bytes:
    start = data[: formats.FILE_HEADER_SIZE_BYTES - 4]
    rest = data[formats.FILE_HEADER_SIZE_BYTES :]
    return start + struct.pack("<I", crc32c(start)) + rest


def _journal_file(data: bytes) -> list[str]:
    header = formats.parse_file_header(data, "journal")
    scanned = scan_file(data, header)
    found = []
    for frame in scanned.frames:
        payload = data[frame.position + formats.FRAME_HEADER_SIZE_BYTES : frame.end]
        found += _operations(payload, frame.first_sequence)
    return found


def _journal_seed() -> bytes:
    file_id = formats.file_id_of(3, 7)
    seed = formats.frame_seed(file_id)
    data = formats.encode_file_header(formats.FileHeader("ab" * 16, file_id, 2048, formats.NO_FILE))
    previous = 0
    for name in OPERATIONS:
        payload = read_golden(name)
        content = formats.FrameContent(1, 2, _first(payload), 4, [payload], len(payload))
        head, previous = formats.encode_frame_header(content, 0, previous, seed)
        data += head + payload
    return data.ljust(2048, b"\0")


def _first(payload: bytes) -> int:
    """The sequence number of the first operation."""
    (sequence,) = struct.unpack_from("<Q", payload, 8)
    return int(sequence)


def _seal_journal(data: bytes) -> bytes:
    """Checksums of the header, and of every frame that lies whole in the file."""
    sealed = bytearray(_seal_header(data))
    if len(sealed) < formats.FILE_HEADER_SIZE_BYTES:
        return bytes(sealed)
    (file_id,) = struct.unpack_from("<Q", sealed, 24)
    seed, crc = formats.frame_seed(file_id), struct.unpack_from("<I", sealed, 64)[0]
    at = sealed.find(formats.FRAME_MAGIC, formats.FILE_HEADER_SIZE_BYTES)
    while 0 <= at <= len(sealed) - formats.FRAME_HEADER_SIZE_BYTES:
        (size,) = struct.unpack_from("<I", sealed, at + 28)
        body = at + formats.FRAME_HEADER_SIZE_BYTES
        struct.pack_into("<I", sealed, at + 36, crc)
        head = bytes(sealed[at : body - 4])
        crc = formats.checksum(head, [bytes(sealed[body : body + size])], seed)
        struct.pack_into("<I", sealed, body - 4, crc)
        at = sealed.find(formats.FRAME_MAGIC, at + 1)
    return bytes(sealed)


def _operations(payload: bytes, first: int) -> list[str]:
    found = []
    for each in decode_operations(payload, first):
        operation = each.operation
        if isinstance(operation, AppendOperation):
            operation = replace(operation, payload=bytes(operation.payload))
        found.append(f"{each.sequence} {operation!r}")
    return found


def _log_operations(name: str) -> Target:
    """They have no checksum of their own: their frame's guards them."""
    seed = read_golden(name)
    first = _first(seed)
    return Target(name, [seed], lambda data: _operations(data, first), JOURNAL, guarded=False)


def _small_file(data: bytes) -> list[str]:
    return read_small_bytes(data, "format")


def _seal_small(data: bytes) -> bytes:
    body = data.rpartition(b"crc ")[0]
    return body + b"crc %08x\n" % crc32c(body)


# --- tier 2 -------------------------------------------------------------------------------------


def _chunk(data: bytes) -> list[str]:
    footer = chunk.decode_footer(data, CHUNK, len(data))
    first, end = chunk.block_span(footer, 0, footer.data_length)
    chunk.check_blocks(footer, first, data[first:end])
    for piece in footer.pieces:
        chunk.referred_piece(footer, ChunkRef(CHUNK, piece.offset, piece.length, piece.crc))
    return [repr(footer)]


def _seal_chunk(data: bytes) -> bytes:
    if len(data) < chunk.TRAILER_SIZE_BYTES:
        return data
    length, number, reserved, _, _ = chunk.TRAILER.unpack(data[-chunk.TRAILER_SIZE_BYTES :])
    length = min(length, len(data) - chunk.TRAILER_SIZE_BYTES)
    start = len(data) - chunk.TRAILER_SIZE_BYTES - length
    body, head = data[start : start + length], struct.pack("<IHH", length, number, reserved)
    trailer = struct.pack("<I4s", crc32c(head, crc32c(body)), chunk.MAGIC)
    return data[: start + length] + head + trailer


def _footer_size(data: bytes) -> int:
    return chunk.footer_size(data, CHUNK, len(data))


def _take_footer(data: bytes) -> bytes:
    return data[-_footer_size(data) : -chunk.TRAILER_SIZE_BYTES]


def _put_footer(data: bytes, body: bytes) -> bytes:
    trailer = chunk.TRAILER.pack(len(body), chunk.FORMAT, 0, 0, chunk.MAGIC)
    return _seal_chunk(data[: -_footer_size(data)] + body + trailer)


def _put_enveloped(data: bytes, body: bytes) -> bytes:
    magic, number, _, _, _ = envelope.HEAD.unpack_from(data)
    return envelope.seal_envelope(magic, number, body)


def _enveloped(name: str, seeds: Sequence[bytes], decode: Callable[[bytes], object]) -> Target:
    shape = Shape(lambda data: data[envelope.HEAD.size :], _put_enveloped)
    errors = (CorruptManifest, FormatTooNew)
    return Target(name, seeds, lambda data: [repr(decode(data))], errors, _seal_envelope,
                  shape=shape)  # fmt: skip


def _page(data: bytes) -> Page:
    page = decode_page(data, "page")
    catalog_of_pages(1, [page])
    return page


def _seal_envelope(data: bytes) -> bytes:
    if len(data) < envelope.HEAD.size:
        return data
    magic, number, _, _, _ = envelope.HEAD.unpack_from(data)
    return envelope.seal_envelope(magic, number, data[envelope.HEAD.size :])


def _stream_seed() -> bytes:
    keys = even_ranges(4)
    segments = tuple(SegmentRange(segment_id(0, at), each) for at, each in enumerate(keys))
    return encode_stream(
        ExportedStream(
            ref=STREAM, incarnation=1, revision=42, state=StreamState.ACTIVE, created_ms=1,
            container_count=4, epochs=(ExportedEpoch(0, segments),),
        )
    )  # fmt: skip


def _golden(*names: str) -> tuple[bytes, ...]:
    return tuple(map(read_golden, names))


TARGETS: tuple[Target, ...] = (
    Target(
        "packets",
        [b"".join(encode_message(each, 7, b"payload")) for each in SAMPLES],
        _packets,
        (BadPacket,),
        _seal_packet,
        shape=Shape(_take_meta, _put_meta),
    ),
    Target(
        "blocks",
        _golden("block_plain", "block_keys_timestamps", "block_zstd"),
        _block,
        (CorruptBlock, FormatTooNew),
        _seal_block,
    ),
    Target(
        "blocks at the door",
        [*_golden("block_plain", "block_keys_timestamps", "block_zstd"), *_odd_blocks()],
        _stored_block,
        (CorruptBlock, FormatTooNew, MalformedBlock),
        _seal_block,
    ),
    Target(
        "keys of single events",
        [*_golden("block_plain", "block_keys_timestamps"), *_odd_blocks()[1:]],
        _event_keys,
        (MalformedBlock,),
        _seal_block,
        guarded=False,
    ),
    Target("journal headers", _golden("journal_file_header"), _journal_header, JOURNAL,
           _seal_header),
    Target("journal files", [_journal_seed()], _journal_file, JOURNAL, _seal_journal),
    Target("small files", [_seal_small(b"anabranch journal\nformat 1\njournal ab\n")],
           _small_file, JOURNAL, _seal_small),
    *map(_log_operations, OPERATIONS),
    Target("chunks", _golden("chunk_format_1"), _chunk, (CorruptChunk, FormatTooNew), _seal_chunk,
           shape=Shape(_take_footer, _put_footer)),
    _enveloped("manifests", _golden("manifest_format_1", "manifest_format_4", "manifest_format_5"),
               lambda data: decode_manifest(data, 3, 42)),
    _enveloped("pages", _golden("page_format_1", "page_format_4"), _page),
    _enveloped("page indexes", _golden("page_index_format_1", "page_index_format_2"),
               lambda data: decode_index(data, "index")),
    _enveloped("streams", [_stream_seed()],
               lambda data: decode_stream(data, stream_object_name(STREAM, 42))),
)  # fmt: skip
