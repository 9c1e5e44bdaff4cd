"""Reader groups in the scenarios of the controller: how they are told of.

There are the streams s/x, of two segments and truncated to offset 7 of the first, and s/y. The
`streams` of a command are written ``s/x,s/y``, with a start ``s/x@0.0:8+0.1:0``, with an end too
``s/x@0.0:8+0.1:0@0.0:9+0.1:0``.
"""

from collections.abc import Sequence
from dataclasses import replace

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.commands import COMMANDS
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentOffset
from anabranch.controller.domain.reader_group import decide as group_decide
from anabranch.controller.domain.reader_group.decide import Circumstances, GroupCommand
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.reader_group.starts import SeenStream
from anabranch.controller.domain.reader_group.state import ReaderGroup, next_step
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamCreated,
    StreamCreating,
    StreamJoinedScope,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream
from kit.story_fields import cut_of, shown

NOW_MS = 1000


class GroupStory:
    """A reader group and what is done to it; `open=0` says that its scope is gone or closing."""

    def __init__(self) -> None:
        self.state = ReaderGroup()
        self.streams = {"s/x": seen_stream("x", 2, first_offset=7), "s/y": seen_stream("y", 1)}

    def command(self, fields: dict[str, object]) -> Sequence[GroupEvent]:
        scope = int(str(fields.pop("open", 1)))
        command = COMMANDS.validate_python({"scope": "s", "group": "g", **_parsed(fields)})
        assert isinstance(command, GroupCommand)
        at = Circumstances(scope or None, self.streams, NOW_MS)
        return group_decide.decide(self.state, command, at)

    def store(self, events: Sequence[Contract]) -> None:
        typed = GROUP.events.validate_python([event.model_dump() for event in events])
        after = GROUP.apply(self.state, typed)
        if events:
            GROUP.check(self.state, after)
        self.state = after

    def event(self, fields: dict[str, object]) -> Contract:
        if fields["kind"] == "group_create_failed":
            fields["error"] = {"code": "scope-not-found", "message": "gone"}
        return GROUP.events.validate_python([fields])[0]

    def show(self) -> str:
        state = self.state
        return (
            f"= {state.status} incarnation={state.incarnation} generation={state.generation} "
            f"wanted={','.join(state.wanted)} touched={','.join(state.touched)} "
            f"next={next_step(state)} " + shown(state.operations)
        )


def seen_stream(name: str, segments: int, first_offset: int = 0) -> SeenStream:
    """A stream as a decision about a group sees it, truncated in its first segment."""
    ranges = tuple(
        PlannedSegment(segment_id=segment_id(0, n), key_start=keys.start, key_end=keys.end)
        for n, keys in enumerate(even_ranges(segments))
    )
    creating = StreamCreating(
        command_id="c", revision=1, scope="s", stream=name, incarnation=1,
        scope_incarnation=1, segments=ranges, at_ms=1,
    )  # fmt: skip
    made = STREAM.apply(Stream(), [creating, StreamJoinedScope(), StreamCreated()])
    head = (SegmentOffset(segment_id(0, 0), first_offset), *made.head[1:])
    return SeenStream(replace(made, head=head), History(made.epochs))


def _parsed(fields: dict[str, object]) -> dict[str, object]:
    if "streams" not in fields:
        return fields
    found = dict(fields)
    config: dict[str, object] = {
        "streams": [_stream(w) for w in str(found.pop("streams")).split(",")]
    }
    for name in ("retention", "lease_ms"):
        if name in found:
            config[name] = found.pop(name)
    return {**found, "config": config}


def _stream(word: str) -> dict[str, object]:
    name, *cuts = word.split("@")
    ends = zip(("start", "end"), cuts, strict=False)
    return {"stream": name, **{which: cut_of(cut.split("+")) for which, cut in ends if cut}}
