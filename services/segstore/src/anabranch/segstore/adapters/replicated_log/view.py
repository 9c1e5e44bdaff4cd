"""One container's log under one container epoch, as its leader sees it.

    ready ──► pump ──take_frame──► message ──┬──► own copy ──synced──┐
                                             └──► live feeders ──────┤
                                                                     ▼
    frame_durable ◄── in order ◄── committed: every required copy has synced it

A message goes to the own journal and to the followers at the same moment, as the same buffers. As
in the journal, small frames do not pile up: while the own copy syncs one, operations gather for the
next one. Large frames follow each other until the window is full.

A leader that is alone in its ISR acknowledges only while its store holds the lease of its session.

If another owner appears, or the log of the own copy fails, the view ends. If the own journal fails,
the store ends, as with any container in it.

State owned: the frames in flight, and the tasks of the feeders and of the ISR.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.storage.ports import Buffer
from anabranch.common.workflow.containment import naming_defects
from anabranch.segstore.adapters.group import FRAME_SIZE_BYTES_AIM
from anabranch.segstore.adapters.replicated_log.feeder import Feeder, Feeding
from anabranch.segstore.adapters.replicated_log.isr import Isr
from anabranch.segstore.adapters.replicated_log.led import Led
from anabranch.segstore.adapters.replicated_log.releases import Releases
from anabranch.segstore.adapters.replicated_log.window import Sent, Window
from anabranch.segstore.domain.log.replica.history import Counted
from anabranch.segstore.domain.log.stream.messages import (
    PIECES_MAX,
    FrameFields,
    Kind,
    Message,
    frame_head,
)
from anabranch.segstore.ports import FrameContents, FrameSource, LogAddress, ReplayedFrame
from anabranch.segstore.ports_replica import Replicas, ReplicationFacts

LARGE_SIZE_BYTES = 1024 * 1024
"""A frame of this size is followed by the next one without a wait for its sync."""


class ReplicatedView:
    """`ContainerLog`. Only `opening.open_view` creates it."""

    def __init__(self, led: Led, replicas: Replicas, opening: Counted, source: FrameSource) -> None:
        self.container = led.container
        self.container_epoch = led.container_epoch
        self.source = source
        self._led, self._around, self._copy = led, led.around, led.copy
        self._opening = opening
        self._replicas = replicas
        self._window = Window()
        self.isr = Isr(
            led, replicas, opening.position,
            on_advance=self._advance, on_replicas=self.replicas_changed,
        )  # fmt: skip
        self._feeders: dict[str, tuple[Feeder, asyncio.Task[None]]] = {}
        self._releases = Releases(
            led, lambda: [feeder.holds for feeder, _ in self._feeders.values()]
        )
        self._feeding = Feeding(led, self.isr, self._window, self._releases)
        self._told_number = 0
        self._unsynced = 0
        """Messages that the own copy has not synced."""
        self._last_size = 0
        self._pump_scheduled = False
        self._cancel_timer: Callable[[], None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._serving = False
        """Whether the open succeeded, so that the source must be notified of failures."""
        self._ended = False
        self.failure: AnabranchError | None = None
        """The error that ended the view, if one did."""

    @property
    def log_id(self) -> str:
        return self._led.log_id

    # --- tasks --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to feed the followers and to change the ISR; wait until every required copy has
        synced the opening. Raises the error that ended the view, Unavailable."""
        self._copy.check(self.container_epoch)
        self._copy.lead(self.container_epoch, self._copy_ended)
        self.isr.synced(self._led.own, self._opening.position)
        self._task = self._around.spawn(self._run())
        try:
            async with asyncio.timeout(self._around.pace.open_s):
                await self.isr.opened()
        except TimeoutError as error:
            self.close()
            raise Unavailable(
                "not every in-sync replica of the log answered or was removed in time",
                container=self.container, log_id=self.log_id,
            ) from error  # fmt: skip
        except BaseException:
            self.close()
            raise
        if self.failure is not None:
            raise self.failure
        self._serving = True

    def _copy_ended(self, error: AnabranchError) -> None:
        """The own copy takes no more messages of this epoch."""
        if self._led.local.failure is not None:
            self.fail_with_store(error)
        else:
            self.fail(error)

    async def _run(self) -> None:
        try:
            with naming_defects("a task of a replicated log"):
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self._kept(self.isr.run))
                    self.replicas_changed(self._replicas)
        except AnabranchError as error:
            self.fail(error)
        finally:
            self._group = None

    async def _kept(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a task of the view; an error of it ends the view."""
        try:
            await work()
        except AnabranchError as error:
            self.fail(error)

    def replicas_changed(self, replicas: Replicas) -> None:
        """The placement names these replicas: feed them, and have others leave the ISR."""
        self._replicas = replicas
        others = {node for node in replicas.nodes if node != self._around.node_id}
        members = {copy.node_id for copy in self.isr.confirmed} - {self._around.node_id}
        self.isr.need(replicas.isr_min)
        self.isr.leave(frozenset((members | self._feeders.keys()) - others))
        if self._group is None or self._ended:
            return
        for node in others - self._feeders.keys():
            feeder = Feeder(node, self._feeding)
            task = self._group.create_task(self._kept(feeder.run))
            self._feeders[node] = feeder, task
        for node in self._feeders.keys() - others - members:
            feeder, task = self._feeders.pop(node)
            task.cancel()
            feeder.close()

    # --- appending ----------------------------------------------------------------------------

    def ready(self) -> None:
        if not self._ended and not self._pump_scheduled:
            self._pump_scheduled = True
            self._around.schedule(self._pump_later)

    def _pump_later(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _pump(self) -> None:
        while not self._ended and self._window.has_room:
            if self._unsynced and self._last_size < LARGE_SIZE_BYTES:
                return
            contents = self.source.take_frame(FRAME_SIZE_BYTES_AIM)
            if contents is None:
                return
            self._send(contents)

    def _send(self, contents: FrameContents) -> None:
        led, end = self._led, self._copy.history.end
        pieces = _pieces(contents.payload)
        number = end.number + 1
        fields = FrameFields(
            led.container, led.container_epoch, contents.first_sequence, contents.count
        )
        head, crc = frame_head(
            fields, pieces, number=number, previous_crc=end.crc, confirmed=self._told_number,
            seed=self._copy.seed,
        )  # fmt: skip
        message = (head, *pieces)
        header = Message(
            Kind.FRAME, led.container, led.container_epoch, number, self._told_number, end.crc,
            contents.first_sequence, contents.count, 0, 1, contents.size, crc,
        )  # fmt: skip
        try:
            counted = self._copy.append(
                message, header, None, self._own_synced, container_epoch=led.container_epoch
            )
        except AnabranchError as error:
            self.fail(error)
            return
        self._unsynced += 1
        self._last_size = contents.size
        self._window.add(Sent(contents, counted, message))
        for feeder, _ in self._feeders.values():
            feeder.offer(counted, message)

    def _own_synced(self, counted: Counted) -> None:
        self._unsynced -= 1
        if self._ended:
            return
        self.isr.synced(self._led.own, counted.position)
        self._pump()

    def _advance(self) -> None:
        """Acknowledge the committed frames, in order."""
        if self._window.empty or self._ended:
            return
        if self.isr.alone and not self._around.may_acknowledge_alone():
            if self._cancel_timer is None:
                self._cancel_timer = self._around.call_later(
                    self._around.pace.lease_look_s, self._look_at_lease
                )
            return
        committed = self.isr.committed
        while not self._ended and (sent := self._window.take(committed)) is not None:
            self._told_number = sent.counted.link.number
            self.source.frame_durable(sent.contents, _address(sent.counted))
        self.ready()

    def _look_at_lease(self) -> None:
        self._cancel_timer = None
        self._advance()

    @property
    def refusal(self) -> AnabranchError | None:
        """The reason for which new appends would not be acknowledged; None usually."""
        return self.isr.refusal

    # --- ending -------------------------------------------------------------------------------

    def close(self) -> None:
        """See `ContainerLog.close`; harmless to repeat."""
        if self._ended:
            return
        self._ended = True
        self._window.abandon()
        self.isr.close()
        self._copy.stop_leading(self.container_epoch)
        for feeder, _ in self._feeders.values():
            feeder.close()
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        if self._task is not None:
            self._task.cancel()

    def fail(self, error: AnabranchError) -> None:
        """End the view, and its container, unless that happened before."""
        if not self._ended:
            self.failure = error
            self.close()
            if self._serving:
                self.source.log_failed(error)

    def fail_with_store(self, error: AnabranchError) -> None:
        """End the view, its container and the store, unless the view ended before."""
        if not self._ended:
            self.failure = error
            self.close()
            if self._serving:
                self.source.journal_failed(error)

    @property
    def idle(self) -> bool:
        """Whether everything that was taken is acknowledged, and nothing waits to be taken."""
        return self._ended or (self._window.empty and not self._pump_scheduled)

    @property
    def ended(self) -> bool:
        """Whether the view sends nothing more."""
        return self._ended

    # --- reading ------------------------------------------------------------------------------

    async def replay(self, after_sequence: int) -> AsyncIterator[ReplayedFrame]:
        """See `ContainerLog.replay`."""
        history = self._copy.history
        if history.base.last_sequence > after_sequence:
            raise CorruptJournal(
                "operations are missing from the log",
                after=after_sequence, found=history.base.last_sequence + 1, log_id=self.log_id,
            )  # fmt: skip
        readable = max(self.isr.committed, self._opening.position)
        frames = [
            counted
            for counted in history.frames_after(after_sequence)
            if counted.position <= readable
        ]
        async for counted, payload in self._copy.read_payloads(frames):
            count = counted.link.last_sequence - counted.first_sequence + 1
            yield ReplayedFrame(counted.first_sequence, count, _address(counted), payload)

    async def read_aside(self, address: LogAddress) -> bytes:
        """See `ContainerLog.read_aside`."""
        found = self._copy.history.at((address.file_id, address.position))
        if found is None:
            raise ObjectNotFound("the frame was released", position=address.position)
        return await self._copy.read_payload(found)

    async def release(self, applied_sequence: int) -> None:
        """See `ContainerLog.release`. A follower that catches up delays it for some time."""
        if applied_sequence > self._releases.released:
            for feeder, _ in self._feeders.values():
                feeder.release(applied_sequence)
        self._releases.release(applied_sequence)

    def unpin(self) -> None:
        """Have the log hold up no old journal file, if tier 2 has everything."""
        if self._group is not None and not self._ended and self._releases.may_unpin:
            self._group.create_task(self._kept(self._releases.unpin))

    # --- facts --------------------------------------------------------------------------------

    def facts(self) -> ReplicationFacts:
        """The log's replication as operators see it."""
        return ReplicationFacts(
            self.container,
            self.container_epoch,
            self._led.own,
            self.isr.confirmed,
            self.isr.isr_min,
            tuple(feeder.facts() for feeder, _ in self._feeders.values()),
        )


def _pieces(payload: Sequence[Buffer]) -> Sequence[Buffer]:
    """The payload as few buffers: beyond some number, a copy costs less than their checksums."""
    return payload if len(payload) <= PIECES_MAX else (b"".join(payload),)


def _address(counted: Counted) -> LogAddress:
    """The address names the message, wherever the copy stores it."""
    epoch, number = counted.position
    return LogAddress(epoch, number, counted.size)
