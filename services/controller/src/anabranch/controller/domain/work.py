"""What is to be done next for a scope or a stream, as operators see it. Pure."""

from dataclasses import dataclass
from typing import assert_never

from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.state import next_step as stream_next_step


@dataclass(frozen=True, slots=True)
class PendingWork:
    """`kind`: of the intent being performed, "" where there is none; `since_ms`: since when it is
    pending, 0 where not remembered; `commands`: those that wait for it; `stream` None: a scope."""

    scope: str
    stream: str | None
    kind: str
    step: str
    since_ms: int
    commands: tuple[str, ...]


def pending_work(state: Scope | Stream) -> PendingWork | None:
    """The work that follows from the state; None: it is at rest."""
    match state:
        case Scope():
            step = scope_next_step(state)
            if step is None:
                return None
            return PendingWork(state.name, None, "delete", step.value, 0, state.pending)
        case Stream():
            return _of_stream(state)
        case _:
            assert_never(state)


def _of_stream(stream: Stream) -> PendingWork | None:
    step = stream_next_step(stream)
    if step is None:
        return None
    assert stream.ref is not None
    if not stream.intents:
        return PendingWork(stream.ref.scope, stream.ref.stream, "", step.value, 0, ())
    intent = stream.intents[0]
    return PendingWork(
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        kind=intent.kind.value,
        step=step.value,
        since_ms=intent.since_ms,
        commands=intent.commands,
    )
