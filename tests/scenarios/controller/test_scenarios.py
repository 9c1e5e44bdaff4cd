"""Text scenarios of the aggregates: given what happened, when a command comes, then what.

A file in `scenarios/` is a story of one aggregate. A block is a line to be performed, ``----``
and what must come of it:

    <command kind> <command id> [name=value …]   a command; what follows are its events, or the
                                                 rejection's code and message
    event <kind> [name=value …]                  a fact stored by a workflow

    epochs                                       of a stream: each with the one that it repeats
    successors of=0.0,1.2                        of a stream: what follows, and all it replaces

Transactions and applications take no commands but what `kit.transaction_story` says, without ids.
Values are written as `kit.story_fields` says: segments as ``epoch.number``, cuts as
``0.0:10,0.1:future``, ranges as ``0-0.5,0.5-1``.

The last line of every outcome is the state. With ``ANABRANCH_REWRITE=1`` the outcomes are written
anew: read the difference before you keep it.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.commands import (
    COMMANDS,
    CreateScope,
    DeleteScope,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.model.names import segment_id
from anabranch.controller.domain.kv_table import state as table_state
from anabranch.controller.domain.kv_table.decide import TableCommand
from anabranch.controller.domain.reader_group import state as group_state
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope import state as scope_state
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeEvent
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream import scaling
from anabranch.controller.domain.stream import state as stream_state
from anabranch.controller.domain.stream.decide import Circumstances
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.domain.transaction import state as txn_state
from kit.commit_story import commit_fields, shown_epochs, shown_successors
from kit.group_story import GroupStory
from kit.story_fields import parsed, shown, told
from kit.table_story import TableStory
from kit.transaction_story import ApplicationStory, TransactionStory

STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
NOW_MS = 1000


class ScopeStory:
    """A scope and what is done to it."""

    def __init__(self) -> None:
        self.state = Scope()

    def command(self, fields: dict[str, object]) -> Sequence[ScopeEvent]:
        command = COMMANDS.validate_python({"scope": "s", **fields})
        assert isinstance(command, CreateScope | DeleteScope)
        return scope_decide.decide(self.state, command, now_ms=NOW_MS)

    def store(self, events: Sequence[Contract]) -> None:
        typed = SCOPE.events.validate_python([event.model_dump() for event in events])
        after = SCOPE.apply(self.state, typed)
        if events:
            SCOPE.check(self.state, after)
        self.state = after

    def event(self, fields: dict[str, object]) -> Contract:
        if fields["kind"] == "scope_reopened":
            fields["error"] = {"code": "scope-not-empty", "message": "the scope has streams"}
        return SCOPE.events.validate_python([fields])[0]

    def show(self) -> str:
        state = self.state
        step = scope_next_step(state)
        return f"= {state.status} incarnation={state.incarnation} next={step} " + shown(
            state.operations
        )


class StreamStory:
    """A stream and what is done to it; `open=0` says that its scope is gone or closing."""

    def __init__(self) -> None:
        self.state = Stream()
        self.revision = 0

    def command(self, fields: dict[str, object]) -> Sequence[StreamEvent]:
        scope = int(str(fields.pop("open", 1)))
        command = COMMANDS.validate_python({"scope": "s", "stream": "x", **parsed(fields)})
        assert not isinstance(command, CreateScope | DeleteScope | GroupCommand | TableCommand)
        return stream_decide.decide(
            self.state,
            command,
            Circumstances(
                revision=self.revision + 1,
                open_scope_incarnation=scope or None,
                now_ms=NOW_MS,
                history=lambda: History(self.state.epochs),
            ),
        )

    def look(self, verb: str, of: str) -> list[str]:
        """What the stream's history says."""
        history = History(self.state.epochs)
        if verb == "epochs":
            return shown_epochs(history)
        segments = [segment_id(*map(int, word.split("."))) for word in of.split(",")]
        return [shown_successors(self.state, history, segment) for segment in segments]

    def store(self, events: Sequence[Contract]) -> None:
        typed = STREAM.events.validate_python([event.model_dump() for event in events])
        after = STREAM.apply(self.state, typed)
        if events:
            STREAM.check(self.state, after)
            self.revision += 1
        self.state = after

    def event(self, fields: dict[str, object]) -> Contract:
        if fields["kind"] == "stream_create_failed":
            fields["error"] = {"code": "scope-not-found", "message": "gone"}
        if fields["kind"] == "stream_sealed":
            fields["lengths"] = [0] * len(self.state.segments)
        if fields["kind"] == "stream_scaled":
            scale = self.state.intents[0].scale
            assert scale is not None
            fields["sizes"] = [20] * len(scale.sealed)
        if fields["kind"] == "stream_update_applied":
            config = self.state.intents[0].config
            assert config is not None
            if scaling.asks_for_scale(self.state, config):
                fields |= scaling.evened(self.state, config)._asdict()
        if str(fields["kind"]).startswith(("stream_commit", "stream_roll")):
            fields |= commit_fields(self.state, self.revision + 1, fields)
        if fields["kind"] == "stream_drained":
            fields["revision"] = self.revision + 1
        if fields["kind"] == "stream_truncate_failed":
            fields["error"] = {"code": "not-at-boundary", "message": "within an append"}
        return STREAM.events.validate_python([fields])[0]

    def show(self) -> str:
        state = self.state
        segments = ",".join(told(s.segment_id) for s in state.segments)
        head = ",".join(f"{told(p.segment_id)}:{p.offset}" for p in state.head)
        intents = ",".join(intent.kind for intent in state.intents)
        subscribers = shown_subscribers(state)
        return (
            f"= {state.state} incarnation={state.incarnation} segments={segments} head={head} "
            f"highest={state.highest_number} intents={intents} next={stream_next_step(state)} "
            + subscribers
            + shown(state.operations)
        )


