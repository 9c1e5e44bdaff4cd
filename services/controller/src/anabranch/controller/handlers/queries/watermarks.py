"""How far the watermark of a stream is, and what holds it back.

Marks and the last watermark can be read by every controller. Why and since when the watermark is
held is in the memory of the owner of the stream's bucket; another controller asks its peers.
"""

import structlog
from pydantic import ValidationError

from anabranch.common.contracts import watermarks as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.model.watermark import Watermark
from anabranch.controller.domain.policies.watermark import NEVER_MS, LastLook
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.writer_times import Mark
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, meant_stream
from anabranch.controller.handlers.queries.times import times_of

PEERS_DEADLINE_S = 1.0
UNWATCHED = "unwatched"

_log = structlog.get_logger(__name__)


async def watermark_status(desk: QueryDesk, query: asked.GetWatermarkStatus) -> Contract:
    """How far it is. Raises StreamNotFound, ScopeNotFound, Unavailable."""
    times = times_of(desk)
    stream = (await meant_stream(desk, query, None)).state
    ref, incarnation = ref_of(stream), stream.incarnation
    look = desk.last_look(ref, incarnation)
    here = _looked(desk, stream, look)
    if query.only_here:
        return here
    found = here if look is not None else await _told_by_others(desk, stream) or here
    tail = await desk.watermark_log.tail(ref, incarnation)
    page = await times.page(ref, incarnation, "", 1)
    lower_ms = NEVER_MS if tail.last is None else tail.last.lower_ms
    marks = sorted((await times.marks(ref, incarnation)).marks, key=_by_time)
    return found.model_copy(
        update={
            "now_ms": page.now_ms,
            "last": None if tail.last is None else _last(tail.last),
            "writers": tuple(
                _standing(mark, lower_ms) for mark in marks[: asked.WRITERS_SHOWN_MAX]
            ),
            "writer_count": len(marks),
        }
    )


def _looked(desk: QueryDesk, stream: Stream, look: LastLook | None) -> asked.WatermarkStatus:
    """What this controller remembers."""
    timeout_ms = stream.config.timestamp_aggregation_timeout_ms
    if look is None:
        return asked.WatermarkStatus(
            incarnation=stream.incarnation, held=UNWATCHED, timeout_ms=timeout_ms
        )
    return asked.WatermarkStatus(
        incarnation=stream.incarnation,
        held="" if look.held is None else look.held.value,
        held_by=look.holder,
        held_for_ms=int(look.idle_s * 1000),
        settles_in_ms=int(look.settles_s * 1000),
        controller=desk.controller_id,
        timeout_ms=timeout_ms,
    )


async def _told_by_others(desk: QueryDesk, stream: Stream) -> asked.WatermarkStatus | None:
    ref = ref_of(stream)
    question = asked.GetWatermarkStatus(scope=ref.scope, stream=ref.stream, only_here=True)
    answers = await desk.ask_peers(
        "watermark_status", question.model_dump_json().encode(), PEERS_DEADLINE_S
    )
    for controller, answer in answers:
        try:
            found = asked.WatermarkStatus.model_validate_json(answer)
        except ValidationError:
            _log.debug("no answer from a controller about watermarks", controller=controller)
            continue
        if found.held != UNWATCHED and found.incarnation == stream.incarnation:
            return found
    return None


def _last(watermark: Watermark) -> asked.LastWatermark:
    cut = tuple(SegmentOffset(marked.segment_id, marked.offset) for marked in watermark.cut)
    return asked.LastWatermark(lower_ms=watermark.lower_ms, upper_ms=watermark.upper_ms, cut=cut)


def _standing(mark: Mark, lower_ms: int) -> asked.WriterStanding:
    return asked.WriterStanding(
        writer_id=mark.writer_id,
        timestamp_ms=mark.timestamp_ms,
        noted_ms=mark.noted_ms,
        is_later=mark.timestamp_ms > lower_ms,
        is_closed=mark.is_closed,
    )


def _by_time(mark: Mark) -> tuple[int, str]:
    return mark.timestamp_ms, mark.writer_id


QUERIES: Table = {"watermark_status": (asked.GetWatermarkStatus, watermark_status)}
