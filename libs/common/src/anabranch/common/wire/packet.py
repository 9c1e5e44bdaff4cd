"""The packet: the frame of requests and replies on a TCP connection.

Layout (little-endian)::

    u32 length        bytes that follow this field
    u8  kind          which message (`messages.py`)
    u8  flags         reserved, 0
    u16 meta size     bytes of the message, encoded as MessagePack
    u64 request id    chosen by the client, repeated by the reply
    u32 payload CRC   CRC32C of the payload (0 without a payload)
    u32 header CRC    CRC32C of the 20 bytes before it and of the message
    message, payload

Both sides send a `Hello` first. A length over the limit or a wrong checksum raises `BadPacket`; the
receiver closes the connection, because nothing after it can be trusted.
"""

import struct
from collections.abc import Iterator, Sequence

from crc32c import crc32c
from msgspec import Struct

from anabranch.common.errors import BadPacket
from anabranch.common.storage.ports import Buffer

PROTOCOL_VERSION = 1
PROTOCOL_VERSION_OLDEST = 1

HEADER = struct.Struct("<IBBHQII")
HEADER_SIZE_BYTES = HEADER.size
_HEADER_START = struct.Struct("<IBBHQI")
_LENGTH_SIZE_BYTES = 4
_META_SIZE_AT = 6
PACKET_SIZE_BYTES_MAX = 16 * 1024 * 1024 + 65536
META_SIZE_BYTES_MAX = 65535


class Packet(Struct, frozen=True, gc=False):
    """One packet with verified checksums; `meta` is the encoded message."""

    kind: int
    request_id: int
    meta: bytes
    payload: bytes


def encode_packet(
    kind: int, request_id: int, meta: bytes, payload: bytes | memoryview = b""
) -> list[bytes | memoryview]:
    """Encode the packet as buffers to write in order, without a copy of the payload."""
    assert len(meta) <= META_SIZE_BYTES_MAX
    length = HEADER_SIZE_BYTES - _LENGTH_SIZE_BYTES + len(meta) + len(payload)
    start = _HEADER_START.pack(
        length, kind, 0, len(meta), request_id, crc32c(payload) if payload else 0
    )
    head = b"".join((start, struct.pack("<I", crc32c(meta, crc32c(start))), meta))
    return [head, payload] if payload else [head]


def encode_gathered(
    kind: int, request_id: int, meta: bytes, payload: Sequence[Buffer]
) -> list[Buffer]:
    """Like `encode_packet`, with a payload that consists of several buffers."""
    assert len(meta) <= META_SIZE_BYTES_MAX
    size = sum(map(len, payload))
    payload_crc = 0
    for piece in payload:
        payload_crc = crc32c(piece, payload_crc)
    length = HEADER_SIZE_BYTES - _LENGTH_SIZE_BYTES + len(meta) + size
    start = _HEADER_START.pack(length, kind, 0, len(meta), request_id, payload_crc)
    head = b"".join((start, struct.pack("<I", crc32c(meta, crc32c(start))), meta))
    return [head, *payload]


PARTS_MAX = 1024
"""The most pieces of an unfinished packet, which bounds the cost of byte-by-byte senders."""


