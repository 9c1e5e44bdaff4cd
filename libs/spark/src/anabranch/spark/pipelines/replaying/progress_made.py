"""Asks the target how much of a replay it has, and waits between chunks."""

import asyncio

from anabranch.client import connect
from anabranch.common.errors import StreamNotFound
from anabranch.common.runtime.clock import Clock

CLIENT_NAME = "anabranch-replay"
ASK_S_MAX = 60.0


def committed_chunks(where: str, stream: str, application: str) -> int:
    """How many chunks are committed; 0 for a stream that does not exist yet."""
    return asyncio.run(_asked(where, stream, application))


async def _asked(where: str, stream: str, application: str) -> int:
    async with asyncio.timeout(ASK_S_MAX), connect(where, name=CLIENT_NAME) as client:
        try:
            found = await client.transactions(stream).application(application)
        except StreamNotFound:
            return 0
    return 0 if found.committed_version is None else found.committed_version + 1


def wait(clock: Clock, seconds: float) -> None:
    """Wait; Ctrl-C ends it."""
    asyncio.run(clock.sleep(seconds))
