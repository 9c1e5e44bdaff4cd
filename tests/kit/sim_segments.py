"""All containers of a cluster as controllers see them: the store's own decisions, in memory.

Requests are decided and folded by the segment store's `decide` and `evolve`, so that stamps,
tombstones and refusals are the real ones. Every operation that changes something is told to whoever
listens, in the order in which it happened. A truncation goes by append boundaries. A merge seals
the segments of transactions by itself.

What was appended is known piece by piece, and moves with merges. That of a segment of a stream is
known for ever, so that whoever judges can read what was truncated or deleted since.
"""

import bisect
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import nats.errors

from anabranch.common.errors import AnabranchError
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import transaction_segment
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import (
    Appended as AppendDone,
)
from anabranch.common.wire.messages import (
    CheckTruncation,
    ConditionalAppend,
    CreateSegment,
    DeleteSegment,
    Done,
    GetSegmentInfo,
    LocateOffset,
    MergeBatch,
    MergeSegments,
    Message,
    OffsetLocated,
    ReadSegment,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentRead,
    SegmentsMerged,
    Truncated,
    TruncateSegment,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.segstore.domain.container import batch, decide
from anabranch.segstore.domain.container.circumstances import Given, Group
from anabranch.segstore.domain.container.decide import Known, NoChange
from anabranch.segstore.domain.container.evolve import evolve, evolve_source
from anabranch.segstore.domain.container.merge import decide_merge
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    CreateOperation,
    DeleteOperation,
    MergeOperation,
    Operation,
    SealOperation,
    TruncateOperation,
)
from kit.simlink import NoAnswer

ControlOperation = (
    CreateOperation | SealOperation | DeleteOperation | TruncateOperation | MergeOperation
)
OnPerformed = Callable[[ControlOperation, Known], None]
"""Told of an operation, and of what was known of its segment before."""


class Piece(NamedTuple):
    """What one append wrote: the `number`-th of a writer, all with one key."""

    writer: str
    number: int
    key: float
    size: int
    transaction: str = ""
    part: str = ""


OnAppended = Callable[[str, Piece], None]
Appended = Literal["appended", "repeated", "sealed", "gone"]


