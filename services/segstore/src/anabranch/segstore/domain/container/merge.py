"""Decides merges of segments into another one, from the state of all of them.

    source                                   result
        alive, sealed, never truncated       merged; a transaction segment also unsealed
        merged into this target before       a repeat: the answer gives its place again
        transaction segment, unknown, and    a repeat whose tombstone has expired: answered as
          the target has this very stamp     empty
        anything else                        the whole request is rejected

The target must be alive, and unsealed unless every source is a repeat.

Transient sources merge only into their parent, which may be a transaction segment, and separately
from other kinds. Their merge adds the bytes that their connection wrote, like an append, and like
an append it carries no decision, so the target's stamp stays the same.

Transaction segments also merge separately, into a segment of their parent's stream and number: the
parent, or its duplicate of another epoch. The merge seals them: it includes everything accepted
before it, and later requests find no segment. An unknown transaction segment cannot have been lost:
it ends by a merge or by an abort's deletion, and only a commit merges. So if the decision has
reached the target, the merge has been performed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.common.contracts.segment_requests import (
    MERGE_NAMES_SIZE_BYTES_MAX,
    MERGE_SOURCES_MAX,
)
from anabranch.common.errors import (
    InvalidRequest,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTruncated,
)
from anabranch.common.model.names import (
    SegmentKind,
    number_of,
    parse_segment_name,
    transaction_segment,
    transient_parent,
)
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.messages import MergedSegment, Stamp
from anabranch.segstore.domain.container.decide import (
    LENGTH_BYTES_MAX,
    Known,
    check_not_stale,
    check_stamp,
    gone,
    kind_of,
)
from anabranch.segstore.domain.container.operations import MergedSource, MergeOperation


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """The operation to log, if any, and the answer: each source's place, in the order of the
    request."""

    operation: MergeOperation | None
    merged: tuple[MergedSegment, ...]


def decide_merge(
    known: Callable[[str], Known],
    segment: str,
    sources: tuple[str, ...],
    stamp: Stamp,
    now_ms: int,
) -> MergeDecision:
    """`known` returns the state of a name, pending operations included.

    Raises InvalidRequest, StaleRequest (of target or source), SegmentNotFound, SegmentMerged,
    SegmentSealed (the target), SegmentNotSealed and SegmentTruncated (a source).
    """
    target = known(segment)
    check_stamp(kind_of(target, segment), segment, stamp)
    _check_names(segment, sources)
    kind = _kind_of_sources(known, segment, sources)
    check_stamp(kind, sources[0], stamp)
    decided = kind is not SegmentKind.TRANSIENT
    if decided:
        check_not_stale(target, segment, stamp)
    if not isinstance(target, SegmentState):
        raise gone(target, segment)
    fresh: list[MergedSource] = []
    merged: list[MergedSegment] = []
    length = target.length
    for name in sources:
        found = _source(known(name), name, target, stamp)
        if isinstance(found, SegmentState):
            fresh.append(MergedSource(name, found.number, found.length))
            merged.append(MergedSegment(name, length, found.length))
            length += found.length
        else:
            merged.append(found)
    if fresh and target.sealed:
        raise SegmentSealed("the target is sealed", segment=segment, length=target.length)
    if length > LENGTH_BYTES_MAX:
        raise InvalidRequest("the target would be too long", segment=segment, length=length)
    if not fresh and (stamp == target.stamp or not decided):
        return MergeDecision(None, tuple(merged))
    operation = MergeOperation(
        segment, stamp, now_ms, target.number, target.length, tuple(fresh),
        commits=bool(fresh) and kind is SegmentKind.TRANSACTION,
    )  # fmt: skip
    return MergeDecision(operation, tuple(merged))


def _check_names(segment: str, sources: tuple[str, ...]) -> None:
    """Check the names by themselves. Raises InvalidRequest."""
    if not 0 < len(sources) <= MERGE_SOURCES_MAX or len({segment, *sources}) <= len(sources):
        raise InvalidRequest(
            "a merge needs sources, each once, none of them the target",
            segment=segment, sources=len(sources), limit=MERGE_SOURCES_MAX,
        )  # fmt: skip
    names_size = sum(map(len, sources))
    if names_size > MERGE_NAMES_SIZE_BYTES_MAX:
        raise InvalidRequest(
            "the names of a merge's sources are too long together",
            remedy="merge fewer segments at once",
            size=names_size, limit=MERGE_NAMES_SIZE_BYTES_MAX,
        )  # fmt: skip


def _kind_of_sources(
    known: Callable[[str], Known], segment: str, sources: tuple[str, ...]
) -> SegmentKind:
    """The kind that all sources have, checked against the target and the names of their parents.

    Raises InvalidRequest.
    """
    kinds = {kind_of(known(name), name) for name in sources}
    into_transaction = kind_of(known(segment), segment) is SegmentKind.TRANSACTION
    if into_transaction and kinds != {SegmentKind.TRANSIENT}:
        raise InvalidRequest(
            "only transient segments merge into a transaction segment",
            remedy="merge into the parent, or write to the transaction segment",
            segment=segment,
        )
    if SegmentKind.TABLE in kinds | {kind_of(known(segment), segment)}:
        raise InvalidRequest("a table segment cannot take part in a merge", segment=segment)
    if SegmentKind.TRANSACTION in kinds:
        if len(kinds) > 1:
            raise InvalidRequest(
                "transaction segments cannot merge together with other kinds",
                segment=segment, sources=len(sources),
            )  # fmt: skip
        for parent in {found.parent for found in map(transaction_segment, sources) if found}:
            if parent != segment:
                _check_duplicate(segment, parent)
        return SegmentKind.TRANSACTION
    if SegmentKind.TRANSIENT in kinds:
        if {transient_parent(name) for name in sources} != {segment}:
            raise InvalidRequest(
                "transient segments merge only into their parent, and not with other kinds",
                segment=segment, sources=len(sources),
            )  # fmt: skip
        return SegmentKind.TRANSIENT
    return SegmentKind.STREAM


def _check_duplicate(segment: str, parent: str) -> None:
    """Raises InvalidRequest unless both have the same number in the same stream."""
    (stream, target), (of, other) = parse_segment_name(segment), parse_segment_name(parent)
    if (stream, number_of(target)) != (of, number_of(other)):
        raise InvalidRequest(
            "a transaction segment merges only into its parent or a duplicate of its parent",
            remedy="merge into a segment of the parent's stream and number",
            segment=segment, parent=parent,
        )  # fmt: skip


def _source(
    known: Known, name: str, target: SegmentState, stamp: Stamp
) -> SegmentState | MergedSegment:
    """The segment to merge, or its place in the target if it was merged before."""
    check_not_stale(known, name, stamp)
    if isinstance(known, Tombstone) and known.merged is not None:
        place = known.merged
        if (place.target, place.target_number) == (target.name, target.number):
            return MergedSegment(name, place.offset, place.length)
    of_transaction = kind_of(known, name) is SegmentKind.TRANSACTION
    if known is None and of_transaction and stamp == target.stamp:
        return MergedSegment(name, target.length, 0)
    if not isinstance(known, SegmentState):
        raise gone(known, name)
    if not known.sealed and not of_transaction:
        raise SegmentNotSealed("a source of the merge is not sealed", segment=name)
    if known.start:
        raise SegmentTruncated(
            "a segment that was truncated cannot be merged",
            remedy="only whole segments can merge; read this one where it is",
            segment=name, start=known.start,
        )  # fmt: skip
    return known
