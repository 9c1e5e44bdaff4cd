"""Filters that Spark pushes down → the segments and bytes that a read needs. Pure.

    segment, scope, stream    = and IN: other segments are left out; needs no second look
    routing_key               = and IN: segments whose key range has none of the keys are left out
    key_position              =, <, <=, >, >=: segments whose key range lies outside are left out
    offset                    =, <, <=, >, >=: bytes outside are left out, as far as boundaries are
                              known

`event_time` bounds nothing: it is the writer's, and chunks know only when stores took an append.
Spark applies all filters but the first kind once more.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from anabranch.common.model.hashing import routing_position
from anabranch.common.model.names import StreamRef
from anabranch.common.model.topics import TOPIC_SCOPE
from anabranch.spark.places.ports import SegmentBounds

Texts = frozenset[str]
_NEVER_NULL = frozenset(("event", "event_time", "segment", "offset", "index", "scope", "stream"))
_EXACT = frozenset(("segment", "scope", "stream"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a read that filters need. None: everything.

    Offsets lie in [`offset_first`, `offset_stop`), key positions in [`key_lowest`, `key_highest`].
    If `key_positions` is given, the key of an event has one of them.
    """

    segments: Texts | None = None
    scopes: Texts | None = None
    streams: Texts | None = None
    offset_first: int = 0
    offset_stop: int | None = None
    key_lowest: float = 0.0
    key_highest: float = 1.0
    key_positions: frozenset[float] | None = None

    def admits_stream(self, stream: StreamRef) -> bool:
        """Whether the stream may have wanted events."""
        return _within(stream.scope, self.scopes) and _within(stream.stream, self.streams)

    def admits(self, stream: StreamRef, segment: SegmentBounds) -> bool:
        """Whether the segment may have wanted events.

        The segments of a topic take events by partition, and any key may lie in any of them.
        """
        if not _within(segment.name, self.segments):
            return False
        keys = segment.keys
        if keys is None or stream.scope == TOPIC_SCOPE:
            return True
        if not (keys.start <= self.key_highest and self.key_lowest < keys.end):
            return False
        return self.key_positions is None or any(at in keys for at in self.key_positions)

    @property
    def limits_offsets(self) -> bool:
        """Whether bytes of a wanted segment may be left out."""
        return self.offset_first > 0 or self.offset_stop is not None


ALL = Wanted()


def pushed(filters: Iterable[Filter], columns: Collection[str]) -> tuple[Wanted, Sequence[Filter]]:
    """The needed part of a read, and the filters that Spark must apply to its rows as well.

    `columns`: those about events; a filter on another column is of the payload.
    """
    wanted = ALL
    left: list[Filter] = []
    for each in filters:
        column = _column(each)
        narrowed = _narrowed(wanted, each, column) if column in columns else None
        if narrowed is not None:
            wanted = narrowed
        if narrowed is None or not _is_exact(each, column):
            left.append(each)
    return wanted, left


def _column(each: Filter) -> str:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _is_exact(each: Filter, column: str) -> bool:
    if isinstance(each, IsNotNull):
        return column in _NEVER_NULL
    return column in _EXACT


def _narrowed(wanted: Wanted, each: Filter, column: str) -> Wanted | None:
    """The part of `wanted` that the filter needs; None: the filter is not understood."""
    values: Sequence[Any]
    match each:
        case IsNotNull():
            return wanted
        case EqualTo(_, value) | EqualNullSafe(_, value):
            values = (value,)
        case In(_, found):
            values = found
        case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _bounded(wanted, each, column)
        case _:
            return None
    if column in ("segment", "scope", "stream", "routing_key"):
        return _among(wanted, column, values)
    if len(values) == 1 and _is_number(values[0]):
        at_least = _bounded(wanted, GreaterThanOrEqual((column,), values[0]), column)
        return at_least and _bounded(at_least, LessThanOrEqual((column,), values[0]), column)
    return None


def _among(wanted: Wanted, column: str, values: Sequence[Any]) -> Wanted | None:
    if not all(isinstance(value, str) for value in values):
        return None
    texts = frozenset(values)
    match column:
        case "segment":
            return replace(wanted, segments=_both(wanted.segments, texts))
        case "scope":
            return replace(wanted, scopes=_both(wanted.scopes, texts))
        case "stream":
            return replace(wanted, streams=_both(wanted.streams, texts))
    positions = frozenset(map(routing_position, texts))
    known = wanted.key_positions
    return replace(wanted, key_positions=positions if known is None else positions & known)


def _bounded(
    wanted: Wanted,
    each: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
    column: str,
) -> Wanted | None:
    value = each.value
    if column == "key_position" and _is_number(value):
        if isinstance(each, GreaterThan | GreaterThanOrEqual):
            return replace(wanted, key_lowest=max(wanted.key_lowest, float(value)))
        return replace(wanted, key_highest=min(wanted.key_highest, float(value)))
    if column != "offset" or not isinstance(value, int) or isinstance(value, bool):
        return None
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        first = value + isinstance(each, GreaterThan)
        return replace(wanted, offset_first=max(wanted.offset_first, first))
    stop = value + isinstance(each, LessThanOrEqual)
    known = wanted.offset_stop
    return replace(wanted, offset_stop=stop if known is None else min(stop, known))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _both(known: Texts | None, texts: Texts) -> Texts:
    return texts if known is None else known & texts


def _within(text: str, texts: Texts | None) -> bool:
    return texts is None or text in texts
