"""The envelope of manifests, pages and page indexes: a fixed head, then the body.

    head  16 bytes, little-endian: magic, format, reserved, body length, CRC32C
    body  MessagePack

The CRC covers everything but itself. The head keeps its shape in every format, so readers verify
the checksum before they trust the format number: damaged data never looks like a newer release's.
"""

import struct

from crc32c import crc32c

from anabranch.common.errors import Corrupt, FormatTooNew

HEAD = struct.Struct("<4sHHII")
_UNCHECKED = struct.Struct("<4sHHI")


def seal_envelope(magic: bytes, format_number: int, body: bytes) -> bytes:
    """Put the body into an envelope."""
    head = _UNCHECKED.pack(magic, format_number, 0, len(body))
    crc = crc32c(body, crc32c(head))
    return HEAD.pack(magic, format_number, 0, len(body), crc) + body


def open_envelope(
    data: bytes, magic: bytes, format_newest: int, *, name: str, damaged: type[Corrupt]
) -> bytes:
    """Verify the envelope and return its body. `name` names the object, for the error.

    Raises `damaged` unless the data is a whole envelope with this magic; FormatTooNew.
    """
    if len(data) < HEAD.size:
        raise damaged("the object is truncated", name=name, size=len(data))
    found, format_number, _, length, crc = HEAD.unpack_from(data)
    if found != magic:
        raise damaged("the object has a wrong magic number", name=name, found=found.hex())
    if len(data) != HEAD.size + length:
        raise damaged("the object's size contradicts its header", name=name, size=len(data))
    body = data[HEAD.size :]
    if crc32c(body, crc32c(data[: _UNCHECKED.size])) != crc:
        raise damaged("the object's checksum does not match", name=name)
    if format_number > format_newest:
        raise FormatTooNew(
            "the object was written by a newer release",
            name=name, found=format_number, supported=format_newest,
        )  # fmt: skip
    return body
