"""The loop that moves a container's tail to tier 2.

It wakes when enough bytes are un-tiered, when the oldest unrecorded change is old enough, when the
container pins the journal's oldest file, when copies of rewritten objects wait, or on request.
Without a request it begins a flush at most once a second. A flush cuts at the applied sequence S,
lets tier 2 make everything up to S durable, moves the extents in the index, and then releases the
log. The order matters: the journal may delete its copy only after the manifest is durable and no
successor was seen.

A request covers everything applied, and thus acknowledged, when it arrived; a running flush with an
earlier cut does not answer it. Only the owner may answer: a replaced owner with nothing to flush
does not know which appends its successor acknowledged, so tier 2 is checked each time.

Safe to repeat: a flush that failed at its chunks leaves only unreferenced objects, and its changes
are part of the next cut. A flush that failed at its manifest is finished first, because the
manifest may exist; later changes are part of the next cut. While tier 2 fails or is full, flushes
are retried, and the store serves until its un-tiered limit at the cost of journal space. A newer
owner ends the container, and a failed sync of tier 2 ends the store.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from anabranch.common.errors import (
    AnabranchError,
    DiskFailed,
    OutcomeUnknown,
    SyncFailed,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import Done, failed
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.ports import TieredExtents, TierTwo
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.memory.tail import CallLater
from anabranch.segstore.shell.tiering.eviction import evict, sweep
from anabranch.segstore.shell.tiering.flush_fetch import FlushFetch

REQUEST_DEADLINE_S = 60.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """A flush is due after `bytes_max` un-tiered bytes or `age_s_max` seconds.

    Unrequested flushes begin at least `interval_s_min` seconds after each other.
    """

    bytes_max: int = 64 * 1024 * 1024
    age_s_max: float = 30.0
    interval_s_min: float = 1.0


class FlushRequest:
    """A caller that waits until everything up to `sequence` is in tier 2."""

    __slots__ = ("cancel_timer", "deliver", "sequence")

    def __init__(self, sequence: int, deliver: Deliver) -> None:
        self.sequence = sequence
        self.deliver = deliver
        self.cancel_timer = _nothing


class Flusher:
    """The flush loop of one open container."""

    def __init__(
        self,
        container: Container,
        tier_two: TierTwo,
        *,
        clock: Clock,
        throttle: Throttle,
        call_later: CallLater,
        limits: FlushLimits,
        back_off_s: BackOff,
    ) -> None:
        self._container = container
        self._tier_two = tier_two
        self._clock = clock
        self._throttle = throttle
        self._call_later = call_later
        self._limits = limits
        self._back_off_s = back_off_s
        self._requests: list[FlushRequest] = []
        self._wanted = asyncio.Event()
        self._urgent = asyncio.Event()
        """Set by a request or the container's end: it cuts short a pause between flushes."""
        self._unfinished: ContainerCut | None = None
        self._cancel_age = _nothing
        self._aging = False
        container.notices.on_applied = self.notice_applied

    # --- wake-ups -----------------------------------------------------------------------------

    def notice_applied(self) -> None:
        """Check whether a flush is due, because the container applied a frame."""
        if not self._aging:
            self._aging = True
            self._cancel_age = self._call_later(self._limits.age_s_max, self._wanted.set)
        untiered = self._container.applied.untiered
        if untiered >= self._limits.bytes_max or (untiered and self._throttle.flush_wanted):
            self._wanted.set()

    def request(self, deliver: Deliver) -> None:
        """Flush everything acknowledged so far → Done, or Unavailable after a deadline."""
        request = FlushRequest(self._container.applied.state.sequence, deliver)
        request.cancel_timer = self._call_later(REQUEST_DEADLINE_S, lambda: self._give_up(request))
        self._requests.append(request)
        self._urgent.set()
        self._wanted.set()

    def hurry(self) -> None:
        """Flush as soon as pauses and failures allow, without an answer."""
        if self._due:
            self._wanted.set()

    @property
    def _due(self) -> bool:
        """Whether a flush has anything to record. A container that closes records no copies, so
        that its last flush is the last one."""
        copied = self._tier_two.copied and self._container.serving
        return self._container.applied.changed or copied

    def _give_up(self, request: FlushRequest) -> None:
        self._requests.remove(request)
        error = Unavailable(
            "the flush did not end in time; it continues", seconds=REQUEST_DEADLINE_S
        )
        request.deliver(failed(error))

    def stop(self) -> None:
        """Fail the requests and end `run`, because the container ended."""
        self._cancel_age()
        self._urgent.set()
        self._wanted.set()
        requests, self._requests = self._requests, []
        for request in requests:
            request.cancel_timer()
            request.deliver(failed(Unavailable("the container ended before the flush did")))

    # --- flushing -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Flush whenever it is due, until the container ends. Raises the error that ended it."""
        failures = 0
        if self._container.applied.changed:
            self.notice_applied()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._urgent.clear()
            self._check_alive()
            began_s = self._clock.monotonic()
            try:
                await self.flush()
                failures = 0
                pause_s = began_s + self._limits.interval_s_min - self._clock.monotonic()
            except SyncFailed:
                raise
            except (DiskFailed, Unavailable, OutcomeUnknown) as error:
                self._check_alive()
                failures += 1
                self._report(error, failures)
                pause_s = self._back_off_s(failures)
                self._wanted.set()
            await self._pause(pause_s)

    def _check_alive(self) -> None:
        if self._container.failure is not None:
            raise self._container.failure

    async def _pause(self, seconds: float) -> None:
        """Wait, unless a flush is requested or the container ends meanwhile."""
        if seconds <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._urgent.wait()

    def _report(self, error: AnabranchError, failures: int) -> None:
        self._container.metrics.flush_failures += 1
        self._throttle.tier_two_failing(self._container.container, failing=True)
        _log.warning(
            "a flush to tier 2 failed, retrying",
            container=self._container.container,
            failures=failures,
            error=str(error),
            remedy=error.remedy_for("command"),
        )

    async def flush(self) -> None:
        """Move everything applied so far; does nothing if nothing changed and no copies wait.

        Raises Deposed, DiskFailed and the other errors of `TierTwo.flush`; the changes are then
        part of the next flush.
        """
        applied = self._container.applied
        if self._unfinished is not None:
            await self._move(self._unfinished)
        if self._due:
            self._cancel_age()
            self._aging = False
            await self._move(applied.begin_flush())
            if applied.changed:
                self.notice_applied()
        await self._answer()
        self._throttle.tier_two_failing(self._container.container, failing=False)

    async def _move(self, cut: ContainerCut) -> None:
        """Flush one cut. If it is unknown whether its manifest exists, the cut remains begun."""
        container = self._container
        tiered: Sequence[TieredExtents] | None = None
        moved, began_s = 0, self._clock.monotonic()
        fetch = FlushFetch(container, self._clock, self._throttle.take_up)
        try:
            tiered = await self._tier_two.flush(cut, fetch)
        finally:
            self._throttle.put_down(fetch.taken_up)
            self._unfinished = cut if self._tier_two.unfinished else None
            if container.failure is None and self._unfinished is None:
                moved = container.applied.end_flush(cut, tiered)
                self._throttle.add_untiered(-moved)
        self._check_alive()
        container.metrics.flushed(moved, self._clock.monotonic() - began_s)
        container.metrics.rewritten_bytes += sum(
            extent.ref.length for found in tiered or () for extent in found.replaced
        )
        await container.log.release(cut.sequence)
        self._check_alive()
        self._throttle.wake()
        await self._make_room(cut)

    async def _make_room(self, cut: ContainerCut) -> None:
        """Evict names, because the flush made names clean."""
        container = self._container
        container.residency.touch(cut.names)
        sweep(container, self._clock.now_ms())
        while evict(container):
            await self._clock.sleep(0)
            self._check_alive()

    async def _answer(self) -> None:
        """Answer the covered requests, if this store still owns the container. Raises Deposed."""
        flushed = self._container.applied.flushed_sequence
        covered = [request for request in self._requests if request.sequence <= flushed]
        if not covered:
            return
        await self._tier_two.check_owner()
        self._check_alive()
        for request in covered:
            if request in self._requests:  # it may have timed out during the check
                self._requests.remove(request)
                request.cancel_timer()
                request.deliver(Done())


def _nothing() -> None:
    return
