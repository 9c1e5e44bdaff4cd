"""Closes a container that leaves its store, so that all its data is where the next store finds it.

If the next store has no in-sync copy of the log, all data moves to tier 2 first:

    flush ─► accept no more ─► wait for the journal ─► flush ─► last manifest: log closed
          ─► the container ends ─► its log leaves the journal's list ─► the placement is released

The first flush runs while clients still write, so that they are refused only during the second,
small one. Refused clients look the container up again and soon find it at another store.

Every step may be repeated, and opening the container again repairs a crash after any of them.
Before the last manifest, the log is here and continues. After it, the log is empty: if it is still
listed, it continues under the next container epoch and is closed again. The release comes last
because it lets another store open the container, and that store must find the log closed.

If tier 2 fails after clients were refused, waiting for it would keep them refused. The container
then ends, its keeper opens it again to serve, and it is closed later.

If the next store has an in-sync copy of the log, it continues this log, and nothing is flushed.
This *hand-over* needs only that the log has confirmed what was accepted:

    accept no more ─► wait for the log ─► the container ends ─► the placement is handed over
"""

import asyncio
from contextlib import suppress
from enum import Enum, auto
from functools import partial

from anabranch.common.errors import DiskFailed, Retry, SyncFailed, Unavailable, Unknown
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import Failed, Message
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.node.store import OpenContainer

CLOSE_S_MAX = 30.0
HAND_OVER_S_MAX = 5.0
DRAIN_POLL_S = 0.01


class Leave(Enum):
    """How a container leaves its store."""

    FLUSHED = auto()
    """Its log is closed, and tier 2 has everything."""
    HANDED_OVER = auto()
    """Its log goes on at another store."""


class LeaveRequest:
    """Whether the container shall leave, and how, as its placement says now."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.leave = Leave.FLUSHED

    def note(self, *, asked: bool, hands_over: bool) -> None:
        """Note the placement's wish; a hand-over needs an in-sync copy at the target."""
        self.leave = Leave.HANDED_OVER if hands_over else Leave.FLUSHED
        if asked:
            self.asked.set()
        else:
            self.asked.clear()


async def close_container(opened: OpenContainer, clock: Clock, back_off_s: BackOff) -> None:
    """Close the container up to its last manifest. It refuses requests from the second flush on.

    Its flush loop must be running. Raises Unavailable if closing takes longer than 30 s after the
    first refusal, and the error that ended the container.
    """
    await _flush(opened, clock, back_off_s)
    opened.container.stop_accepting()
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            while not opened.container.idle:
                await clock.sleep(DRAIN_POLL_S)
            await _flush(opened, clock, back_off_s)
            assert not opened.container.applied.changed, (
                "an operation was accepted during the close"
            )
            await _write_last_manifest(opened, clock, back_off_s)
    except TimeoutError as error:
        raise Unavailable(
            "the container was not closed in time; the store opens it again and closes it later",
            container=opened.container.container,
            seconds=CLOSE_S_MAX,
        ) from error


async def stop_container(opened: OpenContainer, clock: Clock) -> None:
    """Refuse requests, and wait until the log has confirmed the accepted operations.

    Raises Unavailable if the log takes longer than 5 s, and the error that ended the container.
    """
    container = opened.container
    container.stop_accepting()
    try:
        async with asyncio.timeout(HAND_OVER_S_MAX):
            while not container.idle and container.failure is None:
                await clock.sleep(DRAIN_POLL_S)
    except TimeoutError as error:
        raise Unavailable(
            "the log did not confirm everything in time; the store opens the container again",
            container=container.container,
            seconds=HAND_OVER_S_MAX,
        ) from error
    if container.failure is not None:
        raise container.failure


async def _flush(opened: OpenContainer, clock: Clock, back_off_s: BackOff) -> None:
    """Move everything applied so far to tier 2, retrying until it succeeds or the container
    ends."""
    failures = 0
    while True:
        told: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        opened.flusher.request(partial(_tell, told))
        reply = await told
        if not isinstance(reply, Failed):
            return
        if opened.container.failure is not None:
            raise opened.container.failure
        failures += 1
        await clock.sleep(back_off_s(failures))


def _tell(told: asyncio.Future[Message], reply: Message) -> None:
    if not told.done():
        told.set_result(reply)


async def _write_last_manifest(opened: OpenContainer, clock: Clock, back_off_s: BackOff) -> None:
    failures = 0
    while True:
        try:
            await opened.tier_two.close()
            break
        except SyncFailed:
            raise
        except (Retry, Unknown):
            failures += 1
            await clock.sleep(back_off_s(failures))
    with suppress(DiskFailed, Unavailable, Unknown, OSError):  # the next owner leaves one as well
        await opened.tier_two.confirm()
