"""How an intent of a stream begins and ends, with the operations that wait for it. Pure."""

from dataclasses import replace

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.stream import StreamConfig
from anabranch.controller.domain import operations
from anabranch.controller.domain.stream import events, intents
from anabranch.controller.domain.stream.intents import (
    Intent,
    IntentKind,
    ScalePlan,
    TruncationPlan,
)
from anabranch.controller.domain.stream.state import Stream

Accepting = (
    events.StreamCreating
    | events.StreamUpdating
    | events.StreamScaling
    | events.StreamTruncating
    | events.StreamSealing
    | events.StreamDeleting
)


def accepted(
    stream: Stream,
    kind: IntentKind,
    event: Accepting,
    *,
    scale: ScalePlan | None = None,
    truncation: TruncationPlan | None = None,
    config: StreamConfig | None = None,
) -> Stream:
    """A command's intent is pending."""
    commands = (event.command_id,)
    intent = Intent(kind, event.revision, event.at_ms, commands, scale, truncation, config=config)
    return replace(
        stream,
        intents=intents.accepted(stream.intents, intent),
        operations=operations.with_started(
            stream.operations, event.command_id, kind.value, event.at_ms
        ),
    )


def pending(stream: Stream, kind: IntentKind) -> Intent:
    """The pending intent of that kind."""
    found = intents.find(stream.intents, kind)
    assert found is not None, f"an event ends the {kind} that nobody asked for"
    return found


def ended(stream: Stream, kind: IntentKind, error: ErrorBody | None = None) -> Stream:
    """The pending intent of that kind ended: well, or with `error`."""
    found = pending(stream, kind)
    finished = operations.with_finished(stream.operations, found.commands, error)
    return replace(stream, intents=intents.without(stream.intents, kind), operations=finished)
