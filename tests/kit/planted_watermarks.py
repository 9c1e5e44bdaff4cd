"""Known bugs of watermarks, planted on purpose: their simulation must find each of them.

Each is a context manager under which watermarks are made as if one line were missing or wrong.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.common.model.watermark import watermark_segment
from anabranch.controller.domain.policies import watermark as policy
from anabranch.controller.domain.policies.watermark import Bounds, Judgement, Watch
from anabranch.controller.domain.writer_times import Mark
from anabranch.controller.periodic import advance_watermarks
from anabranch.controller.projections.watermark_log import WatermarkLog
from anabranch.controller.workflows import delete_stream

Planted = Callable[[], AbstractContextManager[object]]


def idle_writers_ignored() -> AbstractContextManager[object]:
    """A writer that has not noted a later time counts no more, whatever the time-out."""
    real = policy.judge

    def judge(
        marks: Sequence[Mark], watch: Watch, last_ms: int, *, timeout_s: float, now_s: float
    ) -> Judgement:
        return real(marks, watch, last_ms, timeout_s=0.0, now_s=now_s)

    return patch.object(policy, "judge", judge)


def new_owner_does_not_wait() -> AbstractContextManager[object]:
    """Whoever takes a bucket believes the marks that it finds, and after a loss those that are
    left."""
    return patch.object(Watch, "held_until", lambda self, _until_s: self)


def loss_not_noticed() -> AbstractContextManager[object]:
    """Marks that are gone were never there."""
    real, stack = policy.judge, ExitStack()

    def judge(marks: Sequence[Mark], watch: Watch, last_ms: int, **given: Any) -> Judgement:
        return real(marks, replace(watch, open_writers=frozenset()), last_ms, **given)

    stack.enter_context(patch.object(policy, "judge", judge))
    stack.enter_context(patch.object(advance_watermarks._Owned, "lost", lambda *_: None))
    return stack


def first_writer_alone() -> AbstractContextManager[object]:
    """The cut lies behind one writer's events, and not behind the others'."""
    real = policy.upper_cut

    def upper_cut(history: Any, base: Any, positions: Iterable[StreamCut]) -> Any:
        return real(history, base, list(positions)[:1])

    return patch.object(policy, "upper_cut", upper_cut)


def highest_time_for_all() -> AbstractContextManager[object]:
    """The lower time is the highest."""
    real = policy._bounds

    def bounds(active: Sequence[Mark]) -> Bounds:
        found = real(active)
        return Bounds(found.upper_ms, found.upper_ms)

    return patch.object(policy, "_bounds", bounds)


def last_cut_forgotten() -> AbstractContextManager[object]:
    """Every cut begins at the head of the stream."""
    real = policy.upper_cut

    def upper_cut(history: Any, _base: Any, positions: Iterable[StreamCut]) -> Any:
        created = history.records[0].created
        first = [SegmentOffset(segment.segment_id, 0) for segment in created]
        return real(history, first, positions)

    return patch.object(policy, "upper_cut", upper_cut)


def appended_anywhere() -> AbstractContextManager[object]:
    """A watermark is appended wherever the segment ends."""
    real = WatermarkLog.append

    async def append(self: WatermarkLog, stream: Any, tail: Any, *given: Any) -> Any:
        segment = watermark_segment(stream)
        if tail.exists:
            bounds = await self._stores.segment_bounds(segment)
            tail = replace(tail, length=bounds.length)
        return await real(self, stream, tail, *given)

    return patch.object(WatermarkLog, "append", append)


def last_not_read_back() -> AbstractContextManager[object]:
    """A new owner knows of no watermark."""
    real = WatermarkLog.tail

    async def tail(self: WatermarkLog, *given: Any) -> Any:
        return replace(await real(self, *given), last=None)

    return patch.object(WatermarkLog, "tail", tail)


def watermarks_left_over() -> AbstractContextManager[object]:
    """A stream is deleted without its watermarks."""
    return patch.object(delete_stream, "_watermark_segments", lambda _stream: ())


WATERMARK_BUGS: dict[str, Planted] = {
    "idle writers ignored": idle_writers_ignored,
    "new owner does not wait": new_owner_does_not_wait,
    "loss not noticed": loss_not_noticed,
    "first writer alone": first_writer_alone,
    "highest time for all": highest_time_for_all,
    "last cut forgotten": last_cut_forgotten,
    "appended anywhere": appended_anywhere,
    "last not read back": last_not_read_back,
    "watermarks left over": watermarks_left_over,
}