class PacketParser:
    """Turns received bytes into packets. Sans I/O; one per connection and direction.

    The parser keeps received buffers until a packet is complete. It then copies the packet's
    payload out of them, once.
    """

    __slots__ = ("_needed", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._needed = HEADER_SIZE_BYTES

    def feed(self, data: bytes | memoryview) -> Iterator[Packet]:
        """The packets that `data` completes. After BadPacket the parser is unusable."""
        if not self._size and _is_one_packet(data):
            return iter((_parse(data, 0, len(data)),))
        parts = self._parts
        parts.append(data if type(data) is bytes else bytes(data))
        self._size += len(data)
        if self._size < self._needed:
            if len(parts) > PARTS_MAX:
                parts[:] = [b"".join(parts)]
            return iter(())
        packets: list[Packet] = []
        at = 0
        if len(parts) > 1 and _message_end(parts[0]) <= len(parts[0]):
            at = len(parts[-1]) - (self._size - self._needed)
            packets.append(self._gathered(at))
            parts[:] = parts[-1:]
        self._drain(parts[0] if len(parts) == 1 else b"".join(parts), at, packets)
        return iter(packets)

    def _gathered(self, end: int) -> Packet:
        """The packet of several buffers, which ends at `end` of the last one."""
        first, *middle, last = self._parts
        further = (*middle, memoryview(last)[:end])
        return _parse(memoryview(first), 0, self._needed, further)

    def _drain(self, data: bytes | memoryview, at: int, packets: list[Packet]) -> None:
        """Append the packets in `data` from `at` on to `packets`, and keep the rest."""
        view = memoryview(data)
        while len(view) - at >= HEADER_SIZE_BYTES:
            size = _packet_size(view, at)
            if len(view) - at < size:
                break
            packets.append(_parse(view, at, size))
            at += size
        self._size = len(view) - at
        rest = view[at:]
        # Copy a small rest; a view would keep the whole received buffer alive while it waits.
        self._parts = [rest if 4 * self._size >= len(data) else bytes(rest)] if self._size else []
        following = _packet_size(view, at) if self._size >= HEADER_SIZE_BYTES else 0
        self._needed = following or HEADER_SIZE_BYTES

    @property
    def pending_size_bytes(self) -> int:
        """Bytes of an unfinished packet."""
        return self._size

    @property
    def unfinished_size_bytes(self) -> int:
        """The final size of the unfinished packet; a header's size until its header is complete.

        It is known as soon as `feed` has received the whole header.
        """
        return self._needed


def _is_one_packet(data: bytes | memoryview) -> bool:
    """Whether the bytes are exactly one packet, as they are if a sender awaits each reply."""
    return (
        type(data) is bytes
        and len(data) >= HEADER_SIZE_BYTES
        and _packet_size(data, 0) == len(data)
    )


def _packet_size(view: Buffer, at: int) -> int:
    (length,) = struct.unpack_from("<I", view, at)
    size: int = length + _LENGTH_SIZE_BYTES
    if not HEADER_SIZE_BYTES <= size <= PACKET_SIZE_BYTES_MAX:
        raise BadPacket("a packet's length is out of range", length=length)
    return size


def _message_end(data: bytes | memoryview) -> int:
    """Where the message of the packet at the start of `data` ends; its header may be incomplete."""
    if len(data) < HEADER_SIZE_BYTES:
        return HEADER_SIZE_BYTES
    (meta_size,) = struct.unpack_from("<H", data, _META_SIZE_AT)
    end: int = HEADER_SIZE_BYTES + meta_size
    return end


def _parse(view: bytes | memoryview, at: int, size: int, further: Sequence[Buffer] = ()) -> Packet:
    """The packet at `at`; `further` buffers hold what is not in `view` of its payload."""
    _, kind, flags, meta_size, request_id, payload_crc, header_crc = HEADER.unpack_from(view, at)
    body_at = at + HEADER_SIZE_BYTES
    end = at + size
    meta = bytes(view[body_at : body_at + meta_size])
    start = view[body_at + meta_size : end]
    payload = b"".join((start, *further)) if further else bytes(start)
    if flags or len(meta) != meta_size or body_at + meta_size > end:
        raise BadPacket("a packet's header contradicts itself", kind=kind)
    if crc32c(meta, crc32c(view[at : at + _HEADER_START.size])) != header_crc:
        raise BadPacket("a packet's header checksum does not match", kind=kind)
    if (crc32c(payload) if payload else 0) != payload_crc:
        raise BadPacket("a packet's payload checksum does not match", kind=kind)
    return Packet(kind, request_id, meta, payload)
