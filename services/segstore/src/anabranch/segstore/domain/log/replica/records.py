"""The records of a copy of a replicated log. Pure; frozen by golden files with their messages.

Openings and frames are the messages of the log itself. Payload of a base (little-endian), which
names the message behind which the history goes on::

    container epoch u64, number u64, CRC u32, last sequence u64

A promise has no payload; its container epoch is the one that is promised.
"""

import struct

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.replica.history import Record
from anabranch.segstore.domain.log.stream.messages import (
    NONCE_SIZE_BYTES,
    Kind,
    Link,
    Opening,
    decode_message,
    decode_opening,
    encode_opening,
    encode_record,
)

_LINK = struct.Struct("<QQIQ")
_NO_NONCE = bytes(NONCE_SIZE_BYTES)


def encode_link(link: Link) -> bytes:
    """A link as bytes, of which all have one size."""
    return _LINK.pack(link.container_epoch, link.number, link.crc, link.last_sequence)


def decode_link(data: bytes) -> Link:
    """Inverse of `encode_link`. Raises CorruptJournal."""
    if len(data) != _LINK.size:
        raise CorruptJournal("a link has another size", size=len(data))
    return Link(*_LINK.unpack(data))


def encode_base(container: int, container_epoch: int, link: Link, seed: int) -> bytes:
    """The record that the history goes on behind `link`, written under this container epoch."""
    return encode_record(Kind.BASE, container, container_epoch, encode_link(link), seed)


def encode_promise(container: int, container_epoch: int, seed: int) -> bytes:
    """The record that the copy refuses container epochs below this one."""
    return encode_record(Kind.PROMISE, container, container_epoch, b"", seed)


def encode_first(container: int, container_epoch: int, reached: Link, seed: int) -> bytes:
    """The opening of a container epoch, behind the message `reached`."""
    return encode_opening(container, container_epoch, Opening(reached, 0, _NO_NONCE), seed)[0]


def decode_record(data: bytes, seed: int, number: int) -> Record:
    """The record `number` of a copy. Raises CorruptJournal, FormatTooNew."""
    message, payload = decode_message(data, seed, number, tuple(Kind))
    opening = decode_opening(payload) if message.kind is Kind.OPENING else None
    link = decode_link(bytes(payload)) if message.kind is Kind.BASE else None
    return Record(number, message, opening, link)
