"""The partition of a key, as Fluvio's producers choose it. Pure.

A key's partition is SipHash-2-4 with zero keys over the key's length (8 bytes, little-endian) and
the key, modulo the number of partitions. Records of one key therefore go to the same partition
from every producer, until partitions are added.
"""

from siphash24 import siphash24

from anabranch.common.errors import InvalidRequest
from anabranch.common.wire.block import KEY_SIZE_BYTES_MAX

Key = str | bytes

_NO_KEY = bytes(16)
"""The key of SipHash, which is not that of a record."""


def key_bytes(key: Key) -> bytes:
    """The key as it is stored: UTF-8. Raises InvalidRequest (another type, not UTF-8, too long)."""
    if isinstance(key, bytes | bytearray | memoryview):
        stored = bytes(key)
        _require_text(stored)
    elif isinstance(key, str):
        try:
            stored = key.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("a key is not valid Unicode text") from error
    else:
        raise InvalidRequest("a key must be text or bytes", type=type(key).__name__)
    if len(stored) > KEY_SIZE_BYTES_MAX:
        raise InvalidRequest(
            "a key is too long",
            remedy=f"use at most {KEY_SIZE_BYTES_MAX} bytes",
            size=len(stored),
        )
    return stored


def _require_text(stored: bytes) -> None:
    try:
        stored.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("a key is not UTF-8", remedy="encode it as text") from error


def hash_of(stored: bytes) -> int:
    """The 64-bit hash of a stored key."""
    hashed = siphash24(len(stored).to_bytes(8, "little") + stored, key=_NO_KEY)
    return int.from_bytes(hashed.digest(), "little")


def partition_of(stored: bytes, partition_count: int) -> int:
    """The index of the partition that takes the key, out of at least one."""
    assert partition_count > 0
    return hash_of(stored) % partition_count
