"""Known bugs of containers, planted on purpose: a test that cannot find them proves nothing.

`HastyContainer`: answers that log nothing do not wait for what is pending. A duplicate of an
append that is not durable yet is then acknowledged before it, which is a lost event if the
power fails in between. The tests of the reply barrier must catch it. The others are context
managers under which a container behaves as if a line were missing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from msgspec import structs

from anabranch.common.tier2.state import Attributes, TieredExtent
from anabranch.common.wire.messages import Appended, AppendOnce, ConditionalAppend, Request
from anabranch.segstore.domain.container import evolve
from anabranch.segstore.domain.container.answer import VERBS
from anabranch.segstore.domain.container.attributes import AttributeChange, apply_changes
from anabranch.segstore.domain.container.circumstances import (
    NOTHING_GIVEN,
    Answer,
    Circumstances,
    Elsewhere,
    Given,
)
from anabranch.segstore.domain.container.decide import Duplicate, decide_append, decide_setup
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import (
    DecodedOperation,
    TruncateOperation,
    decode_operations,
)
from anabranch.segstore.ports import ContainerLog, ReplayedFrame
from anabranch.segstore.shell.container import replay as replays
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.replay import Replay
from anabranch.segstore.shell.container.replies import Deliver, HeldAck, HeldReply, ReplyGate
from anabranch.segstore.shell.memory import resident_segments
from anabranch.segstore.shell.memory.applied import Applied
from anabranch.segstore.shell.memory.read_index import ReadIndex
from anabranch.segstore.shell.memory.residency import Residency
from anabranch.segstore.shell.memory.segment_index import SegmentIndex


class HastyGate(ReplyGate):
    """Holds an answer only if its own operation is pending."""

    def __init__(self, container: Container) -> None:
        super().__init__(container._throttle)
        self._seen = 0

    def hold(self, held: HeldAck | HeldReply) -> None:
        if held.barrier > self._seen:
            self._seen = held.barrier
            super().hold(held)
        elif isinstance(held, HeldAck):
            session = held.session.session
            last = held.last_event_number
            reply = Appended(session=session, last_event_number=last, length=held.length)
            held.session.send(reply, held.request_id)
        else:
            held.deliver(held.message)


class HastyContainer(Container):
    """Acknowledges duplicates from the pending state at once."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._gate = HastyGate(self)


def merge_forgets_the_journal() -> AbstractContextManager[object]:
    """A flush that was under way lets go journal files that a merge's target still reads."""
    real = ReadIndex.add_tiered

    def careless(self: ReadIndex, number: int, extents: Iterable[TieredExtent]) -> int:
        return 0 if number in self._moved else real(self, number, extents)

    return patch.object(ReadIndex, "add_tiered", careless)


def copies_unknown_to_memory() -> AbstractContextManager[object]:
    """A rewrite changes the catalog, and not the index of a segment that is in memory."""
    return patch.object(ReadIndex, "replace", lambda _index, _number, _extents: None)


def truncation_lost_at_replay() -> AbstractContextManager[object]:
    """What was truncated before a crash is there again after it."""

    def careless(payload: bytes, first_sequence: int) -> Iterator[DecodedOperation]:
        for found in decode_operations(payload, first_sequence):
            operation = found.operation
            if isinstance(operation, TruncateOperation):
                operation = replace(operation, offset=0)
            yield replace(found, operation=operation)

    return patch.object(replays, "decode_operations", careless)


@contextmanager
def attributes_twice_at_replay() -> Iterator[None]:
    """An attribute's update is performed twice when the log is replayed."""
    replay = Container.replay

    def twice(attributes: Attributes, changes: Iterable[AttributeChange]) -> Attributes:
        done = tuple(changes)
        return apply_changes(apply_changes(attributes, done), done)

    def careless(
        self: Container, frame: ReplayedFrame, operations: Iterable[DecodedOperation]
    ) -> None:
        with patch.object(evolve, "apply_changes", twice):
            replay(self, frame, operations)

    with patch.object(Container, "replay", careless):
        yield


def condition_on_the_applied_state() -> AbstractContextManager[object]:
    """A conditional append does not see what is pending."""

    real = Container.ask

    def careless(
        self: Container, request: Request, deliver: Deliver, given: Given = NOTHING_GIVEN
    ) -> Elsewhere | None:
        applied = self.applied.state

        def answer(state: SegmentMap, request: AppendOnce, around: Circumstances) -> Answer:
            writer_id, payload = request.writer_id, around.given.payload
            decide_setup(state.known(request.segment), request.segment, writer_id)
            known = decide_setup(applied.known(request.segment), request.segment, writer_id)
            last = state.last_event_number(known.number, writer_id)
            decision = decide_append(known, last, writer_id, request, payload, now_ms=0)
            length = (state.living(known.number) or known).length
            if not isinstance(decision, Duplicate):
                decision = structs.replace(decision, offset=length)
                length += len(payload)
            last = request.first_event_number + request.count - 1
            return Answer(decision, Appended(session=0, last_event_number=last, length=length))

        rows = cast("dict[type[Request], Any]", VERBS)
        row = replace(rows[AppendOnce], answer=answer)
        with patch.dict(rows, {AppendOnce: row, ConditionalAppend: row}):
            return real(self, request, deliver, given)

    return patch.object(Container, "ask", careless)


@contextmanager
def transients_survive_a_restart() -> Iterator[None]:
    """What was made for connections of an older container epoch stays when it is opened again."""
    real = Container.serve

    def careless(self: Container, log: ContainerLog) -> None:
        with patch.object(Container, "end_transients", lambda *_: None):
            real(self, log)

    with patch.object(Container, "serve", careless):
        yield


@contextmanager
def dirty_segments_evicted() -> Iterator[None]:
    """What no manifest tells yet leaves the memory."""
    with (
        patch.object(Applied, "clean", lambda *_: True),
        patch.object(SegmentIndex, "tiered", True),
    ):
        yield


def writers_forgotten_at_load() -> AbstractContextManager[object]:
    """A segment comes back without the marks of its writers."""
    return patch.object(resident_segments, "marks_to_keep", lambda *_: {})


def decided_without_loading() -> AbstractContextManager[object]:
    """Whatever is not in memory passes for what does not exist."""
    return patch.object(Residency, "is_known", lambda *_: True)


def replayed_without_loading() -> AbstractContextManager[object]:
    """A replay takes what it does not find in memory for what does not exist."""

    async def careless(self: Replay, names: set[str]) -> None:
        self._container.residency.touch(sorted(names))

    return patch.object(Replay, "_load", careless)


CONTAINER_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "merge forgets the journal": merge_forgets_the_journal,
    "truncation lost at replay": truncation_lost_at_replay,
    "attributes twice at replay": attributes_twice_at_replay,
    "condition on the applied state": condition_on_the_applied_state,
    "dirty segments evicted": dirty_segments_evicted,
    "writers forgotten at load": writers_forgotten_at_load,
    "decided without loading": decided_without_loading,
    "replayed without loading": replayed_without_loading,
}
