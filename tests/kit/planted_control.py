"""Known bugs of a control plane, planted on purpose: the simulation must find each of them.

Each is a context manager under which controllers, or what they stand on, behave as if one line were
missing or wrong.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import nats.errors

from anabranch.common.adapters import jetstream_events
from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    condition_headers,
)
from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.commands import Command
from anabranch.common.errors import AnabranchError, Conflict, Corrupt
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.runner import Runner
from anabranch.controller.domain.kinds import STREAMS
from anabranch.controller.domain.stream import decide, intents, scaling
from anabranch.controller.domain.stream import evolve as stream_evolve
from anabranch.controller.domain.stream import state as stream_state
from anabranch.controller.domain.stream.events import (
    StreamCreated,
    StreamCutChecked,
    StreamDeleted,
    StreamEvent,
    StreamIntentJoined,
    StreamJoinedScope,
)
from anabranch.controller.domain.stream.state import Stream, StreamStep, TransactionsSeen
from anabranch.controller.handlers import commands as command_handlers
from anabranch.controller.handlers import registry as query_handlers
from anabranch.controller.handlers.queries import operations as operation_queries
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.workflows import (
    create_stream,
    delete_stream,
    scale_stream,
    truncate_stream,
)
from anabranch.controller.workflows.context import WorkContext, seal_all, stamp_of
from anabranch.controller.workflows.steps import STEPS
from anabranch.segstore.domain.container.decide import NoChange
from anabranch.segstore.domain.container.operations import DeleteOperation, Operation
from kit.sim_controller import SimController
from kit.sim_segments import SimSegments
from kit.simbus import SimJetStream, SimReader
from kit.simqueue import Queued, SimQueue

Planted = Callable[[], AbstractContextManager[object]]


def _step(step: StreamStep, perform: Callable[..., Any]) -> AbstractContextManager[object]:
    return patch.dict(STEPS[STREAMS.name], {step: perform})


def sealed_before_told() -> AbstractContextManager[object]:
    """A scale seals the old segments before it is stored that the new ones exist."""
    real = scale_stream.make_successors

    async def make_successors(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
        plan = loaded.state.intents[0].scale
        assert plan is not None
        await seal_all(context, loaded.state.names_of(plan.sealed), stamp_of(loaded))
        return await real(context, loaded)

    return _step(StreamStep.MAKE_SUCCESSORS, make_successors)


def said_before_done() -> AbstractContextManager[object]:
    """A stream is said to be created before its segments are made."""

    async def create(_context: WorkContext, _loaded: Loaded[Stream]) -> StreamEvent:
        return StreamCreated()

    return _step(StreamStep.CREATE_SEGMENTS, create)


@contextmanager
def stamp_of_the_moment() -> Iterator[None]:
    """Requests carry the stream's present revision instead of the intent's."""

    def stamp(loaded: Loaded[Stream]) -> Stamp:
        return Stamp(loaded.state.incarnation, loaded.revision)

    with (
        patch.object(create_stream, "stamp_of", stamp),
        patch.object(scale_stream, "stamp_of", stamp),
    ):
        yield


def stamp_not_raised() -> AbstractContextManager[object]:
    """A deletion carries the stamp of the creation, not its own."""
    return patch.object(
        delete_stream, "stamp_of", lambda loaded: Stamp(loaded.state.incarnation, 1)
    )


def no_scope_look() -> AbstractContextManager[object]:
    """A stream joins its scope without looking whether that is open."""

    async def join(_context: WorkContext, _loaded: Loaded[Stream]) -> StreamEvent:
        return StreamJoinedScope()

    return _step(StreamStep.JOIN_SCOPE, join)


@contextmanager
def gate_left_open() -> Iterator[None]:
    """A scope's deletion looks for members without closing the gate first."""

    async def close(_self: Gates, _gate: str, _revision: int) -> None:
        return

    async def nobody(*_given: Any) -> Mapping[Any, Any]:
        return {}

    with patch.object(Gates, "close", close), patch.object(Mirror, "live_parts", nobody):
        yield


@contextmanager
def gate_not_asked() -> Iterator[None]:
    """A membership record is stored whatever has become of the gate."""
    real = condition_headers

    def condition(subject: str, expected_sequence: int, gate: Gate | None) -> dict[str, str]:
        named = real(subject, expected_sequence, gate)
        if gate is not None:
            del named[EXPECTED_SEQUENCE_HEADER]
        return named

    async def nobody(*_given: Any) -> Mapping[Any, Any]:
        return {}

    with (
        patch.object(jetstream_events, "condition_headers", condition),
        patch.object(Mirror, "live_parts", nobody),
    ):
        yield


def negative_without_looking() -> AbstractContextManager[object]:
    """That there is no such stream is said without reaching the head."""

    async def present(self: Mirror, ref: Any) -> Any:
        return self.stream(ref)

    return patch.object(Mirror, "stream_at_head", present)


