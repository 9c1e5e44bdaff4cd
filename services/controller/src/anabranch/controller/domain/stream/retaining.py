"""The decision of one look at a stream with a retention policy. Pure.

One decision may record the tail and begin a truncation. It is made on the stream at its head, so of
two controllers that look at once only one is stored, and the other one decides again and finds
nothing to do. A truncation is begun only while none is pending and the stream is not about to be
sealed; it asks the stores before anything goes, as any truncation does.
"""

import bisect
from collections.abc import Sequence

from anabranch.common.model.reader_group import PositionCut
from anabranch.common.model.stream import RetentionPolicy, StreamCut, StreamState
from anabranch.controller.domain.policies import recording, retention
from anabranch.controller.domain.policies.retention import Facts, Plan, Subscriber
from anabranch.controller.domain.stream import cuts, intents
from anabranch.controller.domain.stream.events import (
    StreamCutRecorded,
    StreamEvent,
    StreamReleasing,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.retention_set import RecordedCut
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.subscribers import offsets_of

RETAINED_IN = (StreamState.ACTIVE, StreamState.SEALED)


def is_look_due(stream: Stream, now_ms: int) -> bool:
    """Whether the stores are to be asked where the stream ends."""
    policy = stream.config.retention
    if policy is None or stream.status not in RETAINED_IN:
        return False
    return recording.is_look_due(policy, stream.retention.newest, len(stream.segments), now_ms)


def may_release(stream: Stream, now_ms: int) -> bool:
    """False: by the recorded cuts, nothing goes now."""
    policy = stream.config.retention
    return policy is not None and retention.may_release(
        policy, stream.retention.cuts, now_ms, has_subscribers=bool(stream.subscriptions.present)
    )


def facts_of(
    stream: Stream, history: History, recorded: Sequence[RecordedCut], now_ms: int
) -> Facts:
    """The facts for the policy. A subscriber that has released nothing holds everything."""
    standing = [
        Subscriber(one.subscriber, _stands(one.cut, stream.head))
        for one in stream.subscriptions.present
    ]
    return Facts(history, stream.head, recorded, standing, now_ms)


def with_tail(
    stream: Stream, history: History, policy: RetentionPolicy, tail: StreamCut, now_ms: int
) -> tuple[RecordedCut, ...]:
    """The recorded cuts that count, with the tail as the last one where that is due.

    If the tail lies before recorded cuts, the stream has lost data: those cuts go.
    """
    known, begin = stream.retention.cuts, stream.head
    if known:
        now_ms = max(now_ms, known[-1].at_ms + 1)
    if known and cuts.compare(history, known[-1].cut, tail) in ("after", "overlaps"):
        known = known[: _count_up_to(history, known, tail)]
    newest = known[-1] if known else None
    start, size_bytes = (begin, 0) if newest is None else (newest.cut, newest.size_bytes)
    if cuts.compare(history, start, tail) != "before":
        return known
    grown = cuts.size_between(history, start, tail)
    found = RecordedCut(now_ms, size_bytes + grown, tail)
    if not recording.is_cut_due(policy, newest, found):
        return known
    passed = _count_up_to(history, known, begin)
    grown_set = (*known[passed:], found)
    gone = {one.at_ms for one in recording.forgotten(policy, grown_set)}
    return tuple(one for one in grown_set if one.at_ms not in gone)


def plan(
    stream: Stream, history: History, tail: StreamCut | None, now_ms: int
) -> tuple[Sequence[RecordedCut], Plan]:
    """The recorded cuts after a look, and the plan that follows from them. Raises InvalidCut.

    `tail`: where the stream ends; None: the stores were not asked. The stream has a policy.
    """
    policy = stream.config.retention
    assert policy is not None
    recorded: Sequence[RecordedCut] = stream.retention.cuts
    if tail is not None:
        recorded = with_tail(stream, history, policy, tail, now_ms)
    return recorded, retention.plan(policy, facts_of(stream, history, recorded, now_ms))


def decide(
    stream: Stream, history: History, tail: StreamCut | None, *, revision: int, now_ms: int
) -> Sequence[StreamEvent]:
    """The events of one look; none if there is nothing to do. Raises InvalidCut."""
    if stream.config.retention is None or stream.status not in RETAINED_IN:
        return ()
    recorded, planned = plan(stream, history, tail, now_ms)
    events: list[StreamEvent] = []
    before = stream.retention.newest
    if recorded and (before is None or recorded[-1].at_ms > before.at_ms):
        kept = {one.at_ms for one in recorded}
        events.append(
            StreamCutRecorded(
                cut=recorded[-1].cut,
                size_bytes=recorded[-1].size_bytes,
                dropped_ms=tuple(c.at_ms for c in stream.retention.cuts if c.at_ms not in kept),
                at_ms=recorded[-1].at_ms,
            )
        )
    if planned.cut and _may_truncate(stream) and not _was_refused(stream, planned.cut):
        passed = _count_up_to(history, recorded, planned.cut)
        events.append(
            StreamReleasing(
                revision=revision,
                cut=planned.cut,
                rule=planned.rule.value,
                freed_bytes=planned.freed_bytes,
                passed_ms=recorded[passed - 1].at_ms if passed else 0,
                at_ms=now_ms,
            )
        )
    return events


def grounds_of(stream: Stream) -> tuple[object, ...]:
    """All of the stream that a plan depends on: a plan holds for as long as it is the same."""
    return (
        stream.incarnation,
        stream.status,
        stream.config.retention,
        stream.segments,
        stream.head,
        stream.subscriptions,
        stream.retention,
    )


def _may_truncate(stream: Stream) -> bool:
    busy = (IntentKind.TRUNCATE, IntentKind.SEAL)
    return all(intents.find(stream.intents, kind) is None for kind in busy)


def _was_refused(stream: Stream, cut: StreamCut) -> bool:
    """The stores would refuse it again; the next recorded cut is another one."""
    refusal = stream.retention.refusal
    return refusal is not None and refusal.cut == cut


def _stands(cut: PositionCut, head: StreamCut) -> StreamCut:
    return offsets_of(cut) if cut else head


def _count_up_to(history: History, recorded: Sequence[RecordedCut], cut: StreamCut) -> int:
    """How many recorded cuts lie at or before this one: the first ones."""

    def is_beyond(one: RecordedCut) -> bool:
        return cuts.compare(history, one.cut, cut) in ("after", "overlaps")

    return bisect.bisect_left(recorded, True, key=is_beyond)
