"""Names of scopes, streams and segments, and the ids inside them.

Rules and forms follow Pravega's NameUtils: a segment's name is
``scope/stream/<number>.#epoch.<creation epoch>`` and its id is ``epoch << 32 | number``, so that a
natural sort of ids sorts by (creation epoch, number). A transient segment is named ``<its parent's
name>#transient.<32 hexadecimal digits>``, a transaction segment ``<its parent's
name>#transaction.<32 digits of the transaction>``, and the segment of a transaction's part ``<its
parent's name>#transaction.<32 digits of the transaction>.<32 digits of the part>``.

The system keeps an *internal* stream for itself: its name begins with an underscore, which the
names of users may not contain. It is not listed, but has segments like any other stream. The
partitions of the key-value table ``scope/table`` are table segments, which are named like segments
of the internal stream ``scope/_TABLE<table>``.

A name gives the kind of a segment. The store reads it from the name when it creates a segment and
when it decodes data of older releases, and keeps the kind with the segment.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, NewType

from anabranch.common.errors import InvalidName

ScopeName = NewType("ScopeName", str)
StreamName = NewType("StreamName", str)
SegmentId = NewType("SegmentId", int)

SCOPE_NAME_LENGTH_MAX = 255
STREAM_NAME_LENGTH_MAX = 250

INTERNAL_MARK = "_"
INTERNAL_NAME_LENGTH_MAX = 255
TABLE_PREFIX = "_TABLE"
TABLE_NAME_LENGTH_MAX = INTERNAL_NAME_LENGTH_MAX - len(TABLE_PREFIX)

_USER_NAME = re.compile(r"[A-Za-z0-9.\-]+")
_TRANSIENT_NAME = re.compile(r"(?P<parent>.+)#transient\.[0-9a-f]{32}")
_TRANSACTION_NAME = re.compile(
    r"(?P<parent>.+)#transaction\.(?P<transaction>[0-9a-f]{32})(?:\.(?P<part>[0-9a-f]{32}))?"
)
_SEGMENT_NAME = re.compile(
    r"(?P<scope>[^/]+)/(?P<stream>[^/]+)/(?P<number>[0-9]+)(?:\.#epoch\.(?P<epoch>[0-9]+))?"
)


def scope_name(text: str) -> ScopeName:
    """`text` as a scope's name. Raises InvalidName."""
    _check("scope", text, SCOPE_NAME_LENGTH_MAX)
    return ScopeName(text)


def refuse_dots(name: str) -> None:
    """Refuse "." and ".." as names of new things: clients remove them from the path of a URL.

    Existing things with such a name can still be read, sealed and deleted. Raises InvalidName.
    """
    if name in (".", ".."):
        raise InvalidName(
            f"the name {name!r} has a meaning in paths",
            remedy="use a name with at least one letter, digit or hyphen",
            name=name,
        )


def stream_name(text: str) -> StreamName:
    """`text` as a stream's name. Raises InvalidName."""
    _check("stream", text, STREAM_NAME_LENGTH_MAX)
    return StreamName(text)


def any_stream_name(text: str) -> StreamName:
    """`text` as a stream's name, also an internal one's. Raises InvalidName."""
    if not is_internal(text):
        return stream_name(text)
    if len(text) > INTERNAL_NAME_LENGTH_MAX or not _USER_NAME.fullmatch(text[1:]):
        raise InvalidName("the name is not an internal stream's", name=text[:32])
    return StreamName(text)


def is_internal(stream: str) -> bool:
    """Whether a stream of this name is internal."""
    return stream.startswith(INTERNAL_MARK)


def _check(kind: str, text: str, length_max: int) -> None:
    if len(text) > length_max:
        raise InvalidName(
            f"the {kind} name has {len(text)} characters",
            remedy=f"use at most {length_max} characters",
            name=text[:32] + "…",
        )
    if _USER_NAME.fullmatch(text) is None:
        raise InvalidName(
            f"the {kind} name {text!r} is not allowed",
            remedy="use one or more ASCII letters, digits, dots and hyphens",
            name=text,
        )