@contextmanager
def sent_again() -> Iterator[None]:
    """An append without an answer is sent again, without its condition."""
    real = SimJetStream.publish

    async def publish(self: SimJetStream, subject: str, *given: Any, **named: Any) -> Any:
        try:
            return await real(self, subject, *given, **named)
        except nats.errors.TimeoutError:
            headers = dict(named.get("headers") or {})
            headers.pop(EXPECTED_SEQUENCE_HEADER, None)
            return await real(self, subject, *given, **{**named, "headers": headers})

    with patch.object(SimJetStream, "publish", publish):
        yield


@contextmanager
def unknown_means_failed() -> Iterator[None]:
    """What became of an append is not looked up: it counts as refused."""

    class Refused(Conflict):
        code = "refused"

    async def resolve(*_given: Any, **_named: Any) -> int:
        raise Refused("the append was not answered")

    with patch.object(JetStreamEventStore, "_resolve", resolve):
        yield


def unknown_is_rejected() -> AbstractContextManager[object]:
    """A command whose decision may be stored is answered as rejected."""

    class Never(AnabranchError):
        code = "never"

    return patch.object(command_handlers, "Unknown", Never)


def acked_before_decided() -> AbstractContextManager[object]:
    """A command leaves the queue before its decision is durable."""
    real = SimController._handle

    async def handle(self: SimController, queue: SimQueue, queued: Queued, delivery: int) -> None:
        queue.ack(queued, delivery)
        await real(self, queue, queued, delivery)

    return patch.object(SimController, "_handle", handle)


def joined_across_kinds() -> AbstractContextManager[object]:
    """Whoever joins an intent is noted with the first one, of whichever kind."""
    real = stream_evolve._joined

    def joined(stream: Stream, event: StreamIntentJoined) -> Stream:
        return real(stream, event.model_copy(update={"intent": ""}))

    return patch.object(stream_evolve, "_joined", joined)


def joins_any_scale() -> AbstractContextManager[object]:
    """Every scale joins the one that is pending."""
    return patch.object(scaling, "is_same", lambda _plan, _command: True)


def numbers_reused() -> AbstractContextManager[object]:
    """The next life of a name begins its segments' numbers again."""
    real = decide._create

    def create(stream: Stream, command: Any, at: Any) -> Any:
        return real(replace(stream, highest_number=-1), command, at)

    return patch.object(decide, "_create", create)


def tombstone_dropped() -> AbstractContextManager[object]:
    """A store keeps nothing of a segment that it has deleted."""
    real = SimSegments._log

    def log(self: SimSegments, operation: Operation | NoChange) -> None:
        real(self, operation)
        if isinstance(operation, DeleteOperation):
            del self.known[operation.segment]

    return patch.object(SimSegments, "_log", log)


def operations_forgotten() -> AbstractContextManager[object]:
    """A stream's tombstone forgets which commands were accepted."""
    real = stream_evolve._tombstone

    def tombstone(stream: Stream) -> Stream:
        return replace(real(stream), operations=())

    return patch.object(stream_evolve, "_tombstone", tombstone)


def ids_forgotten() -> AbstractContextManager[object]:
    """A command that was accepted before is decided again."""
    real = decide.decide

    def decide_anew(stream: Stream, command: Command, at: Any) -> Any:
        others = tuple(o for o in stream.operations if o.operation != command.command_id)
        return real(replace(stream, operations=others), command, at)  # type: ignore[arg-type]

    return patch.object(decide, "decide", decide_anew)


def no_compare_and_set() -> AbstractContextManager[object]:
    """A runner appends after whatever is last, instead of after what it has seen."""
    real = Repository.append

    async def append(self: Repository[Any, Any], loaded: Loaded[Any], events: Any) -> Loaded[Any]:
        head = await self.load(loaded.subject)
        seen = replace(
            loaded, sequence=head.sequence, revision=head.revision,
            snapshot_sequence=head.snapshot_sequence,
        )  # fmt: skip
        return await real(self, seen, events)

    return patch.object(Repository, "append", append)


def gap_at_reconnect() -> AbstractContextManager[object]:
    """A follower that has to connect again goes on one message too late."""
    real = SimReader.follow

    async def follow(self: SimReader, after_sequence: int) -> AsyncIterator[Any]:
        connected = self._server.generation
        async for message in real(self, after_sequence):
            if self._server.generation != connected:
                connected = self._server.generation
                continue
            yield message

    return patch.object(SimReader, "follow", follow)


@contextmanager
def gap_not_seen() -> Iterator[None]:
    """A follower skips a message, and the mirror folds the next one all the same."""
    real = Repository.fold

    def fold(self: Repository[Any, Any], loaded: Loaded[Any], message: Any) -> Loaded[Any]:
        try:
            return real(self, loaded, message)
        except (Corrupt, AssertionError):
            return replace(loaded, sequence=message.sequence, revision=message.revision)

    with gap_at_reconnect(), patch.object(Repository, "fold", fold):
        yield


