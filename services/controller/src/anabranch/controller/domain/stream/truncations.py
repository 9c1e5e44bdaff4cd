"""How truncations and recorded cuts change a stream. Pure.

A truncation that retention began is an intent that no command wants: it has no operation, and
the stream's `RetentionSet` keeps its outcome.
"""

from dataclasses import replace

from anabranch.common.model.stream import StreamConfig
from anabranch.controller.domain.stream import events, intents
from anabranch.controller.domain.stream.intents import Intent, IntentKind, TruncationPlan
from anabranch.controller.domain.stream.lifecycle import accepted, ended, pending
from anabranch.controller.domain.stream.retention_set import RecordedCut, Refusal, Release
from anabranch.controller.domain.stream.state import Stream

TruncationEvent = (
    events.StreamTruncating
    | events.StreamReleasing
    | events.StreamCutChecked
    | events.StreamTruncated
    | events.StreamTruncateFailed
    | events.StreamCutRecorded
)


def truncated(stream: Stream, event: TruncationEvent) -> Stream:
    """The stream after the event."""
    match event:
        case events.StreamTruncating():
            plan = TruncationPlan(event.cut)
            return accepted(stream, IntentKind.TRUNCATE, event, truncation=plan)
        case events.StreamReleasing():
            return _releasing(stream, event)
        case events.StreamCutChecked():
            return _checked(stream, event)
        case events.StreamTruncated():
            return _done(stream)
        case events.StreamTruncateFailed():
            return _refused(stream, event)
        case events.StreamCutRecorded():
            recorded = RecordedCut(event.at_ms, event.size_bytes, event.cut)
            known = stream.retention.recorded(recorded, frozenset(event.dropped_ms))
            return replace(stream, retention=known)


def configured(stream: Stream, config: StreamConfig) -> Stream:
    """The configuration is in force; without a retention policy no cuts are kept."""
    known = stream.retention
    if config.retention is None and known.cuts:
        known = replace(known, cuts=())
    return replace(stream, config=config, retention=known)


def _plan(stream: Stream) -> tuple[Intent, TruncationPlan]:
    intent = pending(stream, IntentKind.TRUNCATE)
    assert intent.truncation is not None
    return intent, intent.truncation


def _releasing(stream: Stream, event: events.StreamReleasing) -> Stream:
    release = Release(event.at_ms, event.freed_bytes, event.rule)
    plan = TruncationPlan(event.cut, release=release, passed_ms=event.passed_ms)
    intent = Intent(IntentKind.TRUNCATE, event.revision, event.at_ms, (), truncation=plan)
    return replace(stream, intents=intents.accepted(stream.intents, intent))


def _checked(stream: Stream, event: events.StreamCutChecked) -> Stream:
    intent, plan = _plan(stream)
    if event.cut:
        assert plan.release is not None, "a command's cut stays"
        release = replace(plan.release, bytes=event.freed_bytes)
        plan = replace(plan, cut=event.cut, release=release)
    checked = replace(intent, truncation=replace(plan, is_checked=True))
    return replace(stream, intents=intents.changed(stream.intents, checked))


def _done(stream: Stream) -> Stream:
    _, plan = _plan(stream)
    known = stream.retention
    if plan.release is not None:
        known = known.passed(plan.passed_ms).released(plan.release)
    return replace(ended(stream, IntentKind.TRUNCATE), head=plan.cut, retention=known)


def _refused(stream: Stream, event: events.StreamTruncateFailed) -> Stream:
    intent, plan = _plan(stream)
    known = stream.retention
    if plan.release is not None:
        refusal = Refusal(intent.since_ms, plan.cut, event.error)
        known = replace(known, refusal=refusal)
    return replace(ended(stream, IntentKind.TRUNCATE, event.error), retention=known)
