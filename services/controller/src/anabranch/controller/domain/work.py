"""What is to be done next for an aggregate, as operators see it. Pure."""

from dataclasses import dataclass
from typing import assert_never

from anabranch.controller.domain.reader_group.state import KIND_OF, ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.state import next_step as stream_next_step


@dataclass(frozen=True, slots=True)
class PendingWork:
    """`kind`: of the intent being performed, "" where there is none; `since_ms`: since when it is
    pending, 0 where not remembered; `commands`: those that wait for it. Neither `stream` nor
    `group`: it is of the scope."""

    scope: str
    kind: str
    step: str
    since_ms: int
    commands: tuple[str, ...]
    stream: str | None = None
    group: str | None = None


def pending_work(state: Scope | Stream | ReaderGroup) -> PendingWork | None:
    """The work that follows from the state; None: it is at rest."""
    match state:
        case Scope():
            step = scope_next_step(state)
            if step is None:
                return None
            return PendingWork(state.name, "delete", step.value, 0, state.pending)
        case Stream():
            return _of_stream(state)
        case ReaderGroup():
            return _of_group(state)
        case _:
            assert_never(state)


def _of_stream(stream: Stream) -> PendingWork | None:
    step = stream_next_step(stream)
    if step is None:
        return None
    assert stream.ref is not None
    if not stream.intents:
        return PendingWork(stream.ref.scope, "", step.value, 0, (), stream=stream.ref.stream)
    intent = stream.intents[0]
    return PendingWork(
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        kind=intent.kind.value,
        step=step.value,
        since_ms=intent.since_ms,
        commands=intent.commands,
    )


def _of_group(group: ReaderGroup) -> PendingWork | None:
    step = group_next_step(group)
    if step is None:
        return None
    assert group.ref is not None
    assert group.status is not None
    return PendingWork(
        scope=group.ref.scope,
        group=group.ref.group,
        kind=KIND_OF[group.status],
        step=step.value,
        since_ms=group.since_ms,
        commands=group.pending,
    )
