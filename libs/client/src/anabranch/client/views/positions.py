"""The rows in which a view records its progress, beside the rows of the program. Pure.

    position row    RESERVED_KEYS, "view", 00, group, 00, segment ──► format, offset, event index
    view row        RESERVED_KEYS, "view", 00, group              ──► format

A partition has one position row for each segment of the group's streams that has changed a row of
the partition. The rows of the partition reflect every event of the segment before this position,
and none after it. The first partition has the view row from before the first position row on, so a
table that was created again can be told from the one to which the group's positions belong.

The keys lie in the reserved key space: no program's key does, and no scan or watch yields them.
Names of groups and segments contain no zero byte.
"""

import struct

from anabranch.client.reading.frontier import Position
from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.table import RESERVED_KEYS

_FORMAT = 1
_PLACE = struct.Struct("<BqI")
_PREFIX = RESERVED_KEYS + b"view\x00"

VIEW_ROW = bytes((_FORMAT,))
"""The value of a view row."""


def view_key(group: GroupRef) -> bytes:
    """The table key of the view row."""
    return _PREFIX + str(group).encode()


def position_key(group: GroupRef, segment: str) -> bytes:
    """The table key of the position row of a segment, given by its full name."""
    return b"\x00".join((view_key(group), segment.encode()))


def encode_position(position: Position) -> bytes:
    """The value of a position row."""
    return _PLACE.pack(_FORMAT, *position)


def decode_position(value: bytes) -> Position:
    """Inverse of `encode_position`. Raises CorruptBlock, FormatTooNew."""
    check_format(value)
    if len(value) != _PLACE.size:
        raise CorruptBlock("a view's position in a table is damaged", size=len(value))
    _, offset, index = _PLACE.unpack(value)
    return Position(offset, index)


def check_format(value: bytes) -> None:
    """Check the format of a position row or view row. Raises CorruptBlock, FormatTooNew."""
    if value[:1] > VIEW_ROW:
        raise FormatTooNew("a newer release wrote the view", found=value[0], supported=_FORMAT)
    if value[:1] != VIEW_ROW:
        raise CorruptBlock("a view's row in a table is damaged", size=len(value))
