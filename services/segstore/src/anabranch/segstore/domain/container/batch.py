"""Decides the merge of a commit batch into one segment: ADR 19.

    target's stamp                 result
        lower                      all parts, and the stamp of the batch, in one frame
        the batch's                a repeat: nothing to do
        higher                     StaleRequest

No other decision has the stamp of the batch, and the batch has one request for each target. So a
target with this stamp has the batch: the stamp is logged in the frame of its parts. A roll creates
its target under a lower stamp (`workflows/commit_transactions.py` of the controller).
"""

from collections.abc import Iterator, Mapping

from crc32c import crc32c

from anabranch.common.contracts.segment_requests import MERGE_SOURCES_MAX
from anabranch.common.errors import InvalidRequest, SegmentSealed
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block import events_in
from anabranch.common.wire.messages import BatchMerged, MergeBatch
from anabranch.common.wire.requests import GROUP_SIZE_BYTES_MAX
from anabranch.common.wire.whole_block import check_carried_block, events_numbered
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances, Group
from anabranch.segstore.domain.container.decide import (
    LENGTH_BYTES_MAX,
    NO_CHANGE,
    check_not_stale,
    check_stamp,
    gone,
    kind_of,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.merge import decide_merge
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergedSource,
    MergeOperation,
    Operation,
)


def answer_merge_batch(state: SegmentMap, request: MergeBatch, around: Circumstances) -> Answer:
    """→ BatchMerged. Raises InvalidRequest, StaleRequest, SegmentNotFound, SegmentSealed, the
    errors of `check_carried_block`, and those of `decide_merge` about the sources.
    """
    segment, stamp, payload = request.segment, request.stamp, around.given.payload
    _check_parts(request, len(payload))
    target = state.known(segment)
    kind = kind_of(target, segment)
    if kind is not SegmentKind.STREAM:
        raise InvalidRequest("a batch is merged into a segment of a stream", segment=segment)
    check_stamp(kind, segment, stamp)
    check_not_stale(target, segment, stamp)
    if not isinstance(target, SegmentState):
        raise gone(target, segment)
    if stamp == target.stamp:
        return Answer(NO_CHANGE, BatchMerged(end=target.length))
    if target.sealed:
        raise SegmentSealed("the target is sealed", segment=segment, length=target.length)
    names = tuple(part for part in request.parts if isinstance(part, str))
    sources: Mapping[str, MergedSource] = {}
    if names:
        merge = decide_merge(state.known, segment, names, stamp, around.now_ms).operation
        sources = {each.segment: each for each in merge.sources} if merge is not None else {}
    operations = tuple(_operations(request, payload, target, sources, around.now_ms))
    end = target.length + len(payload) + sum(source.length for source in sources.values())
    if end > LENGTH_BYTES_MAX:
        raise InvalidRequest("the target would be too long", segment=segment, length=end)
    return Answer(Group(operations), BatchMerged(end=end))


def _check_parts(request: MergeBatch, size: int) -> None:
    """Check the request by itself. Raises InvalidRequest."""
    sizes = [part for part in request.parts if isinstance(part, int)]
    if not 0 < len(request.parts) <= MERGE_SOURCES_MAX or not sizes:
        raise InvalidRequest(
            "a batch needs parts, at least one of them a block",
            segment=request.segment, parts=len(request.parts), blocks=len(sizes),
            limit=MERGE_SOURCES_MAX,
        )  # fmt: skip
    if size > GROUP_SIZE_BYTES_MAX or min(sizes) < 1 or sum(sizes) != size:
        raise InvalidRequest(
            "the sizes of the batch's blocks do not add up to the payload, or exceed the limit",
            segment=request.segment, blocks=sum(sizes), size=size, limit=GROUP_SIZE_BYTES_MAX,
        )  # fmt: skip


def _operations(
    request: MergeBatch,
    payload: bytes,
    target: SegmentState,
    sources: Mapping[str, MergedSource],
    now_ms: int,
) -> Iterator[Operation]:
    """The parts in their order; the last operation raises the stamp."""
    length, at = target.length, 0
    run: list[MergedSource] = []

    def merged() -> MergeOperation:
        taken, start = tuple(run), length - sum(source.length for source in run)
        run.clear()
        return MergeOperation(
            target.name, request.stamp, now_ms, target.number, start, taken, commits=bool(taken)
        )

    for part in request.parts:
        if isinstance(part, str):
            if (source := sources.get(part)) is not None:
                run.append(source)
                length += source.length
            continue
        if run:
            yield merged()
        block = payload[at : at + part]
        yield _append(block, target.number, length, now_ms)
        at += part
        length += part
    yield merged()


def _append(block: bytes, number: int, offset: int, now_ms: int) -> AppendOperation:
    header = check_carried_block(block)
    count = events_numbered(header)
    return AppendOperation(
        number, offset, header.writer_id, header.first_event_number, count, now_ms,
        crc32c(block), block, events_in(block, count),
    )  # fmt: skip
