"""The base of all wire messages, the parts that several messages share, and the two messages that
both sides send.
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


class BlockPlace(msgspec.Struct, frozen=True):
    """The place of one block of a group: `count` events from `first_event_number` on.

    `size`: the bytes of the block.
    """

    segment: str
    first_event_number: int
    count: int
    size: int


class AttributeUpdate(msgspec.Struct, frozen=True):
    """The change of one attribute; `attribute` is its id, 16 bytes.

    create              set it; it must be absent
    replace             set it, regardless of its value
    replace-if-greater  set it; it must be absent or lower
    replace-if-equals   set it; it must equal `expected` (None: be absent)
    accumulate          add to it; absent counts as 0

    `value` is a signed 64-bit number. With `replace` and `replace-if-equals` it may be None, which
    removes the attribute.
    """

    attribute: bytes
    kind: UpdateKind
    value: int | None
    expected: int | None = None


class AttributeValue(msgspec.Struct, frozen=True):
    """An attribute and its value."""

    attribute: bytes
    value: int


class MergedSegment(msgspec.Struct, frozen=True):
    """The place of a merged segment's `length` bytes in the target."""

    source: str
    offset: int
    length: int


class Hello(Message, frozen=True, kw_only=True):
    """First packet of both sides: the protocol versions that the sender speaks.

    `token` proves the identity of the caller, for every request of the connection that has no token
    of its own. Peers of earlier releases send none, and stores ignore tokens today.
    """

    high: int = PROTOCOL_VERSION
    low: int = PROTOCOL_VERSION_OLDEST
    node_id: str = ""
    token: str = ""


class KeepAlive(Message, frozen=True, kw_only=True):
    """An empty message of a side that has been silent. It has no answer."""
