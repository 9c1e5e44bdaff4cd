"""When a cut of a stream's tail is recorded for its retention policy, and which ones go. Pure.

Recorded cuts cost a domain event each and are part of every snapshot of the stream, so they are as
far apart as the policy can bear: the minimum is divided into up to 32 parts, and at most one cut is
recorded for each. The policy is therefore exact to a 32nd of its minimum, and to the
period of the job. A cut at which the stream ended already is never recorded again.

Cuts that a lagging subscriber keeps beyond the minimum grow in number up to a bound. Then the one
goes whose neighbours are closest, so the others are spread evenly over the kept data. Streams of
many segments have large cuts and remember fewer of them.
"""

from collections.abc import Sequence

from anabranch.common.model.stream import RetentionPolicy, RetentionType
from anabranch.controller.domain.stream.retention_set import (
    CUT_PLACES_MAX,
    CUTS_MAX,
    CUTS_MIN,
    RecordedCut,
)


def parts_of_minimum(segment_count: int) -> int:
    """Into how many parts the minimum is divided by recorded cuts of so many segments."""
    return max(2, min(CUTS_MAX, CUT_PLACES_MAX // max(1, segment_count)) // 4)


def is_look_due(
    policy: RetentionPolicy, newest: RecordedCut | None, segment_count: int, now_ms: int
) -> bool:
    """Whether the tail has to be known: by size always, because only the stores know."""
    if newest is None or policy.type is RetentionType.SIZE_BYTES:
        return True
    return now_ms - newest.at_ms >= policy.minimum // parts_of_minimum(segment_count)


def is_cut_due(policy: RetentionPolicy, newest: RecordedCut | None, tail: RecordedCut) -> bool:
    """Whether the tail, which has moved, is far enough from the newest recorded cut."""
    if newest is None:
        return True
    part = policy.minimum // parts_of_minimum(len(tail.cut))
    if policy.type is RetentionType.TIME_MS:
        return tail.at_ms - newest.at_ms >= part
    return tail.size_bytes - newest.size_bytes >= max(1, part)


def forgotten(policy: RetentionPolicy, cuts: Sequence[RecordedCut]) -> list[RecordedCut]:
    """Of these cuts, oldest first, those that are too many. The first and the last stay."""
    kept = list(cuts)
    gone: list[RecordedCut] = []
    while _are_too_many(kept):
        at = min(range(1, len(kept) - 1), key=lambda n: _gap(policy, kept[n - 1], kept[n + 1]))
        gone.append(kept.pop(at))
    return gone


def _are_too_many(cuts: Sequence[RecordedCut]) -> bool:
    if len(cuts) <= CUTS_MIN:
        return False
    return len(cuts) > CUTS_MAX or sum(len(one.cut) for one in cuts) > CUT_PLACES_MAX


def _gap(policy: RetentionPolicy, before: RecordedCut, after: RecordedCut) -> int:
    if policy.type is RetentionType.TIME_MS:
        return after.at_ms - before.at_ms
    return after.size_bytes - before.size_bytes