def shown_subscribers(stream: Stream) -> str:
    """Nothing if there never were any."""
    known = stream.subscriptions
    present = [
        f"{one.subscriber}/{one.incarnation}.{one.generation}@"
        + "+".join(f"{told(at.segment_id)}:{at.offset}:{at.event_index}" for at in one.cut)
        for one in known.present
    ]
    former = [f"{one.subscriber}/{one.incarnation}.{one.generation}" for one in known.former]
    if not present and not former:
        return ""
    return f"subscribers={','.join(present)} former={','.join(former)} "


Story = ScopeStory | StreamStory | GroupStory | TableStory | TransactionStory | ApplicationStory


def has_several_intents(story: Story) -> bool:
    """Of a stream: another intent may be performed first, and remain."""
    return isinstance(story, StreamStory) and len(story.state.intents) > 1


def require_due(story: Story, event: Contract, *, was_busy: bool) -> None:
    """What is due after the event is what its row says, unless something earlier is."""
    then: tuple[str, ...]
    due: str | None
    match story:
        case ScopeStory():
            then, due = scope_state.MACHINE.rows[type(event)].then, scope_next_step(story.state)
        case StreamStory():
            then, due = stream_state.MACHINE.rows[type(event)].then, stream_next_step(story.state)
            was_busy = was_busy or len(story.state.intents) > 1
        case GroupStory():
            then = group_state.MACHINE.rows[type(event)].then
            due = group_state.next_step(story.state)
        case TableStory():
            then = table_state.MACHINE.rows[type(event)].then
            due = table_state.next_step(story.state)
        case TransactionStory():
            then = txn_state.MACHINE.rows[type(event)].then
            due = txn_state.next_step(story.state)
        case ApplicationStory():
            return
    assert was_busy or (due or "") in then, f"{due} is due after {event}"


def perform(story: Story, line: str) -> list[str]:
    """What comes of one line, as text."""
    verb, *words = line.split()
    if verb in ("epochs", "successors"):
        assert isinstance(story, StreamStory)
        return story.look(verb, words[0].removeprefix("of=") if words else "")
    named = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word] or [""]
    fields: dict[str, object] = dict(named)
    outcome: list[str] = []
    if verb == "event":
        event = story.event({"kind": plain[0], **fields})
        was_busy = has_several_intents(story)
        story.store([event])
        require_due(story, event, was_busy=was_busy)
        return [story.show()]
    try:
        events = story.command({"kind": verb, "command_id": plain[0], **fields})
    except AnabranchError as rejection:
        outcome.append(f"! {rejection.code}: {rejection}")
    else:
        outcome.extend("> " + event.model_dump_json(exclude={"schema_number"}) for event in events)
        was_busy = has_several_intents(story)
        story.store(events)
        if events:
            require_due(story, events[-1], was_busy=was_busy)
    return [*outcome, story.show()]


STORY_OF: dict[str, type[Story]] = {
    "scope": ScopeStory,
    "stream": StreamStory,
    "group": GroupStory,
    "table": TableStory,
    "transaction": TransactionStory,
    "application": ApplicationStory,
}
"""By the first word of a file's name."""


def blocks(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """(comment lines, line to perform, expected outcome) of each block."""
    for block in text.strip().split("\n\n"):
        head, _, expected = block.partition("\n----\n")
        *comments, line = head.splitlines()
        yield "".join(comment + "\n" for comment in comments), line, expected.splitlines()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_written(path: Path) -> None:
    story = STORY_OF[path.stem.partition("_")[0]]()
    told = []
    for comments, line, expected in blocks(path.read_text()):
        outcome = perform(story, line)
        told.append(f"{comments}{line}\n----\n" + "\n".join(outcome) + "\n")
        if not os.environ.get("ANABRANCH_REWRITE"):
            assert outcome == expected, line
    if os.environ.get("ANABRANCH_REWRITE"):
        path.write_text("\n".join(told))


def test_there_are_stories() -> None:
    assert len(STORIES) >= 4
