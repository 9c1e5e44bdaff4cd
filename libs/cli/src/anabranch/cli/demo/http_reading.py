"""Reads a stream back through the gateway, as `anabranch --http URL read` does."""

from collections.abc import Callable
from contextlib import aclosing

from anabranch.cli.client_session import Session
from anabranch.cli.demo.check import RowSum
from anabranch.cli.events import HEAD, ReadRequest


async def read_back(
    session: Session, stream: str, wanted: int, progress: Callable[[int], None]
) -> RowSum:
    """Everything from the head to the present end; `progress` hears how many so far.

    Stops early after more than `wanted` events. Raises the session's errors.
    """
    found = RowSum()
    request = ReadRequest(HEAD, follow=False, count=None)
    async with aclosing(session.read(stream, request)) as batches:
        async for batch in batches:
            found.add(batch.payloads)
            progress(found.events)
            if found.events > wanted:
                break
    return found