class SimSegments:
    """What all segment stores together have.

    `down` containers have nobody who answers; `mute` ones do what they are asked, and their stores
    die before they answer.
    """

    def __init__(self, clock: Clock, container_count: int = 4) -> None:
        self.known: dict[str, Known] = {}
        self.contents: dict[str, list[Piece]] = {}
        self.blocks: dict[str, dict[int, bytes]] = {}
        """The bytes of watermarks, by where they begin."""
        self.down: set[int] = set()
        self.mute: set[int] = set()
        self.on_performed: list[OnPerformed] = []
        self.on_appended: list[OnAppended] = []
        self.on_carried: list[Callable[[str, bytes], None]] = []
        """Told of every block of a batch that a segment has taken."""
        self.pieces_in: Callable[[bytes], list[Piece]] = lambda _block: []
        """The events of such a block."""
        self.on_block: list[Callable[[str, bytes], None]] = []
        """Told of every block of watermarks that is stored."""
        self._container_count = container_count
        self._clock = clock
        self._sequence = 0

    def respond(self, subject: str, packet: bytes) -> bytes:
        """The answer to a request on `ana.seg.<container>.<verb>`. Raises NoRespondersError."""
        container = int(subject.split(".")[2])
        if container in self.down:
            raise nats.errors.NoRespondersError
        (found,) = PacketParser().feed(packet)
        try:
            reply, data = self._answer(decode_message(found), found.payload)
        except AnabranchError as error:
            reply, data = failed(error), b""
        if container in self.mute:
            raise NoAnswer
        return b"".join(encode_message(reply, found.request_id, data))

    def write(self, segment: str, size: int) -> None:
        """Somebody appends, if the segment takes it."""
        self._write(segment, Piece("", 0, -1.0, size))

    def append(self, segment: str, piece: Piece) -> Appended:
        """Append it once. Raises NoRespondersError, NoAnswer."""
        container = container_of(segment, self._container_count)
        if container in self.down:
            raise nats.errors.NoRespondersError
        if self.state(segment) is None:
            return "gone"
        done: Appended = "repeated"
        if piece not in self.contents[segment]:
            done = "appended" if self._write(segment, piece) else "sealed"
        if container in self.mute:
            raise NoAnswer
        return done

    def _write(self, segment: str, piece: Piece) -> bool:
        known = self.known.get(segment)
        if not isinstance(known, SegmentState) or known.sealed:
            return False
        self.known[segment] = replace(known, length=known.length + piece.size)
        self.contents[segment].append(piece)
        for told in self.on_appended:
            told(segment, piece)
        return True

    def state(self, segment: str) -> SegmentState | None:
        """The segment, if it lives."""
        known = self.known.get(segment)
        return known if isinstance(known, SegmentState) else None

    def _answer(self, request: Message, payload: bytes) -> tuple[Message, bytes]:
        match request:
            case ReadSegment(segment=segment, offset=offset, size_max=size_max):
                known = decide.decide_read(self.known.get(segment), segment, offset)
                data = b""
                while offset + len(data) < known.length and (not data or len(data) < size_max):
                    data += self.blocks[segment][offset + len(data)]
                return SegmentRead(offset=offset), data
            case ConditionalAppend():
                return self._append_block(request, payload), b""
            case _:
                return self._perform(request, payload), b""

    def _append_block(self, request: ConditionalAppend, payload: bytes) -> Message:
        known = self.known.get(request.segment)
        if not isinstance(known, SegmentState):
            raise decide.gone(known, request.segment)
        blocks = self.blocks.setdefault(request.segment, {})
        numbers = [
            header.first_event_number
            for header in map(parse_header, blocks.values())
            if header.writer_id == request.writer_id
        ]
        last = max(numbers, default=0)
        decision = decide.decide_append(
            known, last, request.writer_id, request, payload, now_ms=self._clock.now_ms()
        )
        if not isinstance(decision, decide.Duplicate):
            blocks[known.length] = payload
            self._write(request.segment, Piece("", 0, -1.0, len(payload)))
            for told in self.on_block:
                told(request.segment, payload)
        return AppendDone(session=0, last_event_number=last + 1, length=known.length)

    def _perform(self, request: Message, payload: bytes) -> Message:
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
                decision = decide.decide_truncate(known, request, self._lower(request), now_ms)
                if not isinstance(request, CheckTruncation):
                    self._log(decision)
                return Truncated(start=max(offset, self._living(segment).start))
            case DeleteSegment(segment=segment, stamp=stamp):
                known = self.known.get(segment)
                self._log(decide.decide_delete(known, segment, stamp, now_ms))
                return Done()
            case MergeSegments(segment=segment, sources=sources, stamp=stamp):
                merge = decide_merge(self._mergeable, segment, sources, stamp, now_ms)
                if merge.operation is not None:
                    self._log(merge.operation)
                return SegmentsMerged(merged=merge.merged)
            case MergeBatch():
                return self._merge_batch(request, payload)
            case LocateOffset(segment=segment, offset=offset):
                known = decide.decide_read(self.known.get(segment), segment, offset)
                ends = self.boundaries(segment)
                return OffsetLocated(offset=ends[bisect.bisect_left(ends, offset)])
            case GetSegmentInfo(segment=segment):
                known = self.known.get(segment)
                if not isinstance(known, SegmentState):
                    raise decide.gone(known, segment)
                return _info(known)
            case _:
                raise AssertionError(f"controllers do not send {request}")

    def _merge_batch(self, request: MergeBatch, payload: bytes) -> Message:
        around = _Around(self._clock.now_ms(), Given(payload))
        answer = batch.answer_merge_batch(_Seen(self._mergeable), request, around)  # type: ignore[arg-type]
        if isinstance(answer.decision, Group):
            for operation in answer.decision.operations:
                if isinstance(operation, AppendOperation):
                    self._append_carried(request.segment, operation)
                else:
                    self._log(operation)
        return answer.message

    def _append_carried(self, segment: str, operation: AppendOperation) -> None:
        self._sequence += 1
        self.known[segment] = evolve(self.known.get(segment), self._sequence, operation)
        self.contents[segment] += self.pieces_in(bytes(operation.payload))
        for told in self.on_carried:
            told(segment, bytes(operation.payload))

    def boundaries(self, segment: str) -> list[int]:
        """Where its appends begin, and its end, ascending."""
        sizes = (piece.size for piece in self.contents.get(segment, ()))
        return list(itertools.accumulate(sizes, initial=0))

    def _lower(self, request: TruncateSegment) -> int:
        ends = self.boundaries(request.segment)
        return ends[max(bisect.bisect_right(ends, request.offset) - 1, 0)]

    def _log(self, operation: Operation | NoChange) -> None:
        if isinstance(operation, NoChange):
            return
        assert isinstance(operation, ControlOperation)
        self._sequence += 1
        before = self.known.get(operation.segment)
        self.known[operation.segment] = evolve(before, self._sequence, operation)
        match operation:
            case CreateOperation():
                if isinstance(before, Tombstone):  # of watermarks: their name is used again
                    self.contents.pop(operation.segment, None)
                    self.blocks.pop(operation.segment, None)
                self.contents.setdefault(operation.segment, [])
            case DeleteOperation() if transaction_segment(operation.segment) is not None:
                self.contents.pop(operation.segment, None)
            case MergeOperation():
                self._end_sources(operation)
        for told in self.on_performed:
            told(operation, before)

    def _end_sources(self, merge: MergeOperation) -> None:
        offset = merge.offset
        for source in merge.sources:
            known = self._mergeable(source.segment)
            self.known[source.segment] = evolve_source(known, self._sequence, merge, source, offset)
            self.contents[merge.segment] += self.contents.pop(source.segment)
            offset += source.length

    def _mergeable(self, segment: str) -> Known:
        """As a merge sees it."""
        known = self.known.get(segment)
        if isinstance(known, SegmentState) and transaction_segment(segment) is not None:
            return replace(known, sealed=True)
        return known

    def _living(self, segment: str) -> SegmentState:
        state = self.state(segment)
        assert state is not None
        return state


class _Seen(NamedTuple):
    """The segments as a batch sees them."""

    known: Callable[[str], Known]


class _Around(NamedTuple):
    """The circumstances of a batch."""

    now_ms: int
    given: Given


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
