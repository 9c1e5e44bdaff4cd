"""A container driven by hand: no sockets, no event loop, no real time.

`commit` is the moment of the sync; until then nothing is durable. `crash` forgets everything in
memory and opens the container again from the log's frames and a catalog.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from opentelemetry.trace import Tracer

from anabranch.common.errors import AnabranchError
from anabranch.common.model.names import transient_name
from anabranch.common.tier2.state import Catalog
from anabranch.common.wire.block import FLAG_LARGE, FLAG_PARTS_BEFORE, LargeReference
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    AppendLarge,
    AppendOnce,
    AttributeUpdate,
    ConditionalAppend,
    CreateSegment,
    CreateTransient,
    DeleteSegment,
    GetAttributes,
    GetSegmentInfo,
    MergeSegments,
    Message,
    SealSegment,
    SetupAppend,
    Stamp,
    TruncateSegment,
    UpdateAttributes,
)
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.ports import StoredCatalog
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.lease import NO_LEASE
from anabranch.segstore.shell.container.metrics import uncounted
from anabranch.segstore.shell.container.replay import Replay
from anabranch.segstore.shell.container.sessions import AppendSession
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from anabranch.segstore.shell.container.tracing import Commits, StoreTracing
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.tiering.eviction import evict
from kit.fixed_catalog import FixedCatalog, run_at_once
from kit.log_driver import read_frame, replayed_frames
from kit.store_parts import a_throttle, surroundings

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = bytes(range(16))
CLIENT = b"a client of 16 B"
LOG_ID = "the-log"
TRUNCATE_STAMP, MERGE_STAMP = Stamp(1, 2), Stamp(1, 2)
CREATE_STAMP, SEAL_STAMP, DELETE_STAMP = Stamp(1, 1), Stamp(1, 2), Stamp(1, 3)


T = TypeVar("T")


def _ignore(_: object) -> None:
    return


class ManualTime:
    """A `Clock` and timers that move only by `advance`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return 1_000_000 + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        timer = (self.seconds + seconds, callback)
        self._timers.append(timer)

        def cancel() -> None:
            if timer in self._timers:
                self._timers.remove(timer)

        return cancel

    def advance(self, seconds: float) -> None:
        """Let time pass and call what is due, in order."""
        self.seconds += seconds
        due = sorted((t for t in self._timers if t[0] <= self.seconds), key=lambda t: t[0])
        for timer in due:
            if timer in self._timers:
                self._timers.remove(timer)
                timer[1]()


