"""A container leaves its store: nothing of it may be anywhere but in tier 2 when it is let go.

    flush ─► accept no more ─► wait for the journal ─► flush ─► last manifest: log closed
          ─► the container ends ─► its log leaves the journal's list ─► the placement is released

The first flush runs while clients still write, so that they are refused only for the second, small
one. Clients that were refused look the container up again and find it elsewhere soon.

Every step may be repeated, and a crash after any of them is cured by opening again: before the last
manifest the log is here and goes on; after it the log is empty, whether it is still listed (then
it goes on, under the next container epoch, and is closed again) or not. The release comes last
because it lets another store open: it must find the log closed.

Tier 2 that fails after clients were refused would keep them waiting: then the container ends, is
opened again by its keeper, serves, and is closed later.
"""

import asyncio
from contextlib import suppress
from functools import partial

from anabranch.common.errors import DiskFailed, Retry, SyncFailed, Unavailable, Unknown
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import Failed, Message
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.node.store import OpenContainer

CLOSE_S_MAX = 30.0
DRAIN_POLL_S = 0.01


async def close_container(opened: OpenContainer, clock: Clock, back_off_s: BackOff) -> None:
    """Until the last manifest; the container refuses requests from the second flush on.

    Its flush loop must be running. Raises Unavailable when it takes longer than 30 s after the
    first refusal, and what ended the container.
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
            "the container was not closed in time; it continues to serve, and closes later",
            container=opened.container.container,
            seconds=CLOSE_S_MAX,
        ) from error


async def _flush(opened: OpenContainer, clock: Clock, back_off_s: BackOff) -> None:
    """Everything that is applied now is in tier 2; retried for as long as that takes."""
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
