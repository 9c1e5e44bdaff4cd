"""One container's log in its stream, under one container epoch.

    ready ──► pump ──take_frame──► parts ──publish, each expecting its place──► stream
                                                                                  │
    frame_durable ◄── all earlier parts are confirmed ◄── the answer names the place

The own opening is at place P, so the message with number n counts only at place P + n. A message is
*confirmed* if its answer names that place, and a frame is durable once all messages up to its last
part are confirmed. Then nothing but this epoch's messages lies between the opening and the frame,
and every later reader finds the chain whole up to there.

Any other outcome ends the view: a refusal, another place, no answer in time. What happened to the
messages in flight then stays open; the next opening finds out by reading. Nothing is ever sent
again.

State owned: the frames that count and were not purged, and the messages in flight.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Deposed,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger
from anabranch.segstore.adapters.group import FRAME_SIZE_BYTES_AIM, Schedule
from anabranch.segstore.adapters.jetstream_log.frames import Frames, read_frames
from anabranch.segstore.adapters.jetstream_log.opening import Confirmed, OpenedStream
from anabranch.segstore.adapters.jetstream_log.window import Sent, WholeFrame, Window
from anabranch.segstore.domain.log.stream.messages import (
    HEADER_SIZE_BYTES,
    FrameFields,
    Kind,
    Link,
    decode_message,
    encode_parts,
)
from anabranch.segstore.domain.log.stream.purging import Purge, purge_after
from anabranch.segstore.domain.log.stream.resolve import StreamFrame
from anabranch.segstore.ports import FrameContents, FrameSource, LogAddress, ReplayedFrame
from anabranch.segstore.ports_stream import RemoteStream

CONFIRM_S_MAX = 5.0
LOOK_S_MAX = 2.0
"""How long an ended view searches for the owner that replaced it."""

_log = get_logger(__name__)

CallLater = Callable[[float, Callable[[], None]], Callable[[], None]]
"""(seconds, callback) → a function that cancels it."""


@dataclass(frozen=True, slots=True)
class Around:
    """The runtime of the views of one process."""

    clock: Clock
    schedule: Schedule
    call_later: CallLater
    spawn: Callable[[Coroutine[None, None, None]], object]


class StreamView:
    """`ContainerLog`. Only `StreamLog.open_log` creates it."""

    def __init__(
        self,
        stream: RemoteStream,
        opened: OpenedStream,
        source: FrameSource,
        around: Around,
        *,
        container: int,
        log_id: str,
        seed: int,
    ) -> None:
        self.container = container
        self.container_epoch = opened.link.container_epoch
        self.source = source
        self._stream = stream
        self._around = around
        self._log_id = log_id
        self._seed = seed
        self._required = opened.resolution.required
        self._frames = Frames(opened.resolution.frames)
        self._opening_place = opened.resolution.opening_place
        self._link = opened.link
        self._confirmed = 0
        self._window = Window()
        self._purged = Purge(0, 0)
        self._pump_scheduled = False
        self._cancel_timer: Callable[[], None] | None = None
        self._ended = False
        self._told = False
        """Whether the source must be notified no more."""

    @property
    def log_id(self) -> str:
        return self._log_id

    @property
    def confirmed(self) -> Confirmed:
        """The last message that is known to be durable; message 0 is the opening."""
        return Confirmed(self.container_epoch, self._confirmed)

    # --- appending ----------------------------------------------------------------------------

    def ready(self) -> None:
        if not self._ended and not self._pump_scheduled:
            self._pump_scheduled = True
            self._around.schedule(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        size_max = min(FRAME_SIZE_BYTES_AIM, self._part_size)
        while not self._ended and self._window.has_room:
            contents = self.source.take_frame(size_max)
            if contents is None:
                return
            self._send(contents)

    @property
    def _part_size(self) -> int:
        return self._stream.message_size_max - HEADER_SIZE_BYTES

    def _send(self, contents: FrameContents) -> None:
        fields = FrameFields(
            self.container, self.container_epoch, contents.first_sequence, contents.count
        )
        last_sequence = contents.first_sequence + contents.count - 1
        first = self._link.number + 1
        parts = list(
            encode_parts(
                fields,
                contents.payload,
                part_size_max=self._part_size,
                link=self._link,
                confirmed=self._confirmed,
                seed=self._seed,
            )
        )
        for index, (data, crc) in enumerate(parts):
            number = first + index
            place = self._opening_place + number
            completes = None
            if index + 1 == len(parts):
                frame = StreamFrame(
                    self.container_epoch, first, contents.first_sequence, last_sequence,
                    self._opening_place + first, place, contents.size, self._opening_place,
                )  # fmt: skip
                completes = WholeFrame(contents, frame)
            self._publish(number, place, data, completes)
            self._link = Link(self.container_epoch, number, crc, last_sequence)

    def _publish(self, number: int, place: int, data: bytes, completes: WholeFrame | None) -> None:
        answer = self._stream.publish(Kind.FRAME, data, place - 1)
        now = self._around.clock.monotonic()
        sent = Sent(number, place, len(data), now, answer, completes)
        self._window.add(sent)
        answer.add_done_callback(lambda done: self._answered(sent, done))
        if self._cancel_timer is None:
            self._watch(CONFIRM_S_MAX)

    def _answered(self, sent: Sent, answer: asyncio.Future[int]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if self._ended:
            return
        if error is not None:
            self._end(repr(error))
        elif not self._counts(sent, answer.result()):
            self._end(f"a message was stored at place {answer.result()} instead of {sent.place}")
        else:
            sent.confirmed = True
            self._tell_durable()

    def _counts(self, sent: Sent, place: int) -> bool:
        return place == sent.place

    def _tell_durable(self) -> None:
        while not self._ended and (sent := self._window.next_confirmed()) is not None:
            self._confirmed = sent.number
            if sent.completes is not None:
                frame = sent.completes.frame
                self._frames.add(frame)
                self.source.frame_durable(sent.completes.contents, _address(frame))
        self.ready()

    def _watch(self, seconds: float) -> None:
        self._cancel_timer = self._around.call_later(seconds, self._check_time)

    def _check_time(self) -> None:
        self._cancel_timer = None
        oldest = self._window.oldest
        if oldest is None or self._ended:
            return
        left = oldest.sent_at_s + CONFIRM_S_MAX - self._around.clock.monotonic()
        if left > 0:
            self._watch(left)
        else:
            self._end(f"no answer within {CONFIRM_S_MAX:g} s")

    # --- ending -------------------------------------------------------------------------------

    def close(self) -> None:
        """See `ContainerLog.close`; harmless to repeat."""
        self._told = True
        self._stop()

    def fail(self, error: AnabranchError) -> None:
        """End the view, and its container, unless that happened before."""
        if not self._told:
            self.close()
            self.source.log_failed(error)

    def fail_with_store(self, error: AnabranchError) -> None:
        """End the view, its container and the store, unless the view ended before."""
        if not self._told:
            self.close()
            self.source.journal_failed(error)

    @property
    def idle(self) -> bool:
        """Whether nothing waits for an answer, or to be sent."""
        return self._ended or (self._window.oldest is None and not self._pump_scheduled)

    @property
    def ended(self) -> bool:
        """Whether the view sends nothing more."""
        return self._ended

    def _stop(self) -> None:
        self._ended = True
        self._window.abandon()
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def _end(self, cause: str) -> None:
        """Stop, find out whether another owner is the reason, and end the container."""
        self._stop()
        self._around.spawn(self._tell_failure(cause))

    async def _tell_failure(self, cause: str) -> None:
        self.fail(await self._failure(cause))

    async def _failure(self, cause: str) -> AnabranchError:
        unconfirmed = Unavailable(
            "the log's stream did not confirm what was written",
            container=self.container, log_id=self._log_id, cause=cause,
        )  # fmt: skip
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                found = await self._stream.newest_opening()
                if found is None:
                    return unconfirmed
                epoch = decode_message(found, self._seed, 0)[0].container_epoch
        except (TimeoutError, AnabranchError):
            return unconfirmed
        if epoch <= self.container_epoch:
            return unconfirmed
        return Deposed(
            "another owner opened the container",
            container=self.container, container_epoch=self.container_epoch, highest=epoch,
        )  # fmt: skip

    # --- reading ------------------------------------------------------------------------------

    async def replay(self, after_sequence: int) -> AsyncIterator[ReplayedFrame]:
        """See `ContainerLog.replay`."""
        if after_sequence < self._required:
            raise CorruptJournal(
                "operations are missing from the log",
                after=after_sequence, required=self._required, log_id=self._log_id,
            )  # fmt: skip
        frames = self._frames.after(after_sequence)
        try:
            async for frame, payload in read_frames(self._stream, frames, self._seed):
                count = frame.last_sequence - frame.first_sequence + 1
                yield ReplayedFrame(frame.first_sequence, count, _address(frame), payload)
        except CorruptJournal as error:
            raise await self._missing(error) from None

    async def read_aside(self, address: LogAddress) -> bytes:
        """See `ContainerLog.read_aside`. Also raises Unavailable."""
        frame = self._frames.at(address.position)
        if frame is None:
            raise ObjectNotFound("the frame was released", position=address.position)
        try:
            async for _, payload in read_frames(self._stream, [frame], self._seed):
                return payload
        except CorruptJournal as error:
            if self._frames.at(address.position) is None:
                raise ObjectNotFound("the frame was released", position=address.position) from None
            raise await self._missing(error) from None
        raise AssertionError("a frame has a payload")

    async def _missing(self, error: CorruptJournal) -> AnabranchError:
        """The error for a frame that is missing: a newer owner may have released and purged it."""
        failure = await self._failure("a frame is missing")
        return failure if isinstance(failure, Deposed) else error

    async def release(self, applied_sequence: int) -> None:
        """See `ContainerLog.release`. If the stream cannot be purged now, a later call does it."""
        self._frames.release(applied_sequence)
        purge = purge_after(
            self._frames.kept, applied_sequence, self.container_epoch, self._opening_place
        )
        if purge == self._purged:
            return
        try:
            await self._stream.purge_below(frames=purge.frames_below, openings=purge.openings_below)
        except Unavailable as error:
            _log.warning(
                "the log's stream was not purged, a later release does it",
                container=self.container, log_id=self._log_id, error=str(error),
            )  # fmt: skip
            return
        self._purged = purge
        self._frames.purged(purge.frames_below)


def _address(frame: StreamFrame) -> LogAddress:
    return LogAddress(frame.container_epoch, frame.first_place, frame.payload_size)
