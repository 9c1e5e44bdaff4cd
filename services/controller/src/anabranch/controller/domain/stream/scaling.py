"""Validates scales, and computes the segments that they create. Pure.

The rules, in the order of the checks: every segment to be sealed belongs to the current epoch; the
new ranges cover exactly the keys of these segments, by exact comparison, with touching ranges
merged on both sides; and the result has at least as many segments as the policy requires.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.common.contracts.commands import NewRange, ScaleStream
from anabranch.common.errors import InvalidRanges, ScaleRefused
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, ScalingType, StreamConfig
from anabranch.controller.domain.stream import backing, intents
from anabranch.controller.domain.stream.events import PlannedSegment
from anabranch.controller.domain.stream.intents import IntentKind, ScalePlan
from anabranch.controller.domain.stream.state import Stream

Bounds = tuple[float, float]


class Scale(NamedTuple):
    """A valid scale. `created` is in the order of the segments' numbers."""

    stream_epoch: int
    sealed: tuple[int, ...]
    created: tuple[PlannedSegment, ...]


def require_epoch(stream: Stream, command: ScaleStream) -> None:
    """Raises ScaleRefused unless the stream is at the epoch that the command names, if any."""
    expected = command.expected_epoch
    if expected is not None and expected != stream.stream_epoch:
        raise ScaleRefused(
            "the stream is at another epoch", expected=expected, stream_epoch=stream.stream_epoch
        )


def planned(stream: Stream, command: ScaleStream) -> Scale:
    """The scale that the command requests. Raises ScaleRefused, InvalidRanges."""
    keys = {segment.segment_id: segment.keys for segment in stream.segments}
    for segment in command.seal:
        if segment not in keys:
            raise ScaleRefused(
                "the segment does not belong to the current epoch",
                segment=segment,
                stream_epoch=stream.stream_epoch,
            )
    if len(set(command.seal)) != len(command.seal):
        raise InvalidRanges("a segment is named twice")
    ranges = [_checked(new) for new in command.new_ranges]
    sealed_keys = [(keys[segment].start, keys[segment].end) for segment in command.seal]
    if _blocks(sealed_keys) != _blocks(ranges):
        raise InvalidRanges("the new ranges do not cover exactly the keys of the sealed segments")
    count = len(stream.segments) - len(command.seal) + len(ranges)
    minimum = stream.config.scaling.min_segments
    if count < minimum:
        raise ScaleRefused(
            f"the stream would have {count} segments, and its policy asks for {minimum}",
            remedy="seal fewer segments, or update the policy's minimum first",
            minimum=minimum,
            count=count,
        )
    if count > SEGMENT_COUNT_MAX:
        raise ScaleRefused(
            f"the stream would have {count} segments", limit=SEGMENT_COUNT_MAX, count=count
        )
    return _scale(stream, command.seal, ranges)


def suits(config: StreamConfig, segment_count: int) -> bool:
    """Whether the policy allows that many segments."""
    if config.scaling.type is ScalingType.FIXED:
        return segment_count == config.scaling.min_segments
    return segment_count >= config.scaling.min_segments


def count_after_scale(stream: Stream) -> int:
    """The number of segments after all pending intents."""
    pending = intents.find(stream.intents, IntentKind.SCALE)
    count = len(stream.segments)
    return count if pending is None or pending.scale is None else pending.scale.count_after(count)


def asks_for_scale(stream: Stream, config: StreamConfig) -> bool:
    """Whether a changed scaling policy requires another number of segments than there will be.

    An unchanged policy requires nothing: a FIXED stream may have been scaled manually since.
    """
    return config.scaling != stream.config.scaling and not suits(config, count_after_scale(stream))


def evened(stream: Stream, config: StreamConfig) -> Scale:
    """The scale to as many even ranges as the policy requires."""
    ranges = [(keys.start, keys.end) for keys in even_ranges(config.scaling.min_segments)]
    return _scale(stream, [segment.segment_id for segment in stream.segments], ranges)


def is_same(plan: ScalePlan, command: ScaleStream) -> bool:
    """Whether the command wants exactly the pending scale."""
    ranges = [(new.key_start, new.key_end) for new in command.new_ranges]
    if command.containers not in (None, backing.containers_of(plan.created)):
        return False
    return sorted(plan.sealed) == sorted(command.seal) and ranges == [
        (segment.keys.start, segment.keys.end) for segment in plan.created
    ]


def _scale(stream: Stream, sealed: Iterable[int], ranges: Iterable[Bounds]) -> Scale:
    epoch, first = stream.stream_epoch + 1, stream.highest_number + 1
    created = tuple(
        PlannedSegment(segment_id=segment_id(epoch, number), key_start=start, key_end=end)
        for number, (start, end) in enumerate(ranges, first)
    )
    return Scale(epoch, tuple(sealed), created)


def _checked(new: NewRange) -> Bounds:
    if not 0.0 <= new.key_start < new.key_end <= 1.0:
        raise InvalidRanges(
            "a key range is not within [0, 1), or empty", start=new.key_start, end=new.key_end
        )
    return new.key_start, new.key_end


def _blocks(ranges: Sequence[Bounds]) -> list[Bounds]:
    """The ranges sorted, with touching ones merged. Raises InvalidRanges if two overlap."""
    blocks: list[Bounds] = []
    for start, end in sorted(ranges):
        if blocks and start < blocks[-1][1]:
            raise InvalidRanges("two key ranges overlap", start=start, end=end)
        if blocks and start == blocks[-1][1]:
            blocks[-1] = (blocks[-1][0], end)
        else:
            blocks.append((start, end))
    return blocks