def only_present_segments_deleted() -> AbstractContextManager[object]:
    """Deleting a stream forgets the segments of earlier epochs."""

    async def delete(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
        for name in loaded.state.segment_names():
            await context.stores.delete_segment(name, stamp_of(loaded))
        return StreamDeleted()

    return _step(StreamStep.DELETE_SEGMENTS, delete)


def failure_given_up() -> AbstractContextManager[object]:
    """A step that failed is not tried again."""

    async def resume(_self: Any, _subject: str, _pause: float) -> None:
        return

    return patch.object(Runner, "_resume_after", resume)


def cut_not_checked() -> AbstractContextManager[object]:
    """No store is asked whether a truncation can be."""

    async def check(_context: WorkContext, _loaded: Loaded[Stream]) -> StreamEvent:
        return StreamCutChecked()

    return _step(StreamStep.CHECK_CUT, check)


def truncated_while_checked() -> AbstractContextManager[object]:
    """The segments of a cut are truncated at once, each as soon as it agrees."""

    async def check(context: WorkContext, loaded: Loaded[Stream], place: SegmentOffset) -> None:
        (name,) = loaded.state.names_of([place.segment_id])
        await context.stores.truncate_segment(name, place.offset, stamp_of(loaded))

    return patch.object(truncate_stream, "_check", check)


def seal_overtakes() -> AbstractContextManager[object]:
    """The last intent accepted is performed first."""
    real = stream_state.next_step

    def next_step(stream: Stream, seen: TransactionsSeen) -> StreamStep | None:
        return real(replace(stream, intents=intents_reversed(stream)), seen)

    return patch.multiple("anabranch.controller.domain.kinds", stream_next_step=next_step)


def intents_reversed(stream: Stream) -> intents.Intents:
    return tuple(reversed(stream.intents))


def end_without_a_point() -> AbstractContextManager[object]:
    """It is told that an operation ended, and not what to demand in order to see it."""

    async def nothing(_desk: object, _loaded: object) -> tuple[ReadToken, ...]:
        return ()

    return patch.object(operation_queries, "_points_after", nothing)


def demand_not_heeded() -> AbstractContextManager[object]:
    """A controller answers from what it has, whatever is demanded."""

    async def reach(_mirror: Mirror, _point: ReadToken) -> None:
        return

    return patch.object(query_handlers, "reach_demanded", reach)


def clocks_taken_to_agree() -> AbstractContextManager[object]:
    """The server's clock is taken for the controller's own."""
    return patch.object(StoreClock, "here_ms", lambda _self, stored_ms: stored_ms)


def nobody_refused_for_being_late() -> AbstractContextManager[object]:
    """Commands are decided however long nobody has waited for them."""
    return patch.object(StoreClock, "here_ms", lambda _self, stored_ms: stored_ms + 10**9)


CONTROL_BUGS: dict[str, Planted] = {
    "end without a point": end_without_a_point,
    "demand not heeded": demand_not_heeded,
    "clocks taken to agree": clocks_taken_to_agree,
    "nobody refused for being late": nobody_refused_for_being_late,
    "sealed before told": sealed_before_told,
    "said before done": said_before_done,
    "stamp of the moment": stamp_of_the_moment,
    "stamp not raised": stamp_not_raised,
    "no scope look": no_scope_look,
    "gate left open": gate_left_open,
    "gate not asked": gate_not_asked,
    "negative without looking": negative_without_looking,
    "sent again": sent_again,
    "unknown means failed": unknown_means_failed,
    "unknown is rejected": unknown_is_rejected,
    "acked before decided": acked_before_decided,
    "joined across kinds": joined_across_kinds,
    "joins any scale": joins_any_scale,
    "numbers reused": numbers_reused,
    "tombstone dropped": tombstone_dropped,
    "operations forgotten": operations_forgotten,
    "ids forgotten": ids_forgotten,
    "no compare and set": no_compare_and_set,
    "gap at reconnect": gap_at_reconnect,
    "gap not seen": gap_not_seen,
    "only present segments deleted": only_present_segments_deleted,
    "failure given up": failure_given_up,
    "seal overtakes": seal_overtakes,
    "cut not checked": cut_not_checked,
    "truncated while checked": truncated_while_checked,
}


def acknowledged_means_stored() -> AbstractContextManager[object]:
    """An acknowledgement of a cluster counts, although another message may lie before the own."""
    return patch.object(jetstream_events, "is_clustered", lambda _client: False)


@contextmanager
def void_messages_folded() -> Iterator[None]:
    """The second message of a revision is folded like the first."""
    real = Repository.fold

    def fold(self: Repository[Any, Any], loaded: Loaded[Any], message: Any) -> Loaded[Any]:
        if message.revision == loaded.revision:
            message = replace(message, revision=message.revision + 1)
        return real(self, loaded, message)

    with patch.object(Repository, "fold", fold):
        yield


CARELESS_BUGS: dict[str, Planted] = {
    "acknowledged means stored": acknowledged_means_stored,
    "void messages folded": void_messages_folded,
}
"""Found where the event store stores conflicting messages."""
