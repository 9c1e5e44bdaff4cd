"""Names that nobody may give any more: what has them can still be used and deleted."""

import pytest

from anabranch.common.contracts.commands import (
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    SealStream,
)
from anabranch.common.errors import InvalidName, ScopeNotEmpty
from anabranch.common.model.topics import TOPIC_SCOPE
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeCreated, ScopeDeleted
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand, decide
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream

AT = Circumstances(revision=9, open_scope_incarnation=1, now_ms=1, history=lambda: History(()))


def apply(stream: Stream, command: StreamCommand) -> Stream:
    return STREAM.apply(stream, decide(stream, command, AT))


@pytest.mark.parametrize("name", [".", ".."])
def test_a_stream_of_dots_is_sealed_and_deleted_and_not_created_again(name: str) -> None:
    creating = events.StreamCreating(
        command_id="c", revision=1, scope="s", stream=name, incarnation=1, scope_incarnation=1,
        segments=(events.PlannedSegment(segment_id=0, key_start=0.0, key_end=1.0),), at_ms=1,
    )  # fmt: skip
    stream = STREAM.apply(Stream(), [creating, events.StreamJoinedScope(), events.StreamCreated()])

    stream = apply(stream, SealStream(command_id="s", scope="s", stream=name))
    stream = STREAM.apply(stream, [events.StreamDrained(revision=9)])
    stream = STREAM.apply(stream, [events.StreamSealed(lengths=(0,))])
    stream = apply(stream, DeleteStream(command_id="d", scope="s", stream=name))
    stream = STREAM.apply(stream, [events.StreamDeleted()])

    with pytest.raises(InvalidName):
        apply(stream, CreateStream(command_id="again", scope="s", stream=name))


@pytest.mark.parametrize("name", [".", ".."])
def test_a_scope_of_dots_is_deleted_and_not_created_again(name: str) -> None:
    created = ScopeCreated(command_id="c", scope=name, incarnation=1, at_ms=1)
    scope = SCOPE.apply(Scope(), [created])

    deleting = scope_decide.decide(scope, DeleteScope(command_id="d", scope=name), now_ms=1)
    scope = SCOPE.apply(SCOPE.apply(scope, deleting), [ScopeDeleted()])

    with pytest.raises(InvalidName):
        scope_decide.decide(scope, CreateScope(command_id="again", scope=name), now_ms=1)


def test_the_scope_of_the_topics_is_not_deleted_with_its_contents() -> None:
    created = ScopeCreated(command_id="c", scope=TOPIC_SCOPE, incarnation=1, at_ms=1)
    scope = SCOPE.apply(Scope(), [created])

    recursive = DeleteScope(command_id="d", scope=TOPIC_SCOPE, recursive=True)
    with pytest.raises(ScopeNotEmpty):
        scope_decide.decide(scope, recursive, now_ms=1)

    plain = DeleteScope(command_id="d", scope=TOPIC_SCOPE)
    assert scope_decide.decide(scope, plain, now_ms=1)
