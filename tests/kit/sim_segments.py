"""All containers of a cluster as controllers see them: the store's own decisions, in memory.

Requests are decided and folded by the segment store's `decide` and `evolve`, so that stamps,
tombstones and refusals are the real ones. Every operation that changes something is told to whoever
listens, in the order in which it happened. Every length is an append boundary.
"""

from collections.abc import Callable
from dataclasses import replace

import nats.errors

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    CreateSegment,
    DeleteSegment,
    Done,
    GetSegmentInfo,
    Message,
    Sealed,
    SealSegment,
    SegmentInfo,
    Truncated,
    TruncateSegment,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.segstore.domain.container import decide
from anabranch.segstore.domain.container.decide import Known, NoChange
from anabranch.segstore.domain.container.evolve import evolve
from anabranch.segstore.domain.container.operations import (
    CreateOperation,
    DeleteOperation,
    Operation,
    SealOperation,
    TruncateOperation,
)

ControlOperation = CreateOperation | SealOperation | DeleteOperation | TruncateOperation
OnPerformed = Callable[[ControlOperation, Known], None]
"""Told of an operation, and of what was known of its segment before."""


class SimSegments:
    """What all segment stores together have. `down` containers have nobody who answers."""

    def __init__(self, clock: Clock) -> None:
        self.known: dict[str, Known] = {}
        self.down: set[int] = set()
        self.on_performed: list[OnPerformed] = []
        self._clock = clock
        self._sequence = 0

    def respond(self, subject: str, packet: bytes) -> bytes:
        """The answer to a request on `ana.seg.<container>.<verb>`. Raises NoRespondersError."""
        if int(subject.split(".")[2]) in self.down:
            raise nats.errors.NoRespondersError
        (found,) = PacketParser().feed(packet)
        try:
            reply = self._perform(decode_message(found))
        except AnabranchError as error:
            reply = failed(error)
        return b"".join(encode_message(reply, found.request_id))

    def write(self, segment: str, size: int) -> None:
        """Somebody appends, if the segment takes it."""
        known = self.known.get(segment)
        if isinstance(known, SegmentState) and not known.sealed:
            self.known[segment] = replace(known, length=known.length + size)

    def state(self, segment: str) -> SegmentState | None:
        """The segment, if it lives."""
        known = self.known.get(segment)
        return known if isinstance(known, SegmentState) else None

    def _perform(self, request: Message) -> Message:
        now_ms = self._clock.now_ms()
        match request:
            case CreateSegment(segment=segment, stamp=stamp):
                known = self.known.get(segment)
                self._log(decide.decide_create(known, segment, stamp, now_ms))
                return Done()
            case SealSegment(segment=segment, stamp=stamp):
                known = self.known.get(segment)
                self._log(decide.decide_seal(known, segment, stamp, now_ms))
                return Sealed(length=self._living(segment).length)
            case TruncateSegment(segment=segment, offset=offset):
                known = self.known.get(segment)
                self._log(decide.decide_truncate(known, request, offset, now_ms))
                return Truncated(start=self._living(segment).start)
            case DeleteSegment(segment=segment, stamp=stamp):
                known = self.known.get(segment)
                self._log(decide.decide_delete(known, segment, stamp, now_ms))
                return Done()
            case GetSegmentInfo(segment=segment):
                known = self.known.get(segment)
                if not isinstance(known, SegmentState):
                    raise decide.gone(known, segment)
                return _info(known)
            case _:
                raise AssertionError(f"controllers do not send {request}")

    def _log(self, operation: Operation | NoChange) -> None:
        if isinstance(operation, NoChange):
            return
        assert isinstance(operation, ControlOperation)
        self._sequence += 1
        before = self.known.get(operation.segment)
        self.known[operation.segment] = evolve(before, self._sequence, operation)
        for told in self.on_performed:
            told(operation, before)

    def _living(self, segment: str) -> SegmentState:
        state = self.state(segment)
        assert state is not None
        return state


def _info(state: SegmentState) -> SegmentInfo:
    return SegmentInfo(
        segment=state.name,
        start=state.start,
        length=state.length,
        tiered_length=0,
        sealed=state.sealed,
        event_count=state.event_count,
        container=0,
        container_epoch=0,
    )