class ContainerDriver:
    """One container over a memory log. `replies` holds (request id, message) as delivered."""

    def __init__(
        self,
        *,
        container_type: type[Container] = Container,
        cache_size: int = 1 << 20,
        limits: ThrottleLimits | None = None,
        tracer: Tracer | None = None,
        residency: ResidencyLimits | None = None,
    ) -> None:
        self.time = ManualTime()
        self.metrics = uncounted()
        self.commits = Commits(self.metrics, self.time, lambda: self.time.now_ms() * 1_000_000)
        self._tracing = StoreTracing(tracer, self.commits) if tracer is not None else None
        self.frames = MemoryFrames("a-journal")
        self.frames.logs[0] = LOG_ID
        self.replies: list[tuple[int, Message]] = []
        self.cache = Cache(cache_size)
        self.throttle = a_throttle(limits)
        self._container_type = container_type
        self.residency = residency or ResidencyLimits()
        self._commits: list[Callable[[], None]] = []
        self._epoch = 0
        self._request_id = 0
        self.open(Catalog())

    def open(self, catalog: Catalog) -> None:
        """Open under the next container epoch from the catalog and the log."""
        self.open_from(FixedCatalog(catalog))

    def open_from(self, stored: StoredCatalog) -> None:
        """Open under the next container epoch from what tier 2 tells and the log."""
        self._epoch += 1
        self._commits.clear()
        self.log = MemoryLog(self.frames, self._commits.append)
        around = self.around = surroundings(
            self.time,
            self.cache,
            self.throttle,
            self.time.call_later,
            metrics=self.metrics,
            tracing=self._tracing,
            residency=self.residency,
        )
        self.container = self._container_type(0, self._epoch, stored, around, NO_LEASE)
        view = run_at_once(self.log.open_log(0, LOG_ID, self._epoch, self.container))
        replay = Replay(self.container, stored)
        for frame in replayed_frames(view, stored.applied_sequence):
            run_at_once(replay.apply(frame))
        self.container.serve(view)

    def crash(self, catalog: Catalog | None = None) -> None:
        """Lose the memory, not the log, and open again."""
        self.cache = Cache(self.cache.size_max)
        self.throttle = a_throttle()
        self.open(catalog or Catalog())

    def commit(self) -> None:
        """Sync what waits, in one commit as far as spans can tell."""
        self.commits.begin()
        self.commits.synced(1, 100)
        while self._commits:
            self._commits.pop(0)()

    # --- what is resident ---------------------------------------------------------------------

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run what must wait to its end."""
        return asyncio.run(work)

    def first(self, names: Iterable[str], go: Callable[[], object]) -> None:
        """As the doors do it: load what is missing, then go on."""

        def refuse(error: AnabranchError) -> None:
            raise error

        self.container.load_first(names, lambda: _ignore(go()), refuse)
        if self.container.loading.waiting:
            self.load()

    def now(self, segment: str, ask: Callable[[], T]) -> T:
        """What `ask` returns, once the segment is resident."""
        answers: list[T] = []
        self.first((segment,), lambda: answers.append(ask()))
        return answers[0]

    def load(self) -> None:
        """Load what requests wait for, as the loop does it."""
        while self.wait(self.container.loading.load_next()):
            evict(self.container)

    def known(self, segment: str) -> Known:
        """What is durable under the name."""
        return self.now(segment, lambda: self.container.applied.state.known(segment))

    def pending(self, segment: str) -> Known:
        """What is decided under the name."""
        return self.now(segment, lambda: self.container.pending.known(segment))

    # --- requests -----------------------------------------------------------------------------

    def send(self, message: Message, request_id: int) -> None:
        self.replies.append((request_id, message))

    def _deliver(self) -> Callable[[Message], None]:
        self._request_id += 1
        request_id = self._request_id
        return lambda message: self.send(message, request_id)

    def create(
        self, segment: str = SEGMENT, stamp: Stamp = CREATE_STAMP, trace_parent: str = ""
    ) -> None:
        request = CreateSegment(segment=segment, stamp=stamp, trace_parent=trace_parent)
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def create_transient(
        self, unique: int, segment: str = SEGMENT, writer_id: bytes = WRITER
    ) -> str:
        """Ask for a transient segment; returns its name."""
        name = transient_name(segment, unique.to_bytes(16, "big"))
        request = CreateTransient(segment=segment, writer_id=writer_id)
        deliver = self._deliver()
        self.first((segment, name), lambda: self.container.ask(request, deliver, Given(name=name)))
        return name

    def seal(self, segment: str = SEGMENT, stamp: Stamp = SEAL_STAMP) -> None:
        request, deliver = SealSegment(segment=segment, stamp=stamp), self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def delete(self, segment: str = SEGMENT, stamp: Stamp = DELETE_STAMP) -> None:
        request, deliver = DeleteSegment(segment=segment, stamp=stamp), self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def info(self, segment: str = SEGMENT, *, even_gone: bool = False) -> None:
        request = GetSegmentInfo(segment=segment, even_gone=even_gone)
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def truncate(self, offset: int, segment: str = SEGMENT, stamp: Stamp = TRUNCATE_STAMP) -> None:
        request = TruncateSegment(segment=segment, stamp=stamp, offset=offset)
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def merge(self, *sources: str, target: str = SEGMENT, stamp: Stamp = MERGE_STAMP) -> None:
        request = MergeSegments(segment=target, stamp=stamp, sources=sources)
        deliver = self._deliver()
        self.first((target, *sources), lambda: self.container.ask(request, deliver))

    def update(
        self,
        number: int,
        *updates: AttributeUpdate,
        segment: str = SEGMENT,
        client_id: bytes = CLIENT,
        stamp: Stamp = CREATE_STAMP,
    ) -> None:
        request = UpdateAttributes(
            segment=segment,
            stamp=stamp,
            client_id=client_id,
            request_number=number,
            updates=updates,
        )
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def attributes(self, *ids: bytes, segment: str = SEGMENT) -> None:
        request = GetAttributes(segment=segment, attributes=ids)
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver))

    def append_if(
        self,
        first: int,
        events: list[bytes],
        *updates: AttributeUpdate,
        expected_length: int | None = None,
        segment: str = SEGMENT,
    ) -> bytes:
        """Append a block under conditions; returns its bytes."""
        block = encode_block(
            events, writer_id=WRITER, first_event_number=first, base_timestamp_ms=0
        )
        request = ConditionalAppend(
            segment=segment,
            writer_id=WRITER,
            first_event_number=first,
            count=len(events),
            expected_length=expected_length,
            updates=updates,
        )
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver, Given(block)))
        return block

    def setup(
        self, segment: str = SEGMENT, writer_id: bytes = WRITER, session: int = 1
    ) -> AppendSession:
        self._request_id += 1
        request = SetupAppend(segment=segment, writer_id=writer_id, session=session)
        request_id = self._request_id
        found = self.now(segment, lambda: self.container.setup(request, request_id, self.send))
        assert found is not None
        return found

    def append(
        self, session: AppendSession, first: int, events: list[bytes], *, trace_parent: str = ""
    ) -> bytes:
        """Append a block; returns its bytes."""
        block = encode_block(
            events, writer_id=session.writer_id, first_event_number=first, base_timestamp_ms=0
        )
        self.append_raw(
            session, first, len(events), block, is_block=True, trace_parent=trace_parent
        )
        return block

    def append_raw(
        self,
        session: AppendSession,
        first: int,
        count: int,
        payload: bytes,
        *,
        is_block: bool = False,
        trace_parent: str = "",
    ) -> None:
        self._request_id += 1
        request = Append(
            session=session.session,
            first_event_number=first,
            count=count,
            is_block=is_block,
            trace_parent=trace_parent,
        )
        self.container.append(session, self._request_id, request, payload)

    def append_large(self, session: AppendSession, first: int, parts: str, length: int) -> bytes:
        """Append a reference to `length` bytes of parts, with these parts; returns its bytes."""
        block = encode_block(
            [LargeReference(0, length, 1, 0).encode()], writer_id=session.writer_id,
            first_event_number=first, base_timestamp_ms=0, flags=FLAG_LARGE | FLAG_PARTS_BEFORE,
        )  # fmt: skip
        self.append_with_parts(session, first, parts, block)
        return block

    def append_with_parts(
        self,
        session: AppendSession,
        first: int,
        parts: str,
        payload: bytes,
        *,
        is_block: bool = True,
    ) -> None:
        self._request_id += 1
        request = AppendLarge(
            session=session.session, first_event_number=first, count=1, parts=parts,
            is_block=is_block,
        )  # fmt: skip
        self.container.append(session, self._request_id, request, payload)

    def append_once(
        self, first: int, events: list[bytes], *, segment: str = SEGMENT, writer_id: bytes = WRITER
    ) -> bytes:
        """Append a block without a session; returns its bytes."""
        block = encode_block(
            events, writer_id=writer_id, first_event_number=first, base_timestamp_ms=0
        )
        request = AppendOnce(
            segment=segment, writer_id=writer_id, first_event_number=first, count=len(events)
        )
        deliver = self._deliver()
        self.first((segment,), lambda: self.container.ask(request, deliver, Given(block)))
        return block

    def take_replies(self) -> list[Message]:
        """The answers since the last call."""
        taken = [message for _, message in self.replies]
        self.replies.clear()
        return taken

    def content(self, segment: str = SEGMENT) -> bytes:
        """The segment's durable bytes that are in memory or the journal."""
        state = self.known(segment)
        index = self.container.applied.index.get(getattr(state, "number", 0))
        assert index is not None
        return index.fetch(index.front, index.length, read_frame(self.container.log))
