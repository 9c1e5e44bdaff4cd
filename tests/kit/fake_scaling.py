"""What a fake controller explains of auto-scaling: the first segment is hot, others are unknown."""

from collections.abc import Sequence

from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.scaling import (
    HotAbove,
    PastDecision,
    RateOver,
    SampledKeys,
    ScalingDecision,
    ScalingExplained,
    ScalingThresholds,
    SegmentExplained,
)

LOOKED_MS = 1_700_000_060_000
WHY = "segment 0 with 3000 events/s over 2 s exceed the target of 1000"


def explained(stream_epoch: int, segments: Sequence[SegmentInStream]) -> ScalingExplained:
    """Of a stream with these segments, whose target is 1,000 events per second."""
    return ScalingExplained(
        status="watched",
        incarnation=1,
        stream_epoch=stream_epoch,
        unit="events/s",
        target=1000,
        controller="fake",
        looked_ms=LOOKED_MS,
        thresholds=ScalingThresholds(
            hot=(HotAbove(window_s=2, rate=2000), HotAbove(window_s=5, rate=1000)),
            cold_s=60,
            cold_below=500,
            merged_below=600,
            parts_max=4,
            segment_count_min=1,
        ),
        present=ScalingDecision(action="split", why=WHY),
        last=PastDecision(
            action="split", why=WHY, stream_epoch=0, at_ms=LOOKED_MS, outcome="void", error="moved"
        ),
        segments=tuple(_segment(one) for one in segments),
    )


def _segment(segment: SegmentInStream) -> SegmentExplained:
    if segment.segment_id:
        why = "store n has not reported its load"
        return SegmentExplained(**segment.model_dump(), verdict="unknown", why=why)
    return SegmentExplained(
        **segment.model_dump(),
        verdict="hot",
        why="3000 events/s over 2 s exceed the target of 1000",
        rates=(RateOver(window_s=2, rate=3000, counts=True),),
        known_s=4.0,
        hot_since_ms=LOOKED_MS - 2000,
        cooldown_ms=3000,
        keys=SampledKeys(events=256, position=0.25, share=0.4, keyless=0.1),
    )
