"""The messages of a log that lives in a stream of another engine. Frozen by golden files; format 1.

Message (little-endian)::

    magic "ANBL", format u8, kind u8, reserved u16, container u32, container epoch u64, number u64,
    confirmed u64, previous message's CRC u32, first sequence u64, count u32, part index u16,
    part count u16, payload size u32, CRC32C u32 of all before and of the payload, payload

An *opening* is message 0 of its container epoch; the frames are numbered from 1, without gaps, and
each names the CRC of the message before it. `confirmed` is the number of the last message that the
owner knew to be durable when it sent this one. A frame that exceeds a message travels in several
parts with consecutive numbers; all parts name the operations of the whole frame.

The checksum is seeded by the log's id, so a message of one log never passes for one of another.

Payload of an opening::

    reached epoch u64, reached number u64, reached CRC u32, reached sequence u64,
    time of the stream's creation u64, nonce (16 bytes)

`reached` is the last message that counted for the opener, and the last operation up to there.
"""

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.storage.ports import Buffer

FORMAT = 1
MAGIC = b"ANBL"
NONCE_SIZE_BYTES = 16

_START = struct.Struct("<4sBBHIQQQIQIHHI")
_CRC = struct.Struct("<I")
_OPENING = struct.Struct(f"<QQIQQ{NONCE_SIZE_BYTES}s")
HEADER_SIZE_BYTES = _START.size + _CRC.size
PIECES_MAX = 64


class Kind(IntEnum):
    """The kind of a message. BASE and PROMISE are records of one copy of a replicated log."""

    OPENING = 1
    FRAME = 2
    BASE = 3
    PROMISE = 4


SHARED_KINDS = frozenset({Kind.OPENING, Kind.FRAME})
"""The kinds that a log consists of, wherever it is."""


@dataclass(frozen=True, slots=True)
class Link:
    """A message that counts, as later messages name it.

    `last_sequence`: the last operation of the whole frames up to here that were read.
    """

    container_epoch: int
    number: int
    crc: int
    last_sequence: int = 0


NOTHING = Link(0, 0, 0)
"""The link that the first opening of a log names."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message's header, checksum verified. Sizes in bytes."""

    kind: Kind
    container: int
    container_epoch: int
    number: int
    confirmed: int
    previous_crc: int
    first_sequence: int
    count: int
    part_index: int
    part_count: int
    payload_size: int
    crc: int

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.count - 1


@dataclass(frozen=True, slots=True)
class Opening:
    """The payload of an opening. `created` names the life of the stream: its time of creation."""

    reached: Link
    created: int
    nonce: bytes


@dataclass(frozen=True, slots=True)
class FrameFields:
    """The fields that all parts of a frame share."""

    container: int
    container_epoch: int
    first_sequence: int
    count: int


def log_seed(log_id: str) -> int:
    """The seed of the checksums of a log's messages."""
    return crc32c(log_id.encode())


def encode_opening(
    container: int, container_epoch: int, opening: Opening, seed: int
) -> tuple[bytes, int]:
    """The opening message of an epoch, and its CRC."""
    reached = opening.reached
    payload = _OPENING.pack(
        reached.container_epoch, reached.number, reached.crc, reached.last_sequence,
        opening.created, opening.nonce,
    )  # fmt: skip
    start = _START.pack(
        MAGIC, FORMAT, Kind.OPENING, 0, container, container_epoch, 0, 0, 0, 0, 0, 0, 1,
        len(payload),
    )  # fmt: skip
    crc = crc32c(payload, crc32c(start, seed))
    return start + _CRC.pack(crc) + payload, crc


def decode_opening(payload: Buffer) -> Opening:
    """The payload of an opening whose checksum was verified. Raises CorruptJournal."""
    if len(payload) != _OPENING.size:
        raise CorruptJournal("an opening message has another size", size=len(payload))
    epoch, number, crc, sequence, created, nonce = _OPENING.unpack(payload)
    return Opening(Link(epoch, number, crc, sequence), created, nonce)


def frame_head(
    fields: FrameFields,
    part: Sequence[Buffer],
    *,
    number: int,
    previous_crc: int,
    confirmed: int,
    seed: int,
    index: int = 0,
    count: int = 1,
) -> tuple[bytes, int]:
    """The header of a message that holds one part of a frame, and the message's CRC."""
    start = _START.pack(
        MAGIC, FORMAT, Kind.FRAME, 0, fields.container, fields.container_epoch, number, confirmed,
        previous_crc, fields.first_sequence, fields.count, index, count, sum(map(len, part)),
    )  # fmt: skip
    crc = crc32c(start, seed)
    for piece in part:
        crc = crc32c(piece, crc)
    return start + _CRC.pack(crc), crc


def encode_record(
    kind: Kind, container: int, container_epoch: int, payload: bytes, seed: int
) -> bytes:
    """A message that is neither an opening nor a frame."""
    assert kind not in SHARED_KINDS
    start = _START.pack(
        MAGIC, FORMAT, kind, 0, container, container_epoch, 0, 0, 0, 0, 0, 0, 1, len(payload)
    )
    crc = crc32c(payload, crc32c(start, seed))
    return start + _CRC.pack(crc) + payload


def encode_parts(
    fields: FrameFields,
    payload: Sequence[Buffer],
    *,
    part_size_max: int,
    link: Link,
    confirmed: int,
    seed: int,
) -> Iterator[tuple[bytes, int]]:
    """The messages of a frame behind `link`, in order, each with its CRC.

    `part_size_max`: the most bytes of payload per message.
    """
    parts = _divided(payload, part_size_max)
    number, crc = link.number, link.crc
    for index, part in enumerate(parts):
        number += 1
        head, crc = frame_head(
            fields, part, number=number, previous_crc=crc, confirmed=confirmed, seed=seed,
            index=index, count=len(parts),
        )  # fmt: skip
        yield b"".join((head, *part)), crc


def _divided(payload: Sequence[Buffer], size_max: int) -> Sequence[Sequence[Buffer]]:
    """The payload of each part.

    A frame of one part is not copied for this, unless it has so many pieces that their checksums
    would cost more than a copy.
    """
    if len(payload) <= PIECES_MAX and sum(map(len, payload)) <= size_max:
        return (payload,)
    body = memoryview(b"".join(payload))
    return [(body[at : at + size_max],) for at in range(0, max(1, len(body)), size_max)]


def decode_message(
    data: bytes, seed: int, place: int, kinds: Collection[Kind] = SHARED_KINDS
) -> tuple[Message, memoryview]:
    """The message at `place` of the stream, and its payload. `kinds`: those that may be there.

    Raises CorruptJournal, FormatTooNew.
    """
    if len(data) < HEADER_SIZE_BYTES or data[:4] != MAGIC:
        raise CorruptJournal("a message in the log's stream is not one of a log", place=place)
    if data[4] > FORMAT:
        raise FormatTooNew(
            "a message of the log has a newer format", found=data[4], supported=FORMAT, place=place
        )
    fields = _START.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _START.size)
    payload = memoryview(data)[HEADER_SIZE_BYTES:]
    if fields[-1] != len(payload) or crc != crc32c(
        payload, crc32c(memoryview(data)[: _START.size], seed)
    ):
        raise CorruptJournal("a message of the log is damaged", place=place)
    _, _, kind, _, *rest = fields
    if kind not in kinds:
        raise CorruptJournal("a message of the log has an unknown kind", place=place, kind=kind)
    header = (Kind(kind), *rest, crc)
    return Message(*header), payload
