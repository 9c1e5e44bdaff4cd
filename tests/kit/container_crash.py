"""Random lives of a container on simulated disks: write, flush, lose power, open again.

The journal and tier 2 each have a disk; a crash hits both at any call of either. What writers
were told is held against what is there afterwards (`kit.history`). Everything follows from the
seed.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendOnce,
    CreateSegment,
    DeleteSegment,
    Done,
    LocateOffset,
    MergeSegments,
    Message,
    OffsetLocated,
    ReadSegment,
    Request,
    Sealed,
    SealSegment,
    SegmentsMerged,
    SetupAppend,
    Stamp,
    Truncated,
    TruncateSegment,
)
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.invariants import check_state
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.lease import NO_LEASE
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.container.reader import (
    Found,
)
from anabranch.segstore.shell.container.replay import Replay
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.container.sessions import AppendSession
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.tiering.eviction import evict
from anabranch.segstore.shell.tiering.flusher import Flusher, FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import TierTwoLimits
from kit.container_driver import ManualTime
from kit.fixed_catalog import run_at_once
from kit.history import History, HistoryViolation, Place, make_event
from kit.log_driver import Callbacks, replayed_frames
from kit.rng import seeded
from kit.simdisk import Crashed, RandomSurvival, SimDisk
from kit.store_parts import a_throttle, surroundings
from kit.tiered_driver import ask_through, read_through

SEGMENTS = [f"scope/stream/{number}.#epoch.0" for number in range(3)]
WRITERS = [bytes([number + 1]) * 16 for number in range(2)]
JOURNAL_FILE_SIZE_BYTES = 16 * 1024
ACTIONS = ["append"] * 8 + ["duplicate", "commit", "commit", "commit", "flush", "seal", "delete"]
ACTIONS += ["reshape", "rewrite"]
LIMITS = TierTwoLimits(gc_grace_s=0.0, rewrite=RewriteLimits(live_share=0.9, rest_s=0.0))


class CrashingContainer:
    """One container's life over several crashes."""

    def __init__(
        self, seed: int, container_type: type[Container] = Container, segments_max: int = 100
    ) -> None:
        self._random = seeded(seed)
        self._residency = ResidencyLimits(segments_max)
        self._ids = SeededIds(seed)
        self._container_type = container_type
        self.log_disk, self.tier_disk = SimDisk(), SimDisk()
        self.history = History()
        self.created: set[str] = set()
        self.crashes = 0
        self.rewrites = 0
        self._epoch = 0
        self._log_id = ""
        self._runner = asyncio.Runner()
        self._sessions: dict[tuple[str, bytes], AppendSession] = {}
        self._sent: dict[tuple[str, bytes], tuple[int, bytes]] = {}
        self._container: Container

    def run(self, rounds: int, steps: int) -> None:
        """`rounds` crashes with up to `steps` actions before each. Raises HistoryViolation."""
        try:
            for _ in range(rounds):
                self._round(steps)
            self._reopen()
            self._reopen()
        finally:
            self._runner.close()

    def _round(self, steps: int) -> None:
        try:
            self._open()
            self._check()
            self._plan_crash()
            for _ in range(steps):
                self._act(self._random.choice(ACTIONS))
        except Crashed:
            pass
        self._lose_power()

    def _reopen(self) -> None:
        self._open()
        self._check()
        self._lose_power()

    def _plan_crash(self) -> None:
        disk = self._random.choice([self.log_disk, self.log_disk, self.tier_disk])
        when = self._random.choice(["before", "during", "after"])
        disk.crash_at(disk.calls + self._random.randrange(1, 60), when)  # type: ignore[arg-type]

    def _lose_power(self) -> None:
        self.crashes += 1
        for disk in (self.log_disk, self.tier_disk):
            if self._random.random() < 0.3:
                disk.kill()
            else:
                disk.power_loss(RandomSurvival(seeded(self._random.randrange(1 << 30))))

    # --- opening ------------------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def _open(self) -> None:
        """As `lifecycle.open_container` does it; crashes here come from a plan left over."""
        self._epoch += 1
        self._callbacks = Callbacks()
        self._journal = open_journal(
            self.log_disk,
            ids=self._ids,
            schedule=self._callbacks,
            file_size=JOURNAL_FILE_SIZE_BYTES,
        )
        log_id = self._log_id or self._journal.logs().get(0) or self._ids.new_id()
        if not self._log_id:
            run_at_once(self._journal.create_log(0, log_id))
        storage = LocalChunkStorage(self.tier_disk, self._ids, "node", in_threads=False)
        storage.open()
        time = ManualTime()
        opening = OpenContainerTierTwo(storage, self._ids, time, LIMITS)
        self._tier_two = self._wait(opening(0, self._epoch, log_id, new_log=not self._log_id))
        throttle = a_throttle()
        around = surroundings(
            time,
            Cache(4096),
            throttle,
            time.call_later,
            residency=self._residency,
        )
        container = self._container_type(0, self._epoch, self._tier_two, around, NO_LEASE)
        log = run_at_once(self._journal.open_log(0, log_id, self._epoch, container))
        replay = Replay(container, self._tier_two)
        for frame in replayed_frames(log, self._tier_two.applied_sequence):
            self._wait(replay.apply(frame))
        container.serve(log)
        self._container, self._log_id = container, log_id
        self._flusher = Flusher(
            container,
            self._tier_two,
            clock=time,
            throttle=throttle,
            call_later=time.call_later,
            limits=FlushLimits(),
            back_off_s=drawn_from(seeded(0)),
        )
        self._sessions.clear()
        self._sent.clear()
        for segment in SEGMENTS:
            with self._resident(segment) as state:
                if state.known(segment) is None:
                    request = CreateSegment(segment=segment, stamp=Stamp(1, 1))
                    container.ask(request, self._note_created(segment))
        self._callbacks.run()

    @contextmanager
    def _resident(self, *segments: str) -> Iterator[SegmentMap]:
        """What is durable, with these segments resident."""
        container = self._container
        for segment in segments:
            container.residency.pin(segment)
        container.load_first(segments, lambda: None, _raise)
        while container.loading.waiting and self._wait(container.loading.load_next()):
            evict(container)
        yield container.applied.state
        for segment in segments:
            container.residency.unpin(segment)

    def _note_created(self, segment: str) -> Any:
        def deliver(message: Message) -> None:
            if isinstance(message, Done):
                self.created.add(segment)

        return deliver

    # --- acting -------------------------------------------------------------------------------

    def _act(self, action: str) -> None:
        segment, writer = self._random.choice(SEGMENTS), self._random.choice(WRITERS)
        if action == "commit":
            self._callbacks.run()
            self._check()
        elif action == "flush":
            self._wait(self._flusher.flush())
        elif action == "rewrite":  # the next flush records it
            while self._wait(self._tier_two.collect()):
                pass
            self.rewrites += self._wait(self._tier_two.rewrite())
        else:
            with self._resident(segment):
                self._act_on(action, segment, writer)

    def _act_on(self, action: str, segment: str, writer: bytes) -> None:
        if action == "append":
            self._append(segment, writer)
        elif action == "duplicate":
            self._append_again(segment, writer)
        elif self._random.random() < 0.1:
            if action == "reshape":
                self._reshape(segment)
            else:
                self._end(action, segment)

    def _session(self, segment: str, writer: bytes) -> AppendSession | None:
        key = (segment, writer)
        session = self._sessions.get(key)
        if session is not None and session.alive:
            return session

        def send(message: Message, _: int) -> None:
            if isinstance(message, Appended):
                self.history.acknowledge(segment, writer, message.last_event_number)

        request = SetupAppend(segment=segment, writer_id=writer, session=1)
        found = self._container.setup(request, 0, send)
        if found is not None:
            self._sessions[key] = found
        return found

    def _append(self, segment: str, writer: bytes) -> None:
        session = self._session(segment, writer)
        known = self._container._pending.known(segment)
        if session is None or not isinstance(known, SegmentState) or known.sealed:
            return
        first = self._container._pending.last_event_number(known.number, writer) + 1
        count = self._random.randrange(1, 4)
        filler = self._random.randrange(0, 600)
        events = [make_event(writer, first + index, filler) for index in range(count)]
        block = encode_block(
            events, writer_id=writer, first_event_number=first, base_timestamp_ms=0
        )
        self.history.attempt(segment, writer, first, events)
        self._sent[(segment, writer)] = (first, block)
        self._send(session, first, count, block)

    def _send(self, session: AppendSession, first: int, count: int, block: bytes) -> None:
        """In the session or, as likely as one in three, past it."""
        if self._random.random() < 0.67:
            request = Append(session=1, first_event_number=first, count=count)
            self._container.append(session, 0, request, block)
            return
        segment, writer = session.segment, session.writer_id

        def deliver(message: Message) -> None:
            if isinstance(message, Appended):
                self.history.acknowledge(segment, writer, message.last_event_number)

        once = AppendOnce(segment=segment, writer_id=writer, first_event_number=first, count=count)
        self._container.ask(once, deliver, Given(block))

    def _append_again(self, segment: str, writer: bytes) -> None:
        sent = self._sent.get((segment, writer))
        session = self._session(segment, writer)
        if sent is not None and session is not None:
            first, block = sent
            count = int.from_bytes(block[8:12], "little")
            self._send(session, first, count, block)

    def _end(self, action: str, segment: str) -> None:
        if action == "seal":

            def sealed(message: Message) -> None:
                if isinstance(message, Sealed):
                    self.history.sealed_at[segment] = message.length

            request = SealSegment(segment=segment, stamp=Stamp(1, 2))
            self._container.ask(request, sealed)
        else:

            def deleted(message: Message) -> None:
                if isinstance(message, Done):
                    self.history.deleted.add(segment)

            self._container.ask(DeleteSegment(segment=segment, stamp=Stamp(1, 3)), deleted)

    def _reshape(self, segment: str) -> None:
        """Truncate the segment, or seal another one and merge it into this one."""
        if isinstance(self._container.applied.state.known(segment), SegmentState):
            if self._random.random() < 0.4:
                self._truncate(segment)
            else:
                source = self._random.choice([name for name in SEGMENTS if name != segment])
                with self._resident(source):
                    self._end("seal", source)
                    self._merge(segment, source)

    def _truncate(self, segment: str) -> None:
        state = self._container.applied.state.known(segment)
        assert isinstance(state, SegmentState)
        wanted = self._random.randrange(state.start, state.length + 1)
        answers: list[Message] = []
        self._ask(LocateOffset(segment=segment, offset=wanted), answers.append)
        (located,) = answers
        assert isinstance(located, OffsetLocated)
        offset = located.offset
        request = TruncateSegment(segment=segment, stamp=Stamp(1, 2), offset=offset)
        self.history.truncating[segment] = max(offset, self.history.truncating.get(segment, 0))

        def truncated(message: Message) -> None:
            if isinstance(message, Truncated):
                self.history.truncated[segment] = message.start

        self._ask(request, truncated)

    def _ask(self, request: Request, deliver: Deliver) -> None:
        ask_through(self._container, self._tier_two, self._wait, request, deliver)

    def _merge(self, target: str, source: str) -> None:
        def merged(message: Message) -> None:
            if isinstance(message, SegmentsMerged):
                (place,) = message.merged
                self.history.merge(source, Place(target, place.offset, place.length))

        self.history.merging.add((source, target))
        request = MergeSegments(segment=target, stamp=Stamp(1, 2), sources=(source,))
        self._container.ask(request, merged)

    # --- checking -----------------------------------------------------------------------------

    def _check(self) -> None:
        check_state(self._container.applied.state)
        for segment in sorted(self.created):
            with self._resident(segment) as state:
                known = state.known(segment)
            if known is None or (segment in self.history.deleted) > isinstance(known, Tombstone):
                raise HistoryViolation(f"{segment}: created or deleted, and forgotten")
            if isinstance(known, Tombstone) and known.merged is not None:
                place = known.merged
                self.history.merge(segment, Place(place.target, place.offset, place.length))
            if isinstance(known, SegmentState) and segment in self.history.merged:
                raise HistoryViolation(f"{segment}: merged, and still there")
        for segment in sorted(self.created):
            with self._resident(segment) as state:
                known = state.known(segment)
                if isinstance(known, SegmentState):
                    self.history.check_start(segment, known.start)
                    content = self._read_all(segment, known.start)
                    self.history.check_segment(segment, content, known.start)

    def _read_all(self, segment: str, start: int) -> bytes:
        data = b""
        while True:
            found = self._read(segment, start + len(data))
            data += found.data
            if found.reply.at_tail or found.reply.end_of_segment:
                return data

    def _read(self, segment: str, offset: int) -> Found:
        request = ReadSegment(segment=segment, offset=offset, size_max=3000)
        found: Found = self._wait(read_through(self._container, self._tier_two, request))
        return found


def _raise(error: AnabranchError) -> None:
    raise error


def random_container(seed: int) -> None:
    """A short life of this seed, in most of which idle segments are evicted at once.

    Raises when a promise is broken.
    """
    CrashingContainer(seed, segments_max=(1, 2, 100)[seed % 3]).run(rounds=4, steps=40)