def segment_id(epoch: int, number: int) -> SegmentId:
    """The id of segment `number` created in stream epoch `epoch` (both 0 … 2**31 - 1)."""
    assert 0 <= epoch < 2**31
    assert 0 <= number < 2**31
    return SegmentId(epoch << 32 | number)


def epoch_of(segment: SegmentId) -> int:
    """The stream epoch in which the segment was created."""
    return segment >> 32


TOGETHER_FIRST = 1 << 30
"""The lowest segment number of a stream whose segments are together (ADR 18). It is stored."""


def number_of(segment: SegmentId) -> int:
    """The segment's number within its stream."""
    return segment & 0xFFFFFFFF


@dataclass(frozen=True, slots=True, order=True)
class StreamRef:
    """A stream by name."""

    scope: ScopeName
    stream: StreamName

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream}"


def stream_ref(text: str) -> StreamRef:
    """Parse ``scope/stream``. Raises InvalidName."""
    scope, slash, stream = text.partition("/")
    if not slash:
        raise InvalidName(
            f"{text!r} does not name a stream", remedy="write it as scope/stream", name=text
        )
    return StreamRef(scope_name(scope), stream_name(stream))


def segment_name(stream: StreamRef, segment: SegmentId) -> str:
    """The segment's full name, e.g. ``scope/stream/0.#epoch.0``."""
    return f"{stream.scope}/{stream.stream}/{number_of(segment)}.#epoch.{epoch_of(segment)}"


def parse_segment_name(name: str) -> tuple[StreamRef, SegmentId]:
    """Inverse of `segment_name`; a missing epoch is 0. Raises InvalidName.

    Scope and stream must obey the rules of their names; the stream may be internal.
    """
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None or not all(_is_int31(match[part] or "0") for part in ("number", "epoch")):
        raise InvalidName(
            f"{name[:600]!r} is not a segment's name",
            remedy="write it as scope/stream/number.#epoch.number",
            name=name[:600],
        )
    ref = StreamRef(scope_name(match["scope"]), any_stream_name(match["stream"]))
    return ref, segment_id(int(match["epoch"] or 0), int(match["number"]))


def transient_name(parent: str, unique: bytes) -> str:
    """The name of a transient segment of `parent`; `unique` has 16 bytes."""
    assert len(unique) == 16
    return f"{parent}#transient.{unique.hex()}"


def transient_parent(name: str) -> str | None:
    """The parent's name if `name` names a transient segment, else None."""
    if "#" not in name:
        return None
    match = _TRANSIENT_NAME.fullmatch(name)
    return None if match is None else match["parent"]


class TransactionSegment(NamedTuple):
    """The contents of a transaction segment's name. `part`: "" if the transaction has no parts."""

    parent: str
    transaction: str
    part: str = ""


def transaction_segment_name(parent: str, transaction: str, part: str = "") -> str:
    """The name of the segment that a transaction, or one of its parts, has beside `parent`."""
    name = f"{parent}#transaction.{transaction}"
    return f"{name}.{part}" if part else name


def transaction_segment(name: str) -> TransactionSegment | None:
    """Inverse of `transaction_segment_name`; None for any other name."""
    if "#" not in name:
        return None
    match = _TRANSACTION_NAME.fullmatch(name)
    if match is None:
        return None
    return TransactionSegment(match["parent"], match["transaction"], match["part"] or "")


class SegmentKind(IntEnum):
    """The purpose of a segment. The numbers are stored: add, never change."""

    STREAM = 0
    """A piece of a stream, internal ones included."""
    TRANSACTION = 1
    """The bytes of a transaction, or of one of its parts, beside a segment of a stream."""
    TRANSIENT = 2
    """The bytes of one connection, to be merged into the parent as a whole."""
    TABLE = 3
    """A partition of a key-value table: its updates, as table blocks."""


def segment_kind(name: str) -> SegmentKind:
    """The kind of a segment with this name."""
    if transaction_segment(name) is not None:
        return SegmentKind.TRANSACTION
    if transient_parent(name) is not None:
        return SegmentKind.TRANSIENT
    return SegmentKind.TABLE if f"/{TABLE_PREFIX}" in name else SegmentKind.STREAM


def _is_int31(digits: str) -> bool:
    return len(digits) <= 10 and int(digits) < 2**31
