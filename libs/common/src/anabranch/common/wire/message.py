"""What every message of the wire begins with, the parts that several messages share, and the two
messages that both sides send.
"""

from typing import Literal

import msgspec

from anabranch.common.wire.packet import PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Stamp(msgspec.Struct, frozen=True, order=True):
    """The (incarnation, aggregate revision) at which a control request was decided."""

    incarnation: int
    revision: int


NO_DECISION = Stamp(0, 0)
"""Of requests about transient segments, which no aggregate decides."""

UpdateKind = Literal["create", "replace", "replace-if-greater", "replace-if-equals", "accumulate"]


class AttributeUpdate(msgspec.Struct, frozen=True):
    """What is to become of one attribute; `attribute` is its id, 16 bytes.

    create              set it; it must be absent
    replace             set it, whatever it is
    replace-if-greater  set it; it must be absent or lower
    replace-if-equals   set it; it must equal `expected` (None: be absent)
    accumulate          add to it; absent counts as 0

    `value` is a signed 64-bit number, or None with the two that replace unconditionally or if
    equal: then the attribute is removed.
    """

    attribute: bytes
    kind: UpdateKind
    value: int | None
    expected: int | None = None


class AttributeValue(msgspec.Struct, frozen=True):
    """An attribute as it is."""

    attribute: bytes
    value: int


class MergedSegment(msgspec.Struct, frozen=True):
    """Where a merged segment's `length` bytes are in the target."""

    source: str
    offset: int
    length: int


class Hello(Message, frozen=True, kw_only=True):
    """First packet of both sides: the protocol versions that the sender speaks."""

    high: int = PROTOCOL_VERSION
    low: int = PROTOCOL_VERSION_OLDEST
    node_id: str = ""


class KeepAlive(Message, frozen=True, kw_only=True):
    """Nothing; sent when a side has been silent. Never answered."""
